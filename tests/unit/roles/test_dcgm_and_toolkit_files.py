# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles dcgm and nvidia_container_toolkit would write, for each source."""

from __future__ import annotations

import configparser
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from role_render import by_path, lines, render

from ansible_collections.baremetal.dgx.plugins.module_utils._host.units.systemd import digest_path

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n=x\n-----END PGP PUBLIC KEY BLOCK-----\n"

# DCGM

DCGM = {
    "packages": "__dcgm_packages",
    "others": "__dcgm_others",
    "files": "__dcgm_files",
    "sources": "__dcgm_source_files[ansible_facts['os_family']]",
    "refusals": "__dcgm_refusals | selectattr('when') | map(attribute='say') | list",
    "probes": "__dcgm_probes | map(attribute='probe') | list",
    "findings": "__dcgm_findings",
}
DCGM_DROP_IN = "/etc/systemd/system/nvidia-dcgm.service.d/50-baremetal-dgx.conf"


def dcgm(
    folder: Path, distribution: str, driver: dict[str, Any] | None = None, **inputs: Any
) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    given = {f"dcgm_{key}": value for key, value in inputs.items()}
    given["__dcgm_driver"] = {"cuda": 13} if driver is None else driver
    messages = ["node:n stack.dcgm: DCGM lacks x", "node:n stack.driver: other"]
    given["__dcgm_stack"] = {"findings": messages}
    found = render(folder, "dcgm", distribution, given, DCGM)
    for kind in ("files", "sources"):
        found[kind] = by_path(found[kind])
    return found


def test_dcgm_as_it_ships(tmp_path: Path) -> None:
    found = dcgm(tmp_path, "Debian", source="configured", gpus=8)
    assert sorted(found["packages"]) == [
        "datacenter-gpu-manager-4-core",
        "datacenter-gpu-manager-4-cuda13",
        "datacenter-gpu-manager-4-proprietary",
        "datacenter-gpu-manager-4-proprietary-cuda13",
    ]
    assert found["files"][DCGM_DROP_IN]["state"] == "absent"
    assert (
        found["sources"]["/etc/apt/sources.list.d/baremetal-dgx-dcgm.sources"]["state"] == "absent"
    )
    (probe,) = found["probes"]
    assert probe["command"] == ["dcgmi", "discovery", "-l"]
    assert probe["expect"] == "(?m)^8 GPUs? found"
    assert found["findings"] == ["node:n stack.dcgm: DCGM lacks x"]
    assert found["refusals"] == []


def test_dcgm_elsewhere_and_watching(tmp_path: Path) -> None:
    found = dcgm(
        tmp_path, "Rocky", source="directory", directory={"path": "/x", "sha256": "0"},
        version="4.6.0", cuda=[12, 13], address="10.0.0.1", port=5556,
        health_watches=["pcie", "nvlink"],
    )  # fmt: skip
    assert "datacenter-gpu-manager-4-cuda12=4.6.0-*" in found["packages"]
    health = "/usr/bin/dcgmi health --host 10.0.0.1:5556 -s pn"
    again = "n=$$((n + 1)); [ $$n -lt 60 ] || exit 1; sleep 1"
    assert lines(found["files"][DCGM_DROP_IN]) == [
        "[Service]",
        "ExecStart=",
        "ExecStart=/usr/bin/nv-hostengine -n --service-account nvidia-dcgm -b 10.0.0.1 -p 5556",
        f"ExecStartPost=/bin/sh -c 'n=0; until {health}; do {again}; done'",
    ]
    assert found["probes"][0]["command"] == [
        "dcgmi", "discovery", "--host", "10.0.0.1:5556", "-l"
    ]  # fmt: skip


def test_dcgm_versions(tmp_path: Path) -> None:
    found = dcgm(tmp_path, "Ubuntu", source="configured", version="3.3.9")
    assert found["packages"] == ["datacenter-gpu-manager=1:3.3.9-*"]
    (line,) = dcgm(tmp_path, "Ubuntu", version="2.4.8")["refusals"]
    assert "is not a version of DCGM 3 or 4" in line
    assert (
        len(dcgm(tmp_path, "Ubuntu", source="directory", port=0, health_watches=["x"])["refusals"])
        == 3
    )


def test_diagnostics_of_a_former_driver_make_room(tmp_path: Path) -> None:
    """Held at the old version, they would keep the core, of which they need exactly their own."""
    names = ("datacenter-gpu-manager-4-cuda", "datacenter-gpu-manager-4-proprietary-cuda")
    found = dcgm(tmp_path / "a", "Ubuntu", source="configured", version="4.6.0")
    assert set(found["others"]) == {f"{name}{major}" for name in names for major in (11, 12)}
    found = dcgm(tmp_path / "b", "Ubuntu", source="configured", version="4.6.0", cuda=[12, 13])
    assert set(found["others"]) == {f"{name}11" for name in names}
    assert dcgm(tmp_path / "c", "Ubuntu", driver={})["others"] == []
    install = (ROOT / "roles/dcgm/tasks/install.yml").read_text()
    (task,) = (one for one in yaml.safe_load(install) if "Install DCGM" in one["name"])
    options = task["baremetal.dgx.system_packages"]
    assert options["unheld"] == options["removals_allowed"] == "{{ __dcgm_others }}"


def test_an_upgrade_restarts_the_host_engine() -> None:
    (task,) = yaml.safe_load((ROOT / "roles/dcgm/tasks/service.yml").read_text())
    assert task["baremetal.dgx.service_sync"]["restart_on"] == ["/usr/bin/nv-hostengine"]


# Containers

TOOLKIT = {
    "packages": "__nvidia_container_toolkit_packages",
    "files": "__nvidia_container_toolkit_files",
    "sources": "__nvidia_container_toolkit_source_files[ansible_facts['os_family']]",
    "refusals": (
        "__nvidia_container_toolkit_refusals | selectattr('when') | map(attribute='say') | list"
    ),
    "units": (
        "__nvidia_container_toolkit_units | selectattr('when') | map(attribute='sync.name') | list"
    ),
    "syncs": "__nvidia_container_toolkit_units | selectattr('when') | map(attribute='sync') | list",
    "runtime_files": "__nvidia_container_toolkit_runtime_files.containerd",
    "script": "__nvidia_container_toolkit_runtime_script",
}


REFRESH = "/etc/systemd/system/nvidia-cdi-refresh.path"


def toolkit(
    folder: Path,
    distribution: str,
    there: tuple[str, ...] = (REFRESH,),
    gpus: str | None = None,
    **inputs: Any,
) -> dict[str, Any]:
    """What the role renders on a host where these files are, and these GPUs have been read."""
    given = {f"nvidia_container_toolkit_{key}": value for key, value in inputs.items()}
    given["__nvidia_container_toolkit_gpus"] = {} if gpus is None else {"stdout": gpus}
    paths = {path: {"exists": path in there} for path in ("/usr/bin/nvidia-ctk", REFRESH)}
    given["__nvidia_container_toolkit_there"] = {"paths": paths}
    found = render(folder, "nvidia_container_toolkit", distribution, given, TOOLKIT)
    for kind in ("files", "sources"):
        found[kind] = by_path(found[kind])
    return found


def test_toolkit_from_a_mirror(tmp_path: Path) -> None:
    found = toolkit(
        tmp_path, "Ubuntu", source="nvidia_repository", version="1.20.0",
        mirror="https://mirror.example.org/container/stable", repository={"signed_by": KEY},
        runtimes=["docker"],
    )  # fmt: skip
    assert found["refusals"] == []
    assert len(found["packages"]) == 4
    assert {entry.split("=")[1] for entry in found["packages"]} == {"1.20.0-*"}
    name = "/etc/apt/sources.list.d/baremetal-dgx-nvidia-container-toolkit.sources"
    assert found["sources"][name]["content"].splitlines()[1:6] == [
        "Types: deb",
        "URIs: https://mirror.example.org/container/stable/deb/$(ARCH)/",
        "Suites: /",
        "Signed-By:",
        " -----BEGIN PGP PUBLIC KEY BLOCK-----",
    ]
    assert found["units"] == ["nvidia-cdi-refresh.path", "docker.service"]


def test_toolkit_on_enterprise_linux(tmp_path: Path) -> None:
    found = toolkit(
        tmp_path, "Rocky", source="nvidia_repository", repository={"key_sha256": "1"}, cdi="own"
    )
    name = "/etc/yum.repos.d/baremetal-dgx-nvidia-container-toolkit.repo"
    repository = configparser.RawConfigParser()
    repository.read_string(found["sources"][name]["content"])
    section = repository["baremetal-dgx-nvidia-container-toolkit"]
    assert section["baseurl"].endswith("/rpm/$basearch")
    assert section["repo_gpgcheck"] == "1"
    assert found["units"] == ["baremetal-dgx-cdi.service"]
    assert found["files"]["/etc/systemd/system/baremetal-dgx-cdi.service"]["state"] == "file"


@pytest.mark.parametrize(
    ("cdi", "there", "unit"),
    [
        ("auto", ("/usr/bin/nvidia-ctk", REFRESH), "nvidia-cdi-refresh.path"),
        ("auto", ("/usr/bin/nvidia-ctk",), "baremetal-dgx-cdi.service"),
        # check mode, before anything is installed
        ("auto", (), "nvidia-cdi-refresh.path"),
        ("own", (REFRESH,), "baremetal-dgx-cdi.service"),
        ("packaged", ("/usr/bin/nvidia-ctk",), "nvidia-cdi-refresh.path"),
    ],
)
def test_who_writes_the_specification(
    tmp_path: Path, cdi: str, there: tuple[str, ...], unit: str
) -> None:
    found = toolkit(tmp_path, "Ubuntu", there, cdi=cdi)
    assert found["units"] == [unit]
    is_own = unit == "baremetal-dgx-cdi.service"
    state = found["files"]["/etc/systemd/system/baremetal-dgx-cdi.service"]["state"]
    assert state == ("file" if is_own else "absent")


GPUS = "/var/lib/baremetal-dgx/cdi-gpus"


@pytest.mark.parametrize(
    ("cdi", "sync"),
    [
        ("own", {"restart_on": [GPUS]}),
        (
            "packaged",
            {
                "reload_on": [GPUS],
                "reload_command": ["systemctl", "restart", "nvidia-cdi-refresh.service"],
            },
        ),
    ],
)
def test_the_specification_follows_the_driver_and_mig(
    tmp_path: Path, cdi: str, sync: dict[str, Any]
) -> None:
    listed = "NVRM version: 580.126.20\nGPU 0: H100\n  MIG 1g.10gb Device 0: (UUID: MIG-1)"
    found = toolkit(tmp_path, "Ubuntu", gpus=listed, cdi=cdi)
    assert found["files"][GPUS]["content"] == f"{listed}\n"
    assert sync.items() <= found["syncs"][0].items()
    tasks = yaml.safe_load(
        (ROOT / "roles/nvidia_container_toolkit/tasks/configure.yml").read_text()
    )
    (read,) = (task for task in tasks if task.get("register") == "__nvidia_container_toolkit_gpus")
    assert "nvidia-smi -L" in read["ansible.builtin.command"]["argv"][-1]


def test_gpus_that_were_not_read_change_no_file(tmp_path: Path) -> None:
    assert GPUS not in toolkit(tmp_path, "Ubuntu", hardware=False)["files"]


def test_toolkit_refusals(tmp_path: Path) -> None:
    found = toolkit(
        tmp_path, "Debian", source="nvidia_repository", runtimes=["enroot"], version="1"
    )
    assert len(found["refusals"]) == 3
    assert "enroot needs no line here" in found["refusals"][1]
    assert toolkit(tmp_path, "Debian", hardware=False)["units"] == []


def test_runtimes_are_told_once(tmp_path: Path) -> None:
    script = toolkit(tmp_path, "Debian")["script"]
    config = tmp_path / "daemon.json"
    tool = tmp_path / "nvidia-ctk"
    tool.write_text(f'#!/bin/sh\ntest "$3" = --runtime=docker && echo called > {config}\n')
    tool.chmod(0o755)

    def run() -> str:
        return subprocess.run(
            ["sh", "-c", script, "sh", "docker", str(config)],
            capture_output=True, text=True, check=True,
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        ).stdout  # fmt: skip

    assert "was changed" in run()
    assert run() == ""


@pytest.mark.parametrize("folder", ["conf.d", "config.d"])
def test_containerd_is_restarted_for_the_second_file_of_the_tool(
    tmp_path: Path, folder: str
) -> None:
    found = toolkit(tmp_path, "Debian", runtimes=["containerd"])
    assert found["syncs"][-1]["restart_on"] == found["runtime_files"]
    config, second = (
        path.replace("/etc/containerd", str(tmp_path)) for path in found["runtime_files"]
    )
    Path(config).write_text("imports\n")
    written = tmp_path / folder / "99-nvidia.toml"
    tool = tmp_path / "nvidia-ctk"
    tool.write_text(
        f'#!/bin/sh\ntest "$4" = --config={config} || exit 1\n'
        f"mkdir -p {written.parent} && echo nvidia > {written}\n"
    )
    tool.chmod(0o755)
    before = digest_path(second).files
    outputs = [
        subprocess.run(
            ["sh", "-c", found["script"], "sh", "containerd", f"{config} {second}"],
            capture_output=True, text=True, check=True,
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        ).stdout
        for _time in range(2)
    ]  # fmt: skip
    assert "was changed" in outputs[0]
    assert outputs[1] == ""
    assert digest_path(second).files != before
