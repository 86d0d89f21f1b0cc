# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's log of its links: one reading a day, more when something happens, and bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib import link_log
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.counters import Sample
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.judge import WantedRail
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.link_log import (
    ask_down_reasons,
    module_events,
    parse_amber,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.link_reading import LinkReading
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.mlxlink import parse_mlxlink
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.sysfs import Hca, Port

REPORT = parse_mlxlink((FIXTURES / "mlxlink/ndr-fec-histogram.json").read_text())
DAY = 86400
START = 1789000000
HCAS = [Hca("mlx5_rail0", pci="0000:18:00.0", ports=(Port(1, guid="g0", rate_gbps=400.0),)),
        Hca("mlx5_rail1", pci="0000:40:00.0", ports=(Port(1, guid="g1"),))]  # fmt: skip
WANTED = [WantedRail(0, "18:00.0", 400.0), WantedRail(1, "40:00.0", 400.0)]


def amber(argv, timeout_s=30, env=None):
    text = (FIXTURES / "mlxlink_amber/ndr-alignment-loss.csv").read_text()
    with open(argv[4], "w", encoding="ascii") as handle:
        handle.write(text)
    return CommandResult(tuple(argv), ENDED, 0)


@pytest.fixture
def keep(tmp_path, monkeypatch):
    """`keep(seconds, downs)` reads both rails so long after the first time."""

    def run(after, downs=0, reports=None, log="", write=True, boot="b"):
        monkeypatch.setattr(link_log.time, "time", lambda: START + after)
        counters = {"g0": {"link_downed": downs}, "g1": {"link_downed": 0}}
        sample = Sample(boot, 1000.0 + after, counters)
        given = reports or {"mlx5_rail0": REPORT, "mlx5_rail1": REPORT}
        return link_log.keep_readings(
            amber, run.path, WANTED, HCAS, given, sample, 5, log, write
        )  # fmt: skip

    run.path = str(tmp_path / "node-health" / "links.jsonl")
    return run


def test_one_reading_a_day_of_each_rail(keep):
    assert [one.rail for one in keep(0)] == [0, 1]
    assert keep(900) == keep(19 * 3600) == []
    assert len(keep(DAY)) == 2
    kept = link_log.read_log(keep.path)
    assert [(one.at - START, one.rail) for one in kept] == [(0, 0), (0, 1), (DAY, 0), (DAY, 1)]
    assert kept[0].serial == "FB2404000017"
    assert (kept[0].gbps, kept[1].gbps) == (400.0, 400.0)


def test_a_link_that_went_down_is_kept_at_once_with_its_reason(keep):
    keep(0)
    event = "6,9,1500000000,-;mlx5_core 0000:18:00.0: Port module event: module 0, Cable unplugged"
    (one,) = keep(900, downs=2, log=event)
    assert (one.rail, one.downs) == (0, 2)
    assert one.why == ("Local_phy", "Alignment_loss", "Cable unplugged")
    assert keep(1800, downs=2) == []


def test_after_a_boot_the_counter_is_another(keep):
    keep(0, downs=5)
    assert keep(900, downs=6, boot="c") == []


def test_another_cable_is_kept_at_once(keep):
    keep(0)
    other = replace(REPORT, optics=replace(REPORT.optics, serial="FB9"))
    found = keep(900, reports={"mlx5_rail0": other, "mlx5_rail1": REPORT})
    assert [one.serial for one in found] == ["FB9"]


def test_what_did_not_answer_is_left_out(keep):
    assert [one.rail for one in keep(0, reports={"mlx5_rail0": "hung", "mlx5_rail1": REPORT})] == [
        1
    ]


def test_check_mode_writes_nothing(keep, tmp_path):
    assert len(keep(0, write=False)) == 2
    assert not (tmp_path / "node-health").exists()


def test_a_log_that_cannot_be_written_takes_no_reading_away(keep, tmp_path):
    (tmp_path / "node-health").write_text("a file")
    assert len(keep(0)) == 2


def test_the_log_is_bounded_and_broken_lines_are_left_out(keep):
    for day in range(150):
        keep(day * DAY)
    with open(keep.path, "a", encoding="ascii") as handle:
        handle.write('[1789000000,0,"trunc\n')
    kept = link_log.read_log(keep.path)
    assert 128 <= len(kept) <= 256
    assert kept[-1].at == START + 149 * DAY
    keep(150 * DAY)
    assert link_log.read_log(keep.path)[-1].at == START + 150 * DAY


def test_the_answer_has_the_last_days_and_what_is_not_written(keep):
    for day in range(15):
        keep(day * DAY)
    now = [LinkReading(at=START + 15 * DAY, rail=0)]
    lines = link_log.links_of(keep.path, 10, now)
    assert [line[0] for line in lines][:1] == [START + 4 * DAY]
    assert lines[-1] == now[0].as_line()
    assert len(lines) == 2 * 11 + 1


def test_two_readings_in_one_second_are_both_returned(keep):
    keep(0)
    keep(0, downs=1)
    assert [line[1] for line in link_log.links_of(keep.path, 10, [])] == [0, 1, 0]


AMBER = FIXTURES / "mlxlink_amber"
PCI = "0000:18:00.0"
KERNEL_LOG = """\
6,1,1000000,-;mlx5_core 0000:18:00.0: Port module event: module 0, Cable plugged
6,2,900000000,-;mlx5_core 0000:18:00.0: Port module event: module 0, Cable unplugged
3,3,950000000,-;mlx5_core 0000:18:00.0: Port module event[error]: module 0, Cable error, High Temperature
6,4,960000000,-;mlx5_core 0000:40:00.0: Port module event: module 1, Cable unplugged
6,5,970000000,-;python3[77]: mlx5_core 0000:18:00.0: Port module event: module 0, Cable unplugged
"""  # noqa: E501


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ndr-alignment-loss.csv", ["Local_phy", "Alignment_loss"]),
        ("ndr-remote-fault.csv", ["Remote_phy", "Received_Remote_Fault", "Cable_was_unplugged"]),
        ("hdr-never-down.csv", []),
    ],
)
def test_reasons_of_the_firmware(name, message):
    assert parse_amber((AMBER / name).read_text()) == message


@pytest.mark.parametrize("text", ["", "-E- no such device", "a,b\n1,2\n", "down_blame\n"])
def test_what_is_no_table(text):
    with pytest.raises(ValueError, match="does not tell why"):
        parse_amber(text)


def test_the_tool_is_asked_for_a_file():
    asked = []

    def run(argv, timeout_s=30, env=None):
        asked.append(argv[:4])
        if argv[0] == "mlxlink":
            return CommandResult(tuple(argv), MISSING)
        with open(argv[4], "w", encoding="ascii") as handle:
            handle.write((AMBER / "ndr-remote-fault.csv").read_text())
        return CommandResult(tuple(argv), ENDED, 0)

    assert ask_down_reasons(run, PCI, 5)[0] == "Remote_phy"
    assert asked[1] == ["mstlink", "-d", PCI, "--amber_collect"]


@pytest.mark.parametrize("result", [(MISSING, -1), (ENDED, 1), (ENDED, 0)])
def test_a_tool_that_tells_nothing_gives_no_reason(result):
    assert ask_down_reasons(lambda argv, **_: CommandResult(tuple(argv), *result), PCI, 5) == []


def test_what_the_kernel_reports_of_a_module():
    assert module_events(KERNEL_LOG, PCI, 0) == ["Cable unplugged", "Cable error, High Temperature"]
    assert module_events(KERNEL_LOG, PCI, 920) == ["Cable error, High Temperature"]
    assert module_events("", PCI, 0) == []
