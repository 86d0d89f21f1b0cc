# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The subnet managers: one master, and the standbys that are expected. Pure."""

from __future__ import annotations

from typing import Iterator, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_answers import FoundSm, FoundSms
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_findings import (
    NO_SM,
    SM_UNEXPECTED,
    STANDBY_MISSING,
    TWO_MASTERS,
    Finding,
    several,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_match import (
    Matches,
    host_and_device,
    short,
    switch_name,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_model import SWITCH, Sweep
from ansible_collections.baremetal.dgx.plugins.module_utils._records import NOT_MEASURED


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


def judge_sms(
    sweep: Sweep, matches: Matches, found: FoundSms, expected: Sequence[str]
) -> Iterator[Finding]:
    """Yield what is wrong with the subnet managers; `expected` are the hosts that run one.

    Without `expected` only the masters are counted.
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
    in_full = {short(host): host for host in expected}
    hosts: dict[str, FoundSm] = {}
    for sm in found.sms:
        host = sm_host(sweep, matches, sm)
        hosts[in_full.get(short(host), host)] = sm
    masters = found.masters
    if not masters:
        yield Finding(
            NO_SM,
            "fabric",
            "no subnet manager is master: links stay up, but nothing new gets an address",
            "start the subnet manager on " + (several(list(expected)) or "one host of the fabric"),
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
    if not expected:
        return
    # Nobody asked after a standby where there is no master at all.
    for host in expected:
        if host not in hosts and masters:
            yield Finding(
                STANDBY_MISSING,
                f"sm:{host}",
                f"no subnet manager runs on {host}",
                f"start opensm.service on {host}: until then nobody takes over when the master "
                "fails",
            )
    for host, sm in sorted(hosts.items()):
        if host not in expected and not (len(masters) > 1 and sm.state == "MASTER"):
            yield Finding(
                SM_UNEXPECTED,
                f"sm:{host}",
                f"a subnet manager runs on {host} ({sm.state or 'state not known'}), which is not "
                f"one of {several(list(expected))}",
                f"stop it on {host}; on a switch: no ib sm",
            )


def sm_line(sweep: Sweep, matches: Matches, found: FoundSms) -> str:
    """Return a line on who manages the subnet."""
    if not found.asked:
        return "the subnet managers were not looked for"
    said = [
        f"{sm_host(sweep, matches, sm)} {(sm.state or 'not known').lower()}"
        + (f" (priority {sm.priority})" if sm.priority is not None else "")
        for sm in found.sms
    ]
    return "subnet managers: " + (", ".join(said) or "none")
