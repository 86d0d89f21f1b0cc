# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import time

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._host.units import ask
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units import plan as _units
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units import (
    systemd as _units_host,
)
from ansible_collections.baremetal.dgx.plugins.modules import service_check

SYSTEMCTL = """\
#!/bin/sh
case "$1" in
show) cat "$(dirname "$0")/state" ;;
*) exit 9 ;;
esac
"""
JOURNALCTL = """\
#!/bin/sh
echo 'fatal: no such key'
"""
RUNNING = (
    "Id=a.service\nLoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\n"
)
FAILED = (
    "Id=a.service\nLoadState=loaded\nActiveState=failed\nSubState=failed\nResult=exit-code\n"
    "ExecMainStatus=1\nUnitFileState=enabled\n"
)


@pytest.fixture
def probe(run_module, tmp_path, monkeypatch):
    """Runs the module against a systemctl that says what `state` says."""

    def probe(state="", check=False, **params):
        for name, text in (("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL)):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        if state is not None:
            (tmp_path / "state").write_text(state)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return run_module(service_check.main, params, check)

    return probe


def test_all_is_well(probe):
    answer = probe(
        RUNNING,
        units=["a"],
        probes=[{"name": "says hello", "command": ["echo", "hello"], "expect": "^hello$"}],
    )
    assert answer["changed"] is False
    assert answer["findings"] == []
    assert [rec["status"] for rec in answer["records"]] == ["pass"] * 3


def test_every_finding_has_its_line(probe):
    answer = probe(
        FAILED,
        units=["a.service"],
        probes=[
            {"name": "hangs", "command": ["sleep", "60"], "timeout_s": 0.2},
            {"name": "missing", "command": ["no-such-tool"]},
            {"name": "good", "command": ["true"]},
            {"name": "bad", "command": ["false"], "remedy": "repair it"},
        ],
    )
    assert answer["failed"]
    lines = answer["msg"].splitlines()
    assert lines == answer["findings"] + answer["not_measured"]
    assert lines[0].startswith(
        "unit:a.service service.running is failed (exit-code 1): fatal: no such key; do: "
    )
    assert lines[1] == "probe:bad service.answers: `false` ended with 1; do: repair it"
    assert lines[2].startswith(
        "probe:hangs service.answers not measured: `sleep 60` did not end within "
    )
    assert lines[3:] == [
        "probe:missing service.answers not measured: no-such-tool is not installed"
    ]


@pytest.mark.parametrize(("on", "failed"), [(["fail"], False), (["fail", "not_measured"], True)])
def test_what_was_not_measured_counts_unless_told_otherwise(probe, on, failed):
    answer = probe(probes=[{"name": "missing", "command": ["no-such-tool"]}], fail_on=on)
    assert answer.get("failed", False) is failed
    assert len(answer["not_measured"]) == 1


def test_systemd_that_does_not_answer_is_no_finding_about_the_unit(probe, tmp_path):
    answer = probe(None, units=["a"])
    assert answer["records"][0]["status"] == "not_measured"
    assert answer["msg"].startswith(
        "unit:a.service service.running not measured: systemd does not answer: "
    )


def again(up_s, restarts=3):
    """A unit that systemd has started again."""
    entered = int((time.monotonic() - up_s) * 1e6)
    return f"{RUNNING}NRestarts={restarts}\nActiveEnterTimestampMonotonic={entered}\n"


def test_a_unit_that_was_started_again_is_believed_after_a_minute(probe):
    assert "failed" not in probe(again(59.5), units=["a"])
    assert "failed" not in probe(again(100), units=["a"])


def test_a_crash_loop_met_between_two_crashes_is_a_finding(probe, monkeypatch, tmp_path):
    def dies_again(_seconds):
        (tmp_path / "state").write_text(again(1, restarts=4))

    monkeypatch.setattr(ask.time, "sleep", dies_again)
    answer = probe(again(12), units=["a"])
    assert answer["failed"]
    assert answer["msg"].startswith(
        "unit:a.service service.running is active (running): systemd had to start it again 4 "
        "times, the last time"
    )
    assert "fatal: no such key; do: journalctl -u a.service" in answer["msg"]


def test_a_daemon_with_other_files_than_those_on_disk_is_a_finding(probe, monkeypatch, tmp_path):
    monkeypatch.setattr(_units_host, "STAMP_FOLDER", str(tmp_path / "applied"))
    conf = tmp_path / "a.conf"
    conf.write_text("one")
    state = "Id=a.service\nLoadState=loaded\nActiveState=active\nSubState=running\nType=notify\n"
    state += "UnitFileState=enabled\nInvocationID=one\nMainPID=7\nCanReload=yes\n"
    now = _units.parse_show(state, ["a.service"], 0, 0)["a.service"]
    want = _units.Wanted("a.service", reload_on=(str(conf),))
    stamp = _units.stamp_of(want, _units_host.on_disk(want, now), now, pending=False)
    _units_host.write_stamp("a.service", stamp)
    answer = probe(state, units=["a"])
    assert [rec["check"] for rec in answer["records"]] == [
        "service.running",
        "service.enabled",
        "service.files",
    ]
    assert answer["findings"] == []
    conf.write_text("two")
    answer = probe(state, units=["a"])
    (finding,) = answer["findings"]
    assert finding.startswith(
        "unit:a.service service.files: it may run with other files than those on disk: "
        f"{conf} changed; do: run the"
    )
    assert answer["failed"]


def test_check_mode_never_fails(probe):
    answer = probe(FAILED, units=["a"], check=True)
    assert "failed" not in answer
    assert answer["msg"] == "check mode: this does not fail the task"
    assert answer["records"][0]["status"] == "fail"


def test_it_asks_again_while_time_is_left(probe, tmp_path):
    script = f"echo x >> {tmp_path}/asked; test $(wc -l < {tmp_path}/asked) -ge 2"
    probes = [{"name": "comes up", "command": ["sh", "-c", script]}]
    assert probe(probes=probes)["failed"]
    (tmp_path / "asked").unlink()
    assert "failed" not in probe(probes=probes, wait_s=10)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"units": [3]}, "units: 3 is neither a name nor a dict of name and enabled"),
        ({"units": [{"nam": "a"}]}, "units: {'nam': 'a'} is neither"),
        (
            {"probes": [{"name": "p", "command": ["true"], "expect": "("}]},
            "probes: p: expect is not a regular expression",
        ),
    ],
)
def test_parameters(probe, params, message):
    assert probe(**params)["msg"].startswith(message)


def test_a_unit_that_need_not_be_enabled():
    assert ask.parse_units([{"name": "a", "enabled": "no"}, "b.timer"]) == {
        "a.service": False,
        "b.timer": True,
    }


def test_a_host_on_which_nothing_is_to_run_is_no_failure(run_module):
    answer = run_module(service_check.main, {"units": [], "probes": []})
    assert not answer.get("failed")
    assert answer["verdict"] == "not_measured"
