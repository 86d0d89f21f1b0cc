# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup generated_secret."""

from __future__ import annotations

DOCUMENTATION = r"""
name: generated_secret
short_description: A secret of letters and digits that is made once and kept in a file
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Returns the secret that is in a file on the controller. A file that is missing is made, with
    mode 0600, in a folder with mode 0700.
  - It reads the files of P(ansible.builtin.password#lookup), but takes no lock; a run that was
    killed cannot make the next ones fail. The first one puts the whole file in place, and all
    others read it.
  - An empty file is refused; a full disk leaves such files.
options:
  _terms:
    description: The files.
    type: list
    elements: path
    required: true
  length:
    description: How many characters a new secret has.
    type: int
    default: 32
seealso:
  - plugin: ansible.builtin.password
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Have a password for the database
  ansible.builtin.set_fact:
    password: "{{ lookup('baremetal.dgx.generated_secret', inventory_dir ~ '/.dgx/secrets/db') }}"
"""

RETURN = r"""
_raw:
  description: The secret of each file.
  type: list
  elements: str
"""

import os
import secrets
import string
from collections.abc import Sequence
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.baremetal.dgx.plugins.module_utils._core.files import (
    open_folder,
    read_text,
)

_CHARACTERS = string.ascii_letters + string.digits


class LookupModule(LookupBase):
    """Reads a file, or makes it."""

    def run(self, terms: Sequence[Any], variables: Any = None, **kwargs: Any) -> list[str]:
        """Return the secrets; AnsibleLookupError in one line for a file that cannot be used."""
        self.set_options(var_options=variables, direct=kwargs)
        return [secret_of(os.path.abspath(str(term)), self.get_option("length")) for term in terms]


def secret_of(path: str, length: int) -> str:
    """Return the secret in a file, which is made if it is missing. Raises AnsibleLookupError."""
    try:
        if not os.path.lexists(path):
            above, name = os.path.split(path)
            with open_folder(above, 0o700) as folder:
                made = "".join(secrets.choice(_CHARACTERS) for _each in range(length))
                folder.write_first(name, made + "\n")
        # ansible.builtin.password may have written a salt behind it.
        secret = read_text(path, 1 << 16).partition("\n")[0].partition(" salt=")[0].strip()
    except (OSError, ValueError) as error:
        raise AnsibleLookupError(f"generated_secret: {error}") from error
    if not secret:
        raise AnsibleLookupError(
            f"generated_secret: {path}: is empty, as a full disk leaves it; restore it from a "
            "backup, or remove it if no host has the secret yet"
        )
    return secret
