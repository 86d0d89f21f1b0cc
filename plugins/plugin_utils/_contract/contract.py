# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The inventory contract: the groups, and the variables that describe cluster and nodes.

The contract itself is contract.yml; docs/inventory.md is made from it, and a test compares the two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ...module_utils._core.schema import Option, option_from_spec

# The C loader reads the contract in a tenth of the time; each playbook pays it once.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(name: str) -> Any:
    """Return the data of a YAML file of this package."""
    with (Path(__file__).parent / name).open(encoding="utf-8") as stream:
        return yaml.load(stream, Loader=_LOADER)


def _options(specs: dict[str, dict[str, Any]]) -> dict[str, Option]:
    return {name: option_from_spec(spec, strict=True) for name, spec in specs.items()}


_CONTRACT = load("contract.yml")

CLUSTER_GROUP = "cluster"

# In the order in which a host's type is looked for: the type is the group that errors name it by.
GROUPS: dict[str, str] = _CONTRACT["groups"]

# Hosts of these groups run slurmd and are in slurm.conf.
COMPUTE_GROUPS: tuple[str, ...] = tuple(_CONTRACT["compute_groups"])

HOST_NAME_PATTERN: str = _CONTRACT["host_name"]["pattern"]
HOST_NAME_WORDS: str = _CONTRACT["host_name"]["pattern_words"]

CLUSTER_VARIABLES = _options(_CONTRACT["cluster"])
NODE_VARIABLES = _options(_CONTRACT["node"])
VARIABLES: dict[str, Option] = {**CLUSTER_VARIABLES, **NODE_VARIABLES}
