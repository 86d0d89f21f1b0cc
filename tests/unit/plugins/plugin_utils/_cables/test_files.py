# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.manager import VariableManager
from cable_plans import plan_data

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    Place,
    places_of,
    plan_from_data,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.files import (
    FILES,
    cable_counts,
    cable_line,
    fabric_files,
    read_cables,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.page import cables_html
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.collect import collect
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import load_roles
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cables import (
    plan_cables,
    plan_devices,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.plan import make_plan


def whole(data: dict[str, Any], racks: bool = True) -> dict[str, Any]:
    """The data with what the files need besides cables."""
    data["cluster"]["name"] = "big"
    names = [node["name"] for node in data["nodes"]]
    data["slurm"] = {"topology": [{"switch": "su1", "nodes": names}]}
    for index, node in enumerate(data["nodes"]):
        node["rack"] = f"r{index // 4:03d}" if racks else None
        node["rack_unit"] = 3 + 10 * (index % 4) if racks else None
    return data


def of_inventory(root: Path, name: str) -> dict[str, Any]:
    roles = load_roles(str(root))
    loader = DataLoader()
    loader.set_basedir(str(root / "playbooks"))
    inventory = InventoryManager(loader=loader, sources=[str(root / "inventories" / name)])
    manager = VariableManager(loader=loader, inventory=inventory)
    manager._extra_vars = {"virtual_pod_public_key": "ssh-ed25519 AAAA pod"}
    plan = make_plan(collect(loader, inventory, manager, roles, str(root)), roles)
    assert plan.data is not None
    return plan.data


@pytest.mark.parametrize("name", ["core_12", "superpod_127", "virtual_pod"])
def test_the_inventories_that_people_copy(root: Path, name: str) -> None:
    data = of_inventory(root, name)
    plan = plan_cables(data)
    files = fabric_files(plan, data)
    if data["cluster"]["fabric"]["topology"] == "none":
        assert files == {}
        return
    assert set(files) <= set(FILES)
    assert plan_from_data(json.loads(files["cables.json"])) == plan
    again, problems = read_cables(plan_devices(data), files["cables.csv"].encode(), "cables.csv")
    assert problems == []
    assert again == plan
    assert fabric_files(again, data) == files
    again, problems = read_cables(plan_devices(data), files["ufm.csv"].encode(), "ufm.csv")
    assert problems == []
    assert again is not None
    assert again.cables == plan.cables


def test_counts(root: Path) -> None:
    core = plan_cables(of_inventory(root, "core_12"))
    assert cable_counts(core) == {"node-leaf": 96, "leaf-leaf": 15}
    assert cable_line(core) == "cables: 96 node-leaf, 15 leaf-leaf; 2 ports are reserved"
    large = plan_cables(of_inventory(root, "superpod_127"))
    assert cable_line(large) == ("cables: 1016 node-leaf, 1024 leaf-spine; 4 ports are reserved")
    assert [str(end) for end in large.reserved] == [f"su4-leaf-{rail}/32" for rail in range(4)]
    assert cable_line(plan_devices(plan_data(1))) == "cables: none known yet"


def test_slurm_topology_of_both_forms(root: Path) -> None:
    data = of_inventory(root, "superpod_127")
    files = fabric_files(plan_cables(data), data)
    assert "SwitchName=su4 Nodes=dgx-[097-127]\n" in files["topology.conf"]
    (one,) = yaml.safe_load(files["topology.yaml"])
    switches = {item["switch"]: item for item in one["tree"]["switches"]}
    assert switches["su4"]["nodes"] == "dgx-[097-127]"
    assert switches["core"]["children"] == "su[1-4]"
    flat = of_inventory(root, "core_12")
    assert not {"topology.conf", "topology.yaml"} & set(fabric_files(plan_cables(flat), flat))


class _Page(HTMLParser):
    """Counts what the page has, and what it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: dict[str, int] = {}
        self.links: list[str] = []
        self.headings: list[str] = []
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self._open = tag
        values = dict(attrs)
        self.links += [value or "" for key, value in attrs if key in ("src", "href")]
        if tag == "td" and values.get("class") == "l":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self._open == "h2":
            self.headings.append(data)
            self._open = ""
        elif self.cells and self._open in ("td", "b"):
            self.cells[-1] += data


def test_the_page_has_two_labels_for_each_cable() -> None:
    data = whole(plan_data(4))
    data["cluster"]["fabric"]["switch_places"] = {"leaf-001": {"rack": "r9", "rack_unit": 40}}
    plan = plan_cables(data)
    text = cables_html(plan, places_of(data), "big")
    page = _Page(text)
    assert page.tags.get("script", 0) == 0
    assert all(link.startswith("#r") for link in page.links)
    assert len(page.cells) == 2 * len(plan.cables)
    assert "<b>dgx-0001 OSFP0 P1 (rail 0)</b>to leaf-001 1/1/1 (port 1)" in text
    assert "<b>leaf-001 1/1/1 (port 1)</b>to dgx-0001 OSFP0 P1 (rail 0)" in text
    assert page.headings == [
        "rack r000: 32 cables (32 node-leaf)",
        "rack r9: 16 cables (16 leaf-leaf)",
    ]
    assert "48 cables (32 node-leaf, 16 leaf-leaf)" in text


def test_cables_of_a_rack_go_from_the_lowest_machine_up() -> None:
    data = whole(plan_data(2))
    data["nodes"][0]["rack_unit"], data["nodes"][1]["rack_unit"] = 13, 3
    text = cables_html(plan_cables(data), places_of(data), "big")
    assert text.index("<b>dgx-0002 ") < text.index("<b>dgx-0001 ")


def test_machines_without_a_rack_and_ports_of_ufm_are_listed_too() -> None:
    data = whole(plan_data(31, (8, 4), ufm_unit=1), racks=False)
    page = _Page(cables_html(plan_cables(data), places_of(data), "big"))
    assert page.headings == [
        "leaf switches without a rack: 256 cables (256 leaf-spine)",
        "nodes without a rack: 248 cables (248 node-leaf)",
        "Ports not planned",
    ]


def test_the_page_escapes_what_it_shows() -> None:
    data = whole(plan_data(1))
    data["profiles"]["dgx"]["rails"][0]["cage"] = "<script>alert(1)</script>"
    places = {**places_of(data), "dgx-0001": Place('"><img src=x>', 1)}
    text = cables_html(plan_cables(data), places, "a&b<c>")
    assert "<script" not in text
    assert "<img" not in text
    assert "<title>Cables of a&amp;b&lt;c&gt;</title>" in text


@pytest.mark.slow
def test_a_thousand_nodes_take_seconds(slowness: Callable[[], float]) -> None:
    """The measure of the project is 10 s for plan and files; the processor gets all of it."""
    data = whole(plan_data(1024, (256, 256, 128)))
    begin = time.process_time()
    plan = plan_cables(data)
    files = fabric_files(plan, data)
    taken = time.process_time() - begin
    assert taken < 10 * slowness()
    assert len(plan.cables) == 3 * 8192
    # Browsers open tens of megabytes of plain rows; this is far below.
    assert len(files["cables.html"]) < 8_000_000
    assert _Page(files["cables.html"]).tags["section"] == 256 + 2
