# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of a host's inputs, and the plan that it is of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleLookupError

from ansible_collections.baremetal.dgx.plugins.lookup import plan_folder, plan_inputs
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory import run_plan

GROUPS = {"cluster": ["dgx-01", "dgx-02"]}


@pytest.fixture(autouse=True)
def extra(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What -e says."""
    said: dict[str, Any] = {}
    monkeypatch.setattr(run_plan, "load_extra_vars", lambda _loader: said)
    return said


def inputs(state: Path, host: str | None) -> str:
    variables = {"groups": GROUPS, **({"inventory_hostname": host} if host else {})}
    (path,) = plan_inputs.LookupModule().run([str(state)], variables)
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
