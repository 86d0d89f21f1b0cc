# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
    ToolError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm import commands as tools


def answering(**values):
    def run(argv, timeout_s=30, env=None):
        return CommandResult(tuple(argv), **{"outcome": ENDED, "rc": 0, **values})

    return run


def test_show():
    rows = tools.show(answering(out="a|1\nb|\n\n"), "qos", ("name", "priority"))
    assert rows == [{"name": "a", "priority": "1"}, {"name": "b", "priority": ""}]


@pytest.mark.parametrize("end", ["\x0b", "\x85", "\u2028", "\r"])
def test_the_description_of_an_account_ends_no_row(end):
    """Coordinators write it, who are users."""
    (row,) = tools.parse_table(f"physics|a{end}b|lab\n", ("account", "descr", "org"))
    assert row["descr"] == f"a{end}b"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"outcome": MISSING}, "sacctmgr is not installed"),
        ({"outcome": TIMED_OUT, "took_s": 60}, "slurmdbd cannot be asked for qos: `sacctmgr"),
        ({"rc": 1, "err": "sacctmgr: error: Connection refused"}, "error: Connection refused"),
    ],
)
def test_show_without_an_answer(values, message):
    with pytest.raises(tools.NoAnswerError, match=message):
        tools.show(answering(**values), "qos", ("name",))


def test_a_row_that_does_not_fit_is_an_error():
    with pytest.raises(ToolError, match="3 of 2 columns"):
        tools.show(answering(out="a|b|c"), "qos", ("name", "priority"))


@pytest.mark.parametrize(
    "values",
    [
        {"rc": 1, "out": " Nothing modified"},
        # seen with 24.11: an error, and 0
        {"rc": 0, "err": "sacctmgr: error: Invalid value for GraceTime (x)", "out": " Modified"},
        {"outcome": TIMED_OUT, "rc": -1, "took_s": 120},
    ],
)
def test_a_change_that_fails(values):
    with pytest.raises(ToolError, match="`sacctmgr modify qos` failed: "):
        tools.change(answering(**values), ["modify", "qos"])


def test_a_change_that_works():
    tools.change(answering(out=" Modified qos...\n  gpu"), ["modify", "qos"])


def test_queue():
    text = (
        "12|alice|vision|normal|RUNNING\n12|alice|vision|normal|PENDING\n13|bob|x|gpu|PENDING\nx\n"
    )
    jobs = tools.parse_queue(text)
    assert [job.job_id for job in jobs] == ["12", "13"]
    assert tools.name_jobs(jobs) == "12 (alice, RUNNING), 13 (bob, PENDING)"
    assert tools.name_jobs(jobs, 1) == "12 (alice, RUNNING) and 1 more"


def test_a_queue_that_cannot_be_read():
    with pytest.raises(tools.NoAnswerError, match="Unable to contact"):
        tools.queued_jobs(answering(rc=1, err="slurm_load_jobs error: Unable to contact"))
