# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to be done to a driver, what blocks it, and whether its parts agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import lines_of
from ansible_collections.baremetal.dgx.plugins.module_utils._driver.judge import (
    agree,
    gpudirect_way,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._driver.packages import Request, select
from ansible_collections.baremetal.dgx.plugins.module_utils._driver.plan import (
    Consent,
    Seen,
    absent_packages,
    exact_version,
    library_versions,
    newest_of_all,
    next_step,
    obstacles,
    of_branch,
    parse_modinfo,
    parse_parameters,
    parse_proc_version,
    parse_release,
    plan,
    upstream,
    version_fits,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.packages.plan import Package

V = "580.126.20"
OLD = "570.86.15"
KERNEL = "6.8.0-60-generic"
REQUEST = Request("nvidia_repository", version=V, gpu="h100", nvswitches=4)
NAMES = (
    "nvidia-driver-580-open",
    "nvidia-dkms-580-open",
    "nvidia-fabricmanager",
    "libnvidia-nscq",
)


def packages(*entries, **held):
    found = {}
    for name, version in entries:
        found[name] = Package(name, version, held=held.get(name.replace("-", "_"), False))
    return found


SOUND = Seen(
    system="ubuntu24.04",
    kernel=KERNEL,
    loaded=V,
    proc=V,
    loaded_flavour="open",
    on_disk=V,
    on_disk_flavour="open",
    libraries={"libcuda": (V,), "libnvidia-ml": (V,)},
    packages=packages(*((name, f"{V}-1ubuntu1") for name in NAMES)),
    modules=frozenset({"nvidia"}),
)
BARE = Seen(system="ubuntu24.04", kernel=KERNEL, on_disk="")


def refused(seen, request=REQUEST, consent=None):
    selection = select(seen.system, request, seen.kernel)
    work = plan(seen, request, selection)
    return obstacles(seen, request, selection, work, consent or Consent())


def worked(seen, request=REQUEST, extra=()):
    return plan(seen, request, select(seen.system, request, seen.kernel), extra)


# Texts


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.20  Release Build\n",
            (V, "open"),
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15\nGCC:\n",
            ("535.104.05", "proprietary"),
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  590.44  Release Build\n",
            ("590.44", "open"),
        ),
        ("", ("", "")),
        ("NVRM version:", ("", "")),
    ],
)
def test_loaded_module(text, answer):
    assert parse_proc_version(text) == answer


def test_module_on_disk():
    text = "filename: /lib/modules/6.8/nvidia.ko\nversion:        580.126.20\nlicense:  {}\n"
    assert parse_modinfo(text.format("Dual MIT/GPL")) == (V, "open")
    assert parse_modinfo(text.format("NVIDIA")) == (V, "proprietary")
    assert parse_modinfo("version: garbage\n") == ("", "")


def test_parameters_as_the_module_shows_them():
    text = 'ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\nRegistryDwords: ""\n'
    assert parse_parameters(text) == {
        "ResmanDebugLevel": "4294967295",
        "RmProfilingAdminOnly": "1",
        "RegistryDwords": '""',
    }
    assert parse_parameters("") == {}


def test_libraries_are_told_by_their_files():
    names = [
        "libcuda.so.580.126.20", "libcuda.so.570.86.15", "libcuda.so.1", "libcudart.so.12.4.127",
        "libnvidia-ml.so.580.126.20", "libnvidia-container.so.1.17.8", "libnvidia-nscq.so.2.0",
    ]  # fmt: skip
    assert library_versions(names) == {"libcuda": (OLD, V), "libnvidia-ml": (V,)}


def test_versions():
    assert upstream("1:4.6.0-1") == "4.6.0"
    assert upstream("580.126.20-1ubuntu1") == V
    assert upstream("580.126.20-0ubuntu0.24.04.1") == V
    assert upstream("") == ""
    assert of_branch("580.126.20-1", "580")
    assert of_branch("3:580.126.20-1.el9", V)
    assert not of_branch("580.126.2", V)
    assert not of_branch("5801.1", "580")
    assert parse_release('# x\nID=ubuntu\nVERSION_ID="24.04"\n') == {
        "ID": "ubuntu",
        "VERSION_ID": "24.04",
    }


# Plan


def test_a_bare_node_gets_all_in_one_version():
    work = worked(replace(BARE, headers=False), extra=["libnccl2=2.30.4-1+cuda13.0"])
    assert work.present == (
        *(f"{name}={V}-*" for name in NAMES),
        "libnccl2=2.30.4-1+cuda13.0",
        f"linux-headers-{KERNEL}",
    )
    assert work.held == (*NAMES, "libnccl2")
    assert work.missing == (*NAMES, "libnccl2", f"linux-headers-{KERNEL}")
    assert work.changes_driver
    assert refused(replace(BARE, headers=False)) == []


def test_nothing_is_left_to_do_on_a_healthy_node():
    work = worked(SOUND)
    assert work.missing == work.removals == ()
    assert not work.changes_driver
    assert refused(SOUND) == []


def test_prebuilt_modules_have_the_version_of_their_kernel():
    request = replace(REQUEST, source="distribution")
    work = worked(replace(BARE, headers=False), request)
    assert f"linux-modules-nvidia-580-server-open-{KERNEL}" in work.present
    assert f"nvidia-fabricmanager-580={V}-*" in work.present
    assert not any(entry.startswith("linux-headers") for entry in work.present)


def test_a_branch_takes_the_version_that_is_there():
    request = replace(REQUEST, version="", branch="580")
    assert "nvidia-fabricmanager=580.*" in worked(BARE, request).present
    there = replace(BARE, packages=packages(("nvidia-driver-580-open", "580.105.08-1ubuntu1")))
    selection = select(there.system, request, KERNEL)
    assert exact_version(there, request, selection) == "580.105.08"
    work = worked(there, request)
    assert "nvidia-fabricmanager=580.105.08-*" in work.present
    assert work.missing == NAMES[1:]


def test_debian_versions_the_persistence_daemon_by_itself():
    """Debian 12 after a point release that its own source package did not follow."""
    version = "535.261.03"
    parts = ("nvidia-open-kernel-dkms", "nvidia-driver-bin", "nvidia-smi", "libcuda1")
    daemon = ("nvidia-persistenced", "535.171.04-1~deb12u1")
    request = Request("distribution", version=version, gpu="h100")
    seen = Seen(
        system="debian12",
        kernel="6.1.0-40-amd64",
        loaded=version,
        packages=packages(*((name, f"{version}-1~deb12u1") for name in parts), daemon),
    )
    work = worked(seen, request)
    assert work.present == (*(f"{name}={version}-*" for name in parts), "nvidia-persistenced")
    assert work.held == (*parts, "nvidia-persistenced")
    assert work.missing == work.removals == ()
    newer = {**seen.packages, **packages((daemon[0], "535.300.01-1"))}
    assert refused(replace(seen, packages=newer), request) == []
    bare = {name: package for name, package in seen.packages.items() if name in parts}
    work = worked(replace(seen, packages=bare), request)
    assert work.missing == ("nvidia-persistenced",)
    assert not work.changes_driver
    # With a branch alone the version of the daemon is not that of the driver.
    branch = replace(request, version="", branch="535")
    only = replace(seen, packages=packages(daemon))
    assert exact_version(only, branch, select("debian12", branch, seen.kernel)) == ""
    # NVIDIA's repository versions it with the driver.
    other = replace(request, source="nvidia_repository")
    assert f"nvidia-persistenced={version}-*" in worked(seen, other).present


def test_all_parts_of_enterprise_linux_get_the_version_and_the_lock():
    seen = Seen(system="rhel9", kernel="5.14.0-570.el9.x86_64")
    work = worked(seen)
    names = (
        "nvidia-driver", "nvidia-driver-libs", "nvidia-driver-cuda", "nvidia-driver-cuda-libs",
        "nvidia-kmod-common", "kmod-nvidia-open-dkms", "nvidia-persistenced", "nvidia-open",
        "nvidia-fabricmanager", "libnvidia-nscq",
    )  # fmt: skip
    assert work.present == tuple(f"{name}={V}-*" for name in names)
    assert work.held == names
    there = packages(*((name, f"{V}-1.el9") for name in names))
    assert worked(replace(seen, packages=there)).missing == ()
    newer = {**there, **packages(("nvidia-driver", "580.178.04-1.el9"))}
    assert "nvidia-driver 580.178.04-1.el9: newer" in refused(replace(seen, packages=newer))[0]
    # Earlier releases locked two of them, and dnf took a newer driver beside these.
    branch = replace(REQUEST, version="", branch="580")
    locked = packages(
        ("nvidia-open", "580.95.05-1.el9"), ("nvidia-persistenced", "580.95.05-1.el9"),
        nvidia_open=True, nvidia_persistenced=True,
    )  # fmt: skip
    own = frozenset(locked)
    split = replace(seen, loaded=V, packages={**there, **locked}, own_holds=own)
    work = worked(split, branch)
    assert work.present == tuple(f"{name}={V}-*" for name in names)
    assert work.missing == ("nvidia-persistenced", "nvidia-open")
    assert refused(split, branch) == []


def test_a_branch_alone_goes_back_nowhere():
    branch = replace(REQUEST, version="", branch="580")
    low = "580.95.05"
    parts = packages(*((name, f"{low}-1ubuntu1") for name in NAMES))
    newer = {**parts, **packages(("nvidia-fabricmanager", f"{V}-1"))}
    (line,) = refused(replace(SOUND, loaded=low, packages=newer), branch)
    assert line == (
        f"nvidia-fabricmanager {V}-1: newer than the installed driver {low}, and without a "
        "version nothing goes back; declare the newer one as nvidia_driver_version"
    )
    # The driver itself is whole, and the next boot loads it.
    assert refused(replace(SOUND, packages=parts), branch) == []
    some = {name: parts[name] for name in NAMES if name != "nvidia-dkms-580-open"}
    (line,) = refused(replace(SOUND, packages=some), branch)
    assert line.startswith(f"the loaded driver {V}: newer than the installed driver {low}, ")
    (line,) = refused(replace(SOUND, loaded=OLD, packages=newer), branch, Consent(True, True))
    assert line.startswith("nvidia-fabricmanager")


@pytest.mark.parametrize(
    ("offers", "version"),
    [
        ({}, "580.178.04"),
        # Fabric manager of the newest driver is not out yet, or that of the next branch is.
        ({"nvidia-fabricmanager": ["580.126.20-1", "580.105.08-1"]}, V),
        ({"nvidia-fabricmanager": ["590.48.01-1", "580.105.08-1"]}, ""),
        ({"libnvidia-nscq": []}, ""),
    ],
)
def test_a_branch_is_the_newest_version_that_all_parts_have(offers, version):
    request = replace(REQUEST, version="", branch="580")
    both = ["580.178.04-1ubuntu1", f"{V}-1ubuntu1"]
    on_offer = {**dict.fromkeys(NAMES, both), **offers}
    assert newest_of_all(request, select("ubuntu24.04", request, KERNEL), on_offer) == version


def test_a_driver_of_another_branch_makes_room():
    old = packages(
        ("nvidia-driver-570-open", f"{OLD}-0ubuntu1"),
        ("libnvidia-compute-570", f"{OLD}-0ubuntu1"),
        ("nvidia-container-toolkit", "1.17.8-1"),
        ("nvidia-fabricmanager", f"{OLD}-1"),
    )
    work = worked(replace(BARE, packages=old))
    assert work.removals == ("libnvidia-compute-570", "nvidia-driver-570-open")
    assert work.missing == NAMES


# Obstacles


def test_a_held_package_stands_in_the_way():
    old = packages(("nvidia-driver-570-open", f"{OLD}-0ubuntu1"), nvidia_driver_570_open=True)
    (line,) = refused(replace(BARE, packages=old))
    assert line.startswith(f"nvidia-driver-570-open is held at {OLD}-0ubuntu1")
    assert "apt-mark unhold" in line
    # what the role itself has held is its own to change
    assert refused(replace(BARE, packages=old, own_holds=frozenset(old))) == []
    # what is held in the declared version is not in the way
    fine = {name: replace(package, held=True) for name, package in SOUND.packages.items()}
    assert refused(replace(SOUND, packages=fine)) == []


def test_a_driver_in_use_needs_consent():
    seen = replace(
        SOUND,
        loaded=OLD,
        on_disk=OLD,
        packages=packages(("nvidia-driver-570-open", f"{OLD}-0ubuntu1")),
    )
    (line,) = refused(seen)
    assert f"driver {OLD} is loaded and {V} is declared" in line
    assert "nvidia_driver_reload_allowed" in line
    assert refused(seen, consent=Consent(reload=True)) == []
    assert refused(seen, consent=Consent(reboot=True)) == []


def test_a_node_in_service_keeps_its_driver_despite_consent():
    """A job could start between the look and the reload."""
    old = packages(("nvidia-driver-570-open", f"{OLD}-0ubuntu1"))
    why = "dgx-02 is in service in Slurm (IDLE)"
    seen = replace(SOUND, loaded=OLD, on_disk=OLD, packages=old, in_service=why)
    (line,) = refused(seen, consent=Consent(reload=True))
    assert line == (
        f"driver {OLD} is loaded and {V} is declared, and {why}; drain this node and run again, or "
        "let upgrade_nodes do both"
    )
    assert "allow it" in refused(seen)[0], "consent is asked for first"
    assert refused(replace(SOUND, in_service=why)) == [], "nothing changes"


@pytest.mark.parametrize("consent", [Consent(), Consent(True, True)])
def test_nothing_is_changed_under_a_job(consent):
    (line,) = refused(replace(BARE, steps=("4711.0",)), consent=consent)
    assert "job steps run here (4711.0)" in line
    assert "drain" in line
    # where nothing is to be done, jobs do not matter
    assert refused(replace(SOUND, steps=("4711.0",)), consent=consent) == []


def test_dnf_does_not_change_the_flavour():
    """The packages conflict; dnf would refuse after the module stream was switched."""
    driver = select("rhel9", replace(REQUEST, modules="proprietary"), KERNEL).driver
    there = packages(*((name, f"{V}-1.el9") for name in driver))
    seen = replace(
        SOUND, system="rhel9", packages=there, loaded_flavour="proprietary", on_disk_flavour=""
    )
    (line,) = refused(seen, consent=Consent(reload=True))
    assert line == (
        "kmod-nvidia-latest-dkms is installed, and dnf does not replace it by open modules; drain "
        "this node, run `dnf remove kmod-nvidia-latest-dkms` on it, and run again"
    )
    del there["kmod-nvidia-latest-dkms"]
    assert refused(seen, consent=Consent(reload=True)) == []
    assert "open modules instead of proprietary ones" in refused(seen)[0]


def test_nouveau_needs_a_reboot():
    seen = replace(BARE, modules=frozenset({"nouveau"}))
    (line,) = refused(seen)
    assert "nouveau is loaded" in line
    assert "nvidia_driver_reboot_allowed: true" in line
    assert refused(seen, consent=Consent(reload=True)) == [line]
    assert refused(seen, consent=Consent(reboot=True)) == []
    assert "job steps run here" in refused(replace(seen, steps=("7.batch",)))[0]


@pytest.mark.parametrize(
    ("key", "enrolled", "words"),
    [
        ("", None, "there is none"),
        ("/var/lib/dkms/mok.pub", None, "without mokutil"),
        ("/var/lib/dkms/mok.pub", False, "mokutil --import /var/lib/dkms/mok.pub"),
    ],
)
def test_secure_boot(key, enrolled, words):
    seen = replace(BARE, secure_boot=True, key=key, key_enrolled=enrolled)
    (line,) = refused(seen)
    assert line.startswith("Secure Boot is on")
    assert words in line
    assert "declare distribution" in line
    assert "declare distribution" not in refused(replace(seen, system="debian12"))[0]
    assert refused(seen, replace(REQUEST, source="distribution")) == []
    assert refused(replace(seen, key_enrolled=True)) == []
    assert refused(replace(seen, secure_boot=False)) == []


def test_a_package_manager_does_not_go_back():
    newer = packages(("nvidia-driver-580-open", "580.173.01-1ubuntu1"))
    (line,) = refused(replace(BARE, packages=newer))
    assert "580.173.01-1ubuntu1: newer than the declared 580.126.20" in line


def test_what_cannot_be_had_is_all_that_is_said():
    seen = replace(BARE, modules=frozenset({"nouveau"}), steps=("1.0",))
    (line,) = refused(seen, replace(REQUEST, version="", branch="581"))
    assert "branch 581 is not known" in line


def test_what_no_source_has():
    headers = (f"linux-headers-{KERNEL}",)
    wanted = ["nvidia-driver-580-open=580.126.20-*", "nvlsm", headers[0]]
    offers = {"nvidia-driver-580-open": ["580.126.20-1ubuntu1", "580.105.08-1ubuntu1"]}
    assert absent_packages(wanted[:1], offers, headers) == []
    assert [line.split(" has ")[0] for line in absent_packages(wanted, offers, headers)] == [
        "no source",
        "kernel headers are missing and no source",
    ]
    (line,) = absent_packages(["nvidia-driver-580-open=580.173.*"], offers, headers)
    assert line == "no source has nvidia-driver-580-open 580.173; they have 580.126.20, 580.105.08"


@pytest.mark.parametrize(
    ("version", "pattern", "yes"),
    [
        ("580.126.20-1ubuntu1", "580.126.20-*", True),
        ("580.126.20-1", "580.*", True),
        ("1:4.6.0-1", "1:4.6.0*", True),
        ("1:4.6.0-1", "4.6.0*", True),
        ("580.126.2-1", "580.126.20-*", False),
        ("580.126.20-1", "580.126.2-*", False),
        ("2.30.4-1+cuda13.0", "2.30.4-1+cuda13.0", True),
        ("2.30.4-1+cuda13.0", "2.30.4-1", False),
    ],
)
def test_patterns(version, pattern, yes):
    assert version_fits(version, pattern) is yes


# Agreement


def failed(seen, request=REQUEST, **more):
    records = agree(seen, request, "dgx-01", **more)
    assert all(record.subject == "node:dgx-01" for record in records)
    return {record.check: record for record in records if record.status == "fail"}


def test_a_healthy_node_agrees():
    records = agree(SOUND, REQUEST, "dgx-01", "dmabuf")
    assert {record.status for record in records} == {"pass"}
    assert [record.check for record in records] == [
        "stack.driver", "stack.declared", "stack.on_disk", "stack.libnvidia-ml", "stack.libcuda",
        "stack.fabric_manager", "stack.nscq", "stack.dma_buf",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "check", "words"),
    [
        ({"loaded": "", "proc": ""}, "stack.driver", "installed and not loaded"),
        ({"proc": OLD}, "stack.driver", f"/proc/driver/nvidia/version {OLD}"),
        ({"on_disk": OLD}, "stack.on_disk", f"the next boot loads {OLD}"),
        ({"on_disk": ""}, "stack.on_disk", "the next boot has none"),
        ({"libraries": {"libcuda": (V,)}}, "stack.libnvidia-ml", "there is no libnvidia-ml.so"),
        (
            {"libraries": {"libcuda": (OLD, V), "libnvidia-ml": (V,)}},
            "stack.libcuda",
            f"libcuda is {OLD} and {V}",
        ),
        (
            {"packages": {**SOUND.packages, "libnvidia-nscq": Package("libnvidia-nscq", OLD)}},
            "stack.nscq",
            f"NSCQ is {OLD}",
        ),
        (
            {"packages": packages(("libnvidia-nscq", V))},
            "stack.fabric_manager",
            "fabric manager is absent",
        ),
        ({"modules": frozenset({"nouveau", "nvidia"})}, "stack.nouveau", "keeps the driver"),
    ],
)
def test_each_disagreement_is_one_line(change, check, words):
    found = failed(replace(SOUND, **change))
    assert list(found) == [check]
    (line,) = lines_of(found.values(), "fail")
    assert words in line
    assert found[check].remedy
    assert "\n" not in line


def test_a_loaded_driver_is_not_the_declared_one():
    found = failed(SOUND, replace(REQUEST, version="580.173.01"))
    assert list(found) == ["stack.declared"]
    assert failed(SOUND, replace(REQUEST, version="", branch="580")) == {}
    assert list(failed(SOUND, replace(REQUEST, version="", branch="570"))) == ["stack.declared"]


def test_the_flavour_counts_where_it_is_declared_or_the_only_one():
    closed = replace(SOUND, loaded_flavour="proprietary", on_disk_flavour="proprietary")
    assert failed(closed) == {}
    assert list(failed(closed, replace(REQUEST, modules="open"))) == ["stack.modules"]
    assert "stack.modules" in failed(closed, replace(REQUEST, gpu="b200"))
    assert list(failed(closed, gpudirect="dmabuf")) == ["stack.dma_buf"]
    assert (
        "older than 5.12"
        in failed(replace(SOUND, kernel="5.4.0-1-generic"), gpudirect="dmabuf")[
            "stack.dma_buf"
        ].text
    )
    assert list(failed(SOUND, gpudirect="peermem")) == ["stack.peermem"]


OLD_KERNEL = "5.4.0-1-generic"


@pytest.mark.parametrize(
    ("flavour", "kernel", "modules", "way", "failing"),
    [
        ("open", KERNEL, (), "dmabuf", {}),
        # DGX OS 6: Linux 5.15, and the proprietary modules unless an administrator chose others
        ("proprietary", "5.15.0-1053-nvidia", ("nvidia_peermem",), "peermem", {}),
        ("proprietary", "5.15.0-1053-nvidia", (), "peermem", {"stack.peermem": "open ones"}),
        ("open", OLD_KERNEL, (), "peermem", {"stack.peermem": "older than 5.12"}),
    ],
)
def test_the_way_to_gpu_memory_follows_kernel_and_driver(flavour, kernel, modules, way, failing):
    seen = replace(
        SOUND,
        loaded_flavour=flavour,
        on_disk_flavour=flavour,
        kernel=kernel,
        modules=frozenset((*SOUND.modules, *modules)),
    )
    assert gpudirect_way(seen, "auto") == way
    found = failed(seen, gpudirect="auto")
    assert list(found) == list(failing)
    for check, words in failing.items():
        assert words in found[check].text
    assert gpudirect_way(replace(seen, loaded=""), "auto") == ""
    assert [gpudirect_way(seen, one) for one in ("", "dmabuf")] == ["", "dmabuf"]


def test_blackwell_has_nvlsm_in_place_of_nscq():
    request = replace(REQUEST, gpu="b200", nvswitches=2)
    seen = replace(SOUND, packages=packages(("nvidia-fabricmanager", V)))
    assert list(failed(seen, request)) == ["stack.nvlsm"]
    seen = replace(seen, packages={**seen.packages, "nvlsm": Package("nvlsm", "2025.10.11-1")})
    assert failed(seen, request) == {}


def test_no_driver_at_all():
    (record,) = agree(BARE, REQUEST, "dgx-01")
    assert (record.check, record.status) == ("stack.driver", "fail")
    assert "there is no driver for kernel" in record.text
    built = replace(BARE, packages=packages(("nvidia-dkms-580-open", V)))
    assert "dkms status" in agree(built, REQUEST, "dgx-01")[0].remedy
    (record,) = agree(replace(BARE, on_disk=None), REQUEST, "dgx-01")
    assert "modinfo is not there" in record.text


def test_what_cannot_be_asked_is_not_measured():
    records = agree(replace(SOUND, on_disk=None), REQUEST, "dgx-01")
    assert [r.check for r in records if r.status == "not_measured"] == ["stack.on_disk"]


@pytest.mark.parametrize(
    ("names", "status", "words"),
    [
        ([("-4-core", "1:4.6.0-1"), ("-4-cuda13", "1:4.6.0-1")], "pass", "DCGM 4.6.0"),
        ([("-4-core", "1:4.6.0-1"), ("-4-cuda12", "1:4.6.0-1")], "fail", "lacks"),
        ([("-4-core", "1:4.6.0-1"), ("-4-cuda13", "1:4.5.3-1")], "fail", "4.5.3"),
        ([("-4-core", "1:4.6.0-1"), ("", "1:3.3.9")], "fail", "both installed"),
        # It has plug-ins for CUDA 10, 11 and 12, and runs none with a driver of CUDA 13.
        ([("", "1:3.3.9")], "fail", "DCGM 3 with driver 580.126.20, which has CUDA 13"),
    ],
)
def test_dcgm_fits_the_driver(names, status, words):
    more = packages(*((f"datacenter-gpu-manager{name}", version) for name, version in names))
    records = agree(replace(SOUND, packages={**SOUND.packages, **more}), REQUEST, "dgx-01")
    (record,) = [record for record in records if record.check == "stack.dcgm"]
    assert record.status == status
    assert words in record.text


def test_dcgm_3_fits_drivers_of_cuda_12():
    more = packages(("datacenter-gpu-manager", "1:3.3.9"))
    for driver, status, remedy in (
        (OLD, "pass", ""),
        (V, "fail", "install datacenter-gpu-manager-4-core and datacenter-gpu-manager-4-cuda13 "),
    ):
        records = agree(replace(SOUND, loaded=driver, packages=more), REQUEST, "dgx-01")
        (record,) = [record for record in records if record.check == "stack.dcgm"]
        assert record.status == status
        assert record.remedy.startswith(remedy)
        assert bool(record.remedy) == (status == "fail")


def test_user_space_of_a_later_cuda_does_not_start():
    old = replace(
        SOUND,
        loaded=OLD, proc=OLD, on_disk=OLD,
        libraries={"libcuda": (OLD,), "libnvidia-ml": (OLD,)},
        packages=packages(
            ("cuda-libraries-13-0", "13.0.2-1"), ("libnccl2", "2.30.4-1+cuda13.0"),
            ("cuda-libraries-12-8", "12.8.1-1"),
        ),
    )  # fmt: skip
    request = Request("preinstalled", gpu="h100")
    assert sorted(failed(old, request)) == ["stack.cuda", "stack.nccl"]
    # Forward compatibility: libcuda of the later major beside the driver's own.
    compat = packages(("cuda-compat-13-0", "580.95.05-1"), ("cuda-compat-12-9", "575.57.08-1"))
    with_compat = replace(old, packages={**old.packages, **compat})
    assert failed(with_compat, request) == {}
    texts = [r.text for r in agree(with_compat, request, "dgx-01") if r.check == "stack.cuda"]
    assert texts[1].endswith(
        "has CUDA 12, and CUDA 13 by cuda-compat 580.95.05-1, "
        "with its compat folder in LD_LIBRARY_PATH"
    )
    assert "cuda-compat" not in texts[0]
    of_another = replace(old, packages={**old.packages, **packages(("cuda-compat-12-9", "575-1"))})
    assert sorted(failed(of_another, request)) == ["stack.cuda", "stack.nccl"]
    unknown = replace(old, loaded="999.1.1", proc="999.1.1", on_disk="999.1.1")
    kinds = {r.check: r.status for r in agree(unknown, request, "dgx-01")}
    assert kinds["stack.cuda"] == kinds["stack.nccl"] == "not_measured"


def test_next_step():
    assert next_step(SOUND) == ""
    assert next_step(BARE) == ""
    assert next_step(replace(SOUND, loaded="")) == "load"
    assert next_step(replace(SOUND, loaded=OLD)) == "reload"
    assert next_step(replace(SOUND, loaded_flavour="proprietary")) == "reload"
    # What cannot be asked is not another flavour.
    assert next_step(replace(SOUND, loaded_flavour="")) == ""
    assert next_step(replace(SOUND, on_disk_flavour="")) == ""
    assert next_step(replace(SOUND, modules=frozenset({"nouveau"}))) == "reboot"
