# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What must be done so that UFM's partitions are as declared. Pure.

Paths and bodies are those of the UFM Enterprise REST API guide, "PKey GUIDs". POST adds members
and changes the membership of those that are there; DELETE takes members out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping, Sequence

from .._core.run import ToolError

LIST = "resources/pkeys?guids_data=true"
FULL, LIMITED = "full", "limited"
# Members that a DELETE names are part of its address: 100 GUIDs of 17 characters fit in any server.
_AT_ONCE = 100
_GUID = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})")
# 0x7fff is the default partition, which holds the management of the fabric.
_FIRST, _LAST = 0x1, 0x7FFE


@dataclass(frozen=True)
class Partition:
    """A partition; members is full or limited by GUID, of 16 lower-case hexadecimal digits."""

    pkey: int
    ipoib: bool = False
    members: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The PKey as UFM writes it."""
        return hex(self.pkey)

    def lines(self) -> list[str]:
        """Return it for a diff."""
        head = f"{self.text}: IPoIB {'on' if self.ipoib else 'off'}"
        return [head, *(f"  {guid} {kind}" for guid, kind in sorted(self.members.items()))]


@dataclass(frozen=True)
class Request:
    """One change: what is sent, and whether members lose their partition by it."""

    method: str
    path: str
    body: Mapping[str, Any] | None
    says: str
    disturbs: bool = False


def guid_of(text: str) -> str:
    """Return a GUID as UFM writes it; ValueError."""
    found = _GUID.fullmatch(text.strip().replace(":", ""))
    if not found:
        raise ValueError(f"{text} is not a GUID; write up to 16 hexadecimal digits")
    return found.group(1).lower().zfill(16)


def _pkey_of(text: str) -> int:
    try:
        # Without quotes YAML makes a decimal number of 0x0010: that is not 0x16.
        pkey = int(text, 16) if text.startswith("0x") else 0
    except ValueError:
        pkey = 0
    if not _FIRST <= pkey <= _LAST:
        raise ValueError(f"{text}; write a PKey from {_FIRST:#x} to {_LAST:#x}, in quotes")
    return pkey


def declared(
    wanted: Sequence[Mapping[str, Any]],
) -> tuple[dict[int, Partition], set[int]]:
    """Return the partitions that are to be there, and the PKeys of those that are not; ToolError.

    The error has everything that is wrong, a line each.
    """
    partitions: dict[int, Partition] = {}
    absent: set[int] = set()
    wrong: list[str] = []
    for index, one in enumerate(wanted):
        where = f"partitions[{index}]"
        try:
            pkey = _pkey_of(one["pkey"])
        except ValueError as error:
            wrong.append(f"{where}.pkey: {error}")
            continue
        if pkey in partitions or pkey in absent:
            wrong.append(f"{where}.pkey: {one['pkey']} is written twice; write each once")
        members: dict[str, str] = {}
        for kind in (FULL, LIMITED):
            for place, text in enumerate(one[kind]):
                try:
                    guid = guid_of(text)
                except ValueError as error:
                    wrong.append(f"{where}.{kind}[{place}]: {error}")
                    continue
                if guid in members:
                    wrong.append(f"{where}.{kind}[{place}]: {text} is written twice; write it once")
                members[guid] = kind
        if one["state"] == "absent":
            absent.add(pkey)
        else:
            partitions[pkey] = Partition(pkey, one["ipoib"], members)
    if wrong:
        raise ToolError("\n".join(wrong))
    return partitions, absent


def present(answer: Any) -> dict[int, Partition]:
    """Return the partitions of UFM's answer to LIST; ToolError if it is not as documented."""
    found: dict[int, Partition] = {}
    try:
        for text, one in answer.items():
            # Without members the list is null or left out.
            guids = one.get("guids") or []
            members = {guid_of(each["guid"]): each["membership"] for each in guids}
            found[int(text, 16)] = Partition(int(text, 16), bool(one["ip_over_ib"]), members)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ToolError(f"{LIST}: UFM's answer is not as documented: {error!r}") from error
    return found


def requests(
    there: Mapping[int, Partition], wanted: Mapping[int, Partition], absent: set[int]
) -> list[Request]:
    """Return what must be sent, in order: nothing is taken away before the rest is there."""
    added: list[Request] = []
    taken: list[Request] = []
    for pkey, partition in sorted(wanted.items()):
        now = there.get(pkey)
        if now is None:
            body = {"pkey": partition.text, "index0": False, "ip_over_ib": partition.ipoib}
            added.append(
                Request("POST", "resources/pkeys/add", body, f"add partition {partition.text}")
            )
            now = Partition(pkey, partition.ipoib)
        elif now.ipoib != partition.ipoib:
            raise ToolError(
                f"partition {partition.text}: UFM has it with IPoIB "
                f"{'on' if now.ipoib else 'off'}, and changes that only in a new one; declare it "
                "absent once, or write ipoib as it is"
            )
        added += _joining(partition, now)
        taken += _leaving(partition, now)
    for pkey in sorted(absent & set(there)):
        path = f"resources/pkeys/{pkey:#x}"
        says = f"remove partition {pkey:#x} with {len(there[pkey].members)} members"
        taken.append(Request("DELETE", path, None, says, disturbs=True))
    return added + taken


def _joining(partition: Partition, now: Partition) -> Iterator[Request]:
    differ = {
        guid: kind for guid, kind in partition.members.items() if now.members.get(guid) != kind
    }
    for guids in _batches(differ):
        reduced = [one for one in guids if now.members.get(one) == FULL]
        body = {
            "pkey": partition.text,
            "guids": guids,
            "memberships": [differ[guid] for guid in guids],
            "ip_over_ib": partition.ipoib,
            "index0": False,
        }
        says = f"partition {partition.text}: set {', '.join(f'{g} {differ[g]}' for g in guids)}"
        yield Request("POST", "resources/pkeys", body, says, disturbs=bool(reduced))


def _leaving(partition: Partition, now: Partition) -> Iterator[Request]:
    for guids in _batches(set(now.members) - set(partition.members)):
        path = f"resources/pkeys/{partition.text}/guids/{','.join(guids)}"
        says = f"partition {partition.text}: remove {', '.join(guids)}"
        yield Request("DELETE", path, None, says, disturbs=True)


def _batches(guids: Any) -> Iterator[list[str]]:
    ordered = sorted(guids)
    for start in range(0, len(ordered), _AT_ONCE):
        yield ordered[start : start + _AT_ONCE]


def differences(
    there: Mapping[int, Partition], wanted: Mapping[int, Partition], absent: set[int]
) -> list[str]:
    """Return what is not as declared, a line each."""
    lines = [f"{pkey:#x} is still there" for pkey in sorted(absent & set(there))]
    for pkey, partition in sorted(wanted.items()):
        if pkey not in there:
            lines.append(f"{partition.text} is missing")
        elif there[pkey] != partition:
            odd = {*there[pkey].members.items()} ^ {*partition.members.items()}
            lines.append(
                f"{partition.text} differs in {len({guid for guid, _kind in odd})} members"
            )
    return lines


def diff_text(partitions: Mapping[int, Partition], pkeys: Any) -> str:
    """Return the named partitions as text, in the order of their PKeys."""
    lines = [partitions[pkey].lines() for pkey in sorted(pkeys) if pkey in partitions]
    return "".join(f"{line}\n" for lines_of_one in lines for line in lines_of_one)
