# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Settings of a machine and its BMC over Redfish: what is declared, what is there, what is written.

Each function reads, writes what differs unless it only looks, and reads back. LackError for what a
BMC does not have, before anything is written.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence
from urllib.parse import urlsplit

from .redfish import BmcError, LackError, RefusedError, Session, link

# Redfish, EventDestination, Protocol.
_SYSLOG = {"udp": "SyslogUDP", "tcp": "SyslogTCP", "tls": "SyslogTLS"}


@dataclass(frozen=True)
class Found:
    """What differs from what is declared, what of that is in force after the next boot."""

    wrong: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    changed: bool = False

    @property
    def text(self) -> str:
        """Return it in one line."""
        waits = [f"pending until the next boot: {', '.join(self.pending)}"] if self.pending else []
        return "; ".join([*self.wrong, *waits]) or "as declared"


def bring_bios(
    opened: Session, system: Mapping[str, Any], wanted: Mapping[str, Any], writes: bool
) -> Found:
    """Compare the attributes of the BIOS, and write those that differ."""
    path = link(system, "Bios")
    have = opened.get(path).get("Attributes") or {}
    unknown = sorted(set(wanted) - set(have))
    if unknown:
        raise LackError(f"{path} has no attribute {', '.join(unknown)}")

    def read() -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
        resource = opened.get(path)
        place = _place_of(opened, resource)
        return resource.get("Attributes") or {}, place.get("Attributes") or {}, place

    def differs(have: Mapping[str, Any]) -> list[str]:
        return [name for name in wanted if str(have.get(name)) != str(wanted[name])]

    now, later, place = read()
    due = sorted(set(differs(now)) & set(differs(later)))
    body = {"Attributes": {name: _like(now[name], wanted[name]) for name in due or differs(now)}}
    changed = writes and bool(differs(now)) and _schedule(opened, place, body, bool(due))
    if changed:
        now, later, place = read()
    wrong = differs(now)
    waits = [name for name in wrong if name not in differs(later)]
    return Found(
        tuple(f"{name} is {now.get(name)}, declared {wanted[name]}" for name in wrong
              if name not in waits),
        tuple(f"{name} {wanted[name]}" for name in waits),
        changed,
    )  # fmt: skip


def bring_boot_order(
    opened: Session, system: Mapping[str, Any], wanted: Sequence[str], writes: bool
) -> Found:
    """Put what the patterns name first, in their order; the others keep theirs."""
    path = str(system["@odata.id"])
    boot = system.get("Boot") or {}
    order = boot.get("BootOrder")
    if not isinstance(order, list) or not order:
        raise LackError(f"{path} has no BootOrder")
    names: dict[str, set[str]] = {str(one): {str(one)} for one in order}
    for option in opened.members(link(boot, "BootOptions")) if "BootOptions" in boot else ():
        known = names.get(str(option.get("BootOptionReference")))
        if known is not None:
            known.update(str(option[key]) for key in ("DisplayName", "Alias") if option.get(key))
    first: list[str] = []
    for pattern in wanted:
        fits = [
            one for one in names
            if any(fnmatch.fnmatchcase(name.lower(), pattern.lower()) for name in names[one])
        ]  # fmt: skip
        if not fits:
            raise LackError(f"{path} has no boot option {pattern}")
        first += [one for one in fits if one not in first]
    goal = [*first, *(one for one in names if one not in first)]

    def read() -> tuple[list[str], list[str], Mapping[str, Any]]:
        resource = opened.get(path)
        place = _place_of(opened, resource)
        orders = [(one.get("Boot") or {}).get("BootOrder") or [] for one in (resource, place)]
        return orders[0], orders[1], place

    now, later, place = read()
    body = {"Boot": {"BootOrder": goal}}
    changed = writes and now != goal and _schedule(opened, place, body, later != goal)
    if changed:
        now, later, place = read()
    if now == goal:
        return Found(changed=changed)
    text = ", ".join("/".join(sorted(names[one] - {one}) or [one]) for one in goal)
    if later == goal:
        return Found((), (text,), changed)
    return Found((f"is {', '.join(now)}, declared {text}",), (), changed)


def bring_time_servers(
    opened: Session, system: Mapping[str, Any], wanted: Sequence[str], writes: bool
) -> Found:
    """Give the BMC its time servers."""
    path = link(_manager(opened, system), "NetworkProtocol")

    def read() -> tuple[Mapping[str, Any], list[str]]:
        resource = opened.get(path)
        ntp = resource.get("NTP")
        if not isinstance(ntp, Mapping):
            raise LackError(f"{path} has no NTP")
        servers = [one for one in ntp.get("NTPServers") or () if one]
        return resource, servers if ntp.get("ProtocolEnabled") else []

    resource, now = read()
    due = now != list(wanted)
    if due and writes:
        body = {"NTP": {"ProtocolEnabled": True, "NTPServers": list(wanted)}}
        _write(opened, _place_of(opened, resource), body)
        _resource, now = read()
    wrong = now != list(wanted)
    report = f"is {', '.join(now) or 'without time servers'}, declared {', '.join(wanted)}"
    return Found((report,) if wrong else (), (), due and writes)


def bring_log_server(
    opened: Session, _system: Mapping[str, Any], wanted: str, writes: bool
) -> Found:
    """Let the BMC send its events to a syslog server; subscriptions of others stay."""
    url = urlsplit(wanted)
    target, protocol = f"syslog://{url.netloc}", _SYSLOG[url.scheme]
    path = link(opened.linked(opened.root, "EventService"), "Subscriptions")

    def is_there() -> bool:
        return any(
            str(one.get("Destination")).rstrip("/") == target and one.get("Protocol") == protocol
            for one in opened.members(path)
        )

    due = not is_there()
    if due and writes:
        body = {
            "Destination": target, "Protocol": protocol, "SubscriptionType": "Syslog",
            "Context": "baremetal.dgx",
        }  # fmt: skip
        opened.send("post", path, body)
    if due and not (writes and is_there()):
        return Found((f"no subscription sends events to {wanted}",), (), writes)
    return Found(changed=due)


Bring = Callable[[Session, Mapping[str, Any], Any, bool], Found]


def _manager(opened: Session, system: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manager of the system, or the only one."""
    named = (system.get("Links") or {}).get("ManagedBy") or []
    if not named:
        named = opened.linked(opened.root, "Managers").get("Members") or []
    if len(named) != 1:
        raise BmcError(f"{system.get('@odata.id')} names {len(named)} managers")
    return opened.get(named[0].get("@odata.id"))


def _place_of(opened: Session, resource: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return where a resource is changed: itself, or what waits for the next boot."""
    settings = resource.get("@Redfish.Settings") or {}
    path = (settings.get("SettingsObject") or {}).get("@odata.id")
    return {"@Redfish.Settings": settings, **opened.get(path)} if path else resource


def _schedule(
    opened: Session, place: Mapping[str, Any], body: Mapping[str, Any], due: bool
) -> bool:
    """Write what is in force after the next boot; return whether that changed anything.

    iDRAC keeps what it got without an apply time, and applies it at no boot. What is not `due`, as
    it waits there already, is written once more for that alone.
    """
    settings = place.get("@Redfish.Settings") or {}
    is_named = "OnReset" in (settings.get("SupportedApplyTimes") or ())
    if is_named:
        # Others refuse a property that they do not name.
        body = {**body, "@Redfish.SettingsApplyTime": {"ApplyTime": "OnReset"}}
    elif not due:
        return False
    try:
        answer = _write(opened, place, body)
    except RefusedError as error:
        if due or "already committed" not in str(error):
            raise
        return False
    # Without a job the boot has one already.
    return due or bool(answer.getheader("Location"))


def _write(opened: Session, place: Mapping[str, Any], body: Mapping[str, Any]) -> Any:
    # AMI's BMCs refuse a change without it.
    headers = {"If-Match": place.get("@odata.etag") or "*"}
    return opened.send("patch", place["@odata.id"], body, headers)


def _like(have: Any, wanted: Any) -> Any:
    """Return the declared value in the type that the BMC has."""
    return str(wanted) if isinstance(have, str) else wanted
