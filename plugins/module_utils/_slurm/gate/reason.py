# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Reasons of the gate: what they say in their first 20 characters, and who wrote them. Pure.

A reason is `dgx-gate: WHAT #KDDDDDDDD`. `sinfo -R` prints the node beside it and cuts it at 20
characters, so that WHAT begins with the part of the node and the question: `gpu3 ecc_volatile`. The
last word is a signature over node, kind and text. It makes an edited reason tell itself from ours
without any memory of what was written, on every controller and after every restart. It is not
a secret, and keeps out mistakes, not forgers.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass

OWNER = "dgx-gate"
# The program on each node, which drains its own node.
NODE_HEALTH = "node-health"
# Who Slurm is in its reasons: the roles render SlurmUser=slurm.
SLURM_USER = "slurm"

# Was in service and failed.
FAILED = "f"
# Was never admitted, and fails.
KEPT_OUT = "b"
# Was never admitted: there is no evidence yet.
UNPROVEN = "n"
# A part, or the machine, was replaced: what was measured before is not about it.
REPLACED = "r"
# Is held as a spare.
SPARE = "s"
# Took itself out of service.
ITSELF = "h"

KINDS = (FAILED, KEPT_OUT, UNPROVEN, REPLACED, SPARE, ITSELF)
# Evidence against the node.
AGAINST = (FAILED, KEPT_OUT, ITSELF)
# Only newer evidence lifts it.
DATED = (*AGAINST, REPLACED)

# What slurmctld writes as a node's reason or, after " : ", to one that it has (set_node_reason,
# set_node_down_ptr, drain_nodes and validate_node_specs of src/slurmctld, 22.05 to 25.11);
# drain_nodes appends nothing. In place of one that a drained node has it writes those of
# validate_node_specs alone, from a release on: a node has less than slurm.conf declares. In service
# 24.11 replaces what is left of an earlier drain (seen with "Prolog error").
_IN_PLACE = re.compile(
    r"(?:Low (?:RealMemory|CPUs|TmpDisk|socket\*core\*thread count)|CoreSpec differ|gres/\S+ "
    r"|Reported active features|RestrictedCoresPerGPU|Could not unpack gres data).*"
)
_BY_SLURM = re.compile(
    r"Not responding|Node unexpectedly rebooted|ResumeTimeout reached|Prolog error|Epilog error"
    r"|Job env setup error|Kill task failed|Duplicate jobid|batch job complete failure"
    r"|reboot (?:requested|issued|complete|timed out)"
    rf"|{_IN_PLACE.pattern}"
)
_APPENDS = " : "
_LONGEST = 180
_SIGNED = re.compile(r"^([a-z-]+): (.*) #([%s])([0-9a-f]{8})$" % "".join(KINDS), re.DOTALL)
# What scontrol, sinfo or we could not read again.
_UNSAFE = re.compile(r"[^ -~]|[\[\]\"'\\|`]")


@dataclass(frozen=True)
class Reason:
    """A reason that is ours: its kind, and its text without owner and signature."""

    kind: str
    text: str


def write_reason(node: str, kind: str, text: str) -> str:
    """Return the signed reason; KeyError for a kind that there is not."""
    return f"{_owner(kind)}: {sign(node, kind, text)}"


def sign(node: str, kind: str, text: str) -> str:
    """Return the text made plain, with its signature; KeyError for a kind that there is not."""
    if kind not in KINDS:
        raise KeyError(kind)
    message = plain(text)
    return f"{message} #{kind}{_digest(node, kind, message)}"


def as_written(reason: str) -> str:
    """Return a reason without what Slurm has appended to it; the words of others stay."""
    text, colon, last = reason.rpartition(_APPENDS)
    return as_written(text) if colon and _BY_SLURM.fullmatch(last) else reason


def is_by_slurm(reason: str) -> bool:
    """Return whether all of a reason are words of Slurm."""
    return _BY_SLURM.fullmatch(as_written(reason)) is not None


def is_in_place(reason: str) -> bool:
    """Return whether a reason is one that Slurm writes in place of the one that it has."""
    return _IN_PLACE.fullmatch(as_written(reason)) is not None


def read_reason(node: str, reason: str) -> Reason | None:
    """Return what was written; None if it belongs to others, or was ours and was edited.

    What Slurm has appended since is not an edit: a node of ours that boots for more than
    SlurmdTimeout has it.
    """
    found = _SIGNED.match(as_written(reason))
    if not found:
        return None
    owner, text, kind, digest = found.groups()
    genuine = owner == _owner(kind) and digest == _digest(node, kind, text)
    return Reason(kind, text) if genuine else None


def claims_ours(reason: str) -> bool:
    """Return whether a reason begins like ours, whatever the rest is."""
    return reason.startswith((f"{OWNER}:", f"{NODE_HEALTH}:"))


def plain(text: str) -> str:
    """Return a text in printable ASCII on one line, without quotes and brackets, 180 at most."""
    decomposed = unicodedata.normalize("NFKD", " ".join(text.split()))
    cleaned = " ".join(_UNSAFE.sub("", decomposed).split())
    return cleaned if len(cleaned) <= _LONGEST else cleaned[: _LONGEST - 2].rstrip() + ".."


def heading(node: str, check: str, subject: str) -> str:
    """Return part and question, without what the reader sees beside it: the node and the layer.

    `gpu:dgx-01/3` and `gpu.ecc_volatile` give `gpu3 ecc_volatile`; `cable:dgx-01/rail0--leaf-01/1`
    and `fabric.wiring` give `rail0 cable wiring`; of the node itself the check alone is left.
    """
    part = _part(node, subject)
    if not part:
        return plain(check)
    layer, _dot, question = check.partition(".")
    reported = question or layer
    return plain(part if part.endswith(f" {reported}") else f"{part} {reported}")


def _part(node: str, subject: str) -> str:
    kind, _colon, place = subject.partition(":")
    ends = place.split("--")
    mine = [end[len(node) + 1 :] for end in ends if end.startswith(node + "/")]
    if not mine:
        return "" if place == node else place
    name = mine[0] if mine[0][:1].isalpha() else kind + mine[0]
    return f"{name} {kind}" if len(ends) > 1 else name


def _owner(kind: str) -> str:
    return NODE_HEALTH if kind == ITSELF else OWNER


def _digest(node: str, kind: str, text: str) -> str:
    return hashlib.sha256(f"{node}\n{kind}\n{text}".encode()).hexdigest()[:8]
