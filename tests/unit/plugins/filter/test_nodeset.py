# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.baremetal.dgx.plugins.filter import nodeset_expand

expand = nodeset_expand.FilterModule().filters()["nodeset_expand"]


def test_names_in_the_order_of_the_hostlist() -> None:
    assert expand("dgx-[01-02,07]") == ["dgx-01", "dgx-02", "dgx-07"]


def test_a_broken_hostlist_is_a_filter_error() -> None:
    with pytest.raises(AnsibleFilterError, match="brackets of 'dgx-\\[01' do not match"):
        expand("dgx-[01")


def test_a_list_is_not_taken_for_one_name() -> None:
    with pytest.raises(AnsibleFilterError, match="join a list"):
        expand(["dgx-01", "dgx-01"])
