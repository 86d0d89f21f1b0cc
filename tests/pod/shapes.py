# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters whose hosts have several jobs each: what to declare, and that it works."""

from __future__ import annotations

from typing import Any

import yaml

from .conftest import INVENTORY, on, playbook, services, until

CONTROL = ("slurm_controllers", "slurm_databases")


def declare(shape: dict[str, tuple[str, ...]]) -> None:
    """Write host → groups into the inventory of the pod."""
    path = INVENTORY / "hosts.yml"
    now = yaml.safe_load(path.read_text(encoding="utf-8"))["cluster"]["children"]
    known = {
        host: values for group in now.values() for host, values in group["hosts"].items() if values
    }
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for host, members in shape.items():
        # Its groups count addresses, each from another one.
        address = {"node_address": {"management": known[host]["ansible_host"]}}
        for group in members:
            groups.setdefault(group, {"hosts": {}})["hosts"][host] = {**known[host], **address}
    path.write_text(yaml.safe_dump({"cluster": {"children": groups}}), encoding="utf-8")
    fabric = INVENTORY / "group_vars/all/fabric.yml"
    fabric.write_text(yaml.safe_dump({"cluster_fabric": {"topology": "none"}}), encoding="utf-8")


def job(login: str, nodes: list[str]) -> list[str]:
    """Run a job over these nodes from a login host as a user; return their names."""
    script = f"cd / && srun -w {','.join(nodes)} -t 2 hostname"
    done = on(login, f"su alice -c '{script}'")
    assert done.returncode == 0, f"{login}: {done.stderr}"
    return sorted(done.stdout.split())


def assert_cluster(controller: str, logins: list[str], nodes: list[str]) -> None:
    """Bring the declared cluster up; jobs run from each login host, also after a restart."""
    done = playbook("site")
    assert done.rc == 0, done.why
    before = {host: services(host) for host in {controller, *logins, *nodes}}
    again = playbook("site")
    assert (again.rc, set(again.changed.values())) == (0, {0}), again.tasks("changed") or again.why
    assert {host: services(host) for host in before} == before
    for login in logins:
        assert job(login, nodes) == nodes
        # pam_slurm_adopt lets users in who have a job there, and here they submit the first one.
        assert "pam_slurm_adopt" not in on(login, "cat /etc/pam.d/sshd").stdout
    assert on(controller, "systemctl restart slurmctld").returncode == 0
    for node in nodes:
        assert on(node, "systemctl restart slurmd").returncode == 0
    idle = "sinfo -hN -t idle -o %n | sort -u | wc -l"
    until(lambda: on(controller, idle).stdout.strip() == str(len(nodes)), "all nodes are idle")
    for login in logins:
        assert job(login, nodes) == nodes
