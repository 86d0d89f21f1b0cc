# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From which releases Slurm takes over, and of which release a state file is."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.releases import VERSIONS
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.saved_state import (
    RELEASES,
    refusal,
    release_of,
    state_release,
    steps,
    takes_over_from,
)


@pytest.mark.parametrize(
    ("release", "accepted"),
    [
        ("23.11", ("22.05", "23.02")),
        # as the support table of SchedMD says
        ("24.05", ("23.02", "23.11")),
        # 24.11.5 names 9984, which is 23.02, as the oldest that it takes (measured)
        ("24.11", ("23.02", "23.11", "24.05")),
        # as the support table of SchedMD says
        ("25.05", ("23.11", "24.05", "24.11")),
        ("25.11", ("24.05", "24.11", "25.05")),
        ("26.05", ("24.11", "25.05", "25.11")),
        ("27.05", ()),
    ],
)
def test_accepted_releases(release: str, accepted: tuple[str, ...]) -> None:
    assert takes_over_from(release) == accepted


def test_every_release_that_can_be_declared_is_known() -> None:
    assert set(VERSIONS) <= set(RELEASES)


@pytest.mark.parametrize(
    ("found", "declared"),
    [("", "24.11"), ("24.11.5", "24.11"), ("23.02.7", "24.11"), ("24.11.5", "26.05")],
)
def test_what_slurm_supports_is_not_refused(found: str, declared: str) -> None:
    assert refusal(found, declared) == ""


@pytest.mark.parametrize(
    ("found", "declared", "words"),
    [
        ("22.05.8", "24.11", "takes over only from 23.02, 23.11, 24.05, and not from 22.05"),
        ("22.05.8", "24.11", "first to 23.11"),
        ("26.05.1", "24.11", "goes from 26.05 back to 24.11"),
        ("19.05.5", "24.11", "19.05 is older than all"),
        ("30.05.5", "24.11", "30.05 is newer than all"),
        ("24.11.5", "30.05", "30.05 is not known"),
    ],
)
def test_a_jump_is_refused_in_one_line(found: str, declared: str, words: str) -> None:
    result = refusal(found, declared)
    assert words in result
    assert "\n" not in result


def test_steps_are_supported_and_few() -> None:
    for old in RELEASES:
        for new in RELEASES[RELEASES.index(old) + 1 :]:
            path = [old, *steps(old, new)]
            assert path[-1] == new
            assert all(a in takes_over_from(b) for a, b in pairwise(path))
    assert steps("22.05", "24.11") == ["23.11", "24.11"]


def header(number: int) -> bytes:
    """The beginning of job_state: a counted text, then the number."""
    text = b"PROTOCOL_VERSION\0"
    return struct.pack("!I", len(text)) + text + struct.pack("!H", number) + b"\0\0\0\1rest"


@pytest.mark.parametrize(
    ("number", "release"), [(9728, "22.05"), (9984, "23.02"), (10752, "24.11"), (11520, "26.05")]
)
def test_state_tells_its_release(number: int, release: str) -> None:
    assert state_release(header(number)) == release
    # assoc_usage begins with the number itself
    assert state_release(struct.pack("!H", number) + b"\0\0") == release


@pytest.mark.parametrize(
    "data", [b"", b"\0", header(1)[:22], header(9729), header(0xFFFF), b"no state at all"]
)
def test_anything_else_says_nothing(data: bytes) -> None:
    assert state_release(data) == ""


def test_release_of_a_version() -> None:
    assert [release_of(text) for text in ("24.11.5", "24.11", "24", "x.y", "")] == [
        "24.11", "24.11", "", "", ""
    ]  # fmt: skip
