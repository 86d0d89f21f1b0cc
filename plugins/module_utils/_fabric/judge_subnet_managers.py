# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The subnet managers: one master, and the standbys that are expected. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Container, Iterator, Mapping, Sequence

from .._core.record import NOT_MEASURED
from .._ib.descriptions import host_and_device, host_key, switch_name
from .findings import NO_SM, SM_UNEXPECTED, STANDBY_MISSING, TWO_MASTERS, Finding, several
from .match import Matches
from .model import SWITCH, Sweep
from .parse_counters import FoundSm, FoundSms


def sm_host(sweep: Sweep, matches: Matches, sm: FoundSm) -> str:
    """Return the node or switch that a subnet manager runs on, or its LID."""
    for guid, device in sweep.devices.items():
        ours = sm.guid is not None and (
            guid == sm.guid or any(port.guid == sm.guid for port in device.ports.values())
        )
        lids = {device.lid, *(port.lid for port in device.ports.values())}
        if not ours and (sm.guid is not None or sm.lid not in lids):
            continue
        key = matches.by_guid.get(guid)
        if key is not None:
            return str(key[0])
        if device.kind == SWITCH:
            return switch_name(device.description)
        return host_and_device(device.description).host
    return f"LID {sm.lid}"


OPENSM = "opensm"
UFM = "ufm"
SWITCH_SM = "switch"
PROVIDERS = (OPENSM, UFM, SWITCH_SM)
_OF_PROVIDER = {UFM: "UFM", SWITCH_SM: "the managed switch"}


@dataclass(frozen=True)
class Managers:
    """Who manages the subnet: with opensm these hosts; else a host outside of the inventory.

    `guids` are those of the ports that run a subnet manager, if they are declared.
    """

    hosts: Sequence[str] = ()
    provider: str = OPENSM
    guids: Sequence[str] = ()


def judge_sms(
    sweep: Sweep,
    matches: Matches,
    found: FoundSms,
    expected: Managers,
    nodes: Container[str] = (),
) -> Iterator[Finding]:
    """Yield what is wrong with the subnet managers.

    Without hosts and GUIDs only the masters are counted. `nodes` are the nodes of the plan: with
    UFM or a switch as the provider none of them runs one.
    """
    if not found.asked:
        return
    if found.complaints:
        yield Finding(
            NO_SM,
            "fabric",
            "the subnet managers are not known: " + several(found.complaints),
            "look at the tools on the host of the sweep",
            status=NOT_MEASURED,
        )
        return
    declared = expected.hosts if expected.provider == OPENSM else ()
    in_full = {host_key(host): host for host in declared}
    hosts: dict[str, FoundSm] = {}
    for sm in found.sms:
        host = sm_host(sweep, matches, sm)
        hosts[in_full.get(host_key(host), host)] = sm
    yield from _masters(found, hosts, expected, declared)
    if expected.guids:
        yield from _by_guid(found, hosts, expected)
    elif expected.provider != OPENSM:
        yield from _beside(hosts, expected.provider, nodes)
    elif declared:
        for finding in _by_host(found, hosts, declared):
            # A sweep that is not whole may lack the host that a manager runs on.
            yield replace(finding, status=NOT_MEASURED) if sweep.partial else finding


def _masters(
    found: FoundSms, hosts: Mapping[str, FoundSm], expected: Managers, declared: Sequence[str]
) -> Iterator[Finding]:
    masters = found.masters
    if not masters:
        where = _OF_PROVIDER.get(expected.provider)
        hosts_of = several(list(declared)) or "one host of the fabric"
        yield Finding(
            NO_SM,
            "fabric",
            "no subnet manager is master: links stay up, but nothing new gets an address",
            f"see that {where} runs and is attached to the fabric"
            if where
            else f"start the subnet manager on {hosts_of}",
        )
    elif len(masters) > 1:
        names = sorted(host for host, sm in hosts.items() if sm.state == "MASTER")
        yield Finding(
            TWO_MASTERS,
            "fabric",
            f"{len(masters)} subnet managers say that they are master: {several(names)}",
            "stop all but one; they must have the same subnet prefix and management key, and reach "
            "each other",
        )
    unsure = sorted(host for host, sm in hosts.items() if sm.state is None)
    if unsure and len(masters) == 1:
        yield Finding(
            TWO_MASTERS,
            "fabric",
            f"the subnet manager on {several(unsure)} does not say whether it is master",
            "look at it",
            status=NOT_MEASURED,
        )


def _by_host(
    found: FoundSms, hosts: Mapping[str, FoundSm], declared: Sequence[str]
) -> Iterator[Finding]:
    # No standby was asked for where there is no master at all.
    for host in declared:
        if host not in hosts and found.masters:
            yield Finding(
                STANDBY_MISSING,
                f"sm:{host}",
                f"no subnet manager runs on {host}",
                f"run configure_fabric, or start baremetal-dgx-opensm@FABRIC.service on {host}: "
                "until then none takes over when the master fails",
            )
    for host, sm in sorted(hosts.items()):
        if host not in declared and not (len(found.masters) > 1 and sm.state == "MASTER"):
            yield Finding(
                SM_UNEXPECTED,
                f"sm:{host}",
                f"a subnet manager runs on {host} ({sm.state or 'state not known'}), which is not "
                f"one of {several(list(declared))}",
                f"stop it on {host}; on a switch: no ib sm",
            )


def _by_guid(
    found: FoundSms, hosts: Mapping[str, FoundSm], expected: Managers
) -> Iterator[Finding]:
    declared = {plain_guid(guid) for guid in expected.guids}
    seen = {sm.guid for sm in found.sms if sm.guid is not None}
    for guid in sorted(declared - seen) if found.masters else ():
        yield Finding(
            STANDBY_MISSING,
            f"sm:0x{guid}",
            f"no subnet manager runs on the port 0x{guid}, which is declared",
            f"look at {_OF_PROVIDER.get(expected.provider, 'the host of this port')}: until then "
            "none takes over when the master fails",
        )
    for host, sm in sorted(hosts.items()):
        double = len(found.masters) > 1 and sm.state == "MASTER"
        if sm.guid is not None and sm.guid not in declared and not double:
            yield Finding(
                SM_UNEXPECTED,
                f"sm:{host}",
                f"a subnet manager runs on {host} ({sm.state or 'state not known'}), whose port "
                f"0x{sm.guid} is not declared",
                f"stop it on {host}, or declare its GUID",
            )


def _beside(
    hosts: Mapping[str, FoundSm], provider: str, nodes: Container[str]
) -> Iterator[Finding]:
    """Yield managers on nodes of the plan: UFM and switches are not among them."""
    for host, sm in sorted(hosts.items()):
        if host in nodes:
            yield Finding(
                SM_UNEXPECTED,
                f"sm:{host}",
                f"a subnet manager runs on {host} ({sm.state or 'state not known'}), though "
                f"{_OF_PROVIDER[provider]} manages the subnet",
                f"stop opensm on {host}; systemctl list-units '*opensm*' names its unit",
            )


def plain_guid(text: str) -> str:
    """Return 16 hexadecimal digits of a GUID as people write it."""
    return text.lower().replace("0x", "").replace(":", "").zfill(16)


def sm_line(
    sweep: Sweep, matches: Matches, found: FoundSms, expected: Managers | None = None
) -> str:
    """Return a line on who manages the subnet."""
    if not found.asked:
        return "the subnet managers were not looked for"
    managers = [
        f"{sm_host(sweep, matches, sm)} {(sm.state or 'not known').lower()}"
        + (f" (priority {sm.priority})" if sm.priority is not None else "")
        for sm in found.sms
    ]
    line = "subnet managers: " + (", ".join(managers) or "none")
    if expected is not None and expected.provider != OPENSM and not expected.guids:
        line += f"; which of them {_OF_PROVIDER[expected.provider]} expects was not compared, "
        line += "since no subnet_manager_guids are declared"
    return line
