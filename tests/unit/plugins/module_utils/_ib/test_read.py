# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ENDED, CommandResult
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.read import ask_links
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.sysfs import Hca

PLAIN = (FIXTURES / "mlxlink/ndr-optical.json").read_text()
HISTOGRAM = (FIXTURES / "mlxlink/ndr-fec-histogram.json").read_text()
DOWN = "FEC Histogram is valid with active link operation only"
UNKNOWN = "mlxlink: unrecognized option `--rx_fec_histogram'"


def asked_and_bins(devices, refusal):
    """The questions with the histogram, and the bins by device; `refusal` is device -> message."""
    asked = []

    def run(argv, timeout_s=30, env=None):
        device, histogram = argv[2], "--rx_fec_histogram" in argv
        if not histogram:
            return CommandResult(tuple(argv), ENDED, 0, PLAIN)
        asked.append(device)
        if device in refusal:
            return CommandResult(tuple(argv), ENDED, 1, "", refusal[device])
        return CommandResult(tuple(argv), ENDED, 0, HISTOGRAM)

    reports = ask_links(run, [Hca(device, pci=device) for device in devices], 10)
    return asked, {device: len(report.bins) for device, report in reports.items()}


@pytest.mark.parametrize("devices", [["a", "b", "c"], ["b", "c", "a"]])
def test_a_rail_without_a_link_costs_no_other_its_histogram(devices):
    asked, bins = asked_and_bins(devices, {"a": DOWN})
    assert asked == devices
    assert bins["a"] == 0
    assert bins["b"] == bins["c"] > 0


def test_a_tool_without_the_option_is_asked_for_it_once():
    asked, bins = asked_and_bins(["a", "b", "c"], dict.fromkeys("abc", UNKNOWN))
    assert asked == ["a"]
    assert set(bins.values()) == {0}
