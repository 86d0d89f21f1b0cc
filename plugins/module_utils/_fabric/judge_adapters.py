# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The adapters that each node reports of itself, joined with the plan. Pure.

A node knows both halves: the PCI address of an adapter, which is its rail in the profile, and its
GUID, by which the fabric knows it. Joined, neither names nor places are needed to tell who is who.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from .._core.names import RAIL_DEVICE, full_pci
from .model import CablePlan

# (node, rail), or (switch, -1)
Key = tuple

_KERNEL_DEVICE = re.compile(r"mlx5_\d+\Z")
_GUID = re.compile(r"(?:0x)?([0-9a-fA-F:]{1,19})\Z")


@dataclass(frozen=True)
class OwnHca:
    """An adapter as its own node reports it; None is what the node could not read."""

    device: str
    pci: str | None = None
    # of the adapter and of its ports
    guids: tuple[str, ...] = ()


@dataclass
class Identities:
    """What the nodes' reports make certain.

    `key_of` has the rail of a GUID, `others` the owner of a GUID that is not a rail, `absent` the
    rails of which the node reports that it has no such adapter, and `own` the report on each rail.
    `counts` has the number of adapters of each node that answered.
    """

    key_of: dict[str, Key] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    absent: set[Key] = field(default_factory=set)
    own: dict[Key, OwnHca] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def contradicts(self, key: Key, guids: Sequence[str]) -> bool:
        """Tell whether a device with these GUIDs cannot be `key` by what its node reports."""
        if key in self.absent or any(guid in self.others for guid in guids):
            return True
        own = self.own.get(key)
        if own is None or not own.guids:
            return any(guid in self.key_of for guid in guids)
        return not set(own.guids) & set(guids)


def _guid(value: Any) -> str | None:
    found = _GUID.match(str(value))
    digits = found.group(1).replace(":", "").lower() if found else ""
    return digits.zfill(16) if digits.strip("0") else None


def adapters_from_data(data: Mapping[str, Any]) -> dict[str, tuple[OwnHca, ...]]:
    """Return the adapters by node, from `adapters` of ib_info; ValueError for anything else."""
    found = {}
    for node, hcas in data.items():
        if not isinstance(hcas, list) or not all(
            isinstance(hca, Mapping) and isinstance(hca.get("guids"), list) for hca in hcas
        ):
            raise ValueError(
                f"adapters.{node}: is not a list of adapters; write adapters of ib_info"
            )
        found[str(node)] = tuple(
            OwnHca(
                str(hca.get("device") or "?"),
                full_pci(str(hca["pci"])) if hca.get("pci") else None,
                tuple(dict.fromkeys(guid for guid in map(_guid, hca["guids"]) if guid)),
            )
            for hca in hcas
        )
    return found


def identities(plan: CablePlan, adapters: Mapping[str, Sequence[OwnHca]]) -> Identities:
    """Join what the nodes report with the rails of the plan.

    The PCI address decides. Where the plan or the node has none, only the name that the role
    infiniband gives does, since the kernel's numbers follow the order of discovery.
    """
    result = Identities()
    rails: dict[str, list[int]] = {}
    for node, rail in plan.hcas:
        rails.setdefault(node, []).append(rail)
    claims: dict[str, list[Key]] = {}
    for node, own in adapters.items():
        if node not in rails:
            continue
        result.counts[node] = len(own)
        taken = set()
        for rail in rails[node]:
            hca = _own_of(plan.hcas[node, rail].pci, RAIL_DEVICE.format(rail=rail), own)
            if hca is None:
                if _surely_absent(plan.hcas[node, rail].pci, own):
                    result.absent.add((node, rail))
                continue
            taken.add(hca)
            result.own[node, rail] = hca
            for guid in hca.guids:
                claims.setdefault(guid, []).append((node, rail))
        for hca in own:
            # Without an address it may be one of the rails after all.
            if hca not in taken and hca.pci is not None:
                for guid in hca.guids:
                    result.others[guid] = f"{node} {hca.device}"
    for guid, keys in claims.items():
        # A GUID of two adapters tells neither of them.
        if len(keys) == 1 and guid not in result.others:
            result.key_of[guid] = keys[0]
        else:
            result.others.pop(guid, None)
    for key, hca in list(result.own.items()):
        if hca.guids and not any(result.key_of.get(guid) == key for guid in hca.guids):
            del result.own[key]
    return result


def _own_of(pci: str | None, name: str, own: Sequence[OwnHca]) -> OwnHca | None:
    for hca in own:
        if pci is not None and hca.pci == full_pci(pci):
            return hca
    for hca in own:
        if hca.device == name and (pci is None or hca.pci is None):
            return hca
    return None


def _surely_absent(pci: str | None, own: Sequence[OwnHca]) -> bool:
    """Tell whether a rail that was not found among the adapters cannot be one of them.

    A node without a single adapter has no driver, or is not the node: that proves nothing of one.
    """
    if not own:
        return False
    if pci is not None and all(hca.pci is not None for hca in own):
        return True
    prefix = RAIL_DEVICE.format(rail="")
    named = [hca.device for hca in own if not _KERNEL_DEVICE.match(hca.device)]
    return len(named) == len(own) and any(name.startswith(prefix) for name in named)
