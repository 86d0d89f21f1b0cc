# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role nvidia_driver would write and do, for each distribution and source."""

from __future__ import annotations

import configparser
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from role_render import ROLES, by_path, lines, render, render_many
from role_rules import read_yaml

from ansible_collections.baremetal.dgx.plugins.module_utils._driver.packages import (
    wants_fabric_manager,
)

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n=x\n-----END PGP PUBLIC KEY BLOCK-----\n"
NOBLE = {"distribution_version": "24.04", "distribution_major_version": "24"}
TRIXIE = {"distribution_version": "13.1", "distribution_major_version": "13"}
NINE = {"distribution_version": "9.6", "distribution_major_version": "9"}
H100 = {"nvidia_driver_gpu": "h100", "nvidia_driver_nvswitches": 4}
PIN = "/etc/apt/preferences.d/baremetal-dgx-nvidia"
SOURCES = "/etc/apt/sources.list.d/baremetal-dgx-nvidia.sources"
DRIVER = {
    "sources": "__nvidia_driver_source_files[ansible_facts['os_family']]",
    "pins": "__nvidia_driver_pin_files",
    "files": "__nvidia_driver_files",
    "refusals": "__nvidia_driver_refusals | selectattr('when') | map(attribute='say') | list",
    "units": "__nvidia_driver_units | selectattr('when') | map(attribute='sync') | list",
    "request": "__nvidia_driver_request",
    "act": "__nvidia_driver_act",
    "fetches": "__nvidia_driver_fetches_key",
    "key_url": "__nvidia_driver_key_url",
    "initramfs": "__nvidia_driver_initramfs_script",
    "settings": "__nvidia_driver_settings_findings",
}
Render = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Render:
    """`driver(distribution, facts, **inputs)`; inputs without their prefix."""

    def compute(distribution: str, facts: dict[str, str], **inputs: Any) -> dict[str, Any]:
        given = {
            "__nvidia_driver_plan": {"pin": "580.126.20-*"},
            "__nvidia_driver_seen": {"next_step": "reload", "steps": [], "loaded": "580.1.1"},
            "__nvidia_driver_now": {"loaded": "580.126.20"},
            "__nvidia_driver_settings": {
                "in_service": "",
                "differences": [
                    {"gpu": 1, "pci": "43:00.0", "setting": "ecc", "before": "off", "after": "on"}
                ],
                "reset_pending": [
                    {"gpu": 2, "pci": "52:00.0", "setting": "ecc", "before": "off", "after": "on"}
                ],
            },
            **H100,
            **{f"nvidia_driver_{key}": value for key, value in inputs.items()},
        }
        folder = tmp_path_factory.mktemp("driver")
        found = render(folder, "nvidia_driver", distribution, given, DRIVER, facts=facts)
        for kind in ("sources", "pins", "files"):
            found[kind] = by_path(found[kind])
        return found

    return compute


@pytest.fixture(scope="module")
def ubuntu(driver: Render) -> dict[str, Any]:
    return driver(
        "Ubuntu",
        {**NOBLE, "architecture": "x86_64"},
        source="nvidia_repository",
        version="580.126.20",
        mirror="https://mirror.example.org/cuda/repos/",
        repository={"signed_by": KEY},
        cuda="13.0",
        nccl="2.30.4-1+cuda13.0",
        module_options={"NVreg_RestrictProfilingToAdminUsers": 0, "NVreg_Other": "x"},
        mig=[
            {"gpus": [6, 7], "profiles": ["1g.10gb", "3g.40gb", "2g.20gb", "1g.10gb"]},
            {"profiles": []},
        ],
        reload_allowed=True,
        reboot_allowed=True,
    )


@pytest.fixture(scope="module")
def debian(driver: Render) -> dict[str, Any]:
    return driver(
        "Debian",
        {**TRIXIE, "architecture": "aarch64"},
        source="directory",
        branch="580",
        directory={"path": "/srv/nvidia", "sha256": "0" * 64},
        nvswitches=0,
        persistence=False,
        reboot_allowed=True,
    )


@pytest.fixture(scope="module")
def rocky(driver: Render) -> dict[str, Any]:
    return driver(
        "Rocky",
        {**NINE, "architecture": "x86_64"},
        source="nvidia_repository",
        branch="580",
        repository={"key_sha256": "1" * 64},
        nccl="2.30.4-1+cuda13.0",
    )


def test_nothing_is_refused(
    ubuntu: dict[str, Any], debian: dict[str, Any], rocky: dict[str, Any]
) -> None:
    for found in (ubuntu, debian, rocky):
        assert found["refusals"] == []


def test_a_mirror_that_is_signed(ubuntu: dict[str, Any]) -> None:
    assert ubuntu["fetches"] is False
    assert ubuntu["sources"][SOURCES]["content"].splitlines()[1:] == [
        "Types: deb",
        "URIs: https://mirror.example.org/cuda/repos/ubuntu2404/x86_64/",
        "Suites: /",
        "Signed-By:",
        " -----BEGIN PGP PUBLIC KEY BLOCK-----",
        " .",
        " abc",
        " =x",
        " -----END PGP PUBLIC KEY BLOCK-----",
    ]


def test_a_directory_that_is_checked(debian: dict[str, Any]) -> None:
    assert debian["sources"][SOURCES]["content"].splitlines()[1:] == [
        "Types: deb",
        "URIs: file:/var/lib/baremetal-dgx/packages/nvidia_driver",
        "Suites: ./",
        "Trusted: yes",
    ]


def test_a_fetched_key(driver: Render, rocky: dict[str, Any]) -> None:
    found = driver(
        "Debian",
        {**TRIXIE, "architecture": "aarch64"},
        source="nvidia_repository",
        branch="580",
        repository={"key_sha256": "1" * 64},
    )
    assert found["fetches"] is True
    base = "https://developer.download.nvidia.com/compute/cuda/repos"
    assert found["key_url"] == f"{base}/debian13/sbsa/3bf863cc.pub"
    assert "Signed-By: /usr/share/keyrings/baremetal-dgx-nvidia.asc" in lines(
        found["sources"][SOURCES]
    )
    repository = configparser.ConfigParser()
    repository.read_string(
        rocky["sources"]["/etc/yum.repos.d/baremetal-dgx-nvidia.repo"]["content"]
    )
    section = repository["baremetal-dgx-nvidia"]
    assert section["baseurl"] == f"{base}/rhel9/x86_64/"
    assert section["gpgcheck"] == "1"
    assert section["gpgkey"] == "file:///etc/pki/rpm-gpg/RPM-GPG-KEY-baremetal-dgx-nvidia"


def test_what_installs_nothing_has_no_source(driver: Render) -> None:
    found = driver("Ubuntu", {**NOBLE, "architecture": "x86_64"})
    assert found["sources"][SOURCES]["state"] == "absent"
    states = {path: entry.get("state") for path, entry in found["files"].items()}
    assert states["/etc/modprobe.d/baremetal-dgx-nvidia.conf"] == "absent"
    assert states["/etc/modules-load.d/baremetal-dgx-nvidia.conf"] == "absent"
    assert found["request"]["source"] == "preinstalled"
    assert found["pins"][PIN]["state"] == "absent"


def test_a_pin_and_holds_end_with_the_source(tmp_path: Path) -> None:
    """Left behind, they would keep the driver of DGX OS from its security updates."""
    tasks = read_yaml(ROLES / "nvidia_driver/tasks/install.yml")
    conditions = {
        kind: task.get("when")
        for task in tasks
        for kind in ("baremetal.dgx.system_packages", "baremetal.dgx.managed_files")
        if kind in task
    }
    assert conditions == {
        "baremetal.dgx.system_packages": None,
        "baremetal.dgx.managed_files": "ansible_facts['os_family'] == 'Debian'",
    }
    options = tasks[-1]["baremetal.dgx.system_packages"]
    assert options["holds_file"] == "/var/lib/baremetal-dgx/held/nvidia_driver"
    keys = ("present", "held", "removals_allowed")
    shown = {key: options[key][2:-2] for key in keys}
    plan = {"present": ["nvidia-open=580"], "held": ["nvidia-open"], "removals": ["other"]}
    installed = {
        **H100, "nvidia_driver_source": "nvidia_repository", "__nvidia_driver_plan": plan
    }  # fmt: skip
    # Nothing was planned.
    hosts = {"installed": installed, "left": {**H100, "__nvidia_driver_plan": {"skipped": True}}}
    found = render_many(tmp_path, "nvidia_driver", "Ubuntu", hosts, shown)
    assert found["installed"] == dict(zip(keys, plan.values(), strict=True))
    assert found["left"] == {key: [] for key in keys}


def test_all_parts_are_pinned(ubuntu: dict[str, Any]) -> None:
    assert lines(ubuntu["pins"][PIN]) == [
        "Package: *nvidia* cuda-drivers* libcuda1 libnvcuvid*",
        "Pin: version 580.126.20-*",
        "Pin-Priority: 1001",
    ]


def test_user_space_is_that_of_the_table(ubuntu: dict[str, Any], rocky: dict[str, Any]) -> None:
    nccl = "2.30.4-1+cuda13.0"
    assert ubuntu["request"]["extra"] == ["cuda-libraries-13-0", f"libnccl2={nccl}"]
    assert rocky["request"]["extra"] == [f"libnccl={nccl}"]


def test_module_parameters(ubuntu: dict[str, Any]) -> None:
    assert lines(ubuntu["files"]["/etc/modprobe.d/baremetal-dgx-nvidia.conf"]) == [
        "blacklist nouveau",
        "options nouveau modeset=0",
        "options nvidia NVreg_Other=x NVreg_RestrictProfilingToAdminUsers=0",
    ]
    assert ubuntu["request"]["module_options"] == {
        "NVreg_RestrictProfilingToAdminUsers": 0,
        "NVreg_Other": "x",
    }


def test_units(ubuntu: dict[str, Any], debian: dict[str, Any]) -> None:
    assert [unit["name"] for unit in ubuntu["units"]] == [
        "nvidia-persistenced.service",
        "nvidia-fabricmanager.service",
    ]
    assert [unit["restart_key"] for unit in ubuntu["units"]] == ["580.126.20"] * 2
    assert debian["units"] == []
    drop_in = "/etc/systemd/system/{}.service.d/50-baremetal-dgx.conf"
    for name, found in (("nvidia-persistenced", ubuntu), ("nvidia-fabricmanager", ubuntu)):
        assert found["files"][drop_in.format(name)]["state"] == "file"
        assert debian["files"][drop_in.format(name)]["state"] == "absent"
    mig = lines(ubuntu["files"]["/etc/systemd/system/baremetal-dgx-mig.service"])
    (before,) = (line for line in mig if line.startswith("Before="))
    # Else the specification of containers lacks the instances after some boots.
    assert "nvidia-cdi-refresh.service" in before.split()
    # Where a package enables it again, its layout is not the last.
    (after,) = (line for line in mig if line.startswith("After="))
    assert "nvidia-mig-manager.service" in after.split()
    persistence = lines(ubuntu["files"][drop_in.format("nvidia-persistenced")])
    assert "ExecStartPost=/usr/bin/nvidia-smi -pm 1" in persistence
    assert "Before=slurmd.service nvidia-dcgm.service" in persistence


def prefixed(inputs: dict[str, Any]) -> dict[str, Any]:
    return {f"nvidia_driver_{key}": value for key, value in inputs.items()}


def test_role_and_module_agree_on_the_fabric_manager(tmp_path: Path) -> None:
    pairs = {
        f"{gpu}-{switches}": {"gpu": gpu, "nvswitches": switches}
        for gpu in ("h100", "b200", "gb200")
        for switches in (0, 4)
    }
    hosts = {host: prefixed(pair) for host, pair in pairs.items()}
    shown = {"has": "__nvidia_driver_has_fabric_manager"}
    found = render_many(tmp_path, "nvidia_driver", "Ubuntu", hosts, shown)
    assert {host: values["has"] for host, values in found.items()} == {
        host: wants_fabric_manager(**pair) for host, pair in pairs.items()
    }


SEEN = {
    "steps": ({"steps": ["4711.0"]}, "job steps run here: 4711.0"),
    "serving": ({"steps": [], "in_service": "dgx-02 is in service"}, ""),
    "idle": ({"steps": []}, ""),
}


def test_daemons_are_not_restarted_under_a_job(tmp_path: Path) -> None:
    mig = {"nvidia_driver_mig": [{"profiles": ["1g.10gb"]}]}
    hosts = {name: {"__nvidia_driver_seen": seen, **H100} for name, (seen, _why) in SEEN.items()}
    hosts["mig"] = {"__nvidia_driver_seen": {}, **H100, **mig}
    shown = {"units": "__nvidia_driver_synced"}
    found = render_many(tmp_path, "nvidia_driver", "Ubuntu", hosts, shown)
    names = ["nvidia-persistenced.service", "nvidia-fabricmanager.service"]
    for host, (_seen, why) in SEEN.items():
        units = found[host]["units"]
        assert [(one["name"], one["restart_blocked_by"]) for one in units] == [
            (name, why) for name in names
        ]
    assert found["mig"]["units"][2:] == [
        {"name": "nvidia-mig-manager.service", "state": "stopped", "enabled": False,
         "missing_ok": True}
    ]  # fmt: skip


RELOAD, REBOOT = {"reload_allowed": True}, {"reboot_allowed": True}
BOTH = {**RELOAD, **REBOOT}
CONSENTS: list[tuple[str, list[str], dict[str, bool], str]] = [
    ("reload", [], {}, ""),
    ("reload", [], RELOAD, "reload"),
    ("reload", [], REBOOT, "reboot"),
    ("reload", [], BOTH, "reload"),
    ("reboot", [], RELOAD, ""),
    ("reboot", [], BOTH, "reboot"),
    ("reload", ["4711.0"], BOTH, ""),
    ("reboot", ["4711.0"], BOTH, ""),
    ("", [], BOTH, ""),
    ("load", [], BOTH, ""),
]


def test_consent(tmp_path: Path) -> None:
    hosts = {
        f"case-{number}": {
            "__nvidia_driver_seen": {"next_step": step, "steps": steps},
            **prefixed(allowed),
        }
        for number, (step, steps, allowed, _act) in enumerate(CONSENTS)
    }
    serving = {"next_step": "reload", "steps": [], "in_service": "dgx-02 is in service in Slurm"}
    hosts["serving"] = {"__nvidia_driver_seen": serving, **prefixed(BOTH)}
    shown = {"act": "__nvidia_driver_act"}
    found = render_many(tmp_path, "nvidia_driver", "Ubuntu", hosts, shown)
    assert found.pop("serving")["act"] == "", "a job may start meanwhile"
    assert [values["act"] for values in found.values()] == [act for *_rest, act in CONSENTS]


def test_gpu_settings_wait_for_a_drained_node(tmp_path: Path) -> None:
    """No step runs, and a job could start during the reboot, or on instances that go."""
    tasks = read_yaml(ROLES / "nvidia_driver/tasks/settings.yml")
    mig, reboot = (task["when"] for task in tasks[1:])
    gpu = {"gpu": 0, "pci": "1b:00.0", "before": "on", "after": "off"}
    seen = {
        "steps": [],
        "in_service": "",
        "differences": [{**gpu, "setting": "mig"}],
        "reset_pending": [{**gpu, "setting": "ecc"}],
    }
    why = "dgx-02 is in service in Slurm (IDLE)"
    serving = {**seen, "in_service": why}
    allowed = prefixed({"gpu_reset_allowed": True, "reboot_allowed": True})
    hosts = {
        "drained": {**allowed, "__nvidia_driver_settings": seen},
        "serving": {**allowed, "__nvidia_driver_settings": serving},
        "running": {**allowed, "__nvidia_driver_settings": {**seen, "steps": ["7.0"]}},
    }
    shown = {
        "mig": " and ".join(f"({one})" for one in mig),
        "reboot": " and ".join(f"({one})" for one in reboot),
        "says": "__nvidia_driver_settings_findings",
    }
    found = render_many(tmp_path, "nvidia_driver", "Ubuntu", hosts, shown)
    assert {host: (one["mig"], one["reboot"]) for host, one in found.items()} == {
        "drained": (True, True),
        "serving": (False, False),
        "running": (False, False),
    }
    differs, pends = found["serving"]["says"]
    assert differs.startswith(f"GPU 0 (1b:00.0) mig is on and must be off, and {why}; drain")
    assert pends == (
        f"GPU 0 (1b:00.0) ecc becomes off when the GPU is reset, and {why}; drain this node and "
        "reboot it"
    )


STREAMS = """\
cuda-rhel9-x86_64
Name          Stream          Profiles                    Summary
nvidia-driver latest-dkms [d] default [d], fm, ks, src    Nvidia driver for latest-dkms branch
nvidia-driver 580-open{}  default [d] [i], fm, ks, src    Nvidia driver for 580-open branch
nvidia-driver 580-dkms{}  default [d], fm, ks, src        Nvidia driver for 580-dkms branch

Hint: [d]efault, [e]nabled, [x]disabled, [i]nstalled
"""


def test_a_stream_is_enabled_where_there_is_one(tmp_path: Path) -> None:
    """createrepo_c, which makes the repository of a directory, makes none."""
    tasks = read_yaml(ROLES / "nvidia_driver/tasks/stream.yml")
    assert tasks[0]["ansible.builtin.command"]["argv"][1:] == [
        "-q", "module", "list", "nvidia-driver",
    ]  # fmt: skip
    assert tasks[0]["environment"] == {"LC_ALL": "C"}, "its words are compared"
    outputs = {
        "directory": "",
        "fresh": STREAMS.format("    ", "    "),
        "enabled": STREAMS.format(" [e]", "    "),
        "other": STREAMS.format("    ", " [e]"),
    }
    hosts = {
        name: {
            "__nvidia_driver_stream": {"stdout": text},
            "__nvidia_driver_streams": {"stream": "580-open"},
        }
        for name, text in outputs.items()
    }
    shown = {"enables": " and ".join(f"({one})" for one in tasks[2]["when"])}
    found = render_many(tmp_path, "nvidia_driver", "Rocky", hosts, shown)
    assert {host: one["enables"] for host, one in found.items()} == {
        "directory": False, "fresh": True, "enabled": False, "other": True,
    }  # fmt: skip
    broken = "Error: Failed to download metadata for repo 'cuda': Cannot download repomd.xml"
    answers = {
        "directory": (1, "", "Error: No matching Modules to list"),
        "listed": (0, outputs["fresh"], ""),
        "no_repository": (1, "", broken),
        "killed": (137, "", ""),
    }
    hosts = {
        name: {"__nvidia_driver_stream": {"rc": rc, "stdout": out, "stderr": err}}
        for name, (rc, out, err) in answers.items()
    }
    shown = {"fails": " and ".join(f"({one})" for one in tasks[0]["failed_when"])}
    found = render_many(tmp_path, "nvidia_driver", "Rocky", hosts, shown)
    assert {host: one["fails"] for host, one in found.items()} == {
        "directory": False, "listed": False, "no_repository": True, "killed": True,
    }  # fmt: skip


def test_gpu_settings_findings(ubuntu: dict[str, Any]) -> None:
    first, second = ubuntu["settings"]
    assert first.startswith("GPU 1 (43:00.0) ecc is off and must be on; drain")
    assert "nvidia_driver_gpu_reset_allowed: true" in first
    assert second == (
        "GPU 2 (52:00.0) ecc becomes on when the GPU is reset; drain this node and reboot it"
    )


BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({"source": "directory"}, ["nvidia_driver_branch: empty", "nvidia_driver_directory: path"]),
    ({"source": "nvidia_repository", "branch": "580"}, ["signed_by: empty"]),
    ({"branch": "580.126"}, ["nvidia_driver_branch: 580.126 is not"]),
    ({"version": "580"}, ["nvidia_driver_version: 580 is not"]),
    ({"version": "v580.126.20"}, ["is not a version"]),
    ({"cuda": "13"}, ["nvidia_driver_cuda: 13 is not"]),
    ({"module_options": {"RmMsg": 1}}, ["RmMsg"]),
    ({"mig": [{"profiles": ["1g"]}]}, ["no profiles: 1g"]),
    ({"mig": [{"profiles": []}, {"profiles": ["1g.10gb"]}]}, ["two layouts without gpus"]),
]


def test_bad_inputs_are_one_line_each(tmp_path: Path) -> None:
    hosts = {f"case-{n}": prefixed(inputs) for n, (inputs, _words) in enumerate(BAD)}
    shown = {"refusals": DRIVER["refusals"]}
    facts = {**NOBLE, "architecture": "x86_64"}
    found = render_many(tmp_path, "nvidia_driver", "Ubuntu", hosts, shown, facts)
    for (_inputs, words), values in zip(BAD, found.values(), strict=True):
        refusals = values["refusals"]
        assert len(refusals) == len(words)
        for line, word in zip(refusals, words, strict=True):
            assert word in line
            assert "\n" not in line


# As update-initramfs(8) does it: without -k the newest image alone.
UPDATE_INITRAMFS = """\
#!/bin/sh
cd "$(dirname "$0")" || exit 1
version=$(ls initrd.img-* | sort -V | tail -n 1)
version=${version#initrd.img-}
while [ $# -gt 0 ]; do
  case $1 in -k) version=$2; shift ;; -u) update=1 ;; *) exit 1 ;; esac
  shift
done
test "$update" && test -e "initrd.img-$version" && touch "initrd.img-$version"
"""
# dracut(8): the image, and the kernel; by default those of the running one.
DRACUT = """\
#!/bin/sh
test "$1" = --force || exit 1
touch "${2:-$(dirname "$0")/initramfs-$(uname -r).img}"
"""


@pytest.mark.parametrize("family", ["ubuntu", "rocky"])
def test_initramfs_is_made_again_once(
    tmp_path: Path, family: str, request: pytest.FixtureRequest
) -> None:
    """Of each kernel: the newest is not the running one before a reboot."""
    image = {"ubuntu": "initrd.img-{}", "rocky": "initramfs-{}.img"}[family]
    modprobe = tmp_path / "modprobe.conf"
    for name, text in (("update-initramfs", UPDATE_INITRAMFS), ("dracut", DRACUT)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    old, new = os.uname().release, "9999.0.0-1-generic"
    for kernel in (old, new, "8888.0.0-1-generic"):
        (tmp_path / "modules" / kernel).mkdir(parents=True)
    script = request.getfixturevalue(family)["initramfs"]
    script = script.replace("/boot/", f"{tmp_path}/").replace("/lib/modules", f"{tmp_path}/modules")

    def run() -> str:
        done = subprocess.run(
            ["sh", "-c", script, "sh", str(modprobe)],
            capture_output=True, text=True, check=True,
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        )  # fmt: skip
        return done.stdout

    modprobe.write_text("")
    assert run() == "", "there is no image"
    # Of a kernel that is gone.
    for kernel in (old, new, "6.1.0-1-gone"):
        path = tmp_path / image.format(kernel)
        path.write_text("")
        os.utime(path, (1, 1))
    made = run()
    assert {line.split("/")[-1] for line in made.splitlines()} == {
        f"{image.format(kernel)} was rebuilt" for kernel in (old, new)
    }
    assert run() == ""


def test_peermem_is_loaded_where_dma_buf_is_not_possible(tmp_path: Path) -> None:
    """Now and at each boot; a module that cannot be loaded would fail each boot."""
    tasks = read_yaml(ROLES / "nvidia_driver/tasks/service.yml")
    (load,) = [one for one in tasks if "nvidia-peermem" in str(one.get("ansible.builtin.command"))]
    (boot,) = [one for one in tasks if "modules-load.d" in str(one)]
    auto = {"nvidia_driver_gpudirect": "auto", "__nvidia_driver_seen": {"gpudirect": "peermem"}}
    failed = {"__nvidia_driver_peermem": {"rc": 1}}
    cases = {
        "peermem": auto,
        "failed": {**auto, **failed},
        "declared": {**auto, **failed, "nvidia_driver_gpudirect": "peermem"},
        # The driver that was loaded a moment ago is another one.
        "reloaded": {**auto, "__nvidia_driver_now": {"gpudirect": "dmabuf"}},
        "none": {"nvidia_driver_source": "none"},
    }
    shown = {
        "loads": load["when"],
        "fails": load["failed_when"],
        "state": boot["baremetal.dgx.managed_files"]["files"][0]["state"].strip("{ }"),
        "written": boot["when"],
    }
    cases = {name: {"nvidia_driver_gpudirect": "", **case} for name, case in cases.items()}
    found = render_many(tmp_path, "nvidia_driver", "Ubuntu", cases, shown)
    assert {name: [values[key] for key in shown] for name, values in found.items()} == {
        "peermem": [True, False, "file", True],
        "failed": [True, False, "absent", True],
        "declared": [True, True, "absent", False],
        "reloaded": [False, False, "absent", True],
        "none": [False, False, "absent", False],
    }


def test_verify_leaves_dcgm_to_its_role() -> None:
    """It runs later, and replaces what does not fit the new driver."""
    tasks = read_yaml(ROLES / "nvidia_driver/tasks/verify.yml")
    planned = [task.get("baremetal.dgx.nvidia_driver_plan", {}) for task in tasks]
    assert [one["dcgm"] for one in planned if one.get("state") == "verified"] == [False]


# Reload of the driver

RELOAD = ROLES / "nvidia_driver/files/baremetal-dgx-driver-reload"
SYSTEMCTL = """\
#!/bin/sh
here="$(dirname "$0")"
case "$1" in
-q) test "$2" = is-failed && exec test -e "$here/failed/$3"; exec test -e "$here/runs/$3" ;;
is-enabled) exec cat "$here/enabled/$2" ;;
reset-failed) exec rm "$here/failed/$2" ;;
stop) rm -f "$here/runs/$2" ;;
start)
  test ! -e "$here/failed/$2" -a ! -e "$here/broken/$2" || exit 1
  test "$2" != baremetal-dgx-mig.service -o -e "$here/module/nvidia" || exit 1
  touch "$here/runs/$2" ;;
esac
echo "$1 $2" >> "$here/log"
"""
MODPROBE = """\
#!/bin/sh
here="$(dirname "$0")"
case "$1" in
-r) test ! -e "$here/held.$2" && rm "$here/module/$2" ;;
*) touch "$here/module/$1" ;;
esac
"""
DAEMONS = ["nvidia-dcgm", "nvidia-fabricmanager", "nvidia-persistenced"]
MODULES = ["nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_peermem", "gdrdrv"]


def reload(folder: Path, daemons: list[str], *words: str, **states: str) -> int:
    """Run the script on a node where these daemons run; return how it ended.

    `states` has a unit's name with the words of `systemctl is-enabled`, or failed.
    """
    smi = f"#!/bin/sh\necho nvidia-smi $1 >> {folder}/log\n"
    for name, text in (("systemctl", SYSTEMCTL), ("modprobe", MODPROBE), ("nvidia-smi", smi)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for name, files in (("runs", [f"{one}.service" for one in daemons]), ("module", MODULES)):
        (folder / name).mkdir()
        for file in files:
            (folder / name / file).touch()
    for name in ("enabled", "failed"):
        (folder / name).mkdir()
    for unit, state in states.items():
        name = f"{unit.replace('_', '-')}.service"
        (folder / "enabled" / name).write_text(state.partition(" ")[0] + "\n")
        if state.endswith(" failed"):
            (folder / "failed" / name).touch()
    done = subprocess.run(
        ["sh", str(RELOAD), *words],
        env={"PATH": f"{folder}:/usr/bin:/bin", "SYS": str(folder)},
        check=False,
    )
    return done.returncode


@pytest.mark.parametrize("held", ["", "nvidia_uvm", "nvidia"])
def test_a_reload_leaves_running_what_ran(tmp_path: Path, held: str) -> None:
    """Also when a module is held: the node must not lose its fabric manager over it."""
    if held:
        (tmp_path / f"held.{held}").touch()
    assert reload(tmp_path, DAEMONS) == (1 if held else 0)
    assert {path.name for path in (tmp_path / "module").iterdir()} == set(MODULES)
    running = {path.name for path in (tmp_path / "runs").iterdir()}
    assert running == {f"{one}.service" for one in DAEMONS}
    stops, starts = DAEMONS, reversed(DAEMONS)
    assert (tmp_path / "log").read_text().splitlines() == [
        *(f"stop {one}.service" for one in stops),
        *(f"start {one}.service" for one in starts),
    ]


@pytest.mark.parametrize("words", [(), ("reset",)])
def test_what_the_driver_takes_away_is_made_again(tmp_path: Path, words: tuple[str, ...]) -> None:
    """MIG instances, with persistence and the fabric there, and before DCGM holds the GPUs."""
    daemons = ["nvidia-dcgm", "baremetal-dgx-mig", "nvidia-fabricmanager", "nvidia-persistenced"]
    assert reload(tmp_path, daemons, *words, baremetal_dgx_mig="enabled") == 0
    assert (tmp_path / "log").read_text().splitlines() == [
        *(f"stop {one}.service" for one in daemons),
        *(["nvidia-smi --gpu-reset"] if words else []),
        *(f"start {one}.service" for one in reversed(daemons)),
    ]


@pytest.mark.parametrize("words", [(), ("reset",)])
@pytest.mark.parametrize(("active", "state"), [(True, ""), (False, "enabled")])
def test_a_layout_is_made_only_where_one_was_in_force_and_is_declared(
    tmp_path: Path, words: tuple[str, ...], active: bool, state: str
) -> None:
    """Withdrawn: its unit is active without a file, and starts no more. New: no one drained it."""
    (tmp_path / "broken").mkdir()
    if active:
        (tmp_path / "broken/baremetal-dgx-mig.service").touch()
    daemons = [*DAEMONS, *(["baremetal-dgx-mig"] if active else [])]
    states = {"baremetal_dgx_mig": state} if state else {}
    assert reload(tmp_path, daemons, *words, **states) == 0
    assert "baremetal-dgx-mig" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize(("broken", "rc"), [(False, 0), (True, 1)])
def test_a_layout_whose_unit_has_failed_is_made_again(
    tmp_path: Path, broken: bool, rc: int
) -> None:
    if broken:
        (tmp_path / "broken").mkdir()
        (tmp_path / "broken/baremetal-dgx-mig.service").touch()
    assert reload(tmp_path, DAEMONS, baremetal_dgx_mig="enabled failed") == rc
    assert (tmp_path / "runs/baremetal-dgx-mig.service").exists() is not broken


def test_a_layout_that_cannot_be_made_again_fails_the_step(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/baremetal-dgx-mig.service").touch()
    assert reload(tmp_path, [*DAEMONS, "baremetal-dgx-mig"], baremetal_dgx_mig="enabled") == 1
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {
        f"{one}.service" for one in DAEMONS
    }


@pytest.mark.parametrize("words", [(), ("reset",)])
@pytest.mark.parametrize(
    ("state", "runs"),
    [("enabled failed", True), ("enabled", True), ("disabled failed", False), ("masked", False)],
)
def test_a_dead_daemon_is_started_where_it_is_enabled(
    tmp_path: Path, words: tuple[str, ...], state: str, runs: bool
) -> None:
    """systemd starts no unit that has failed too often until that is forgotten."""
    dead = "nvidia-fabricmanager.service"
    assert reload(tmp_path, ["nvidia-persistenced"], *words, nvidia_fabricmanager=state) == 0
    found = {path.name for path in (tmp_path / "runs").iterdir()}
    assert found == {"nvidia-persistenced.service", *([dead] if runs else [])}
    starts = [line for line in (tmp_path / "log").read_text().splitlines() if "start " in line]
    assert starts == [f"start {name}" for name in sorted(found, reverse=True)]


def test_a_daemon_that_never_runs_fails_no_reload(tmp_path: Path) -> None:
    """The image of a node without NVSwitches may enable the fabric manager."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/nvidia-fabricmanager.service").touch()
    assert reload(tmp_path, ["nvidia-persistenced"], nvidia_fabricmanager="enabled failed") == 0


# MIG at boot

SMI = """\
#!/bin/sh
here="$(dirname "$0")"
case "$*" in
-L) cat "$here/list" ;;
*--query-gpu=mig.mode.current*) cat "$here/mode.$2" ;;
*--query-gpu=pci.bus_id*) echo "00000000:$2B:00.0" ;;
"mig -i "*" -lgi") cat "$here/instances.$3" 2>/dev/null || echo "No GPU instances found" ;;
*) echo "$@" >> "$here/log" ;;
esac
case "$*" in
"mig -i 1 -dci") exit 6 ;;
*-dgi) rm "$here/instances.$3" ;;
*-cgi*) cp "$here/made" "$here/instances.$3" && exit "$(cat "$here/code")" ;;
esac
"""
LIST = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)
  MIG 7g.80gb     Device  0: (UUID: MIG-a)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1)
GPU 6: NVIDIA H100 80GB HBM3 (UUID: GPU-6)
  MIG 3g.40gb     Device  0: (UUID: MIG-b)
  MIG 2g.20gb     Device  1: (UUID: MIG-c)
  MIG 1g.10gb     Device  2: (UUID: MIG-d)
  MIG 1g.10gb     Device  3: (UUID: MIG-e)
GPU 7: NVIDIA H100 80GB HBM3 (UUID: GPU-7)
"""


# As nvidia-smi prints them (MIG user guide): a profile, its number, the number of the instance.
INSTANCES = """\
+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   6  MIG 1g.10gb            19        7          0:1     |
+-------------------------------------------------------+
|   6  MIG 1g.10gb            19        8          1:1     |
+-------------------------------------------------------+
|   6  MIG 2g.20gb            14        4          2:2     |
+-------------------------------------------------------+
|   6  MIG 3g.40gb             9        2          4:4     |
+-------------------------------------------------------+
"""


Mig = Callable[[], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def mig(tmp_path: Path, ubuntu: dict[str, Any]) -> Mig:
    """`mig()` → how the script ended on a node with GPUs 0, 1, 6 and 7.

    GPU 0 has a layout that is not declared, GPU 6 that which is declared, and GPU 7 none. GPU 1 has
    instances without compute instances, as an end between -dci and -dgi leaves them.
    """
    config = tmp_path / "mig.conf"
    config.write_text(ubuntu["files"]["/etc/baremetal-dgx/mig.conf"]["content"])
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "list").write_text(LIST)
    (tmp_path / "made").write_text(INSTANCES)
    (tmp_path / "code").write_text("0")
    for gpu, mode in ((0, "Enabled"), (1, "Enabled"), (6, "Enabled"), (7, "Disabled")):
        (tmp_path / f"mode.{gpu}").write_text(mode)
        if mode == "Enabled":
            (tmp_path / f"instances.{gpu}").write_text(INSTANCES)
    # The numbers are the driver's: 3 + 135 for each GPU, 9 for each instance. It has found GPU 7
    # before GPU 6.
    for gpu, device in ((6, 7), (7, 6)):
        about = tmp_path / f"proc/driver/nvidia/gpus/0000:{gpu}b:00.0/information"
        about.parent.mkdir(parents=True)
        about.write_text(f"Bus Location: \t 0000:{gpu}b:00.0\nDevice Minor: \t {device}\n")
        for own in (2, 4, 7, 8):
            for place, minor in ((f"gi{own}", 0), (f"gi{own}/ci0", 1)):
                folder = tmp_path / f"proc/driver/nvidia/capabilities/gpu{device}/mig/{place}"
                folder.mkdir(parents=True)
                access = folder / "access"
                number = 3 + 135 * device + 9 * own + minor
                access.write_text(f"DeviceFileMinor: {number}\nDeviceFileMode: 292\n")
    (tmp_path / "nvidia-modprobe").write_text(f"#!/bin/sh\necho $@ >> {tmp_path}/modprobe\n")
    (tmp_path / "nvidia-modprobe").chmod(0o755)
    caps = tmp_path / "dev/nvidia-caps"
    caps.mkdir(parents=True)
    (caps / "nvidia-cap831").touch()
    script = ROLES / "nvidia_driver/files/baremetal-dgx-mig"
    argv = ["sh", str(script), str(config), str(tmp_path / "proc"), str(tmp_path / "dev")]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    return lambda: subprocess.run(
        argv, check=False, env=environment, capture_output=True, text=True
    )


def test_mig_layout_is_made(mig: Mig, tmp_path: Path) -> None:
    assert lines({"content": (tmp_path / "mig.conf").read_text()}) == [
        "6 1g.10gb,1g.10gb,2g.20gb,3g.40gb",
        "7 1g.10gb,1g.10gb,2g.20gb,3g.40gb",
        "* -",
    ]
    done = mig()
    assert done.returncode == 0, done.stderr
    links = tmp_path / "dev/baremetal-dgx/mig"
    assert sorted(path.name for path in links.iterdir()) == [
        f"gpu{gpu}-{kind}-{part}"
        for gpu in (6, 7)
        for kind in ("1g.10gb-0", "1g.10gb-1", "2g.20gb-0", "3g.40gb-0")
        for part in ("ci", "gi")
    ]
    assert str((links / "gpu6-3g.40gb-0-gi").readlink()) == "../../nvidia-caps/nvidia-cap966"
    assert str((links / "gpu7-3g.40gb-0-gi").readlink()) == "../../nvidia-caps/nvidia-cap831"
    assert (links / "gpu7-3g.40gb-0-gi").exists()
    assert str((links / "gpu7-1g.10gb-1-ci").readlink()) == "../../nvidia-caps/nvidia-cap886"
    made = (tmp_path / "modprobe").read_text().splitlines()
    assert len(made) == 15, "one device file is there already"
    assert made[0].endswith("capabilities/gpu7/mig/gi7/access")
    assert (tmp_path / "log").read_text().splitlines() == [
        "mig -i 0 -dci",
        "mig -i 0 -dgi",
        "-i 0 -mig 0",
        "mig -i 1 -dci",
        "mig -i 1 -dgi",
        "-i 1 -mig 0",
        "-i 7 -mig 1",
        "mig -i 7 -cgi 3g.40gb,2g.20gb,1g.10gb,1g.10gb -C",
    ]


def test_no_part_of_a_mig_layout_stays(mig: Mig, tmp_path: Path) -> None:
    """nvidia-smi keeps the instances that it made before one that finds no place."""
    (tmp_path / "code").write_text("23")
    done = mig()
    assert done.returncode == 1
    assert "GPU 7 does not take 3g.40gb,2g.20gb,1g.10gb,1g.10gb\n" in done.stderr
    assert (tmp_path / "log").read_text().splitlines()[-2:] == ["mig -i 7 -dci", "mig -i 7 -dgi"]
    assert not list((tmp_path / "dev/baremetal-dgx/mig").glob("gpu7-*"))


def test_mig_instances_in_use_stay(mig: Mig, tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text(SMI.replace('rm "$here/instances.$3"', "exit 19"))
    done = mig()
    assert done.returncode == 1
    assert "GPU 0 keeps its instances\n" in done.stderr
    assert "-i 0 -mig 0" not in (tmp_path / "log").read_text()
