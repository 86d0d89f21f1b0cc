#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cephfs_client
short_description: Find out how a node can mount CephFS, and write its mounts down accordingly
description:
  - Looks whether the running kernel can mount CephFS, and which release of C(mount.ceph) there is.
    Then it turns each declared mount into one for M(baremetal.dgx.storage_mounts), for the kernel's
    client or for ceph-fuse.
  - A mount with driver V(auto) uses the kernel's client where there is one, and says why where
    there is none. A mount that insists on the kernel fails on a node that lacks it.
  - Nothing is changed, and no key is read.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: Nothing is changed.
  idempotent:
    support: full
options:
  mounts:
    description:
      - The mounts, as for the role cephfs (C(name), C(fs), C(path), C(mountpoint), C(client),
        C(driver), C(options), and what overrides O(common)).
    type: list
    elements: dict
    required: true
  driver:
    description: What mounts of which nothing is said use.
    type: str
    choices: [auto, kernel, fuse]
    default: auto
  fsid:
    description: The cluster's id.
    type: str
    required: true
  monitors:
    description: Addresses of the monitors, with a port where it is none of the usual ones.
    type: list
    elements: str
    required: true
  common:
    description: What all mounts have that do not say otherwise; C(ms_mode), C(recover_session),
      C(options), C(automount), C(before) and C(limit_s).
    type: dict
    required: true
  marker:
    description: Line by which a keyring that the role has written is recognised.
    type: str
    default: "# Managed by Ansible: baremetal.dgx"
"""

EXAMPLES = r"""
- name: See how this node mounts CephFS
  baremetal.dgx.cephfs_client:
    fsid: 0f2ad38e-6f3c-4d3f-9d65-b7cf4a2a9a10
    monitors: [10.0.0.31, 10.0.0.32, 10.0.0.33]
    mounts:
      - {name: home, fs: cephfs, path: /home, mountpoint: /home, client: node}
    common: {ms_mode: prefer-crc, recover_session: clean, options: [noatime], automount: false,
             before: [slurmd.service], limit_s: 90}
"""

RETURN = r"""
mounts:
  description: The mounts for M(baremetal.dgx.storage_mounts).
  returned: always
  type: list
  elements: dict
drivers:
  description: V(kernel) or V(fuse) by the name of the mount.
  returned: always
  type: dict
said:
  description: One line for each mount, on what it uses and why.
  returned: always
  type: list
  elements: str
kernel:
  description: Whether the kernel can mount CephFS.
  returned: always
  type: bool
stale:
  description: Keyrings and secrets that the role has written for clients that no mount uses.
  returned: always
  type: list
  elements: str
keyed:
  description: Clients of the mounts that have a key on this node already.
  returned: always
  type: list
  elements: str
conf_monitors:
  description: C(mon_host) for C(ceph.conf).
  returned: always
  type: str
"""

import glob
import os
import platform
import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._cephfs import (
    KERNEL,
    Client,
    conf_monitors,
    driver_of,
    kernel_client,
    keyring_path,
    knows_ms_mode,
    release_of,
    render,
    secret_path,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._mounts_host import read
from ansible_collections.baremetal.dgx.plugins.module_utils._run import ModuleRunner

ARGUMENT_SPEC: dict[str, Any] = {
    "mounts": {"type": "list", "elements": "dict", "required": True},
    "driver": {"type": "str", "choices": ["auto", "kernel", "fuse"], "default": "auto"},
    "fsid": {"type": "str", "required": True},
    "monitors": {"type": "list", "elements": "str", "required": True},
    "common": {"type": "dict", "required": True},
    "marker": {"type": "str", "default": "# Managed by Ansible: baremetal.dgx"},
}
# CAP_SYS_MODULE in /proc/self/status
_SYS_MODULE = 1 << 16


def can_load(status: str) -> bool:
    """Tell from /proc/self/status whether this node may load modules at all."""
    found = re.search(r"(?m)^CapBnd:\s*([0-9a-f]+)$", status)
    return found is None or bool(int(found.group(1), 16) & _SYS_MODULE)


def stale_files(used: set[str], marker: str) -> list[str]:
    """Return the files of clients that no mount uses any more."""
    found = []
    for path in sorted(glob.glob(keyring_path("*"))):
        name = os.path.basename(path)[len("ceph.client.") : -len(".keyring")]
        if name not in used and read(path).startswith(marker):
            found.append(path)
            if os.path.exists(secret_path(name)):
                found.append(secret_path(name))
    return found


def main() -> None:
    """Look at the node, write the mounts down."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    release = platform.release()
    folder = f"/lib/modules/{release}"
    has_kernel, reason = kernel_client(
        release,
        read("/proc/filesystems"),
        read(f"{folder}/modules.dep"),
        read(f"{folder}/modules.builtin"),
        can_load(read("/proc/self/status")),
    )
    # ceph-conf comes with mount.ceph, which does not tell its own release.
    version = ModuleRunner(module)(["ceph-conf", "--version"], timeout_s=20)
    client = Client(has_kernel, reason, release_of(version.out), knows_ms_mode(release))
    mounts, drivers, said, wrong = [], {}, [], []
    try:
        for one in params["mounts"]:
            driver = driver_of(one, params["driver"], client)
            drivers[one["name"]] = driver
            chosen = one.get("driver") or params["driver"]
            if driver == KERNEL and not has_kernel:
                wrong.append(f"{one['name']}: {reason}; write driver: fuse, or auto")
            why = reason if chosen == "auto" else "declared"
            word = "the kernel's client" if driver == KERNEL else "ceph-fuse"
            said.append(f"{one['name']} on {one['mountpoint']}: {word} ({why})")
            mounts.append(
                render(one, driver, client, params["fsid"], params["monitors"], params["common"])
            )
        monitors = conf_monitors(params["monitors"])
    except ValueError as error:
        module.fail_json(msg=str(error))
    if wrong:
        module.fail_json(msg="\n".join(wrong))
    used = {one["client"] for one in params["mounts"]}
    module.exit_json(
        changed=False,
        keyed=sorted(name for name in used if os.path.exists(keyring_path(name))),
        mounts=mounts,
        drivers=drivers,
        said=said,
        kernel=has_kernel,
        stale=stale_files(used, params["marker"]),
        conf_monitors=monitors,
    )


if __name__ == "__main__":
    main()
