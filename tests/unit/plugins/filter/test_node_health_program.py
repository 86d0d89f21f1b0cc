# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.baremetal.dgx.plugins.filter.node_health_program import FilterModule

node_health_program = FilterModule().filters()["node_health_program"]


def test_the_program_is_started_by_the_python_of_the_node() -> None:
    made = base64.b64decode(node_health_program("/usr/bin/python3.12"))
    assert made.startswith(b"#!/usr/bin/python3.12 -IS\nPK")


@pytest.mark.parametrize("python", ["python3", "", "/usr/bin/python3 -v"])
def test_what_is_no_path_is_refused(python: str) -> None:
    with pytest.raises(AnsibleFilterError, match="no absolute path"):
        node_health_program(python)
