# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.perftest import (
    CUDA,
    CUDA_DMABUF,
    HOST,
    Recipe,
    read_result,
    threshold_for,
)

TITLE = " #bytes     #iterations    BW peak[{0}]    BW average[{0}]   MsgRate[Mpps]\n"
GBITS = TITLE.format("Gb/sec")
MBYTES = TITLE.format("MB/sec")
LINE = "-" * 87 + "\n"
CLIENT = (
    LINE
    + "                    RDMA_Write BW Test\n Dual-port       : OFF\t\tDevice         : mlx5_3\n"
    + " Number of qps   : 1\t\tTransport type : IB\n Link type       : IB\n"
    + LINE
    + " local address: LID 0x2a QPN 0x004b PSN 0x3c9e82 RKey 0x080359 VAddr 0x007f9fc479c000\n"
    + LINE
    + GBITS
    + "{}"
    + LINE
)
ROW = " 8388608    58431            0.00               391.98 \t\t   0.005841\n"
# As perftest 4.5 writes it; 25.01 puts quotes around the keys.
OLD_JSON = (
    '{\ntest_info: {\ntest: "RDMA_Write",\n},\nresults: {\nMsgSize: 8388608,\n'
    "n_iterations: 58431,\nBW_peak: 0.00,\nBW_average: 391.98,\nMsgRate: 0.005841,\n}\n}\n"
)
NEW_JSON = '{"results": {"MsgSize": 8388608, "BW_peak": 0.00, "BW_average": 391.98}}\n'


@pytest.mark.parametrize("written", ["", OLD_JSON, NEW_JSON])
@pytest.mark.parametrize(
    "noise",
    ["", "Conflicting CPU frequency values detected: 2000.0 != 3800.0. CPU is not at max.\n"],
)
def test_a_value(noise: str, written: str) -> None:
    assert read_result(0, CLIENT.format(noise + ROW), written).gbps == 391.98


def test_a_value_that_only_the_file_has() -> None:
    assert read_result(0, "", OLD_JSON).gbps == 391.98


FORMS = FIXTURES / "perftest"


@pytest.mark.parametrize("name", ["4.5", "4.5-mb", "23.10", "25.01", "25.01-cpu-util"])
def test_the_form_of_every_supported_version(name: str) -> None:
    text = (FORMS / f"ib_write_bw-{name}.txt").read_text(encoding="utf-8")
    assert read_result(0, text).gbps == pytest.approx(391.98, abs=0.01)


# As 25.01 printed it in a machine under QEMU, on a host with other work.
NO_CLOCK = "Correlation coefficient r^2: 0.621004 < 0.9\n"


def test_zero_of_a_processor_without_a_clock_is_not_measured() -> None:
    row = " 65536      135           0.000000            0.000000            0.000000\n"
    outcome = read_result(0, CLIENT.format(row) + NO_CLOCK)
    assert outcome.gbps is None
    assert "processor's clock: Correlation coefficient r^2: 0.621004 < 0.9" in outcome.reason
    assert read_result(0, CLIENT.format(row)).gbps == 0, "nothing explains it"
    assert read_result(0, CLIENT.format(ROW) + NO_CLOCK).gbps == 391.98


def test_a_row_with_other_columns_is_no_result() -> None:
    text = CLIENT.format(ROW.replace("0.005841", "0.005841  12.50  7.00"))
    assert read_result(0, text).gbps is None


def test_mebibytes_are_not_gigabits() -> None:
    text = MBYTES + " 8388608    20000            24056.74            24056.72\t\t   0.003007\n"
    assert read_result(0, text).gbps == pytest.approx(201.8, abs=0.05)


def test_the_largest_size_counts() -> None:
    text = GBITS + " 2          5000           0.080755            0.073090            4.568094\n"
    text += " 8388608    5000             52.52              52.51              0.000783\n"
    assert read_result(0, text).gbps == 52.51


@pytest.mark.parametrize(
    ("rc", "text", "gbps", "reason"),
    [
        (124, "", None, "ib_write_bw did not end in time"),
        (137, "", None, "ib_write_bw did not end in time"),
        (127, "timeout: failed to run command 'ib_write_bw'", None, "ib_write_bw is not installed"),
        (1, " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n", 0.0,
         "no packet arrives: transport retries exceeded"),
        (1, " Completion with error at client\n Failed status 4: wr_id 0 syndrom 0x51\n", None,
         "ib_write_bw ended with 1: Failed status 4: wr_id 0 syndrom 0x51"),
        (1, " Port number 1 state is Down\n Couldn't set the link layer\n", None, "a port is Down"),
        (1, "IB device mlx5_9 not found\n Unable to find the Infiniband/RoCE device\n", None,
         "ib_write_bw ended with 1: Unable to find the Infiniband/RoCE device"),
        (1, " Couldn't connect to dgx-02:18515\n Unable to init the socket connection\n", None,
         "ib_write_bw ended with 1: Unable to init the socket connection"),
        (0, CLIENT.format(""), None, "ib_write_bw printed no result: #bytes"),
        (0, "", None, "ib_write_bw printed no result: it printed nothing"),
        # A row without a title has no unit.
        (0, ROW, None, "ib_write_bw printed no result: 8388608"),
        (0, CLIENT.format(ROW.replace("391.98", "   nan")), None, "ib_write_bw printed nan"),
        (-15, "", None, "ib_write_bw ended with -15: it printed nothing"),
    ],
)  # fmt: skip
def test_what_says_nothing_of_the_way(rc: int, text: str, gbps: float | None, reason: str) -> None:
    outcome = read_result(rc, text)
    assert outcome.gbps == gbps
    assert outcome.reason.startswith(reason)


def test_two_different_values_are_none() -> None:
    outcome = read_result(0, CLIENT.format(ROW), OLD_JSON.replace("391.98", "196.00"))
    assert outcome.gbps is None
    assert outcome.reason == "ib_write_bw printed 391.98 and wrote 196.00 Gb/s"


def test_arguments_of_both_ends() -> None:
    plain = "-i 1 -p 18600 -s 8388608 -D 10 -f 1 -F --report_gbits"
    assert " ".join(Recipe().arguments(18600, 3, None)) == plain
    assert " ".join(Recipe().arguments(18600, 3, "dgx-02")) == f"{plain} dgx-02"
    assert " ".join(Recipe(CUDA).arguments(18600, 3, None)) == f"{plain} --use_cuda=3"
    both = Recipe(CUDA_DMABUF, both_ways=True, extra=("-x", "3")).arguments(18600, 0, None)
    assert " ".join(both) == f"{plain} -b --use_cuda=0 --use_cuda_dmabuf -x 3"


@pytest.mark.parametrize(
    ("recipe", "rate", "value", "source"),
    [
        (Recipe(CUDA), 400, 380, "Azure"),
        (Recipe(CUDA_DMABUF), 200, 180, "Azure"),
        (Recipe(HOST), 400, 360, "sichek"),
        (Recipe(HOST), 200, 175, "sichek"),
        (Recipe(CUDA, both_ways=True), 400, 720, "imbue"),
        (Recipe(HOST, both_ways=True), 400, 300, "imbue"),
        (Recipe(CUDA), 800, 720, "none published"),
        (Recipe(CUDA, both_ways=True), 200, 360, "none published"),
    ],
)
def test_thresholds(recipe: Recipe, rate: float, value: float, source: str) -> None:
    threshold = threshold_for(recipe, rate)
    assert (threshold.op, threshold.value, threshold.unit) == (">=", value, "Gb/s")
    assert source in threshold.source
    assert threshold.holds(value)
    assert not threshold.holds(value - 1)
    # No threshold is beyond what the wire can carry.
    assert value < rate * (2 if recipe.both_ways else 1)


@pytest.mark.parametrize(
    ("name", "gbps"),
    [
        ("cns-roce-cx-allsizes.txt", 52.52),
        ("loopback-8M.log", 201.80),
        ("loopback-all-sizes.log", 194.96),
    ],
)
def test_real_outputs(captures: Path, name: str, gbps: float) -> None:
    text = (captures / "ib-write-bw" / name).read_text(encoding="utf-8")
    assert read_result(0, text).gbps == pytest.approx(gbps, abs=0.01)
