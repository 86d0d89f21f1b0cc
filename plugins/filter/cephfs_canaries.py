# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter cephfs_canaries."""

from __future__ import annotations

DOCUMENTATION = r"""
name: cephfs_canaries
short_description: Mounts of CephFS as mount_check takes them
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Returns what M(baremetal.dgx.mount_check) is to ask of the mounts of the role cephfs, without
    those whose C(canary) is V(none).
options:
  _input:
    description: The mounts, as in C(cephfs_mounts).
    type: list
    elements: dict
    required: true
  fsid:
    description: The cluster's id.
    type: str
    required: true
  drivers:
    description: What M(baremetal.dgx.cephfs_client) returns under this name. A mount without a
      driver may be of either.
    type: dict
    default: {}
  peers:
    description: By name of the mount, nodes that write to it in this run. A mount that is only read
      has none.
    type: dict
    default: {}
seealso:
  - module: baremetal.dgx.mount_check
  - module: baremetal.dgx.cephfs_client
"""

EXAMPLES = r"""
- name: Write and read a file on each mount
  baremetal.dgx.mount_check:
    mounts: "{{ cephfs_mounts | baremetal.dgx.cephfs_canaries(cephfs_fsid) }}"
"""

RETURN = r"""
_value:
  description: One mapping for each mount, in order.
  type: list
  elements: dict
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


def cephfs_canaries(
    mounts: Iterable[Mapping[str, Any]],
    fsid: str,
    drivers: Mapping[str, str] | None = None,
    peers: Mapping[str, Sequence[str]] | None = None,
) -> list[dict[str, Any]]:
    """Return the mounts as mount_check takes them."""
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.canary import canaries

    return [
        {**one, "peers": list((peers or {}).get(one["name"], ())) if one["write"] else []}
        for one in canaries(mounts, fsid, drivers or {})
    ]


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"cephfs_canaries": cephfs_canaries}
