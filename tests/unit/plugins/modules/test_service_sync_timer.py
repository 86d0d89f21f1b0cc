# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""service_sync on a timer, whose service systemd must know as it lies on disk."""

from __future__ import annotations

import test_service_sync as units

from ansible_collections.baremetal.dgx.plugins.module_utils._units import Wanted

host = units.host


def test_what_a_timer_starts_is_read_anew_too(host):
    host.add("check.timer", running=True)
    job = host.add("check.service")
    timer = Wanted("check.timer", enabled=True)
    units.sync(host, timer)
    job.definition.write_text("[Service]\nExecStart=/bin/x --new\n")
    assert units.sync(host, timer, check=True).actions == ["daemon-reload"]
    outcome = units.sync(host, timer)
    assert outcome.actions == ["daemon-reload"]
    assert set(outcome.after) == {"check.timer"}
    assert job.loaded_definition == job.definition.read_text()
    assert job.starts == 0
    assert units.sync(host, timer).actions == []
