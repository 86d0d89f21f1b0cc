# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates of action plugins, in every supported ansible-core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.template import Templar, generate_ansible_template_vars


def trusted(text: str) -> str:
    """Return the text as a template. Up to ansible-core 2.18 every text is one."""
    try:
        from ansible.template import trust_as_template
    except ImportError:
        return text
    as_template: str = trust_as_template(text)
    return as_template


def _is_typed() -> bool:
    """Whether a template's result has the type of its value, as from ansible-core 2.19 on."""
    try:
        from ansible.template import trust_as_template
    except ImportError:
        return False
    return trust_as_template is not None


def rendered(
    templar: Templar, text: str, path: str, variables: Mapping[str, Any], folders: Sequence[str]
) -> str:
    """Return the text of the template file `path`, as the lookup plugin `template` renders it.

    Its `include` and `import` look into the folders.
    """
    own = generate_ansible_template_vars(path, path)
    if "ansible_managed" in variables:
        del own["ansible_managed"]
    data = templar.copy_with_new_env(
        searchpath=list(folders), available_variables={**own, **variables}
    )
    # Before 2.19 a result that looks like JSON would become what it says.
    options = {} if _is_typed() else {"convert_data": False}
    found = data.template(trusted(text), escape_backslashes=False, **options)
    return "" if found is None else str(found)
