# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles enroot and pyxis would write, and what they refuse.

Each case is a host of one play, since each play takes seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from role_render import ROLES, by_path, lines, render_many
from role_rules import read_yaml

REFUSALS = "refusals | selectattr('when') | map(attribute='say') | list"

# enroot

ENROOT = {
    "files": "__enroot_files",
    "folders": "__enroot_folders",
    "leftovers": "__enroot_leftovers",
    "packages": "__enroot_packages",
    "sources": "__enroot_source_files[ansible_facts['os_family']]",
    "sysctl": "__enroot_sysctl",
    "sums": "__enroot_sums",
    "missing": "__enroot_missing_hooks",
    "refusals": f"__enroot_{REFUSALS}",
}
CONF = "/etc/enroot/enroot.conf.d/50-baremetal-dgx.conf"
PROFILE = "/etc/apparmor.d/baremetal-dgx-enroot"
PROLOG = "/etc/slurm/prolog.d/45-enroot-folders"
AT_LOGIN = "/etc/systemd/system/user-runtime-dir@.service.d/50-baremetal-dgx-enroot.conf"
SHIPPED = ["50-mig-config.sh", "50-slurm-pmi.sh", "50-slurm-pytorch.sh"]
DIGEST = hashlib.sha256(b"x").hexdigest()
NAMES = ("enroot_4.1.2-1_amd64.deb", "enroot+caps_4.1.2-1_amd64.deb")
RESTRICTED = ["apparmor-restricts", "has-userns-clone"]
# What the host has, and no input says.
KNOWN = ("seen", "paths")
ENROOT_CASES: dict[str, dict[str, Any]] = {
    "scratch": {
        "source": "packages",
        "version": "4.1.2",
        "scratch_dir": "/raid/enroot",
        "images_dir": "/cephfs/images",
        "options": {"ENROOT_MAX_PROCESSORS": 8},
        "site_hooks": {"60-site.sh": "#!/bin/sh\n"},
    },
    "profile": {"source": "packages", "apparmor": "profile", "seen": RESTRICTED},
    "sysctl": {"source": "packages", "apparmor": "sysctl", "seen": RESTRICTED},
    "free": {"source": "packages", "hooks": ["50-none.sh"], "prolog": False},
    "url": {
        "source": "url",
        "urls": [{"url": f"https://example.org/a/{name}", "sha256": DIGEST} for name in NAMES],
    },
    "no-url": {"source": "url"},
    "no-folder": {"source": "packages", "images": [{"name": "x.sqsh", "uri": "docker://x"}]},
    "refused": {
        "paths": {"/raid": {"mount": False}, "/cephfs": {"directory": False}},
        "source": "directory",
        "version": "four",
        "scratch_mount": "/raid",
        "scratch_dir": "raid",
        "images_dir": "/cephfs/images",
        "urls": [{"url": "x", "sha256": "abc"}],
        "images": [{"name": "../x", "uri": "docker://x"}],
    },
}


@pytest.fixture(scope="module")
def enroot(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Case → what the role would do."""
    hosts = {}
    for name, values in ENROOT_CASES.items():
        given = {f"enroot_{key}": value for key, value in values.items() if key not in KNOWN}
        given["__enroot_paths"] = {"paths": values.get("paths", {})}
        given["__enroot_node"] = {"stdout_lines": values.get("seen", [])}
        given["__enroot_shipped"] = {
            "files": [{"path": f"/usr/share/enroot/hooks.d/{hook}"} for hook in SHIPPED]
        }
        hosts[name] = given
    found = render_many(tmp_path_factory.mktemp("enroot"), "enroot", "Debian", hosts, ENROOT)
    for values in found.values():
        for kind in ("files", "folders", "leftovers"):
            values[kind] = by_path(values[kind])
    return found


def test_enroot_on_scratch(enroot: dict[str, dict[str, Any]]) -> None:
    found = enroot["scratch"]
    assert lines(found["files"][CONF]) == [
        "ENROOT_RUNTIME_PATH /run/enroot/user-$(id -u)",
        "ENROOT_DATA_PATH /raid/enroot/data/user-$(id -u)",
        "ENROOT_CACHE_PATH /raid/enroot/cache/user-$(id -u)",
        "ENROOT_TEMP_PATH /raid/enroot/tmp",
        "ENROOT_MAX_PROCESSORS 8",
    ]
    # only root makes folders where users' own are: enroot takes whatever it finds there
    modes = {path: entry["mode"] for path, entry in found["folders"].items()}
    assert modes == {
        "/run/enroot": "0711",
        "/raid/enroot": "0755",
        "/raid/enroot/data": "0711",
        "/raid/enroot/cache": "0711",
        "/raid/enroot/tmp": "1777",
        "/cephfs/images": "1777",
    }
    boot = lines(found["files"]["/etc/tmpfiles.d/baremetal-dgx-enroot.conf"])
    assert "d /raid/enroot/cache 0711 root root ~30d" in boot
    assert "d /raid/enroot/data 0711 root root -" in boot
    parents = "/run/enroot /raid/enroot/data /raid/enroot/cache"
    prolog = found["files"][PROLOG]
    assert (prolog["state"], prolog["mode"]) == ("file", "0755")
    assert parents in prolog["content"]
    assert lines(prolog)[-1] == "exit 0"
    login = f"ExecStartPost=-/usr/local/libexec/baremetal-dgx/user-folders --uid %i {parents}"
    assert login in lines(found["files"][AT_LOGIN])
    assert {PROLOG, AT_LOGIN, "/usr/local/libexec/baremetal-dgx/user-folders"} <= set(
        found["leftovers"]
    )
    assert "enroot=4.1.2-*" in found["packages"]
    assert "enroot+caps=4.1.2-*" in found["packages"]
    assert "bsdextrautils" in found["packages"]
    hooks = {p: e["state"] for p, e in found["files"].items() if "state" in e and "hooks.d/" in p}
    assert hooks == {
        "/etc/enroot/hooks.d/50-slurm-pmi.sh": "link",
        "/etc/enroot/hooks.d/50-slurm-pytorch.sh": "link",
        "/etc/enroot/hooks.d/50-mig-config.sh": "absent",
    }
    assert found["files"]["/etc/enroot/hooks.d/60-site.sh"]["mode"] == "0755"
    assert set(found["leftovers"]) >= {CONF, PROFILE, "/etc/enroot/hooks.d/60-site.sh"}
    assert found["refusals"] == []


@pytest.mark.parametrize(
    ("way", "profile", "sysctl"), [("profile", "file", False), ("sysctl", "absent", True)]
)
def test_kernel_that_restricts_namespaces(
    enroot: dict[str, dict[str, Any]], way: str, profile: str, sysctl: bool
) -> None:
    found = enroot[way]
    assert found["files"][PROFILE]["state"] == profile
    if profile == "file":
        text = found["files"][PROFILE]["content"]
        assert "profile baremetal-dgx-enroot /usr/bin/enroot{,-*}" in text
    assert ("kernel.apparmor_restrict_unprivileged_userns" in found["sysctl"]) == sysctl
    assert found["sysctl"]["kernel.unprivileged_userns_clone"] == 1


def test_kernel_that_does_not(enroot: dict[str, dict[str, Any]]) -> None:
    found = enroot["free"]
    assert found["files"][PROFILE]["state"] == "absent"
    assert set(found["sysctl"]) == {"user.max_user_namespaces", "user.max_mnt_namespaces"}
    assert found["missing"] == ["50-none.sh"]
    # a login host has no slurmd
    assert found["files"][PROLOG]["state"] == "absent"
    assert "/etc/slurm" not in found["files"]


def test_packages_by_url(enroot: dict[str, dict[str, Any]]) -> None:
    found = enroot["url"]
    # exactly what `sha256sum -c` takes
    assert found["sums"] == "".join(f"{DIGEST}  {name}\n" for name in NAMES)
    (source,) = found["sources"]
    assert source["state"] == "file"
    assert "Trusted: yes" in source["content"]


def package_task(role: str) -> dict[str, Any]:
    """The options of the task that holds packages, which runs whatever the source is."""
    tasks = read_yaml(ROLES / role / "tasks/install.yml")
    (task,) = (one for one in tasks if "baremetal.dgx.system_packages" in one)
    assert "when" not in task, "what an earlier run has held is released without a source, too"
    options: dict[str, Any] = task["baremetal.dgx.system_packages"]
    return options


def test_each_role_that_holds_by_its_version_has_a_record() -> None:
    """Without it, what the inventory says no more stays held."""
    holding = {
        path.parts[-3]
        for path in ROLES.glob("*/tasks/install.yml")
        if re.search(r"^    held: ", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert {"_service", "dcgm", "infiniband", "nvidia_driver"} < holding
    # The inventory lists what node_base holds, and what it releases.
    for role in holding - {"node_base"}:
        name = "{{ _service_name }}" if role == "_service" else role
        assert package_task(role)["holds_file"] == f"/var/lib/baremetal-dgx/held/{name}"


@pytest.mark.parametrize(
    ("role", "source", "others"),
    [
        ("enroot", "packages", ("preinstalled", "none")),
        ("nvidia_container_toolkit", "configured", ("preinstalled", "none")),
        ("dcgm", "configured", ("preinstalled", "none")),
        ("dcgm_exporter", "configured", ("preinstalled", "container")),
        ("grafana", "repository", ("archive",)),
    ],
)
def test_a_hold_ends_with_the_version_or_the_source(
    tmp_path: Path, role: str, source: str, others: tuple[str, ...]
) -> None:
    options = package_task("_service" if role in ("dcgm_exporter", "grafana") else role)
    shown = {key: options[key].strip()[2:-2] for key in ("held", "present")}
    hosts = {
        "declared": {f"{role}_source": source, f"{role}_version": "1.2.3"},
        "emptied": {f"{role}_source": source},
        **{one: {f"{role}_source": one, f"{role}_version": "1.2.3"} for one in others},
    }
    found = render_many(tmp_path, role, "Debian", hosts, shown)
    held = found["declared"]["held"]
    assert held
    pinned = found["declared"]["present"]
    assert {re.sub("=([0-9]:)?1.2.3-?[*]$", "", one) for one in pinned if "=" in one} == set(held)
    assert found["emptied"]["held"] == []
    assert set(held) <= set(found["emptied"]["present"])
    for one in others:
        assert found[one] == {"held": [], "present": []}


def test_enroot_refuses(enroot: dict[str, dict[str, Any]]) -> None:
    message = "\n".join(enroot["refused"]["refusals"])
    assert len(enroot["refused"]["refusals"]) == 7
    assert "/raid is not mounted, and unpacked images would fill the disk" in message
    assert "/cephfs is not there" in message
    assert len(enroot["no-url"]["refusals"]) == 1
    (line,) = enroot["no-folder"]["refusals"]
    assert line.startswith("enroot_images: no enroot_images_dir")


# pyxis

PYXIS = {
    "line": "__pyxis_line",
    "laid": "__pyxis_laid",
    "new": "__pyxis_is_new",
    "used": "__pyxis_is_used",
    "record": "__pyxis_record",
    "last": "__pyxis_used_before_last",
    "leftovers": "__pyxis_leftovers",
    "runtime": "__pyxis_runtime_files",
    "refusals": f"__pyxis_{REFUSALS}",
    "needs": "__pyxis_build_needs",
}
MARK, OLD = "0123456789ab", "ba9876543210"
PATH = "/usr/local/lib/slurm/spank_pyxis-{}.so"
OLDEST = PATH.format("aaaaaaaaaaaa")
LINE = "required " + PATH + " runtime_path=/run/pyxis container_scope=job"


def used(mark: str = MARK, **values: Any) -> dict[str, Any]:
    """What the control machine has noted as in use."""
    return {
        "release": "24.11", "line": LINE.format(mark), "plugin": PATH.format(mark), "mark": mark,
        "image": f"/i-{mark}", "built": True, "proven": True, "previous": "", **values,
    }  # fmt: skip


# Case → inputs; "in-use" is what was noted before.
PYXIS_CASES: dict[str, dict[str, Any]] = {
    "first": {},
    "same": {"in-use": used()},
    "unproven": {"in-use": used(proven=False)},
    "other-build": {"in-use": used(OLD, previous=OLDEST)},
    "other-options": {"in-use": used(), "options": {"runtime_path": "/run/pyxis"}},
    "other-release": {"in-use": used(release="22.05")},
    "again": {"in-use": used(previous=PATH.format(OLD), proven=False)},
    "absent": {"in-use": used(previous=PATH.format(OLD)), "state": "absent"},
    "absent-package": {"in-use": used(built=False), "state": "absent"},
    "preinstalled": {"source": "preinstalled", "plugin": "/usr/lib/slurm/spank_pyxis.so"},
    "refused": {
        "directory": "",
        "options": {"runtime_pat": "/x"},
        "other_lines": ["required /usr/lib/spank_pyxis.so"],
    },
    "schedmd": {"slurm_source": "repository"},
    "refused-url": {"source": "url", "sha256": "12"},
}


@pytest.fixture(scope="module")
def pyxis(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Case → what the role would do."""
    folder = tmp_path_factory.mktemp("pyxis")
    hosts = {}
    for name, values in PYXIS_CASES.items():
        state = folder / f"state-{name}"
        state.mkdir()
        (state / "newest.json").write_text(json.dumps({"mark": MARK, "slurm": "24.11.5"}))
        if "in-use" in values:
            (state / "in-use.json").write_text(json.dumps(values["in-use"]))
        hosts[name] = {
            "pyxis_source": "directory",
            "pyxis_directory": "/srv/pyxis",
            "pyxis_builder": "head-01",
            "pyxis_submit_host": "login-01",
            "pyxis_slurm_release": "24.11",
            "pyxis_parts": ["compute"],
            "pyxis_state_dir": str(state),
            "__pyxis_trial": {"passed": ["dgx-01"]},
            **{f"pyxis_{key}": value for key, value in values.items() if key != "in-use"},
        }
    return render_many(folder, "pyxis", "Debian", hosts, PYXIS)


def test_headers_of_slurm_by_their_source(pyxis: dict[str, dict[str, Any]]) -> None:
    assert pyxis["first"]["needs"][-1] == "libslurm-dev"
    assert pyxis["schedmd"]["needs"][-1] == "slurm-smd-dev"


def test_first_build(pyxis: dict[str, dict[str, Any]]) -> None:
    found = pyxis["first"]
    assert found["line"] == LINE.format(MARK)
    assert found["new"]
    assert not found["used"]
    image = f"/usr/local/share/baremetal-dgx/container-{MARK}.sqsh"
    assert [file["dest"] for file in found["laid"]] == [PATH.format(MARK), image]
    assert found["laid"][0]["src"].endswith(f"/builds/spank_pyxis-{MARK}.so")
    assert found["record"] == {
        "release": "24.11", "slurm": "24.11.5", "mark": MARK, "line": LINE.format(MARK),
        "plugin": PATH.format(MARK), "image": image, "built": True, "proven": True, "previous": "",
    }  # fmt: skip
    assert by_path(found["runtime"])["/run/pyxis"]["mode"] == "0755"
    assert found["refusals"] == []


def test_a_trial_is_noted_before_its_line_is_written() -> None:
    """A run that is killed in between must not make the next one take the line for one in use."""
    tasks = read_yaml(ROLES / "pyxis/tasks/place.yml")
    texts = [json.dumps(task) for task in tasks]
    assert [text for text in texts if "/tried.json" in text] == texts[:1]
    assert "__pyxis_line" in tasks[0]["ansible.builtin.copy"]["content"]
    assert "plugstack.yml" in texts[1]


def test_nothing_to_do_when_it_is_in_use(pyxis: dict[str, dict[str, Any]]) -> None:
    assert not pyxis["same"]["new"]
    assert pyxis["same"]["used"]


@pytest.mark.parametrize("case", ["unproven", "other-build", "other-options", "other-release"])
def test_what_is_tried_again(pyxis: dict[str, dict[str, Any]], case: str) -> None:
    assert pyxis[case]["new"]


def test_the_build_before_stays_until_the_next_one(pyxis: dict[str, dict[str, Any]]) -> None:
    found = pyxis["other-build"]
    assert found["record"]["previous"] == PATH.format(OLD)
    assert found["last"] == OLDEST
    assert pyxis["again"]["record"]["previous"] == PATH.format(OLD)


def test_what_is_removed(pyxis: dict[str, dict[str, Any]]) -> None:
    assert set(by_path(pyxis["absent"]["leftovers"])) == {
        PATH.format(MARK), PATH.format(OLD), f"/i-{MARK}",
        "/etc/tmpfiles.d/baremetal-dgx-pyxis.conf",
    }  # fmt: skip
    # what a package has laid is not ours
    assert len(pyxis["absent-package"]["leftovers"]) == 1


def test_preinstalled(pyxis: dict[str, dict[str, Any]]) -> None:
    found = pyxis["preinstalled"]
    assert found["line"].startswith("required /usr/lib/slurm/spank_pyxis.so runtime_path=")
    assert [file["dest"] for file in found["laid"]] == [
        "/usr/local/share/baremetal-dgx/container-preinstalled.sqsh"
    ]


def test_pyxis_refuses(pyxis: dict[str, dict[str, Any]]) -> None:
    assert len(pyxis["refused"]["refusals"]) == 3
    assert "does not know runtime_pat, and no job would" in pyxis["refused"]["refusals"][0]
    assert len(pyxis["refused-url"]["refusals"]) == 1


def test_half_unpacked_sources_are_unpacked_once_more(tmp_path: Path) -> None:
    """What a run leaves that was killed while tar wrote: the Makefile, and not all of the rest."""
    source = tmp_path / "pyxis-1"
    source.mkdir()
    for name in ("Makefile", "main.c", "pyxis_slurmd.c"):
        (source / name).write_text(f"{name}\n")
    tarball = tmp_path / "pyxis.tar.gz"
    subprocess.run(["tar", "-C", str(tmp_path), "-czf", str(tarball), "pyxis-1"], check=True)
    home, digest = tmp_path / "home", hashlib.sha256(tarball.read_bytes()).hexdigest()
    sources = home / f"sources-{digest[:12]}"
    sources.mkdir(parents=True)
    (sources / "Makefile").write_text("Makefile\n")
    (sources / "main.c").write_text("ma")
    tasks = yaml.safe_load((ROLES / "pyxis/tasks/build.yml").read_text())
    tasks = [task for task in tasks if "pyxis_source == 'url'" in str(task.get("when"))]
    assert len(tasks) == 2
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ROLES / "pyxis/defaults/main.yml"), str(ROLES / "pyxis/vars/main.yml")],
        "tasks": tasks,
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    given = {
        "pyxis_source": "url",
        "pyxis_url": f"file://{tarball}",
        "pyxis_sha256": digest,
        "__pyxis_home": str(home),
        "ansible_python_interpreter": sys.executable,
    }
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        "-i", "localhost,", "-e", json.dumps(given), str(tmp_path / "play.yml"),
    ]  # fmt: skip
    environment = {**os.environ, "ANSIBLE_HOME": str(tmp_path / "home"), "ANSIBLE_NOCOLOR": "1"}
    first = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert first.returncode == 0, first.stdout + first.stderr
    assert {one.name: one.read_text() for one in sources.iterdir()} == {
        name: f"{name}\n" for name in ("Makefile", "main.c", "pyxis_slurmd.c")
    }
    again = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert "changed=0" in again.stdout, again.stdout


def test_users_can_read_what_is_in_the_image_of_a_hardened_builder(tmp_path: Path) -> None:
    """Under umask 077, with a mksquashfs that only notes what it would pack."""
    tool, noted = tmp_path / "mksquashfs", tmp_path / "noted"
    tool.write_text(f'#!/bin/sh\nfind "$1" -printf \'%m %P\\n\' > {noted}; : > "$2"\n')
    tool.chmod(0o755)
    target = tmp_path / "images" / "x.sqsh"
    script = f'umask 077; exec sh {ROLES / "pyxis/files/image.sh"} "$@"'
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", script, "sh", str(target), MARK], env=env, check=True)
    lines_of = [line.split(" ", 1) for line in noted.read_text().splitlines()]
    assert {"bin/sh", "etc/passwd", "tmp"} <= {name for _mode, name in lines_of}
    assert not [name for mode, name in lines_of if not int(mode, 8) & 0o004]
    assert [path.stat().st_mode & 0o777 for path in (target.parent, target)] == [0o755, 0o644]


# A home that is mounted noexec runs no script: a shell has to be named.
def test_scripts_are_run_by_a_shell_that_is_named() -> None:
    scripts = [
        (path, task)
        for path in ROLES.glob("*/tasks/*.yml")
        for task in read_yaml(path) or []
        if "ansible.builtin.script" in task
    ]
    assert scripts
    assert not [
        path for path, task in scripts if "executable" not in task["ansible.builtin.script"]
    ]


@pytest.mark.skipif(not shutil.which("mksquashfs"), reason="there is no mksquashfs")
def test_image(tmp_path: Path) -> None:
    script = ROLES / "pyxis/files/image.sh"
    subprocess.run(["sh", str(script), str(tmp_path / "x.sqsh"), MARK], check=True)
    subprocess.run(
        ["unsquashfs", "-d", str(tmp_path / "tree"), str(tmp_path / "x.sqsh")],
        check=True,
        capture_output=True,
    )
    assert (tmp_path / "tree/etc/baremetal-dgx-image").read_text() == f"{MARK}\n"
    assert not list((tmp_path / "tree/dev").iterdir())
    assert (tmp_path / "tree/bin/sh").stat().st_mode & 0o111
