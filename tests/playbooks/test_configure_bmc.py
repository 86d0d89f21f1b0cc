# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""configure_bmc as a whole, against simulated BMCs over TLS."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from redfish_server import PASSWORD, USER

sys.path.insert(0, str(Path(__file__).parent))

from test_power import Machines
from test_upgrade_nodes import Site

NEW, OPS = "another-word-2", "ops-word-3"


class Declared(Machines):
    """Machines with settings that none of their BMCs has, and another password."""

    def __init__(self, site: Site, stack: contextlib.ExitStack) -> None:
        super().__init__(site, stack)
        path = site.folder / "hosts.yml"
        data = yaml.safe_load(path.read_text())
        cluster = data["all"]["children"]["cluster"]
        profile = {"bios": {"SRIOV": "Disabled"}, "boot_order": ["debian"]}
        cluster["vars"]["cluster_profiles"] = {"dgx_h100": {"bmc": profile}}
        for node in cluster["children"]["gpu_nodes"]["hosts"].values():
            node["node_bmc"].update(
                password=NEW,
                former_password=PASSWORD,
                accounts=[{"user": "ops", "password": OPS, "role": "Operator"}],
                time_servers=["10.1.0.11"],
                log_server="udp://10.1.0.11:514",
            )
        path.write_text(yaml.safe_dump(data))

    def configure(self, *arguments: str, **more: object) -> tuple[int, str]:
        rc, output = self.site.run("-vvv", "--diff", *arguments, playbook="configure_bmc", **more)
        assert not [one for one in (PASSWORD, NEW, OPS) if one in output]
        texts = [one.read_text() for one in self.site.state.rglob("*") if one.is_file()]
        assert not [one for one in (PASSWORD, NEW, OPS) for text in texts if one in text]
        return rc, output


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Declared]:
    with contextlib.ExitStack() as stack:
        yield Declared(Site(tmp_path), stack)


def test_bmcs_become_as_declared_and_what_waits_for_a_boot_is_no_pass(machines: Declared) -> None:
    bmcs = machines.bmcs.values()
    rc, output = machines.configure("--check")
    assert rc != 0
    assert "node:dgx-01 bmc.accounts" in output
    assert all(bmc.passwords == {USER: PASSWORD} for bmc in bmcs)
    rc, output = machines.configure()
    assert rc != 0
    assert "pending until the next boot: SRIOV Disabled" in output
    assert all(bmc.passwords == {USER: NEW, "ops": OPS} for bmc in bmcs)
    # Consent: they are booted by what comes next.
    rc, output = machines.configure(bmc_pending_ok=True)
    assert rc == 0, output
    assert "changed=0" in output
    for bmc in bmcs:
        bmc.boot()
    rc, output = machines.configure()
    assert rc == 0, output
    assert "changed=0" in output
    assert all(bmc.sessions == set() for bmc in bmcs)
