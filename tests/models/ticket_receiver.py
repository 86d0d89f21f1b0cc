# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs that are killed while they send tickets to a receiver."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

from ticket_server import Receiver

from ansible_collections.baremetal.dgx.plugins.module_utils._core.redact import Redactor
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.book import Book
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.incident import (
    BEGUN,
    CLOSED,
    ENDED,
    KEPT,
    OPENED,
    PERSON,
    Event,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.send import send_all


def story(number: int, at: float) -> list[Event]:
    """Return the lines of one incident from the fault to the end."""
    node = f"dgx-{number:02}"
    name = f"{node}-story"

    def line(what: str, **more: str) -> Event:
        return Event(at + number, name, node, what, **more)

    part = f"GPU-{number % 3}"
    return [
        line(OPENED, check="gpu.xid", subject=f"gpu:{node}/3", text="Xid 79", part=part),
        line(BEGUN, step="reboot"),
        line(ENDED, step="reboot", text="done"),
        line(PERSON, text="look at it"),
        line(BEGUN, step="power_cycle"),
        line(KEPT, text="return the part", part=part),
        line(CLOSED, text="the node left Slurm"),
    ]  # fmt: skip


def kill_many(folder: Path, kills: int, seed: int = 1) -> tuple[Receiver, int]:
    """Send the tickets of incidents that go on, in runs that are killed at random moments.

    Returns the receiver, and how many runs were killed before they ended.
    """
    draw, killed = random.Random(seed), 0
    book = Book(str(folder / "incidents"))
    with Receiver(folder) as receiver, book.locked():
        hook = receiver.hook()
        send_all(book.folder, [hook], [], "alpha", Redactor())
        lines = [
            line for number in range(max(4, kills // 12)) for line in story(number, time.time())
        ]
        while killed < kills:
            if lines and draw.random() < 0.5:
                book.add(lines[:3])
                lines = lines[3:]
            child = os.fork()
            if not child:
                try:
                    events, _unread = book.events()
                    send_all(book.folder, [hook], events, "alpha", Redactor())
                finally:
                    os._exit(0)
            time.sleep(draw.random() * 0.05)
            os.kill(child, signal.SIGKILL)
            _pid, status = os.waitpid(child, 0)
            killed += os.WIFSIGNALED(status)
        book.add(lines)
        events, _unread = book.events()
        send_all(book.folder, [hook], events, "alpha", Redactor())
    for key, body in receiver.requests:
        assert receiver.tickets[key] == body, f"{key} was sent with another text"
        assert json.loads(body)["key"] == key
    return receiver, killed
