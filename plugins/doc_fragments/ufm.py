# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the modules that ask UFM document alike; module_utils/_ufm/apply.py."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that ask UFM."""

    DOCUMENTATION = r"""
options:
  url:
    description: Address of UFM, such as V(https://ufm.example.org). Only HTTPS is accepted.
    type: str
    required: true
  username:
    description: An account of UFM; to change partitions, with the role Fabric_Admin or
      System_Admin.
    type: str
    default: ""
  password:
    description: Its password.
    type: str
    default: ""
  token:
    description: An access token instead of the account.
    type: str
    default: ""
  ca_certificate:
    description: Text with the certificates (PEM) of the authorities that UFM's certificate is
      checked with. Without it, those of the system.
    type: str
    default: ""
  timeout_s:
    description: Seconds that one answer may take.
    type: int
"""
