# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""slurm_qos against a model of slurmdbd."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest
from sacctmgr_model import Sacctmgr

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import MISSING, CommandResult
from ansible_collections.baremetal.dgx.plugins.modules import slurm_qos


@pytest.fixture
def bring(run_module):
    def bring(database, check=False, **params):
        with patch.object(slurm_qos, "ModuleRunner", lambda _module: database):
            return run_module(slurm_qos.main, params, check)

    return bring


QOS = [
    {"name": "normal", "max_tres_per_user": {"gres/gpu": 32}},
    {"name": "fast", "priority": 9, "preempt": ["slow"], "flags": ["DenyOnLimit"]},
    {"name": "slow", "usage_factor": 0.1, "max_wall": "4:00:00"},
]


def test_check_then_real_then_again(bring):
    database = Sacctmgr()
    predicted = bring(database, check=True, qos=QOS)
    assert database.log == []
    done = bring(database, qos=QOS)
    assert predicted["commands"] == done["commands"] == database.log
    assert predicted["diff"] == done["diff"]
    assert done["changed_names"] == ["normal", "fast", "slow"]
    again = bring(database, qos=QOS)
    assert again["changed"] is False
    assert again["diff"] == []


def random_qos(dice):
    names = [f"q{number}" for number in range(dice.randint(0, 5))]
    dice.shuffle(names)
    entries = [{"name": "normal"}]
    for number, name in enumerate(names):
        entry = {"name": name, "preempt": dice.sample(names[:number], dice.randint(0, number))}
        if dice.random() < 0.5:
            entry["max_tres_per_user"] = {"gres/gpu": dice.randint(1, 9)}
        if dice.random() < 0.5:
            entry["max_wall"] = str(dice.randint(1, 5000))
        if dice.random() < 0.5:
            entry["flags"] = dice.sample(["NoDecay", "DenyOnLimit"], 1)
        entries.append(entry)
    dice.shuffle(entries)
    return entries


@pytest.mark.parametrize("seed", range(20))
def test_any_set_becomes_any_other(bring, seed):
    dice = random.Random(seed)
    database = Sacctmgr()
    for _round in range(4):
        entries = random_qos(dice)
        predicted = bring(database, check=True, qos=entries, exclusive=True)
        done = bring(database, qos=entries, exclusive=True)
        assert "failed" not in done, done["msg"]
        assert predicted["commands"] == done["commands"]
        assert bring(database, qos=entries, exclusive=True)["changed"] is False
        assert set(database.qos) == {entry["name"] for entry in entries}
        for entry in entries:
            assert database.qos[entry["name"]]["preempt"] == set(entry.get("preempt", ()))


def test_a_qos_of_others_stops_nothing(bring):
    """Its TRES need not be ones that anyone may declare."""
    database = Sacctmgr()
    bring(database, qos=[{"name": "theirs"}])
    database.qos["theirs"]["grp_tres"] = {"license/fluent@flex": 30, "license/a~b": 1}
    answer = bring(database, qos=QOS)
    assert answer["changed_names"] == ["normal", "fast", "slow"]
    assert bring(database, qos=QOS)["changed"] is False


def test_create_only(bring):
    database = Sacctmgr()
    answer = bring(database, qos=[{"name": "normal"}, QOS[2]], create_only=True)
    assert answer["commands"] == ["add qos slow usagefactor=0.1 maxwalldurationperjob=0-04:00:00"]
    changed = [{"name": "normal", "priority": 5}, {"name": "slow"}]
    assert bring(database, qos=changed, create_only=True)["changed"] is False
    # what is declared and left alone is not what is undeclared
    assert bring(database, qos=changed, create_only=True, exclusive=True)["changed"] is False
    assert bring(database, create_only=True, exclusive=True)["changed_names"] == ["slow"]


# Of squeue, where from 24.11 on a waiting job shows all that it names.
@pytest.mark.parametrize("named", ["slow", "fast,slow", "slow,fast"])
def test_what_is_used_is_not_removed(bring, named):
    database = Sacctmgr()
    bring(database, qos=QOS)
    database.queue = [f"7|bob|a|{named}|PENDING", "8|bob|a|slower,fast|PENDING"]
    database.log.clear()
    answer = bring(database, qos=[{"name": "slow", "state": "absent"}])
    assert answer["errors"] == ["qos.slow: cannot be removed while it has jobs: 7 (bob, PENDING)"]
    assert database.log == []


def test_a_stale_loop_of_slurmdbd_is_explained(bring):
    database = Sacctmgr()
    original = Sacctmgr._modify_qos

    def stale(self, conditions, pairs):
        if ["preempt", "slow"] in pairs:
            raise service_refusal
        original(self, conditions, pairs)

    from sacctmgr_model import RefusedError

    service_refusal = RefusedError("sacctmgr: error: QOS Preemption loop detected")
    with patch.object(Sacctmgr, "_modify_qos", stale):
        answer = bring(database, qos=QOS)
    assert answer["failed"]
    assert answer["msg"].endswith("systemctl restart slurmdbd, then run again")
    assert answer["changed"] is True


def test_a_virgin_host(bring):
    def missing(argv, timeout_s=30, env=None):
        return CommandResult(tuple(argv), MISSING)

    answer = bring(missing, check=True, qos=QOS)
    assert answer["changed"] is True
    assert "sacctmgr is not installed" in str(answer["warnings"])
    assert bring(missing, qos=QOS)["failed"]
