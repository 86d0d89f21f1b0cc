# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Requests to the REST interface of UFM Enterprise.

A user and a password belong to the paths below /ufmRest, an access token to those below
/ufmRestV3; both are sent as Basic (UFM Enterprise REST API guide, "Authentication").
"""

from __future__ import annotations

import json
from typing import Any, Mapping
from urllib.error import HTTPError, URLError

from ansible.module_utils.urls import Request

from .._core.run import ToolError

# A word on what usually is behind an answer.
_REMEDIES = {
    401: "write the user and the password, or the access token, that UFM knows",
    403: "give the account the role Fabric_Admin in UFM",
}
_UNTRUSTED = "certificate verify failed"
_TRUST = (
    "; give ca_certificate the authority of UFM's certificate. Python 3.13 and later want a key "
    "usage in it (openssl req -x509 -addext keyUsage=critical,keyCertSign,cRLSign) and an "
    "authority key identifier in what it signs"
)
_MOST_WORDS = 300


class Ufm:
    """One UFM. Errors are ToolError with the address, never with the account."""

    def __init__(self, params: Mapping[str, Any], authority: str | None) -> None:
        token = params["token"]
        if not params["url"].startswith("https://"):
            raise ToolError(f"url: {params['url']}; write https://, the account goes with it")
        if bool(token) == bool(params["username"] and params["password"]):
            raise ToolError("token: no account, or two; write username and password, or token")
        self._base = params["url"].rstrip("/") + ("/ufmRestV3" if token else "/ufmRest")
        self._request = Request(
            headers={
                "Content-Type": "application/json",
                "Accept": "application/json",
                **({"Authorization": f"Basic {token}"} if token else {}),
            },
            url_username=None if token else params["username"],
            url_password=None if token else params["password"],
            force_basic_auth=not token,
            timeout=params["timeout_s"],
            ca_path=authority,
            # A redirect would carry the account to another address.
            follow_redirects="none",
            use_proxy=False,
        )

    def ask(self, path: str) -> Any:
        """Return the answer to GET as data."""
        text = self._send("GET", path, None)
        try:
            return json.loads(text)
        except ValueError as error:
            # Without a session UFM may answer with its login page, and 200.
            raise ToolError(
                f"{self._base}/{path}: the answer is not JSON: {text[:60]!r}"
            ) from error

    def change(self, method: str, path: str, body: Any = None) -> None:
        """Send POST, PUT or DELETE."""
        self._send(method, path, body)

    def _send(self, method: str, path: str, body: Any) -> str:
        url = f"{self._base}/{path}"
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = self._request.open(method, url, data=data)
            return str(answer.read().decode("utf-8", "replace"))
        except HTTPError as error:
            words = " ".join(error.read().decode("utf-8", "replace").split())[:_MOST_WORDS]
            remedy = _REMEDIES.get(error.code, words)
            raise ToolError(f"{method} {url}: {error.code} {error.reason}; {remedy}") from error
        except URLError as error:
            remedy = _TRUST if _UNTRUSTED in str(error.reason) else ""
            raise ToolError(f"{method} {url}: {error.reason}{remedy}") from error
        except OSError as error:
            raise ToolError(f"{method} {url}: {error}") from error
