# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""fio's JSON, in the form of each supported release."""

from __future__ import annotations

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ENDED, CommandResult
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.fio import (
    WRITE,
    Step,
    judge_step,
    parse,
    questions_of,
)

FORMS = FIXTURES / "fio"
RELEASES = ["3.28", "3.30", "3.33", "3.36", "3.36-note", "3.39"]


@pytest.mark.parametrize("release", RELEASES)
def test_the_form_of_every_supported_release(release: str) -> None:
    text = (FORMS / f"write-{release}.json").read_text(encoding="utf-8")
    answer = parse(text)
    assert answer.version == f"fio-{release.split('-')[0]}"
    assert answer.mb_s == {"read": 0.0, "write": 6442.5}
    assert answer.bytes == {"read": 0, "write": 64424509440}
    assert answer.p99_ms == {"read": 0.0, "write": 7.2}
    step = Step(WRITE, ("fio",), 60)
    result = CommandResult(("fio",), ENDED, 0, text)
    (record,) = judge_step("dgx-01", "/raid", step, result, questions_of({}, ""))
    assert (record.check, record.status) == ("fio.write", "pass")


@pytest.mark.parametrize("release", RELEASES)
def test_an_answer_that_is_cut_short_is_not_measured(release: str) -> None:
    text = (FORMS / f"write-{release}.json").read_text(encoding="utf-8")
    result = CommandResult(("fio",), ENDED, 0, text[: len(text) // 2])
    step = Step(WRITE, ("fio",), 60)
    (record,) = judge_step("dgx-01", "/raid", step, result, questions_of({}, ""))
    assert record.status == "not_measured"
