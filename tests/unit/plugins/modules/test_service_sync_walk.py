# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random histories of a host; without each rule of service_sync they break (soak: 1,000)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import systemd_walk

from ansible_collections.baremetal.dgx.plugins.module_utils._host.units import apply as _units_apply
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units import plan as _units

in_use, plan_unit = _units.in_use, _units.plan_unit


def by_content(now, stamp, known, disk, by_reload):
    """What was on record counts, though the files may have been others in between."""
    if known is not None and _units.same_content(known, disk):
        return True
    return in_use(now, stamp, known, disk, by_reload)


def by_process(now, stamp, known, disk, by_reload):
    """The same process counts, though another hand may have had it read its files again."""
    if known is not None and stamp.invocation_id == now.invocation_id and not stamp.pending:
        return _units.same_content(known, disk)
    return in_use(now, stamp, known, disk, by_reload)


def by_time(now, stamp, known, disk, by_reload):
    """Only a start after the last change counts: this restarts without cause."""
    return in_use(now, None, None, disk, by_reload)


def without_proof(*args):
    """What was started must stay up for a moment, whatever it did before."""
    plan = plan_unit(*args)
    return replace(plan, prove_s=2.0 if plan.starts or plan.actions else 0.0)


def test_a_hundred_random_histories():
    assert systemd_walk.first_broken(range(100)) == ""


@pytest.mark.parametrize(
    ("owner", "name", "rule", "words"),
    [
        pytest.param(_units, "in_use", by_content, "it is active with", id="A-B-A"),
        pytest.param(_units, "in_use", by_process, "it is active with", id="reload by others"),
        pytest.param(_units, "in_use", by_time, "", id="restarts without cause"),
        pytest.param(_units_apply, "plan_unit", without_proof, "again and again", id="crash loop"),
    ],
)
def test_the_walk_finds_what_each_rule_is_for(monkeypatch, owner, name, rule, words):
    monkeypatch.setattr(owner, name, rule)
    broken = systemd_walk.first_broken(range(300))
    assert broken
    assert words in broken
