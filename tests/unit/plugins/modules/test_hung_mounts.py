# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules that touch a path of the inventory's, on a mount that never answers."""

from __future__ import annotations

import time

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core import hang
from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import write_files
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ToolError
from ansible_collections.baremetal.dgx.plugins.module_utils._host.accounts import apply as _accounts
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units import (
    systemd as _units_host,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units.plan import (
    UnitState,
    Wanted,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate import states as _states
from ansible_collections.baremetal.dgx.plugins.module_utils._storage import ask_fio
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.fio import Place
from ansible_collections.baremetal.dgx.plugins.modules import (
    evidence_add,
    fabric_pairs,
    fabric_verify,
    fio_check,
    gpu_burn,
    local_repository,
    nccl_groups,
    node_parts,
    run_lock,
    slurm_config,
    slurm_config_check,
    slurm_plugin_build,
    slurm_plugstack,
    slurm_saved_state,
    system_accounts,
)

# Module -> its options, with the path that may be on a mount.
ON_MOUNTS = {
    slurm_saved_state: lambda dead: {"path": f"{dead}/state", "version": "24.11"},
    local_repository: lambda dead: {
        "path": f"{dead}/debs", "sha256": "0" * 64, "destination": "/nonexistent/x",
    },
    evidence_add: lambda dead: {
        "folder": f"{dead}/evidence", "state": "begun", "playbook": "validate_nodes",
    },
    slurm_config: lambda dead: {
        "version": "24.11", "cluster_name": "c", "controllers": ["ctl"], "dest": f"{dead}/slurm",
        "nodes": [{
            "name": "n1", "cpus": 4, "sockets": 1, "cores_per_socket": 4, "threads_per_core": 1,
            "real_memory_mb": 4000,
        }],
        "partitions": [{"name": "p", "nodes": ["n1"]}],
    },
    node_parts: lambda dead: {
        "path": f"{dead}/dgx-07.json", "node": "dgx-07", "replaced": ["gpu:3"],
    },
    run_lock: lambda dead: {"name": "upgrade", "owner": "ctl-1", "folder": f"{dead}/runs"},
    slurm_plugin_build: lambda dead: {
        "source": f"{dead}/pyxis", "destination": "/nonexistent/x", "plugin": "spank_pyxis.so",
    },
    slurm_plugstack: lambda dead: {
        "line": "required /opt/x.so", "folders": [f"{dead}/slurm"], "wait_s": 0,
    },
    slurm_config_check: lambda dead: {
        "files": {"slurm.conf": "ClusterName=c"}, "installed": f"{dead}/slurm",
    },
    gpu_burn: lambda dead: {"folder": f"{dead}/burn", "node": "dgx-01"},
    fabric_pairs: lambda dead: {"plan_file": f"{dead}/cables.json", "output": f"{dead}/pairs"},
    fabric_verify: lambda dead: {"plan_file": f"{dead}/cables.json"},
    nccl_groups: lambda dead: {"plan": {"hcas": []}, "output": f"{dead}/groups"},
    system_accounts: lambda dead: {
        "users": [{"name": "nosuchuser", "uid": 64123, "home": f"{dead}/home/nosuchuser"}]
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("module", ON_MOUNTS, ids=lambda one: one.__name__.rpartition(".")[2])
def test_modules_that_work_on_shared_storage_give_it_up(
    module, run_module, hung_mount, monkeypatch
):
    real = hang.parts_of
    monkeypatch.setattr(hang, "parts_of", lambda work, _limit_s: real(work, 0.5))
    begun = time.monotonic()
    result = run_module(module.main, ON_MOUNTS[module](hung_mount), True)
    assert time.monotonic() - begun < 15
    assert result["failed"] is True
    assert f"{hung_mount} (fuse.hung, storage:/dead) does not answer" in result["msg"]


def test_a_mount_that_goes_after_the_first_look_is_given_up_too(
    run_module, hung_mount, monkeypatch
):
    real = hang.parts_of
    monkeypatch.setattr(hang, "parts_of", lambda work, _limit_s: real(work, 0.5))
    for module, owner in ((local_repository, local_repository), (system_accounts, _accounts)):
        monkeypatch.setattr(owner, "touch", lambda *_words: None)
        result = run_module(module.main, ON_MOUNTS[module](hung_mount))
        assert f"{hung_mount} (fuse.hung, storage:/dead) does not answer" in result["msg"], module


def test_fio_check_whose_mount_goes_while_it_works_has_measured_nothing(
    run_module, hung_mount, monkeypatch
):
    real = hang.parts_of
    monkeypatch.setattr(hang, "parts_of", lambda work, _limit_s: real(work, 0.5))
    monkeypatch.setattr(ask_fio, "look", lambda _folder: Place(1 << 40, 1 << 40, "/x", "xfs"))
    options = {"folder": str(hung_mount), "tool": "true", "node": "dgx-01", "fail_on": []}
    result = run_module(fio_check.main, options)
    assert result["verdict"] == "not_measured"
    assert f"{hung_mount} (fuse.hung, storage:/dead) does not answer" in str(result["records"])


def test_what_a_service_reads_on_a_dead_mount_is_named(hung_mount, monkeypatch):
    real = hang.parts_of
    monkeypatch.setattr(hang, "parts_of", lambda work, _limit_s: real(work, 0.5))
    want = Wanted("slurmctld.service", restart_on=(f"{hung_mount}/key",))
    now = UnitState("slurmctld.service")
    with pytest.raises(ToolError, match="does not answer"):
        _units_host.on_disk(want, now)


def test_the_gate_does_not_wait_for_the_state_of_slurmctld(hung_mount, monkeypatch):
    real = hang.parts_of
    monkeypatch.setattr(hang, "parts_of", lambda work, _limit_s: real(work, 0.5))
    with pytest.raises(ToolError, match="does not answer"):
        _states.has_run_here(f"{hung_mount}/state")


def test_what_was_measured_for_hours_is_not_waited_for_in_vain(hung_mount, monkeypatch):
    real = hang.parts_of
    monkeypatch.setattr(hang, "parts_of", lambda work, _limit_s: real(work, 0.5))
    with pytest.raises(ToolError, match="does not answer"):
        write_files(f"{hung_mount}/out", {"records.json": "[]"})
