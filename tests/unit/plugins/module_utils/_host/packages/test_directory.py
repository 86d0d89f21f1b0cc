# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of checksums."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._host.packages.directory import (
    differences,
    parse_sums,
)

ONE, TWO = "1" * 64, "2" * 64


def test_lines_of_sha256sum():
    text = f"# made on Monday\n{ONE}  ./a.deb\n{TWO} *sub/b.deb\n\n"
    assert parse_sums(text) == ({"a.deb": ONE, "sub/b.deb": TWO}, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{ONE}  ../a.deb\n", "leads out of the directory"),
        (f"{ONE}  /etc/passwd\n", "leads out of the directory"),
        (f"{ONE}  a/../../b\n", "leads out of the directory"),
        ("abc  a.deb\n", "is not that of sha256sum"),
        (f"{ONE} a.deb\n", "is not that of sha256sum"),
        (f"{ONE}  a.deb\n{TWO}  ./a.deb\n", "a second checksum"),
    ],
)
def test_lines_that_are_refused(text, message):
    _sums, wrong = parse_sums(text)
    assert len(wrong) == 1
    assert message in wrong[0]


def test_differences():
    assert differences({"a": ONE}, {"a": ONE}) == []
    assert differences({"a": ONE}, {}) == ["a is listed and not there"]
    assert differences({"a": ONE}, {"a": TWO})[0].startswith("a has the wrong checksum: 2222")
