# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.baremetal.dgx.plugins.filter.collector_program import FilterModule

collector_program = FilterModule().filters()["collector_program"]


@pytest.mark.parametrize("name", ["slurm", "fabric"])
def test_it_is_started_by_the_python_of_the_host(name: str) -> None:
    made = base64.b64decode(collector_program("/usr/bin/python3.12", name))
    assert made.startswith(b"#!/usr/bin/python3.12 -IS\nPK")


@pytest.mark.parametrize("python", ["python3", "", "/usr/bin/python3 -v"])
def test_what_is_no_path_is_refused(python: str) -> None:
    with pytest.raises(AnsibleFilterError, match="no absolute path"):
        collector_program(python, "slurm")


def test_a_collector_that_there_is_not_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="none of slurm, fabric"):
        collector_program("/usr/bin/python3", "weather")
