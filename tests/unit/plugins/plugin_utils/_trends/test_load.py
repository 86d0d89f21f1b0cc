# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outlook from a store and a plan: measured or simulated, and where the far end is."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
from link_months import FIRST_DAY, Months

from ansible_collections.baremetal.dgx.plugins.module_utils._evidence import links
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.links import LinkStore
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import VERSION
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.link_reading import (
    LinkReading,
    reading_from_own_line,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._trends.load import (
    far_ends,
    load_outlook,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._trends.series import Place

DAY = 86400


@pytest.fixture(scope="module")
def months() -> Months:
    made = Months(3, links=64, days=20, failing=0)
    link = made.links[20]
    link.way, link.begins, link.pace = "light", FIRST_DAY + 8, 0.8
    link.fails = None
    return made


@pytest.fixture(scope="module")
def read(months: Months) -> dict[str, list[list]]:
    found: dict[str, list[list]] = {}
    for day in months.days:
        for node, readings in months.read(day):
            found.setdefault(node, []).extend(one.as_line() for one in readings)
    return found


def store(folder: Path, read: dict[str, list[list]], simulated: str = "") -> float:
    now = (FIRST_DAY + 20) * DAY
    for node, lines in read.items():
        assert LinkStore(str(folder)).add(node, lines, now, simulated) == []
    return now


def plan(folder: Path) -> str:
    path = folder / "cables.json"
    hca = {"node": "dgx-0003", "rail": 4, "pci": "18:00.0", "guid": None, "cage": None,
           "cage_port": None, "devices": ["mlx5_4"], "rate_gbps": 400}  # fmt: skip
    leaf = {"name": "leaf-04", "tier": "leaf", "unit": 1, "rail": 4, "radix": 64, "guid": None}
    path.write_text(json.dumps({
        "version": VERSION, "hcas": [hca], "reserved": [], "switches": [leaf],
        "cables": [{"a": ["dgx-0003", 4, 1], "b": ["leaf-04", -1, 17], "kind": "node-leaf",
                    "rate_gbps": 400}],
    }))  # fmt: skip
    return str(path)


def test_the_outlook_of_what_was_measured(tmp_path, read) -> None:
    now = store(tmp_path, read)
    found = load_outlook(str(tmp_path), plan(tmp_path), now)
    (link,) = found["will_fail"]
    assert link["subject"] == "cable:SN000020"
    assert (list(link["places"]), list(link["ports"])) == (["dgx-0003/rail4"], ["leaf-04/17"])
    assert link["word"] == "will_fail"
    assert link["trends"][0]["quantity"] == "receive power"
    assert found["text"].startswith(f"trends of {found['judged']} links: 1 will fail (cable:SN")
    assert not found["simulated"]
    json.dumps(found)


def test_what_was_simulated_is_labelled(tmp_path, read) -> None:
    now = store(tmp_path, read, simulated="adapters")
    found = load_outlook(str(tmp_path), "", now)
    assert found["simulated"]
    assert found["text"].startswith("SIMULATED: trends of ")
    assert found["will_fail"][0]["ports"] == ("",)


def test_measured_readings_come_before_simulated_ones(tmp_path, read) -> None:
    store(tmp_path, read, simulated="adapters")
    now = store(tmp_path, {"dgx-0001": read["dgx-0001"][:8]})
    found = load_outlook(str(tmp_path), "", now)
    assert (found["simulated"], found["judged"]) == (False, 0)


def test_no_reading_at_all_is_said(tmp_path) -> None:
    found = load_outlook(str(tmp_path), "", 1.0)
    assert found["text"].startswith("trends: no link was ever read")


def test_a_rate_of_nothing_in_an_old_store_is_not_divided_by(tmp_path, read, monkeypatch) -> None:
    monkeypatch.setattr(links, "reading_from_line", reading_from_own_line)
    number = next(at for at, one in enumerate(fields(LinkReading)) if one.name == "gbps")
    lines = [list(line) for line in read["dgx-0001"]]
    for line, gbps in zip(lines, (0, 0.0, -400.0), strict=False):
        line[number] = gbps
    now = store(tmp_path, {**read, "dgx-0001": lines})
    found = load_outlook(str(tmp_path), "", now)
    assert [one["subject"] for one in found["will_fail"]] == ["cable:SN000020"]


def test_what_is_read_later_is_not_used(tmp_path, read) -> None:
    store(tmp_path, read)
    found = load_outlook(str(tmp_path), "", (FIRST_DAY + 9) * DAY)
    assert found["will_fail"] == []


def test_far_ends(tmp_path) -> None:
    far_end = far_ends(plan(tmp_path))
    assert far_end(Place("dgx-0003", 4)) == "leaf-04/17"
    assert far_end(Place("dgx-0003", 5)) == far_ends("/nowhere")(Place("dgx-0003", 4)) == ""
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ValueError, match="no plan of cables"):
        far_ends(str(tmp_path / "bad.json"))
