# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter certificate_end."""

from __future__ import annotations

DOCUMENTATION = r"""
name: certificate_end
short_description: When a certificate ends
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Reads the first certificate of a PEM text, in a chain the server's own.
  - Needs no library.
options:
  _input:
    description: The PEM text.
    type: str
    required: true
"""

EXAMPLES = r"""
# 1795824000
end: "{{ slurm_rest_tls.certificate | baremetal.dgx.certificate_end }}"
"""

RETURN = r"""
_value:
  description: Unix time in seconds; 0 where the text has no certificate.
  type: int
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError


def certificate_end(text: str) -> int:
    """Return the Unix time, 0 without a certificate; AnsibleFilterError for what is not a text."""
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._monitoring.certificate import (
        ends_at,
    )

    if not isinstance(text, str):
        raise AnsibleFilterError("certificate_end: takes a certificate as PEM text")
    try:
        return ends_at(text)
    except ValueError:
        return 0


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"certificate_end": certificate_end}
