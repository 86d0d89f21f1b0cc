# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""No input that names a source, and no task that fetches, is missing in the tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import EXTRA
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.contract import VARIABLES
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import (
    collection_root,
    load_roles,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._mirror.fetched import FETCHING
from ansible_collections.baremetal.dgx.plugins.plugin_utils._mirror.platforms import PLATFORMS
from ansible_collections.baremetal.dgx.plugins.plugin_utils._mirror.redirects import (
    KNOWN,
    OWN,
    redirected,
    variable_files,
)

ROOT = collection_root()
ROLES = load_roles(ROOT)
# Names of inputs that say where something comes from.
_SOURCE = re.compile(
    r".*_(source|stack|repository|repositories|sources|mirror|archive|directory|binary|container"
    r"|urls?|images|proxy|sha256)$"
)
# These have such a name and fetch nothing.
_OTHER = {
    # Where the time comes from, and where people and programs reach a service.
    "node_base_chrony_sources",
    "alertmanager_external_url",
    "grafana_root_url",
    "prometheus_external_url",
    "subnet_manager_ufm_url",
    # Where copies go.
    "backup_repository",
}
# Modules of tasks in roles that get nothing from elsewhere.
_LOCAL = {
    "assert", "command", "copy", "debug", "fail",
    "fetch", "file", "find", "getent", "group",
    "hostname", "import_role", "import_tasks", "include_role", "include_tasks",
    "include_vars", "lineinfile", "meta", "ping", "reboot",
    "replace", "script", "service", "set_fact", "setup",
    "slurp", "stat", "systemd", "systemd_service", "tempfile",
    "unarchive", "uri", "user", "wait_for", "wait_for_connection",
    "add_host", "assemble", "blockinfile", "template", "shell",
    "raw", "pause",
}  # fmt: skip
_WORDS = {
    "name", "when", "vars", "register", "changed_when", "failed_when", "check_mode", "block",
    "loop", "loop_control", "tags", "no_log", "delegate_to", "become", "run_once", "until",
    "retries",
    "delay", "environment", "always", "rescue", "become_user", "diff", "args", "async",
    "poll",
    "ignore_unreachable", "throttle", "timeout", "delegate_facts", "any_errors_fatal",
}  # fmt: skip


def tasks_of(found: Any) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = []
    for task in found or []:
        tasks.append(task)
        for part in ("block", "rescue", "always"):
            tasks += tasks_of(task.get(part))
    return tasks


def test_every_input_that_names_a_source_is_in_a_table() -> None:
    named = {name for role in ROLES.values() for name in role.options if _SOURCE.fullmatch(name)}
    assert named - KNOWN - _OTHER == set(), "say in _mirror/redirects.py where it comes from"
    declared = {name for role in ROLES.values() for name in role.options}
    assert KNOWN - declared == set()
    assert _OTHER - named == set()


def test_every_module_that_fetches_is_read() -> None:
    """A module of the collection is local unless it is in the table, since its names are known."""
    strange = set()
    for path in sorted(Path(ROOT, "roles").glob("*/tasks/*.yml")):
        for task in tasks_of(yaml.safe_load(path.read_text(encoding="utf-8"))):
            for key in task.keys() - _WORDS - FETCHING.keys():
                if key.startswith("baremetal.dgx.") or key.rpartition(".")[2] in _LOCAL:
                    continue
                if key.startswith("community.mysql."):
                    continue
                strange.add(f"{path.parents[1].name}/{path.name}: {key}")
    assert strange == set(), "say in _mirror/fetched.py what it fetches"


def test_a_command_of_a_role_fetches_nothing_but_an_image() -> None:
    words = re.compile(r"\b(curl|wget|git clone|pip3? install|docker|skopeo|dnf|apt-get)\b")
    found = set()
    for path in sorted(Path(ROOT, "roles").glob("*/tasks/*.yml")):
        for task in tasks_of(yaml.safe_load(path.read_text(encoding="utf-8"))):
            for key in ("ansible.builtin.command", "ansible.builtin.shell"):
                if words.search(str(task.get(key, ""))):
                    found.add(f"{path.parents[1].name}: {task['name']}")
    # Of modules, which dnf knows without the packages.
    assert {one.partition(" | ")[0] for one in found} <= {"nvidia_driver: stream"}


def reported(values: dict[str, Any]) -> dict[str, Any]:
    return redirected(
        values.get,
        "http://10.1.0.1:8080/",
        "ubuntu-24.04",
        "KEY",
        lambda sha256: f"http://10.1.0.1:8080/files/{sha256}/x",
    )


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, {}),
        ({"node_base_apt_proxy": "http://proxy:3128"}, {"node_base_apt_proxy": ""}),
        ({"grafana_source": "repository"}, {"grafana_source": "configured"}),
        ({"grafana_source": "directory"}, {}),
        (
            {"nvidia_container_toolkit_source": "nvidia_repository"},
            {"nvidia_container_toolkit_source": "configured"},
        ),
        ({"nvidia_driver_source": "distribution"}, {}),
        (
            {"prometheus_archive": {"url": "https://example.org/p.tar.gz", "sha256": "ab"}},
            {
                "prometheus_archive": {
                    "url": "http://10.1.0.1:8080/files/ab/x",
                    "sha256": "ab",
                }
            },
        ),
        (
            {"enroot_urls": [{"url": "https://example.org/e.deb", "sha256": "cd"}]},
            {"enroot_urls": [{"url": "http://10.1.0.1:8080/files/cd/x", "sha256": "cd"}]},
        ),
        (
            {"pyxis_url": "https://example.org/p.tar", "pyxis_sha256": "ef"},
            {"pyxis_url": "http://10.1.0.1:8080/files/ef/x"},
        ),
    ],
)
def test_what_comes_from_elsewhere_comes_from_the_mirror(
    values: dict[str, Any], wanted: dict[str, Any]
) -> None:
    found = reported(values)
    assert found.pop("node_base_distribution_sources") is False
    assert found.pop("node_base_repositories") == [
        {
            "name": "mirror",
            "uris": ["http://10.1.0.1:8080/apt/ubuntu-24.04"],
            "suites": ["./"],
            "signed_by": "KEY",
        }
    ]
    assert found == wanted


@pytest.mark.parametrize(
    ("choice", "value", "name"),
    [
        ("infiniband_stack", "doca", "infiniband_repository"),
        ("infiniband_stack", "mlnx_ofed", "infiniband_repository"),
        ("nvidia_driver_source", "nvidia_repository", "nvidia_driver_repository"),
        ("slurm_base_source", "repository", "slurm_base_repository"),
    ],
)
def test_repositories_of_roles_become_the_mirrors(choice: str, value: str, name: str) -> None:
    assert reported({choice: value})[name] == {
        "uris": ["http://10.1.0.1:8080/apt/ubuntu-24.04"],
        "suites": ["./"],
        "signed_by": "KEY",
    }


def test_a_value_is_written_where_the_inventory_says_it_now() -> None:
    """What is written for gpu_nodes would win over what is written for all nodes."""
    hosts = {
        "dgx-01": {"a": 1, "b": "gpu", "c": "own"},
        "head-01": {"a": 1, "c": "other", "k": "one\ntwo\n"},
    }
    places = {"dgx-01": {"b": "gpu_nodes.b", "a": "gpu_nodes.dgx-01.a"}, "head-01": {}}
    found = variable_files(hosts, places, "cluster")
    assert {path: yaml.safe_load(text) for path, text in found.items()} == {
        "group_vars/cluster/zz_mirror.yml": {"a": 1, "k": "one\ntwo\n"},
        "group_vars/gpu_nodes/zz_mirror.yml": {"b": "gpu"},
        "host_vars/dgx-01/zz_mirror.yml": {"a": 1, "c": "own"},
        "host_vars/head-01/zz_mirror.yml": {"c": "other"},
    }
    assert "k: |\n  one\n  two\n" in found["group_vars/cluster/zz_mirror.yml"]


def test_a_value_of_the_command_line_is_written_for_the_host() -> None:
    """It hides that of gpu_nodes, which would win at the site over what is written for all."""
    places = {"dgx-01": {"node_base_apt_proxy": f"{EXTRA}node_base_apt_proxy"}}
    found = variable_files({"dgx-01": {"node_base_apt_proxy": ""}}, places, "cluster")
    assert list(found) == ["host_vars/dgx-01/zz_mirror.yml"]


def test_folders_of_the_site_are_in_no_other_table() -> None:
    assert not any(name in reported(dict.fromkeys(OWN, "x")) for name in OWN)


def test_platforms_are_those_that_an_inventory_may_name() -> None:
    assert set(VARIABLES["node_platform"].choices or ()) == set(PLATFORMS)


def test_platforms_have_what_roles_ask_of_facts() -> None:
    for name, platform in PLATFORMS.items():
        assert platform.facts["os_family"] in ("Debian", "RedHat"), name
        assert platform.has_apt == (platform.facts["os_family"] == "Debian"), name
        assert platform.has_apt == ("Signed-By: /usr/share/keyrings/" in platform.sources[1])
    assert "Suites: noble noble-updates\n" in PLATFORMS["ubuntu-24.04"].sources[1]
    assert "Suites: trixie-security\n" in PLATFORMS["debian-13"].sources[1]
