# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks Ceph's monitors whether they take connections, before something waits for them."""

from __future__ import annotations

import os
import socket
import time
from functools import partial
from typing import Iterable

from .._core.child import DONE, Call, ask_all


def _refusal(address: str, limit_s: float) -> str:
    """Return why the monitor takes no connection; empty if it does."""
    host, _colon, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=limit_s):
            return ""
    except OSError as error:
        # A timeout has no number.
        return os.strerror(error.errno) if error.errno else "no answer"


def unanswered(addresses: Iterable[str], limit_s: float) -> dict[str, str]:
    """Return, by address, why monitors take no connection. It takes limit_s and a moment at most.

    Each is asked by its own process, since a name may be looked up for longer.
    """
    calls = [Call(one, partial(_refusal, one, limit_s), limit_s + 1) for one in addresses]
    answers = ask_all(calls, time.monotonic() + limit_s + 1)
    reported = {
        name: one.value if one.how == DONE else one.message for name, one in answers.items()
    }
    return {name: why for name, why in reported.items() if why}


def line_of(refusals: dict[str, str], asked: int) -> str:
    """Return what to report of monitors that take no connection."""
    names = ", ".join(f"{name} ({why})" for name, why in sorted(refusals.items()))
    many = f"{len(refusals)} of {asked} monitors take" if asked > 1 else "the one monitor takes"
    return (
        f"{many} no connection: {names}; see that they run and that route and firewall let these "
        "ports pass, and compare the addresses with `ceph mon dump`"
    )
