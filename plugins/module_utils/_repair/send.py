# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Sends tickets by webhook, mail and command, and notes what was sent. The I/O of tickets.py.

A ticket is noted after the receiver has taken it. A run that is killed in between sends it again
with the same key and the same text.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import smtplib
import socket
import ssl
import time
import urllib.error
import urllib.request
from email.message import EmailMessage
from typing import Any, Callable, Iterable, Mapping, Sequence

from .._core.child import DONE, limited
from .._core.files import (
    append_lines,
    read_text,
    temporary_folder,
    text_if_there,
    write_atomic,
)
from .._core.redact import Redactor
from .._core.run import run
from .incident import Event, fold
from .tickets import ticket_data, ticket_text, tickets_of, unsent

_SENT = "tickets.jsonl"
_VERSION = 1
_BEGUN, _TAKEN = "begun", "sent"
# What became of a ticket, the worst last: the receiver has it, never takes it, or not yet.
_HAS, _REFUSES, _WAITS = range(3)
# A receiver that has the key already, and what may be taken later (RFC 9110, RFC 6585).
_CONFLICT = 409
_LATER = (408, 429)
# Replies of a mail server from here on are permanent (RFC 5321).
_SMTP_FOR_GOOD = 500
_MOST_ANSWER = 4096
# After a limit within a protocol, a receiver that gives one byte at a time is still there.
_GRACE_S = 2.0


class _RefusedError(ValueError):
    """This ticket is refused, however often it is sent; another one may be taken."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A signed text goes to the declared address and to no other."""

    def redirect_request(self, *_words: Any, **_more: Any) -> None:
        """Follow nothing; the answer is an error then."""


def _secret(path: str) -> str:
    """Return a secret; ValueError for a file that others may read."""
    if not path:
        return ""
    if os.stat(path).st_mode & 0o077:
        raise ValueError(f"{path}: others may read it; chmod 600 it")
    return read_text(path).strip()


def _trust(hook: Mapping[str, Any]) -> ssl.SSLContext:
    """Return what checks a receiver's chain, name and dates.

    Python 3.13 refuses a CA without key usage too, which a plain `openssl req -x509` makes.
    """
    context = ssl.create_default_context(cafile=hook["ca_file"] or None)
    if hook["ca_file"]:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _post(hook: Mapping[str, Any], data: Mapping[str, Any], secret: str) -> str:
    body = json.dumps(data, sort_keys=True).encode()
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    request = urllib.request.Request(
        hook["url"],
        body,
        {
            "Content-Type": "application/json",
            "Idempotency-Key": data["key"],
            "X-Baremetal-Dgx-Signature": f"sha256={signature}",
        },
        method="POST",
    )
    tls = _trust(hook)
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=tls))
    try:
        with opener.open(request, timeout=hook["timeout_s"]) as answer:
            answer.read(_MOST_ANSWER)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == _CONFLICT:
                return ""
            why = f"it answers with {error.code}"
            if 400 <= error.code < 500 and error.code not in _LATER:
                raise _RefusedError(why) from None
            raise ValueError(why) from None
    return ""


def _mail(hook: Mapping[str, Any], data: Mapping[str, Any], secret: str) -> str:
    message = EmailMessage()
    message["From"], message["To"] = hook["sender"], ", ".join(hook["recipients"])
    message["Subject"] = f"{data['cluster']}: {data['node']}: {data['check']}: {data['state']}"
    # One conversation for each incident, and one message for each key.
    message["Message-ID"] = _message_id(data["key"], hook["sender"])
    message["References"] = _message_id(f"{data['ticket']}/opened", hook["sender"])
    message.set_content(ticket_text(data))
    tls = _trust(hook)
    # Without a name smtplib asks a name server, which may take longer than all of this.
    more = {"local_hostname": socket.gethostname(), "timeout": hook["timeout_s"]}
    if hook["tls"] == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(
            hook["server"], hook["port"] or 465, context=tls, **more
        )
    else:
        server = smtplib.SMTP(hook["server"], hook["port"] or 25, **more)
    with server:
        if hook["tls"] == "starttls":
            server.starttls(context=tls)
        if hook["user"]:
            server.login(hook["user"], secret)
        # Raises if all are refused. If some are, another mail would come to the others again.
        refused = server.send_message(message)
    return f"it refuses {', '.join(refused)}; the others have it" if refused else ""


def _message_id(key: str, sender: str) -> str:
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    return f"<{digest}@{sender.rpartition('@')[2] or 'localhost'}>"


def _call(hook: Mapping[str, Any], data: Mapping[str, Any], _no_secret: str) -> str:
    with temporary_folder("baremetal-dgx-ticket.") as folder:
        path = os.path.join(folder, "ticket.json")
        write_atomic(path, json.dumps(data, sort_keys=True), 0o600, sync=False)
        env = {"TICKET_KEY": data["key"], "TICKET_FILE": path}
        result = run(list(hook["command"]), timeout_s=hook["timeout_s"], env=env)
    if not result.ok:
        raise ValueError(result.describe(2))
    return ""


# Each returns what is wrong with a ticket that was taken, and raises if it was not.
_KINDS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any], str], str]] = {
    "webhook": _post,
    "mail": _mail,
    "command": _call,
}


def send(hook: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[str, int]:
    """Send a ticket; returns what is wrong, empty if nothing is, and what became of the ticket."""
    try:
        secret = _secret(hook["secret_file"])
    except (OSError, ValueError) as error:
        return f"secret_file: {error}", _WAITS

    def work() -> tuple[str, int]:
        try:
            return _KINDS[hook["kind"]](hook, data, secret), _HAS
        except (OSError, ValueError, smtplib.SMTPException) as error:
            why = str(getattr(error, "reason", "") or error) or type(error).__name__
            return why, _REFUSES if _is_for_good(error) else _WAITS

    answer = limited(work, hook["timeout_s"] + _GRACE_S)
    if answer.how != DONE:
        return f"no answer within {hook['timeout_s']:g} s", _WAITS
    why, became = answer.value
    return Redactor([secret]).text(why), became


def _is_for_good(error: Exception) -> bool:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(code >= _SMTP_FOR_GOOD for code, _text in error.recipients.values())
    if isinstance(error, (smtplib.SMTPDataError, smtplib.SMTPSenderRefused)):
        return error.smtp_code >= _SMTP_FOR_GOOD
    return isinstance(error, _RefusedError)


class Tickets:
    """What was sent to which hook: lines that are only ever added."""

    def __init__(self, folder: str, now: float) -> None:
        self.path = os.path.join(folder, _SENT)
        self.begun: dict[str, float] = {}
        self.sent: dict[str, set[str]] = {}
        for line in (text_if_there(self.path) or "").splitlines():
            try:
                data = json.loads(line)
                hook, key, at = str(data["hook"]), str(data["key"]), float(data["at"])
            except (ValueError, KeyError, TypeError):
                # What a killed run has cut: it is sent again.
                continue
            if data.get("what") == _BEGUN:
                # By a clock that was ahead, all that ends until then would count as before it.
                if at <= now:
                    self.begun.setdefault(hook, at)
            else:
                self.sent.setdefault(hook, set()).add(key)

    def note(self, hook: str, what: str, key: str, at: float) -> None:
        """Add a line, which is on disk on return. Raises OSError."""
        line = {"version": _VERSION, "hook": hook, "what": what, "key": key, "at": at}
        append_lines(self.path, [json.dumps(line, sort_keys=True)])
        if what == _TAKEN:
            self.sent.setdefault(hook, set()).add(key)


def send_all(
    folder: str,
    hooks: Sequence[Mapping[str, Any]],
    events: Iterable[Event],
    cluster: str,
    redactor: Redactor,
    write: bool = True,
) -> dict[str, dict[str, Any]]:
    """Send what each hook has not received, in its order; returns by hook what became of it.

    A hook that does not take a ticket gets no later one in this run, unless it refuses that ticket
    for good. Raises OSError of the folder.
    """
    events = list(events)
    tickets, after = tickets_of(events), fold(events)
    known = Tickets(folder, time.time())
    reported: dict[str, dict[str, Any]] = {}
    for hook in hooks:
        name, now = hook["name"], float(int(time.time()))
        if name not in known.begun and write:
            known.note(name, _BEGUN, "", now)
        waiting = unsent(tickets, known.sent.get(name, ()), known.begun.get(name, now), after)
        reported[name] = {"sent": [], "waiting": [one.key for one in waiting], "why": ""}
        # One that refuses all of them may be slow, too, and costs no more than one that hangs.
        until, worst = time.monotonic() + hook["timeout_s"], -1
        for ticket in waiting if write else ():
            why, became = send(hook, redactor.data(ticket_data(ticket, cluster)))
            if why and became > worst:
                worst, why = became, why if became == _WAITS else f"{ticket.key}: {why}"
                reported[name]["why"] = redactor.text(why)
            if became == _HAS:
                known.note(name, _TAKEN, ticket.key, now)
                reported[name]["sent"].append(ticket.key)
                reported[name]["waiting"].remove(ticket.key)
            elif became == _WAITS or time.monotonic() >= until:
                break
    return reported
