# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""From what a burn-in found to records: what is wrong, where, and what was not measured. Pure.

Only what was seen fails a GPU. A library that is missing, a hang, a GPU in use or a burn-in that
was interrupted measured nothing. An error that all GPUs show alike is not a fault of any of them.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any, Callable, Mapping, Sequence

from .._core.names import full_pci
from .._core.question import Question
from .._core.record import FAIL, NOT_MEASURED, PASS, Record
from .compare import (
    Disagreement,
    blame_pairs,
    compare,
    disagreements,
    rates_of,
    slow_pairs,
    systematic,
)
from .plan import PHASES, Sum, key, pair_key
from .state import DONE, STOPPED, State
from .thresholds import (
    ECC,
    LEAST_N,
    LEAST_TO_BE_STEADY,
    SLOW_PAIRS,
    STEADY,
    STOPS,
    THROTTLE,
    UNCORRECTABLE,
    WRONG,
    WRONG_PEERS,
    XID,
    is_transfer,
    like_question,
    model_of,
    rate_question,
)
from .watcher import Seen

_REMEDIES = {
    "no_driver": "install and load the driver",
    "no_cublaslt": "give `cublaslt` the path of libcublasLt, or put it into /opt/baremetal-dgx/lib",
    "fabric_manager": "CUDA says 802: start nvidia-fabricmanager in the driver's own version",
    "out_of_memory": "end what holds memory of the GPU, or lower `n` or `memory_mib`",
    "no_gpu": "look for the GPU with lspci; where it is gone, power-cycle the node",
    "lost": "power-cycle the node; look for Xid 79 in the kernel log",
    "mig": "switch MIG off for the burn-in, or burn in before MIG is set up",
    "busy": "end the processes, or say `busy_ok` where they may be disturbed",
    "hang": "look for Xids in the kernel log; reboot the node, and burn this GPU again",
    "cuda": XID.remedy,
}
_HARDWARE = ("CUDA_ERROR_ECC_UNCORRECTABLE",)
# What the kernel logs because a process was killed while it used the GPU.
_OF_A_KILL = (43, 45)
# NVML is asked once a second; with all GPUs under load a few seconds may pass between answers.
_SAMPLE_S = 5.0
_THERMAL = (
    "hardware slowdown",
    "hardware thermal slowdown",
    "hardware power brake",
    "software thermal slowdown",
)

ReadSums = Callable[[str], "bytes | None"]


def judge_burn(
    node: str,
    state: State,
    read_sums: ReadSums,
    thresholds: Mapping[str, float] | None = None,
    slots: Sequence[str] = (),
    count: int = 0,
) -> list[Record]:
    """Return the records of all GPUs, in PCI order, and of the node if none could be burned in.

    `read_sums` returns the bytes of a kept file of sums, None where it is gone; `thresholds` are
    the site's own least values (TFLOP/s, GB/s) by quantity. `slots` are the PCI addresses of the
    node's profile: a GPU then has the number of its slot, whichever others are missing, and each
    slot without one has a record. A profile without addresses has only its `count` of GPUs.
    """
    asked = set(state.gpus) | set(state.left) | set(state.settings.gpus)
    if state.settings.gpus:
        asked = {address for address in asked if address in state.settings.gpus}
    addresses = sorted(asked)
    if not addresses:
        return [_nothing(node, state)]
    judged = _Judge(node, state, addresses, thresholds or {}, slots)
    judged.disagreements = disagreements(state, addresses, read_sums)
    records: list[Record] = []
    for address in addresses:
        records += judged.gpu(address)
    # A GPU that is there without an address has this number already.
    unseen = [
        (number, slot)
        for number, slot in enumerate(() if state.settings.gpus else slots)
        if not asked & {full_pci(slot), f"index {number}"}
    ]
    lacking = [
        (f"gpu:{node}/{number}", "no GPU was there when this burn-in ran", full_pci(slot))
        for number, slot in unseen
    ]
    if not slots and not state.settings.gpus and len(asked) < count:
        text = f"{len(asked)} of {count} GPUs were there when this burn-in ran"
        lacking.append((f"node:{node}", text, ""))
    return records + [
        Record(
            "burn.run",
            subject,
            NOT_MEASURED,
            text=text,
            evidence=(f"PCI {slot}",) if slot else (),
            remedy=_REMEDIES["no_gpu"],
        )
        for subject, text, slot in lacking
    ]


def _nothing(node: str, state: State) -> Record:
    return Record(
        "burn.run", f"node:{node}", NOT_MEASURED, text=state.text or "nothing was burned in",
        remedy="nvidia-smi must list the GPUs first",
    )  # fmt: skip


class _Judge:
    def __init__(
        self,
        node: str,
        state: State,
        addresses: Sequence[str],
        thresholds: Mapping[str, float],
        slots: Sequence[str],
    ) -> None:
        self.node, self.state, self.thresholds = node, state, thresholds
        self.index = {
            address: state.gpus.get(address, {}).get("index", number)
            for number, address in enumerate(addresses)
        }
        if len(set(self.index.values())) < len(addresses):
            # A GPU was gone after an interruption: those after it have got other numbers of NVML.
            self.index = {address: number for number, address in enumerate(addresses)}
        if slots:
            # As gpu_health numbers them: the slots, then what else is there with an address.
            known = [full_pci(slot) for slot in slots]
            others = (one for one in addresses if one not in known and "index " not in one)
            self.index.update({one: number for number, one in enumerate([*known, *others])})
        self.ran = [
            address for address in addresses if address not in state.left or address in state.ended
        ]
        self.disagreements: list[Disagreement] = []
        # What a GPU showed before an interruption counts, though it was left out after it.
        self.systematic = systematic(state, addresses)
        self.rates = {address: rates_of(state, address, self.ran) for address in self.ran}
        self.bad_pairs = blame_pairs(
            [pair for pair in permutations(addresses, 2) if self._pair(*pair).errors]
        )
        self.slow = slow_pairs(state, self.ran)
        self.slow_pairs = blame_pairs(self.slow)

    def _pair(self, source: str, target: str) -> Sum:
        return self.state.sums.get(pair_key(source, target)) or Sum()

    def gpu(self, address: str) -> list[Record]:
        """Return the records of one GPU."""
        about = self.state.gpus.get(address, {})
        self.subject = f"gpu:{self.node}/{self.index[address]}"
        self.evidence = tuple(
            f"{word} {about[word]}" for word in ("name", "uuid", "serial") if about.get(word)
        )
        self.evidence = (f"PCI {address}", *self.evidence)
        if self.state.simulated:
            self.evidence += ("SIMULATED hardware: no figure here is a measurement",)
        results: list[Record] = []
        for phase in PHASES:
            if phase.name in self.state.settings.phases:
                results += self._phase(address, phase.name)
        watched = self._watched(self.state.seen.get(address))
        left = self.state.left.get(address)
        if left and address not in self.state.ended:
            before = [one for one in (*results, *watched) if one.status == FAIL]
            return [self._not_run("burn.run", left), *before]
        figures = self._figures(address, model_of(str(about.get("name") or "")))
        return [self._run(address), *results, *figures, *watched]

    def _not_run(self, check: str, why: Mapping[str, Any]) -> Record:
        evidence = self.evidence
        for name in ("phase", "last_line", "last_sample"):
            if why.get(name):
                evidence += (f"{name.replace('_', ' ')}: {why[name]}",)
        reason = str(why.get("reason", ""))
        return Record(
            check, self.subject, NOT_MEASURED, text=str(why.get("text", "")),
            evidence=evidence, remedy=_REMEDIES.get(reason, "read the logs of the burn-in"),
        )  # fmt: skip

    def _judged(
        self, question: Question, measured: Any, text: str, value: float | None = None
    ) -> Record:
        return question.judge(self.subject, measured, value, text=text, evidence=self.evidence)

    def _unless(self, unseen: str, question: Question, measured: Any, text: str) -> Record:
        """Return what fails; what does not is not measured if `unseen` says why a part is not."""
        record = self._judged(question, measured, text)
        if unseen and record.status == PASS:
            return self._not_run(question.check, {"text": unseen})
        return record

    def _run(self, address: str) -> Record:
        ended = self.state.ended.get(address)
        state = self.state
        if ended and any(word in str(ended.get("text")) for word in _HARDWARE):
            return self._judged(UNCORRECTABLE, 1, str(ended["text"]))
        if ended:
            return self._not_run("burn.run", ended)
        hot = state.stop.get("address") == address
        if state.state == STOPPED and hot:
            return self._judged(STOPS, 1, f"stopped: {state.stop['why']}")
        if state.state != DONE:
            text = state.text or f"ended early: {state.state}"
            return self._not_run("burn.run", {"text": text})
        text = f"burned in for {state.burnt_s:.0f} s"
        return Record("burn.run", self.subject, PASS, text=text, evidence=self.evidence)

    # ---- right or wrong

    def _phase(self, address: str, phase: str) -> list[Record]:
        check = f"burn.{phase}"
        if phase == "peers":
            return self._peers(address)
        total = self.state.sums.get(key(address, phase)) or Sum()
        if total.not_run and total.not_run["reason"] == "not_supported":
            return []
        about = [one for one in self.disagreements if (one.phase, one.address) == (phase, address)]
        wrong = [one for one in about if one.decided]
        errors = total.errors + len(wrong)
        if phase in self.systematic and total.errors:
            text = "all GPUs give the same unexpected result: no fault of one of them"
            return [self._not_run(check, {"text": text})]
        if errors:
            text = "; ".join([*map(describe, total.first[:3]), *(one.text for one in wrong)])
            return [self._judged(WRONG.filled(phase=phase), errors, text)]
        if total.not_run or about:
            return [self._not_run(check, total.not_run or {"text": about[0].text})]
        amount = self._amount(total)
        if not amount:
            return [self._not_run(check, {"text": "nothing was computed"})]
        return [self._judged(WRONG.filled(phase=phase), 0, amount)]

    @staticmethod
    def _amount(total: Sum) -> str:
        amounts = total.totals
        if amounts.get("products"):
            share = amounts["check_ms"] / max(1e-9, amounts["product_ms"] + amounts["check_ms"])
            return f"{amounts['products']:.0f} products, checking took {100 * share:.1f} %"
        if amounts.get("verified"):
            whole, part = amounts["verified"] / 2**30, amounts.get("bytes_in_use", 0) / 2**30
            return f"{whole:.1f} GiB verified in {part:.2f} GiB of memory"
        if amounts.get("copied"):
            return f"{amounts['copied'] / 2**30:.1f} GiB read and written by copies"
        return f"{amounts['down'] / 2**30:.1f} GiB went down and up" if amounts.get("down") else ""

    def _peers(self, address: str) -> list[Record]:
        ended = self.state.peers_ended
        bad = self.bad_pairs.get(address, [])
        if bad:
            first = self._pair(*bad[0]).first[0]
            text = f"{len(bad)} pairs with wrong bytes, the first {describe(first)}"
            return [self._judged(WRONG_PEERS, len(bad), text)]
        if ended.get("reason") == "not_supported" or len(self.ran) < 2:
            return []
        if ended:
            return [self._not_run("burn.peers", ended)]
        closed = [pair for pair in self.state.closed_pairs if address in pair]
        if closed:
            text = f"{len(closed)} pairs have no peer access"
            return [self._not_run("burn.peers", {"text": text, "reason": "fabric_manager"})]
        pairs = [pair for pair in permutations(self.ran, 2) if address in pair]
        sums = [self._pair(*pair) for pair in pairs]
        made = sum(1 for one in sums if one.totals and not one.errors)
        # Pairs with a GPU that was given up, or is to blame, cannot be asked for.
        out = {*self.state.ended, *self.bad_pairs, address}
        if not made or made < 2 * len(set(self.ran) - out):
            return [self._not_run("burn.peers", {"text": f"only {made} pairs were verified"})]
        slow = {pair: self.slow[pair] for pair in self.slow_pairs.get(address, [])}
        report = ", ".join(
            f"{one} to {other} at {share:.2f} of the median"
            for (one, other), share in sorted(slow.items())[:4]
        )
        return [
            self._judged(WRONG_PEERS, 0, f"{made} pairs verified"),
            self._judged(SLOW_PAIRS, len(slow), report),
        ]

    # ---- how fast

    def _figures(self, address: str, model: str) -> list[Record]:
        records = []
        telling = self.state.settings.n >= LEAST_N or self.state.simulated
        for quantity, value in sorted(self.rates[address].items()):
            transfer = is_transfer(quantity)
            if not transfer and not telling:
                continue
            rate = rate_question(model, quantity, self.thresholds)
            if rate is not None:
                records.append(self._judged(rate, round(value, 1), ""))
            others = [rates[quantity] for rates in self.rates.values() if quantity in rates]
            found = compare(value, others, transfer)
            if found is not None:
                share, least = found
                unit = "GB/s" if transfer else "TFLOP/s"
                text = f"{value:.1f} {unit}"
                records.append(self._judged(like_question(quantity), share, text, least))
        return records + self._steady(address, telling)

    def _steady(self, address: str, telling: bool) -> list[Record]:
        for phase in ("entropy_bf16", "gemm_bf16"):
            total = self.state.sums.get(key(address, phase))
            if telling and total and len(total.rates) >= LEAST_TO_BE_STEADY:
                rates = sorted(total.rates)
                slow = rates[len(rates) // 20] / rates[len(rates) // 2]
                text = f"{phase}, {len(rates)} stretches"
                return [self._judged(STEADY, round(slow, 3), text)]
        return []

    # ---- what NVML saw meanwhile

    def _watched(self, seen: Seen | None) -> list[Record]:
        unseen = self.state.watch_error or (seen.error if seen else "")
        if seen is None or not (seen.samples or seen.xids):
            return [self._not_run("burn.watch", {"text": unseen or "NVML reported nothing"})]
        if not unseen and seen.samples * _SAMPLE_S <= self.state.burnt_s:
            unseen = f"NVML gave {seen.samples} samples in {self.state.burnt_s:.0f} s"
        power = seen.power_sum / seen.busy_samples if seen.busy_samples else None
        clock = seen.clock_sum / seen.busy_samples if seen.busy_samples else None
        facts = {
            "W, mean": power, "W, most": seen.power_max, "C, most": seen.temperature_max,
            "C of memory, most": seen.memory_max, "MHz, mean": clock, "MHz, least": seen.clock_min,
        }  # fmt: skip
        reported = [f"{value:.0f} {name}" for name, value in facts.items() if value is not None]
        if unseen:
            why = {"text": unseen, "last_sample": "; ".join(reported)}
            watched = self._not_run("burn.watch", why)
        else:
            watched = Record(
                "burn.watch", self.subject, PASS, text="; ".join(reported), evidence=self.evidence,
                measured=None if power is None else {"value": round(power), "unit": "W"},
            )  # fmt: skip
        known = seen.throttle_samples
        slow = max([seen.throttled.get(word, 0) for word in _THERMAL]) / max(1, known)
        unknown = ""
        if known * _SAMPLE_S <= self.state.burnt_s:
            unknown = "NVML does not report why clocks are held back"
        words = ", ".join(f"{word} {count} s" for word, count in sorted(seen.throttled.items()))
        xids = [xid for xid in seen.xids if xid not in _OF_A_KILL]
        nameless = self.state.seen.get("", Seen()).xids
        lost = ", ".join(str(xid) for xid in nameless if xid not in _OF_A_KILL)
        unwatched = lost and f"NVML does not say of which GPU Xid {lost} is"
        if seen.unwatched:
            unwatched = f"Xids cannot be watched: {seen.unwatched}"
        reported_xids = ", ".join(map(str, xids))
        records = [
            watched,
            self._unless(unseen or unknown, THROTTLE, round(slow, 3), words),
            self._unless(unseen or unwatched, XID, len(xids), reported_xids),
        ]
        # A GPU without ECC has no first count; states of earlier versions may lack the last one.
        first, last = (counts[0] if counts else None for counts in (seen.ecc_first, seen.ecc_last))
        if first is not None:
            silent = seen.ecc_silent or last is None
            unseen = unseen or ("NVML no longer counts ECC errors" if silent else "")
            grown = 0 if last is None else last - first
            records.append(self._unless(unseen, ECC, grown, "uncorrected, new"))
        return records


def describe(error: Mapping[str, Any]) -> str:
    """Return an error in a few words, its place first."""
    what = error.get("what")
    if what in ("product", "bits"):
        place = f"row {error.get('row')} column {error.get('column')}"
        elements = error.get("elements") or []
        if elements:
            one = elements[0]
            place += f" is {one['got']}, must be {one['wanted']} (bits {one['bits']})"
        return f"{place}, {error.get('rows')} wrong rows, data set {error.get('data_set')}"
    if what in ("memory", "copy", "transfer", "peer") and "bits" in error:
        where = f"offset {error['offset']:#x}" if "offset" in error else f"word {error['word']}"
        pair = f"{error['source']} to {error['target']}: " if "source" in error else ""
        pattern = f" of pattern {error['pattern']}" if "pattern" in error else ""
        return f"{pair}{where}{pattern}: bits {error['bits']}, {error['wrong_words']} wrong words"
    if what == "known_answer":
        return f"the sums of data set {error.get('data_set')} are not the known ones"
    return f"{what}: {error.get('got') or error.get('rows') or error.get('wrong_words') or ''}"
