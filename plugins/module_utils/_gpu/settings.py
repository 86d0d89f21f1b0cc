# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""ECC mode and MIG layout of GPUs: what nvidia-smi prints, what differs, and the change."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any, Mapping, Sequence

from .._core.run import CommandRunner, ToolError
from .._core.steps import running_steps, titles
from .host import LISTED, parse_instances

_ASKED = "index,pci.bus_id,ecc.mode.current,ecc.mode.pending,mig.mode.current,mig.mode.pending"
QUERY = ("nvidia-smi", f"--query-gpu={_ASKED}", "--format=csv,noheader")
_FIELDS = 6
# The name of a profile as `nvidia-smi mig -lgip` prints it, 1g.10gb or 1g.10gb+me.
PROFILE = re.compile(r"^\d+g\.\d+gb(\+[a-z.]+)?$")
# What a GPU answers that has no such mode.
_NONE = ("[N/A]", "N/A", "[Not Supported]")
_MODES = ("on", "off", "")
_ENVIRONMENT = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@dataclass(frozen=True)
class Gpu:
    """One GPU's modes: on, off, empty where it has no such mode, else why it could not be read."""

    index: int
    pci: str
    ecc: str = ""
    ecc_pending: str = ""
    mig: str = ""
    mig_pending: str = ""
    instances: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Difference:
    """A setting of a GPU that is not as declared."""

    gpu: int
    pci: str
    setting: str
    before: str
    after: str


def _mode(text: str) -> str:
    if text in _NONE:
        return ""
    return {"Enabled": "on", "Disabled": "off"}.get(text, text)


def parse_modes(text: str) -> list[Gpu]:
    """Return the GPUs out of the answer to QUERY; ValueError for a line of another form."""
    found = []
    for line in text.splitlines():
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != _FIELDS or not parts[0].isdigit():
            raise ValueError(f"nvidia-smi says {line.strip()[:120]!r}")
        ecc, ecc_pending, mig, mig_pending = (_mode(part) for part in parts[2:])
        found.append(Gpu(int(parts[0]), parts[1].lower(), ecc, ecc_pending, mig, mig_pending))
    return found


def layout_of(entries: Sequence[Mapping[str, Any]], count: int) -> dict[int, tuple[str, ...]]:
    """Return the profiles of each GPU; ValueError with one line for what cannot be.

    An entry has gpus, a list of numbers (empty: all that no other entry names), and profiles.
    """
    found: dict[int, tuple[str, ...]] = {}
    for entry in sorted(entries, key=lambda entry: not entry.get("gpus")):
        profiles = tuple(sorted(entry.get("profiles") or ()))
        bad = [name for name in profiles if not PROFILE.match(name)]
        if bad:
            raise ValueError(f"{', '.join(bad)}: not a MIG profile such as 1g.10gb")
        numbers = entry.get("gpus") or [n for n in range(count) if n not in found]
        for number in numbers:
            if number in found:
                raise ValueError(f"GPU {number} has two MIG layouts")
            if number >= count:
                raise ValueError(f"GPU {number} has a MIG layout, and there are {count} GPUs")
            found[number] = profiles
    return found


def _unread(gpu: Gpu, setting: str, *modes: str) -> list[str]:
    """Return why a setting of a GPU is not known, nothing where it is."""
    why = next((mode for mode in modes if mode not in _MODES), "")
    return [f"GPU {gpu.index} ({gpu.pci}): nvidia-smi says {why!r} of {setting}"] if why else []


def compare(
    gpus: Sequence[Gpu], ecc: str, layout: Mapping[int, tuple[str, ...]]
) -> tuple[list[Difference], list[Difference], list[str]]:
    """Return what has to be set, what is set and waits for a reset, and what cannot be.

    ecc is on, off or keep. A GPU that layout does not name keeps what it has.
    """
    wrong, pending, cannot = [], [], []
    for gpu in gpus:
        if ecc != "keep":
            unread = _unread(gpu, "its ECC mode", gpu.ecc, gpu.ecc_pending)
            if unread:
                cannot += unread
            elif not gpu.ecc:
                cannot.append(f"GPU {gpu.index} ({gpu.pci}) has no ECC mode")
            elif gpu.ecc_pending != ecc:
                wrong.append(Difference(gpu.index, gpu.pci, "ecc", gpu.ecc_pending, ecc))
            elif gpu.ecc != ecc:
                pending.append(Difference(gpu.index, gpu.pci, "ecc", gpu.ecc, ecc))
        if gpu.index not in layout:
            continue
        profiles = layout[gpu.index]
        unread = _unread(gpu, "MIG", gpu.mig, gpu.mig_pending)
        if unread:
            cannot += unread
            continue
        if not gpu.mig:
            if profiles:
                cannot.append(f"GPU {gpu.index} ({gpu.pci}) has no MIG")
            continue
        before = ", ".join(gpu.instances) if gpu.mig == "on" else "off"
        after = ", ".join(profiles) or "off"
        if before == after:
            continue
        waits = gpu.mig_pending == ("on" if profiles else "off") != gpu.mig
        target = pending if waits else wrong
        target.append(Difference(gpu.index, gpu.pci, "mig", before or "no instances", after))
    return wrong, pending, cannot


def ask(run: CommandRunner, *words: str) -> str:
    """Return what nvidia-smi says; ToolError when it does not."""
    answer = run(words, timeout_s=60, env=_ENVIRONMENT)
    if not answer.ok:
        raise ToolError(f"the GPUs cannot be asked: {answer.describe()}")
    return answer.out


def load(run: CommandRunner) -> list[Gpu]:
    """Return the GPUs with their MIG instances."""
    gpus = parse_modes(ask(run, *QUERY))
    if not gpus:
        raise ToolError("nvidia-smi lists no GPU")
    instances = parse_instances(ask(run, *LISTED))
    return [Gpu(**{**vars(gpu), "instances": instances.get(gpu.index, ())}) for gpu in gpus]


def bring_about(
    run: CommandRunner, params: Mapping[str, Any], check_mode: bool, done: list[str]
) -> dict[str, Any]:
    """Load, compare, set; `done` gets each step. Return what the module returns. ToolError."""
    gpus = load(run)
    differing, pending, cannot = compare(gpus, params["ecc"], layout_of(params["mig"], len(gpus)))
    if cannot:
        raise ToolError("\n".join(cannot))
    steps = running_steps(titles(params["proc"]))
    todo = [d for d in differing if d.setting == "ecc"] if params["ecc_allowed"] else []
    if todo and steps:
        raise ToolError(f"job steps run here ({', '.join(steps)}); drain this node and run again")
    for one in todo:
        done.append(f"GPU {one.gpu} ({one.pci}): ecc {one.before} becomes {one.after}")
        if not check_mode:
            ask(run, "nvidia-smi", "-i", str(one.gpu), "-e", str(int(one.after == "on")))
    if todo and not check_mode:
        _wrong, pending, _cannot = compare(load(run), params["ecc"], {})
    return {
        "changed": bool(done),
        "differences": [asdict(one) for one in differing],
        "reset_pending": [asdict(one) for one in pending],
        "steps": steps,
    }
