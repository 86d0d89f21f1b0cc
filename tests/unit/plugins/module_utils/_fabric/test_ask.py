# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

import pytest
import yaml
from fabric_texts import DISCOVERY, DUPLICATE, ERRORS, GREETING, SAQUERY, SMINFO, STANDBY, STATES

from ansible_collections.baremetal.dgx.plugins.doc_fragments.fabric import ModuleDocFragment
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.ask import (
    KNOWN,
    PLAN,
    REPORT,
    SWEEP,
    Ask,
    ask_fabric,
    read_files,
)

GOOD = {
    "ibnetdiscover": (0, DISCOVERY, GREETING),
    "iblinkinfo": (0, STATES, GREETING),
    "ibqueryerrors": (1, ERRORS, GREETING),
    "sminfo": (0, SMINFO, ""),
    "saquery": (0, SAQUERY, ""),
    "sminfo 1": (0, SMINFO, ""),
    "sminfo 4": (0, STANDBY, ""),
}


class Tools:
    """A CommandRunner that answers from a table: (rc, out, err), or how the command ended."""

    def __init__(self, **changed):
        self.answers = {**GOOD, **changed}
        self.calls = []
        self.environments = []

    def __call__(self, argv, timeout_s=30, env=None):
        self.calls.append(list(argv))
        self.environments.append(env)
        words = " ".join([argv[0], *argv[3:]]) if "-C" in argv else " ".join(argv)
        key = words if words in self.answers else argv[0]
        answer = self.answers[key]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if answer in (MISSING, TIMED_OUT):
            return CommandResult(tuple(argv), answer, took_s=timeout_s)
        rc, out, err = answer
        return CommandResult(tuple(argv), ENDED, rc, out, err)


def test_one_discovery_and_its_cache_for_the_rest() -> None:
    tools, slept = Tools(), []
    ask = Ask(interval_s=60, outstanding=8, environment={"A": "b"}, options=("-C", "mlx5_rail0"))
    answers = ask_fabric(tools, ask, slept.append)
    assert answers.lost == []
    assert answers.observation.sweep.complaints == []
    names = [call[0] for call in tools.calls]
    assert names.count("ibnetdiscover") == 1
    assert names.count("ibqueryerrors") == 2
    cache = tools.calls[0][tools.calls[0].index("--cache") + 1]
    assert not os.path.exists(os.path.dirname(cache))
    for call in tools.calls:
        assert call[1:3] == ["-C", "mlx5_rail0"]
        if call[0] in ("iblinkinfo", "ibqueryerrors"):
            assert call[call.index("--load-cache") + 1] == cache
        if call[0] == "ibqueryerrors":
            # With --counters it prints no errors; without --skip-sl it crashes now and then.
            assert "--skip-sl" in call
            assert "--counters" not in call
            # The site's own thresholds are not those of the tool.
            assert call[call.index("--threshold-file") + 1] == "/dev/null"
    assert tools.environments == [{"A": "b"}] * len(tools.calls)
    assert len(slept) == 1
    assert 59 < slept[0] <= 60
    assert answers.raw["ibnetdiscover.stderr"] == GREETING
    assert [sm.state for sm in answers.observation.sms.sms] == ["MASTER", "STANDBY"]


def test_one_reading_where_no_interval_is_wanted() -> None:
    tools = Tools()
    answers = ask_fabric(tools, Ask(), lambda _s: None)
    assert answers.observation.before
    assert answers.observation.after is None


def test_a_discovery_that_is_not_there_or_hangs_ends_it() -> None:
    for how, why in ((MISSING, "not installed"), (TIMED_OUT, "did not end within 120 s")):
        tools = Tools(ibnetdiscover=how)
        answers = ask_fabric(tools, Ask())
        assert [call[0] for call in tools.calls] == ["ibnetdiscover"]
        assert answers.lost[0][0] == "ibnetdiscover"
        assert why in answers.observation.sweep.complaints[0]


def test_a_discovery_that_crashes_half_way_is_not_trusted() -> None:
    answers = ask_fabric(Tools(ibnetdiscover=(139, DISCOVERY[:900], "")), Ask())
    sweep = answers.observation.sweep
    assert sweep.devices
    assert "ended with 139" in sweep.complaints[0]
    assert len(sweep.complaints) > 1


def test_rc_0_without_an_answer_is_no_answer() -> None:
    answers = ask_fabric(Tools(ibnetdiscover=(0, "\n", "")), Ask())
    assert answers.observation.sweep.complaints == ["ibnetdiscover printed nothing"]


def test_what_is_said_on_standard_error_counts_with_rc_0() -> None:
    answers = ask_fabric(Tools(ibnetdiscover=(0, DISCOVERY, DUPLICATE + "odd\n")), Ask())
    assert answers.observation.sweep.duplicate_guids == ["946dae0300001011"]
    assert answers.observation.sweep.complaints == ["ibnetdiscover says: 'odd'"]


def test_without_states_absence_is_doubtful() -> None:
    answers = ask_fabric(Tools(iblinkinfo=MISSING), Ask())
    assert answers.observation.sweep.complaints == [
        "states of ports are not known: iblinkinfo is not installed"
    ]


def test_counters_that_crash_are_asked_for_again() -> None:
    tools = Tools(ibqueryerrors=[(139, "", ""), (1, ERRORS, "")])
    answers = ask_fabric(tools, Ask())
    assert answers.observation.before
    assert answers.lost == []
    answers = ask_fabric(Tools(ibqueryerrors=(139, "", "")), Ask(interval_s=5), lambda _s: None)
    assert answers.observation.before is None
    assert answers.observation.after is None
    assert "ended with 139" in answers.lost[0][1]


@pytest.mark.parametrize(
    ("out", "err", "rc"),
    [
        ("sminfo: iberror: failed: query\n", "Query SA failed: Connection timed out\n", 110),
        # Where there never was one.
        ("sminfo: iberror: failed: query\n", "sa_get_handle: No SM/SA found on port\n", 255),
    ],
)
def test_no_manager_is_an_answer(out: str, err: str, rc: int) -> None:
    tools = Tools(sminfo=(255, out, "ibwarn: _do_madrpc failed\n"), saquery=(rc, "", err))
    found = ask_fabric(tools, Ask()).observation.sms
    assert (found.sms, found.complaints, found.asked) == ([], [], True)


@pytest.mark.parametrize(
    "changed",
    [
        {"sminfo": TIMED_OUT},
        {"sminfo": MISSING},
        {"sminfo": (139, "", "")},
        {"sminfo": (255, "sminfo: iberror: failed: Failed to open '(null)' port '0'\n", "")},
        {"saquery": TIMED_OUT},
        # With a master there may be others that were not reported.
        {"saquery": (110, "", "Query SA failed: Connection timed out\n")},
    ],
)
def test_no_answer_is_not_no_manager(changed) -> None:
    answers = ask_fabric(Tools(**changed), Ask())
    assert len(answers.observation.sms.complaints) == 1
    assert answers.lost[0][0] in changed


def test_saved_answers_are_read() -> None:
    texts = {
        "ibnetdiscover": DISCOVERY,
        "ibnetdiscover.stderr": GREETING,
        "iblinkinfo": STATES,
        "ibqueryerrors": ERRORS,
        "ibqueryerrors-2": ERRORS,
        "sminfo": SMINFO,
        "saquery": SAQUERY,
        "sminfo-4": STANDBY,
    }
    answers = read_files(texts, 720)
    seen = answers.observation
    assert answers.cut == []
    assert seen.after
    assert seen.after.at_s == 720
    assert [sm.state for sm in seen.sms.sms] == ["MASTER", "STANDBY"]
    assert read_files({"ibnetdiscover": DISCOVERY[:900]}, 0).cut
    alone = read_files({"ibnetdiscover": DISCOVERY}, 0).observation
    assert (alone.before, alone.sms.asked) == (None, False)


@pytest.mark.parametrize(
    ("part", "spec"),
    [("DOCUMENTATION", REPORT), ("PLAN", PLAN), ("KNOWN", KNOWN), ("SWEEP", SWEEP)],
)
def test_shared_options_are_as_their_fragment_documents_them(part, spec):
    documented = yaml.safe_load(getattr(ModuleDocFragment, part))["options"]
    documented.pop("timeout_s", None)
    assert spec == {
        name: {key: value for key, value in option.items() if key != "description"}
        for name, option in documented.items()
    }
