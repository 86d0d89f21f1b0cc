# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugin's own part, and check_inventory as an operator runs it."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ansible.constants import DEFAULT_VAULT_ID_MATCH
from ansible.parsing.vault import VaultLib, VaultSecret

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import plan_from_data
from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.files import FILES
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.plan_files import (
    _state_refusal,
    write_texts,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import (
    collection_root,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cabling_files import find_cables

pytestmark = pytest.mark.slow

PASSWORD = "no-real-password"
VAULT_PASSWORD = "a test's own"


@dataclass(frozen=True)
class Run:
    """One run of ansible-playbook, as the shell sees it."""

    folder: Path
    code: int
    text: str

    @property
    def plan(self) -> Path:
        """The folder that the plan goes to unless the inventory says otherwise."""
        return self.folder / "inventory" / ".dgx" / "plan"

    @property
    def contacted(self) -> bool:
        """Whether anything was to be run on another host."""
        return (self.folder / "contacted").exists()

    def problems(self) -> list[str]:
        """The lines of the failed task's list, as printed."""
        lines = [line.strip() for line in self.text.splitlines()]
        begin = lines.index('"problems": [') + 1
        listed = lines[begin : lines.index("]", begin)]
        return [json.loads(line.rstrip(",")) for line in listed]


@dataclass(frozen=True)
class Scenario:
    """An edit of the small cluster, the command's arguments, and the one line that is expected."""

    edits: tuple[tuple[str, str, str], ...] = ()
    arguments: tuple[str, ...] = ()
    says: str = ""
    playbook: str = "baremetal.dgx.check_inventory"
    files: Mapping[str, str] = field(default_factory=dict)
    repeat: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)


def vaulted(text: str) -> str:
    """The text as ansible-vault writes a file."""
    secret = VaultSecret(VAULT_PASSWORD.encode())
    return VaultLib([(DEFAULT_VAULT_ID_MATCH, secret)]).encrypt(text, secret).decode()


GPU_NODES = "group_vars/gpu_nodes/node.yml"
CONTROLLER = "group_vars/slurm_controllers/slurm_controller.yml"
CABLE_LIST = "  topology: basepod\n  cabling: {source: csv, file: group_vars/all/cables.csv}"

BAD = {
    "unknown_profile": Scenario(
        edits=((GPU_NODES, "dgx_h100", "dgx_h10"),),
        says="gpu_nodes.node_profile: no profile is called 'dgx_h10'; write dgx_h100",
    ),
    # site goes on to every host when this is not caught
    "site_with_an_address_twice": Scenario(
        playbook="baremetal.dgx.site",
        edits=(("hosts.yml", "dgx-03: {", "dgx-03: {node_address: {management: 10.1.0.11}, "),),
        says="gpu_nodes.dgx-03.node_address.management: 10.1.0.11 is also the address of "
        "slurm_controllers.head-01; write a free address",
    ),
    "time_limit_that_yaml_reads_as_a_number": Scenario(
        edits=((CONTROLLER, '"00:30:00"', "12:30:00"),),
        says="slurm_controllers.slurm_controller_partitions[1].max_time: text is wanted, this is "
        "the number 45000; put it in quotes",
    ),
    "extra_variable": Scenario(
        arguments=("-e", "node_profile=dgx_b20"),
        says="--extra-vars.node_profile: no profile is called 'dgx_b20'; write dgx_b200",
    ),
    # Ansible's own check of arguments takes the text and converts nothing.
    "number_by_the_command_line": Scenario(
        playbook="baremetal.dgx.prepare_nodes",
        arguments=("-e", "node_base_chrony_wait_s=0"),
        says="--extra-vars.node_base_chrony_wait_s: a whole number is wanted, this is the text "
        "'0'; write -e '{\"node_base_chrony_wait_s\": 0}'",
    ),
    "unknown_variable_in_check_mode": Scenario(
        arguments=("--check", "--diff"),
        edits=((GPU_NODES, "node_features:", "node_feature:"),),
        says="gpu_nodes.node_feature: no such variable; write node_features",
    ),
    "add_nodes_with_overlapping_racks": Scenario(
        playbook="baremetal.dgx.add_nodes",
        arguments=("-e", "target=dgx-05", "--limit", "dgx-05"),
        edits=(
            (
                "hosts.yml",
                "        dgx-04:",
                ("        dgx-05: {node_rack: r02, node_rack_unit: 12}\n        dgx-04:"),
            ),
        ),
        says="gpu_nodes.dgx-05.node_rack_unit: units 12-19 of rack r02 are filled by "
        "gpu_nodes.dgx-04 (units 9-16); write a free unit, or another node_rack",
    ),
    "secret_of_the_wrong_kind": Scenario(
        files={"group_vars/all/more.yml": f"slurm_database_password: [{PASSWORD}]\n"},
        says="all.slurm_database_password: text is wanted, this is something else (hidden); write "
        "one text",
    ),
    "text_of_a_vault_with_the_password_of_another": Scenario(
        arguments=("--vault-password-file", "{folder}/ansible.cfg"),
        files={
            "group_vars/gpu_nodes/more.yml": "node_serial: !vault |\n"
            + "".join(f"  {line}\n" for line in vaulted("S1").splitlines()),
        },
        says="gpu_nodes.node_serial: cannot be templated: no password that is given opens it; "
        "define what it refers to, or write the value itself",
    ),
    "cable_list_with_an_unknown_switch": Scenario(
        edits=(("group_vars/all/cluster.yml", "  topology: basepod", CABLE_LIST),),
        files={
            "group_vars/all/cables.csv": (
                "from,from_rail,to,to_port\ndgx-01,0,leaf-01,1\ndgx-01,1,laef-01,2\n"
            ),
        },
        says="cables.csv:3:to: no switch is called 'laef-01'; write leaf-01",
    ),
    "cable_list_that_is_not_there": Scenario(
        edits=(("group_vars/all/cluster.yml", "  topology: basepod", CABLE_LIST),),
        says="all.cluster_fabric.cabling.file: there is no file 'group_vars/all/cables.csv'; "
        "write the path of the list, from the inventory's directory on",
    ),
    "reserved_port_that_a_node_needs": Scenario(
        edits=(
            (
                "group_vars/all/cluster.yml",
                "  topology: basepod",
                "  topology: basepod\n  reserved_ports: {leaf-02: [5]}",
            ),
        ),
        says="all.cluster_fabric.reserved_ports: leaf-02/5 is reserved, but the plan needs it for "
        "dgx-02/rail4; write another port",
    ),
    "monitoring_without_a_host": Scenario(
        playbook="baremetal.dgx.configure_monitoring",
        files={"group_vars/monitoring_nodes/monitoring.yml": "grafana_enabled: true\n"},
        says="monitoring_nodes.grafana_enabled: true, and no host is in monitoring_nodes; write "
        "monitoring_nodes: {hosts: {NAME: }} below cluster, or write false",
    ),
    "line_copied_and_not_edited": Scenario(
        edits=(
            ("hosts.yml", "        dgx-04:", "        dgx-03: {node_rack: r09}\n        dgx-04:"),
        ),
        says="hosts.yml:20: 'dgx-03' is written here and on line 19, and only one of the two "
        "counts; leave one",
    ),
}

# Where Ansible itself would end with exit status 0, having done nothing. tests/playbooks has every
# playbook.
NOTHING = {
    "target_that_gets_nothing_from_it": Scenario(
        playbook="baremetal.dgx.install_gpu_stack",
        arguments=("-e", "target=head-01"),
        says="hosts: 'head-01' is not a host of gpu_nodes that is present, and there is nothing to "
        "do; name hosts of gpu_nodes",
    ),
    "target_that_is_absent": Scenario(
        playbook="baremetal.dgx.validate_nodes",
        arguments=("-e", "target=dgx-03"),
        edits=(("hosts.yml", "dgx-03: {", "dgx-03: {node_state: absent, "),),
        says="hosts: 'dgx-03' is not a host of gpu_nodes that is present, and there is nothing to "
        "do; name hosts of gpu_nodes",
    ),
    "one_target_of_two": Scenario(
        playbook="baremetal.dgx.add_nodes",
        arguments=("-e", "target=dgx-01:dgx-09"),
        says="hosts: no host of the inventory is called dgx-09; write dgx-04",
    ),
    "limit_without_the_host_that_looks": Scenario(
        playbook="baremetal.dgx.validate_fabric",
        arguments=("--limit", "dgx-01"),
        says="--limit dgx-01: leaves out head-01, and there is nothing to do; name some of them, "
        "or leave --limit out",
    ),
    "limit_outside_of_the_cluster": Scenario(
        playbook="baremetal.dgx.site",
        arguments=("--limit", "backup-01"),
        edits=(("hosts.yml", "cluster:\n", "others: {hosts: {backup-01: }}\ncluster:\n"),),
        says="--limit backup-01: leaves no host of the cluster; name hosts of it",
    ),
    "no_fabric": Scenario(
        playbook="baremetal.dgx.validate_fabric",
        edits=(
            (
                "group_vars/all/cluster.yml",
                "  topology: basepod\n  leaf_switches: [leaf-01, leaf-02]",
                "  topology: none",
            ),
        ),
        says="all.cluster_fabric.topology: none, and there is no fabric to look at; write "
        "basepod, superpod or leaf_spine with the names of the switches",
    ),
    "playbook_of_which_nothing_is_declared": Scenario(
        playbook="baremetal.dgx.mount_storage",
        says="inventory: nothing is declared for dgx-[01-04],head-01,login-[01-02] to do here; "
        "write cephfs_mounts or local_storage_volumes",
    ),
    # The fabric is declared, and one node has no part in it.
    "node_without_rails": Scenario(
        playbook="baremetal.dgx.configure_fabric",
        arguments=("--limit", "cpu-01"),
        edits=(
            (
                "hosts.yml",
                "    gpu_nodes:",
                (
                    "    cpu_nodes: {hosts: {cpu-01: {node_address: {management: 10.1.0.61}}}}\n"
                    "    gpu_nodes:"
                ),
            ),
        ),
        files={
            "group_vars/cpu_nodes/node.yml": "node_profile: cpu_node\n",
            "group_vars/all/profiles.yml": "cluster_profiles: {cpu_node: {cpu: {sockets: 2, "
            "cores_per_socket: 16, threads_per_core: 2, numa_nodes: 2}, real_memory_mb: 256000}}\n",
        },
        says="inventory: nothing is declared for cpu-01 to do here, as it is for dgx-[01-04],"
        "head-01; name some of those, or write a node_profile with rails for cpu-01",
    ),
    "strategy": Scenario(
        environment={"ANSIBLE_STRATEGY": "free"},
        says="strategy: 'free' lets each host run ahead, and what is done once for all would be "
        "done for each; write strategy = linear in ansible.cfg, or unset ANSIBLE_STRATEGY",
    ),
    # Roles would take a host that was installed again for what it was.
    "facts_of_an_earlier_run": Scenario(
        environment={
            "ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile",
            "ANSIBLE_CACHE_PLUGIN_CONNECTION": "facts",
        },
        says="fact_caching: 'ansible.builtin.jsonfile' has facts of earlier runs, and a host may "
        "have another system since; run with ANSIBLE_CACHE_PLUGIN=memory",
    ),
}

CLOSED = {
    "vaulted_file_without_password": Scenario(
        files={"host_vars/head-01": vaulted(f"slurm_database_password: {PASSWORD}\n")},
        says="host_vars/head-01: is encrypted, and no password is given; add "
        "--ask-vault-pass, or vault_password_file to ansible.cfg",
    ),
    "vaulted_file_with_the_password_of_another": Scenario(
        arguments=("--vault-password-file", "{folder}/ansible.cfg"),
        files={"group_vars/all/vault": vaulted(f"slurm_database_password: {PASSWORD}\n")},
        says="group_vars/all/vault: is encrypted, and no password that is given opens it; "
        "give its password",
    ),
    "variables_that_are_a_list": Scenario(
        files={"group_vars/all/more.yml": "- cluster_name: small\n"},
        says="group_vars/all/more.yml: holds no variables; write `name: value` lines",
    ),
    "bracket_of_variables_that_is_not_closed": Scenario(
        playbook="baremetal.dgx.site",
        files={"group_vars/gpu_nodes/more.yml": "---\nnode_features: [h100\n"},
        says="group_vars/gpu_nodes/more.yml:3: is not YAML: did not find expected ',' or ']'; "
        "correct this line, or the one above it",
    ),
}

HOSTVARS = "node_serial: \"{{ hostvars['head-01'].my_serial }}-{{ inventory_hostname }}\"\n"

GOOD = {
    "twice": Scenario(repeat=2),
    # Check mode, a vaulted file, templates that look at other hosts, a state directory elsewhere.
    "all_at_once": Scenario(
        arguments=(
            *("--check", "--diff", "--vault-password-file", "{folder}/password"),
            *("-e", "cluster_state_dir={folder}/elsewhere"),
        ),
        files={
            "group_vars/login_nodes/more.yml": HOSTVARS,
            "host_vars/head-01.yml": "my_serial: S1\n",
            "group_vars/all/vault.yml": vaulted(f"slurm_database_password: {PASSWORD}\n"),
        },
    ),
}


def _run(folder: Path, scenario: Scenario, cluster: Mapping[str, str]) -> list[Run]:
    """Run ansible-playbook on the edited small cluster, with an ssh that only leaves a file."""
    files = {**cluster, **scenario.files}
    for name, old, new in scenario.edits:
        assert old in files[name]
        files[name] = files[name].replace(old, new, 1)
    for name, text in files.items():
        path = folder / "inventory" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / "password").write_text(VAULT_PASSWORD, encoding="utf-8")
    (folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
    ssh = folder / "ssh"
    ssh.write_text(f"#!/bin/sh\ntouch {folder}/contacted\nexit 255\n", encoding="utf-8")
    ssh.chmod(0o755)
    environment = {name: text for name, text in os.environ.items() if "ANSIBLE" not in name}
    environment |= {
        "ANSIBLE_COLLECTIONS_PATH": str(Path(collection_root()).parents[2]),
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_SSH_EXECUTABLE": str(ssh),
        "LC_ALL": "C.UTF-8",
        **scenario.environment,
    }
    tools = Path(sys.executable).parent
    arguments = [argument.replace("{folder}", str(folder)) for argument in scenario.arguments]
    runs = []
    for _time in range(scenario.repeat):
        done = subprocess.run(
            [tools / "ansible-playbook", "-i", folder / "inventory", scenario.playbook, *arguments],
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        runs.append(Run(folder, done.returncode, done.stdout))
    return runs


@pytest.fixture(scope="module")
def runs(
    tmp_path_factory: pytest.TempPathFactory, small_cluster: Mapping[str, str]
) -> dict[str, list[Run]]:
    """All scenarios, side by side: most of a run is Python's start."""
    scenarios = {**BAD, **CLOSED, **GOOD, **NOTHING}
    folders = {name: tmp_path_factory.mktemp(name) for name in scenarios}
    with ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 1)) as pool:
        found = pool.map(
            lambda name: _run(folders[name], scenarios[name], small_cluster), scenarios
        )
        return dict(zip(scenarios, found, strict=True))


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_mistake_stops_the_run_before_any_host(name: str, runs: dict[str, list[Run]]) -> None:
    (run,) = runs[name]
    assert run.code != 0, run.text
    assert run.problems() == [BAD[name].says]
    assert "1 mistake in the inventory; no host was touched" in run.text
    assert "Traceback" not in run.text
    assert not run.contacted
    assert not run.plan.exists()
    assert PASSWORD not in run.text


NO_TAG = "no task of the playbook has this tag"


@pytest.mark.parametrize(
    ("playbook", "words", "says"),
    [
        (
            "prepare_nodes", ("--tags", "node_base_verfy"),
            f"--tags node_base_verfy: {NO_TAG}; write node_base_verify",
        ),
        (
            "prepare_nodes", ("--skip-tags", "node_base_instal"),
            f"--skip-tags node_base_instal: {NO_TAG}; write node_base_install",
        ),
        (
            "prepare_nodes", ("--tags", "cephfs_verify"),
            f"--tags cephfs_verify: {NO_TAG}; --list-tags shows those that there are",
        ),
        # A role that is included while the playbook runs has the tag.
        ("mount_storage", ("--tags", "cephfs_verify"), "inventory: nothing is declared for"),
    ],
    ids=["to do", "to leave out", "of another playbook", "of an included role"],
)  # fmt: skip
def test_a_tag_that_no_task_has_is_red(
    playbook: str,
    words: tuple[str, ...],
    says: str,
    tmp_path: Path,
    small_cluster: Mapping[str, str],
) -> None:
    """Ansible itself does nothing, or all, and ends green."""
    scenario = Scenario(playbook=f"baremetal.dgx.{playbook}", arguments=words)
    (run,) = _run(tmp_path, scenario, small_cluster)
    assert run.code != 0, run.text
    assert says in " ".join(run.text.split())
    assert "Traceback" not in run.text
    assert not run.contacted


def test_a_part_may_have_nothing_to_do(tmp_path: Path, small_cluster: Mapping[str, str]) -> None:
    part = Scenario(
        playbook="baremetal.dgx.configure_monitoring",
        arguments=("-e", '{"check_inventory_is_part": true}'),
    )
    (run,) = _run(tmp_path, part, small_cluster)
    assert run.code == 0, run.text
    assert not run.contacted


def test_a_node_that_leaves_slurm_leaves_monitoring(
    tmp_path: Path, small_cluster: Mapping[str, str]
) -> None:
    listed = Scenario(
        playbook="baremetal.dgx.remove_nodes",
        arguments=("--list-hosts",),
        files={"monitoring.yml": "monitoring_nodes: {hosts: {login-01: }}\n"},
    )
    (run,) = _run(tmp_path, listed, small_cluster)
    assert run.code == 0, run.text
    plays = {
        part.partition("): ")[2].partition("\t")[0].strip(): set(re.findall(r"\n      (\S+)", part))
        for part in run.text.split("\n  play #")
    }
    # No node of the cluster but those that know the others by name, or may have watched them.
    assert plays["Configure monitoring"] == {"head-01", "login-01"}
    assert plays["Install the exporters"] == {"head-01", "login-01"}


def test_two_clusters_share_no_state(tmp_path: Path, small_cluster: Mapping[str, str]) -> None:
    """They would share keys, and each would remove what is known of the other's nodes."""
    other = Scenario(
        edits=(("group_vars/all/cluster.yml", "cluster_name: small", "cluster_name: lab"),)
    )
    (first,) = _run(tmp_path, Scenario(), small_cluster)
    assert first.code == 0, first.text
    inputs = (first.plan / "inputs/head-01.json").read_text()
    (second,) = _run(tmp_path, other, small_cluster)
    assert second.code != 0, second.text
    text = " ".join(second.text.split())
    state = f"{tmp_path}/inventory/.dgx"
    assert f"all.cluster_name: lab, but {state} has the secrets and the measurements" in text
    assert f"if small is now called lab, remove {state}/cluster_name" in text
    assert "Traceback" not in text
    assert (first.plan / "inputs/head-01.json").read_text() == inputs
    # It was renamed.
    (tmp_path / "inventory/.dgx/cluster_name").unlink()
    for scenario, code in ((other, 0), (Scenario(), 2)):
        (run,) = _run(tmp_path, scenario, small_cluster)
        assert run.code == code, run.text


@pytest.mark.parametrize("name", sorted(CLOSED))
def test_a_file_that_ansible_cannot_read_is_named(name: str, runs: dict[str, list[Run]]) -> None:
    """Ansible's own line names no file, and is met before any task."""
    (run,) = runs[name]
    assert run.code != 0, run.text
    assert CLOSED[name].says in " ".join(run.text.split())
    assert "Traceback" not in run.text
    assert not run.contacted


@pytest.mark.parametrize("name", sorted(NOTHING))
def test_a_playbook_without_a_host_to_work_on_is_red(name: str, runs: dict[str, list[Run]]) -> None:
    (run,) = runs[name]
    assert run.code != 0, run.text
    assert NOTHING[name].says in " ".join(run.text.split())
    assert "Traceback" not in run.text
    assert not run.contacted


def test_a_playbook_run_alone_makes_the_plan_of_the_inventory_as_it_is(
    tmp_path: Path, small_cluster: Mapping[str, str]
) -> None:
    (first,) = _run(tmp_path, Scenario(), small_cluster)
    assert first.code == 0, first.text
    more = ("hosts.yml", "        dgx-04:", "        dgx-05: {node_rack: r03}\n        dgx-04:")
    scenario = Scenario(edits=(more,), playbook="baremetal.dgx.configure_scheduler")
    (second,) = _run(tmp_path, scenario, small_cluster)
    # No host answers here; what matters is what it would have worked from.
    assert second.contacted
    plan = json.loads((second.plan / "plan.json").read_text(encoding="utf-8"))
    assert "dgx-05" in [node["name"] for node in plan["slurm"]["nodes"]]
    assert (second.plan / "nodes/dgx-05.json").exists()


def test_a_run_that_starts_later_has_the_plan_of_the_inventory_as_it_is(
    tmp_path: Path, small_cluster: Mapping[str, str]
) -> None:
    """--start-at-task passes the task that makes the plan."""
    (first,) = _run(tmp_path, Scenario(), small_cluster)
    assert first.code == 0, first.text
    book = tmp_path / "later.yml"
    book.write_text(
        "- ansible.builtin.import_playbook: baremetal.dgx.check_inventory\n"
        + SHOW.format(root=collection_root()).lstrip()
    )
    more = ("hosts.yml", "        dgx-04:", "        dgx-05: {node_rack: r03}\n        dgx-04:")
    share = (
        "group_vars/all/cluster.yml",
        "cluster_name:",
        "cluster_gate: {share: 0.3}\ncluster_name:",
    )
    # So started, Ansible gathers facts in a play that has them switched off.
    python = f"ansible_python_interpreter={sys.executable}"
    words = ("--start-at-task", "Show", "-e", python)
    (later,) = _run(
        tmp_path, Scenario(edits=(more, share), arguments=words, playbook=str(book)), small_cluster
    )
    assert later.code == 0, later.text
    assert "TASK [Compute the plan" not in later.text
    assert "share 0.3 of plan" in later.text
    assert (later.plan / "inputs/dgx-05.json").exists()
    # An inventory with a mistake has no plan, and the former one is not taken.
    broken = (GPU_NODES, "node_features:", "node_feature:")
    (refused,) = _run(
        tmp_path, Scenario(edits=(broken,), arguments=words, playbook=str(book)), small_cluster
    )
    text = " ".join(refused.text.split())
    assert refused.code != 0, refused.text
    assert "1 mistake in the inventory; no host was touched" in text
    assert "gpu_nodes.node_feature: no such variable; write node_features" in text
    assert "share 0.3" not in text


SHOW = """
- hosts: head-01
  gather_facts: false
  connection: local
  vars_files: [{root}/playbooks/vars/cluster.yml, "{{{{ lookup('baremetal.dgx.plan_inputs') }}}}"]
  tasks:
    - name: Show
      ansible.builtin.debug:
        msg: "share {{{{ __gate.share }}}} of {{{{ __cluster_plan | basename }}}}"
"""


def test_two_runs_with_different_values_read_each_its_own_plan(
    tmp_path: Path, small_cluster: Mapping[str, str]
) -> None:
    """Interleaved: both make their plan, then both read it; so does a run without any."""
    book = tmp_path / "show.yml"
    book.write_text(SHOW.format(root=collection_root()), encoding="utf-8")
    values = {share: ("-e", json.dumps({"cluster_gate": {"share": share}})) for share in (0.3, 0.4)}

    def run(*arguments: str, playbook: str = Scenario.playbook) -> str:
        (done,) = _run(tmp_path, Scenario(arguments=arguments, playbook=playbook), small_cluster)
        assert done.code == 0, done.text
        return done.text

    assert "changed=1" in run()
    for message in values.values():
        assert "changed=1" in run(*message)
    # What was made for the values of others has not touched the plan of the inventory.
    assert "changed=0" in run()
    for share, message in values.items():
        assert f"share {share} of " in run(*message, playbook=str(book))
        assert "changed=0" in run(*message)
    assert "share 0.1 of plan" in run(playbook=str(book))
    # Values that change no plan share the inventory's.
    assert "share 0.1 of plan" in run("-e", "target=dgx-01", playbook=str(book))
    # Never planned: no other run's inputs take their place.
    scenario = Scenario(arguments=("-e", "node_health_enabled=true"), playbook=str(book))
    (early,) = _run(tmp_path, scenario, small_cluster)
    assert early.code != 0
    assert "there is no plan of this node yet" in " ".join(early.text.split())


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_healthy_inventory_passes(name: str, runs: dict[str, list[Run]]) -> None:
    for run in runs[name]:
        assert run.code == 0, run.text
        assert '"cluster small: 7 nodes, 32 GPUs, 2 racks"' in run.text
        assert "WARNING" not in run.text
        assert not run.contacted
        assert PASSWORD not in run.text


@pytest.mark.parametrize(
    ("limit", "host"), [((), "localhost"), (("--limit", "login-02"), "login-02")]
)
def test_one_host_is_enough_to_check_all(
    tmp_path: Path, small_cluster: Mapping[str, str], limit: tuple[str, ...], host: str
) -> None:
    """Ansible looks at each host of a play for each of its tasks: 2 s a check of 4,096 nodes."""
    (run,) = _run(tmp_path, Scenario(arguments=("--list-hosts", *limit)), small_cluster)
    assert run.code == 0, run.text
    assert re.findall(r"hosts \((\d+)\):\s+(\S+)", run.text) == [("1", host)]


def test_the_second_run_changes_nothing(runs: dict[str, list[Run]]) -> None:
    first, second = runs["twice"]
    assert "changed=1" in first.text
    assert "changed=0" in second.text


def test_the_cables_are_written_beside_the_plan(runs: dict[str, list[Run]]) -> None:
    run = runs["twice"][0]
    assert '"cables: 32 node-leaf, 16 leaf-leaf"' in run.text
    folder = run.plan / "fabric"
    # A BasePOD is flat for Slurm, and has no topology.
    names = {*FILES} - {"topology.conf", "topology.yaml"}
    assert {path.name for path in folder.iterdir()} == names
    plan = plan_from_data(json.loads((folder / "cables.json").read_text(encoding="utf-8")))
    assert len(plan.cables) == 48
    assert "dgx-04 mlx5_rail7" in (folder / "ibsim.net").read_text(encoding="utf-8")


def test_a_list_that_is_still_to_be_learned_is_no_mistake(tmp_path: Path) -> None:
    fabric = {
        "topology": "basepod",
        "leaf_switches": ["leaf-01", "leaf-02"],
        "cabling": {"source": "learned", "file": "learned.csv"},
    }
    data = {"cluster": {"fabric": fabric}, "nodes": [], "profiles": {}}
    found = find_cables(data, str(tmp_path))
    assert found.problems == ()
    assert found.plan is not None
    assert (list(found.plan.switches), found.plan.cables) == (["leaf-01", "leaf-02"], ())
    (warning,) = found.warnings
    assert "'learned.csv' is not there yet" in warning
    (tmp_path / "learned.csv").write_text(
        "from,from_port,to,to_port\nleaf-01,64,leaf-02,64\n", encoding="utf-8"
    )
    found = find_cables(data, str(tmp_path))
    assert found.warnings == ()
    assert found.plan is not None
    assert [cable.subject for cable in found.plan.cables] == ["cable:leaf-01/64--leaf-02/64"]
    # A folder in its place cannot be read, and is distinguished from what is not there.
    os.mkdir(tmp_path / "folder")
    fabric["cabling"] = {"source": "learned", "file": "folder"}
    found = find_cables(data, str(tmp_path))
    assert found.plan is None
    (problem,) = found.problems
    assert problem == (
        "all.cluster_fabric.cabling.file: 'folder' cannot be read (Is a directory); write the "
        "path of a readable file"
    )


def test_the_plan_is_written_in_check_mode_too(runs: dict[str, list[Run]]) -> None:
    (run,) = runs["all_at_once"]
    assert not run.plan.exists()
    folder = run.folder / "elsewhere" / "plan"
    text = (folder / "plan.json").read_text(encoding="utf-8")
    serials = [node["serial"] for node in json.loads(text)["nodes"] if node["serial"]]
    assert serials == ["S1-login-01", "S1-login-02"]
    assert PASSWORD not in text
    assert "10.1.0.103 dgx-03" in (folder / "hosts").read_text(encoding="utf-8")


def test_only_what_differs_is_written(tmp_path: Path) -> None:
    path = tmp_path / "plan" / "plan.json"
    folder = str(path.parent)
    assert write_texts(folder, {"plan.json": "a\n"}, ())
    inode = path.stat().st_ino
    assert not write_texts(folder, {"plan.json": "a\n"}, ())
    assert path.stat().st_ino == inode
    # A new file in its place: who reads the old one reads it to its end.
    assert write_texts(folder, {"plan.json": "b\n"}, ())
    assert path.stat().st_ino != inode
    assert write_texts(folder, {"plan.json": "longer\n"}, ())
    assert path.read_text(encoding="utf-8") == "longer\n"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [item.name for item in path.parent.iterdir()] == ["plan.json"]


def test_nothing_is_left_behind_when_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_source: str, _target: str, **_folders: int) -> None:
        raise OSError("disk full")

    path = tmp_path / "plan.json"
    assert write_texts(str(tmp_path), {"plan.json": "a\n"}, ())
    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="disk full"):
        write_texts(str(tmp_path), {"plan.json": "b\n"}, ())
    assert path.read_text(encoding="utf-8") == "a\n"
    assert [item.name for item in tmp_path.iterdir()] == ["plan.json"]


def test_a_thousand_files_are_not_a_thousand_looks_into_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda where: looks.append(where) or listdir(where))
    assert write_texts(str(tmp_path), {f"dgx-{number}.json": "a" for number in range(50)})
    assert len(looks) <= 2


def test_files_of_nodes_that_left_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "nodes"
    assert write_texts(str(folder), {"dgx-01.json": "one", "dgx-02.json": "two"})
    assert not write_texts(str(folder), {"dgx-01.json": "one", "dgx-02.json": "two"})
    assert write_texts(str(folder), {"dgx-01.json": "one"})
    assert [path.name for path in folder.iterdir()] == ["dgx-01.json"]


def test_only_files_of_ours_are_removed_where_others_may_lie(tmp_path: Path) -> None:
    ours = ("cables.csv", "ibsim.net")
    (tmp_path / "learned.csv").write_text("kept\n", encoding="utf-8")
    assert write_texts(str(tmp_path), {"cables.csv": "a", "ibsim.net": "b"}, ours)
    assert not write_texts(str(tmp_path), {"cables.csv": "a", "ibsim.net": "b"}, ours)
    assert write_texts(str(tmp_path), {}, ours)
    assert [path.name for path in tmp_path.iterdir()] == ["learned.csv"]
    assert not write_texts(str(tmp_path / "nothing"), {}, ours)


def test_a_plan_is_the_same_whatever_the_order_of_sets(tmp_path: Path) -> None:
    """Another order of an input is another plan: a run that changes nothing would be a change."""

    # These two give the sets of the plan's texts different orders.
    def planned(seed: str) -> dict[str, bytes]:
        folder = tmp_path / seed / "inventory"
        shutil.copytree(Path(collection_root()) / "inventories/core_12", folder)
        (folder / "group_vars/all/own.yml").write_text(
            'backup_repository: "sftp:copies@store.example.org:/srv/copies"\n'
            "backup_prometheus: true\n"
        )
        done = subprocess.run(
            ["ansible-playbook", "baremetal.dgx.check_inventory", "-i", str(folder)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        plan = folder / ".dgx/plan"
        return {
            str(path.relative_to(plan)): path.read_bytes()
            for path in plan.rglob("*")
            if path.is_file()
        }

    with ThreadPoolExecutor() as pool:
        one, two = pool.map(planned, ("1", "4"))
    assert len(one) > 20
    assert one == two


def test_the_state_of_another_operator_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its secrets are that user's alone, and a run would end in the middle."""
    (tmp_path / "plan").mkdir()
    owner = os.geteuid()
    assert _state_refusal(str(tmp_path)) == _state_refusal(str(tmp_path / "none")) == ""
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert _state_refusal(str(tmp_path)) == (
        f"{tmp_path}/plan: belongs to {pwd.getpwuid(owner).pw_name}, and what is in it may be read "
        f"or changed by that user alone; run as that user, or give all of {tmp_path} to user 54321"
    )
    # Of a folder that was made for the operator, what is in it counts.
    (tmp_path / "plan").rmdir()
    assert _state_refusal(str(tmp_path)) == ""
    # Root reads and changes what is another's.
    (tmp_path / "plan").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert _state_refusal(str(tmp_path)) == ""
