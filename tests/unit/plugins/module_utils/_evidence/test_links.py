# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readings of links beside the evidence: newer ones only, folded, bounded, never mixed."""

from __future__ import annotations

import gzip
import os
import random
from dataclasses import replace

from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.batch import Problems
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.links import (
    KEEP_DAYS,
    LinkStore,
    daily,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.link_reading import LinkReading

DAY = 86400
START = 20000 * DAY
ONE = LinkReading(at=START, rail=0, serial="S1")


def at(days: float, **values: object) -> LinkReading:
    return replace(ONE, **{"at": START + int(days * DAY), **values})


def read(store: LinkStore, node: str = "n", **options: object) -> list[LinkReading]:
    problems = Problems()
    found = list(store.read(node, problems, **options))
    assert problems.lines == []
    return found


def test_only_what_is_newer_is_added(tmp_path):
    store = LinkStore(str(tmp_path))
    now = START + 3 * DAY
    assert store.add("n", [at(0).as_line(), at(1).as_line()], now) == []
    store.add("n", [at(0).as_line(), at(1).as_line(), at(2).as_line()], now)
    store.add("n", [at(1, rail=1).as_line()], now)
    assert [(one.at - START) // DAY for one in read(store)] == [0, 1, 2, 1]
    assert store.nodes() == [("n", False)]
    assert [one.rail for one in read(store, since=START + 2 * DAY)] == [0]


def test_a_node_is_not_trusted(tmp_path):
    store = LinkStore(str(tmp_path))
    odd = [["x"], "text", at(0, serial="a\nb").as_line(), at(0, minutes=10**400).as_line()]
    lines = [at(9).as_line(), *odd, at(0).as_line()]
    refused = store.add("../n", lines, START + DAY)
    assert len(refused) == 4
    assert any("from the future" in line for line in refused)
    assert os.listdir(tmp_path / "links") == ["_n.jsonl"]


def test_what_was_simulated_is_kept_apart(tmp_path):
    store = LinkStore(str(tmp_path))
    store.add("n", [at(0).as_line()], START, simulated="adapters")
    store.add("n", [at(0, serial="S2").as_line()], START)
    assert store.nodes() == [("n", False), ("n", True)]
    assert [one.serial for one in read(store)] == ["S2"]
    assert [one.serial for one in read(store, simulated=True)] == ["S1"]


def test_a_truncated_line_is_told(tmp_path):
    store = LinkStore(str(tmp_path))
    store.add("n", [at(0).as_line(), at(1).as_line()], START + DAY)
    path = tmp_path / "links" / "n.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    problems = Problems()
    assert len(list(store.read("n", problems))) == 1
    assert problems.lines == ["n.jsonl line 2: truncated"]
    store.add("n", [at(1).as_line()], START + DAY)
    assert len(list(store.read("n", Problems()))) == 2


def test_a_broken_archive_is_told_and_the_rest_is_read(tmp_path):
    store = LinkStore(str(tmp_path))
    store.add("n", [at(0).as_line()], START)
    for content in (b"no archive", gzip.compress(b"x" * 999)[:20]):
        (tmp_path / "links" / "n.old.jsonl.gz").write_bytes(content)
        problems = Problems()
        assert len(list(store.read("n", problems))) == 1
        assert problems.lines[0].startswith("n.old.jsonl.gz line 0: ")


def test_many_nodes_keep_no_file_open(tmp_path):
    store = LinkStore(str(tmp_path))
    for number in range(40):
        store.add(f"n{number}", [at(0).as_line(), at(1).as_line()], START + DAY)
    before = len(os.listdir("/proc/self/fd"))
    begun = [store.read(f"n{number}", Problems()) for number in range(40)]
    assert all(next(one) for one in begun)
    assert len(os.listdir("/proc/self/fd")) - before < 5


def test_old_ones_are_daily_and_flaps_stay():
    some = [at(0), at(0.2), at(0.4, why=("Hi_BER",)), at(0.9), at(1), at(0.9, rail=1)]
    assert [(one.at - START) / DAY for one in daily(some)] == [0.4, 0.9, 0.9, 1]


def test_half_a_year_of_a_large_cluster_is_small(tmp_path):
    """A node with 8 rails, from figures of real form: 1,024 of them take less than 200 MB."""
    store, chance = LinkStore(str(tmp_path)), random.Random(1)
    errors, bins = [0] * 8, [[0] * 9 for _rail in range(8)]
    for day in range(230):
        lines = []
        for rail in range(8):
            errors[rail] += chance.randrange(10**7)
            bins[rail] = [count + chance.randrange(10 ** (12 - symbols)) for symbols, count in
                          enumerate(bins[rail])]  # fmt: skip
            lines.append(LinkReading(
                at=START + day * DAY, rail=rail, serial=f"MT2231VB{rail:05d}", part="MMA4Z00-NS",
                fec="Interleaved_Standard_RS-FEC - (544,514)", gbps=400.0, boot="1a2b3c4d",
                minutes=1440.0 * day + 7.3, raw_errors=errors[rail], raw_ber=5e-10,
                effective_errors=0, bins=tuple(bins[rail]), rx_low_dbm=-9.914,
                rx_dbm=tuple(round(chance.gauss(2, 0.3), 3) for _lane in range(4)),
                celsius=float(chance.randrange(48, 60)), hot_c=80.0, downs=0,
            ).as_line())  # fmt: skip
        store.add("n", lines, START + day * DAY + 60)
    days = {(one.at - START) // DAY for one in read(store)}
    assert len(days) >= KEEP_DAYS - 1
    assert min(days) >= 230 - KEEP_DAYS - 12
    size = sum(
        os.stat(tmp_path / "links" / name).st_size for name in os.listdir(tmp_path / "links")
    )
    assert size * 1024 < 200e6
