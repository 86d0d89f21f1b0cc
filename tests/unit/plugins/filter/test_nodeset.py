# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.baremetal.dgx.plugins.filter import nodeset_expand, nodeset_fold

fold = nodeset_fold.FilterModule().filters()["nodeset_fold"]
expand = nodeset_expand.FilterModule().filters()["nodeset_expand"]


def test_there_and_back() -> None:
    assert fold(["dgx-07", "dgx-01", "dgx-02"]) == "dgx-[01-02,07]"
    assert expand("dgx-[01-02,07]") == ["dgx-01", "dgx-02", "dgx-07"]


def test_a_broken_hostlist_is_a_filter_error() -> None:
    with pytest.raises(AnsibleFilterError, match="brackets of 'dgx-\\[01' do not match"):
        expand("dgx-[01")


def test_a_list_is_not_taken_for_one_name() -> None:
    with pytest.raises(AnsibleFilterError, match="join a list"):
        expand(["dgx-01", "dgx-01"])


@pytest.mark.parametrize("names", ["dgx-01", [1, 2]])
def test_what_is_no_list_of_names_is_a_filter_error(names: object) -> None:
    with pytest.raises(AnsibleFilterError, match="list of node names"):
        fold(names)
