# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asking UFM, sending what differs, and asking again until it is so."""

from __future__ import annotations

import os
from typing import Any, Mapping

from .._core.files import write_atomic
from .._core.run import ToolError
from .._core.wait import attempts
from . import partitions
from .rest import Ufm

# UFM writes its subnet manager's configuration first, which takes seconds.
_PAUSE_S = 2.0


def ufm_options(timeout_s: int) -> dict[str, Any]:
    """Return the options of a module that asks UFM."""
    return {
        "url": {"type": "str", "required": True},
        "username": {"type": "str", "default": ""},
        "password": {"type": "str", "default": "", "no_log": True},
        "token": {"type": "str", "default": "", "no_log": True},
        "ca_certificate": {"type": "str", "default": ""},
        "timeout_s": {"type": "int", "default": timeout_s},
    }


def bring_about(
    params: Mapping[str, Any], folder: str, check: bool, sent: list[str]
) -> dict[str, Any]:
    """Return the module's result; ToolError, with what was sent by then in `sent`.

    folder is a private one of the module, for the certificate.
    """
    wanted, absent = partitions.declared(params["partitions"])
    ufm = connect(params, folder)
    release = release_of(ufm)
    before = partitions.present(ufm.ask(partitions.LIST))
    todo = partitions.requests(before, wanted, absent)
    disturbing = [one.says for one in todo if one.disturbs]
    if disturbing and not params["removal_allowed"]:
        raise ToolError(
            "removal_allowed: false, and members would lose a partition: " + "; ".join(disturbing)
        )
    if check:
        sent += [one.says for one in todo]
    else:
        for one in todo:
            ufm.change(one.method, one.path, one.body)
            sent.append(one.says)
        if todo:
            _settle(ufm, wanted, absent, params["wait_s"])
    pkeys = {*wanted, *absent}
    return {
        "changed": bool(todo),
        "requests": sent,
        "release": release,
        "diff": {
            "before": partitions.diff_text(before, pkeys),
            "after": partitions.diff_text(wanted, pkeys),
        },
    }


def connect(params: Mapping[str, Any], folder: str) -> Ufm:
    """Return UFM; folder is a private one of the module, for the certificate."""
    authority = None
    if params["ca_certificate"]:
        authority = os.path.join(folder, "authority.pem")
        write_atomic(authority, params["ca_certificate"])
    return Ufm(params, authority)


def release_of(ufm: Ufm) -> str:
    """Return UFM's release; ToolError where something else answers."""
    answer = ufm.ask("app/ufm_version")
    if not isinstance(answer, dict) or "ufm_release_version" not in answer:
        raise ToolError("app/ufm_version: UFM's answer is not as documented")
    return str(answer["ufm_release_version"])


def _settle(
    ufm: Ufm, wanted: Mapping[int, partitions.Partition], absent: set[int], wait_s: float
) -> None:
    for _left in attempts(wait_s, _PAUSE_S):
        there = partitions.present(ufm.ask(partitions.LIST))
        odd = partitions.differences(there, wanted, absent)
        if not odd:
            return
    raise ToolError(f"UFM took the requests, and {wait_s} s later it has: {'; '.join(odd)}")
