#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: local_repository
short_description: Make a directory of packages, whose checksums are right, a local repository
description:
  - For nodes without a way to the outside. The directory holds packages and a list of their
    checksums, as C(sha256sum) writes it; the checksum of that list is in the inventory, so that
    a user who can write into the directory cannot change what is installed.
  - Every listed file is copied to a folder that root alone can write, and its checksum is taken
    from what was copied. When one is wrong, none is used.
  - For C(.deb) files the index is written here. C(.rpm) files must come with the C(repodata) that
    C(createrepo_c) makes, which is listed as well.
  - A directory on a mount that does not answer is given up after 60 seconds, and the mount is
    named.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: The files are read and compared in check mode, too.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  path:
    description: The directory, on the node. It may be a mount.
    type: path
    required: true
  manifest:
    description: Name of the list in it.
    type: str
    default: SHA256SUMS
  sha256:
    description: Checksum of the list.
    type: str
    required: true
  destination:
    description: The folder that becomes the repository.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Take the driver's packages over
  baremetal.dgx.local_repository:
    path: /srv/packages/nvidia
    sha256: 9f2b6c31c0a5f1e94c7a0c3d4a4b37f7b7f3f3a9e2b6f0f1c2d3e4f5a6b7c8d9
    destination: /var/lib/baremetal-dgx/packages/nvidia_driver
"""

RETURN = r"""
kind:
  description: V(deb) or V(rpm).
  returned: success
  type: str
files:
  description: The files of the repository.
  returned: success
  type: list
  elements: str
findings:
  description: One line for each file that is not what the list says.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import finish_in_time, touch
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._host.packages import directory

# A few GiB from slow storage take minutes.
_COPY_S = 1800.0

ARGUMENT_SPEC: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "manifest": {"type": "str", "default": "SHA256SUMS"},
    "sha256": {"type": "str", "required": True},
    "destination": {"type": "path", "required": True},
}


def work(module: AnsibleModule) -> None:
    """Load, compare, copy, report."""
    params, check = module.params, module.check_mode
    with reported(module, {"findings": []}):
        sums, kind, text, changed = directory.look(params)
        if changed:
            directory.bring_over(ModuleRunner(module), params, sums, kind, text, check)
    names = sorted(sums)
    result: dict[str, Any] = {"changed": changed, "kind": kind, "files": names, "findings": []}
    if module._diff and changed:
        result["diff"] = {"prepared": "".join(f"{name}\n" for name in names)}
    module.exit_json(**result)


def main() -> None:
    """Look at the directory, then work in a child, which a mount that goes meanwhile may keep."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    path = module.params["path"]
    with reported(module, {"findings": []}):
        touch(path, [path])
    finish_in_time(module, path, lambda: work(module), _COPY_S)


if __name__ == "__main__":
    main()
