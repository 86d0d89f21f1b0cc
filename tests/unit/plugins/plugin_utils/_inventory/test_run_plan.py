# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which plan a run writes and reads: that of the inventory, or one for its -e values."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory import run_plan
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.run_plan import (
    folder_of_run,
    folder_to_read,
    folder_to_write,
    own_folder,
    planned_by,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import Inventory

ROLES = ("prometheus", "slurm_controller")


@pytest.mark.parametrize(
    ("extra", "names", "found"),
    [
        ({}, (), []),
        ({"target": "dgx-01", "level": "quick"}, (), []),
        # It says where plans are.
        ({"cluster_state_dir": "/srv/x"}, (), []),
        ({"node_profile": "dgx_b200", "cluster_gate": {}}, (), ["cluster_gate", "node_profile"]),
        ({"slurm_controller_options": {}}, (), ["slurm_controller_options"]),
        ({"monitoring_ceph": []}, (), ["monitoring_ceph"]),
        # The inventory says `node_profile: "{{ generation }}"`.
        ({"generation": "b200", "target": "dgx-01"}, ("generation",), ["generation"]),
    ],
)
def test_which_values_change_a_plan(
    extra: Mapping[str, object], names: tuple[str, ...], found: list[str]
) -> None:
    assert planned_by(extra, ROLES, names) == found


def test_runs_with_different_values_write_and_read_apart(tmp_path: Path) -> None:
    state = str(tmp_path)
    values: list[dict[str, object]] = [{}, {"cluster_name": "a"}, {"cluster_name": "b"}]
    written = [folder_to_write(state, extra, ROLES, ()) for extra in values]
    assert written[0] == str(tmp_path / "plan")
    assert len(set(written)) == 3
    assert [folder_to_read(state, extra, ROLES) for extra in values] == written


def test_the_folder_is_the_same_wherever_the_state_is_said(tmp_path: Path) -> None:
    given = {"cluster_name": "a"}
    with_place = {"cluster_state_dir": str(tmp_path), **given}
    assert own_folder(str(tmp_path), given) == own_folder(str(tmp_path), with_place)


def test_what_only_the_inventory_refers_to_is_read_where_it_was_written(tmp_path: Path) -> None:
    state, extra = str(tmp_path), {"generation": "b200"}
    own = folder_to_write(state, extra, ROLES, ("generation",))
    assert own != str(tmp_path / "plan")
    assert folder_to_read(state, extra, ROLES) == own
    # The inventory was edited, and no longer refers to it.
    assert folder_to_write(state, extra, ROLES, ()) == str(tmp_path / "plan")
    assert folder_to_read(state, extra, ROLES) == str(tmp_path / "plan")


def test_a_plan_that_was_never_made_is_not_replaced_by_another(tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    extra = {"cluster_name": "a"}
    assert folder_to_read(str(tmp_path), extra, ROLES) == own_folder(str(tmp_path), extra)


def test_names_of_values_are_for_the_owner_alone(tmp_path: Path) -> None:
    folder_to_write(str(tmp_path), {"cluster_name": "a"}, ROLES, ())
    assert (tmp_path / "extra_plans").stat().st_mode & 0o777 == 0o700


def test_what_is_not_used_for_a_month_goes(tmp_path: Path) -> None:
    old, recent, mine = ({"cluster_name": name} for name in ("old", "recent", "mine"))
    folders = [folder_to_write(str(tmp_path), extra, ROLES, ()) for extra in (old, recent, mine)]
    for folder, days in zip(folders, (31, 29, 31), strict=True):
        (Path(folder) / "plan.json").write_text("{}", encoding="utf-8")
        os.utime(folder, times=(time.time() - days * 86400,) * 2)
    assert folder_to_write(str(tmp_path), mine, ROLES, ()) == folders[2]
    assert [os.path.isdir(folder) for folder in folders] == [False, True, True]


def test_a_vaulted_value_stays_closed(tmp_path: Path) -> None:
    class EncryptedString:
        """As ansible-core 2.19 has it."""

        def __str__(self) -> str:
            raise AssertionError("opened")

    values = [EncryptedString(), EncryptedString()]
    found = {own_folder(str(tmp_path), {"slurm_base_key": value}) for value in values}
    assert len(found) == 1


def test_templates_name_what_they_refer_to(
    collected: Callable[..., Inventory], small_cluster: Mapping[str, str]
) -> None:
    files = {
        **small_cluster,
        "group_vars/gpu_nodes/zz.yml": (
            'node_serial: "{{ direct }}-{{ over }}"\n'
            "over: \"{{ lookup('env', indirect) }}\"\n"
            'indirect: "{{ last }}"\n'
            'unused: "{{ elsewhere }}"\n'
        ),
    }
    names = collected(files, {"last": "HOME", "direct": "S"}).names
    assert {"direct", "over", "indirect", "last"} <= names
    assert names.isdisjoint({"elsewhere", "unused", "groups", "target"})


def test_the_running_process_is_asked_for_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = DataLoader()
    monkeypatch.setattr(run_plan, "load_extra_vars", lambda _loader: {})
    assert folder_of_run(str(tmp_path), loader) == str(tmp_path / "plan")
    extra = {"prometheus_enabled": True}
    monkeypatch.setattr(run_plan, "load_extra_vars", lambda _loader: extra)
    assert folder_of_run(str(tmp_path), loader) == own_folder(str(tmp_path), extra)
