# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""How a mount is tried, and which nodes try it together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

# Enough to see that a mount is shared, and no more work for a thousand nodes than for ten.
_MOST = 3


def canary_of(mount: Mapping[str, Any]) -> str:
    """Return how a mount of cephfs_mounts is tried: write, read or none."""
    return str(mount.get("canary") or ("read" if mount.get("read_only") else "write"))


def canary_peers(
    host: str,
    hosts: Sequence[str],
    mounts: Iterable[Mapping[str, Any]],
    mounts_of: Callable[[str], Iterable[Mapping[str, Any]]],
) -> dict[str, list[str]]:
    """Return for each mount by name which of the next hosts of the run write to it, too.

    hosts are all of the run, the host itself included; mounts_of gives the mounts of another.
    """
    place = hosts.index(host)
    most = min(_MOST, len(hosts) - 1)
    following = [*hosts[place + 1 :], *hosts[:place]][:most]
    writing = {
        peer: {mount["name"] for mount in mounts_of(peer) if canary_of(mount) == "write"}
        for peer in following
    }
    return {
        mount["name"]: [peer for peer in following if mount["name"] in writing[peer]]
        for mount in mounts
    }
