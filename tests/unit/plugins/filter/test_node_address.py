# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.baremetal.dgx.plugins.filter.node_address import FilterModule

node_address = FilterModule().filters()["node_address"]


def test_the_documented_call() -> None:
    assert node_address("dgx-07", {"management": "10.1.0.11"}, {}, "management") == "10.1.0.17"


def test_a_fault_is_a_filter_error() -> None:
    with pytest.raises(AnsibleFilterError, match=r"node_first_address\.management"):
        node_address("dgx-07", {})
