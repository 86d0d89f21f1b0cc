# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages of Slurm are asked for, on new hosts and when the release changes."""

from __future__ import annotations

from typing import Any

import pytest
from role_render import render_many

SHOWN = {
    "wanted": "__slurm_base_wanted",
    "offered": "__slurm_base_offered",
    "upgrades": "__slurm_base_upgrades",
}
# apt-cache policy with the pin of an earlier run, and the next release in another archive
PINNED = """slurm-wlm-basic-plugins:
  Installed: 24.11.5-4
  Candidate: 24.11.5-4
  Version table:
     26.05.5-1 -1
        500 http://archive.example.org testing/main amd64 Packages
 *** 24.11.5-4 1001
        500 http://archive.example.org trixie/main amd64 Packages
        100 /var/lib/dpkg/status
"""
NEW = PINNED.replace("Installed: 24.11.5-4", "Installed: (none)").replace(" ***", "    ")
NOTHING = "slurm-wlm-basic-plugins:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n"


def host(said: str, version: str, component: str) -> dict[str, Any]:
    return {
        "__slurm_base_policy": {"stdout": said},
        "__slurm_base_component": component,
        "slurm_base_version": version,
        "slurm_base_source": "distribution",
    }


CASES = {
    "new": host(NEW, "24.11", "compute"),
    "virgin": host(NOTHING, "24.11", "compute"),
    "same": host(PINNED, "24.11", "compute"),
    "next": host(PINNED, "26.05", "compute"),
    "database": host(PINNED, "26.05", "database"),
    "base": host(PINNED, "26.05", "base"),
}
COMPUTE = ["slurmd", "slurm-client", "libpam-slurm-adopt"]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return render_many(tmp_path_factory.mktemp("slurm"), "slurm_base", "Debian", CASES, SHOWN)


def test_the_release_is_named_only_where_another_is_installed(rendered):
    for case in ("new", "virgin", "same"):
        assert rendered[case]["wanted"] == COMPUTE
        assert rendered[case]["upgrades"] is False
    assert rendered["next"]["wanted"] == [f"{name}=26.05*" for name in COMPUTE]


def test_only_packages_of_slurm_have_its_release(rendered):
    assert rendered["database"]["wanted"] == [
        "slurmdbd=26.05*", "slurm-client=26.05*", "mariadb-server", "python3-pymysql"
    ]  # fmt: skip


def test_what_all_hosts_have_waits_for_the_turn_of_the_daemon(rendered):
    assert rendered["base"]["wanted"] == ["munge", "slurm-wlm-basic-plugins"]


def test_a_pin_hides_no_release(rendered):
    assert rendered["same"]["offered"] == ["26.05", "24.11"]
    assert rendered["virgin"]["offered"] == []
