# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A receiver of tickets over HTTP, with nothing but the standard library: the demo starts it, too.

The receiver is what a tracker is to us: a key that it knows makes no second ticket. It refuses a
wrong signature, and answers slowly or with an error if the test wants it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.server
import socketserver
import threading
import time
from pathlib import Path
from typing import Any

KEY = "not-a-real-key-of-the-receiver"


class Receiver:
    """Tickets by key, and each request as (key, text). Use it in `with`."""

    def __init__(self, folder: Path) -> None:
        self.tickets: dict[str, bytes] = {}
        self.requests: list[tuple[str, bytes]] = []
        self.answer, self.wait_s = 200, 0.0
        # The answer to tickets whose key ends in this.
        self.answer_to: dict[str, int] = {}
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
        answer = self.answer_to.get(key.rpartition("/")[2], self.answer)
        if answer == 200:
            self.tickets.setdefault(key, body)
        return answer

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
