# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A session of Redfish with one BMC, by DMTF's client library, which is loaded late."""

from __future__ import annotations

import contextlib
import importlib
import json
import ssl
from typing import Any, Iterator, Mapping
from urllib.parse import quote, urlsplit

from .._core.run import ToolError
from .taken import Taken, read_taken

# A collection that is longer is not a list of parts.
_MOST_PAGES = 32

# 202 is a task that goes on.
_ACCEPTED = (200, 201, 202, 204)
# What the status of a task's monitor says, which may come without a body (DMTF DSP0266).
_MONITORED = {201: "Completed", 202: "Running", 204: "Completed"}

# For a pin alone: the adapter compares the certificate.
_UNVERIFIED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_UNVERIFIED.check_hostname = False
_UNVERIFIED.verify_mode = ssl.CERT_NONE


class BmcError(ToolError):
    """What a BMC refused, lacks or did not answer, in words; `status` is HTTP's, 0 without one."""

    status = 0


class SilentError(BmcError):
    """No answer came: the BMC, or the way to it, is gone."""


class CredentialsError(BmcError):
    """A BMC refused user or password."""


class RefusedError(BmcError):
    """A BMC answered, and refused: nothing was done."""


class LackError(RefusedError):
    """A BMC has no way to do what is asked."""


def load_library() -> tuple[Any, Any]:
    """Return the modules redfish and requests.adapters; ToolError if they are not installed."""
    try:
        # No import statement: the file must load where the library is not installed.
        return importlib.import_module("redfish"), importlib.import_module("requests.adapters")
    except ImportError as error:
        raise ToolError(
            f"the Python of the control machine lacks DMTF's client library ({error}): "
            "pip install redfish"
        ) from error


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error and what led to it, the innermost last."""
    chain = [error]
    while True:
        inner = chain[-1].__cause__ or chain[-1].__context__
        if inner is None or inner in chain:
            return chain
        chain.append(inner)


def _reason(error: BaseException) -> str:
    """Return the innermost reason of a chain of errors, in words."""
    chain = _chain(error)
    text = " ".join(str(one) for one in chain)
    name = "".join(type(one).__name__ for one in chain)
    if "Fingerprint" in text:
        return "its certificate is not the pinned one"
    if isinstance(chain[-1], ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY" in text:
        return f"its certificate is refused: {chain[-1]}"
    if "InvalidCredentials" in name:
        return "it refuses user or password"
    if "imeout" in name or "timed out" in text:
        return "no answer in time"
    if "TooManyRedirects" in name:
        return "it leads to another address"
    return str(chain[-1]) or type(chain[-1]).__name__


def _failure(error: BaseException, path: str = "") -> BmcError:
    """Return what an exception of the library means, after the path that was asked."""
    inner = _chain(error)[-1]
    # A status, or a certificate, is of a BMC that is there.
    is_silent = isinstance(inner, OSError) and not isinstance(inner, ssl.SSLCertVerificationError)
    kind = SilentError if is_silent else BmcError
    if "InvalidCredentials" in type(error).__name__:
        kind = CredentialsError
    return kind(f"{path}: {_reason(error)}" if path else _reason(error))


class Session:
    """What one BMC answers; each method raises BmcError."""

    def __init__(self, client: Any, timeout_s: float) -> None:
        self._client = client
        url = urlsplit(client.get_base_url())
        adapter = client._session.get_adapter("https://")
        # The pool of the login, with the same TLS. What the library does beside that for each
        # question costs more CPU than all the rest, and there are 50 to a machine.
        checked = {"cert_reqs": "CERT_NONE"}
        if client.cafile:
            checked = {"cert_reqs": "CERT_REQUIRED", "ca_certs": client.cafile}
        self._pool = adapter.poolmanager.connection_from_host(
            url.hostname, url.port, "https", checked
        )
        self._timeout_s = timeout_s
        key = client.get_session_key()
        self._headers = {"Accept": "application/json", "OData-Version": "4.0"}
        self._headers.update(
            {"X-Auth-Token": key} if key else {"Authorization": client.get_authorization_key()}
        )
        self.root: dict[str, Any] = dict(client.root)
        # The path of the own account, where its password must be replaced before anything else.
        self.own_account = ""
        features = self.root.get("ProtocolFeaturesSupported") or {}
        self._expands = bool((features.get("ExpandQuery") or {}).get("NoLinks"))

    def get(self, path: Any, query: str = "") -> dict[str, Any]:
        """Return a resource."""
        # What a BMC names must stay on it: "@other.example" would be another host.
        if not isinstance(path, str) or not path.startswith("/redfish/"):
            raise BmcError(f"{str(path)[:80]!r} is not a path of Redfish")
        try:
            answer = self._pool.request(
                "GET", path + query, headers=self._headers, redirect=False, retries=False,
                timeout=self._timeout_s,
            )  # fmt: skip
            is_bare = answer.status in _MONITORED and not answer.data
            has_data = answer.status in _ACCEPTED and not is_bare
            data = json.loads(answer.data) if has_data else {}
        except Exception as error:
            raise _failure(error, path) from error
        if 300 <= answer.status < 400:
            raise BmcError(f"{path}: it leads to another address")
        if answer.status not in _ACCEPTED:
            # What cannot be read is not there for this account.
            raise _refusal(path, answer.status, kind=LackError)
        if not isinstance(data, dict):
            raise BmcError(f"{path}: the answer is not an object")
        if answer.status in _MONITORED:
            data.setdefault("TaskState", _MONITORED[answer.status])
        return data

    def send(
        self,
        method: str,
        path: Any,
        body: Any,
        headers: Mapping[str, str] | None = None,
        secret: str = "",
    ) -> Any:
        """Change something: POST, PATCH or DELETE; return the answer, which was accepted.

        A BMC repeats a value that it refuses: `secret` does not reach the error.
        """
        if not isinstance(path, str) or not path.startswith("/redfish/"):
            raise BmcError(f"{str(path)[:80]!r} is not a path of Redfish")
        try:
            answer = getattr(self._client, method)(path, body=body, headers=headers)
            reported = "" if answer.status in _ACCEPTED else _message(answer, secret)
        except Exception as error:
            raise _failure(error, path) from error
        if answer.status not in _ACCEPTED:
            raise _refusal(path, answer.status, reported)
        return answer

    def push(self, path: Any, file: str, parameters: Mapping[str, Any], timeout_s: float) -> Taken:
        """Send a file to MultipartHttpPushUri, block by block; return the accepted answer."""
        if not isinstance(path, str) or not path.startswith("/"):
            raise BmcError(f"{str(path)[:80]!r} is not a path")
        toolbelt = importlib.import_module("requests_toolbelt")
        try:
            with open(file, "rb") as handle:
                name = file.rsplit("/", 1)[-1]
                encoder = toolbelt.MultipartEncoder([
                    ("UpdateParameters", (None, json.dumps(parameters), "application/json")),
                    ("UpdateFile", (name, handle, "application/octet-stream")),
                ])  # fmt: skip
                answer = self._client._session.post(
                    self._client.get_base_url() + path,
                    data=encoder,
                    headers={**self._headers, "Content-Type": encoder.content_type},
                    verify=self._client.cafile or False,
                    allow_redirects=False,
                    timeout=(self._timeout_s, timeout_s),
                )
        except Exception as error:
            raise _failure(error, path) from error
        if answer.status_code not in _ACCEPTED:
            raise _refusal(path, answer.status_code)
        return read_taken(answer.status_code, answer.content, answer.headers.get("Location"))

    def linked(self, resource: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Return the resource that another one links to."""
        return self.get(link(resource, name))

    def members(self, path: str, most: int = _MOST_PAGES) -> list[dict[str, Any]]:
        """Return the members of a collection: by one question where the BMC can, or each."""
        found: list[dict[str, Any]] = []
        page, query = path, "?$expand=.($levels=1)" if self._expands else ""
        for _number in range(most):
            answer = self.get(page, query)
            members = answer.get("Members")
            if not isinstance(members, list):
                raise BmcError(f"{page}: the answer has no members")
            for one in members:
                whole = isinstance(one, dict) and set(one) - {"@odata.id"}
                found.append(one if whole else self.get((one or {}).get("@odata.id")))
            if not answer.get("Members@odata.nextLink"):
                return found
            page, query = answer["Members@odata.nextLink"], ""
        raise BmcError(f"{path}: more than {most} pages")

    def firmware(self) -> dict[str, str]:
        """Return the version of each component, empty where the BMC names none."""
        inventory = link(self.linked(self.root, "UpdateService"), "FirmwareInventory")
        return {
            str(one.get("Id")): str(one.get("Version") or "") for one in self.members(inventory)
        }

    def system(self, name: str) -> dict[str, Any]:
        """Return a system by its id, or the only one."""
        path = link(self.root, "Systems")
        if name:
            return self.get(f"{path.rstrip('/')}/{quote(name, safe='')}")
        members = self.get(path).get("Members") or []
        if len(members) != 1:
            raise BmcError(
                f"{path}: {len(members)} systems; write bmc.system into the node's profile"
            )
        return self.get(members[0].get("@odata.id"))


def _refusal(
    path: str, status: int, message: str = "", kind: type[BmcError] = RefusedError
) -> BmcError:
    """Return the error of a status: a lost session (401) or a server's error refuse nothing."""
    is_refusal = 400 <= status < 500 and status != 401
    error = (kind if is_refusal else BmcError)(f"{path}: HTTP {status}{message}")
    error.status = status
    return error


def _message(answer: Any, secret: str) -> str:
    """Return what a BMC says about a refusal, one line."""
    try:
        reported = answer.dict["error"]
        first: Mapping[str, Any] = next(iter(reported.get("@Message.ExtendedInfo") or ()), {})
        text = str(first.get("Message") or reported.get("message") or "")
        return f": {text.replace(secret, '***') if secret else text}"[:202].rstrip(": ")
    except (AttributeError, KeyError, TypeError, ValueError):
        return ""


def link(resource: Mapping[str, Any], name: str) -> str:
    """Return where a resource links to; BmcError if it has no such link."""
    found = resource.get(name)
    path = found.get("@odata.id") if isinstance(found, Mapping) else None
    if not isinstance(path, str):
        raise LackError(f"{resource.get('@odata.id', 'the root')} has no {name}")
    return path


def _login(client: Any, kind: str, renews: bool) -> str:
    """Log in; return the own account if its password must be replaced first, and may be."""
    try:
        client.login(auth=kind)
    except Exception as error:
        if type(error).__name__ != "RedfishPasswordChangeRequiredError":
            raise
        if not renews:
            raise BmcError(
                "it wants another password first; write that as password, and this one as "
                "former_password, for configure_bmc"
            ) from error
        return urlsplit(str(error.args[1])).path
    return ""


@contextlib.contextmanager
def session(bmc: Mapping[str, Any], timeout_s: float, renews: bool = False) -> Iterator[Session]:
    """Yield a session, which is deleted at the end; BmcError if there is none.

    With `renews` there is one, too, if the BMC asks for another password before all else.

    `bmc` has address, port, user, password and certificate: `sha256:` and the fingerprint of the
    only certificate that is accepted, or the path of the authorities' (PEM).
    """
    redfish, adapters = load_library()
    pin = (
        bmc["certificate"].replace(":", "")[6:] if bmc["certificate"].startswith("sha256:") else ""
    )
    host = f"[{bmc['address']}]" if ":" in bmc["address"] else bmc["address"]

    class _Adapter(adapters.HTTPAdapter):  # type: ignore[name-defined]
        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            """Make the pool, which compares each certificate with the pin or asks the CA."""
            if pin:
                # A separate context would read the system's authorities for each BMC, in vain.
                kwargs.update(assert_fingerprint=pin, ssl_context=_UNVERIFIED)
            else:
                # Python 3.13 refuses a CA without key usage too, which `openssl req -x509` makes.
                tls = importlib.import_module("urllib3.util.ssl_").create_urllib3_context()
                tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
                kwargs.update(ssl_context=tls)
            super().init_poolmanager(*args, **kwargs)

    client = None
    try:
        client = redfish.redfish_client(
            base_url=f"https://{host}:{bmc['port']}",
            username=bmc["user"],
            password=bmc["password"],
            # With a pin the library's own check is off, and the adapter's is on.
            cafile=None if pin else bmc["certificate"],
            timeout=timeout_s,
            max_retry=0,
            check_connectivity=False,
            https_adapter=_Adapter(),
        )
        # No proxy and no account of the environment, and no other host by a redirection: the
        # token would go there.
        client._session.trust_env, client._session.max_redirects = False, 0
        client.get_root_object()
        # Without sessions (sushy-tools has none) each question carries the account, over TLS.
        has_sessions = "SessionService" in client.root or client.root.get("Links")
        account = _login(client, "session" if has_sessions else "basic", renews)
        opened = Session(client, timeout_s)
        opened.own_account = account
    except Exception as error:
        if client is not None:
            # A login that was only partly refused has a session.
            with contextlib.suppress(Exception):
                client.logout()
            client._session.close()
        raise _failure(error) from error
    try:
        yield opened
    finally:
        with contextlib.suppress(Exception):
            client.logout()
        client._session.close()
