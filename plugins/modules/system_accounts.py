#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: system_accounts
short_description: Keep local groups, users and their authorized keys as declared
description:
  - Brings groups, users, password hashes, homes and authorized keys to what is declared, in one
    call.
  - Everything is checked before anything is changed. A number that belongs to another name, a name
    that exists with another number, an invalid key, or a removal that would hurt gives an
    error, all errors at once.
  - Numbers are never changed, because the files of the user carry the old one.
  - Files in a home are written with the rights of the user.
  - If the homes are on a mount that does not answer within 60 seconds, it fails and names the
    mount.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Password hashes are never shown.
  idempotent:
    support: full
options:
  groups:
    description: The groups.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the group.
        type: str
        required: true
      gid:
        description: Its number.
        type: int
      system:
        description: Whether a group without O(groups[].gid) gets a number from the system's range.
        type: bool
        default: false
      state:
        description: Whether the group exists.
        type: str
        choices: [present, absent]
        default: present
  users:
    description: The users.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the user.
        type: str
        required: true
      uid:
        description: Its number. Needed for a user that does not exist and is not a system user.
        type: int
      group:
        description: Primary group. A new user gets its own group of the same name and number
          otherwise.
        type: str
      groups:
        description: The other groups, exactly these. Left alone when not given.
        type: list
        elements: str
      shell:
        description: Login shell. A new user gets V(/bin/bash), a system user none.
        type: str
      home:
        description: Home directory. A new user gets C(/home/NAME).
        type: path
      comment:
        description: Full name.
        type: str
      create_home:
        description: Whether a missing home is made, with the files of C(/etc/skel).
        type: bool
        default: true
      system:
        description: Whether a new user is a system user.
        type: bool
        default: false
      password:
        description: Password as a crypt hash. Left alone when not given; a new user then has none
          and cannot log in with one.
        type: str
      ssh_keys:
        description: Public keys in C(~/.ssh/authorized_keys), one line each.
        type: list
        elements: str
        default: []
      ssh_keys_exclusive:
        description: Whether all other keys are taken out.
        type: bool
        default: false
      state:
        description: Whether the user exists. A user with processes is not removed.
        type: str
        choices: [present, absent]
        default: present
      remove_home:
        description: Whether the home goes with the user. Needs O(home_removal_allowed).
        type: bool
        default: false
  home_removal_allowed:
    description: Consent to the removal of homes.
    type: bool
    default: false
  home_mode:
    description: Mode of new homes, quoted.
    type: str
    default: "0700"
  login_check:
    description: Whether to return what admits the user of this connection (RV(login)).
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Have the same operator everywhere
  baremetal.dgx.system_accounts:
    groups:
      - {name: operators, gid: 2000}
    users:
      - name: alice
        uid: 2001
        groups: [operators]
        ssh_keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ... alice"]
      - {name: bob, state: absent}
"""

RETURN = r"""
actions:
  description: What was done, or would be in check mode, in order.
  returned: success
  type: list
  elements: str
  sample: ["group operators: create with gid 2000", "user alice: create with uid 2001"]
errors:
  description: Every obstacle, when nothing was changed because of it.
  returned: on failure, when the plan was refused
  type: list
  elements: str
login:
  description: The user of this connection, and what admits it once this call is done.
  returned: when O(login_check) is set
  type: dict
  contains:
    user:
      description: Name of the user.
      type: str
    key_count:
      description: Number of keys; null when it is not known (no sshd here, or sshd asks a command
        or trusts certificates).
      type: int
    keytab:
      description: Whether the host has a keytab, without which sshd takes no Kerberos ticket.
      type: bool
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import finish_in_time
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._host.accounts import apply as accounts
from ansible_collections.baremetal.dgx.plugins.module_utils._host.accounts.parse import desired

GROUP_SPEC: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "gid": {"type": "int"},
    "system": {"type": "bool", "default": False},
    "state": {"choices": ["present", "absent"], "default": "present"},
}
USER_SPEC: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "uid": {"type": "int"},
    "group": {"type": "str"},
    "groups": {"type": "list", "elements": "str"},
    "shell": {"type": "str"},
    "home": {"type": "path"},
    "comment": {"type": "str"},
    "create_home": {"type": "bool", "default": True},
    "system": {"type": "bool", "default": False},
    "password": {"type": "str", "no_log": True},
    # public keys; "key" is a word that Ansible takes for a secret
    "ssh_keys": {"type": "list", "elements": "str", "default": [], "no_log": False},
    "ssh_keys_exclusive": {"type": "bool", "default": False, "no_log": False},
    "state": {"choices": ["present", "absent"], "default": "present"},
    "remove_home": {"type": "bool", "default": False},
}
ARGUMENT_SPEC: dict[str, Any] = {
    "groups": {"type": "list", "elements": "dict", "default": [], "options": GROUP_SPEC},
    "users": {"type": "list", "elements": "dict", "default": [], "options": USER_SPEC},
    "home_removal_allowed": {"type": "bool", "default": False},
    "home_mode": {"type": "str", "default": "0700"},
    "login_check": {"type": "bool", "default": False},
}


def main() -> None:
    """Look at the homes, then work in a child, which a mount that goes meanwhile may keep."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    groups, users = desired(module.params)
    with reported(module):
        accounts.see_homes(users)

    def work() -> None:
        module.exit_json(**accounts.bring_about(module, ModuleRunner(module), groups, users))

    finish_in_time(module, "users and their homes", work, accounts.time_for(users))


if __name__ == "__main__":
    main()
