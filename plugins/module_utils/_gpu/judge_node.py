# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Are the GPUs of this node what its profile says, and are they and the log well? Pure.

GPUs are distinguished by PCI address. Their subjects are numbered in the order of the profile's
addresses, so that a number means the same slot whatever else is missing. One cause gives one
finding if that is known: a GPU that is lost is asked nothing else, and a fabric that no GPU
has joined is a finding of the node.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Collection, Iterator, Mapping, Sequence

from .._core.names import full_pci
from .._core.record import FAIL, Record
from .._host.hardware_log import MINUTE_S, Fault, at, most_in, parse_faults, refusals
from .._host.kernel_log import KernelLog, messages
from .host import Host, PciGpu
from .judge_device import Asker, Wanted, asker_of, fabric_text, judge_gpu
from .nvml.types import LIB_RM_VERSION_MISMATCH, RESET_REQUIRED
from .read import Gpu, Sweep
from .sxid_data import LINK_FAULTS
from .thresholds import ACTION_REMEDIES, QUESTIONS, fabric_remedy
from .xid import Event, Meaning, meaning, open_events, parse_log, rank
from .xid_table import CHECK, REBOOT, RECOVERY

# A GPU that throws Xids throws thousands; the first of each kind tells all there is.
_MOST_LINES = 8
# The switches see their links fail about when the driver sees the GPU gone.
_BEFORE_S, _AFTER_S = 2.0, 10.0


def judge_events(ask: Asker, events: Sequence[Event], log: KernelLog) -> Iterator[Record]:
    """Yield the record of a GPU's Xids since boot."""
    yield _record(ask, "gpu.xid", "Xids", open_events(events, ask.wanted.since_s), log)


def judge_switch_events(
    ask: Asker,
    events: Sequence[Event],
    log: KernelLog,
    wanted: Wanted,
    xids: Sequence[Event] = (),
) -> Iterator[Record]:
    """Yield the record of the NVSwitches' errors since boot, if there are NVSwitches.

    What links report when a GPU falls off the bus is one cause with that, and its Xid is the
    finding: the reboot that it asks for resets the switches as well.
    """
    if not wanted.nvswitches and not events:
        return
    lost = [
        event
        for event in open_events(xids, wanted.since_s)
        if rank(meaning(event).action) >= rank(REBOOT)
    ]
    reported: list[str] = []
    own: list[Event] = []
    for event in open_events(events, wanted.since_s):
        cause = next((one for one in lost if _follows(event, one)), None)
        if cause is None:
            own.append(event)
        elif len(reported) < _MOST_LINES:
            reported.append(f"follows from Xid {cause.code} of the GPU at {cause.pci}: {event}")
    yield _record(ask, "gpu.sxid", "SXids", own, log, tuple(reported))


def judge_pcie_errors(
    ask: Asker, addresses: Collection[str], faults: Sequence[Fault], log: KernelLog
) -> Iterator[Record]:
    """Yield the PCIe errors of a GPU's own link, whose two ends have these addresses."""
    mine = at(faults, addresses)
    hard = [fault for fault in mine if fault.hard]
    soft = [fault for fault in mine if fault.corrected]
    for check, found, count, besides in (
        ("gpu.pcie_errors", hard, len(hard), refusals(mine)),
        ("gpu.pcie_corrected", soft, most_in(soft, MINUTE_S), ()),
    ):
        what = QUESTIONS[check].what
        reported = (*(fault.text for fault in found[:_MOST_LINES]), *besides)
        if log.gap and not count:
            yield ask(check, None, None, f"{what}; {log.gap}")
        else:
            yield ask(check, count, None, f"{what}; {len(found)} in all", evidence=reported)


def _follows(event: Event, cause: Event) -> bool:
    if event.code not in LINK_FAULTS or event.uptime_s is None or cause.uptime_s is None:
        return False
    return -_BEFORE_S <= event.uptime_s - cause.uptime_s <= _AFTER_S


def _record(
    ask: Asker,
    check: str,
    words: str,
    events: Sequence[Event],
    log: KernelLog,
    besides: tuple[str, ...] = (),
) -> Record:
    kinds: dict[tuple[int, Meaning], list[Event]] = {}
    for event in events:
        kinds.setdefault((event.code, meaning(event)), []).append(event)
    ordered = sorted(kinds.items(), key=lambda kind: -rank(kind[0][1].action))
    report = tuple(
        f"{row.action or 'unknown'}, {len(group)} x {group[0]} ({row.text}; {row.source})"
        for (_code, row), group in ordered[:_MOST_LINES]
    )
    report += besides
    serious = [
        (code, row)
        for (code, row), _group in ordered
        if row.action and rank(row.action) >= rank(CHECK)
    ]
    if serious:
        code, row = serious[0]
        count = sum(len(kinds[kind]) for kind in serious)
        remedy = ACTION_REMEDIES[row.action or CHECK]
        text = f"{words[:-1]} {code}: {row.text}"
        return ask(check, count, None, text, remedy=remedy, evidence=report)
    unknown = [code for (code, row), _group in ordered if row.action is None]
    what = QUESTIONS[check].what
    if unknown:
        text = f"{what}; not known: {', '.join(str(code) for code in sorted(set(unknown)))}"
        return ask(check, None, None, text, evidence=report)
    if log.gap:
        # What is there was judged; what is missing may hold anything.
        return ask(check, None, None, f"{what}; {log.gap}", evidence=report)
    return ask(check, 0, None, f"{what}; {len(events)} that ask for no more", evidence=report)


def wanted_from_profile(profile: Mapping[str, Any], **options: Any) -> Wanted:
    """Return what a profile (its `gpus` and `nvlink`) asks for; ValueError for what is not one."""
    gpus, nvlink = profile.get("gpus") or {}, profile.get("nvlink") or {}
    if not isinstance(gpus, Mapping) or not isinstance(nvlink, Mapping):
        raise ValueError("profile: gpus and nvlink must be mappings")
    pci = tuple(full_pci(str(address)) for address in gpus.get("pci") or ())
    count = gpus.get("count")
    if len(set(pci)) != len(pci):
        raise ValueError("profile: gpus.pci has an address twice; write each once")
    if count is not None and pci and len(pci) != int(count):
        raise ValueError(f"profile: gpus.count is {count}, but gpus.pci has {len(pci)} addresses")
    mig = gpus.get("mig") or ()
    layout = mig if isinstance(mig, Mapping) else {}
    own = options.get("thresholds") or {}
    unknown = sorted(set(own) - set(QUESTIONS))
    if unknown:
        raise ValueError(f"thresholds: no check is called {', '.join(unknown)}")
    options["thresholds"] = {check: value for check, value in own.items() if value is not None}
    return Wanted(
        count=None if count is None else int(count),
        type=str(gpus.get("type") or ""),
        memory_mib=gpus.get("memory_mib"),
        pci=pci,
        numa=tuple(int(node) for node in gpus.get("numa") or ()),
        links=nvlink.get("links_per_gpu"),
        nvswitches=nvlink.get("nvswitches"),
        divided=frozenset(int(number) for number in mig),
        instances={int(gpu): tuple(sorted(names)) for gpu, names in layout.items()},
        **options,
    )


def slots_of(wanted: Wanted, sweep: Sweep, host: Host) -> list[str]:
    """Return the PCI address of each slot: the profile's, then what else is there."""
    found = {gpu.pci for gpu in sweep.gpus if gpu.pci} | {gpu.pci for gpu in host.gpus}
    return [*wanted.pci, *sorted(found - set(wanted.pci))]


def own_link(address: str, seen: Mapping[str, PciGpu]) -> tuple[str, ...]:
    """Return the addresses of both ends of a GPU's link."""
    path = seen[address].path if address in seen else ()
    return (address, *(function.address for function in path[1:2]))


def judge_node(
    node: str, wanted: Wanted, sweep: Sweep, host: Host, log: KernelLog
) -> Iterator[Record]:
    """Yield all records of a node."""
    events = parse_log(log.text)
    faults = parse_faults(log.text, wanted.since_s)
    slots = slots_of(wanted, sweep, host)
    ask = Asker(f"node:{node}", wanted)
    by_address: dict[str | None, Gpu] = {gpu.pci: gpu for gpu in sweep.gpus if gpu.pci}
    seen = {gpu.pci: gpu for gpu in host.gpus}
    nameless = _nameless(slots, sweep, by_address)
    unknown = _unknown(sweep, seen, by_address, nameless)
    whole = list(_node(ask, sweep, host, unknown))
    broken = any(one.check == "gpu.fabric_manager" and one.status == FAIL for one in whole)
    fabric = list(_fabric(ask, node, slots, by_address, broken))
    yield from whole
    for number, address in enumerate(slots):
        subject = f"gpu:{node}/{number}"
        gpu = by_address.get(address)
        where = Asker(subject, wanted, (f"PCI {address}",))
        yield from _presence(where, address, number, gpu, seen, host)
        if gpu is not None and not gpu.lost:
            yield where("gpu.access", True)
            yield from judge_gpu(gpu, subject, wanted, seen.get(address))
            yield from _recovery(asker_of(gpu, subject, wanted), gpu)
            layout = wanted.instances.get(number)
            if gpu.mig and layout:
                yield _instances(asker_of(gpu, subject, wanted), layout, gpu, host)
        elif address in nameless or gpu is not None:
            yield _access(where, nameless[address][1] if address in nameless else gpu)
        elif address in unknown:
            yield _uninitialized(where, address, log)
        mine = [event for event in events if event.kind == "xid" and event.pci == address]
        yield from judge_events(where, mine, log)
        yield from judge_pcie_errors(where, own_link(address, seen), faults, log)
    placed = {index for index, _what in nameless.values()}
    for index, what in _unnamed(sweep).items():
        if index not in placed:
            yield _access(ask, what, f"GPU {index} of NVML, whose PCI address is not known; ")
    yield from fabric
    xids = [event for event in events if event.kind == "xid"]
    yield from judge_switch_events(ask, _switch_events(events), log, wanted, xids)
    strange = [event for event in events if event.kind == "xid" and event.pci not in slots]
    if strange:
        yield from judge_events(ask, strange, log)


def _switch_events(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.kind == "sxid"]


def _unnamed(sweep: Sweep) -> dict[int, Gpu | str]:
    """Return the GPUs that NVML cannot name, by its index: lost ones, and why others are stuck."""
    return {**{gpu.index: gpu for gpu in sweep.gpus if gpu.pci is None}, **sweep.stuck}


def _nameless(
    slots: Sequence[str], sweep: Sweep, by_address: Mapping[str | None, Gpu]
) -> dict[str, tuple[int, Gpu | str]]:
    """Give GPUs that NVML cannot name the addresses that are left, with NVML's index.

    NVML numbers in the order of PCI addresses. As many addresses as there are such GPUs are theirs
    beyond doubt; with more addresses, those whose rank among all GPUs fits.
    """
    lost = _unnamed(sweep)
    left = [address for address in sorted(slots) if address not in by_address]
    if len(left) == len(lost):
        return dict(zip(left, sorted(lost.items(), key=lambda item: item[0])))
    ordered = sorted(slots)
    return {
        ordered[index]: (index, what)
        for index, what in lost.items()
        if index < len(ordered) and ordered[index] in left and sweep.count == len(ordered)
    }


def _unknown(
    sweep: Sweep,
    seen: Mapping[str, PciGpu],
    by_address: Mapping[str | None, Gpu],
    nameless: Mapping[str, Any],
) -> list[str]:
    """Return the addresses of GPUs that PCI has and NVML has not, although NVML answers."""
    if (
        sweep.error
        or sweep.count is None
        or _unnamed(sweep).keys() - {i for i, _address in nameless.values()}
    ):
        return []
    return [address for address in seen if address not in by_address and address not in nameless]


def _uninitialized(ask: Asker, address: str, log: KernelLog) -> Record:
    head = f"NVRM: GPU {address}: "
    texts = tuple(
        message.text[:200]
        for message in messages(log.text, ("RmInitAdapter",))
        if message.text.startswith((head, head.replace(".0: ", ": ")))
    )
    text = "PCI has it and NVML has not: the driver could not initialize it"
    remedy = (
        "reboot: drain the node and power-cycle it; the same GPU again (dmesg | grep "
        "RmInitAdapter): replace it"
    )
    return ask("gpu.access", False, None, text, remedy=remedy, evidence=texts[:3])


def _access(ask: Asker, what: Gpu | str | None, which: str = "") -> Record:
    if isinstance(what, Gpu):
        remedy = ACTION_REMEDIES["reset"] if what.lost_code == RESET_REQUIRED else ""
        return ask("gpu.access", False, None, f"{which}NVML: {what.lost}", remedy=remedy)
    return ask("gpu.access", None, None, f"{which}NVML: {what}")


def _presence(
    ask: Asker,
    address: str,
    number: int,
    gpu: Gpu | None,
    seen: Mapping[str, PciGpu],
    host: Host,
) -> Iterator[Record]:
    wanted = ask.wanted
    found = seen.get(address)
    there = gpu is not None or found is not None
    if wanted.pci and address not in wanted.pci:
        yield ask("gpu.present", True, False, "a GPU where the profile has none")
    elif not there and not host.has_pci:
        yield ask("gpu.present", None, None, "GPU at its PCI address; sysfs shows no PCI bus")
    else:
        yield ask("gpu.present", there)
    if found is None:
        return
    yield ask("gpu.driver", found.driver or "none")
    if number < len(wanted.numa):
        yield ask("gpu.numa", found.numa, wanted.numa[number])


def _recovery(ask: Asker, gpu: Gpu) -> Iterator[Record]:
    if ask.too_old("recovery_action"):
        return
    action = gpu.recovery_action
    row = None if action is None else RECOVERY.get(action)
    reported = None if action is None else row.meaning if row else str(action)
    remedy = ACTION_REMEDIES.get(row.action if row else "check", "")
    yield ask("gpu.recovery_action", reported, name="recovery_action", remedy=remedy)


def _instances(ask: Asker, layout: Sequence[str], gpu: Gpu, host: Host) -> Record:
    """Return whether a GPU has its declared MIG instances, which a reset takes away."""
    ask = replace(ask, absent={"instances": host.instances_absent})
    there = host.instances.get(gpu.index)
    shown = None if there is None else ", ".join(there) or "none"
    return ask("gpu.mig_instances", shown, ", ".join(layout), name="instances")


def _node(ask: Asker, sweep: Sweep, host: Host, unknown: Sequence[str] = ()) -> Iterator[Record]:
    wanted = ask.wanted
    mismatch = sweep.error_code == LIB_RM_VERSION_MISMATCH
    if sweep.error and not mismatch:
        yield ask("gpu.nvml", None, None, f"NVML: {sweep.error}")
    elif not mismatch:
        yield ask("gpu.nvml", True)
    if wanted.count is not None:
        # What is on PCI is not gone; gpu.access names it.
        remedy = f"look: gpu.access of the GPU at {', '.join(unknown)}" if unknown else ""
        yield ask("gpu.count", sweep.count, wanted.count, remedy=remedy, evidence=tuple(unknown))
    versions = {
        "kernel module": host.module_version,
        "NVML": sweep.library_version,
        "driver": sweep.driver_version,
    }
    found = tuple(f"{name} {version}" for name, version in versions.items() if version)
    kinds = len({version for version in versions.values() if version})
    if mismatch:
        yield ask("gpu.versions", 2, None, f"NVML: {sweep.error}", evidence=found)
    else:
        # One of them alone agrees with itself, which proves nothing.
        yield ask("gpu.versions", kinds if len(found) > 1 else None, evidence=found)
    release = sweep.driver_version or host.module_version
    if wanted.driver_version:
        yield ask("gpu.driver_version", release, wanted.driver_version)
    yield ask("gpu.nouveau", "loaded" if host.nouveau else "absent" if host.has_pci else None)
    if wanted.nvswitches:
        yield _fabric_manager(ask, release, host)
    model = wanted.model
    if wanted.nvswitches and model is not None and model.nvswitch_pci:
        many = len(host.switches) if host.has_pci else None
        yield ask("gpu.nvswitch_count", many, wanted.nvswitches, evidence=host.switches)
    kept = [gpu for gpu in sweep.gpus if not gpu.lost]
    parts = {(gpu.vbios, gpu.part_number) for gpu in kept}
    if kept:
        unread = any(None in pair for pair in parts)
        each = tuple(
            f"VBIOS {vbios}, part {part}: "
            + ", ".join(gpu.pci or "?" for gpu in kept if (gpu.vbios, gpu.part_number) == pair)
            for pair in sorted(parts, key=str)
            for vbios, part in (pair,)
        )
        yield ask("gpu.firmware_equal", None if unread else len(parts), evidence=each)


def _fabric_manager(ask: Asker, release: str | None, host: Host) -> Record:
    text = QUESTIONS["gpu.fabric_manager"].what
    if host.fabric_manager is None:
        return ask("gpu.fabric_manager", None, release, f"{text}: {host.fabric_manager_absent}")
    if release is None:
        return ask("gpu.fabric_manager", None, "", f"{text}: the driver's release is not known")
    return ask("gpu.fabric_manager", host.fabric_manager, release)


def _fabric(
    ask: Asker,
    node: str,
    slots: Sequence[str],
    by_address: Mapping[str | None, Gpu],
    broken: bool,
) -> Iterator[Record]:
    """Yield whether the GPUs are registered with the fabric manager; `broken` is one that fails.

    A single GPU, and a node without NVLinks, has no fabric, and cards that a bridge joins answer
    "not supported".
    """
    if not ask.wanted.fabric or len(slots) < 2:
        return
    remedy = fabric_remedy("gpu.fabric", ask.wanted.nvswitches)
    states: list[tuple[int, str | None, Gpu]] = []
    for number, address in enumerate(slots):
        gpu = by_address.get(address)
        if gpu is None or gpu.lost:
            continue
        own = asker_of(gpu, ask.subject, ask.wanted)
        # A driver that does not know the question is older than any rack of NVLink switches.
        lacks = own.lacks if ask.wanted.nvswitches else own.too_old
        if not lacks("fabric_state"):
            states.append((number, fabric_text(gpu), gpu))
    # A part without this state (Ampere) answers "not supported" on every GPU.
    states = [state for state in states if state[1] != "not supported"]
    kinds = {text for _number, text, _gpu in states}
    if len(states) > 1 and len(kinds) == 1 and kinds != {"completed"}:
        first = states[0][2]
        every = ask if first.fabric_state is not None else asker_of(first, ask.subject, ask.wanted)
        text = f"registration of all {len(states)} GPUs with the fabric manager"
        state = states[0][1]
        if broken:
            why = f"{state}, and gpu.fabric_manager says why"
            every, state = replace(every, absent={"fabric_state": why}), None
        yield every("gpu.fabric", state, None, text, name="fabric_state", remedy=remedy)
        return
    for number, word, gpu in states:
        one = asker_of(gpu, f"gpu:{node}/{number}", ask.wanted)
        yield one("gpu.fabric", word, name="fabric_state", remedy=remedy)
