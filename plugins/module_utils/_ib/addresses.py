# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Addresses, MTU, rules and routes of the rails: as declared, as `ip` shows them, and applied.

iproute2 5.9 to 6.15 print alike, and `[]` if there is nothing. With -N tables are numbers, whatever
/etc/iproute2/rt_tables calls them; the main table is left out, and so is the length of a host's
route.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Sequence, TypeVar

from .._core.question import Question
from .._core.record import NOT_MEASURED, PASS, Record
from .._core.run import CommandRunner, ToolError
from .._core.wait import attempts
from .thresholds import ADDRESS, MTU, ROUTE, RULE

_READ_S = 10.0
_APPLY_S = 300.0
_POLL_S = 1.0
_MAIN = "254"
_DEFAULT = "default"
# A rule with any other key holds for less than all that is sent from its source.
_PLAIN_RULE = {"priority", "src", "table", "protocol"}
_Read = TypeVar("_Read")


class Route(NamedTuple):
    """A route with one next hop; without `via` its network is on the link."""

    to: str
    via: str
    netdev: str
    table: str

    def __str__(self) -> str:
        """Return it in the words of `ip`."""
        via = f"via {self.via} " if self.via else ""
        return f"{self.to} {via}dev {self.netdev} table {self.table}"


@dataclass(frozen=True)
class Wanted:
    """What the interface of a port must have; without a table neither a rule nor routes."""

    port: str
    netdev: str
    address: str
    mtu: int
    source: str = ""
    table: str = ""
    routes: tuple[Route, ...] = ()


@dataclass(frozen=True)
class Link:
    """An interface, with its addresses and their lengths."""

    mtu: int
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """What `ip` shows: interfaces by name, rules in its words, and routes."""

    links: Mapping[str, Link]
    rules: Sequence[str] = ()
    routes: Sequence[Route] = ()


def _rule(source: str, table: Any) -> str:
    return f"from {source} lookup {table}"


def declared(entries: Iterable[Mapping[str, Any]], prefix: str) -> list[Wanted]:
    """Return what the entries of the option say; ToolError for one that is not an address."""
    return [_declared(entry, prefix, f"addresses[{index}]") for index, entry in enumerate(entries)]


def _declared(entry: Mapping[str, Any], prefix: str, path: str) -> Wanted:
    port, netdev, mtu = entry["port"], prefix + entry["port"], entry["mtu"] or 0
    address = _canonical(ip_interface, entry["address"], f"{path}.address", "ADDRESS/BITS")
    if entry["table"] is None:
        return Wanted(port, netdev, address, mtu)
    table = str(entry["table"])
    source, gateway = (
        _canonical(ip_address, entry[key], f"{path}.{key}", "an address")
        for key in ("source", "gateway")
    )
    routes = [Route(_DEFAULT, gateway, netdev, table)]
    for number, route in enumerate(entry["routes"] or ()):
        where = f"{path}.routes[{number}]"
        to, via = _destination(route["to"], f"{where}.to"), route["via"] or ""
        via = via and _canonical(ip_address, via, f"{where}.via", "an address")
        if to != _DEFAULT:
            routes.append(Route(to, via, netdev, str(route["table"] or _MAIN)))
    return Wanted(port, netdev, address, mtu, source, table, tuple(routes))


def _canonical(make: Callable[[str], Any], text: str, path: str, form: str) -> str:
    try:
        return str(make(text))
    except ValueError as error:
        raise ToolError(f"{path}: {error}; write {form}") from error


def _destination(text: str, path: str) -> str:
    if text == _DEFAULT:
        return text
    network = ip_network(_canonical(ip_network, text, path, "NETWORK/BITS"))
    if network.prefixlen == 0:
        return _DEFAULT
    return str(network.network_address if network.num_addresses == 1 else network)


def _objects(text: str) -> list[Any]:
    """Return the objects of `ip -j`, without the empty ones of some releases."""
    return list(filter(None, json.loads(text)))


def parse_addresses(text: str) -> dict[str, Link]:
    """Return the interfaces of `ip -j address show`."""
    return {
        one["ifname"]: Link(
            one["mtu"],
            tuple(
                f"{entry['local']}/{entry['prefixlen']}"
                for entry in one["addr_info"]
                # The length is that of the peer's network then.
                if "address" not in entry
            ),
        )
        for one in _objects(text)
    }


def parse_rules(text: str) -> list[str]:
    """Return the rules of `ip -j -N rule show` that ask for the source alone."""
    return [_rule(one["src"], one.get("table")) for one in _objects(text) if {*one} <= _PLAIN_RULE]


def parse_routes(text: str) -> list[Route]:
    """Return the routes of `ip -j -N route show table all type unicast` with one next hop."""
    return [
        Route(
            one["dst"],
            one.get("gateway") or one.get("via", {}).get("host", ""),
            one["dev"],
            one.get("table", _MAIN),
        )
        for one in _objects(text)
        if "dev" in one
    ]


def read(run: CommandRunner, wanted: Iterable[Wanted]) -> Found:
    """Ask `ip` for what is declared; ToolError if it fails, hangs or does not print JSON."""
    links = _ask(run, parse_addresses, "address", "show")
    families = sorted({f"-{ip_address(one.source).version}" for one in wanted if one.source})
    if not families:
        return Found(links)
    rules = [rule for one in families for rule in _ask(run, parse_rules, one, "rule", "show")]
    routes = _ask(run, parse_routes, "route", "show", "table", "all", "type", "unicast")
    return Found(links, rules, routes)


def _ask(run: CommandRunner, parse: Callable[[str], _Read], *words: str) -> _Read:
    answer = run(["ip", "-j", "-N", *words], timeout_s=_READ_S)
    if not answer.ok:
        raise ToolError(answer.describe())
    try:
        return parse(answer.out)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolError(f"`{' '.join(answer.argv)}` printed another form: {error!r}") from error


def judge(one: Wanted, found: Found, node: str, manager: str) -> Iterator[Record]:
    """Yield the records of one interface. `manager` configures it, and is named in what to do."""
    subject, link = f"hca:{node}/{one.port}", found.links.get(one.netdev)
    text = None if link else f"there is no {one.netdev}"

    def record(question: Question, value: Any, there: Iterable[str], to: str = "") -> Record:
        filled = question.filled(
            netdev=one.netdev, manager=manager, source=one.source, table=one.table, to=to
        )
        measured = value if value in there else ", ".join(there) or "none"
        return filled.judge(subject, measured, value, text=text)

    yield record(ADDRESS, one.address, link.addresses if link else ())
    if one.mtu:
        filled = MTU.filled(netdev=one.netdev, manager=manager)
        yield filled.judge(subject, link.mtu if link else None, one.mtu, text=text)
    if one.source:
        start = f"from {one.source} "
        there = [rule for rule in found.rules if rule.startswith(start)]
        yield record(RULE, _rule(one.source, one.table), there)
    for route in one.routes:
        there = [
            str(other)
            for other in found.routes
            if other.to == route.to and (other.netdev == route.netdev or other.table == route.table)
        ]
        yield record(ROUTE, str(route), there, route.to)


def bring_about(
    run: CommandRunner, options: Mapping[str, Any], node: str, check_mode: bool
) -> tuple[list[Record], list[str]]:
    """Return the records, and the interfaces that lacked something and were applied.

    With `apply` a question that fails is a ToolError; without it, it is not measured.
    """
    wanted = declared(options["addresses"], options["prefix"])
    manager, apply = options["manager"], options["apply"]

    def records_of(found: Found) -> list[Record]:
        return [record for one in wanted for record in judge(one, found, node, manager)]

    def measured() -> list[Record]:
        try:
            return records_of(read(run, wanted))
        except ToolError as error:
            return [Record(ADDRESS.check, f"node:{node}", NOT_MEASURED, str(error))]

    applied: list[str] = []
    if apply:
        found = read(run, wanted)
        # One that is renamed at the next boot has no such name yet: its files are read then.
        lacking = [
            one.netdev
            for one in wanted
            if one.netdev in found.links
            and any(record.status != PASS for record in judge(one, found, node, manager))
        ]
        applied = list(dict.fromkeys(lacking))
        if check_mode or not applied:
            return records_of(found), applied
        answer = run([*apply, *applied], timeout_s=_APPLY_S)
        if not answer.ok:
            raise ToolError(answer.describe(), changed=True)
    records: list[Record] = []
    for _left in attempts(0 if check_mode else options["wait_s"], _POLL_S):
        records = measured()
        if all(record.status == PASS for record in records):
            break
    return records, applied
