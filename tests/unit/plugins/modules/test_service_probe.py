# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from ansible_collections.baremetal.dgx.plugins.modules import service_probe

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
        return run_module(service_probe.main, params, check)

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
            {"name": "bad", "command": ["false"], "remedy": "mend it"},
        ],
    )
    assert answer["failed"]
    lines = answer["msg"].splitlines()
    assert lines == answer["findings"]
    assert lines[0].startswith("a.service is failed (exit-code 1): fatal: no such key; do: ")
    assert lines[1].startswith("hangs: not measured: `sleep 60` did not end within ")
    assert lines[2:] == [
        "missing: not measured: no-such-tool is not installed",
        "bad: `false` ended with 1; do: mend it",
    ]


@pytest.mark.parametrize(("ok", "failed"), [(True, False), (False, True)])
def test_what_was_not_measured_counts_unless_told_otherwise(probe, ok, failed):
    answer = probe(probes=[{"name": "missing", "command": ["no-such-tool"]}], not_measured_ok=ok)
    assert answer.get("failed", False) is failed
    assert len(answer["findings"]) == 1


def test_systemd_that_does_not_answer_is_no_finding_about_the_unit(probe, tmp_path):
    answer = probe(None, units=["a"])
    assert answer["records"][0]["status"] == "not_measured"
    assert answer["msg"].startswith("a.service: not measured: systemd does not answer: ")


def test_check_mode_never_fails(probe):
    answer = probe(FAILED, units=["a"], check=True)
    assert "failed" not in answer
    assert answer["msg"] == "check mode: 1 findings are reported and do not fail the task"
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
            "probes: p: expect is no regular expression",
        ),
    ],
)
def test_parameters(probe, params, message):
    assert probe(**params)["msg"].startswith(message)


def test_a_unit_that_need_not_be_enabled():
    assert service_probe.parse_units([{"name": "a", "enabled": "no"}, "b.timer"]) == {
        "a.service": False,
        "b.timer": True,
    }
