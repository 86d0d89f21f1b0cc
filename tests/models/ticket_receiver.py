# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A receiver of tickets over HTTP, and runs that are killed while they send to it.

The receiver is what a tracker is to us: a key that it knows makes no second ticket. It refuses a
wrong signature, and answers slowly or with an error if the test wants it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.server
import json
import os
import random
import signal
import socketserver
import threading
import time
from pathlib import Path
from typing import Any

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

KEY = "not-a-real-key-of-the-receiver"


class Receiver:
    """Tickets by key, and each request as (key, text). Use it in `with`."""

    def __init__(self, folder: Path) -> None:
        self.tickets: dict[str, bytes] = {}
        self.requests: list[tuple[str, bytes]] = []
        self.answer, self.wait_s = 200, 0.0
        self.secret = folder / "hook.key"
        self.secret.touch(0o600)
        self.secret.write_text(KEY + "\n")
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.take(dict(self.headers), body)
                time.sleep(receiver.wait_s)
                self.send_response(status)
                self.send_header("Location", receiver.url + "elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_words: Any) -> None:
                pass

            def handle(self) -> None:
                # The sender may have been killed.
                with contextlib.suppress(ConnectionError):
                    super().handle()

        # Not ThreadingHTTPServer, which asks a name server for its own name.
        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """Take a request; returns the status."""
        digest = hmac.new(KEY.encode(), body, hashlib.sha256).hexdigest()
        if headers.get("X-Baremetal-Dgx-Signature") != f"sha256={digest}":
            return 403
        key = headers["Idempotency-Key"]
        self.requests.append((key, body))
        if self.answer == 200:
            self.tickets.setdefault(key, body)
        return self.answer

    def __enter__(self) -> Receiver:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def hook(self, **changed: Any) -> dict[str, Any]:
        """Return the hook that sends to this receiver, as the module gives it."""
        return {
            "name": "tracker", "kind": "webhook", "timeout_s": 5, "url": self.url,
            "secret_file": str(self.secret), "ca_file": "", "server": "", "port": 0,
            "tls": "starttls", "user": "", "sender": "", "recipients": [], "command": [], **changed,
        }  # fmt: skip


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
