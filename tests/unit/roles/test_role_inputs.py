# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for the inputs of all roles: no secret is written, and the tables name each."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.constants import DEFAULT_VAULT_ID_MATCH
from ansible.parsing.vault import VaultLib, VaultSecret
from role_rules import Role, read_yaml
from wiring import ROOT, Wiring, example, roles, write

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import check_value
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.contract import load
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.given import GIVEN, YIELDING

# As a hash: the roles refuse other passwords of node_exporter_users.
SECRET = "$2y$10$no-real-secret"
VAULT = "a test's own"
# Given by playbooks/vars/cluster.yml, since they are known only while a playbook runs.
# The number of the first job is given after a restore alone, the names of the database if the
# inventory sets them.
LATER = {
    "backup_database",
    "backup_database_password",
    "backup_first_job_id",
    "slurm_base_plugins",
    "slurm_controller_first_job_id",
    "slurm_controller_former_host",
    "slurm_controller_plugstack",
    "slurm_database_former_host",
}


@pytest.fixture(scope="module")
def wired(tmp_path_factory: pytest.TempPathFactory) -> Wiring:
    inventory = example(tmp_path_factory.mktemp("core"), "core_12")
    write(
        inventory,
        "group_vars/all/zz.yml",
        {
            "fabric_exporter_enabled": True,
            "backup_repository": "/mnt/copies",
            "backup_prometheus": True,
            "identity_domain": "example.org",
        },
    )
    interfaces = [{"name": "eno1", "network": "management"}]
    write(inventory, "group_vars/gpu_nodes/zz.yml", {"node_interfaces": interfaces})
    # It had monitoring once.
    former = dict.fromkeys(
        map("{}_enabled".format, ("prometheus", "alertmanager", "grafana")), True
    )
    write(inventory, "host_vars/head-01/zz.yml", former)
    return Wiring(inventory)


def test_each_input_is_in_the_tables_and_of_a_role(wired: Wiring) -> None:
    found = {name for text in wired.texts.values() for name in json.loads(text)}
    reported = {name for name in found if not name.startswith("__")} - {"ansible_host"}
    assert reported <= GIVEN
    assert GIVEN - reported - YIELDING == LATER
    assert {name for role in roles().values() for name in role.options} >= GIVEN


@pytest.mark.parametrize("name", ["core_12", "superpod_127", "virtual_pod"])
def test_roles_take_what_the_plan_writes(tmp_path: Path, name: str) -> None:
    """ansible-core refuses an input with a key that the role's specification does not know."""
    wired = Wiring(example(tmp_path, name), {"virtual_pod_public_key": "ssh-ed25519 AAAA pod"})
    options = {key: one for role in roles().values() for key, one in role.options.items()}
    kinds = {tuple(node["groups"]): node["name"] for node in reversed(wired.plan["nodes"])}
    assert len(kinds) >= 3
    for host in kinds.values():
        inputs = wired.of(host)
        wrong = [
            str(problem)
            for key in inputs.keys() & options
            for problem in check_value(key, inputs[key], options[key])
        ]
        assert wrong == [], host


def test_an_address_that_a_template_makes_is_written(tmp_path: Path) -> None:
    """Ansible would make it again for every task; an address as such is left to the inventory."""
    inventory = example(tmp_path, "core_12")
    template = "{{ inventory_hostname }}.{{ cluster_name }}.example"
    write(inventory, "group_vars/cluster/zz.yml", {"ansible_host": template})
    write(inventory, "host_vars/dgx-01.yml", {"ansible_host": "192.0.2.1"})
    write(inventory, "host_vars/dgx-02.yml", {"ansible_host": "{{ ansible_facts.fqdn }}"})
    texts = Wiring(inventory).texts
    found = [json.loads(texts[host]).get("ansible_host") for host in ("dgx-01", "dgx-02", "dgx-03")]
    name = Wiring(inventory).plan["cluster"]["name"]
    assert found == [None, None, f"dgx-03.{name}.example"]


def test_the_inventory_says_how_many_disks_there_are(tmp_path: Path, wired: Wiring) -> None:
    assert wired.of("dgx-01")["local_storage_disks"] == 10, "as the profile"
    inventory = example(tmp_path, "core_12")
    write(inventory, "group_vars/gpu_nodes/zz.yml", {"local_storage_disks": 2})
    assert "local_storage_disks" not in json.loads(Wiring(inventory).texts["dgx-01"])


def test_a_node_asks_its_disks_as_local_storage_does_and_its_declared_bmc(tmp_path: Path) -> None:
    volume = {"name": "raid", "mountpoint": "/raid"}

    def asked(name: str, **given: Any) -> tuple[Any, Any]:
        inventory = example(tmp_path / name, "core_12")
        for path in inventory.glob("group_vars/*/local_storage.yml"):
            path.unlink()
        write(inventory, "group_vars/gpu_nodes/zz.yml", given)
        found = Wiring(inventory).of("dgx-01")
        return found["node_health_nvme"], found["node_health_bmc"]

    volumes = {"local_storage_volumes": [volume]}
    limits = {"count": 10, "wear_percent": 90, "media_errors": 0}
    assert asked("a", **volumes)[0] == limits
    own = {"local_storage_disks": 2, "local_storage_media_errors": 5}
    password = "{{ lookup('ansible.builtin.env', 'BMC_PASSWORD') }}"
    bmc = {"user": "operator", "password": password, "certificate": "sha256:" + 64 * "a"}
    found = asked("b", **volumes, **own, node_bmc=bmc)
    assert found == ({"count": 2, "wear_percent": 90, "media_errors": 5}, True)
    assert asked("c", **volumes, local_storage_smart=False)[0] == {}
    later = {"local_storage_media_errors": "{{ ansible_facts.nodename | length }}"}
    assert asked("d", **volumes, **later)[0] == {}


def test_what_grows_with_the_cluster_is_written_for_few(wired: Wiring) -> None:
    """A node's file must not hold what grows with the number of nodes."""
    for host in ("dgx-01", "login-01"):
        assert "slurm_controller_nodes" not in wired.texts[host]
        assert wired.texts[host].count("dgx-0") < 5


SAID: dict[str, dict[str, Any]] = {
    "group_vars/all/zz_vaulted.yml": {
        "monitoring_access": {"username": "prometheus", "password": SECRET, "ca": "CA"},
        "monitoring_jobs": [
            {"name": "ipmi", "password": SECRET, "targets": [{"address": "bmc:9290"}]}
        ],
        "node_exporter_users": {"prometheus": SECRET},
        "login_environment_environment": {"TOKEN": SECRET},
        "subnet_manager_environment": {"TOKEN": SECRET},
        "cluster_validation": {"nccl": {"environment": {"TOKEN": SECRET}}},
    },
    "group_vars/cluster/zz_users.yml": {
        "cluster_user_directory": True,
        "node_base_users": [
            {"name": "alice", "uid": 4000, "home": "/home/alice", "password": SECRET}
        ],
    },
}
SHOWN = {
    "jobs": "prometheus_jobs | map(attribute='password', default='') | list",
    "shells": "login_environment_environment.TOKEN",
    "fabric": "fabric_exporter_environment.TOKEN",
    "users": "__storage_users | map(attribute='password') | list",
    "nccl": "__validation_levels.quick.nccl.environment.TOKEN",
    "nodes": "pyxis_nodes | length",
    "state": "slurm_base_secrets_dir",
    "plugstack": "slurm_controller_plugstack",
    "peers": "cephfs_canary_peers",
}


def vaulted(text: str) -> str:
    secret = VaultSecret(VAULT.encode())
    return VaultLib([(DEFAULT_VAULT_ID_MATCH, secret)]).encrypt(text, secret).decode()


@pytest.mark.slow
def test_a_vaulted_inventory_leaves_no_secret_in_the_plan(tmp_path: Path) -> None:
    """Its values are written as they are, in a vaulted file, and by a template: none is copied."""
    inventory = example(tmp_path, "core_12")
    for name, data in SAID.items():
        text = yaml.safe_dump(data).replace(SECRET, '"{{ vault_secret }}"')
        (inventory / name).write_text(text)
    (inventory / "group_vars/all/vault.yml").write_text(vaulted(f"vault_secret: {SECRET}\n"))
    (tmp_path / "password").write_text(VAULT)
    show = {"dest": str(tmp_path / "out.json"), "mode": "0600"}
    show["content"] = "{{ {%s} | to_json }}" % ", ".join(f"'{k}': {v}" for k, v in SHOWN.items())
    play = {
        "hosts": "head-02",
        "gather_facts": False,
        "connection": "local",
        "vars_files": [
            str(ROOT / "playbooks/vars/cluster.yml"),
            "{{ lookup('baremetal.dgx.plan_inputs') }}",
        ],
        "tasks": [{"ansible.builtin.copy": show, "no_log": True}],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    environment = {
        **os.environ,
        "ANSIBLE_HOME": str(tmp_path / "home"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache/collections"),
    }

    def run(book: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                str(Path(sys.executable).with_name("ansible-playbook")),
                f"--inventory={inventory}",
                f"--vault-password-file={tmp_path / 'password'}",
                f"--extra-vars=ansible_python_interpreter={sys.executable}",
                str(book),
            ],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    early = run(tmp_path / "play.yml")
    assert early.returncode != 0
    why = "there is no plan of this node yet; run baremetal.dgx.check_inventory first"
    assert why in " ".join((early.stdout + early.stderr).split())
    for book in (ROOT / "playbooks/check_inventory.yml", tmp_path / "play.yml"):
        done = run(book)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    written = [path for path in (inventory / ".dgx/plan").rglob("*") if path.is_file()]
    assert (inventory / ".dgx/plan/inputs/head-02.json") in written
    assert [path.name for path in written if SECRET in path.read_text()] == []
    assert [path.name for path in written if str(tmp_path) in path.read_text()] == []
    found = json.loads((tmp_path / "out.json").read_text())
    assert found.pop("jobs").count(SECRET) >= 2
    assert found.pop("users") == [SECRET]
    assert [found.pop(name) for name in ("shells", "fabric", "nccl")] == [SECRET] * 3
    assert found.pop("peers")["home"] == []
    assert found == {
        "nodes": 12, "state": f"{inventory}/.dgx/secrets", "plugstack": []
    }  # fmt: skip


def test_what_a_playbook_says_to_write_is_a_choice() -> None:
    """check_inventory names the variable without which a run does nothing, and its values."""
    options = {**load("contract.yml")["cluster"]}
    for path in (ROOT / "roles").iterdir():
        options.update(Role(path).inputs)
    found = {}
    for path in (ROOT / "playbooks").glob("*.yml"):
        for play in read_yaml(path):
            text = play.get("vars", {}).get("check_inventory_declared", {}).get("write", "")
            for name, words in re.findall(r"([\w.]+): (\w+(?:(?:, \w+)* or \w+)?)", text):
                found[name] = re.split(", | or ", words)
    assert len(found) >= 5
    for name, values in found.items():
        variable, *rest = name.split(".")
        option = options[variable]
        for key in rest:
            option = option["options"][key]
        choices = ["true", "false"] if option.get("type") == "bool" else option["choices"]
        assert set(values) <= set(choices), name
