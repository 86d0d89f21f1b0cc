# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of a host's inputs, and the plan that it is of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleLookupError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from ansible_collections.baremetal.dgx.plugins.lookup import plan_folder, plan_inputs
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory import (
    run_plan,
    templates,
)

trusted = templates.trusted
GROUPS = {"cluster": ["dgx-01", "dgx-02"]}


@pytest.fixture(autouse=True)
def extra(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What -e says."""
    result: dict[str, Any] = {}
    monkeypatch.setattr(run_plan, "load_extra_vars", lambda _loader: result)
    # Here Ansible's loaders know no collection.
    monkeypatch.setattr(plan_inputs, "load_ahead", lambda: None)
    return result


def inputs(state: Path, host: str | None) -> str:
    variables = {"groups": GROUPS, **({"inventory_hostname": host} if host else {})}
    (path,) = plan_inputs.LookupModule(DataLoader()).run([str(state)], variables)
    return path


def test_a_host_with_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan/inputs/dgx-01.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}", encoding="utf-8")
    assert inputs(tmp_path, "dgx-01") == str(path)
    with pytest.raises(AnsibleLookupError, match="there is no plan of this node yet; run"):
        inputs(tmp_path, "dgx-02")


@pytest.mark.parametrize("host", [None, "localhost", "backup-01"])
def test_hosts_that_are_not_of_the_cluster_need_none(tmp_path: Path, host: str | None) -> None:
    assert not Path(inputs(tmp_path, host)).exists()


def test_values_that_change_the_plan_have_a_plan_of_their_own(
    tmp_path: Path, extra: dict[str, Any]
) -> None:
    lookup = plan_folder.LookupModule()
    assert lookup.run([str(tmp_path)], {}) == [str(tmp_path / "plan")]
    extra["cluster_name"] = "b"
    (own,) = lookup.run([str(tmp_path)], {})
    assert Path(own).parent == tmp_path / "extra_plans"
    (Path(own) / "inputs").mkdir(parents=True)
    (Path(own) / "inputs/dgx-01.json").write_text("{}", encoding="utf-8")
    assert inputs(tmp_path, "dgx-01") == f"{own}/inputs/dgx-01.json"


@pytest.mark.parametrize(
    "result",
    [
        {"inventory_dir": "{place}"},
        {"cluster_state_dir": "{place}/.dgx"},
        {"inventory_dir": "/elsewhere", "cluster_state_dir": "{place}/.dgx"},
        {"place": "{place}", "cluster_state_dir": "{{{{ place }}}}/.dgx"},
    ],
)
def test_the_folder_is_that_of_the_inventory(tmp_path: Path, result: dict[str, str]) -> None:
    path = tmp_path / ".dgx/plan/inputs/dgx-01.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}", encoding="utf-8")
    known = {name: trusted(value.format(place=tmp_path)) for name, value in result.items()}
    known |= {"groups": GROUPS, "inventory_hostname": "dgx-01"}
    loader = DataLoader()
    lookup = plan_inputs.LookupModule(loader, Templar(loader=loader, variables=known))
    assert lookup.run([], known) == [str(path)]


def test_the_file_is_read_once(tmp_path: Path) -> None:
    """As Ansible asks for each entry of vars_files, and does so for every task."""
    path = tmp_path / "plan/inputs/dgx-01.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"slurm_base_version": "25.05"}', encoding="utf-8")
    loader = DataLoader()
    known = {"groups": GROUPS, "inventory_hostname": "dgx-01"}
    for _task in range(2):
        (found,) = plan_inputs.LookupModule(loader).run([str(tmp_path)], known)
        inputs = loader.load_from_file(found, cache="vaulted", unsafe=True)
        assert inputs == {"slurm_base_version": "25.05"}
        path.write_text("{}", encoding="utf-8")


# A worker is a fork: it has what the process above has imported, and cannot hand anything back.
AHEAD = """
import multiprocessing, re, sys
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder
_AnsibleCollectionFinder(paths=[sys.argv[1]])._install()
from ansible_collections.baremetal.dgx.plugins.plugin_utils._templating.ahead import load_ahead

def loaded():
    # ansible-cores add a number before or after the name.
    ends = ("filter.node_address", "test.([0-9]+_)?core", "action.normal", "lookup.ssh_arguments")
    return sum(any(re.search(".plugins." + end, name) for name in sys.modules) for end in ends)

fork = multiprocessing.get_context("fork")
worker = fork.Process(target=lambda: sys.exit(load_ahead() or loaded()))
worker.start()
worker.join()
print(worker.exitcode, loaded())
load_ahead()
print(loaded())
"""


def test_plugins_are_loaded_before_the_fork_and_not_in_it() -> None:
    root = Path(__file__).resolve().parents[4] / ".cache" / "collections"
    done = subprocess.run(
        [sys.executable, "-c", AHEAD, str(root)], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["0 0", "4"], done.stderr
