# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages of Slurm are asked for, on new hosts and when the release changes."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from role_render import ROLES, render_many
from role_rules import read_yaml

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
    "no_pmix": {**host(NEW, "24.11", "login"), "slurm_base_pmix": False},
    "login": host(NEW, "24.11", "login"),
}
COMPUTE = ["slurmd", "slurm-client", "libpam-slurm-adopt", "libpmix-dev"]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return render_many(tmp_path_factory.mktemp("slurm"), "slurm_base", "Debian", CASES, SHOWN)


def test_the_release_is_named_only_where_another_is_installed(rendered):
    for case in ("new", "virgin", "same"):
        assert rendered[case]["wanted"] == COMPUTE
        assert rendered[case]["upgrades"] is False
    assert rendered["next"]["wanted"] == [f"{name}=26.05*" for name in COMPUTE[:3]] + COMPUTE[3:]


def test_only_packages_of_slurm_have_its_release(rendered):
    assert rendered["database"]["wanted"] == [
        "slurmdbd=26.05*", "slurm-client=26.05*", "mariadb-server", "python3-pymysql"
    ]  # fmt: skip


def test_what_all_hosts_have_waits_for_the_turn_of_the_daemon(rendered):
    assert rendered["base"]["wanted"] == ["munge", "slurm-wlm-basic-plugins"]


def test_both_sides_of_srun_have_the_library_of_pmix(rendered):
    """The controller and the database run no step."""
    assert rendered["login"]["wanted"] == ["slurm-client", "libpmix-dev"]
    assert rendered["no_pmix"]["wanted"] == ["slurm-client"]
    assert "libpmix-dev" not in rendered["database"]["wanted"]


def test_the_cache_of_the_database_is_at_most_half_of_the_memory(tmp_path):
    """4,096 MiB on a virtual machine of 4 GiB would end the database's life by the OOM killer."""
    asked = read_yaml(ROLES / "slurm_database/tasks/preflight.yml")[1]["vars"]
    cases = {
        str(kib): {
            **asked,
            "__slurm_database_meminfo": {
                "content": base64.b64encode(f"MemTotal:  {kib} kB\n".encode()).decode()
            },
            "slurm_database_hosts": ["db"],
            "slurm_database_password": "x" * 16,
        }
        for kib in (8 << 20, (8 << 20) - 1)
    }
    shown = {"refusals": "__slurm_database_refusals"}
    found = render_many(tmp_path, "slurm_database", "Debian", cases, shown)
    said = {
        name: [one["say"] for one in values["refusals"] if one["when"]]
        for name, values in found.items()
    }
    assert [text for text in said[str(8 << 20)] if "buffer_pool" in text] == []
    (text,) = [text for text in said[str((8 << 20) - 1)] if "buffer_pool" in text]
    assert text.startswith("slurm_database_buffer_pool_mib: 4096, but ")
    assert text.endswith("has 8191 MiB of memory; write at most half, 4095")


def test_a_pin_hides_no_release(rendered):
    assert rendered["same"]["offered"] == ["26.05", "24.11"]
    assert rendered["virgin"]["offered"] == []
