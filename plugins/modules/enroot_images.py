#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: enroot_images
short_description: Import declared images once, into a folder that users share
description:
  - Imports each image that is missing with C(enroot import), into a folder that no other user
    can enter, and renames it into place when it is whole.
  - An image that is there counts only if it is a regular file of root or O(owner) that no other
    user can write into. Another user's file, or a link, is refused in one line; it is neither used
    nor removed.
  - A folder on a mount that does not answer is given up after 60 seconds, and the mount is named.
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
  idempotent:
    support: full
requirements:
  - enroot
options:
  folder:
    description: Where the images are. It belongs to root; if users may write into it, it is sticky.
    type: path
    required: true
  images:
    description: The images.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: File name.
        type: str
        required: true
      uri:
        description: What C(enroot import) takes.
        type: str
        required: true
      arch:
        description: >-
          Architecture of the image, by default that of the host. An image that is there is not
          imported again for another one.
        type: str
        choices: [x86_64, aarch64]
  owner:
    description: >-
      Name or number of a user whose files count like those of root. Storage that maps root to
      C(nobody) needs it.
    type: str
    default: root
  timeout_s:
    description: Seconds that one import may take.
    type: float
    default: 3600
seealso:
  - module: baremetal.dgx.managed_files
"""

EXAMPLES = r"""
- name: Import the images of the site
  baremetal.dgx.enroot_images:
    folder: /cephfs/images
    images:
      - {name: pytorch-26.01.sqsh, uri: "docker://registry.example.org#pytorch:26.01"}
"""

RETURN = r"""
imported:
  description: The images that were imported, or would be in check mode.
  returned: always
  type: list
  elements: str
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.images import bring_all

ARGUMENT_SPEC: dict[str, Any] = {
    "folder": {"type": "path", "required": True},
    "images": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "uri": {"type": "str", "required": True},
            "arch": {"type": "str", "choices": ["x86_64", "aarch64"]},
        },
    },
    "owner": {"type": "str", "default": "root"},
    "timeout_s": {"type": "float", "default": 3600},
}


def main() -> None:
    """Look, refuse, import what is missing, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    imported: list[str] = []
    os.umask(0o022)
    with reported(module, lambda: {"imported": imported, "changed": bool(imported)}):
        bring_all(ModuleRunner(module), module.params, module.check_mode, imported)
    module.exit_json(changed=bool(imported), imported=imported)


if __name__ == "__main__":
    main()
