# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses, MTU, rules and routes of rails, by what real releases of `ip` printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
    line_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
    ToolError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib import addresses
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.addresses import (
    Link,
    Route,
    bring_about,
    declared,
    parse_addresses,
    parse_routes,
    parse_rules,
)

FIXTURES = FIXTURES / "ip"
LINKS, RULES, RULES6, ROUTES = (
    (FIXTURES / f"{name}.json").read_text() for name in ("address-6.1", "rule", "rule6", "route")
)
APPLY = ["apply", "files"]
# A leaf with a router for all its ports, and a subnet of two addresses for one port.
FIRST: dict[str, Any] = {
    "port": "rail0",
    "address": "10.1.16.101/24",
    "mtu": 0,
    "source": "10.1.16.101",
    "gateway": "10.1.16.1",
    "table": 1000,
    "routes": [
        {"to": "10.1.16.0/24", "via": None, "table": 1000},
        {"to": "0.0.0.0/0", "via": "10.1.16.1", "table": 1000},
    ],
}
SECOND: dict[str, Any] = {
    "port": "rail1",
    "address": "172.17.0.1/31",
    "mtu": 4092,
    "source": "172.17.0.1",
    "gateway": "172.17.0.0",
    "table": 1001,
    "routes": [
        {"to": "172.17.0.0/16", "via": "172.17.0.0", "table": None},
        {"to": "0.0.0.0/0", "via": "172.17.0.0", "table": 1001},
        {"to": "10.9.0.1/32", "via": "172.17.0.0", "table": None},
    ],
}
PLAIN = {"mtu": None, "source": None, "gateway": None, "table": None, "routes": None}


class Host:
    """A CommandRunner of a host whose `ip` prints what is in it, and what it was asked."""

    def __init__(self, links: str = LINKS, rules: str = RULES, routes: str = ROUTES) -> None:
        self.texts = {"address": links, "-4": rules, "-6": RULES6, "route": routes}
        self.calls: list[list[str]] = []
        self.after: dict[str, str] = {}
        self.ends: dict[str, tuple[str, int]] = {}

    def __call__(
        self, argv: Sequence[str], timeout_s: float = 30, env: Mapping[str, str] | None = None
    ) -> CommandResult:
        self.calls.append(list(argv))
        word = argv[0] if argv[0] != "ip" else argv[3]
        outcome, rc = self.ends.get(word, (ENDED, 0))
        if argv[0] == "ip":
            assert list(argv[:3]) == ["ip", "-j", "-N"]
            out = self.texts[word]
        else:
            self.texts |= self.after
            out = ""
        return CommandResult(tuple(argv), outcome, rc, out, "no such thing", timeout_s)

    @property
    def applied(self) -> list[list[str]]:
        return [call for call in self.calls if call[0] != "ip"]


def run(host: Host, *entries: dict[str, Any], check: bool = False, **options: Any) -> Any:
    """Return the records that did not pass, and what was applied."""
    given = {"prefix": "", "manager": "networkd", "apply": [], "wait_s": 0, **options}
    records, applied = bring_about(host, {**given, "addresses": entries}, "n", check)
    assert records
    return [record for record in records if record.status != PASS], applied


def lines(records: Sequence[Record]) -> list[str]:
    return [line_of(record) for record in records]


@pytest.mark.parametrize("release", ["6.1", "6.15"])
def test_the_interfaces_of_ip(release: str) -> None:
    found = parse_addresses((FIXTURES / f"address-{release}.json").read_text())
    assert found["rail0"].mtu == 4092
    assert found["rail0"].addresses[0] == "10.1.16.101/24"
    assert found["rail1"].addresses[:2] == ("172.17.0.1/31", "fd00:1::5/64")
    # 10.4.4.4 peer 10.4.4.5/24
    assert [one for one in found["peer0"].addresses if ":" not in one] == []
    assert found["lo"] == Link(65536, ())


def test_the_rules_and_routes_of_ip() -> None:
    # The rule with an interface, too, is not for all that the source sends.
    assert parse_rules(RULES) == [
        "from all lookup 255", "from 10.1.16.101 lookup 1000", "from 172.17.0.1 lookup 1001",
        "from all lookup 254", "from all lookup 253",
    ]  # fmt: skip
    routes = parse_routes(ROUTES)
    assert Route("default", "10.1.16.1", "rail0", "1000") in routes
    assert Route("10.1.16.0/24", "", "rail0", "1000") in routes
    assert Route("10.9.0.1", "172.17.0.0", "rail1", "254") in routes
    assert Route("10.88.0.0/16", "fe80::1", "rail0", "254") in routes
    assert Route("default", "fd00:1::1", "rail1", "1001") in routes
    # A route with two next hops is not one by a rail.
    assert not [route for route in routes if route.to == "10.8.0.0/16"]
    assert parse_routes("[ ]") == parse_rules("[{},{}]") == []


def test_the_default_route_is_that_of_the_gateway() -> None:
    first, second = declared([FIRST, SECOND], "")
    assert [str(route) for route in first.routes] == [
        "default via 10.1.16.1 dev rail0 table 1000", "10.1.16.0/24 dev rail0 table 1000",
    ]  # fmt: skip
    assert [route.to for route in second.routes] == ["default", "172.17.0.0/16", "10.9.0.1"]


def test_a_host_as_declared_is_not_touched() -> None:
    host = Host()
    assert run(host, FIRST, SECOND) == ([], [])
    assert run(host, FIRST, SECOND, apply=APPLY) == ([], [])
    assert host.applied == []


def test_interfaces_that_lack_their_address() -> None:
    entries = [
        {**PLAIN, "port": "rail0", "address": "10.1.16.101/24", "mtu": 4092},
        {**PLAIN, "port": "rail1", "address": "10.1.17.101/24"},
    ]
    named = LINKS.replace('"rail', '"ibrail')
    # 10.1.17.10 is not 10.1.17.101.
    other = named.replace('"172.17.0.1","prefixlen":31', '"10.1.17.10","prefixlen":24')
    red, applied = run(Host(other), *entries, prefix="ib", apply=APPLY)
    assert applied == ["ibrail1"]
    (line,) = lines(red)
    assert line.startswith("hca:n/rail1 ib.address is 10.1.17.10/24, fd00:1::5/64, fe80::")
    assert line.endswith(
        " (must be == 10.1.17.101/24): address of ibrail1; threshold: declared in the inventory; "
        "do: if there is no ibrail1: reboot, interfaces are renamed then; otherwise ask networkd"
    )
    none = named.replace('"10.1.16.101","prefixlen":24', '"10.1.16.101","prefixlen":25')
    host = Host(none)
    assert run(host, *entries, prefix="ib", apply=APPLY)[1] == ["ibrail0", "ibrail1"]
    assert host.applied == [["apply", "files", "ibrail0", "ibrail1"]]
    # A second address of an interface, which is applied once.
    host.calls.clear()
    twice = [{**PLAIN, "port": "rail1", "address": f"10.1.{net}.101/24"} for net in (18, 19)]
    assert run(host, *twice, prefix="ib", apply=APPLY)[1] == ["ibrail1"]
    # What has no table asks for neither rules nor routes.
    assert {call[3] for call in host.calls if call[0] == "ip"} == {"address"}


def test_an_interface_that_is_renamed_at_the_next_boot_is_not_applied() -> None:
    host = Host(LINKS.replace('"rail0"', '"ens3np0"'))
    red, applied = run(host, {**FIRST, "mtu": 4092}, SECOND, apply=APPLY)
    assert (applied, host.applied) == ([], [])
    assert red[0].measured == {"value": "none", "unit": ""}
    assert red[0].text == "there is no rail0"
    assert [(record.check, record.status) for record in red[:2]] == [
        ("ib.address", FAIL),
        ("ib.mtu", NOT_MEASURED),
    ]
    assert run(host, {**FIRST, "mtu": 4092}, SECOND)[0] == red


def test_a_rule_that_is_missing_is_applied_and_checked() -> None:
    rule = ',{"priority":1001,"src":"172.17.0.1","table":"1001","protocol":"4"}'
    host = Host(rules=RULES.replace(rule, ""))
    red, applied = run(host, FIRST, SECOND, apply=APPLY)
    assert applied == ["rail1"]
    (line,) = lines(red)
    assert line == (
        "hca:n/rail1 ib.rule is none (must be == from 172.17.0.1 lookup 1001): what rail1 sends "
        "from 172.17.0.1 leaves by it; threshold: declared in the inventory; "
        "do: ask networkd; ip rule show priority 1001"
    )
    # A rule for a part of what the source sends is not that of the rail.
    part = rule.replace('"table"', '"iif":"lo","table"')
    assert run(Host(rules=RULES.replace(rule, part)), FIRST, SECOND, apply=APPLY)[1] == ["rail1"]
    # Half of a changed inventory: the rule leads to the table of before.
    before = RULES.replace('"table":"1000"', '"table":"1007"')
    (line,) = lines(run(Host(rules=before), FIRST, SECOND)[0])
    assert " is from 10.1.16.101 lookup 1007 (must be == from 10.1.16.101 lookup 1000)" in line


@pytest.mark.parametrize(
    ("routes", "found"),
    [
        # The router of the inventory is another one now.
        (
            lambda text: text.replace('y":"10.1.16.1","dev":"rail0","table"',
                                      'y":"10.1.16.254","dev":"rail0","table"'),
            "default via 10.1.16.254 dev rail0 table 1000",
        ),
        # It is gone.
        (
            lambda text: text.replace('"default","gateway":"10.1.16.1"', '"10.2.0.0/16"'),
            "none",
        ),
        # Of a table that the kernel does not have there is no line.
        (lambda text: json.dumps([one for one in json.loads(text) if "table" not in one]), "none"),
    ],
)  # fmt: skip
def test_a_changed_router_is_applied_and_checked(routes: Callable[[str], str], found: str) -> None:
    red, applied = run(Host(routes=routes(ROUTES)), FIRST, apply=APPLY)
    assert applied == ["rail0"]
    assert red[0].measured == {"value": found, "unit": ""}
    assert lines(red)[0] == (
        f"hca:n/rail0 ib.route is {found} (must be == default via 10.1.16.1 dev rail0 table 1000): "
        "route of rail0 to default; threshold: declared in the inventory; "
        "do: ask networkd; ip route show table all"
    )


NEAR = '{"dst":"172.17.0.0/16","gateway":"172.17.0.0","dev":"rail1",'
LINKED = '{"dst":"10.1.16.0/24","dev":"rail0","table":"1000",'
HOST = '{"dst":"10.9.0.1","gateway":"172.17.0.0",'
TO = "172.17.0.0/16 via 172.17.0.0 dev rail1 table 254"


@pytest.mark.parametrize(
    ("before", "after", "check", "rail", "value", "found"),
    [
        ('"rail1","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":4092',
         '"rail1","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":2044',
         "ib.mtu", "rail1", 4092, 2044),
        (NEAR, NEAR.replace('y":"172.17.0.0', 'y":"172.17.0.2'), "ib.route", "rail1", TO,
         "172.17.0.0/16 via 172.17.0.2 dev rail1 table 254"),
        (NEAR, NEAR.replace("0/16", "0/15"), "ib.route", "rail1", TO, "none"),
        # The main table has one, too; the port's own must.
        (LINKED, LINKED.replace("1000", "1007"), "ib.route", "rail0",
         "10.1.16.0/24 dev rail0 table 1000",
         "10.1.16.0/24 dev rail0 table 1007, 10.1.16.0/24 dev rail0 table 254"),
        (NEAR, NEAR + '"table":"7",', "ib.route", "rail1", TO,
         "172.17.0.0/16 via 172.17.0.0 dev rail1 table 7"),
        (HOST, HOST.replace("10.9.0.1", "10.9.0.2"), "ib.route", "rail1",
         "10.9.0.1 via 172.17.0.0 dev rail1 table 254", "none"),
        # Another rail has it.
        (NEAR, NEAR.replace("rail1", "rail0"), "ib.route", "rail1", TO,
         "172.17.0.0/16 via 172.17.0.0 dev rail0 table 254"),
    ],
    ids=["mtu", "router", "network", "table", "another", "host", "rail"],
)  # fmt: skip
def test_a_changed_mtu_or_near_route_is_applied_and_checked(
    before: str, after: str, check: str, rail: str, value: Any, found: Any
) -> None:
    assert (LINKS + ROUTES).count(before) == 1
    changed = {"links": LINKS.replace(before, after), "routes": ROUTES.replace(before, after)}
    red, applied = run(Host(**changed), FIRST, SECOND, apply=APPLY)
    assert applied == [rail]
    (record,) = red
    assert (record.check, record.subject, record.status) == (check, f"hca:n/{rail}", FAIL)
    assert record.threshold is not None
    assert (record.threshold.value, (record.measured or {})["value"]) == (value, found)
    assert record.remedy == (
        "ask networkd; IPoIB has at most the MTU of its multicast group"
        if check == "ib.mtu"
        else "ask networkd; ip route show table all"
    )
    # verify asks the same, and changes nothing.
    host = Host(**changed)
    assert run(host, FIRST, SECOND) == (red, [])
    assert host.applied == []


def test_what_was_applied_is_read_again() -> None:
    lacks = LINKS.replace('"mtu":4092', '"mtu":1500')
    host = Host(lacks)
    host.after = {"address": LINKS}
    assert run(host, SECOND, apply=APPLY) == ([], ["rail1"])
    assert host.applied == [["apply", "files", "rail1"]]
    # It did not help.
    red, applied = run(Host(lacks), SECOND, apply=APPLY)
    assert ([record.check for record in red], applied) == (["ib.mtu"], ["rail1"])


def test_check_mode_applies_nothing_and_says_what_it_would() -> None:
    host = Host(LINKS.replace('"mtu":4092', '"mtu":1500'))
    red, applied = run(host, SECOND, check=True, apply=APPLY, wait_s=60)
    assert ([record.check for record in red], applied) == (["ib.mtu"], ["rail1"])
    assert host.applied == []
    host.calls.clear()
    assert run(host, SECOND, check=True, wait_s=60) == (red, [])
    assert len(host.calls) == 3


def test_it_asks_again_while_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_POLL_S", 0.01)
    host = Host(LINKS.replace('"mtu":4092', '"mtu":1500'))

    def comes(argv: Sequence[str], timeout_s: float = 30, env: Any = None) -> CommandResult:
        if len(host.calls) == 3:
            host.texts["address"] = LINKS
        return host(argv, timeout_s, env)

    options = {"addresses": [SECOND], "prefix": "", "manager": "x", "apply": [], "wait_s": 60}
    records, _applied = bring_about(comes, options, "n", check_mode=False)
    assert {record.status for record in records} == {PASS}


@pytest.mark.parametrize("word", ["address", "-4", "route"])
@pytest.mark.parametrize(
    ("ends", "says"),
    [
        ((TIMED_OUT, -1), " did not end within 10 s"),
        ((MISSING, -1), "ip is not installed"),
        ((ENDED, 1), " ended with 1: "),
    ],
)
def test_a_question_without_an_answer_applies_nothing(
    word: str, ends: tuple[str, int], says: str
) -> None:
    host = Host(LINKS.replace('"mtu":4092', '"mtu":1500'))
    host.ends = {word: ends}
    with pytest.raises(ToolError) as raised:
        run(host, SECOND, apply=APPLY)
    assert says in str(raised.value)
    assert host.applied == []
    (record,) = run(host, SECOND)[0]
    assert (record.subject, record.status) == ("node:n", NOT_MEASURED)
    assert says in record.text


@pytest.mark.parametrize(
    "text",
    ["", "Object", LINKS[:-9], "{}x", "[1]", '[{"ifname":"rail1"}]', '[{"ifname":1,"mtu":2}]'],
)
def test_an_answer_in_another_form_applies_nothing(text: str) -> None:
    host = Host(text)
    with pytest.raises(ToolError, match="`ip -j -N address show` printed another form: "):
        run(host, SECOND, apply=APPLY)
    assert run(host, SECOND)[0][0].status == NOT_MEASURED


def test_a_command_that_fails_to_apply_is_an_error() -> None:
    host = Host(LINKS.replace('"mtu":4092', '"mtu":1500'))
    host.ends = {"apply": (ENDED, 1)}
    with pytest.raises(
        ToolError, match="`apply files rail1` ended with 1: no such thing"
    ) as raised:
        run(host, SECOND, apply=APPLY)
    assert raised.value.details == {"changed": True}


def test_ipv6_is_compared_as_ip_writes_it() -> None:
    entry = {
        "port": "rail1",
        "address": "FD00:1:0::5/64",
        "mtu": 0,
        "source": "fd00:1:0:0::5",
        "gateway": "FD00:1::1",
        "table": 1001,
        "routes": [{"to": "::/0", "via": "fd00:1::1", "table": 1001}],
    }
    host = Host()
    assert run(host, entry) == ([], [])
    assert [call[3:] for call in host.calls] == [
        ["address", "show"], ["-6", "rule", "show"],
        ["route", "show", "table", "all", "type", "unicast"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"address": "10.1.16.300/24"}, r"addresses\[1\].address: .*; write ADDRESS/BITS"),
        ({"source": "rail0"}, r"addresses\[1\].source: 'rail0' does .*; write an address"),
        ({"gateway": "10.1.16.1/24"}, r"addresses\[1\].gateway: .*; write an address"),
        (
            {"routes": [{"to": "10.1.16.7/24", "via": None, "table": None}]},
            r"addresses\[1\].routes\[0\].to: 10.1.16.7/24 has host bits set; write NETWORK/BITS",
        ),
        (
            {"routes": [{"to": "10.1.16.0/24", "via": "x", "table": None}]},
            r"addresses\[1\].routes\[0\].via: .*; write an address",
        ),
    ],
)
def test_what_is_no_address_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolError, match=message):
        declared([SECOND, {**FIRST, **change}], "")
