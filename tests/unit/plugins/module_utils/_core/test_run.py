# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ansible.module_utils import basic

from ansible_collections.baremetal.dgx.plugins.module_utils._core import run as plain
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
    ModuleRunner,
    last_lines,
)


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(basic, "_ANSIBLE_ARGS", b'{"ANSIBLE_MODULE_ARGS": {}}')
    monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
    return ModuleRunner(basic.AnsibleModule(argument_spec={}))


def test_a_command_that_ends(run):
    result = run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (result.outcome, result.rc, result.out, result.err) == (ENDED, 3, "out\n", "err\n")
    assert not result.ok
    assert result.text == "out\nerr"
    assert result.describe().endswith("ended with 3: out | err")


def test_words_are_not_expanded(run):
    assert run(["printf", "%s", "$HOME ~ *"]).out == "$HOME ~ *"


def test_the_locale_is_fixed_and_more_can_be_set(run):
    assert run(["sh", "-c", "echo $LC_ALL $X"], env={"X": "y"}).out == "C y\n"


SHORT = "/usr/bin:/bin"


@pytest.mark.parametrize("path", [SHORT, "", None])
def test_a_short_path_hides_no_program(run, monkeypatch, path):
    """That of cron, of su and of sudo's secure_path may lack the folders of administrators."""
    if path is None:
        monkeypatch.delenv("PATH")
    else:
        monkeypatch.setenv("PATH", path)
    for runner in (run, plain.run) if path == SHORT else (plain.run,):
        for argv in (["ldconfig", "-V"], ["sh", "-c", "ldconfig -V"]):
            assert runner(argv).ok, (runner, argv)
    assert plain.run(["sh", "-c", "echo $PATH"], env={"PATH": "/bin"}).out == "/bin\n"


def test_a_tool_that_is_not_installed(run):
    result = run(["no-such-tool", "-x"])
    assert result.outcome == MISSING
    assert not result.ok
    assert result.describe() == "no-such-tool is not installed"


def test_a_hang_is_no_return_code(run):
    started = time.monotonic()
    result = run(["sleep", "60"], timeout_s=0.3)
    assert time.monotonic() - started < 5
    assert (result.outcome, result.rc, result.ok) == (TIMED_OUT, -1, False)


def test_children_of_a_command_that_hangs_end_with_it(run, tmp_path):
    run(["sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait"], timeout_s=0.3)
    time.sleep(0.2)
    status = Path("/proc", (tmp_path / "pid").read_text().strip(), "status")
    # if it is not reaped, it stays behind as a zombie
    assert not status.exists() or "State:\tZ" in status.read_text()


def test_the_codes_of_timeout_are_believed_only_when_time_was_up(run):
    assert run(["sh", "-c", "exit 124"], timeout_s=30).rc == 124


def test_output_that_is_no_text(run):
    assert run(["printf", r"\377ok"]).out.endswith("ok")


def test_last_lines():
    assert last_lines("a\n\n b \nc\n", 2) == "b | c"
    assert last_lines("x" * 400, 1) == "x" * 300
    assert last_lines("", 3) == ""


def test_describe_a_silent_failure():
    assert CommandResult(("false",), ENDED, 1).describe() == "`false` ended with 1"


@pytest.mark.parametrize("given", [(), (b"a", b"bc"), (b"x" * 300_000, b"y")])
def test_what_is_given_is_read_to_its_end(given):
    """More than a pipe holds, by a command that answers before it has read all."""
    result = plain.run(["sh", "-c", "echo first; wc -c"], 20, given=given)
    assert result.out.split() == ["first", str(sum(map(len, given)))]
