#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: site_mirror
short_description: Fetch everything that the nodes of an inventory will fetch into one folder
description:
  - For sites without a way to the outside. Reads what the roles of each host of the plan would
    install and fetch, from the tasks of the roles themselves, and fetches it on this machine.
  - Packages of Debian and Ubuntu become one signed repository for each system in
    C(apt/PLATFORM), with all that they need on a system where nothing is installed. Archives are in
    C(files/SHA256), what the control machine needs in C(control), and C(inventory) has the
    variables that point every source to the folder.
  - C(manifest.json) has each file with its size, its checksum, its source and the roles that asked
    for it. C(SHA256SUMS) is for C(sha256sum -c). Logins of sources are in no file of the folder.
  - No file has its name before its checksum is right, so that a run may be killed; the next one
    goes on. What nothing asks for any more is removed from the folder.
  - The key that signs is made once, in C(mirror/gnupg) beside the cluster's secrets.
  - For Enterprise Linux the list of packages and the commands are written and nothing is fetched.
    What a machine of that system has put beside them stays. Images of containers, and folders of
    the site's own, are named and not fetched.
  - Runs on the controller, as an action plugin; it needs C(apt-get), C(dpkg-deb), C(gpg) and, for
    the control machine, C(pip).
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: partial
    details: Names the packages that the roles ask for, and fetches nothing.
  diff_mode:
    support: none
  idempotent:
    support: full
    details: As long as the sources offer the same versions.
options:
  plan_dir:
    description: The folder of the plan, as M(baremetal.dgx.cluster_plan) returns it.
    type: path
    required: true
  folder:
    description: The folder that is filled. It has nothing else in it.
    type: path
    required: true
  url:
    description:
      - Where the nodes will find the folder; C(http:), or C(file:) for a mount that all have.
    type: str
    required: true
  packages:
    description: Packages besides those of the roles, for hosts of every system.
    type: list
    elements: str
    default: []
  control:
    description: Whether to fetch what the control machine needs, too.
    type: bool
    default: true
notes:
  - The variable C(node_platform) says what is installed on each host, such as C(debian-13).
"""

EXAMPLES = r"""
- name: Fill the folder
  hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: Compute the plan
      baremetal.dgx.cluster_plan:
      register: plan

    - name: Fetch everything
      baremetal.dgx.site_mirror:
        plan_dir: "{{ plan.plan_dir }}"
        folder: /srv/mirror
        url: http://10.1.0.1:8080
"""

RETURN = r"""
packages:
  description: The packages that roles ask for, without those that these need.
  returned: always
  type: list
  elements: str
fetched:
  description: How many files this run has fetched, besides those of the control machine.
  returned: success
  type: int
files:
  description: How many files are in the folder.
  returned: success
  type: int
bytes:
  description: Their size.
  returned: success
  type: int
removed:
  description: How many files were removed since nothing asks for them.
  returned: success
  type: int
left:
  description: What the site has to bring by other ways, one line each.
  returned: success
  type: list
  elements: str
problems:
  description: What is not understood, one line each.
  returned: failure
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

ARGUMENTS = {
    "plan_dir": {"type": "path", "required": True},
    "folder": {"type": "path", "required": True},
    "url": {"type": "str", "required": True},
    "packages": {"type": "list", "elements": "str", "default": []},
    "control": {"type": "bool", "default": True},
}


def main() -> None:
    """Refuse: the work is in the action plugin, since only the controller has the inventory."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    module.fail_json(msg="baremetal.dgx.site_mirror runs on the controller only")


if __name__ == "__main__":
    main()
