# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import time

import pytest
from ansible.errors import AnsibleLookupError

from ansible_collections.baremetal.dgx.plugins.lookup.link_trends import LookupModule
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.links import LinkStore
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.link_reading import LinkReading


def ask(folder):
    plugin = LookupModule()
    options = {"plan": str(folder / "plan")}
    plugin.set_options = lambda **_: None
    plugin.get_option = options.__getitem__
    return plugin.run([str(folder)], {})


def test_a_line_for_all_and_one_for_each_that_will_fail(tmp_path):
    now = int(time.time())
    lines = [
        LinkReading(at=now - (14 - day) * 86400 - 60, rail=rail, serial=f"S{rail}", part="DR4",
                    celsius=50.0 + max(0, day - 5) * 2.0 * (rail == 1), hot_c=75.0).as_line()
        for day in range(15)
        for rail in range(8)
    ]  # fmt: skip
    LinkStore(str(tmp_path / "evidence")).add("dgx-01", lines, now)
    first, second = ask(tmp_path)
    assert first == "trends of 8 links: 1 will fail (cable:S1); 0 not measured"
    assert second.startswith("will_fail: cable:S1 at dgx-01/rail1: temperature rises 2 C a day")
    assert "; do: look at fans" in second


def test_without_readings_it_says_so_and_a_broken_plan_is_an_error(tmp_path):
    assert ask(tmp_path) == ["trends: no link was ever read; validate_nodes collects readings"]
    (tmp_path / "plan/fabric").mkdir(parents=True)
    (tmp_path / "plan/fabric/cables.json").write_text("[")
    with pytest.raises(AnsibleLookupError, match="link_trends"):
        ask(tmp_path)
