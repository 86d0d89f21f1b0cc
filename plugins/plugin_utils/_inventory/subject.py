# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Refuses a playbook that would run on no host, where Ansible would end green. Pure.

Each playbook names the hosts that it is for, and the groups that it can do something for. Ansible
itself only warns of a pattern that matches nothing, and ends with exit status 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...module_utils._core.nodeset import fold
from ...module_utils._core.schema import closest, words
from .._contract.contract import CLUSTER_GROUP, GROUPS

# Hosts that a list of patterns means, in the whole inventory.
Match = Callable[[list[str]], list[str]]

# What a site names by its own group is looked for by its name; these may be without hosts.
_KNOWN = frozenset({*GROUPS, CLUSTER_GROUP, "all", "localhost"})


@dataclass(frozen=True)
class Subject:
    """What a playbook is for."""

    # Patterns as in a play's `hosts`, `target` and the like already put in.
    patterns: tuple[str, ...]
    # Only hosts of these groups get something from it.
    groups: tuple[str, ...]
    # Part of a run that began with the whole cluster: then a part may have nothing to do.
    is_part: bool = False


def _strange(patterns: Iterable[str], match: Match) -> list[str]:
    """Return the patterns that mean no host, groups of the contract aside."""
    found: list[str] = []
    for pattern in patterns:
        name = pattern.lstrip("!&")
        if name.split("[")[0] not in _KNOWN and not match([name]):
            found.append(name)
    return found


def _write(names: Iterable[str], hosts: Collection[str]) -> str:
    near = closest(next(iter(names)), hosts)
    return f"write {near}" if near else "write a host or a group of the inventory"


def refusal(
    subject: Subject, limits: tuple[str, ...], match: Match, present: Collection[str]
) -> str:
    """Return why the playbook must not run, one line; empty where it has a host to work on.

    limits are the patterns of --limit, present the hosts that the plan has as present.
    """
    for place, patterns in (("--limit", limits), ("hosts", subject.patterns)):
        strange = _strange(patterns, match)
        if strange:
            return (
                f"{place}: no host of the inventory is called {words(strange)}; "
                f"{_write(strange, present)}"
            )
    among = set(present)
    limited = among.intersection(match(list(limits))) if limits else among
    given = "--limit " + ",".join(limits)
    if subject.is_part:
        return "" if limited else f"{given}: leaves no host of the cluster; name hosts of it"
    able = among.intersection(match(list(subject.groups)))
    meant = able.intersection(match(list(subject.patterns)))
    whose = words(subject.groups)
    if not meant:
        pattern = ":".join(subject.patterns)
        return (
            f"hosts: '{pattern}' is not a host of {whose} that is present, and there is nothing to "
            f"do; name hosts of {whose}"
        )
    if not meant & limited:
        return (
            f"{given}: leaves out {fold(sorted(meant))}, and there is nothing to do; name some of "
            "them, or leave --limit out"
        )
    return ""


def at_work(
    subject: Subject, limits: tuple[str, ...], match: Match, present: Collection[str]
) -> list[str]:
    """Return the hosts that the playbook works on, sorted, where it is not refused."""
    found = set(present).intersection(match(list(subject.groups)), match(list(subject.patterns)))
    return sorted(found.intersection(match(list(limits))) if limits else found)


def undeclared(
    found: Mapping[str, Collection[str]],
    roles: Collection[str],
    write: str,
    write_here: str = "",
    others: Mapping[str, Collection[str]] | None = None,
) -> str:
    """Return why a playbook that is run by itself has nothing to do on any of its hosts.

    found has the plan's roles for each host, others the same for hosts that the playbook was not
    asked to work on; roles are the playbook's. write says what to write if nothing is declared at
    all, write_here what to write for these hosts if it is for others.
    """

    def with_work(hosts: Mapping[str, Collection[str]]) -> list[str]:
        return sorted(host for host, planned in hosts.items() if set(roles).intersection(planned))

    if with_work(found):
        return ""
    hosts = fold(sorted(found))
    why = f"inventory: nothing is declared for {hosts} to do here"
    able = with_work(others or {})
    if not able:
        return f"{why}; write {write}"
    return (
        f"{why}, as it is for {fold(able)}; name some of those, or write "
        f"{write_here or write} for {hosts}"
    )


def fabric_host(plan: Mapping[str, Any], present: Collection[str]) -> str:
    """Return the host that looks at the fabric: the inventory's, or the first subnet manager.

    An Ethernet fabric has none: the nodes hear what is next to them, and any can judge it.
    """
    cluster = plan["cluster"]
    group = "gpu_nodes" if cluster["fabric_kind"] == "ethernet" else "subnet_managers"
    hosts = [host for host in cluster["groups"][group] if host in present]
    return str(cluster["fabric"]["fabric_host"] or (hosts[0] if hosts else ""))


def fabric_refusal(plan: Mapping[str, Any], kinds: Collection[str]) -> str:
    """Return why a playbook that looks at fabrics of these kinds has none to look at."""
    if plan["cluster"]["fabric_kind"] in kinds:
        return ""
    if plan["cluster"]["fabric_kind"] == "none":
        return (
            "all.cluster_fabric.topology: none, and there is no fabric to look at; write basepod, "
            "superpod or leaf_spine with the names of the switches"
        )
    return (
        "all.cluster_networks: the rails run Ethernet, and only InfiniBand can be swept; write the "
        "cables of this fabric in a list, cluster_fabric.cabling"
    )
