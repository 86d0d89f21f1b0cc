# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""No playbook ends green where it has no host to work on; each is really run."""

from __future__ import annotations

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

sys.path.insert(0, str(Path(__file__).parent))

from test_upgrade_nodes import NODES, ROOT, Site

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import PASS, Record
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.batch import Problems, current
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.store import Store

# check_inventory reads the inventory, and is done when that is read.
PLAYBOOKS = sorted({path.stem for path in ROOT.glob("playbooks/*.yml")} - {"check_inventory"})
# They look at a fabric, and this inventory plans none.
FABRIC = {"validate_fabric", "learn_fabric", "inspect_fabric"}

BACKUP = {"back_up", "configure_backup", "prove_backup", "restore_cluster", "restore_metrics"}
# What each does nothing without, when it is run by itself.
DECLARED = {
    "mount_storage": "write cephfs_mounts or local_storage_volumes",
    "configure_containers": "write enroot_source and pyxis_source",
    "configure_exporters": "write node_exporter_enabled: true",
    "configure_monitoring": "write prometheus_enabled: true for monitoring_nodes",
    "configure_health": "write node_health_enabled: true",
    "configure_fabric": "write cluster_fabric.topology: basepod, superpod or leaf_spine",
    "install_gpu_stack": "write nvidia_driver_source: preinstalled",
    **dict.fromkeys(sorted(BACKUP), "write backup_repository"),
}
# They work on whole groups, and read no target.
WHOLE = {"mirror", "remove_nodes", "report", "update_hosts"} | BACKUP


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    with made.inventory() as described:
        groups = described["all"]["children"]["cluster"]["children"]
        groups["monitoring_nodes"] = {"hosts": {"head-01": {}}}
        described["others"] = {"hosts": {"backup-01": {}}}
    return made


LOCK = "Lock Slurm against other runs"
CHECK = {"import_playbook": str(ROOT / "playbooks/check_inventory.yml")}


def written(site: Site, plays: list[dict[str, Any]]) -> str:
    """Write a playbook; return it as Site.run takes it."""
    path = site.folder / "plays.yml"
    path.write_text(yaml.safe_dump(plays))
    return os.path.relpath(path.with_suffix(""), ROOT / "playbooks")


def play_of(playbook: str, name: str) -> dict[str, Any]:
    """Return a play of the collection."""
    plays = yaml.safe_load((ROOT / f"playbooks/{playbook}.yml").read_text())
    (found,) = [play for play in plays if play["name"] == name]
    return dict(found)


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_limit_that_leaves_no_host_is_red(playbook: str, site: Site) -> None:
    rc, output = site.run("--limit", "backup-01", playbook=playbook)
    assert rc != 0, output
    why = "there is no fabric to look at" if playbook in FABRIC else "--limit backup-01: leaves"
    assert why in output
    assert "Traceback" not in output


@pytest.mark.parametrize("playbook", ["power", "repair_nodes", "update_firmware", "upgrade_nodes"])
def test_a_limit_that_leaves_no_node_is_red(playbook: str, site: Site) -> None:
    """The controller alone does nothing there."""
    rc, output = site.run("--limit", "head-01", playbook=playbook)
    assert rc != 0, output
    assert "--limit head-01: leaves out dgx-[01-04]" in output


@pytest.mark.parametrize("playbook", [name for name in PLAYBOOKS if name not in WHOLE])
def test_a_host_that_is_not_there_is_red(playbook: str, site: Site) -> None:
    names = dict.fromkeys(("target", "gate_host", "fabric_host", "repair_target"), "dgx-99")
    rc, output = site.run(playbook=playbook, **names)
    assert rc != 0, output
    fabric = "there is no fabric to look at"
    assert (fabric if playbook in FABRIC else "no host of the inventory is called dgx-99") in output
    assert "Traceback" not in output


@pytest.mark.parametrize("playbook", sorted(DECLARED))
def test_nothing_that_is_declared_is_red(playbook: str, site: Site) -> None:
    none = {"dcgm_source": "none", "nvidia_container_toolkit_source": "none"}
    rc, output = site.run(playbook=playbook, nvidia_driver_source="none", **none)
    assert rc != 0, output
    assert "inventory: nothing is declared for" in " ".join(output.split())
    assert DECLARED[playbook] in " ".join(output.split())
    assert "Traceback" not in output


def test_no_time_series_that_are_copied_is_red(site: Site) -> None:
    """The host makes copies, as the controller that it is, and none of a Prometheus."""
    rc, output = site.run(playbook="restore_metrics", backup_repository="/mnt/nas/copies")
    assert rc != 0, output
    why = "backup_prometheus: false, and no time series are copied; write true in"
    assert why in " ".join(output.split())
    assert "Traceback" not in output


def test_no_bmc_that_is_declared_is_red(site: Site) -> None:
    rc, output = site.run(playbook="validate_bmc")
    assert rc != 0, output
    assert "no node has a BMC; write node_bmc" in " ".join(output.split())
    assert "Traceback" not in output


def test_a_part_by_name_that_the_level_does_not_ask_is_red(site: Site) -> None:
    asked = {"level": "quick", "parts": {"nccl": True, "gpu_health": True}}
    rc, output = site.run(playbook="validate_nodes", **asked)
    assert rc != 0, output
    why = "parts: level quick does not ask nccl; write -e level=standard, or leave it out of parts"
    assert why in " ".join(output.split())
    assert "Traceback" not in output


def test_two_that_change_slurm_at_once_are_refused(site: Site, tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    held = {"owner": "ctl-2-aaaa", "since": "2026-11-22T10:00:00Z"}
    (tmp_path / "locks/slurm.json").write_text(json.dumps(held))
    options = ("--check", "--limit", "slurm_controllers")
    folder = str(tmp_path / "locks")
    rc, output = site.run(*options, playbook="configure_scheduler", slurm_lock_folder=folder)
    assert rc != 0, output
    why = "slurm: ctl-2-aaaa does it since 2026-11-22T10:00:00Z: wait for it;"
    assert why in " ".join(output.split())
    # No role has begun.
    assert "Check the inputs" not in output


@pytest.mark.parametrize(
    "playbook", ["configure_scheduler", "configure_containers", "remove_nodes"]
)
def test_slurm_is_changed_between_lock_and_release(playbook: str) -> None:
    plays = yaml.safe_load((ROOT / f"playbooks/{playbook}.yml").read_text())
    changing = [number for number, play in enumerate(plays) if play.get("roles")]
    locks = [
        (number, Path(imported).name)
        for number, play in enumerate(plays)
        for task in play.get("tasks", [])
        if "lock.yml" in (imported := task.get("ansible.builtin.import_tasks", ""))
    ]
    (first, taken), (last, given) = locks
    assert (taken, given) == ("slurm_lock.yml", "slurm_unlock.yml")
    for name, state in ((taken, "held"), (given, "released")):
        tasks = yaml.safe_load((ROOT / "playbooks/tasks" / name).read_text())
        (lock,) = [one for task in tasks if (one := task.get("baremetal.dgx.run_lock"))]
        assert lock["state"] == state
    assert first < min(changing) <= max(changing) < last
    assert plays[first]["any_errors_fatal"]


@pytest.mark.parametrize(
    ("name", "left"),
    [("Share the key and the release of Slurm", "mon-01"), ("Configure the compute", "login-01")],
)
def test_a_target_that_is_no_node_is_left_to_its_other_plays(
    name: str, left: str, site: Site
) -> None:
    """What a run that did not reach a host advises is `-e target=HOST`, whatever the host is."""
    with site.inventory() as described:
        groups = described["all"]["children"]["cluster"]["children"]
        for group, host, address in (
            ("login_nodes", "login-01", "10.1.0.21"), ("monitoring_nodes", "mon-01", "10.1.0.31")
        ):  # fmt: skip
            groups[group] = {"hosts": {host: {"node_address": {"management": address}}}}
    plays = yaml.safe_load((ROOT / "playbooks/configure_scheduler.yml").read_text())
    (play,) = [play for play in plays if play["name"].startswith(name)]
    # The role itself would install Slurm here.
    (role,) = (one["role"] for one in play["roles"])
    play |= {
        "roles": [],
        "tasks": [{"ansible.builtin.debug": {"msg": "got it: {{ inventory_hostname }}"}}],
        "vars_files": [str(ROOT / "playbooks/vars/cluster.yml"), play["vars_files"][1]],
    }
    check = {"import_playbook": str(ROOT / "playbooks/check_inventory.yml")}
    there = written(site, [check, play])
    rc, output = site.run(playbook=there, target=f"dgx-01:{left}")
    assert rc == 0, output
    assert "got it: dgx-01" in output, role
    assert f"got it: {left}" not in output, role


def lose(site: Site, controller: str) -> None:
    """Have a controller that no connection reaches."""
    with site.inventory() as described:
        controllers = described["all"]["children"]["cluster"]["children"]["slurm_controllers"]
        lost = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
        controllers["hosts"][controller] = lost


@pytest.mark.parametrize("playbook", ["configure_scheduler", "apply_nodes"])
def test_no_node_changes_if_the_host_of_the_lock_is_lost(playbook: str, site: Site) -> None:
    """Not reached from the start, and lost before, in a play of the same run."""
    lose(site, "head-01")
    rc, output = site.run(playbook=playbook, apply_roles=["slurm_base"])
    assert rc != 0, output
    # No role has begun.
    assert "Check the inputs" not in output
    wrapped = [
        {"hosts": "cluster", "gather_facts": False, "tasks": [{"ansible.builtin.ping": None}]},
        {"import_playbook": str(ROOT / f"playbooks/{playbook}.yml")},
    ]
    rc, output = site.run(playbook=written(site, wrapped), apply_roles=["slurm_base"])
    assert rc != 0, output
    assert "head-01: is not reached or has failed, and keeps the lock" in output
    assert "Check the inputs" not in output


def locked_by(playbook: str, site: Site) -> str:
    """Write a playbook with roles that note their host, and fail there if a file is there."""
    folder = site.folder / "tasks"
    shutil.copytree(ROOT / "playbooks/tasks", folder)
    (site.folder / "vars").symlink_to(ROOT / "playbooks/vars")
    (site.folder / "locks").mkdir()
    sinfo = site.folder / "bin/sinfo"
    sinfo.write_text("#!/bin/sh\necho dgx-01\n")
    sinfo.chmod(0o755)
    notes = str(site.folder)
    applied = {
        "ansible.builtin.shell": {
            "cmd": f"test -e {notes}/locks/slurm.json || exit 3;"
            f" echo {{{{ role }}}} {{{{ inventory_hostname }}}} >> {notes}/applied;"
            f" ! test -e {notes}/fails-{{{{ role }}}}"
        },
        "changed_when": True,
    }
    (folder / "apply_roles.yml").write_text(
        yaml.safe_dump([{"name": "applied", **applied, "vars": {"role": "applied"}}])
    )
    plays = []
    for play in yaml.safe_load((ROOT / f"playbooks/{playbook}.yml").read_text()):
        imported = play.get("ansible.builtin.import_playbook")
        if imported == "check_inventory.yml":
            play["ansible.builtin.import_playbook"] = str(ROOT / "playbooks" / imported)
        elif imported:
            continue
        for role in play.pop("roles", []):
            name = role["role"].rpartition(".")[2]
            task = {"name": name, **applied, "vars": {"role": name}}
            play.setdefault("tasks", []).append(task)
        for task in play.get("tasks", []):
            if task.get("ansible.builtin.import_role", {}).get("tasks_from") == "files":
                del task["ansible.builtin.import_role"]
                task |= {**applied, "vars": {"role": "files"}}
        plays.append(play)
        if play["name"] == "Stop slurmd on nodes declared absent":
            show = {"ansible.builtin.debug": {"msg": "what follows"}}
            plays.append({"hosts": "head-01", "gather_facts": False, "tasks": [show]})
            break
    return written(site, plays)


@pytest.mark.parametrize(
    ("playbook", "fails", "options"),
    [
        ("configure_scheduler", "slurm_base", ()),
        ("configure_scheduler", "slurm_controller", ()),
        ("configure_scheduler", "slurm_compute", ()),
        ("configure_scheduler", "slurm_compute", ("--limit", "head-01,dgx-01")),
        ("configure_scheduler", "", ()),
        ("configure_containers", "enroot", ()),
        ("configure_containers", "enroot", ("--limit", "head-01,dgx-01")),
        ("remove_nodes", "slurm_controller", ()),
        ("apply_nodes", "applied", ()),
        ("apply_nodes", "", ("--limit", "head-01,dgx-01")),
    ],
)
def test_slurm_is_unlocked_though_all_hosts_of_a_play_fail(
    playbook: str, fails: str, options: tuple[str, ...], site: Site
) -> None:
    """Ansible ends a run there, and another control machine would be refused until a reboot."""
    with site.inventory() as described:
        groups = described["all"]["children"]["cluster"]["children"]
        groups["slurm_controllers"]["vars"]["slurm_lock_folder"] = str(site.folder / "locks")
        # It runs jobs, too, and is outside the target.
        groups["cpu_nodes"] = {"hosts": {"head-01": {}}, "vars": {"node_profile": "server"}}
        processor = {"sockets": 2, "cores_per_socket": 64, "threads_per_core": 2, "numa_nodes": 2}
        server = {"cpu": processor, "real_memory_mb": 1000000}
        described["all"]["children"]["cluster"]["vars"]["cluster_profiles"] = {"server": server}
    there = locked_by(playbook, site)
    (site.folder / f"fails-{fails}").touch()
    given: dict[str, object] = {"target": "dgx-01", "apply_roles": ["slurm_base"]}
    if playbook == "configure_containers":
        given |= dict.fromkeys(("enroot_source", "pyxis_source"), "preinstalled")
    rc, output = site.run(*options, playbook=there, **given)
    assert (rc == 0) is (not fails), output
    assert "another run" not in output
    applied = (site.folder / "applied").read_text().splitlines()
    assert {line.split()[1] for line in applied} <= {"head-01", "dgx-01"}
    last = fails or {"configure_scheduler": "slurm_compute", "apply_nodes": "applied"}[playbook]
    assert last in [line.split()[0] for line in applied], output
    assert "slurm_compute head-01" not in applied
    assert "applied head-01" not in applied
    assert "enroot head-01" not in applied
    assert not (site.folder / "locks/slurm.json").exists()
    assert "what follows" not in output


@pytest.mark.parametrize("playbook", ["configure_scheduler", "remove_nodes"])
def test_a_lock_that_a_limited_run_leaves_is_taken_over(playbook: str, site: Site) -> None:
    """--limit leaves localhost out, and no host is left to release it where all of a play fail."""
    with site.inventory() as described:
        controllers = described["all"]["children"]["cluster"]["children"]["slurm_controllers"]
        controllers["vars"]["slurm_lock_folder"] = str(site.folder / "locks")
    there = locked_by(playbook, site)
    fails = site.folder / "fails-slurm_controller"
    fails.touch()
    options = ("--limit", "head-01,dgx-01")
    rc, output = site.run(*options, playbook=there, target="dgx-01")
    assert rc != 0, output
    assert (site.folder / "locks/slurm.json").exists()
    fails.unlink()
    rc, output = site.run(*options, playbook=there, target="dgx-01")
    assert rc == 0, output
    assert not (site.folder / "locks/slurm.json").exists()


def kept_by(playbook: str, site: Site) -> tuple[str, Path]:
    """Return the playbook, without its roles, and the folder of the controller's files."""
    with site.inventory() as described:
        groups = described["all"]["children"]["cluster"]["children"]
        groups["slurm_controllers"]["vars"]["slurm_lock_folder"] = str(site.folder / "locks")
    there, etc = locked_by(playbook, site), site.folder / "etc"
    looks = site.folder / "tasks/slurm_kept.yml"
    looks.write_text(looks.read_text().replace("/etc/", f"{etc}/"))
    (etc / "munge").mkdir(parents=True)
    (etc / "slurm").mkdir()
    return there, etc


def test_no_run_replaces_the_key_of_a_part_of_the_cluster(site: Site) -> None:
    """The nodes that keep the former one would be down, and their jobs end."""
    there, etc = kept_by("configure_scheduler", site)
    former, new, part = "a" * 40, {"slurm_base_key": "b" * 40}, {"target": "dgx-01"}
    (etc / "munge/munge.key").write_text(former)
    limited = ("--limit", "head-01,dgx-01")

    def refused(*options: str, **given: object) -> bool:
        (site.folder / "applied").unlink(missing_ok=True)
        rc, output = site.run(*options, playbook=there, **given)
        assert former not in output
        is_refused = "slurm_base_key: not the one that head-01 has" in " ".join(output.split())
        assert is_refused is (rc != 0), output
        assert is_refused is not (site.folder / "applied").exists()
        assert not (site.folder / "locks/slurm.json").exists()
        return is_refused

    # What munge's package made.
    assert not refused(**new, **part)
    (etc / "slurm/slurm.conf").touch()
    assert refused(**new, **part)
    # All nodes, from a control machine that has lost its folder: restore_cluster would take another
    # key for the former one.
    assert refused()
    assert not (site.state / "secrets").exists()
    assert refused(**new, **part, slurm_key_changes=True)
    assert refused(*limited, **new, slurm_key_changes=True)
    assert not refused(**new, slurm_key_changes=True)
    (site.state / "secrets").mkdir()
    (site.state / "secrets/slurm_base_key").write_text(f"{former}\n")
    assert not refused(**part)
    # In check mode nothing is changed, and the next lock of site finds the former key.
    locks = [play_of(name, LOCK) for name in ("configure_scheduler", "configure_containers")]
    checked = written(site, [CHECK, *locks])
    assert site.run("--check", playbook=checked, **new, slurm_key_changes=True)[0] == 0
    assert site.run("--check", playbook=checked, **new)[0] != 0
    assert site.run(playbook=written(site, [CHECK, locks[1]]), **new, slurm_key_changes=True)[0]


def test_no_run_forgets_the_plug_in_that_the_controller_has(site: Site) -> None:
    """Of a control machine without its note plugstack.conf would lose the line."""
    there, etc = kept_by("configure_scheduler", site)
    (etc / "slurm/slurm.conf").touch()
    stack, line = etc / "slurm/plugstack.conf", "required /x/spank_pyxis-1.so"
    others = "  # required /x/spank_pyxis.so\ninclude /x/pyxis.conf\n"
    stack.write_text(f"{others}\t{line}\n".replace("d /", "d\t/"))
    declared = {"pyxis_source": "preinstalled", "enroot_source": "preinstalled"}

    def refused(playbook: str = there, target: object = "dgx-01", **given: object) -> bool:
        part = {"target": target} if target else {}
        rc, output = site.run(playbook=playbook, **part, **given)
        why = f"head-01 would lose its line `{line}` of plugstack.conf"
        is_refused = why in " ".join(output.split())
        assert is_refused is (rc != 0), output
        return is_refused

    assert refused(**declared)
    assert not refused()
    assert not refused(**declared, pyxis_state="absent")
    (site.state / "pyxis").mkdir()
    (site.state / "pyxis/in-use.json").write_text('{"release": "23.11"}')
    assert not refused(**declared)
    (site.state / "pyxis/in-use.json").unlink()
    # A key that changes, too: neither playbook may wait for the other.
    (etc / "munge/munge.key").write_text("a" * 40)
    declared["slurm_base_key"] = "b" * 40
    assert not refused(**declared, target=None, slurm_key_changes=True)
    declared["slurm_base_key"] = "a" * 40
    # A trial that was killed, which is made again, and no other line.
    tried = site.state / "pyxis/tried.json"
    tried.write_text(json.dumps({"line": "required /x/spank_pyxis-2.so"}))
    stack.write_text(f"{line}\n")
    assert refused(**declared)
    tried.write_text(json.dumps({"line": line}))
    assert not refused(**declared)
    tried.unlink()
    stack.write_text(others)
    assert not refused(**declared)
    stack.write_text(line)
    # The one is the way back, the other leaves the controller's file alone.
    for name in ("configure_containers", "apply_nodes"):
        assert not refused(written(site, [CHECK, play_of(name, LOCK)]), **declared)


@pytest.mark.parametrize(
    ("playbook", "role", "hosts"),
    [
        ("configure_scheduler", "slurm_base", {"dgx-01", "head-01"}),
        ("configure_scheduler", "slurm_compute", {"dgx-01"}),
        ("configure_containers", "enroot", {"dgx-01"}),
        ("remove_nodes", "slurm_controller", {"head-01"}),
        # The task that names its hosts is passed, too.
        ("apply_nodes", "applied", set()),
    ],
)
def test_a_resumed_run_gives_no_host_the_roles_of_others(
    playbook: str, role: str, hosts: set[str], site: Site
) -> None:
    """--start-at-task passes the tasks that leave out the hosts that last."""
    there = locked_by(playbook, site)
    (site.folder / "locks/slurm.json").touch()
    (site.folder / "applied").touch()
    given: dict[str, object] = {"target": "dgx-01"}
    if playbook == "configure_containers":
        given |= dict.fromkeys(("enroot_source", "pyxis_source"), "preinstalled")
    _rc, output = site.run("--start-at-task", role, playbook=there, **given)
    applied = [line.split() for line in (site.folder / "applied").read_text().splitlines()]
    assert {host for name, host in applied if name == role} == hosts, output


@pytest.mark.parametrize(
    ("target", "nodes"),
    [
        ("dgx-01", NODES[:1]),
        ("dgx-01,dgx-02", NODES[:2]),
        ("dgx-01:dgx-02", NODES[:2]),
        ("dgx-*", NODES),
        ("gpu_nodes[0:1],dgx-04", [*NODES[:2], NODES[3]]),
        ("gpu_nodes", NODES),
        ("gpu_nodes:!dgx-01", NODES[1:]),
        ("gpu_nodes,!dgx-01", NODES[1:]),
        ("all:&gpu_nodes", NODES),
    ],
)
def test_a_target_may_be_any_pattern(target: str, nodes: list[str], site: Site) -> None:
    """Ansible splits a pattern with commas at commas alone: nodes would be lost among groups."""
    plays = {
        "configure_scheduler": ["Share the key", "Configure the compute"],
        "configure_containers": ["Configure enroot", "Install the container", "Remove enroot"],
        "configure_logins": ["Configure login"],
    }
    imports = [{"import_playbook": str(ROOT / f"playbooks/{name}.yml")} for name in plays]
    rc, output = site.run("--list-hosts", playbook=written(site, imports), target=target)
    assert rc == 0, output
    for name in (one for some in plays.values() for one in some):
        (listed,) = [play for play in output.split("play #") if f": {name}" in play]
        found = listed.rpartition(" hosts (")[2].split()
        assert set(NODES).intersection(found) == set(nodes), listed


@pytest.mark.parametrize("refused", [False, True])
def test_a_lock_that_was_released_is_not_held_by_a_later_playbook(
    refused: bool, site: Site
) -> None:
    """site changes Slurm twice; in between the host of the lock may be lost."""
    locks = site.folder / "locks"
    locks.mkdir()
    tasks, there = ROOT / "playbooks/tasks", {"when": "inventory_hostname == 'head-01'"}
    lock = {"ansible.builtin.import_tasks": str(tasks / "slurm_lock.yml"), **there}
    plays = [
        {"hosts": hosts, "gather_facts": False, "tasks": [task],
         "vars_files": [str(ROOT / "playbooks/vars/cluster.yml")]}
        for hosts, task in (
            ("all:localhost", lock),
            ("all:localhost", {"ansible.builtin.fail": {}, **there}),
            ("localhost", {"ansible.builtin.import_tasks": str(tasks / "slurm_unlock.yml")}),
            ("localhost", {"ansible.builtin.import_tasks": str(tasks / "slurm_locked.yml")}),
        )
    ]  # fmt: skip
    if refused:
        held = {"owner": "ctl-2-aaaa", "since": "2026-11-22T10:00:00Z"}
        (locks / "slurm.json").write_text(json.dumps(held))
    # Of a lock that was refused, without the release, too.
    for some in (plays, [*plays[:2], plays[3]])[: 1 + refused]:
        rc, output = site.run(playbook=written(site, some), slurm_lock_folder=str(locks))
        assert rc != 0, output
        why = "head-01: is not reached or has failed, and keeps the lock"
        assert why in " ".join(output.split())
        # That of another run stays.
        assert (locks / "slurm.json").exists() is refused


@pytest.mark.parametrize(
    ("given", "options", "holders"),
    [
        ({}, (), ["dgx-02", "dgx-03"]),
        ({}, ("--limit", "head-01,dgx-01,dgx-03"), ["dgx-03"]),
        ({"slurm_controller_configless": True}, (), []),
        ({"target": "gpu_nodes"}, (), []),
    ],
)
def test_no_node_keeps_another_slurm_conf_than_slurmctld(
    given: dict[str, object], options: tuple[str, ...], holders: list[str], site: Site
) -> None:
    """With `target`, too; a host that --limit leaves out is left alone on purpose."""
    with site.inventory() as described:
        groups = described["all"]["children"]["cluster"]["children"]
        groups["slurm_controllers"]["vars"]["slurm_lock_folder"] = str(site.folder / "locks")
        groups["gpu_nodes"]["hosts"]["dgx-04"] = {"node_state": "absent"}
    there = locked_by("configure_scheduler", site)
    given = {"target": "dgx-01", "slurm_controller_configless": False, **given}
    rc, output = site.run(*options, playbook=there, **given)
    assert rc == 0, output
    applied = (site.folder / "applied").read_text().splitlines()
    assert sorted(line for line in applied if line.startswith("files")) == [
        f"files {name}" for name in holders
    ]
    # They keep their release and their settings.
    assert not {f"slurm_{role} {name}" for role in ("base", "compute") for name in holders} & {
        *applied
    }


@pytest.mark.parametrize("serving", [2, None])
def test_only_a_batch_of_an_upgrade_leaves_a_node_that_is_down(
    serving: int | None, site: Site
) -> None:
    """upgrade_nodes gives its steps what it was given; by hand such a node is red."""
    with site.inventory() as described:
        groups = described["all"]["children"]["cluster"]["children"]
        groups["slurm_controllers"]["vars"]["slurm_lock_folder"] = str(site.folder / "locks")
        gone = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
        groups["gpu_nodes"]["hosts"]["dgx-04"] = gone
    there = locked_by("configure_scheduler", site)
    given = {"target": "dgx-01", "slurm_controller_configless": False}
    rc, output = site.run(playbook=there, upgrade_in_service=serving, **given)
    assert (rc == 0) is (serving is not None), output
    assert "dgx-04]: UNREACHABLE!" in output
    applied = (site.folder / "applied").read_text().splitlines()
    assert {"files dgx-02", "files dgx-03"} <= {*applied}
    assert not (site.folder / "locks/slurm.json").exists()


@pytest.mark.parametrize("configless", [True, False])
def test_removed_nodes_leave_the_files_of_all_that_hold_them(configless: bool, site: Site) -> None:
    with site.inventory() as described:
        groups = described["all"]["children"]["cluster"]["children"]
        groups["slurm_controllers"]["vars"]["slurm_lock_folder"] = str(site.folder / "locks")
        address = {"node_address": {"management": "10.1.0.21"}}
        groups["login_nodes"] = {"hosts": {"login-01": address}}
        gone = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
        groups["gpu_nodes"]["hosts"]["dgx-04"] = {**gone, "node_state": "absent"}
    there = locked_by("remove_nodes", site)
    rc, output = site.run(playbook=there, slurm_controller_configless=configless)
    assert rc == 0, output
    applied = sorted((site.folder / "applied").read_text().splitlines())
    holders = ["slurm_compute dgx-01", "slurm_compute dgx-02", "slurm_compute dgx-03"]
    holders = [] if configless else [*holders, "slurm_login login-01"]
    assert applied == sorted(["slurm_controller head-01", *holders])


@pytest.mark.parametrize(
    ("playbook", "written", "read"),
    [
        ("add_nodes", "update_hosts.yml", "configure_scheduler.yml"),
        ("remove_nodes", "update_hosts.yml", "slurm_controller"),
    ],
)
def test_slurmctld_reads_the_hosts_file_of_the_next_run(
    playbook: str, written: str, read: str
) -> None:
    plays = yaml.safe_load((ROOT / f"playbooks/{playbook}.yml").read_text())
    parts = [
        str([play.get("ansible.builtin.import_playbook"), play.get("roles")]) for play in plays
    ]
    (first,) = [number for number, part in enumerate(parts) if written in part]
    assert first < min(number for number, part in enumerate(parts) if f"{read}'" in part)


def test_a_subnet_manager_that_is_removed_may_be_gone(site: Site) -> None:
    site.plan_fabric()
    with site.inventory() as described:
        groups = described["all"]["children"]["cluster"]["children"]
        gone = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
        address = {"node_address": {"management": "10.1.0.21"}}
        groups["subnet_managers"]["hosts"]["sm-02"] = {**gone, **address, "node_state": "absent"}
    play = play_of("remove_nodes", "Stop opensm on hosts declared absent")
    play["vars_files"][0] = str(ROOT / "playbooks/vars/cluster.yml")
    check = {"import_playbook": str(ROOT / "playbooks/check_inventory.yml")}
    rc, output = site.run(playbook=written(site, [check, play]))
    assert "sm-02]: UNREACHABLE!" in output
    assert rc == 0, output
    assert "Disable opensm" in output


def test_a_node_that_is_removed_may_be_gone(site: Site) -> None:
    """Its slurmd is gone with it, and the run is not red for that."""
    with site.inventory() as described:
        groups = described["all"]["children"]["cluster"]["children"]
        groups["slurm_controllers"]["vars"]["slurm_lock_folder"] = str(site.folder / "locks")
        gone = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
        groups["gpu_nodes"]["hosts"]["dgx-04"] = {**gone, "node_state": "absent"}
    rc, output = site.run(playbook=locked_by("remove_nodes", site))
    assert rc == 0, output
    assert "what follows" in output


FOLDERS = ("nodes", "failures", "identities", "evidence/parts")


@pytest.mark.parametrize(
    ("playbook", "name"),
    [
        ("remove_nodes", "Drain the nodes and wait for their jobs"),
        ("configure_scheduler", "Configure the scheduler"),
    ],
)
def test_a_node_that_comes_back_is_new(playbook: str, name: str, site: Site) -> None:
    """What was measured before it left would let it in, or keep it out.

    It leaves with its line, declared absent, or for the login nodes.
    """
    with site.inventory() as described:
        groups = described["all"]["children"]["cluster"]["children"]
        hosts = groups["gpu_nodes"]["hosts"]
        hosts["dgx-04"] = {"node_state": "absent"}
        del hosts["dgx-02"], hosts["dgx-03"]
        moved = {"node_address": {"management": "10.1.0.103"}}
        groups["login_nodes"] = {"hosts": {"dgx-03": moved}}
    play = play_of(playbook, name)
    play["vars_files"][0] = str(ROOT / "playbooks/vars/cluster.yml")
    play.pop("roles", None)
    for task in [*play.get("tasks", []), *play.get("post_tasks", [])]:
        if "ansible.builtin.import_tasks" in task:
            task["ansible.builtin.import_tasks"] = str(
                ROOT / "playbooks" / task["ansible.builtin.import_tasks"]
            )
    check = {"import_playbook": str(ROOT / "playbooks/check_inventory.yml")}
    there = written(site, [check, play])
    sinfo = site.folder / "bin/sinfo"
    sinfo.write_text(f"#!/bin/sh\nprintf '%s\\n' {' '.join(NODES)}\n")
    sinfo.chmod(0o755)
    for folder in FOLDERS:
        (site.state / folder).mkdir(parents=True, exist_ok=True)
    known = {f"{folder}/{node}.json" for folder in FOLDERS for node in NODES}
    known.remove("failures/dgx-02.json")
    for file in known:
        (site.state / file).write_text("{}")
    store = Store(str(site.state / "evidence"))
    at = "2026-11-21T08:00:00Z"
    for node in NODES:
        passed = Record("gpu.ecc", f"node:{node}", PASS, at=at).as_data()
        store.add(store.begin("validate_nodes", at), node, "validate_nodes", [passed], at)

    def kept() -> set[str]:
        found = [path for folder in FOLDERS for path in site.state.glob(f"{folder}/*")]
        return {str(path.relative_to(site.state)) for path in found}

    def passing() -> set[str]:
        last = current(store.batches(Problems()))
        return {node for (node, _layer), batch in last.items() if batch.head["counts"].get(PASS)}

    rc, output = site.run("--check", playbook=there)
    assert rc == 0, output
    assert (kept(), passing()) == (known, set(NODES))
    for _again in range(2):
        rc, output = site.run(playbook=there)
        assert rc == 0, output
        assert kept() == {f"{folder}/dgx-01.json" for folder in FOLDERS}
        assert passing() == {"dgx-01"}
    assert "changed=0" in output
    drained = ["IDLE+DRAIN"] * 3 if playbook == "remove_nodes" else ["IDLE"] * 3
    assert [site.slurm[node][0] for node in NODES] == ["IDLE", *drained]


@pytest.mark.parametrize(
    ("lost", "after"), [("db-01", "Configure the scheduler"), ("head-01", "Configure the compute")]
)
def test_no_slurmd_or_slurmctld_is_changed_after_a_host_that_was_lost_before_it(
    lost: str, after: str, site: Site
) -> None:
    """Lost once the lock is held: a release must not be newer than that of what it reports to."""
    with site.inventory() as described:
        groups = described["all"]["children"]["cluster"]["children"]
        groups["slurm_databases"] = {
            "hosts": {"db-01": {}}, "vars": {"node_first_address": {"management": "10.1.0.21"}}
        }  # fmt: skip
        held = "{{ 'ssh' if (notes ~ '/locks/slurm.json') is file else 'local' }}"
        gone = {"ansible_connection": held, "ansible_host": "127.0.0.1", "ansible_port": 1}
        (group,) = [one for one in groups.values() if lost in one["hosts"] and "vars" in one]
        group["hosts"][lost] = gone
    (site.folder / "locks").mkdir()
    given = {"playbook": "configure_scheduler", "slurm_lock_folder": str(site.folder / "locks")}
    # The user who runs the tests need not be let in.
    given["ansible_user"] = "root"
    tags = "slurm_database_preflight,slurm_controller_preflight,slurm_compute_preflight"
    rc, output = site.run("--tags", tags, **given)
    assert rc != 0, output
    assert f"{lost}: is not reached or has failed, and must not have an older release" in output
    assert f"PLAY [{after}" not in output
    # Left out on purpose, nothing waits for it. Without the first controller it stays locked.
    (site.folder / "locks/slurm.json").unlink(missing_ok=lost != "head-01")
    rc, output = site.run("--tags", tags, "--limit", f"all:!{lost}", **given)
    assert rc == 0, output
    assert "PLAY [Configure the compute" in output


def test_another_primary_without_the_queue_is_red(site: Site) -> None:
    """The control machine notes the primary of each run that was done: all jobs would end."""
    hosts = site.folder / "hosts.yml"
    described = yaml.safe_load(hosts.read_text())
    play = play_of("configure_scheduler", "Configure the scheduler")
    look, mount, _ask, judge = yaml.safe_load(
        (ROOT / "roles/slurm_controller/tasks/preflight.yml").read_text()
    )
    defaults = yaml.safe_load((ROOT / "roles/slurm_controller/defaults/main.yml").read_text())
    queue = site.folder / "slurmctld"
    # Beside the playbook, where the lookup finds them as it does in the role.
    (site.folder / "files").symlink_to(ROOT / "roles/slurm_controller/files")
    (site.folder / "tasks").symlink_to(ROOT / "playbooks/tasks")
    play |= {
        # The role itself would install Slurm here.
        "roles": [],
        "tasks": [look, mount, judge],
        "vars_files": [str(ROOT / "playbooks/vars/cluster.yml")],
        "vars": {
            **defaults,
            "slurm_controller_hosts": "{{ groups['slurm_controllers'] }}",
            "slurm_controller_nodes": [{"name": "dgx-01"}],
            "slurm_controller_state_save_location": str(queue),
            "slurm_base_jwt": False,
            "__slurm_controller_busy": {"stdout_lines": [], "stderr_lines": []},
        },
    }
    done = {"__scheduler_database_done": "{{ inventory_hostname }}"}
    database = {
        "hosts": "slurm_databases",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.set_fact": done, "when": "database_done | default(true)"}],
    }
    there = written(site, [database, play])

    def run(heads: list[str], *options: str, **given: object) -> tuple[int, str, str]:
        children = described["all"]["children"]["cluster"]["children"]
        children["slurm_controllers"]["hosts"] = {name: {} for name in heads}
        hosts.write_text(yaml.safe_dump(described, sort_keys=False))
        rc, output = site.run(*options, playbook=there, **given)
        note = site.state / "slurm_controller.json"
        return rc, output, json.loads(note.read_text())["primary"] if note.is_file() else ""

    rc, output, noted = run(["head-01"], "--check")
    assert (rc, noted) == (0, ""), output
    rc, output, noted = run(["head-01"])
    assert (rc, noted) == (0, "head-01"), output
    assert json.loads((site.state / "slurm_controller.json").read_text())["database"] == ""
    rc, output, noted = run(["head-02", "head-01"])
    assert rc != 0, output
    assert noted == "head-01"
    assert (
        "its slurmctld would end those of head-01; run `systemctl disable --now slurmctld` there"
        in output
    )
    # The mount of the state, too, may be missing on the host that had it.
    rc, output, _noted = run(["head-01", "head-02"])
    assert rc != 0, output
    assert "is missing or empty on head-01, whose slurmctld had its jobs there" in output
    rc, output, _noted = run(["head-02"], "--check", slurm_controller_queue_loss_allowed=True)
    assert rc == 0, output
    queue.mkdir()
    (queue / "job_state").touch()
    rc, output, noted = run(["head-01", "head-02"])
    assert (rc, noted) == (0, "head-01"), output
    described["all"]["children"]["cluster"]["children"]["slurm_databases"] = {
        "hosts": {"head-02": {}}
    }
    # One that --limit has left out has nothing of the accounting.
    for is_done, database_noted in ((False, ""), (True, "head-02"), (False, "head-02")):
        rc, output, noted = run(["head-02"], database_done=is_done)
        assert (rc, noted) == (0, "head-02"), output
        note = json.loads((site.state / "slurm_controller.json").read_text())
        assert note["database"] == database_noted


def test_monitoring_of_others_stays_on_hosts_outside_the_group(site: Site) -> None:
    """The unit of a site's Prometheus has the same name: what the folder shows is switched off."""
    play = play_of("configure_monitoring", "Configure monitoring")
    # The roles themselves would stop services here.
    play["tasks"] = [
        {"ansible.builtin.debug": {"msg": "runs {{ inventory_hostname }} " + role["role"][14:]},
         "when": role["when"]}
        for role in play.pop("roles")
    ]  # fmt: skip
    play["vars_files"] = []
    play["vars"] |= {"__cluster_roles": ["prometheus", "alertmanager", "grafana", "node_exporter"]}
    (site.folder / "etc/grafana").mkdir(parents=True)
    plays = yaml.safe_dump([play]).replace("/etc/baremetal-dgx", str(site.folder / "etc"))
    with site.inventory() as described:
        groups = described["all"]["children"]["cluster"]["children"]
        groups["monitoring_nodes"] = {"hosts": {"head-01": {}}}
        groups["login_nodes"] = {"hosts": {"head-02": {}, "head-03": {}}}
    rc, output = site.run(playbook=written(site, yaml.safe_load(plays)), target="head-02")
    assert rc == 0, output
    names = ("alertmanager", "prometheus", "grafana")
    assert set(re.findall(r"runs ([\w-]+ \w+)", output)) == {
        *(f"head-01 {name}" for name in names), "head-02 grafana"
    }  # fmt: skip


@pytest.mark.parametrize("limit", [(), ("--limit", "head-01")])
def test_a_controller_that_is_not_asked_may_schedule(limit: tuple[str, ...], site: Site) -> None:
    """A copy that is restored beside a stand-by that lives would run jobs twice."""
    lose(site, "head-02")
    program = site.folder / "bin/systemctl"
    program.write_text("#!/bin/sh\necho inactive\nexit 3\n")
    program.chmod(0o755)
    shared = {
        "slurm_controller_state_save_location": "/shared/slurmctld",
        "cluster_validation": {"canary": {"mounts": [{"name": "shared", "path": "/shared"}]}},
    }
    copies = {"backup_repository": "/mnt/nas/copies", "backup_password": "x" * 20}
    rc, output = site.run(*limit, playbook="restore_cluster", **copies, **shared)
    assert rc != 0, output
    assert "head-02: not reached, and a slurmctld that lives there has a newer queue" in output
    # Nothing was installed or stopped.
    assert "Install the program" not in output


def restored(site: Site, mounts: str, *options: str) -> tuple[int, str]:
    """Run restore_cluster until it has chosen; `mounts` is what mount_storage does on a host."""
    state = site.folder / "cephfs/slurmctld/job_state"
    (site.folder / "library").mkdir()
    looked = site.folder / "library/looked"
    looked.write_text(
        "#!/bin/sh\n"
        f"if grep -q kind=controller $1 && test -e {state}; then there=true; else there=false; fi\n"
        """printf '{"changed": false, "there": %s, "done": false, "at": "today"}' $there\n"""
    )
    looked.chmod(0o755)
    program = site.folder / "bin/systemctl"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    plays = []
    for play in yaml.safe_load((ROOT / "playbooks/restore_cluster.yml").read_text()):
        playbook = play.get("ansible.builtin.import_playbook")
        if playbook == "mount_storage.yml":
            cmd = mounts.format(state=state)
            mount = {"ansible.builtin.shell": {"cmd": cmd}, "changed_when": True}
            plays.append({"hosts": play["vars"]["target"], "gather_facts": False, "tasks": [mount]})
        elif playbook is None and "roles" not in play:
            plays.append({**play, "vars_files": [str(ROOT / "playbooks/vars/cluster.yml")]})
        if play["name"] == "Fetch the copies":
            break
    look = plays[-1]["tasks"][1]
    del look["baremetal.dgx.cluster_restore"]
    look |= {"looked": "kind={{ item }}", "loop": ["controller", "database"]}
    show = {"ansible.builtin.debug": {"msg": "due: {{ __restore_due }}"}}
    plays[-1]["tasks"] = [look, plays[-1]["tasks"][2], show]
    return site.run(*options, playbook=written(site, plays))


def test_a_queue_on_a_mount_that_outlived_the_hosts_is_kept(site: Site) -> None:
    """It is there once its file system is mounted; the older copy would have been put below it."""
    rc, output = restored(site, "mkdir -p $(dirname {state}) && touch {state}")
    assert rc == 0, output
    assert "due: ['database']" in output


def test_no_copy_is_restored_while_a_mount_fails(site: Site) -> None:
    with site.inventory() as described:
        groups = described["all"]["children"]["cluster"]["children"]
        groups["slurm_controllers"]["hosts"]["head-02"] = {}
    rc, output = restored(site, "test {{{{ inventory_hostname }}}} != head-01")
    assert rc != 0, output
    assert (
        "head-01: not reached, not prepared, or without a mount on which the state may lie"
        in output
    )
    assert "due:" not in output


@pytest.mark.parametrize(("limit", "stops"), [((), True), (("--limit", "all:!db-01"), False)])
def test_no_copy_is_fetched_without_the_host_of_the_database(
    limit: tuple[str, ...], stops: bool, site: Site
) -> None:
    """Ansible goes on without a host that it has lost: the queue alone would come back."""
    with site.inventory() as described:
        lost = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
        groups = described["all"]["children"]["cluster"]["children"]
        groups["slurm_databases"] = {"hosts": {"db-01": lost}}
    rc, output = restored(site, "true", *limit)
    assert (rc != 0) is stops, output
    assert ("db-01: not reached, not prepared, or without a mount" in output) is stops
    assert ("due:" in output) is not stops


def test_no_controller_takes_over_while_the_queue_comes_back(site: Site) -> None:
    """A stand-by waits for the mount of its state, and starts with what is there by then."""
    with site.inventory() as described:
        groups = described["all"]["children"]["cluster"]["children"]
        groups["slurm_controllers"]["hosts"]["head-02"] = {}
    stop = play_of("restore_cluster", "Stop slurmctld")
    (task,) = stop["tasks"]
    assert task.pop("baremetal.dgx.service_sync")["units"][0]["state"] == "stopped"
    task["ansible.builtin.debug"] = {"msg": "stopped: {{ inventory_hostname }}"}
    stop |= {"vars_files": [], "tasks": [task]}
    for due, stopped in (("controller", {"head-01", "head-02"}), ("database", set())):
        fact = {"ansible.builtin.set_fact": {"__restore_due": [due]}}
        chosen = {"hosts": "head-01", "gather_facts": False, "tasks": [fact]}
        rc, output = site.run(playbook=written(site, [chosen, stop]))
        assert rc == 0, output
        assert {name for name in ("head-01", "head-02") if f"stopped: {name}" in output} == stopped


COPIED = {
    "secrets/slurm_base_key": "old key",
    "secrets/backup_password": "word of the copy",
    "secrets/grafana_admin_password": "old word",
    "evidence/runs/1": "a run",
    "slurm_controller.json": "{}",
}


class Folder:
    """The control machine's folder, and its copy that the first controller has fetched."""

    def __init__(self, site: Site) -> None:
        self.site, self.copy = site, site.folder / "restored/control"
        self.torn = site.folder / "torn"
        (site.folder / "library").mkdir()
        (site.state / "secrets").mkdir(mode=0o700)
        (site.state / "secrets/backup_password").write_text("word")
        tar = site.folder / "bin/tar"
        # The key comes, and no more.
        torn = f'case "$*" in *-xzf*) test ! -e {self.torn} || only=./secrets;; esac'
        tar.write_text(f'#!/bin/sh\n{torn}\n{shutil.which("tar")} "$@" $only || exit 3\n'
                       'test -z "$only" || exit 2\n')  # fmt: skip
        tar.chmod(0o755)

    def restore(self, copied: bool = True, **given: object) -> tuple[int, str]:
        for name, text in {**COPIED, "manifest.json": "{}"}.items():
            (self.copy / name).parent.mkdir(parents=True, exist_ok=True)
            (self.copy / name).write_text(text)
        answer = {"changed": False, "at": "today", "folder": str(self.copy)}
        if not copied:
            answer = {"changed": False}
        copies = self.site.folder / "library/copies"
        none = "true" if copied else "! grep -q state=fetched $1"
        copies.write_text(
            f'#!/bin/sh\n{none} || {{ echo \'{{"failed": true, "msg": "no copy"}}\'; exit; }}\n'
            f"echo '{json.dumps(answer)}'\n"
        )
        copies.chmod(0o755)
        play = play_of("restore_cluster", "Restore the control machine's folder")
        (block,) = [task for task in play["tasks"] if "block" in task]
        replaced = 0
        for task in (*play["tasks"], *block["block"]):
            asked = task.get("baremetal.dgx.cluster_restore", {})
            if asked.get("state") in ("looked", "fetched"):
                task["copies"] = f"state={asked['state']}"
                del task["baremetal.dgx.cluster_restore"]
                replaced += 1
        assert replaced == 2
        play["vars_files"] = [str(ROOT / "playbooks/vars/cluster.yml")]
        secrets = {"slurm_base_secrets_dir": str(self.site.state / "secrets")}
        return self.site.run(playbook=written(self.site, [play]), **secrets, **given)

    @property
    def there(self) -> dict[str, str]:
        """The files of the folder that no other play has written."""
        state, made = self.site.state, ("run_owner", "nodes")
        return {
            str(path.relative_to(state)): path.read_text()
            for path in state.rglob("*")
            if path.is_file() and not str(path.relative_to(state)).startswith(made)
        }


RESTORED = {**COPIED, "secrets/backup_password": "word"}


@pytest.mark.parametrize("given", [{}, {"slurm_base_key": "k" * 40}])
def test_the_control_machines_folder_comes_back_and_leaves_no_archive(
    given: dict[str, Any], site: Site
) -> None:
    """What is there is kept; a key in a vault is one of many files."""
    folder = Folder(site)
    rc, output = folder.restore(**given)
    assert rc == 0, output
    assert folder.there == RESTORED
    assert os.listdir(folder.copy.parent) == []
    # The second run.
    (site.state / "evidence/runs/1").unlink()
    rc, output = folder.restore(**given)
    assert rc == 0, output
    assert "evidence/runs/1" not in folder.there
    assert "changed=0" in output


def test_a_restore_of_the_folder_that_was_interrupted_is_done_again(site: Site) -> None:
    folder = Folder(site)
    folder.torn.touch()
    rc, output = folder.restore()
    assert rc != 0, output
    assert os.listdir(folder.copy.parent) == []
    asked = play_of("back_up", "Copy the control machine's folder")["tasks"][0]["block"][1]
    (site.folder / "tasks").mkdir()
    play = {"hosts": "head-01", "gather_facts": False, "tasks": [asked],
            "vars": {"__cluster_state": str(site.state)}}  # fmt: skip
    rc, output = site.run(playbook=written(site, [play]))
    assert "a restore of the folder is not over" in output
    folder.torn.unlink()
    rc, output = folder.restore()
    assert rc == 0, output
    assert folder.there == RESTORED


@pytest.mark.parametrize(("given", "goes_on"), [({}, False), ({"slurm_base_key": "k" * 40}, True)])
def test_a_folder_that_was_never_copied_stops_none_but_who_needs_the_key(
    given: dict[str, str], goes_on: bool, site: Site
) -> None:
    folder = Folder(site)
    rc, output = folder.restore(copied=False, **given)
    assert (rc == 0) is goes_on, output
    assert ("is not restored, since back_up has made no copy of it" in output) is goes_on
    assert folder.there == {"secrets/backup_password": "word"}


def test_a_folder_that_is_in_use_gets_nothing_back_that_was_removed(site: Site) -> None:
    """slurm_controller.json is missing, too, where configure_scheduler has not run for long."""
    folder = Folder(site)
    (site.state / "secrets/slurm_base_key").write_text("key")
    (site.state / "evidence").mkdir()
    rc, output = folder.restore()
    assert rc == 0, output
    assert folder.there == {"secrets/backup_password": "word", "secrets/slurm_base_key": "key"}
    # Secrets, but no evidence.
    (site.state / "evidence").rmdir()
    rc, output = folder.restore()
    assert rc == 0, output
    assert folder.there == {**RESTORED, "secrets/slurm_base_key": "key"}


def test_an_interrupted_restore_that_finds_no_copy_is_red(site: Site) -> None:
    """back_up refuses the folder as long as it is so."""
    folder = Folder(site)
    (site.state / "secrets/slurm_base_key").write_text("key")
    (site.state / ".restoring").mkdir()
    rc, output = folder.restore(copied=False)
    assert rc != 0, output
    why = f"{site.state}/.restoring: a restore of the folder was interrupted, and no copy"
    assert why in " ".join(output.split())


@pytest.mark.parametrize(("consent", "rc"), [("true", 0), ("false", 2)])
def test_the_consent_to_a_lost_controller_is_a_word_of_the_command_line(
    consent: str, rc: int, site: Site
) -> None:
    plays = yaml.safe_load((ROOT / "playbooks/restore_cluster.yml").read_text())
    (asked,) = [
        task
        for play in plays
        for task in play.get("tasks", [])
        if task["name"] == "Fail if a controller was not asked"
    ]
    play = {"hosts": "head-01", "gather_facts": False, "tasks": [asked]}
    play["vars"] = {"__restore_unreached": ["head-02"]}
    path = site.folder / "asked.yml"
    path.write_text(yaml.safe_dump([play]))
    words = ["-i", str(site.folder / "hosts.yml"), "-e", f"restore_unreached={consent}"]
    done = subprocess.run(["ansible-playbook", str(path), *words], capture_output=True, check=False)
    assert done.returncode == rc, done.stdout.decode()


KILLED_STEP = "Unable to connect to slurmstepd: Connection refused"


@pytest.mark.parametrize(
    ("says", "limit", "silent"),
    [
        ("No job steps exist on this node.", (), []),
        ("No job steps exist on this node.", ("--limit", "head-01,dgx-01"), NODES[1:]),
        (f"{KILLED_STEP}\n{KILLED_STEP}", (), []),
        ("Could not establish a configuration source", (), NODES),
        (f"{KILLED_STEP}\nUnable to connect to slurmstepd: Permission denied", (), NODES),
    ],
)
def test_a_node_whose_jobs_are_not_known_may_run_some(
    says: str, limit: tuple[str, ...], silent: list[str], site: Site
) -> None:
    """Its jobs, which the queue of the copy may not know, would be ended without a word."""
    (site.folder / "bin/scontrol").write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 1\n")
    read, restore = (
        play_of("restore_cluster", name) for name in ("Read the running jobs", "Restore the queue")
    )
    (block,) = [task for task in restore["tasks"] if task["name"] == "Restore the queue"]
    ended = [one for one in block["block"] if one["name"] == "Fail if running jobs would end"]
    known = {"slurm_controller_nodes": [{"name": "dgx-[01-04]"}], "__restore_due": ["controller"]}
    first = {"hosts": "head-01", "gather_facts": False, "tasks": [
        {"ansible.builtin.set_fact": {"__restore_due": ["controller"]}}]}  # fmt: skip
    last = {**restore, "vars": {**restore["vars"], **known, "__restore_compared": {"ended": []}},
            "vars_files": [], "tasks": ended, "any_errors_fatal": False}  # fmt: skip
    there = written(site, [first, {**read, "vars_files": []}, last])
    rc, output = site.run(*limit, playbook=there)
    assert (rc == 0) is (not silent), output
    for name in NODES:
        assert (f"{name}: its running jobs are not known" in output) is (name in silent), output
    if silent:
        rc, output = site.run(*limit, playbook=there, restore_ends_jobs="true")
        assert rc == 0, output


NO_JOB = "not reached, failed or left out, and no job would start there with the new line"


def of_pyxis(site: Site) -> dict[str, Any]:
    """Return the variables of the role, for this Slurm."""
    files = [ROOT / f"roles/pyxis/{name}/main.yml" for name in ("defaults", "vars")]
    defaults, own = (yaml.safe_load(path.read_text()) for path in files)
    given = {"pyxis_nodes": NODES, "pyxis_submit_host": "head-01", "pyxis_slurm_release": "24.11"}
    return {**defaults, **own, **given, "pyxis_state_dir": str(site.folder)}


def before_the_line() -> list[dict[str, Any]]:
    """Return what the role asks before it writes a line."""
    tasks = yaml.safe_load((ROOT / "roles/pyxis/tasks/service.yml").read_text())
    (place,) = [n for n, one in enumerate(tasks) if "place.yml" in str(one)]
    asked: list[dict[str, Any]] = tasks[:place]
    for task in (*asked, tasks[place]):
        when = task["when"]
        assert (when[0] if isinstance(when, list) else when) == "__pyxis_is_new"
    return asked


@pytest.mark.parametrize(("state", "red"), [("down*", True), ("", True), ("drained*", False)])
def test_no_line_of_the_plug_in_is_written_while_a_lost_host_may_lack_it(
    state: str, red: bool, site: Site
) -> None:
    """A node that was down returns to service by itself, and no job would start there."""
    sinfo = site.folder / "bin" / "sinfo"
    sinfo.write_text(f'#!/bin/sh\necho "$*" >> {site.folder}/asked\necho "dgx-02 {state}"\n')
    sinfo.chmod(0o755)
    with site.inventory() as described:
        nodes = described["all"]["children"]["cluster"]["children"]["gpu_nodes"]["hosts"]
        lost = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
        nodes["dgx-02"] = lost
        nodes["dgx-04"] = {"node_state": "absent", "__cluster_roles": []}
    installs = play_of("configure_containers", "Install the container plug-in")
    ask, judge, *_rest = before_the_line()
    # The role itself would install Slurm here.
    before = {"hosts": "gpu_nodes", "gather_facts": False, "tasks": [{"ansible.builtin.ping": {}}]}
    known = {**of_pyxis(site), "__pyxis_is_new": True, "__cluster_roles": ["pyxis"]}
    after = {**installs, "hosts": "gpu_nodes", "vars_files": [], "roles": [], "vars": known,
             "tasks": [ask, judge]}  # fmt: skip
    there = written(site, [before, after])
    _rc, output = site.run(playbook=there)
    assert (site.folder / "asked").read_text().strip().endswith("--nodes=dgx-02")
    assert (f"dgx-02: {NO_JOB}" in " ".join(output.split())) is red, output


@pytest.mark.parametrize(
    ("in_use", "state", "logins", "why"),
    [
        ("/old.so", "idle", [], f"dgx-02, dgx-03, dgx-04: {NO_JOB}"),
        ("/old.so", "drained", [], ""),
        ("/old.so", "drained", ["login-01"], "login-01: left out, and every srun, sbatch and"),
        # Options alone, as when a node is added.
        ("/new.so", "idle", ["login-01"], ""),
    ],
)
def test_no_line_of_another_plug_in_is_written_while_a_host_is_left_out(
    in_use: str, state: str, logins: list[str], why: str, site: Site
) -> None:
    """The plug-in would be on the hosts of `target` alone, and the line in all of Slurm."""
    sinfo = site.folder / "bin" / "sinfo"
    sinfo.write_text(f"#!/bin/sh\nfor n in 2 3 4; do echo dgx-0$n {state}; done\n")
    sinfo.chmod(0o755)
    noted = {"release": "24.11", "plugin": in_use, "line": f"required {in_use}", "proven": True}
    (site.folder / "in-use.json").write_text(json.dumps(noted))
    known = {
        **of_pyxis(site), "pyxis_source": "preinstalled", "pyxis_plugin": "/new.so",
        "pyxis_configless_logins": logins,
    }  # fmt: skip
    play = {"hosts": "dgx-01", "gather_facts": False, "vars": known, "tasks": before_the_line()}
    rc, output = site.run(playbook=written(site, [play]))
    assert (rc == 0) is (not why), output
    assert why in output


def test_a_node_is_not_loaded_if_slurm_is_lost_after_the_hold(site: Site) -> None:
    """Where a host is not reached the play continues, without its consent."""
    lose(site, "head-01")
    tasks = site.folder / "tasks"
    tasks.mkdir()
    load = ROOT / "playbooks/tasks/validate_load.yml"
    (tasks / "validate_load.yml").write_text(load.read_text())
    loaded = {"ansible.builtin.file": {"path": "{{ notes }}/loaded", "state": "touch"}}
    (tasks / "validate_part.yml").write_text(yaml.safe_dump([loaded]))
    why = {"ansible.builtin.debug": {"msg": "why: {{ __validate_broken }}"}}
    known = {
        "__validation_slurm": ["head-01"], "__validation": {"transport": "slurm"},
        "__validate_owner": "ctl-1", "__validate_former": [], "__validate_broken": "",
    }  # fmt: skip
    include = {"ansible.builtin.include_tasks": "tasks/validate_load.yml"}
    play = {"hosts": "dgx-01", "gather_facts": False, "ignore_unreachable": True, "vars": known,
            "tasks": [include, why]}  # fmt: skip
    there = written(site, [play])
    rc, output = site.run(playbook=there)
    assert rc == 0, output
    assert not (site.folder / "loaded").exists(), output
    assert "why: Task failed: Failed to connect" in output or "why: Failed to connect" in output


def still_held() -> dict[str, Any]:
    tasks = yaml.safe_load((ROOT / "playbooks/tasks/validate_held.yml").read_text())
    return dict(tasks[0])


def test_a_node_that_stays_held_since_slurm_is_lost_is_red(site: Site) -> None:
    lose(site, "head-01")
    play = play_of("validate_nodes", "Validate the nodes")
    (held,) = [one for one in play["tasks"] if one["name"] == "Test the held node under load"]
    release, judge = held["always"][-1], still_held()
    known = {
        "__validation_slurm": ["head-01"], "__validate_owner": "ctl-1", "__validate_former": [],
        "__validate_hold": {"job": "77", "reservation": ""},
    }  # fmt: skip
    short = {"hosts": "dgx-01", "gather_facts": False, "vars": known, "tasks": [release, judge],
             "ignore_unreachable": play["ignore_unreachable"]}  # fmt: skip
    rc, output = site.run(playbook=written(site, [short]))
    assert rc != 0, output
    assert "77 holds the node until its time is over, since head-01 is not reached" in output


@pytest.mark.parametrize(
    "known",
    [
        {"__validation_slurm": []},
        {"__validation_slurm": ["head-01"], "__validate_hold": {"job": "77", "reservation": ""},
         "__validate_released": {"changed": False}},
        {"__validation_slurm": ["head-01"], "__validate_hold": {"may_load": False},
         "__validate_released": {"skipped": True, "changed": False}},
    ],
)  # fmt: skip
def test_a_node_that_is_not_held_is_not_red(known: dict[str, object], site: Site) -> None:
    """Ansible makes the message of a check that passes, too."""
    short = {"hosts": "dgx-01", "gather_facts": False, "vars": known, "tasks": [still_held()]}
    rc, output = site.run(playbook=written(site, [short]))
    assert rc == 0, output


@pytest.mark.parametrize(
    ("lost", "asks", "idle"), [(True, True, False), (False, True, False), (False, False, True)]
)
def test_a_node_is_not_idle_if_slurm_does_not_answer(
    lost: bool, asks: bool, idle: bool, site: Site
) -> None:
    """The processes of a job would be a finding, for which the gate drains the node."""
    if lost:
        lose(site, "head-01")
    (site.folder / "bin/scontrol").write_text("#!/bin/sh\nexit 1\n")
    (site.folder / "bin/squeue").write_text("#!/bin/sh\nexit 1\n")
    play = play_of("validate_nodes", "Validate the nodes")
    (read,) = [one for one in play["tasks"] if one["name"] == "Read the node's jobs from Slurm"]
    check = yaml.safe_load((ROOT / "playbooks/tasks/validate_gpu_health.yml").read_text())[0]
    judged = check["baremetal.dgx.gpu_health"]["idle"]
    show = {"ansible.builtin.debug": {"msg": "idle: {{ __idle }}"}, "vars": {"__idle": judged}}
    known = {
        "__validation_slurm": ["head-01"] if asks else [], "__validation": {"idle": True},
        "__validate_owner": "ctl-1", "__validate_former": [],
    }  # fmt: skip
    short = {"hosts": "dgx-01", "gather_facts": False, "vars": known, "tasks": [read, show],
             "ignore_unreachable": play["ignore_unreachable"]}  # fmt: skip
    _rc, output = site.run(playbook=written(site, [short]))
    assert f"idle: {idle}" in output


# Plays gpu_health: the processes of a job fail it where the node should be idle.
GPUS = """\
#!/usr/bin/python
# WANT_JSON
import json, sys
idle = json.load(open(sys.argv[1]))["idle"]
with open("{folder}/gpus", "a") as asked:
    print(idle, file=asked)
print(json.dumps({{"changed": False, "verdict": "fail" if idle else "pass"}}))
"""
SQUEUE = """\
#!/bin/sh
echo asked >> {folder}/squeue
[ "$(wc -l < {folder}/squeue)" -lt 2 ] || {then}
"""


@pytest.mark.parametrize(
    ("then", "asked", "verdict"),
    [
        ("echo '9|alice|RUNNING|2026-11-25T09:00:00|dgx-01'", ["True", "False"], "pass"),
        ("exit 1", ["True", "False"], "pass"),
        ("true", ["True"], "fail"),
    ],
    ids=["a job", "no answer", "no job"],
)
def test_a_job_that_begins_during_the_checks_is_no_finding(
    then: str, asked: list[str], verdict: str, site: Site
) -> None:
    """Nothing holds the node yet, and Slurm was asked before."""
    for name, text in {"library/gpus": GPUS, "bin/squeue": SQUEUE}.items():
        path = site.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.format(folder=site.folder, then=then))
        path.chmod(0o755)
    (site.folder / "bin/scontrol").write_text(
        "#!/bin/sh\necho NodeName=dgx-01 State=IDLE ThreadsPerCore=2\n"
    )
    (site.folder / "tasks").mkdir()
    for name in ("validate_part", "validate_gpu_health", "validate_jobs"):
        text = (ROOT / f"playbooks/tasks/{name}.yml").read_text()
        text = text.replace("baremetal.dgx.gpu_health:", "gpus:")
        (site.folder / f"tasks/{name}.yml").write_text(text)
    play = play_of("validate_nodes", "Validate the nodes")
    (read,) = [one for one in play["tasks"] if one["name"] == "Read the node's jobs from Slurm"]
    include = {"ansible.builtin.include_tasks": "tasks/validate_part.yml"}
    judge = {"ansible.builtin.assert": {"that": "__validation_answers.gpu_health.verdict == found"}}
    validation = {"idle": True, "hardware_root": "", "health_thresholds": {}, "ecc": True}
    known = {
        "__validation_slurm": ["head-01"], "__validation": validation, "__validate_owner": "ctl-1",
        "__validate_former": [], "__validation_part": "gpu_health", "__validate_broken": "",
        "__validation_answers": {}, "__validation_identities": {}, "node_health_profile": {},
        "found": verdict,
    }  # fmt: skip
    short = {"hosts": "dgx-01", "gather_facts": False, "vars": known,
             "tasks": [read, include, judge]}  # fmt: skip
    rc, output = site.run(playbook=written(site, [short]))
    assert rc == 0, output
    assert (site.folder / "gpus").read_text().split() == asked
