# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Monitoring as seen on its host, after the molecule scenario `monitoring` has converged."""

from __future__ import annotations

import json
import os

import pytest
from testinfra.host import Host

from .conftest import node

pytestmark = pytest.mark.skipif(
    os.environ.get("POD") != "mol-monitoring", reason="needs the molecule scenario monitoring"
)
FETCH = (
    "python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())'"
)


@pytest.fixture
def host() -> Host:
    return node("head-01")


@pytest.mark.parametrize(
    ("unit", "port"), [("prometheus", 9090), ("prometheus-alertmanager", 9093)]
)
def test_it_runs_and_listens_on_the_loopback_only(host: Host, unit: str, port: int) -> None:
    assert host.service(unit).is_running
    assert host.service(unit).is_enabled
    assert host.socket(f"tcp://127.0.0.1:{port}").is_listening
    assert not host.socket(f"tcp://0.0.0.0:{port}").is_listening


def test_nothing_listens_for_other_alertmanagers(host: Host) -> None:
    assert not [one for one in host.socket.get_listening_sockets() if one.endswith(":9094")]


def test_the_rules_are_loaded(host: Host) -> None:
    result = json.loads(host.check_output(f"{FETCH} http://127.0.0.1:9090/api/v1/rules"))
    names = {group["name"] for group in result["data"]["groups"]}
    assert {"gpu", "fabric", "slurm", "storage", "health", "meta"} <= names


def test_secrets_are_for_the_service_alone(host: Host) -> None:
    for path in ("prometheus/web.yml", "alertmanager/alertmanager.yml"):
        file = host.file(f"/etc/baremetal-dgx/{path}")
        assert (file.mode, file.user, file.group) == (0o640, "root", "prometheus")


def test_dashboards_are_files(host: Host) -> None:
    folder = "/etc/baremetal-dgx/grafana/dashboards"
    names = host.check_output(f"ls {folder}").split()
    assert len(names) == 7
    for name in names:
        assert json.loads(host.file(f"{folder}/{name}").content_string)["panels"]
