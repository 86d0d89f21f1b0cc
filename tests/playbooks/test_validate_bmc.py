# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""validate_bmc as a whole, against simulated BMCs over TLS."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from redfish_server import PASSWORD, USER, V1, Bmc, certificate, serving

sys.path.insert(0, str(Path(__file__).parent))

from test_upgrade_nodes import Site

NODE = "dgx-01"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """One node of the stand-in site has a BMC; `declare` writes it into the inventory."""
    return Site(tmp_path)


def declare(site: Site, port: int, pin: str, **more: object) -> None:
    path = site.folder / "hosts.yml"
    data = yaml.safe_load(path.read_text())
    described = data["all"]["children"]["cluster"]
    described["vars"]["cluster_networks"]["bmc"] = {"cidr": "127.0.0.0/24"}
    described["children"]["gpu_nodes"]["hosts"][NODE] = {
        "node_address": {"bmc": "127.0.0.1"},
        "node_bmc": {"user": USER, "password": PASSWORD, "certificate": pin, "port": port, **more},
    }
    path.write_text(yaml.safe_dump(data))


def test_a_bmc_is_judged_and_its_records_are_kept(site: Site, tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    key, cert, pin = certificate(tmp_path / "tls")
    bmc = Bmc()
    bmc.happens("Power supply 2 has no input", "Critical")
    with serving(bmc, key, cert) as port:
        declare(site, port, pin)
        rc, output = site.run(playbook="validate_bmc", bmc_simulated="BMC")
        assert rc != 0
        assert f"node:{NODE} bmc.log" in output
        assert "Power supply 2 has no input" in output
        # It was seen, and counts once.
        rc, output = site.run(playbook="validate_bmc", bmc_simulated="BMC")
        assert rc == 0, output
        assert "checks pass" in output
        bmc.tree[f"{V1}/Systems/DGX"]["PowerState"] = "Off"
        rc, output = site.run(playbook="validate_bmc", bmc_simulated="BMC", target=NODE)
        assert rc != 0
        assert f"node:{NODE} bmc.power" in output
    assert bmc.sessions == set()
    assert PASSWORD not in output
    runs = sorted((site.state / "evidence/runs").iterdir())
    assert len(runs) == 3
    lines = [json.loads(line) for line in (runs[0] / "records.jsonl").read_text().splitlines()]
    heads = [line for line in lines if "scope" in line]
    assert [head["scope"] for head in heads] == [NODE]
    assert heads[0]["simulated"] == "BMC"
    assert all(PASSWORD not in path.read_text() for path in site.state.rglob("*.json*"))


def test_another_certificate_is_not_measured_and_gets_no_password(
    site: Site, tmp_path: Path
) -> None:
    (tmp_path / "tls").mkdir()
    key, cert, _pin = certificate(tmp_path / "tls")
    bmc = Bmc()
    with serving(bmc, key, cert) as port:
        declare(site, port, "sha256:" + "ab" * 32)
        rc, output = site.run(playbook="validate_bmc")
    assert rc != 0
    assert f"node:{NODE} bmc.access" in output
    assert "its certificate is not the pinned one" in output
    assert bmc.opened == 0
    assert bmc.log == []
