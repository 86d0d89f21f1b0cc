# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup run_options."""

from __future__ import annotations

DOCUMENTATION = r"""
name: run_options
author:
  - The baremetal.dgx authors (@baremetal-dgx)
version_added: 1.0.0
short_description: The words of the command line that a run hands on to another run
description:
  - Returns what the command line has of hosts and values, inventory, C(-e), user, C(-b), key,
    vault, as words for another ansible-playbook or ansible. A value is handed on as it was written,
    so that a file of a vault stays closed.
  - A password that Ansible asked a person for is refused; the other run cannot ask.
  - C(--limit), tags and C(--check) are the run's own and are left out.
options:
  _terms:
    description: Nothing.
    required: false
"""

EXAMPLES = r"""
- name: Run another playbook on the same hosts
  ansible.builtin.command:
    argv: "{{ ['ansible-playbook', 'site.yml'] + query('baremetal.dgx.run_options') }}"
  changed_when: true
"""

RETURN = r"""
_raw:
  description: The words.
  type: list
  elements: str
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ansible import context
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

_WORDS = {
    "inventory": "--inventory",
    "extra_vars": "--extra-vars",
    "vault_ids": "--vault-id",
    "vault_password_files": "--vault-password-file",
    "remote_user": "--user",
    "private_key_file": "--private-key",
    "connection": "--connection",
    "timeout": "--timeout",
    "ssh_common_args": "--ssh-common-args",
    "ssh_extra_args": "--ssh-extra-args",
    "connection_password_file": "--connection-password-file",
    "become_method": "--become-method",
    "become_user": "--become-user",
    "become_password_file": "--become-password-file",
    "forks": "--forks",
}
_WHY = "each step is another run, which cannot ask; write"
_VAULT = f"{_WHY} --vault-password-file or --vault-id NAME@FILE"
_ASKED = {
    "ask_pass": f"--ask-pass: {_WHY} --connection-password-file, or log in by key",
    "become_ask_pass": f"--ask-become-pass: {_WHY} --become-password-file, or "
    "ansible_become_password in a vault",
    "ask_vault_pass": f"--ask-vault-pass: {_VAULT}",
}


class LookupModule(LookupBase):
    """Reads the words of the command line."""

    def run(self, terms: Sequence[Any], variables: Any = None, **kwargs: Any) -> list[str]:
        """Return the words; AnsibleLookupError for what only a person can give."""
        self.set_options(var_options=variables, direct=kwargs)
        return list(_words(context.CLIARGS))


def _words(given: Any) -> Iterator[str]:
    for name, why in _ASKED.items():
        if given.get(name):
            raise AnsibleLookupError(why)
    for one in given.get("vault_ids") or ():
        # As Ansible itself knows them: NAME@prompt.
        if str(one).rpartition("@")[2].startswith("prompt"):
            raise AnsibleLookupError(f"--vault-id {one}: {_VAULT}")
    if given.get("become"):
        yield "--become"
    for name, word in _WORDS.items():
        values = given.get(name) or ()
        for value in values if isinstance(values, (list, tuple)) else (values,):
            yield f"{word}={value}"
