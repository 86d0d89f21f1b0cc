#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ufm_topology
short_description: Read the links of a fabric from UFM
description:
  - Asks UFM for its active ports, through its REST interface, and writes them in the form of
    C(ibnetdiscover -p). M(baremetal.dgx.fabric_verify) compares that with the plan, where no host
    of the inventory may ask the fabric itself.
  - Nothing is changed in UFM.
  - Tested against a server that answers as the REST API guide of UFM Enterprise 6.12 to 6.22 says;
    never with UFM itself.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.ufm
attributes:
  check_mode:
    support: full
    details: The file is written in check mode, too; it is an answer, and no change of the host.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  dest:
    description: The file that is written. Its folder is made where it is missing.
    type: path
    required: true
  timeout_s:
    default: 60
seealso:
  - module: baremetal.dgx.fabric_verify
  - module: baremetal.dgx.ufm_partitions
"""

EXAMPLES = r"""
- name: Read the links that UFM knows
  baremetal.dgx.ufm_topology:
    url: https://ufm.example.org
    token: "{{ ufm_token }}"
    dest: /var/lib/baremetal-dgx/fabric/ufm.txt
  register: links

- name: Compare them with the plan
  baremetal.dgx.fabric_verify:
    plan_file: cables.json
    sweep_files: {ibnetdiscover: /var/lib/baremetal-dgx/fabric/ufm.txt}
    sweep_at: "{{ links.at }}"
"""

RETURN = r"""
at:
  description: When UFM was asked.
  returned: success
  type: str
  sample: "2026-01-31T23:59:59Z"
links:
  description: Number of links that UFM has.
  returned: success
  type: int
  sample: 504
release:
  description: UFM's release.
  returned: success
  type: str
  sample: 6.15.1-4
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.files import open_folder
from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import look_in_time
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import utc_text
from ansible_collections.baremetal.dgx.plugins.module_utils._ufm.apply import (
    connect,
    release_of,
    ufm_options,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ufm.topology import LIST, discovery

ARGUMENT_SPEC: dict[str, Any] = {
    **ufm_options(timeout_s=60),
    "dest": {"type": "path", "required": True},
}


def main() -> None:
    """Ask, write, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    look_in_time(module, [module.params["dest"]])
    with reported(module, {}):
        ufm = connect(module.params, module.tmpdir)
        release = release_of(ufm)
        at = utc_text()
        text = discovery(ufm.ask(LIST))
        folder, name = os.path.split(module.params["dest"])
        with open_folder(folder, make=0o755) as here:
            here.write(name, text.encode())
    module.exit_json(changed=False, at=at, release=release, links=len(text.splitlines()) // 2)


if __name__ == "__main__":
    main()
