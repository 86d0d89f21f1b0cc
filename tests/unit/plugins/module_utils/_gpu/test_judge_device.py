# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last good and the first bad value of every threshold: one GPU of two differs by one value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_node import (
    BUSES,
    GPU,
    LINKS,
    PROFILE,
    SOUND,
    behind_a_switch,
    expect,
    host,
    link,
    outcome,
    path,
    records,
)

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.nvml import types as t
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.read import (
    GpuProcess,
    Link,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.thresholds import (
    QUESTIONS,
    kind_of,
)

# The check, what is read, the last good value and the first bad one, and what is to be done.
BOUNDS = [
    ("memory", "memory_total_mib", 81559, 81558, "replace"),
    ("inforom", "inforom_valid", True, False, "look"),
    ("ecc_mode", "ecc_mode", 1, 0, "settings"),
    ("ecc_mode", "ecc_mode_pending", 1, 0, "settings"),
    ("ecc_uncorrectable", "ecc_volatile_uncorrected", 0, 1, "reset"),
    ("ecc_dram_correctable", "ecc_dram_corrected", 20_000_000, 20_000_001, "replace"),
    ("ecc_sram_correctable", "ecc_sram_corrected", 10_000, 10_001, "replace"),
    ("sram_uncorrectable", "sram_aggregate_uncorrected", 4, 5, "replace"),
    ("sram_threshold", "sram_threshold_exceeded", 0, 1, "replace"),
    ("remap_pending", "remap_pending", 0, 1, "reset"),
    ("remap_failed", "remap_failed", 0, 1, "replace"),
    ("remapped_rows", "remap_uncorrected", 511, 512, "replace"),
    ("unrepairable", "unrepairable", 0, 1, "replace"),
    ("repair_pending", "repair_channel", 0, 1, "reset"),
    ("repair_pending", "repair_tpc", 0, 1, "reset"),
    ("clock_sm", "clock_sm_max_mhz", 1980, 1979, "settings"),
    ("clock_memory", "clock_memory_max_mhz", 2619, 2618, "settings"),
    ("temperature", "margin_c", 1, 0, "look"),
    ("memory_temperature", "memory_temperature_c", 94, 95, "look"),
    ("power_limit", "power_limit_w", 700.0, 699.0, "settings"),
    ("persistence", "persistence", 1, 0, "settings"),
    ("compute_mode", "compute_mode", 0, 1, "settings"),
    ("mig", "mig_pending", 0, 1, "settings"),
    ("processes", "processes", (), (GpuProcess(7),), "job"),
    ("memory_used", "memory_used_mib", 15, 16, "reset"),
    ("nvlink_active", "links", LINKS, link(active=False), "reset"),
    ("nvlink_speed", "links", link(speed_mbps=26562), link(speed_mbps=26561), "reset"),
    ("nvlink_replays", "links", link(replays=0), link(replays=1), "look"),
    ("nvlink_recoveries", "links", link(recoveries=0), link(recoveries=1), "look"),
    ("fabric", "fabric_state", 3, 2, "settings"),
    ("fabric", "fabric_status", 0, 1, "settings"),
    ("fabric_bandwidth", "fabric_health", 0x1AA, 0x1A9, "reset"),
    ("fabric_route_recovery", "fabric_health", 0x1AA, 0x1A6, "reset"),
    ("fabric_route", "fabric_health", 0x1AA, 0x19A, "reset"),
    ("fabric_access", "fabric_health", 0x1AA, 0x16A, "reset"),
    ("fabric_configuration", "fabric_health", 0x1AA, 0x2AA, "settings"),
    ("fabric_partition", "fabric_health", 0x11AA, 0x21AA, "settings"),
    ("fabric_connection", "fabric_health", 0x41AA, 0x81AA, "settings"),
    ("recovery_action", "recovery_action", 0, 1, "reset"),
]


@pytest.mark.parametrize(
    ("check", "name", "good", "first_bad", "action"), BOUNDS, ids=[f"{b[0]}-{b[1]}" for b in BOUNDS]
)
def test_the_first_bad_value_is_found_and_the_last_good_one_is_not(
    check: str, name: str, good: Any, first_bad: Any, action: str
) -> None:
    assert outcome(records({name: good})) == SOUND
    found = records({name: first_bad})
    assert outcome(found) == expect(check)
    (record,) = [one for one in found if one.status == FAIL]
    assert kind_of(record.remedy) == action
    assert record.evidence[0] == "PCI 0000:43:00.0, UUID GPU-1, serial 1651"


@pytest.mark.parametrize(
    "name", sorted({name for _c, name, *_rest in BOUNDS} - {"unrepairable", "repair_tpc"})
)
def test_what_cannot_be_read_is_not_measured(name: str) -> None:
    lost: Any = None
    checks = {check for check, other, *_rest in BOUNDS if other == name}
    if name == "links":
        lost, checks = (), {"nvlink_active"}
    elif name == "fabric_health":
        checks = {"fabric_route"}
    elif name == "fabric_status":
        return
    found = records({name: lost, "absent": {**GPU.absent, name: "no permission"}})
    assert outcome(found) == expect(*(f"?{check}" for check in checks))
    assert all("no permission" in one.text for one in found if one.status == NOT_MEASURED)


@pytest.mark.parametrize(
    ("pages", "double", "waiting", "checks"),
    [
        (62, 0, 0, ()), (63, 0, 0, ("retired_pages",)), (47, 15, 0, ()),
        (48, 15, 0, ("retired_pages",)), (0, 16, 0, ("retired_double",)),
        (0, 0, 1, ("retired_pending",)),
        (None, 0, 0, ("?retired_pages",)), (0, None, 0, ("?retired_pages", "?retired_double")),
        (0, 0, None, ("?retired_pending",)),
    ],
)  # fmt: skip
def test_parts_before_ampere_retire_pages(
    pages: int | None, double: int | None, waiting: int | None, checks: tuple[str, ...]
) -> None:
    changes = {
        "retired_single": pages, "retired_double": double, "retired_pending": waiting,
        "remap_pending": None, "absent": {**GPU.absent, "remap_pending": t.ERRORS[t.NOT_SUPPORTED]},
    }  # fmt: skip
    found = outcome(records(changes))
    assert found == expect(*checks)


def test_a_part_that_neither_remaps_nor_retires_is_asked_for_neither() -> None:
    neither = dict.fromkeys(("remap_pending", "retired_single"), t.ERRORS[t.NOT_SUPPORTED])
    found = records({"remap_pending": None, "absent": {**GPU.absent, **neither}})
    assert outcome(found) == SOUND
    asked = {one.check for one in found if one.subject == "gpu:n/1"}
    assert not {one for one in asked if "remap" in one or "retired" in one}


@pytest.mark.parametrize("bit", range(12))
def test_only_bits_of_a_slowdown_by_the_hardware_or_by_heat_are_a_fault(bit: int) -> None:
    # nvml.h: hardware slowdown 0x8, software thermal 0x20, hardware thermal 0x40, power brake 0x80.
    expected = expect("throttle") if 1 << bit in (0x8, 0x20, 0x40, 0x80) else SOUND
    assert outcome(records({"throttle": 1 << bit})) == expected


@pytest.mark.parametrize(
    ("limit", "heat", "checks"),
    [(90, 89, ()), (90, 90, ("temperature_absolute",)), (None, 200, ("?temperature",))],
)
def test_an_older_driver_has_a_limit_in_degrees(
    limit: int | None, heat: int, checks: tuple[str, ...]
) -> None:
    found = records({"margin_c": None, "limit_slowdown_c": limit, "temperature_c": heat})
    assert outcome(found) == expect(*checks)


def test_a_margin_decides_over_a_limit_in_degrees() -> None:
    assert outcome(records({"limit_slowdown_c": 30})) == SOUND
    assert outcome(records({"limit_slowdown_c": 90, "margin_c": 0})) == expect("temperature")


@pytest.mark.parametrize(("heat", "checks"), [(104, ()), (105, ("memory_temperature",))])
def test_the_devices_own_limit_of_its_memory_wins(heat: int, checks: tuple[str, ...]) -> None:
    found = records({"limit_memory_c": 105, "memory_temperature_c": heat})
    assert outcome(found) == expect(*checks)


def test_a_part_without_a_sensor_in_its_memory_is_not_asked() -> None:
    absent = {**GPU.absent, "memory_temperature_c": t.ERRORS[t.NOT_SUPPORTED]}
    found = records({"memory_temperature_c": None, "absent": absent})
    assert outcome(found) == SOUND
    asked = {one.subject for one in found if one.check == "gpu.memory_temperature"}
    assert asked == {"gpu:n/0"}


def test_a_power_limit_without_a_default_is_not_measured() -> None:
    found = records(
        {"power_limit_default_w": None, "absent": {**GPU.absent, "power_limit_default_w": "why"}}
    )
    assert outcome(found) == expect("?power_limit")
    assert next(one for one in found if one.status == NOT_MEASURED).text.endswith(": why")
    assert outcome(records({"power_limit_w": 800.0})) == SOUND


@pytest.mark.parametrize(
    ("changes", "checks"),
    [
        # (link of the GPU, what its port is able to)
        ({"speed_gts": 16.0}, ("pcie_speed",)),
        ({"speed_gts": 16.0, "max_speed_gts": 16.0}, ("pcie_speed",)),
        ({"width": 8}, ("pcie_width",)),
        ({"width": 15}, ("pcie_width",)),
        ({"width": 8, "max_width": 8}, ("pcie_width",)),
        ({"speed_gts": 64.0, "width": 32}, ()),
        ({"speed_gts": None}, ("?pcie_speed",)),
        ({"width": None}, ("?pcie_width",)),
        ({"max_speed_gts": None}, ("?pcie_speed",)),
        ({"max_width": None}, ("?pcie_width",)),
    ],
)
def test_the_link_of_the_gpu(changes: dict[str, Any], checks: tuple[str, ...]) -> None:
    found = outcome(records(node=host({1: path(1, **changes)})))
    assert found == expect(*checks)


@pytest.mark.parametrize(
    ("upper", "pstate", "checks", "where"),
    [
        ({}, 0, (), ""),
        ({"speed_gts": 16.0}, 0, ("pcie_speed",), "0000:41:00.0 below 0000:40:01.0"),
        ({"width": 8}, 0, ("pcie_width",), "0000:41:00.0 below 0000:40:01.0"),
        # A GPU asleep shows nothing about its own link, and the links above it do not sleep.
        ({"speed_gts": 16.0}, 8, ("pcie_speed",), "0000:41:00.0 below 0000:40:01.0"),
        ({}, 8, ("?pcie_speed",), ""),
        ({}, 1, ("?pcie_speed",), ""),
        ({}, None, (), ""),
    ],
)
def test_the_slowest_link_up_to_the_root(
    upper: dict[str, Any], pstate: int | None, checks: tuple[str, ...], where: str
) -> None:
    found = records({"pstate": pstate}, node=host({1: behind_a_switch(**upper)}))
    assert outcome(found) == expect(*checks)
    if where:
        assert [one.text for one in found if one.status == FAIL] == [where]


def test_of_two_slow_links_the_one_that_lacks_most_is_named() -> None:
    own, *above = behind_a_switch(speed_gts=8.0, width=4)
    slow = (replace(own, speed_gts=16.0, width=8), *above)
    found = {one.check: one for one in records(node=host({1: slow})) if one.status == FAIL}
    assert {check: one.measured["value"] for check, one in found.items() if one.measured} == {
        "gpu.pcie_speed": 8.0, "gpu.pcie_width": 4,
    }  # fmt: skip
    # The first of two that lack the same.
    own, *above = behind_a_switch(speed_gts=16.0)
    (record,) = [
        one
        for one in records(node=host({1: (replace(own, speed_gts=16.0), *above)}))
        if one.status == FAIL
    ]
    assert record.text == "0000:43:00.0 below 0000:42:00.0"


@pytest.mark.parametrize(
    ("changes", "checks"),
    [
        ({}, ()),
        ({"pcie_width": 8}, ("pcie_width",)),
        ({"pcie_width": 15, "pcie_width_max": None}, ("pcie_width",)),
        ({"pcie_width": 16, "pcie_width_max": 32}, ("pcie_width",)),
        ({"pcie_width": None}, ("?pcie_width",)),
        ({"pcie_generation": 4}, ("pcie_speed",)),
        ({"pcie_generation": 4, "pcie_generation_max": None}, ("pcie_speed",)),
        ({"pcie_generation": 5, "pcie_generation_max": 6}, ("pcie_speed",)),
        ({"pcie_generation": 6, "pcie_generation_max": 6}, ()),
        ({"pcie_generation": None}, ("?pcie_speed",)),
        ({"pcie_generation": 9}, ("?pcie_speed",)),
        ({"pstate": 1}, ("?pcie_speed",)),
    ],
)
def test_without_a_bridge_the_link_is_the_gpus_own(
    changes: dict[str, Any], checks: tuple[str, ...]
) -> None:
    found = outcome(records(changes, node=host({1: ()})))
    assert found == expect(*checks)


@pytest.mark.parametrize("generation", [1, 2, 3, 4, 5, 6])
def test_the_speed_of_each_generation(generation: int) -> None:
    # PCI Express base specification; without a model only the device's own ability counts.
    speed = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}[generation]
    profile = {"gpus": {**PROFILE["gpus"], "type": ""}, "nvlink": PROFILE["nvlink"]}
    own = {"pcie_generation": generation, "pcie_generation_max": generation}
    found = records(own, node=host({1: ()}), profile=profile)
    (record,) = [one for one in found if (one.check, one.subject) == ("gpu.pcie_speed", "gpu:n/1")]
    assert record.status == PASS
    assert record.measured is not None
    assert record.measured["value"] == speed


ACTIONS = {1: "reset", 2: "reboot", 3: "reset", 4: "reset", 5: "look", 6: "reset", 7: "reboot"}


@pytest.mark.parametrize("action", ACTIONS)
def test_what_the_driver_asks_for(action: int) -> None:
    found = records({"recovery_action": action})
    assert outcome(found) == expect("recovery_action")
    (record,) = [one for one in found if one.status == FAIL]
    assert kind_of(record.remedy) == ACTIONS[action]
    later = records({"recovery_action": 99})
    assert outcome(later) == expect("recovery_action")
    assert kind_of(next(one for one in later if one.status == FAIL).remedy) == "look"


@pytest.mark.parametrize(
    ("changes", "checks"),
    [
        ({"uuid": None}, ("?identity",)),
        ({"serial": None}, ("?identity",)),
        ({"uuid": "GPU-9"}, ("identity",)),
        ({"serial": "9"}, ("identity",)),
        ({}, ()),
    ],
)
def test_a_gpu_that_is_another_than_the_recorded_one(
    changes: dict[str, Any], checks: tuple[str, ...]
) -> None:
    found = outcome(records(changes, identities={BUSES[1]: ("GPU-1", "1651")}))
    assert found == expect(*checks)


def test_settings_that_the_inventory_wants_otherwise() -> None:
    assert outcome(records(everywhere={"mig": 1, "mig_pending": 1}, mig=True)) == SOUND
    assert outcome(
        records({"mig": 0}, everywhere={"mig": 1, "mig_pending": 1}, mig=True)
    ) == expect("mig")
    off = {"ecc_mode": 0, "ecc_mode_pending": 0}
    found = records(everywhere=off, ecc=False)
    assert outcome(found) == SOUND
    assert not {one for one in found if one.check == "gpu.ecc_uncorrectable"}
    assert outcome(records({"ecc_mode_pending": 1}, everywhere=off, ecc=False)) == expect(
        "ecc_mode"
    )
    divided = {**PROFILE, "gpus": {**PROFILE["gpus"], "mig": [1]}}
    assert outcome(records({"mig": 1, "mig_pending": 1}, profile=divided)) == SOUND
    assert outcome(records(profile=divided)) == expect("mig")
    lacks = {"mig": None, "mig_pending": None}
    absent = {**GPU.absent, "mig": t.ERRORS[t.NOT_SUPPORTED]}
    found = records({**lacks, "absent": absent})
    assert outcome(found) == SOUND
    assert {one.subject for one in found if one.check == "gpu.mig"} == {"gpu:n/0"}
    everywhere = {"mig": 1, "mig_pending": 1}
    found = records({**lacks, "absent": absent}, everywhere=everywhere, mig=True)
    assert outcome(found) == expect("?mig")


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (("1g.10gb", "3g.40gb"), SOUND),
        # A reset leaves the mode and takes them away.
        ((), expect("mig_instances")),
        (("1g.10gb",), expect("mig_instances")),
        (None, expect("?mig_instances")),
    ],
)
def test_a_gpu_that_mig_divides_has_its_instances(
    there: tuple[str, ...] | None, expected: dict[str, set[str]]
) -> None:
    node = replace(
        host(),
        instances={0: ()} if there is None else {0: (), 1: there},
        instances_absent="nvidia-smi is not installed",
    )
    layout = {**PROFILE, "gpus": {**PROFILE["gpus"], "mig": {"1": ["3g.40gb", "1g.10gb"]}}}
    changes = {"mig": 1, "mig_pending": 1}
    found = records(changes, node, layout)
    assert outcome(found) == expected
    (record,) = [one for one in found if one.check == "gpu.mig_instances"]
    if there is None:
        assert record.text == "MIG instances: nvidia-smi is not installed"
    else:
        assert record.threshold is not None
        assert record.threshold.value == "1g.10gb, 3g.40gb"
    # Without a layout they are the site's, and without the mode that is the finding.
    numbers = {**PROFILE, "gpus": {**PROFILE["gpus"], "mig": [1]}}
    assert outcome(records(changes, node, numbers)) == SOUND
    everywhere = {"mig": 1, "mig_pending": 1}
    assert outcome(records(changes, node, everywhere=everywhere, mig=True)) == SOUND
    assert outcome(records({}, node, layout)) == expect("mig")


def test_only_an_idle_node_is_asked_for_processes() -> None:
    busy = {"processes": (GpuProcess(7, 1024),), "memory_used_mib": 1024}
    assert outcome(records(busy)) == expect("processes")
    assert outcome(records(busy, idle=False)) == SOUND
    assert outcome(records({"memory_used_mib": 1024, "mig": 1})) == expect("mig")


@pytest.mark.parametrize(
    ("links", "checks"),
    [
        # A link that cannot be read leaves the rest open, unless another is bad.
        (link(replays=None), ("?nvlink_replays",)),
        ((replace(LINKS[0], replays=1), *link(replays=None)[1:]), ("nvlink_replays",)),
        (link(speed_mbps=None), ("?nvlink_speed",)),
        ((replace(LINKS[0], speed_mbps=1), *link(speed_mbps=None)[1:]), ("nvlink_speed",)),
        (tuple(replace(one, recoveries=None) for one in LINKS), ("?nvlink_recoveries",)),
        # What is down has no speed and no counters.
        (link(active=False, speed_mbps=None, replays=9), ("nvlink_active",)),
        (link(active=None), ("?nvlink_active",)),
        (LINKS[:17], ("nvlink_active",)),
        ((*LINKS, replace(LINKS[0], number=18)), ("nvlink_active",)),
        (tuple(replace(one, active=False) for one in LINKS), ("nvlink_active",)),
    ],
)
def test_the_worst_link_decides(links: tuple[Link, ...], checks: tuple[str, ...]) -> None:
    found = outcome(records({"links": links}))
    assert found == expect(*checks)


def test_the_worst_link_is_named_with_what_was_measured() -> None:
    links = (replace(LINKS[0], replays=2, crc_errors=3), *link(replays=5, crc_errors=4)[1:])
    (record,) = [one for one in records({"links": links}) if one.status == FAIL]
    assert record.measured is not None
    assert record.measured["value"] == 5
    assert record.text.endswith(", link 7")
    assert record.evidence[1:] == ("7 CRC errors on all links",)
    slow = (replace(LINKS[0], speed_mbps=20000), *link(speed_mbps=10000)[1:])
    (record,) = [one for one in records({"links": slow}) if one.status == FAIL]
    assert record.measured is not None
    assert record.measured["value"] == 10000
    assert record.evidence[1:] == ()
    (record,) = [one for one in records({"links": link(active=False)}) if one.status == FAIL]
    assert record.text.endswith("down: 7")


def test_links_of_the_fifth_generation_count_failed_recoveries() -> None:
    absent = dict.fromkeys(("link_replays", "link_recoveries"), t.ERRORS[t.NOT_SUPPORTED])
    links = tuple(replace(one, recoveries_failed=0, effective_ber=1e-12) for one in LINKS)
    newer = {"absent": absent, "links": links}
    found = records(everywhere=newer)
    assert outcome(found) == SOUND
    checks = {one.check for one in found}
    assert {"gpu.nvlink_failed_recoveries", "gpu.nvlink_ber"} <= checks
    assert not {"gpu.nvlink_replays", "gpu.nvlink_recoveries"} & checks
    broken = (*links[:17], replace(links[17], recoveries_failed=1))
    assert outcome(records({"links": broken}, everywhere=newer)) == expect(
        "nvlink_failed_recoveries"
    )
    noisy = (*links[:17], replace(links[17], effective_ber=1.1e-12))
    assert outcome(records({"links": noisy}, everywhere=newer)) == expect("nvlink_ber")
    unread = (*links[:17], replace(links[17], effective_ber=None))
    assert outcome(records({"links": unread}, everywhere=newer)) == expect("?nvlink_ber")


@pytest.mark.parametrize("code", [2, 3, 13, 25])
def test_an_older_driver_is_not_asked_for_what_it_does_not_know(code: int) -> None:
    lacking = ("repair_channel", "repair_tpc", "fabric_health", "recovery_action")
    names = (*lacking, "link_effective_ber", "link_recoveries_failed")
    older = dict.fromkeys(lacking)
    absent = {**GPU.absent, **dict.fromkeys(names, t.ERRORS[code])}
    found = records(everywhere={**older, "absent": absent})
    assert outcome(found) == SOUND
    newer = {"repair_pending", "nvlink_ber", "fabric_route", "recovery_action"}
    newer.add("nvlink_failed_recoveries")
    assert not {f"gpu.{name}" for name in newer} & {one.check for one in found}


@pytest.mark.parametrize("full", [0, 1, None])
def test_a_gpu_that_mig_divides_is_judged_without_its_remapped_rows(full: int | None) -> None:
    """One before 565 asks for no reset either; a full bank is evidence, and no failure."""
    lacking = dict.fromkeys(("remap_pending", "retired_single"), t.NOT_SUPPORTED)
    lacking["recovery_action"] = t.INVALID_ARGUMENT
    absent = {**GPU.absent, **{name: t.ERRORS[code] for name, code in lacking.items()}}
    changes = {"mig": 1, "mig_pending": 1, **dict.fromkeys(lacking), "remap_full_banks": full}
    divided = {**PROFILE, "gpus": {**PROFILE["gpus"], "mig": [1]}}
    found = records({**changes, "absent": absent}, profile=divided)
    assert outcome(found) == SOUND
    line = "banks of memory without a spare row: 1"
    assert any(line in one.evidence for one in found) is bool(full)


def test_both_repairs_that_wait_are_named() -> None:
    found = records({"repair_channel": 1, "repair_tpc": 1})
    (record,) = [one for one in found if one.status == FAIL]
    assert record.measured is not None
    assert record.measured["value"] == "channel, TPC"


def test_a_gpu_that_says_that_it_has_no_links_has_none() -> None:
    lacks = {**GPU.absent, "link_count": t.ERRORS[t.NOT_SUPPORTED]}
    assert outcome(records({"links": (), "absent": lacks})) == expect("nvlink_active")
    assert outcome(records({"links": ()})) == expect("?nvlink_active")
    # A profile without links asks for none; a number of 0 is one without links as well.
    for links in (None, 0):
        profile = {**PROFILE, "nvlink": {"links_per_gpu": links, "nvswitches": 4}}
        found = records({"links": ()}, profile=profile)
        assert outcome(found) == SOUND
        assert "gpu.nvlink_active" not in {one.check for one in found}
    profile = {**PROFILE, "nvlink": {"links_per_gpu": 1, "nvswitches": 4}}
    one_link = {"links": LINKS[:1]}
    assert outcome(records(everywhere=one_link, profile=profile)) == SOUND
    assert outcome(records({"links": ()}, everywhere=one_link, profile=profile)) == expect(
        "?nvlink_active"
    )


def test_a_type_that_no_table_has_needs_thresholds_of_the_site() -> None:
    gpus = {**PROFILE["gpus"], "type": "gh200"}
    named = {"name": "NVIDIA GH200"}
    checks = ("gpu.clock_sm", "gpu.clock_memory", "gpu.nvlink_speed")
    found = outcome(records(everywhere=named, profile={**PROFILE, "gpus": gpus}))
    assert found[FAIL] == set()
    assert found[NOT_MEASURED] == {
        f"gpu:n/{number} {check}" for number in (0, 1) for check in checks
    }
    thresholds = {"gpu.clock_sm": 1980, "gpu.clock_memory": 2619, "gpu.nvlink_speed": 26562}
    profile = {**PROFILE, "gpus": gpus}
    assert outcome(records(everywhere=named, profile=profile, thresholds=thresholds)) == SOUND
    slow = {"clock_sm_max_mhz": 1979, "clock_memory_max_mhz": 2618, "links": link(speed_mbps=1)}
    assert outcome(
        records(slow, everywhere=named, profile=profile, thresholds=thresholds)
    ) == expect("clock_sm", "clock_memory", "nvlink_speed")
    # Without a type nothing is asked for that only a model could tell.
    profile = {**PROFILE, "gpus": {**PROFILE["gpus"], "type": ""}}
    found = records(profile=profile)
    assert outcome(found) == SOUND
    assert not {*checks, "gpu.model"} & {one.check for one in found}


@pytest.mark.parametrize("check", sorted(QUESTIONS))
def test_the_sites_own_threshold_wins(check: str) -> None:
    """Every threshold can be set; the record says that the inventory did."""
    asked = QUESTIONS[check]
    other: Any = {"<=": -1, "<": -1, ">=": 10**9, ">": 10**9}.get(asked.op, "of the site")
    if asked.op == "==" and asked.unit:
        other = not asked.value if isinstance(asked.value, bool) else 10**9
    for one in records(thresholds={check: other}):
        if one.check == check:
            assert one.status == FAIL
            assert one.threshold is not None
            assert (one.threshold.value, one.threshold.source) == (other, "inventory")
        else:
            assert one.status == PASS
