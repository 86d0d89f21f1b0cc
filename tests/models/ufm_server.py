# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""UFM's REST interface for partitions and ports, over TLS, as its public guide describes it.

Not UFM: what the guide leaves open, such as the words of an error, is the model's own.
"""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

USER, PASSWORD, TOKEN = "dgx", "pass-word-1", "token-word-2"


class _Server(ThreadingHTTPServer):
    # HTTPServer's own asks DNS for the name of the host, which may take seconds.
    server_bind = TCPServer.server_bind


class UfmModel:
    """The partitions, by PKey as UFM writes it, and all requests but GET."""

    def __init__(self) -> None:
        self.partitions: dict[str, dict[str, Any]] = {
            "0x7fff": {"partition": "management", "ip_over_ib": True, "guids": []}
        }
        self.ports: list[dict[str, Any]] = []
        self.log: list[tuple[str, str]] = []
        # Answers to GET that still show what was before, since UFM changes its files first.
        self.late = 0
        self.forgets = False
        self.answer: str | None = None
        self._shown = json.dumps(self.partitions)
        self._behind = 0

    def shown(self) -> str:
        """The list as GET answers it."""
        if self._behind > 0:
            self._behind -= 1
        else:
            self._shown = json.dumps(self.partitions)
        return self._shown

    def change(self, method: str, path: str, body: Any) -> int:
        """Carry out a request and return its status."""
        self.log.append((method, path))
        self._behind = self.late
        if self.forgets:
            return 200
        if (method, path) == ("POST", "resources/pkeys/add"):
            if body["pkey"] in self.partitions:
                return 400
            self.partitions[body["pkey"]] = {
                "partition": f"api_pkey_{body['pkey']}",
                "ip_over_ib": body["ip_over_ib"],
                "guids": [],
            }
            return 200
        if (method, path) == ("POST", "resources/pkeys"):
            if (
                len(body["guids"]) != len(body["memberships"])
                or body["pkey"] not in self.partitions
            ):
                return 400
            members = self._members(body["pkey"])
            members.update(zip(body["guids"], body["memberships"], strict=True))
            self._keep(body["pkey"], members)
            return 200
        words = path.split("/")
        if method == "DELETE" and words[:2] == ["resources", "pkeys"]:
            if words[2] not in self.partitions:
                return 404
            if len(words) == 3:
                del self.partitions[words[2]]
                return 200
            members = self._members(words[2])
            self._keep(words[2], {g: k for g, k in members.items() if g not in words[4].split(",")})
            return 200
        return 404

    def members(self, pkey: str) -> dict[str, str]:
        """The members of a partition, full or limited by GUID."""
        return self._members(pkey)

    def _members(self, pkey: str) -> dict[str, str]:
        return {one["guid"]: one["membership"] for one in self.partitions[pkey]["guids"]}

    def _keep(self, pkey: str, members: dict[str, str]) -> None:
        self.partitions[pkey]["guids"] = [
            {"guid": guid, "membership": kind, "index0": False} for guid, kind in members.items()
        ]


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a key and a self-signed certificate for localhost; return their paths."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    names = "subjectAltName=DNS:localhost"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", names,
         "-keyout", key, "-out", cert],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return key, cert


def plain_authority(folder: Path) -> tuple[Path, Path, Path]:
    """Make key, certificate for localhost, and a CA without key usage, which openssl leaves out."""
    key, cert, authority = (folder / f"plain_{name}.pem" for name in ("key", "cert", "ca"))
    new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    with_key = [*new, "-subj", "/CN=site", "-keyout", folder / "ca_key.pem"]
    asked, names = folder / "asked.pem", folder / "names"
    names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    for words in (
        [*with_key, "-x509", "-days", "2", "-out", authority],
        [*new, "-subj", "/CN=localhost", "-keyout", key, "-out", asked],
        ["openssl", "x509", "-req", "-in", asked, "-CA", authority, "-CAkey", folder / "ca_key.pem",
         "-CAcreateserial", "-days", "2", "-extfile", names, "-out", cert],
    ):  # fmt: skip
        subprocess.run(words, check=True, capture_output=True)
    return key, cert, authority


@contextmanager
def as_python_3_13() -> Iterator[None]:
    """Check certificates as Python 3.13 does by default, on each release."""
    made = ssl.create_default_context

    def strict(*words: Any, **named: Any) -> ssl.SSLContext:
        context = made(*words, **named)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    with mock.patch.object(ssl, "create_default_context", strict):
        yield


@contextmanager
def serving(model: UfmModel, key: Path, cert: Path) -> Iterator[str]:
    """Serve the model; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(size)
            url = urlsplit(self.path)
            base, _slash, path = url.path.lstrip("/").partition("/")
            basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
            expected = {"ufmRest": basic, "ufmRestV3": TOKEN}.get(base)
            if self.headers.get("Authorization") != f"Basic {expected}":
                self._send(401, "{}")
            elif model.answer is not None:
                self._send(200, model.answer)
            elif self.command == "GET" and path == "app/ufm_version":
                self._send(200, '{"ufm_release_version": "6.15.1-4"}')
            elif self.command == "GET" and path == "resources/pkeys":
                self._send(200, model.shown())
            elif self.command == "GET" and path == "resources/ports":
                assert url.query == "active=true"
                self._send(200, json.dumps(model.ports))
            else:
                status = model.change(self.command, path, json.loads(text) if text else None)
                self._send(status, "{}")

        do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 (names of http.server)

        def _send(self, status: int, text: str) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    server = _Server(("localhost", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"https://localhost:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
