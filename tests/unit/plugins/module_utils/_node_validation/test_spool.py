# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers that come as lines which are cut, doubled, mixed and late."""

from __future__ import annotations

import json
import random

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.spool import (
    Spool,
    beat_of,
    lines_of,
)

RUN = "0123456789abcdef"


def answer(size: int = 300, seed: int = 1) -> dict[str, object]:
    """An answer that does not compress to one line."""
    numbers = random.Random(seed)
    return {"verdict": "pass", "records": [{"text": f"{numbers.random()}"} for _one in range(size)]}


def fed(lines: list[tuple[str, str]]) -> Spool:
    spool = Spool(RUN)
    for source, line in lines:
        spool.feed(source, line)
    return spool


def test_lines_are_short_enough_to_stay_whole_beside_those_of_others() -> None:
    lines = lines_of(RUN, "a-rather-long-name-of-a-node-0001", "gpu_health", answer())
    assert len(lines) > 5
    assert max(map(len, lines)) < 1000


def test_order_and_copies_change_nothing() -> None:
    wanted = answer()
    lines = [("dgx-01", line) for line in lines_of(RUN, "dgx-01", "gpu_health", wanted)]
    random.Random(7).shuffle(lines)
    spool = fed([*lines, *lines])
    assert spool.answer("dgx-01", "gpu_health") == wanted
    assert spool.count("dgx-01") == 1


def test_an_answer_that_lacks_a_line_is_none_until_the_line_comes() -> None:
    first, *rest = lines_of(RUN, "dgx-01", "nccl", answer())
    spool = fed([("dgx-01", line) for line in rest])
    assert spool.answer("dgx-01", "nccl") is None
    assert spool.torn("dgx-01", "nccl") == f"only {len(rest)} lines of its answer came whole"
    spool.feed("dgx-01", first)
    assert spool.answer("dgx-01", "nccl") == answer()


@pytest.mark.parametrize("at", [0, 1, 40, 100, -1, -12])
def test_a_line_that_is_cut_or_changed_is_no_line(at: int) -> None:
    line = lines_of(RUN, "dgx-01", "nccl", {"verdict": "pass"})[0]
    cut = line[:at] if at > 0 else line[: len(line) + at] if at else ""
    spool = fed([("dgx-01", cut), ("dgx-01", line.replace('"data":"e', '"data":"f'))])
    assert spool.answer("dgx-01", "nccl") is None
    spool.feed("dgx-01", line)
    assert spool.answer("dgx-01", "nccl") == {"verdict": "pass"}


def test_parts_of_two_answers_are_not_mixed() -> None:
    """A part that was asked twice, since the first answer was lost, has one of the two."""
    one, two = (lines_of(RUN, "dgx-01", "fio", answer(seed=seed)) for seed in (1, 2))
    assert len(one) == len(two)
    spool = fed([("dgx-01", line) for line in (*one[:-1], *two[1:])])
    assert spool.answer("dgx-01", "fio") is None
    spool.feed("dgx-01", two[0])
    assert spool.answer("dgx-01", "fio") == answer(seed=2)
    for line in one:
        spool.feed("dgx-01", line)
    assert spool.answer("dgx-01", "fio") == answer(seed=2)


def test_a_node_speaks_for_itself_only() -> None:
    lines = lines_of(RUN, "dgx-02", "nccl", {"verdict": "pass"})
    spool = fed([("dgx-01", line) for line in lines])
    assert spool.answer("dgx-02", "nccl") is None
    assert spool.foreign == {"dgx-01": len(lines)}


def test_lines_of_another_run_do_not_count() -> None:
    spool = fed([("dgx-01", line) for line in lines_of("f" * 16, "dgx-01", "nccl", {"a": 1})])
    assert spool.answer("dgx-01", "nccl") is None
    assert not spool.messages


def test_what_a_shell_says_is_kept_for_people_and_may_stand_before_a_line() -> None:
    line = lines_of(RUN, "dgx-01", "nccl", {"verdict": "pass"})[0]
    noise = [f"line {number}" for number in range(9)]
    spool = fed([*(("dgx-01", one) for one in noise), ("dgx-01", f"Welcome! {line}")])
    assert spool.messages["dgx-01"] == noise[-3:]
    assert spool.answer("dgx-01", "nccl") == {"verdict": "pass"}


def test_a_beat_answers_nothing() -> None:
    spool = fed([("dgx-01", beat_of(RUN, "dgx-01"))])
    assert spool.count("dgx-01") == 0
    assert not spool.messages


@pytest.mark.parametrize(
    "change",
    [
        {"n": 5},
        {"of": 0},
        {"of": 10**9, "n": 10**9 - 1},
        {"n": "x"},
        {"data": "no base64!"},
        {"id": "0"},
    ],
)
def test_lines_with_a_good_checksum_and_bad_content_break_nothing(
    change: dict[str, object],
) -> None:
    from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.batch import (
        pack,
        unpack,
    )

    data = unpack(lines_of(RUN, "dgx-01", "nccl", {"verdict": "pass"})[0])
    spool = fed([("dgx-01", pack({**data, **change}))])
    assert spool.answer("dgx-01", "nccl") is None


def test_a_spool_is_handed_on_whole() -> None:
    lines = [("dgx-01", line) for line in lines_of(RUN, "dgx-01", "nccl", answer())]
    torn = [("dgx-02", line) for line in lines_of(RUN, "dgx-02", "nccl", answer())[1:]]
    spool = fed([*lines, *lines, *torn, ("dgx-03", "python3: not found")])
    again = Spool(RUN)
    for line in spool.all_lines():
        source, _colon, text = line.partition(": ")
        again.feed(source, text)
    assert again.answer("dgx-01", "nccl") == answer()
    assert again.answer("dgx-02", "nccl") is None
    assert again.torn("dgx-02", "nccl") == spool.torn("dgx-02", "nccl")
    assert again.messages == {"dgx-03": ["python3: not found"]}


def test_any_lines_give_a_true_answer_or_none() -> None:
    """Whatever happens to the lines of many nodes on their way."""
    numbers = random.Random(11)
    wanted = {f"n{node}": answer(120, node) for node in range(12)}
    for _round in range(40):
        lines = []
        for node, one in wanted.items():
            for line in lines_of(RUN, node, "gpu_health", one):
                fate = numbers.random()
                if fate < 0.1:
                    line = line[: numbers.randrange(len(line))]
                elif fate < 0.15:
                    at = numbers.randrange(len(line))
                    line = line[:at] + chr(33 + numbers.randrange(90)) + line[at + 1 :]
                lines += [(node, line)] * (1 if fate < 0.9 else 2)
        numbers.shuffle(lines)
        spool = fed(lines)
        for node, one in wanted.items():
            found = spool.answer(node, "gpu_health")
            assert found is None or json.dumps(found) == json.dumps(one, sort_keys=True)
