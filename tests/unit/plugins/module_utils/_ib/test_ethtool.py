# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from checkout import FIXTURES
from ib_tree import RAILS, dgx

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.pci import Tree
from ansible_collections.baremetal.dgx.plugins.module_utils._ib import ethtool
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.counters import Sample
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.ethtool import (
    ask_ethernet,
    counters_of,
    judge_ethernet,
    parse_statistics,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.sysfs import load_hcas

FIXTURES = FIXTURES / "ethtool"
TEXT = (FIXTURES / "mlx5-linux-6.8.txt").read_text()
COUNTERS = counters_of(parse_statistics(TEXT))


def judged(before=None, now=None, seconds=7200.0, window_s=720.0):
    """Return status by check of a port whose counters were `before` and are `now`."""
    old, new = {**COUNTERS, **(before or {})}, {**COUNTERS, **(now or {})}
    first = Sample("b", 0.0, {"k": old})
    last = Sample("b", seconds, {"k": new})
    return {
        record.check: record
        for record in judge_ethernet(new, "hca:n/rail0", "k", 400, first, last, window_s)
    }


@pytest.mark.parametrize("name", ["mlx5-linux-5.15", "mlx5-linux-6.8", "mlx5-mlnx-ofed-5.8"])
def test_the_form_of_every_supported_release(name: str) -> None:
    found = parse_statistics((FIXTURES / f"{name}.txt").read_text())
    assert found["link_down_events_phy"] == 2
    assert found["rx_corrected_bits_phy"] == 8812047
    lossless = {one for one in counters_of(found) if "prio" in one}
    pfc = set() if name == "mlx5-linux-5.15" else {"rx_prio3_pause", "rx_prio3_discards"}
    assert lossless == pfc


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "does not begin"),
        ("no stats available\n", "does not begin"),
        (TEXT[: TEXT.index("rx_prio0") + 6], "is not a counter"),
        (TEXT.replace("rx_crc_errors_phy: 0", "rx_crc_errors_phy: -"), "line 12 is not a counter"),
    ],
)
def test_half_a_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_statistics(text)


def test_a_healthy_port_passes() -> None:
    found = judged(now={"rx_prio3_pause": 99999})
    assert {one.status for one in found.values()} == {PASS}
    assert set(found) == {
        "ib.link_downed",
        "ib.symbol_errors",
        "ib.crc_errors",
        "ib.lossless_discards",
    }


# 400 Gb/s and two hours: 1e-14 x rate x time, 28.8 errors; from 125 minutes on it would be 1e-15.
@pytest.mark.parametrize(
    ("counter", "check", "good", "bad"),
    [
        ("link_down_events_phy", "ib.link_downed", 2, 3),
        ("rx_pcs_symbol_err_phy", "ib.symbol_errors", 28, 29),
        ("rx_crc_errors_phy", "ib.crc_errors", 28, 29),
        ("rx_prio3_discards", "ib.lossless_discards", 0, 1),
    ],
)
def test_each_counter_at_its_last_good_and_first_bad_value(counter, check, good, bad) -> None:
    assert {one.status for one in judged(now={counter: good}).values()} == {PASS}
    found = judged(now={counter: bad})
    assert {one.check for one in found.values() if one.status == FAIL} == {check}
    # What was cleared, and a counter that is not there, proves nothing.
    cleared = judged({counter: bad + 10}, {counter: 0})
    assert [one.check for one in cleared.values() if one.status == NOT_MEASURED] == [check]


def test_a_short_window_proves_nothing_but_fails_at_once() -> None:
    short = judged(seconds=60.0)
    open_ = {one.check for one in short.values() if one.status == NOT_MEASURED}
    assert open_ == {"ib.symbol_errors", "ib.crc_errors"}
    assert judged(now={"rx_crc_errors_phy": 50}, seconds=60.0)["ib.crc_errors"].status == FAIL


def test_a_counter_that_the_kernel_does_not_have_is_not_measured() -> None:
    less = {name: value for name, value in COUNTERS.items() if name != "rx_prio3_discards"}
    first, last = Sample("b", 0.0, {"k": less}), Sample("b", 7200.0, {"k": less})
    found = list(judge_ethernet(less, "s", "k", 400, first, last, 720.0))
    (record,) = [one for one in found if one.status != PASS]
    assert (record.check, record.status) == ("ib.lossless_discards", NOT_MEASURED)
    assert record.text == "rx_prio3_discards is not reported"


@pytest.mark.parametrize(
    ("settings", "asked"), [('RAILS="0 1"\n', True), ('RAILS=""\n', False), (None, False)]
)
def test_a_port_that_lost_pfc_does_not_pass_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str | None, asked: bool
) -> None:
    """A boot takes PFC away, and with it the counters that would show the loss."""
    kept = tmp_path / "roce-settings.env"
    if settings is not None:
        kept.write_text(f"# Ansible managed\n{settings}PRIORITY=3\n")
    monkeypatch.setattr(ethtool, "SETTINGS", str(kept))
    text = (FIXTURES / "mlx5-linux-5.15.txt").read_text()
    result = CommandResult(("ethtool",), ENDED, 0, text, "")
    answer = ask(tmp_path, lambda *_a, **_b: result)["mlx5_rail0"]
    first, last = Sample("b", 0.0, {"k": answer}), Sample("b", 7200.0, {"k": answer})
    found = list(judge_ethernet(answer, "s", "k", 400, first, last, 720.0))
    if not asked:
        assert {one.status for one in found} == {PASS}
        assert "ib.lossless_discards" not in {one.check for one in found}
        return
    (record,) = [one for one in found if one.status != PASS]
    assert (record.check, record.status) == ("ib.lossless_discards", NOT_MEASURED)
    assert record.text == "no priority has PFC: ethtool -S shows no rx_prioN_pause"
    assert record.remedy == "systemctl restart baremetal-dgx-roce-settings.service"


def ask(tmp_path, run, layer="Ethernet"):
    dgx(tmp_path, **{f"mlx5_rail{rail}": {"layer": layer} for rail in range(len(RAILS))})
    return ask_ethernet(run, load_hcas(Tree(str(tmp_path))), 3.0)


def test_each_ethernet_port_is_asked_and_no_other(tmp_path) -> None:
    asked = []

    def run(argv, timeout_s, **_more):
        asked.append((*argv, timeout_s))
        return CommandResult(tuple(argv), ENDED, 0, TEXT, "")

    assert ask(tmp_path / "ib", run, "InfiniBand") == {}
    assert asked == []
    found = ask(tmp_path / "eth", run)
    assert asked[0] == ("ethtool", "-S", "ibmlx5_rail0", 3.0)
    assert len(asked) == len(found) == 8
    assert found["mlx5_rail3"] == {**COUNTERS, "pfc_declared": 0}


def test_a_tool_that_is_missing_hangs_or_fails_has_measured_nothing(tmp_path) -> None:
    results = {
        "is not installed": CommandResult(("ethtool",), MISSING, None, "", ""),
        "no stats": CommandResult(("ethtool",), ENDED, 94, "no stats available\n", ""),
        "does not begin": CommandResult(("ethtool",), ENDED, 0, "", ""),
    }
    for number, (reported, result) in enumerate(results.items()):
        found = ask(tmp_path / str(number), lambda *_a, result=result, **_b: result)
        assert all(isinstance(one, str) and reported in one for one in found.values()), found
    calls = []
    hung = CommandResult(("ethtool",), TIMED_OUT, None, "", "", 3.0)

    def run(argv, **_more):
        calls.append(argv)
        return replace(hung, argv=tuple(argv))

    found = ask(tmp_path / "hung", run)
    assert len(calls) == 1
    assert "not asked, since" in str(found["mlx5_rail5"])
    last = Sample("b", 1.0, {})
    records = list(judge_ethernet(found["mlx5_rail0"], "s", "k", 400, None, last, 720.0))
    assert {one.status for one in records} == {NOT_MEASURED}
    assert "ib.lossless_discards" in {one.check for one in records}
