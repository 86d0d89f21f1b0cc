# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Which inputs say where something comes from, and what they are with a mirror. Pure.

Every input that names a source is in one of the tables; a test compares them with the roles' specs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml

from ...module_utils._core.schema import EXTRA

# Which of the mirror's files a URL and its checksum lead to, by checksum.
Place = Callable[[str], str]

# What chooses among sources. The choice is the site's, but for those in `_REPLACED`.
CHOICES = frozenset(
    {
        "alertmanager_source",
        "dcgm_exporter_source",
        "dcgm_source",
        "enroot_source",
        "grafana_source",
        "infiniband_stack",
        "node_exporter_source",
        "nvidia_container_toolkit_source",
        "nvidia_driver_source",
        "prometheus_source",
        "pyxis_slurm_source",
        "pyxis_source",
        "slurm_base_source",
    }
)
# Folders and programs that the site puts on its nodes or mounts; the mirror names them.
OWN = frozenset(
    {
        "alertmanager_directory",
        "dcgm_directory",
        "dcgm_exporter_binary",
        "dcgm_exporter_directory",
        "enroot_directory",
        "grafana_directory",
        "node_exporter_directory",
        "nvidia_container_toolkit_directory",
        "nvidia_driver_directory",
        "prometheus_directory",
        "pyxis_directory",
    }
)
# Images, which are fetched where there is a tool for them, and else named.
IMAGES = frozenset({"dcgm_exporter_container", "enroot_images"})
# Inputs that get another value; the first names the choice and the values with which they are read.
_REPOSITORY: dict[str, tuple[str, tuple[str, ...]]] = {
    "infiniband_repository": ("infiniband_stack", ("doca", "mlnx_ofed")),
    "nvidia_driver_repository": ("nvidia_driver_source", ("nvidia_repository",)),
    "slurm_base_repository": ("slurm_base_source", ("repository",)),
}
# Roles that expect another layout of the repository: their packages are in the sources of the node.
_REPLACED: dict[str, tuple[str, str]] = {
    "grafana_source": ("repository", "configured"),
    "nvidia_container_toolkit_source": ("nvidia_repository", "configured"),
}
_LEFT = frozenset(
    {
        # Read with the sources that are replaced.
        "grafana_repository",
        "nvidia_container_toolkit_mirror",
        "nvidia_container_toolkit_repository",
        "nvidia_driver_mirror",
    }
)
_ARCHIVES = frozenset({"alertmanager_archive", "node_exporter_archive", "prometheus_archive"})
_ALWAYS = frozenset(
    {"node_base_apt_proxy", "node_base_distribution_sources", "node_base_repositories"}
)
_URLS = frozenset({"enroot_urls", "pyxis_url"})
KNOWN = (
    CHOICES | OWN | IMAGES | _REPOSITORY.keys() | _REPLACED.keys() | _LEFT | _ARCHIVES | _ALWAYS
    | _URLS | {"pyxis_sha256"}
)  # fmt: skip


def repository_url(url: str, platform: str) -> str:
    """Return where the packages of a platform are."""
    return f"{url.rstrip('/')}/apt/{platform}"


def redirected(
    value_of: Callable[[str], Any], url: str, platform: str, key: str, place: Place
) -> dict[str, Any]:
    """Return the inputs of a host that takes everything from the mirror.

    `value_of` gives the host's own value of an input, key is the public key of the mirror.
    """
    uris = [repository_url(url, platform)]
    found: dict[str, Any] = {
        "node_base_distribution_sources": False,
        "node_base_repositories": [
            {"name": "mirror", "uris": uris, "suites": ["./"], "signed_by": key}
        ],
    }
    if value_of("node_base_apt_proxy"):
        found["node_base_apt_proxy"] = ""
    for name, (choice, values) in _REPOSITORY.items():
        if value_of(choice) in values:
            found[name] = {"uris": uris, "suites": ["./"], "signed_by": key}
    for name, (value, other) in _REPLACED.items():
        if value_of(name) == value:
            found[name] = other
    for name in _ARCHIVES:
        archive = value_of(name) or {}
        if archive.get("url"):
            found[name] = {**archive, "url": place(archive["sha256"])}
    if value_of("enroot_urls"):
        found["enroot_urls"] = [
            {**one, "url": place(one["sha256"])} for one in value_of("enroot_urls")
        ]
    if value_of("pyxis_url"):
        found["pyxis_url"] = place(value_of("pyxis_sha256"))
    return found


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines, such as a key, as it is."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def variable_files(
    hosts: Mapping[str, Mapping[str, Any]], places: Mapping[str, Mapping[str, str]], top: str
) -> dict[str, str]:
    """Return the text of each file of variables, by its path in the inventory.

    hosts has the inputs of each host, places where the inventory says each of them now
    (GROUP.NAME, or GROUP.HOST.NAME). What is written there would win over what is written for all
    nodes, so the new value is written there, too; it wins by the name of its file. A value of the
    command line hides where the inventory says another: the new one is written for the host.
    """
    texts: dict[str, dict[str, Any]] = {}
    common = _common(hosts.values())
    for host, inputs in hosts.items():
        for name, value in inputs.items():
            place = places[host].get(name, top)
            words = place.split(".")
            alone = place.startswith(EXTRA) or len(words) > 2 or name not in common
            path = f"host_vars/{host}" if alone else f"group_vars/{words[0]}"
            texts.setdefault(f"{path}/zz_mirror.yml", {})[name] = value
    note = "---\n# Written by baremetal.dgx.mirror: everything comes from the folder.\n"
    return {
        path: note + yaml.dump(values, Dumper=_Dumper, sort_keys=True, width=110)
        for path, values in sorted(texts.items())
    }


def _common(values: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the names that have one value wherever they are."""
    first: dict[str, Any] = {}
    differing = set()
    for one in values:
        for name, value in one.items():
            if first.setdefault(name, value) != value:
                differing.add(name)
    return set(first) - differing
