# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The collectors of metrics, each as one file, made on the controller."""

from __future__ import annotations

import functools

from ansible_collections.baremetal.dgx.plugins.module_utils import (
    _cable_labels,
    _fabric_absent,
    _fabric_answers,
    _fabric_collect,
    _fabric_collector,
    _fabric_counters,
    _fabric_findings,
    _fabric_judge,
    _fabric_match,
    _fabric_metrics,
    _fabric_model,
    _fabric_places,
    _fabric_rates,
    _fabric_sm,
    _fabric_sweep,
    _fabric_wiring,
    _health_children,
    _health_state,
    _lock,
    _metrics,
    _nodeset,
    _program,
    _records,
    _run,
    _run_alone,
    _slurm_collector,
    _slurm_metrics,
    _slurm_state,
    _slurm_tools,
    _slurm_use,
)

_COMMON = (_health_children, _health_state, _lock, _metrics, _records, _run, _run_alone)
# Name -> the module with main, and all that it needs.
PROGRAMS = {
    "slurm": (
        _slurm_collector,
        (
            *_COMMON, _nodeset, _slurm_collector, _slurm_metrics, _slurm_state, _slurm_tools,
            _slurm_use,
        ),
    ),
    "fabric": (
        _fabric_collector,
        (
            *_COMMON, _cable_labels, _fabric_absent, _fabric_answers, _fabric_collect,
            _fabric_collector, _fabric_counters, _fabric_findings, _fabric_judge, _fabric_match,
            _fabric_metrics, _fabric_model, _fabric_places, _fabric_rates, _fabric_sm,
            _fabric_sweep, _fabric_wiring,
        ),
    ),
}  # fmt: skip


@functools.lru_cache(maxsize=8)
def program(name: str, python: str = "/usr/bin/python3") -> bytes:
    """Return a collector: the same bytes for the same sources. KeyError for an unknown name."""
    main, modules = PROGRAMS[name]
    start = _program.start_of(main.__name__)
    return f"#!{python} -IS\n".encode("ascii") + _program.archive(_program.sources(modules), start)
