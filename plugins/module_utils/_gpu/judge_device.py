# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Judgement of one GPU that NVML reaches. Pure: what was read and the thresholds give records.

What a GPU does not have (its driver says "not supported") is not asked for where that is not a
fault; what could not be read is not measured, with the driver's reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Mapping

from .._core.record import Record, judge
from .._host.pci import links_of
from .host import PciGpu
from .nvml.types import (
    ARGUMENT_VERSION_MISMATCH,
    COMPUTE_MODES,
    ERRORS,
    FABRIC_COMPLETED,
    FABRIC_HEALTH,
    FABRIC_STATES,
    FUNCTION_NOT_FOUND,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    THROTTLE_REASONS,
)
from .read import Gpu, Link
from .thresholds import (
    MODEL_WIDTH,
    QUESTIONS,
    THROTTLE_FAULTS,
    Model,
    fabric_remedy,
    model_of,
    same_part,
    threshold,
)

_NOT_SUPPORTED = ERRORS[NOT_SUPPORTED]
_UNKNOWN_TO_OLDER = tuple(
    ERRORS[code]
    for code in (NOT_SUPPORTED, INVALID_ARGUMENT, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH)
)
_ON: dict[int | None, str] = {0: "off", 1: "on"}
# GT/s by generation, PCI Express base specification.
PCIE_GTS: dict[int | None, float] = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}


@dataclass(frozen=True)
class Wanted:
    """What the profile and the inventory say of a node's GPUs; None and empty are not asked.

    `identities` maps a PCI address to the UUID and serial number that were recorded for it. `idle`
    asks for what only a node without jobs can be held to.
    """

    count: int | None = None
    type: str = ""
    memory_mib: int | None = None
    pci: tuple[str, ...] = ()
    numa: tuple[int, ...] = ()
    links: int | None = None
    nvswitches: int | None = None
    driver_version: str = ""
    mig: bool = False
    # The numbers of the GPUs that MIG divides, where not all or none of them.
    divided: frozenset[int] = frozenset()
    # Their instances by the names of their profiles; without these they are the site's.
    instances: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    ecc: bool = True
    idle: bool = True
    identities: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    since_s: float = 0.0

    @property
    def model(self) -> Model | None:
        """What the GPU type is able to; None for a type that no table has."""
        return model_of(self.type, self.memory_mib)

    @property
    def fabric(self) -> bool:
        """Whether a fabric may join the GPUs: of the node's own NVSwitches, or of the rack's."""
        return bool(self.nvswitches or self.links)


@dataclass(frozen=True)
class Asker:
    """Makes the records of one subject."""

    subject: str
    wanted: Wanted
    evidence: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)

    def __call__(
        self,
        check: str,
        measured: Any,
        value: Any = None,
        text: str = "",
        *,
        name: str = "",
        remedy: str = "",
        evidence: tuple[str, ...] = (),
    ) -> Record:
        """Return the record of a value; `name` is the attribute that it was read as."""
        reported = text or QUESTIONS[check].what
        if measured is None:
            reported += f": {self.absent.get(name) or 'not reported'}"
        return judge(
            check,
            self.subject,
            measured,
            threshold(check, value, self.wanted.thresholds),
            reported,
            remedy or QUESTIONS[check].remedy,
            (*self.evidence, *evidence),
        )

    def knows(self, check: str, value: Any) -> bool:
        """Return whether there is a threshold, of a table or of the site."""
        return value is not None or check in self.wanted.thresholds

    def unknown(self, check: str) -> Record:
        """Return the record of a question without a threshold for this model."""
        what = f"{QUESTIONS[check].what}; no table has {self.wanted.type}"
        what += f", write thresholds: {{{check}: …}}"
        return self(check, None, 0, what)

    def lacks(self, name: str) -> bool:
        """Return whether the GPU has no such thing."""
        return self.absent.get(name) == _NOT_SUPPORTED

    def too_old(self, name: str) -> bool:
        """Return whether GPU or driver are older than this question."""
        return self.absent.get(name) in _UNKNOWN_TO_OLDER


def asker_of(gpu: Gpu, subject: str, wanted: Wanted) -> Asker:
    """Return the asker of a GPU, with what tells it from any other."""
    who = f"PCI {gpu.pci or '?'}, UUID {gpu.uuid or '?'}, serial {gpu.serial or '?'}"
    return Asker(subject, wanted, (who,), gpu.absent)


def judge_gpu(gpu: Gpu, subject: str, wanted: Wanted, seen: PciGpu | None) -> Iterator[Record]:
    """Yield the records of a GPU; `seen` is what PCI shows of it."""
    ask = asker_of(gpu, subject, wanted)
    yield from _identity(gpu, ask)
    yield from _pcie(gpu, ask, seen)
    yield from _memory(gpu, ask)
    yield from _nvlink(gpu, ask)
    yield from _clocks_and_heat(gpu, ask)
    yield from _settings(gpu, ask)


def _identity(gpu: Gpu, ask: Asker) -> Iterator[Record]:
    wanted = ask.wanted
    if wanted.type:
        # The model is written in many ways; what counts are the words of the type.
        fits = gpu.name is not None and same_part(wanted.type, gpu.name)
        found = wanted.type if fits else gpu.name
        yield ask("gpu.model", found, wanted.type, f"model {gpu.name}", name="name")
    if wanted.memory_mib is not None:
        yield ask("gpu.memory", gpu.memory_total_mib, wanted.memory_mib, name="memory_total_mib")
    recorded = wanted.identities.get(gpu.pci or "")
    if gpu.uuid is None or gpu.serial is None:
        name = "uuid" if gpu.uuid is None else "serial"
        yield ask("gpu.identity", None, name=name)
    else:
        same = recorded is None or recorded == (gpu.uuid, gpu.serial)
        text = f"recorded here: UUID {recorded[0]}, serial {recorded[1]}" if recorded else ""
        yield ask("gpu.identity", same, None, text)
    if not ask.lacks("inforom_valid"):
        yield ask("gpu.inforom", gpu.inforom_valid, name="inforom_valid")


def _pcie(gpu: Gpu, ask: Asker, seen: PciGpu | None) -> Iterator[Record]:
    links = links_of(seen.path) if seen else ()
    model = ask.wanted.model
    # An idle GPU that is not in P0 slows its own link down; that shows nothing about the link.
    asleep = gpu.pstate is not None and gpu.pstate > 0
    for kind, least in (
        ("speed", model.pcie_gts or 0 if model else 0),
        ("width", MODEL_WIDTH if model and model.pcie_gts else 0),
    ):
        check, slowest, unread = f"gpu.pcie_{kind}", None, not links
        for link in links:
            now = link.speed_gts if kind == "speed" else link.width
            able = link.able_speed_gts if kind == "speed" else link.able_width
            if kind == "speed" and asleep and link is links[0]:
                unread = True
            elif now is None or able is None:
                unread = True
            elif slowest is None or now - max(able, least) < slowest[0] - slowest[1]:
                slowest = (now, max(able, least), f"{link.lower} below {link.upper}")
        if slowest is not None and (slowest[0] < slowest[1] or not unread):
            yield ask(check, slowest[0], slowest[1], slowest[2])
        elif not links and kind == "width" and gpu.pcie_width is not None:
            able = max(gpu.pcie_width_max or 0, least)
            yield ask(check, gpu.pcie_width, able, "its own link, by NVML: sysfs shows no path")
        elif not links and kind == "speed" and not asleep and _own_speed(gpu) is not None:
            # A virtual machine has no bridge above the GPU.
            able = max(PCIE_GTS.get(gpu.pcie_generation_max, 0), least)
            yield ask(check, _own_speed(gpu), able, "its own link, by NVML: sysfs shows no path")
        else:
            why = "the GPU is not in P0, where links save power" if asleep and links else ""
            why = why or "sysfs does not show both ends of each link"
            yield ask(check, None, least, f"{QUESTIONS[check].what}; {why}")


def _unread(gpu: Gpu, first: str, second: str) -> str:
    """Return which of two values says why there is no pair of them."""
    return first if getattr(gpu, first) is None else second


def _own_speed(gpu: Gpu) -> float | None:
    return PCIE_GTS.get(gpu.pcie_generation)


def _memory(gpu: Gpu, ask: Asker) -> Iterator[Record]:
    modes = (gpu.ecc_mode, gpu.ecc_mode_pending)
    mode = None if None in modes else ", ".join(_ON.get(one, "?") for one in modes)
    want = "on, on" if ask.wanted.ecc else "off, off"
    yield ask("gpu.ecc_mode", mode, want, name=_unread(gpu, "ecc_mode", "ecc_mode_pending"))
    if ask.wanted.ecc:
        yield from _ecc(gpu, ask)
    # Only the newest drivers have this flag.
    if gpu.unrepairable is not None:
        yield ask("gpu.unrepairable", bool(gpu.unrepairable))
    if not ask.too_old("repair_channel"):
        repairs = (("channel", gpu.repair_channel), ("TPC", gpu.repair_tpc))
        asked = ", ".join(name for name, flag in repairs if flag) or "none"
        known = gpu.repair_channel is not None
        yield ask("gpu.repair_pending", asked if known else None, name="repair_channel")
    if not ask.lacks("remap_pending"):
        rows = f"{gpu.remap_uncorrected} uncorrectable, {gpu.remap_corrected} correctable"
        reported = (f"rows remapped: {rows}",)
        pending = None if gpu.remap_pending is None else bool(gpu.remap_pending)
        failed = None if gpu.remap_failed is None else bool(gpu.remap_failed)
        yield ask("gpu.remap_pending", pending, name="remap_pending", evidence=reported)
        yield ask("gpu.remap_failed", failed, name="remap_failed", evidence=reported)
        yield ask("gpu.remapped_rows", gpu.remap_uncorrected, name="remap_uncorrected")
    elif not ask.lacks("retired_single"):
        pages = (gpu.retired_single, gpu.retired_double)
        total = None if None in pages else sum(one or 0 for one in pages)
        unread = _unread(gpu, "retired_single", "retired_double")
        yield ask("gpu.retired_pages", total, name=unread)
        yield ask("gpu.retired_double", gpu.retired_double, name="retired_double")
        waiting = None if gpu.retired_pending is None else bool(gpu.retired_pending)
        yield ask("gpu.retired_pending", waiting, name="retired_pending")


def _ecc(gpu: Gpu, ask: Asker) -> Iterator[Record]:
    reported: tuple[str, ...] = (f"{gpu.ecc_aggregate_uncorrected} of all time",)
    if gpu.remap_full_banks:
        # No failure yet: that is the next error in such a bank.
        reported += (f"banks of memory without a spare row: {gpu.remap_full_banks}",)
    yield ask(
        "gpu.ecc_uncorrectable",
        gpu.ecc_volatile_uncorrected,
        name="ecc_volatile_uncorrected",
        evidence=reported,
    )
    yield ask("gpu.ecc_dram_correctable", gpu.ecc_dram_corrected, name="ecc_dram_corrected")
    yield ask("gpu.ecc_sram_correctable", gpu.ecc_sram_corrected, name="ecc_sram_corrected")
    yield ask(
        "gpu.sram_uncorrectable",
        gpu.sram_aggregate_uncorrected,
        name="sram_aggregate_uncorrected",
    )
    if not ask.lacks("sram_threshold_exceeded"):
        flag = gpu.sram_threshold_exceeded
        exceeded = None if flag is None else bool(flag)
        yield ask("gpu.sram_threshold", exceeded, name="sram_threshold_exceeded")


def _nvlink(gpu: Gpu, ask: Asker) -> Iterator[Record]:
    wanted = ask.wanted
    # The driver answers no question about the NVLinks of a GPU in MIG mode.
    links = () if gpu.mig else gpu.links
    if wanted.links is not None and wanted.links > 0 and not gpu.mig:
        down = [str(link.number) for link in gpu.links if link.active is False]
        text = f"NVLinks that are up; down: {', '.join(down)}" if down else ""
        active = gpu.active_links
        # No link at all is a count of none where NVML answers so, and unknown where it does not.
        if not gpu.links and ask.lacks("link_count"):
            active = 0
        yield ask("gpu.nvlink_active", active, wanted.links, text, name="links")
    yield from _fabric_health(gpu, ask)
    up = [link for link in links if link.active]
    if not up:
        return
    if wanted.type:
        model = wanted.model
        able = None if model is None else model.nvlink_mbps
        if ask.knows("gpu.nvlink_speed", able):
            yield _worst(ask, "gpu.nvlink_speed", up, "speed_mbps", min, able)
        else:
            yield ask.unknown("gpu.nvlink_speed")
    # Fifth-generation links have other counters; what a part does not have is not asked.
    if not ask.lacks("link_replays"):
        yield _worst(ask, "gpu.nvlink_replays", up, "replays", max)
    if not ask.lacks("link_recoveries"):
        yield _worst(ask, "gpu.nvlink_recoveries", up, "recoveries", max)
    if not ask.too_old("link_recoveries_failed"):
        yield _worst(ask, "gpu.nvlink_failed_recoveries", up, "recoveries_failed", max)
    if not ask.too_old("link_effective_ber"):
        yield _worst(ask, "gpu.nvlink_ber", up, "effective_ber", max)


def _fabric_health(gpu: Gpu, ask: Asker) -> Iterator[Record]:
    """Yield a record for each condition of the health mask that this part tells."""
    if not ask.wanted.fabric or gpu.fabric_state != FABRIC_COMPLETED:
        return
    mask = gpu.fabric_health
    if mask is None:
        # Drivers before 550 tell the state without the mask.
        if not ask.too_old("fabric_health"):
            yield ask("gpu.fabric_route", None, name="fabric_health")
        return
    for name, (shift, width, words) in FABRIC_HEALTH.items():
        check, value = f"gpu.fabric_{name}", mask >> shift & width
        if value:
            text = "" if value in words else f"{QUESTIONS[check].what}: {value} is not known"
            remedy = fabric_remedy(check, ask.wanted.nvswitches)
            evidence = (f"health mask {mask:#x}",)
            yield ask(check, words.get(value), None, text, remedy=remedy, evidence=evidence)


def _worst(
    ask: Asker,
    check: str,
    links: list[Link],
    name: str,
    pick: Callable[[Any], Any],
    value: Any = None,
) -> Record:
    """Judge the link that is worst; one that cannot be read leaves the rest open."""
    values = [(getattr(link, name), link.number) for link in links]
    read = [one for one in values if one[0] is not None]
    worst = pick(read) if read else (None, None)
    limit = threshold(check, value, ask.wanted.thresholds)
    if len(read) < len(values) and (not read or limit.holds(worst[0])):
        worst = (None, None)
    where = f"{QUESTIONS[check].what}, link {worst[1]}" if worst[1] is not None else ""
    crc = sum(filter(None, (link.crc_errors for link in links)))
    reported = (f"{crc} CRC errors on all links",) if crc else ()
    return ask(check, worst[0], value, where, name="link_" + name, evidence=reported)


def _clocks_and_heat(gpu: Gpu, ask: Asker) -> Iterator[Record]:
    model = ask.wanted.model
    for which, found in (("sm", gpu.clock_sm_max_mhz), ("memory", gpu.clock_memory_max_mhz)):
        able = None if model is None else getattr(model, f"clock_{which}_mhz")
        if ask.knows(f"gpu.clock_{which}", able):
            yield ask(f"gpu.clock_{which}", found, able, name=f"clock_{which}_max_mhz")
        elif ask.wanted.type:
            yield ask.unknown(f"gpu.clock_{which}")
    mask = gpu.throttle
    faults = None if mask is None else throttle_text(mask & THROTTLE_FAULTS)
    every: tuple[str, ...] = () if mask is None else (f"reasons: {throttle_text(mask)}",)
    if gpu.thermal_violation_s:
        # It is over, and says where to look when it comes again.
        every += (f"slowed down for heat for {gpu.thermal_violation_s:.1f} s before",)
    yield ask("gpu.throttle", faults, name="throttle", evidence=every)
    now = (f"{gpu.temperature_c} C, SM clock {gpu.clock_sm_mhz} MHz, {gpu.power_w} W",)
    if gpu.margin_c is None and gpu.limit_slowdown_c is not None:
        yield ask(
            "gpu.temperature_absolute",
            gpu.temperature_c,
            gpu.limit_slowdown_c,
            "temperature against the device's slowdown limit",
            name="temperature_c",
            evidence=now,
        )
    else:
        yield ask("gpu.temperature", gpu.margin_c, name="margin_c", evidence=now)
    if not ask.lacks("memory_temperature_c"):
        # Newer devices state a margin instead of a limit for the GPU, and neither for the memory.
        limit = gpu.limit_memory_c
        heat = gpu.memory_temperature_c
        yield ask("gpu.memory_temperature", heat, limit, name="memory_temperature_c")
    default = gpu.power_limit_default_w
    limit_w = gpu.power_limit_w if default is not None else None
    lacking = "power_limit_default_w" if default is None else "power_limit_w"
    yield ask("gpu.power_limit", limit_w, default, name=lacking)


def throttle_text(mask: int) -> str:
    """Return the reasons of a mask in words."""
    named = [text for bit, text in THROTTLE_REASONS.items() if mask & bit]
    rest = mask & ~sum(THROTTLE_REASONS)
    return ", ".join(named + ([f"{rest:#x}"] if rest else [])) or "none"


def _settings(gpu: Gpu, ask: Asker) -> Iterator[Record]:
    on = None if gpu.persistence is None else _ON.get(gpu.persistence, "?")
    yield ask("gpu.persistence", on, name="persistence")
    mode = gpu.compute_mode
    reported = None if mode is None else COMPUTE_MODES.get(mode, str(mode))
    yield ask("gpu.compute_mode", reported, name="compute_mode")
    number = ask.subject.rpartition("/")[2]
    wanted = ask.wanted.mig or (number.isdigit() and int(number) in ask.wanted.divided)
    want = "on" if wanted else "off"
    if not (ask.lacks("mig") and not wanted):
        modes = (gpu.mig, gpu.mig_pending)
        now = None if None in modes else ", ".join(_ON.get(one, "?") for one in modes)
        yield ask("gpu.mig", now, f"{want}, {want}", name=_unread(gpu, "mig", "mig_pending"))
    if not ask.wanted.idle:
        return
    held = None if gpu.processes is None else len(gpu.processes)
    who = tuple(f"process {one.pid}, {one.memory_mib} MiB" for one in gpu.processes or ())
    yield ask("gpu.processes", held, name="processes", evidence=who)
    # MIG holds memory for itself, and is its own finding if it is not wanted.
    if not held and not gpu.mig:
        yield ask("gpu.memory_used", gpu.memory_used_mib, name="memory_used_mib")


def fabric_text(gpu: Gpu) -> str | None:
    """Return the fabric state in words; None where it could not be read."""
    if gpu.fabric_state is None:
        return None
    state = FABRIC_STATES.get(gpu.fabric_state, str(gpu.fabric_state))
    return state if not gpu.fabric_status else f"{state}, status {gpu.fabric_status}"
