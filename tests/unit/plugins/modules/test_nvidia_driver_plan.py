# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on a tree of files, with tools that answer as the real ones do."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._driver import states
from ansible_collections.baremetal.dgx.plugins.modules import nvidia_driver_plan

V = "580.126.20"
KERNEL = "6.8.0-60-generic"
REQUEST = {"source": "nvidia_repository", "version": V, "gpu": "h100", "nvswitches": 4}
NAMES = [
    "nvidia-driver-580-open", "nvidia-dkms-580-open", "nvidia-fabricmanager", "libnvidia-nscq"
]  # fmt: skip
TOOLS = {
    "modinfo": """\
test "$1 $3" = "-k nvidia" || exit 9
case $2 in 6.8.0-60-generic) text=modinfo.txt ;; *) text=modinfo.$2 ;; esac
test -s "$here/$text" || { echo "modinfo: ERROR: Module nvidia not found." >&2; exit 1; }
exec cat "$here/$text"
""",
    "dpkg-query": 'exec cat "$here/dpkg.txt"\n',
    "mokutil": """\
test "$1" = --test-key || exit 9
grep -q enrolled "$here/mok.txt" && { echo "$2 is already enrolled"; exit 1; }
echo "$2 is not enrolled"
""",
    "apt-get": """\
echo "$@" >> "$here/apt.log"
test ! -e "$here/unsigned" || { echo "E: GPG error: NO_PUBKEY A4B469963BF863CC" >&2; exit 100; }
""",
    "apt-cache": 'test "$1" = madison || exit 9; exec cat "$here/madison.txt"\n',
}


class Node:
    """A tree that looks like a node's, and what its tools say."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.tools = folder / "tools"
        self.tools.mkdir()
        for name, text in TOOLS.items():
            path = self.tools / name
            path.write_text(f'#!/bin/sh\nhere="$(dirname "$0")"\n{text}')
            path.chmod(0o755)
        self.write("etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\n')
        self.write("proc/sys/kernel/osrelease", KERNEL + "\n")
        self.write(f"lib/modules/{KERNEL}/build/Makefile", "")
        for name in ("modinfo", "dpkg", "mok", "madison"):
            (self.tools / f"{name}.txt").write_text("")

    def write(self, name: str, text: str | bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def packages(self, *entries: tuple[str, str], status: str = "ii ") -> None:
        with (self.tools / "dpkg.txt").open("a") as handle:
            handle.writelines(f"{status}\t{name}\t{version}\n" for name, version in entries)

    def install(self, version: str = V) -> None:
        """A driver that is installed and loaded."""
        self.packages(*((name, f"{version}-1ubuntu1") for name in NAMES))
        self.write("sys/module/nvidia/version", version + "\n")
        text = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build"
        self.write("proc/driver/nvidia/version", text + "\n")
        for name in ("libcuda", "libnvidia-ml"):
            self.write(f"usr/lib/x86_64-linux-gnu/{name}.so.{version}", "")
            (self.root / f"usr/lib/x86_64-linux-gnu/{name}.so.1").symlink_to("somewhere")
        (self.tools / "modinfo.txt").write_text(f"version: {version}\nlicense: Dual MIT/GPL\n")


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:/usr/bin:/bin")
    return Node(tmp_path)


@pytest.fixture
def ask(run_module, node):
    def run(state, check=False, **params):
        names = nvidia_driver_plan.ARGUMENT_SPEC["driver"]["options"]
        driver = {**REQUEST, **{name: params.pop(name) for name in names if name in params}}
        given = {
            "state": state,
            "node": "dgx-01",
            "root": str(node.root),
            "sysfs": str(node.root / "sys"),
            "proc": str(node.root / "proc"),
            "libraries": [str(node.root / "usr/lib/x86_64-linux-gnu")],
            "driver": driver,
            **params,
        }
        return run_module(nvidia_driver_plan.main, given, check)

    return run


def test_a_bare_node_is_planned(ask, node):
    answer = ask("plan")
    assert answer["present"] == [f"{name}={V}-*" for name in NAMES]
    assert answer["held"] == answer["missing"] == NAMES
    assert (answer["pin"], answer["stream"], answer["next_step"]) == (f"{V}-*", "", "")
    assert answer["fabric_manager"] is True
    assert answer["cuda"] == 0
    assert not (node.tools / "apt.log").exists()


def test_a_whole_node_is_verified(ask, node):
    node.install()
    answer = ask("verified", gpudirect="dmabuf")
    assert answer["verdict"] == "pass"
    assert len(answer["records"]) == 8
    assert answer["cuda"] == 13
    assert ask("plan")["missing"] == []


# /proc/driver/nvidia/params of a machine, without what is of other hardware
# (NVIDIA/nvidia-container-toolkit, issue 115).
PARAMS = """\
ResmanDebugLevel: 4294967295
RmLogonRC: 1
ModifyDeviceFiles: 1
DeviceFileMode: 438
EnableMSI: 1
RmProfilingAdminOnly: 1
PreserveVideoMemoryAllocations: 0
DmaRemapPeerMmio: 1
RegistryDwords: ""
"""
PROFILING = {"NVreg_RestrictProfilingToAdminUsers": 0}


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"NVreg_RestrictProfilingToAdminUsers": 1}, "pass"),
        (PROFILING, "fail"),
        ({"NVreg_EnableMSI": "1", "NVreg_DeviceFileMode": "0x1b6"}, "pass"),
        ({"NVreg_ResmanDebugLevel": -1}, "pass"),
        ({"NVreg_PreserveVideoMemoryAllocations": 1}, "fail"),
        # A driver that does not have it, or does not show it.
        ({"NVreg_EnableNonblockingOpen": 1}, "not_measured"),
        # The driver takes a text apart before it shows it.
        ({"NVreg_RegistryDwords": "a=1;b=2", "NVreg_DeviceFileMode": "0666"}, None),
    ],
)
def test_parameters_of_the_loaded_module(ask, node, options, status):
    node.install()
    node.write("proc/driver/nvidia/params", PARAMS)
    records = ask("verified", module_options=options, fail_on=[])["records"]
    found = {one["status"] for one in records if one["check"] == "stack.parameter"}
    assert found == ({status} if status else set())


def test_a_parameter_is_named_as_it_is_declared(ask, node):
    node.install()
    node.write("proc/driver/nvidia/params", PARAMS)
    (line,) = ask("verified", module_options=PROFILING, fail_on=[])["findings"]
    assert "NVreg_RestrictProfilingToAdminUsers of the loaded module" in line
    (line,) = ask("verified", module_options={"NVreg_New": 1}, fail_on=[])["not_measured"]
    assert "NVreg_New of the loaded module, which does not show it" in line


NEXT = "6.8.0-101-generic"


def kernels(node, *names):
    for name in names:
        node.write(f"boot/vmlinuz-{name}", "")
        node.write(f"lib/modules/{name}/modules.dep", "")


def on_disk(answer):
    (record,) = (one for one in answer["records"] if one["check"] == "stack.on_disk")
    return record


@pytest.mark.parametrize(("version", "status"), [("", "fail"), ("570.86.15", "fail"), (V, "pass")])
def test_a_newer_kernel_waits_for_its_module(ask, node, version, status):
    node.install()
    node.write("etc/default/grub", 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX=""\n')
    kernels(node, KERNEL, NEXT)
    # Removed, and only its configuration is left.
    node.write("lib/modules/6.8.0-110-generic/modules.dep", "")
    text = f"version: {version}\nlicense: Dual MIT/GPL\n" if version else ""
    (node.tools / f"modinfo.{NEXT}").write_text(text)
    record = on_disk(ask("verified", fail_on=[]))
    assert record["status"] == status
    assert f"kernel {NEXT} boots next and has {version or 'none'}" in record["text"]
    if status == "fail":
        assert record["remedy"] == f"install the module, or the headers, for kernel {NEXT}"


@pytest.mark.parametrize(
    "grub",
    [
        {},
        {"etc/default/grub": "GRUB_DEFAULT=saved\n"},
        {
            "etc/default/grub": "GRUB_DEFAULT=0\n",
            "etc/default/grub.d/9.cfg": 'GRUB_DEFAULT="1>2"\n',
        },
        {"etc/default/grub": "GRUB_FLAVOUR_ORDER=nvidia\n"},
    ],
)
def test_which_kernel_boots_next_is_not_guessed(ask, node, grub):
    node.install()
    kernels(node, KERNEL, NEXT)
    for name, text in grub.items():
        node.write(name, text)
    assert on_disk(ask("verified"))["text"] == f"driver {V} is loaded, the next boot loads {V}"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (f"/boot/vmlinuz-{NEXT}", ("fail", "none")),
        # The layout `bls` of kernel-install; which kernel it is stays unknown.
        (f"/boot/6a9857a393724b7a981ebb5b8495b9ea/{NEXT}/linux", ("pass", V)),
    ],
)
def test_enterprise_linux_says_which_kernel_boots_next(ask, node, path, found):
    node.install()
    node.write("etc/os-release", 'ID=rocky\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\n')
    for name, text in {"grubby": f"echo {path}", "rpm": "exit 0"}.items():
        (node.tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (node.tools / name).chmod(0o755)
    record = on_disk(ask("verified", fail_on=[]))
    assert (record["status"], record["measured"]["value"]) == found


def test_the_package_of_each_new_kernel_is_not_held(ask, node):
    """Held, it would leave a new kernel without a driver."""
    follows = "linux-modules-nvidia-580-server-open-generic"
    own = f"linux-modules-nvidia-580-server-open-{KERNEL}"
    answer = ask("plan", source="distribution")
    assert {f"{follows}", own} <= {entry.split("=")[0] for entry in answer["present"]}
    assert own in answer["held"]
    assert follows not in answer["held"]


def test_disagreement_is_told_and_fails(ask, node):
    node.install()
    node.write("usr/lib/x86_64-linux-gnu/libcuda.so.570.86.15", "")
    answer = ask("verified")
    assert answer["failed"]
    assert answer["msg"].startswith(
        "node:dgx-01 stack.libcuda is 570.86.15 and 580.126.20 version (must be == 580.126.20): "
        "libcuda is 570.86.15 and 580.126.20"
    )
    for given in ({"fail_on": []}, {"check": True}):
        answer = ask("verified", **given)
        assert "failed" not in answer
        assert len(answer["findings"]) == 1


def test_dcgm_that_its_role_replaces_later_fails_no_driver(ask, node):
    """DCGM 3, alone and beside DCGM 4."""
    node.install()
    for name, version in (("", "1:3.3.9"), ("-4-core", "1:4.6.0-1"), ("-4-cuda12", "1:4.6.0-1")):
        node.packages((f"datacenter-gpu-manager{name}", version))
        assert ask("verified", dcgm=False)["findings"] == []
        (line,) = ask("verified", fail_on=[])["findings"]
        assert " stack.dcgm: " in line


def test_several_obstacles_are_several_lines(ask, node):
    node.write("sys/module/nouveau/refcnt", "0\n")
    node.packages(("nvidia-driver-570-open", "570.86.15-0ubuntu1"), status="hi ")
    variable = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    node.write(variable, b"\x06\0\0\0\x01")
    node.write("var/lib/dkms/mok.pub", "key")
    answer = ask("plan")
    assert answer["failed"]
    assert [line.split(" ")[0] for line in answer["msg"].splitlines()] == [
        "nvidia-driver-570-open", "nouveau", "Secure",
    ]  # fmt: skip
    (node.tools / "mok.txt").write_text("enrolled")
    node.write("var/lib/baremetal-dgx/held/nvidia_driver", "nvidia-driver-570-open\n")
    assert len(ask("plan")["findings"]) == 1
    answer = ask("plan", reboot_allowed=True)
    assert (answer["removals"], answer["next_step"]) == (["nvidia-driver-570-open"], "reboot")
    node.write(variable, b"\x06\0\0\0\x00")
    (node.tools / "mok.txt").write_text("")
    assert ask("plan", reboot_allowed=True)["findings"] == []


def test_a_job_keeps_the_driver(ask, node):
    node.write("proc/4242/cmdline", b"slurmstepd: [4711.batch]\0")
    node.write("proc/4243/cmdline", b"slurmstepd: [4711.interactive]\0")
    answer = ask("plan", reboot_allowed=True)
    assert "4711.batch" in answer["msg"]
    assert len(answer["findings"]) == 1


SCONTROL = """\
echo "$@" >> "$here/scontrol.log"
case $2 in reservation) exit 0 ;; esac
test -s "$here/node.txt" || { echo "Node $3 not found" >&2; exit 1; }
exec cat "$here/node.txt"
"""


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("NodeName=dgx-02 State=IDLE ThreadsPerCore=2", "dgx-02 is in service in Slurm (IDLE)"),
        ("NodeName=dgx-02 State=MIXED+DRAIN", "dgx-02 is in service in Slurm (MIXED+DRAIN)"),
        ("NodeName=dgx-02 State=IDLE+DRAIN Reason=new [root@2026-01-01T00:00:00]", ""),
        ("NodeName=dgx-02 State=DOWN+DRAIN+NOT_RESPONDING", ""),
        ("", ""),
        ("nonsense", "Slurm does not say whether a job may start here (scontrol says 'nonsense')"),
    ],
)
def test_slurm_is_asked_before_a_driver_is_unloaded(ask, node, monkeypatch, message, why):
    """Only where something would be unloaded: a thousand nodes ask one controller."""
    monkeypatch.setattr(states, "short_name", lambda: "dgx-02")
    node.install("570.86.15")
    for name, text in {"scontrol": SCONTROL, "squeue": "", "pgrep": ""}.items():
        path = node.tools / name
        path.write_text(f'#!/bin/sh\nhere="$(dirname "$0")"\n{text}')
        path.chmod(0o755)
    (node.tools / "node.txt").write_text(f"{message}\n" if message else "")
    answer = ask("plan", reload_allowed=True)
    assert ("failed" in answer) == bool(why)
    assert why in answer.get("msg", "")
    # What is on disk, but not loaded: the role does the reload then, or not.
    (node.tools / "modinfo.txt").write_text(f"version: {V}\nlicense: Dual MIT/GPL\n")
    answer = ask("verified", fail_on=[])
    assert (answer["next_step"], answer["in_service"]) == ("reload", why)
    asked = len((node.tools / "scontrol.log").read_text().splitlines())
    (node.tools / "modinfo.txt").write_text("version: 570.86.15\nlicense: Dual MIT/GPL\n")
    assert ask("verified", fail_on=[])["in_service"] == ""
    assert len((node.tools / "scontrol.log").read_text().splitlines()) == asked


def test_where_no_slurm_is_no_one_is_asked(ask, node):
    node.install("570.86.15")
    assert "failed" not in ask("plan", reload_allowed=True)


def test_what_is_not_offered_fails_before_anything_changes(ask, node):
    (node.tools / "madison.txt").write_text(
        "".join(f"{name} | 570.86.15-1 | file:/x ./ Packages\n" for name in NAMES[:3])
    )
    answer = ask("offered", sources_file="/etc/apt/sources.list.d/x.sources")
    assert answer["findings"] == [
        *(f"no source has {name} {V}; they have 570.86.15" for name in NAMES[:3]),
        "no source has libnvidia-nscq; look at branch and source that are declared",
    ]
    log = (node.tools / "apt.log").read_text()
    assert "Dir::Etc::sourcelist=/etc/apt/sources.list.d/x.sources" in log
    assert len(log.splitlines()) == 1
    assert "failed" not in ask("offered", check=True)


def test_a_branch_alone_is_pinned_as_the_next_run_pins_it(ask, node):
    offers = "".join(f"{name} | {v}-1ubuntu1 | x\n" for name in NAMES for v in ("580.178.04", V))
    (node.tools / "madison.txt").write_text(offers)
    branch = {"version": "", "branch": "580"}
    first = ask("offered", **branch)
    assert first["pin"] == "580.178.04-*"
    assert first["present"] == [f"{name}=580.178.04-*" for name in NAMES]
    # Nothing is asked in check mode.
    assert ask("offered", check=True, **branch)["pin"] == "580.*"
    node.install("580.178.04")
    (node.tools / "madison.txt").write_text(offers.replace("580.178.04", "580.200.01"))
    again = ask("offered", **branch)
    assert (again["pin"], again["missing"]) == (first["pin"], [])


def runs(node, version, kind="Open Kernel Module for x86_64"):
    """A driver that is loaded, and that no package brought."""
    node.write("sys/module/nvidia/version", version + "\n")
    text = f"NVRM version: NVIDIA UNIX {kind}  {version}  Release Build\n"
    node.write("proc/driver/nvidia/version", text)


@pytest.mark.parametrize("state", ["plan", "offered"])
def test_a_branch_alone_replaces_no_loaded_driver_without_consent(ask, node, monkeypatch, state):
    """NVIDIA's .run file has loaded it; which version the packages have is known only later."""
    serving = "dgx-02 is in service in Slurm (IDLE)"
    monkeypatch.setattr(states, "in_service", lambda run: serving)
    branch = {"version": "", "branch": "580"}
    offers = "".join(f"{name} | {V}-1ubuntu1 | x\n" for name in NAMES)
    (node.tools / "madison.txt").write_text(offers)
    assert "failed" not in ask(state, **branch), "nothing is loaded that a job could use"
    runs(node, "580.95.05")
    (line,) = ask(state, **branch)["findings"]
    assert line.startswith("driver 580.95.05 is loaded and the newest of 580 is declared; ")
    assert "allow it with nvidia_driver_reload_allowed: true" in line
    (line,) = ask(state, reload_allowed=True, **branch)["findings"]
    assert f", and {serving}; drain this node" in line
    monkeypatch.setattr(states, "in_service", lambda run: "")
    answer = ask(state, reload_allowed=True, **branch)
    assert (answer["findings"], answer["missing"]) == ([], NAMES)
    node.install("580.95.05")
    monkeypatch.setattr(states, "in_service", lambda run: serving)
    answer = ask(state, **branch)
    assert (answer["findings"], answer["missing"]) == ([], []), "a converged node stays as it is"


def test_a_branch_alone_does_not_go_below_the_loaded_driver(ask, node):
    runs(node, "580.200.01")
    offers = "".join(f"{name} | {V}-1ubuntu1 | x\n" for name in NAMES)
    (node.tools / "madison.txt").write_text(offers)
    given = {"version": "", "branch": "580", "reload_allowed": True}
    (line,) = ask("offered", **given)["findings"]
    assert line == (
        f"the loaded driver 580.200.01: newer than the offered driver {V}, and without a version "
        "nothing goes back; declare the newer one as nvidia_driver_version"
    )
    assert "failed" not in ask("offered", reload_allowed=True), "declared, it may go back"


def test_the_other_modules_of_a_branch_wait_for_consent_and_make_room(ask, node):
    """cuda-drivers of one version are replaced by nvidia-open of the same."""
    old = ["cuda-drivers-580", "nvidia-dkms-580", "nvidia-kernel-source-580"]
    node.packages(*((name, f"{V}-1ubuntu1") for name in (*old, *NAMES[2:])))
    runs(node, V, kind="x86_64 Kernel Module")
    (node.tools / "modinfo.txt").write_text(f"version: {V}\nlicense: NVIDIA\n")
    (line,) = ask("plan")["findings"]
    assert line.startswith(
        f"driver {V} is loaded and {V} is declared, open modules instead of proprietary ones; the "
        "change needs a reload or a reboot"
    )
    answer = ask("plan", reload_allowed=True)
    assert (answer["missing"], answer["removals"]) == (NAMES[:2], sorted(old))
    # They are on disk now, and the old ones are still loaded.
    node.packages(*((name, f"{V}-1ubuntu1") for name in NAMES[:2]))
    (node.tools / "modinfo.txt").write_text(f"version: {V}\nlicense: Dual MIT/GPL\n")
    for modules in ("auto", "open"):
        answer = ask("verified", kernel_modules=modules, fail_on=[])
        assert answer["next_step"] == "reload"
        (remedy,) = (one["remedy"] for one in answer["records"] if one["check"] == "stack.modules")
        assert remedy == "drain this node, then reload the driver or reboot"


def test_a_declared_nccl_replaces_another_and_is_held(ask, node):
    nccl = "libnccl2=2.27.7-1+cuda13.0"
    node.install()
    node.packages(("libnccl2", "2.19.3-1+cuda12.3"))
    answer = ask("plan", extra=[nccl])
    assert answer["missing"] == ["libnccl2"]
    assert answer["held"] == [*NAMES, "libnccl2"]
    (node.tools / "madison.txt").write_text("libnccl2 | 2.26.2-1+cuda12.8 | x\n")
    assert "no source has libnccl2 2.27.7-1+cuda13.0" in ask("offered", extra=[nccl])["msg"]
    answer = ask("plan", extra=["libnccl2"])
    assert (answer["missing"], answer["held"]) == ([], NAMES), "any version is declared"
    node.packages(("libnccl2", "2.19.3-1+cuda12.3"), status="hi ")
    (line,) = ask("plan", extra=[nccl])["findings"]
    assert line.startswith("libnccl2 is held at 2.19.3-1+cuda12.3 and blocks 2.27.7-1+cuda13.0; ")


def test_offered_and_headers(ask, node):
    offers = "".join(f"{name} | {V}-1ubuntu1 | x\n" for name in NAMES)
    (node.tools / "madison.txt").write_text(offers)
    assert "failed" not in ask("offered")
    (node.root / f"lib/modules/{KERNEL}/build/Makefile").unlink()
    answer = ask("offered")
    assert answer["msg"].startswith(
        f"kernel headers are missing and no source has linux-headers-{KERNEL}"
    )
    (node.tools / "madison.txt").write_text(offers + f"linux-headers-{KERNEL} | 6.8.0-60.63 | x\n")
    assert f"linux-headers-{KERNEL}" in ask("offered")["present"]


def test_a_source_that_is_not_signed(ask, node):
    (node.tools / "unsigned").write_text("")
    answer = ask("offered")
    assert answer["failed"]
    assert "NO_PUBKEY A4B469963BF863CC" in answer["msg"]
    # where nothing is missing, nothing is asked
    node.install()
    assert "failed" not in ask("offered")


def test_preinstalled_plans_nothing(ask, node):
    answer = ask("plan", source="preinstalled", version="", branch="")
    assert "present" not in answer
    assert "failed" not in answer


def test_dgx_os_keeps_its_own_repositories(ask, node):
    node.write("etc/dgx-release", 'DGX_NAME="DGX Server"\n')
    assert "DGX OS brings NVIDIA's repositories itself" in ask("plan")["msg"]
    answer = ask("plan", source="distribution")
    assert answer["system"] == "dgxos7"
    assert answer["present"][0] == f"nvidia-driver-580-open={V}-*"


def test_without_modinfo_the_next_boot_is_not_measured(ask, node, monkeypatch, tmp_path):
    node.install()
    (node.tools / "modinfo").write_text("#!/bin/sh\nexit 127\n")
    answer = ask("verified")
    assert answer["verdict"] == "not_measured"
    assert "stack.on_disk" in answer["not_measured"][0]
