# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node with two GPUs says as a whole: who is named, where it is put, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_node import (
    BUSES,
    LINKS,
    PORTS,
    PROFILE,
    RELEASE,
    SOUND,
    behind_a_switch,
    expect,
    gpu,
    host,
    outcome,
    path,
    records,
)

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.host import Host, PciGpu
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.judge_device import (
    Asker,
    Wanted,
    judge_gpu,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.judge_node import (
    judge_node,
    judge_switch_events,
    wanted_from_profile,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.nvml import types as t
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.read import Gpu, GpuProcess, Sweep
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.thresholds import (
    QUESTIONS,
    kind_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.xid import Event
from ansible_collections.baremetal.dgx.plugins.module_utils._host.kernel_log import KernelLog
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.profiles import BUILT_IN

SWEEP = Sweep(driver_version=RELEASE, nvml_version=f"13.{RELEASE}", count=2, gpus=(gpu(0), gpu(1)))
NO_PERMISSION = "no permission"
NOT_SUPPORTED = t.ERRORS[t.NOT_SUPPORTED]
LOST = Gpu(index=1, pci=BUSES[1], lost="GPU is lost", lost_code=15)


def judged(
    sweep: Sweep = SWEEP,
    node: Host | None = None,
    profile: dict[str, Any] | None = None,
    log: str = "",
    gap: str = "",
    **options: Any,
) -> list[Record]:
    wanted = wanted_from_profile(PROFILE if profile is None else profile, **options)
    return list(judge_node("n", wanted, sweep, node or host(), KernelLog(log, gap)))


def with_gpus(*gpus: Gpu, **changes: Any) -> Sweep:
    return replace(SWEEP, gpus=gpus, **changes)


def profile_with(part: str, **changes: Any) -> dict[str, Any]:
    return {**PROFILE, part: {**PROFILE[part], **changes}}


def of(found: list[Record], check: str) -> dict[str, Record]:
    return {one.subject: one for one in found if one.check == f"gpu.{check}"}


def only(found: list[Record], check: str) -> Record:
    (record,) = of(found, check).values()
    return record


# GPUs that are lost, stuck or unknown


@pytest.mark.parametrize("address", [BUSES[1], None])
@pytest.mark.parametrize(("code", "action"), [(15, "reboot"), (t.RESET_REQUIRED, "reset")])
def test_a_lost_gpu_is_one_finding_and_is_asked_nothing_else(
    address: str | None, code: int, action: str
) -> None:
    found = judged(with_gpus(gpu(0), replace(LOST, pci=address, lost_code=code)))
    assert outcome(found) == expect("access")
    record = of(found, "access")["gpu:n/1"]
    assert record.text == "NVML: GPU is lost"
    assert kind_of(record.remedy) == action
    assert {one.check[4:] for one in found if one.subject == "gpu:n/1"} == {
        "present", "driver", "numa", "access", "xid", "pcie_errors", "pcie_corrected",
    }  # fmt: skip
    # Its slot is known: nothing is left over for the node, and all are counted.
    assert set(of(found, "access")) == {"gpu:n/0", "gpu:n/1"}
    assert only(found, "count").evidence == ()


def test_a_gpu_that_does_not_answer_is_not_measured_and_says_what_was_asked() -> None:
    found = judged(with_gpus(gpu(0), stuck={1: "serial did not come back within 1 s"}))
    assert outcome(found) == expect("?access")
    text = of(found, "access")["gpu:n/1"].text
    assert text == "NVML: serial did not come back within 1 s: not reported"


THREE = ("0000:1b:00.0", "0000:43:00.0", "0000:52:00.0", "0000:61:00.0")


@pytest.mark.parametrize(
    ("count", "index", "subject"),
    [
        # NVML counts as many as there are addresses: the number is the place.
        (4, 2, "gpu:n/2"),
        (4, 3, "gpu:n/3"),
        # It counts others than PCI has; or the place is one of a GPU with a name, or none.
        (3, 2, "node:n"),
        (5, 2, "node:n"),
        (None, 2, "node:n"),
        (4, 0, "node:n"),
        (4, 4, "node:n"),
    ],
)
def test_a_gpu_without_a_name_has_the_slot_of_its_number_only_if_all_are_counted(
    count: int | None, index: int, subject: str
) -> None:
    profile = {"gpus": {"count": 4, "pci": THREE}}
    found = judged(with_gpus(gpu(0), gpu(1), stuck={index: "x"}, count=count), profile=profile)
    open_ones = {name: one for name, one in of(found, "access").items() if one.status != PASS}
    assert set(open_ones) == {subject}
    text = open_ones[subject].text
    if subject == "node:n":
        assert text.startswith(f"GPU {index} of NVML, whose PCI address is not known; NVML: x")
    else:
        assert text.startswith("NVML: x")


def test_a_gpu_that_nvml_has_not_says_what_the_driver_said() -> None:
    line = "NVRM: GPU 0000:43:00.0: RmInitAdapter failed! (0x62:0x40:2407)"
    other = "NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x62:0x40:2407)"
    log = "\n".join([other, *[line + "x" * 200] * 4])
    found = judged(with_gpus(gpu(0), count=1), log=log)
    assert outcome(found)[FAIL] == {"gpu:n/1 gpu.access", "node:n gpu.count"}
    record = of(found, "access")["gpu:n/1"]
    assert record.evidence == ("PCI 0000:43:00.0", *[(line + "x" * 200)[:200]] * 3)
    assert kind_of(record.remedy) == "reboot"
    count = only(found, "count")
    assert count.evidence == (BUSES[1],)
    assert count.remedy == "look: gpu.access of the GPU at 0000:43:00.0"


def test_a_library_that_gives_nothing_blames_no_gpu() -> None:
    for count in (None, 2):
        found = judged(Sweep(error="driver not loaded", error_code=9, count=count))
        assert outcome(found)[FAIL] == set()
        assert of(found, "access") == {}
    record = only(found, "nvml")
    assert (record.status, record.text) == (NOT_MEASURED, "NVML: driver not loaded: not reported")


def test_a_library_of_another_release_is_a_finding_of_the_releases() -> None:
    found = judged(Sweep(error="versions differ", error_code=t.LIB_RM_VERSION_MISMATCH))
    assert of(found, "nvml") == {}
    record = only(found, "versions")
    assert (record.status, record.text) == (FAIL, "NVML: versions differ")
    assert record.measured == {"value": 2, "unit": "releases"}
    assert only(judged(), "nvml").status == PASS


# What PCI shows


def test_a_gpu_that_pci_has_not_is_a_finding_only_where_there_is_a_bus() -> None:
    node = host()
    gone = judged(with_gpus(gpu(0), count=1), replace(node, gpus=node.gpus[:1]))
    assert outcome(gone)[FAIL] == {"gpu:n/1 gpu.present", "node:n gpu.count"}
    found = of(judged(with_gpus(gpu(0), count=1), Host(module_version=RELEASE)), "present")
    assert {name: one.status for name, one in found.items()} == {
        "gpu:n/0": PASS,
        "gpu:n/1": NOT_MEASURED,
    }
    assert "sysfs shows no PCI bus" in found["gpu:n/1"].text


def test_the_kernel_driver_and_the_numa_node_of_a_gpu() -> None:
    node = host()
    other = replace(node.gpus[1], driver=None, numa=0)
    found = judged(node=replace(node, gpus=(node.gpus[0], other)))
    assert outcome(found) == expect("driver", "numa")
    assert of(found, "driver")["gpu:n/1"].measured == {"value": "none", "unit": ""}
    # Where the profile names no NUMA node, none is asked.
    fewer = judged(node=replace(node, gpus=(node.gpus[0], other)), profile=profile_with(
        "gpus", numa=[0]
    ))  # fmt: skip
    assert set(of(fewer, "numa")) == {"gpu:n/0"}
    assert outcome(fewer) == expect("driver")


@pytest.mark.parametrize(("kind", "unit"), [("speed_gts", "speed"), ("width", "width")])
def test_one_link_of_the_path_that_cannot_be_read_leaves_the_path_open(
    kind: str, unit: str
) -> None:
    found = records(node=host({1: behind_a_switch(**{kind: None})}))
    assert outcome(found) == expect(f"?pcie_{unit}")
    text = of(found, f"pcie_{unit}")["gpu:n/1"].text
    assert "; sysfs does not show both ends of each link" in text


def test_why_the_speed_of_a_link_is_not_measured() -> None:
    def why(changes: dict[str, Any], path_of: tuple[Any, ...] | None = None) -> str:
        node = host() if path_of is None else host({1: path_of})
        return of(records(changes, node=node), "pcie_speed")["gpu:n/1"].text

    asleep, unseen = "where links save power", "sysfs does not show both ends of each link"
    assert asleep in why({"pstate": 8})
    assert unseen in why({"pstate": 8}, ())
    assert unseen in why({"pcie_generation": None}, ())
    assert unseen in why({}, path(1, speed_gts=None))
    width = of(records({"pcie_width": None}, node=host({1: ()})), "pcie_width")["gpu:n/1"].text
    assert unseen in width


AER = "[9.0] nvidia {}: AER: PCIe Bus Error: severity={}, type=Data Link Layer, (Receiver ID)\n"
FATAL, CORRECTED = "Uncorrected (Fatal)", "Correctable"


@pytest.mark.parametrize("address", [BUSES[1], PORTS[1]])
def test_pcie_errors_of_both_ends_of_its_link_are_the_gpus(address: str) -> None:
    assert outcome(judged(log=AER.format(address, FATAL))) == expect("pcie_errors")
    # A corrected error is counted by the minute: up to 8 are fine.
    assert outcome(judged(log=AER.format(address, CORRECTED) * 8)) == SOUND
    assert outcome(judged(log=AER.format(address, CORRECTED) * 9)) == expect("pcie_corrected")


def test_pcie_errors_above_its_link_are_not_the_gpus() -> None:
    node = host({1: behind_a_switch()})
    for address, checks in (("0000:42:00.0", ("pcie_errors",)), ("0000:41:00.0", ())):
        assert outcome(judged(node=node, log=AER.format(address, FATAL))) == expect(*checks)


# Releases, NVSwitches, firmware


def test_the_release_of_the_driver_is_what_nvml_says_or_the_modules() -> None:
    node = replace(host(), module_version="580.126.09")
    found = judged(node=node, driver_version=RELEASE)
    assert outcome(found)[FAIL] == {"node:n gpu.versions"}
    assert only(found, "versions").measured == {"value": 2, "unit": "releases"}
    silent = replace(SWEEP, driver_version=None, nvml_version=None)
    found = judged(silent, driver_version=RELEASE)
    assert only(found, "driver_version").status == PASS
    assert only(found, "versions").status == NOT_MEASURED
    assert of(judged(), "driver_version") == {}


def test_a_node_without_nvswitches_has_no_fabric_manager() -> None:
    found = judged(profile=profile_with("nvlink", nvswitches=None))
    assert outcome(found) == SOUND
    assert not {"gpu.fabric_manager", "gpu.nvswitch_count"} & {one.check for one in found}
    # Those of a B200 are not on PCIe.
    found = judged(profile=profile_with("gpus", type="b200"))
    assert of(found, "nvswitch_count") == {}


def test_nvswitches_are_counted_where_there_is_a_bus() -> None:
    fewer = replace(host(), switches=host().switches[:3])
    assert outcome(judged(node=fewer))[FAIL] == {"node:n gpu.nvswitch_count"}
    assert only(judged(node=fewer), "nvswitch_count").evidence == fewer.switches
    blind = only(judged(node=replace(host(), has_pci=False)), "nvswitch_count")
    assert blind.status == NOT_MEASURED


def test_gpus_of_different_firmware_are_named() -> None:
    found = records({"vbios": "96.00.99.00.02"})
    assert outcome(found)[FAIL] == {"node:n gpu.firmware_equal"}
    record = only(found, "firmware_equal")
    assert record.measured == {"value": 2, "unit": "kinds"}
    assert record.evidence == (
        "VBIOS 96.00.68.00.01, part 699-2G520: 0000:1b:00.0",
        "VBIOS 96.00.99.00.02, part 699-2G520: 0000:43:00.0",
    )
    assert only(records({"vbios": None}), "firmware_equal").status == NOT_MEASURED


def test_a_profile_without_a_type_asks_for_no_model() -> None:
    gpus = {name: value for name, value in PROFILE["gpus"].items() if name != "type"}
    found = judged(profile={**PROFILE, "gpus": gpus})
    assert outcome(found) == SOUND
    assert of(found, "model") == {}


# The fabric of NVSwitches


def test_a_registration_that_no_gpu_has_is_one_finding_of_the_node() -> None:
    found = records(everywhere={"fabric_state": 2})
    assert outcome(found)[FAIL] == {"node:n gpu.fabric"}
    record = only(found, "fabric")
    assert record.text == "registration of all 2 GPUs with the fabric manager"
    assert record.measured == {"value": "in progress", "unit": ""}
    absent = {"fabric_state": NO_PERMISSION}
    record = only(records(everywhere={"fabric_state": None, "absent": absent}), "fabric")
    assert record.status == NOT_MEASURED
    assert record.text.endswith(f": {NO_PERMISSION}")
    assert set(of(records(), "fabric")) == {"gpu:n/0", "gpu:n/1"}


def test_a_fabric_manager_of_another_release_is_the_cause_of_the_fabrics_state() -> None:
    other = replace(host(), fabric_manager="570.124.06")
    found = records(None, other, everywhere={"fabric_state": 2})
    assert outcome(found) == {
        FAIL: {"node:n gpu.fabric_manager"},
        NOT_MEASURED: {"node:n gpu.fabric"},
    }
    assert only(found, "fabric").text == (
        "registration of all 2 GPUs with the fabric manager: in progress, and gpu.fabric_manager "
        "says why"
    )
    # One GPU alone that it has not registered is another cause.
    found = records({"fabric_state": 2}, other)
    assert outcome(found)[FAIL] == {"node:n gpu.fabric_manager", "gpu:n/1 gpu.fabric"}


def test_the_fabric_state_of_one_gpu() -> None:
    for why, expected in ((NO_PERMISSION, expect("?fabric")), (NOT_SUPPORTED, SOUND)):
        absent = {**gpu(1).absent, "fabric_state": why}
        assert outcome(records({"fabric_state": None, "absent": absent})) == expected
    alone = {"gpus": {"count": 1, "pci": BUSES[:1], "type": "h100"}, "nvlink": PROFILE["nvlink"]}
    node = host()
    found = judged(
        with_gpus(gpu(0, fabric_state=2), count=1), replace(node, gpus=node.gpus[:1]), alone
    )
    assert of(found, "fabric") == {}
    # Its health shows nothing as long as it is not registered.
    assert outcome(records({"fabric_state": 2, "fabric_health": 0x1A9})) == expect("fabric")


def test_the_health_of_the_fabric_in_words() -> None:
    what = QUESTIONS["gpu.fabric_bandwidth"].what
    for mask, status, text in (
        (0x1A9, FAIL, what),
        (0x1AB, NOT_MEASURED, f"{what}: 3 is not known: not reported"),
    ):
        record = of(records({"fabric_health": mask}), "fabric_bandwidth")["gpu:n/1"]
        assert (record.status, record.text) == (status, text)
        assert record.evidence[1:] == (f"health mask {mask:#x}",)


# The fabric of a rack


# nvidia-smi -q -x of a GB300 tray; of GB200 the figures of NVIDIA's infra-controller.
TRAYS = {
    "gb200_nvl72": {"name": "NVIDIA GB200", "memory_total_mib": 189471, "clock_sm_max_mhz": 2062},
    "gb300_nvl72": {"name": "NVIDIA GB300", "memory_total_mib": 284208, "clock_sm_max_mhz": 2070},
}


def tray(
    name: str, changes: dict[str, Any] | None = None, everywhere: dict[str, Any] | None = None
) -> list[Record]:
    """The records of a tray of an NVL72 whose GPU 1 has these changes."""
    profile = BUILT_IN[name]
    buses, numa = profile["gpus"]["pci"], profile["gpus"]["numa"]
    links = tuple(replace(one, speed_mbps=53125) for one in LINKS)
    model = {**TRAYS[name], "clock_memory_max_mhz": 3996, "links": links, **(everywhere or {})}
    gpus = tuple(
        gpu(0, index=number, minor=number, pci=bus, uuid=f"GPU-{number}", serial=str(number))
        for number, bus in enumerate(buses)
    )
    gpus = tuple(replace(one, **model) for one in gpus)
    gpus = (gpus[0], replace(gpus[1], **(changes or {})), *gpus[2:])
    # The GPU is of generation 6, the root port above its switch is not.
    own, down = (replace(one, speed_gts=64.0, max_speed_gts=64.0) for one in behind_a_switch()[:2])
    cards = tuple(
        PciGpu(bus, "nvidia", node, (replace(own, address=bus), down, *behind_a_switch()[2:]))
        for bus, node in zip(buses, numa, strict=True)
    )
    node = host(gpus=cards, switches=(), fabric_manager=None)
    return judged(with_gpus(*gpus, count=4), node, profile)


@pytest.mark.parametrize("name", TRAYS)
def test_a_healthy_tray_passes(name: str) -> None:
    found = tray(name)
    assert outcome(found) == SOUND
    assert set(of(found, "fabric")) == {f"gpu:n/{number}" for number in range(4)}
    assert set(of(found, "fabric_bandwidth")) == set(of(found, "fabric"))
    # The NVSwitches and their manager are the rack's.
    assert {**of(found, "fabric_manager"), **of(found, "nvswitch_count")} == {}
    less = {"memory_total_mib": TRAYS[name]["memory_total_mib"] - 1}
    assert outcome(tray(name, less)) == expect("memory")


@pytest.mark.parametrize("name", TRAYS)
@pytest.mark.parametrize(
    ("check", "changes"),
    [
        ("fabric", {"fabric_state": 2}),
        ("fabric_bandwidth", {"fabric_health": 0x1A9}),
        ("fabric_route", {"fabric_health": 0x19A}),
        ("fabric_configuration", {"fabric_health": 0x5AA}),
        ("fabric_partition", {"fabric_health": 0x21AA}),
        ("fabric_connection", {"fabric_health": 0x81AA}),
    ],
)
def test_a_gpu_outside_the_fabric_of_its_rack_is_found(
    name: str, check: str, changes: dict[str, int]
) -> None:
    found = tray(name, changes)
    assert outcome(found) == expect(check)
    remedy = of(found, check)["gpu:n/1"].remedy
    # Nothing on the node manages the fabric.
    assert "nvidia-fabricmanager" not in remedy
    assert ("NMX-C" in remedy) == (check != "fabric_bandwidth")


def test_sixteen_lanes_are_asked_of_a_model_whose_pcie_is_known() -> None:
    upper = {1: behind_a_switch(width=8, max_width=8)}
    assert outcome(records(node=host(upper))) == expect("pcie_width")
    for kind, expected in (("gb300", SOUND), ("b200", expect("pcie_width"))):
        gpus = {**PROFILE["gpus"], "type": kind, "memory_mib": None}
        able = {"gpu.clock_sm": 1, "gpu.clock_memory": 1, "gpu.nvlink_speed": 1}
        named = {"name": f"NVIDIA {kind.upper()}"}
        profile = {"gpus": gpus, "nvlink": {"links_per_gpu": 18}}
        found = records(None, host(upper), profile, everywhere=named, thresholds=able)
        assert outcome(found) == expected


def test_a_tray_that_its_rack_does_not_have_is_one_finding_of_the_node() -> None:
    found = tray("gb300_nvl72", everywhere={"fabric_state": 1})
    assert outcome(found)[FAIL] == {"node:n gpu.fabric"}
    assert "NMX-C" in only(found, "fabric").remedy


@pytest.mark.parametrize(
    "lacking",
    [
        {"fabric_state": 0},
        {"fabric_state": None, "absent": {**gpu(0).absent, "fabric_state": NOT_SUPPORTED}},
        # NVLink is older than fabrics, and so are drivers of such cards.
        *(
            {"fabric_state": None, "absent": {**gpu(0).absent, "fabric_state": t.ERRORS[code]}}
            for code in (t.FUNCTION_NOT_FOUND, t.INVALID_ARGUMENT)
        ),
    ],
)
def test_cards_that_a_bridge_joins_have_no_fabric(lacking: dict[str, Any]) -> None:
    found = records(everywhere=lacking, profile=profile_with("nvlink", nvswitches=0))
    assert outcome(found) == SOUND
    assert not {one.check for one in found if one.check.startswith("gpu.fabric")}


# One GPU


def test_what_is_not_read_of_a_gpu_is_named_with_its_reason() -> None:
    for name in ("uuid", "serial"):
        absent = {"uuid": "reason of uuid", "serial": "reason of serial"}
        record = of(records({name: None, "absent": absent}), "identity")["gpu:n/1"]
        assert record.status == NOT_MEASURED
        assert record.text == f"{QUESTIONS['gpu.identity'].what}: reason of {name}"
    nameless = Gpu(index=0)
    first = next(iter(judge_gpu(nameless, "gpu:n/0", Wanted(), None)))
    assert first.evidence == ("PCI ?, UUID ?, serial ?",)


def test_links_that_are_there_are_counted_although_their_number_is_not_told() -> None:
    absent = {**gpu(1).absent, "link_count": NOT_SUPPORTED}
    assert outcome(records({"links": LINKS, "absent": absent})) == SOUND


# Xids and SXids

XID = "[{}] NVRM: Xid (PCI:0000:{}:00): {}, pid=1, name=x, text\n"
SXID = "[{}] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): {}, Fatal, Link 30 text\n"


def test_an_xid_is_a_finding_of_the_gpu_at_its_address_or_of_the_node() -> None:
    assert outcome(judged(log=XID.format(0.5, "43", 79))) == expect("xid")
    assert outcome(judged(log=XID.format(0.5, "aa", 79)))[FAIL] == {"node:n gpu.xid"}
    assert set(of(judged(), "xid")) == {"gpu:n/0", "gpu:n/1"}


@pytest.mark.parametrize(
    ("code", "action"), [(13, None), (31, None), (54, "look"), (48, "reset"), (79, "reboot")]
)
def test_an_xid_is_a_finding_if_it_asks_for_more_than_a_restarted_job(
    code: int, action: str | None
) -> None:
    found = judged(log=XID.format(9.0, "43", code) * 2)
    record = of(found, "xid")["gpu:n/1"]
    if action is None:
        assert outcome(found) == SOUND
        assert record.text == f"{QUESTIONS['gpu.xid'].what}; 2 that ask for no more"
        assert record.measured == {"value": 0, "unit": "Xids"}
        return
    assert outcome(found) == expect("xid")
    assert kind_of(record.remedy) == action
    assert record.text.startswith(f"Xid {code}: ")
    assert record.measured == {"value": 2, "unit": "Xids"}


def test_of_many_kinds_of_xids_eight_are_told_the_worst_first() -> None:
    codes = [13, 31, 43, 45, 63, 94, 48, 95, 119, 79]
    found = judged(log="".join(XID.format(9.0, "43", code) for code in codes))
    _who, first, *rest = of(found, "xid")["gpu:n/1"].evidence
    assert first.startswith("reboot, 1 x ")
    assert len(rest) == 7


def test_a_gap_of_the_log_leaves_open_what_was_not_seen() -> None:
    found = judged(gap="the first 412 messages are gone")
    assert {one.check for one in found if one.status == NOT_MEASURED} == {
        "gpu.xid", "gpu.sxid", "gpu.pcie_errors", "gpu.pcie_corrected",
    }  # fmt: skip
    assert outcome(found)[FAIL] == set()


def test_switch_errors_are_judged_where_there_are_switches_or_errors() -> None:
    without = profile_with("nvlink", nvswitches=None)
    assert of(judged(profile=without), "sxid") == {}
    found = judged(profile=without, log=SXID.format(9.0, 24004))
    assert outcome(found)[FAIL] == {"node:n gpu.sxid"}
    assert only(found, "sxid").text.startswith("SXid 24004: ")
    assert only(judged(), "sxid").status == PASS


@pytest.mark.parametrize(
    ("after_s", "follows"),
    [(-2.5, False), (-2.0, True), (0.0, True), (10.0, True), (10.5, False)],
)
def test_links_that_fail_from_2_s_before_to_10_s_after_a_lost_gpu_follow_from_it(
    after_s: float, follows: bool
) -> None:
    lost = XID.format(100.0, "43", 79)
    found = judged(log=lost + SXID.format(100.0 + after_s, 20034))
    assert outcome(found)[FAIL] == {"gpu:n/1 gpu.xid"} | (set() if follows else {"node:n gpu.sxid"})
    report = "follows from Xid 79 of the GPU at 0000:43:00.0: "
    evidence = only(found, "sxid").evidence
    assert any(line.startswith(report) for line in evidence) == follows


def test_another_error_of_a_switch_does_not_follow_from_a_lost_gpu() -> None:
    both = {"gpu:n/1 gpu.xid", "node:n gpu.sxid"}
    lost = XID.format(100.0, "43", 79)
    assert outcome(judged(log=lost + SXID.format(101.0, 24004)))[FAIL] == both
    reset = XID.format(100.0, "43", 95)
    assert outcome(judged(log=reset + SXID.format(101.0, 20034)))[FAIL] == both


@pytest.mark.parametrize("times", [(None, 100.0), (100.0, None), (None, None)])
def test_without_both_times_no_error_of_a_switch_follows_from_a_lost_gpu(
    times: tuple[float | None, float | None],
) -> None:
    lost = Event("xid", 79, BUSES[1], "text", times[0])
    failed = Event("sxid", 20034, "0000:05:00.0", "Fatal, Link 30 text", times[1])
    wanted = wanted_from_profile(PROFILE)
    ask = Asker("node:n", wanted)
    (record,) = judge_switch_events(ask, [failed], KernelLog(""), wanted, [lost])
    assert record.status == FAIL


def test_of_the_links_that_follow_eight_are_told() -> None:
    lines = "".join(SXID.format(101.0 + n / 10, 20034) for n in range(10))
    found = judged(log=XID.format(100.0, "43", 79) + lines)
    reported = [line for line in only(found, "sxid").evidence if line.startswith("follows from")]
    assert len(reported) == 8


def test_the_model_of_a_gpu_is_that_of_the_profile() -> None:
    assert outcome(records({"name": "NVIDIA A100-SXM4-80GB"})) == expect("model")
    assert outcome(records({"name": None})) == expect("?model")


def test_an_xid_without_a_meaning_is_not_measured_and_an_sxid_is_no_xid() -> None:
    assert outcome(judged(log=XID.format(9.0, "43", 877))) == expect("?xid")
    at_the_gpu = SXID.format(9.0, 24004).replace("0000:05:00.0", BUSES[1])
    assert outcome(judged(log=at_the_gpu))[FAIL] == {"node:n gpu.sxid"}


def test_a_pcie_error_counts_in_a_log_with_a_gap() -> None:
    found = judged(log=AER.format(BUSES[1], FATAL), gap="the first messages are gone")
    assert outcome(found)[FAIL] == {"gpu:n/1 gpu.pcie_errors"}


def test_what_holds_a_gpu_is_named() -> None:
    (record,) = [one for one in records({"processes": (GpuProcess(7, 1024),)}) if one.remedy]
    assert record.evidence[1:] == ("process 7, 1024 MiB",)


def test_a_profile_must_have_mappings_and_may_leave_out_the_count() -> None:
    for part in ("gpus", "nvlink"):
        with pytest.raises(ValueError, match="gpus and nvlink must be mappings"):
            wanted_from_profile({part: [1]})
    gpus = {name: value for name, value in PROFILE["gpus"].items() if name != "count"}
    assert outcome(judged(profile={**PROFILE, "gpus": gpus})) == SOUND


def test_without_nvlinks_a_fabric_is_not_asked() -> None:
    without = {**PROFILE, "nvlink": None}
    assert outcome(records({"fabric_health": 0x1A9}, profile=without)) == SOUND
    assert of(records({"fabric_state": 2}, profile=without), "fabric") == {}


def test_a_gpu_where_the_profile_has_none_is_a_finding() -> None:
    found = judged(profile={"gpus": {"pci": BUSES[:1], "type": "h100"}})
    assert outcome(found) == expect("present")
    assert of(found, "present")["gpu:n/1"].measured == {"value": True, "unit": "present"}


def test_the_registration_of_the_only_gpu_that_answers_is_its_own() -> None:
    found = judged(with_gpus(gpu(0, fabric_state=2), LOST))
    assert outcome(found)[FAIL] == {"gpu:n/0 gpu.fabric", "gpu:n/1 gpu.access"}
