# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.baremetal.dgx.plugins.filter.node_program import FilterModule

node_program = FilterModule().filters()["node_program"]


def test_it_is_started_by_the_python_of_the_host() -> None:
    made = base64.b64decode(node_program("/usr/bin/python3.12", "user-folders"))
    assert made.startswith(b"#!/usr/bin/python3.12 -IS\nPK")


@pytest.mark.parametrize("python", ["python3", "", "/usr/bin/python3 -v"])
def test_what_is_no_path_is_refused(python: str) -> None:
    with pytest.raises(AnsibleFilterError, match="not an absolute path"):
        node_program(python, "user-folders")


def test_a_program_that_there_is_not_is_refused() -> None:
    with pytest.raises(
        AnsibleFilterError, match="none of cluster-backup, fabric-metrics, home-quotas"
    ):
        node_program("/usr/bin/python3", "weather")
