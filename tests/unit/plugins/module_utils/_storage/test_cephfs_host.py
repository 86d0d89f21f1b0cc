# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Monitors are asked on real sockets; one that drops what it gets keeps no one waiting."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._storage import cephfs_host
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.cephfs_host import (
    refusals_line,
    unanswered,
)


@pytest.fixture
def sockets() -> Iterator[tuple[int, int, int]]:
    """Ports of a monitor that answers, of one that is down, and of one behind a firewall."""
    with socket.create_server(("127.0.0.1", 0)) as up, socket.socket() as full:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            down = closed.getsockname()[1]
        # Who finds the queue full gets no answer, as from a firewall that drops.
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _number in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        ports = (up.getsockname()[1], down, full.getsockname()[1])
        yield ports[0], ports[1], ports[2]
        for one in waiting:
            one.close()


def test_who_takes_no_connection_is_named_in_time(sockets: tuple[int, int, int]) -> None:
    up, down, dropped = (f"127.0.0.1:{port}" for port in sockets)
    begun = time.monotonic()
    found = unanswered([up, down, dropped], 0.5)
    assert time.monotonic() - begun < 15
    assert found == {down: "Connection refused", dropped: "no answer"}
    assert refusals_line(found, 3) == (
        f"2 of 3 monitors take no connection: {', '.join(sorted_reasons(found))}; see that they "
        "run and that route and firewall let these ports pass, and compare the addresses with "
        "`ceph mon dump`"
    )
    assert unanswered([up], 0.5) == {}


def sorted_reasons(found: dict[str, str]) -> list[str]:
    return [f"{name} ({found[name]})" for name in sorted(found)]


def test_an_address_of_ipv6_has_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        monkeypatch.setattr(cephfs_host.socket, "create_connection", lambda at, timeout: other)
        assert cephfs_host._refusal("[fd00::1]:3300", 1) == ""

        def refuse(at: tuple[str, int], timeout: float) -> None:
            assert (at, timeout) == (("fd00::1", 3300), 1)
            raise TimeoutError("timed out")

        monkeypatch.setattr(cephfs_host.socket, "create_connection", refuse)
        assert cephfs_host._refusal("[fd00::1]:3300", 1) == "no answer"


def test_a_name_that_is_looked_up_forever_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cephfs_host, "_refusal", lambda address, limit_s: time.sleep(60))
    begun = time.monotonic()
    (why,) = unanswered(["mon.example.org:3300"], 0.2).values()
    assert "within 1.2 s" in why
    assert time.monotonic() - begun < 15


def test_one_monitor_is_no_number_of_them() -> None:
    assert refusals_line({"a:3300": "no answer"}, 1).startswith(
        "the one monitor takes no connection: a"
    )
