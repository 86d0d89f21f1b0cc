# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Brings accounts and settings of all BMCs to what is declared: the module bmc_settings."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Dict, Iterator, Mapping, Optional, Tuple

from .._core.question import Question
from .._core.record import Record, stamped, utc_text
from .access import ask_bmcs, by_node, change_bmcs, loaded, refuse_factory
from .accounts import RotationError, bring_accounts, own_session
from .ipmi import Ipmi
from .machine import require_declared
from .redfish import BmcError, LackError, RefusedError, Session, session
from .settings import (
    Bring,
    Found,
    bring_bios,
    bring_boot_order,
    bring_log_server,
    bring_time_servers,
)
from .thresholds import ACCESS, ACCOUNTS, BIOS, BOOT_ORDER, LOG_SERVER, TIME_SERVERS

# By the key of a BMC's description: what is asked, and what brings it about.
_SETTINGS: Mapping[str, tuple[Question, Bring]] = {
    "time_servers": (TIME_SERVERS, bring_time_servers),
    "log_server": (LOG_SERVER, bring_log_server),
    "bios": (BIOS, bring_bios),
    "boot_order": (BOOT_ORDER, bring_boot_order),
}
# By check what was found, or why there is nothing.
_Answers = Dict[str, Tuple[Optional[Found], str]]


def bring_about(params: Mapping[str, Any], check_mode: bool) -> tuple[list[Record], dict[str, Any]]:
    """Return the records, and what the module returns beside. ToolError, OSError of the locks."""
    bmcs = by_node(params["bmcs"])
    loaded(bmcs)

    def ask(_name: str, bmc: Mapping[str, Any]) -> _Answers:
        return _bring(bmc, params["timeout_s"], not check_mode)

    done, lacking = (ask_bmcs if check_mode else change_bmcs)(bmcs, ask, params)
    records: list[Record] = []
    pending: dict[str, list[str]] = {}
    for name in bmcs:
        subject = f"node:{name}"
        if name in lacking:
            records.append(ACCESS.judge(subject, None, text=lacking[name]))
            continue
        for question in (ACCOUNTS, *(one for one, _bring_it in _SETTINGS.values())):
            if question.check in done[name]:
                found, why = done[name][question.check]
                records.append(_judge(question, subject, found, why))
                if found and found.pending and not found.wrong:
                    pending.setdefault(name, []).append(question.check)
    only_pending = all(
        one.status == "pass" or one.check in pending.get(one.subject[5:], ()) for one in records
    )
    founds = [found for answers in done.values() for found, _why in answers.values() if found]
    at: list[Record] = stamped(records, utc_text())
    return at, {
        "changed": any(found.changed or bool(check_mode and found.wrong) for found in founds),
        "pending": pending,
        "only_pending": bool(pending) and only_pending,
    }


def _judge(question: Question, subject: str, found: Found | None, why: str) -> Record:
    if found is None:
        return question.judge(subject, None, text=why)
    return question.judge(subject, len(found.wrong) + len(found.pending), text=found.text)


def _bring(bmc: Mapping[str, Any], timeout_s: float, writes: bool) -> _Answers:
    refuse_factory(bmc)
    wanted = [name for name in _SETTINGS if bmc[name]]
    if bmc["protocol"] == "ipmi":
        return _ipmi(bmc, timeout_s, wanted)

    def login(user: str, password: str, renews: bool = False) -> ContextManager[Session]:
        return session({**bmc, "user": user, "password": password}, timeout_s, renews)

    def declared(user: str, password: str, renews: bool = False) -> ContextManager[Session]:
        return _with_declared(login(user, password, renews), bmc)

    answers: _Answers = {}

    def part(question: Question, bring: Callable[[], Found]) -> None:
        try:
            answers[question.check] = bring(), ""
        except LackError as error:
            answers[question.check] = None, str(error)
        except RefusedError as error:
            answers[question.check] = Found((str(error),)), ""
        except BmcError as error:
            answers[question.check] = None, str(error)

    try:
        with own_session(declared, bmc, writes) as (opened, own):
            part(ACCOUNTS, lambda: bring_accounts(opened, login, bmc["accounts"], writes, own))
            for name in wanted:
                question, bring = _SETTINGS[name]
                part(question, _with_system(opened, bmc, bring, name, writes))
    except RotationError as error:
        answers[ACCOUNTS.check] = Found((str(error),)), ""
    return answers


@contextlib.contextmanager
def _with_declared(opening: ContextManager[Session], bmc: Mapping[str, Any]) -> Iterator[Session]:
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(opening)
        # A BMC that wants another password first shows the own account alone.
        if bmc["serial"] and not opened.own_account:
            require_declared(bmc, opened.system(bmc["system"]).get("SerialNumber"))
        yield opened


def _with_system(
    opened: Session, bmc: Mapping[str, Any], bring: Bring, name: str, writes: bool
) -> Callable[[], Found]:
    return lambda: bring(opened, opened.system(bmc["system"]), bmc[name], writes)


def _ipmi(bmc: Mapping[str, Any], timeout_s: float, wanted: list[str]) -> _Answers:
    """Log in, which proves the account; IPMI has nothing else that is safe or standard."""
    Ipmi(bmc, timeout_s).power()
    answers: _Answers = {
        _SETTINGS[name][0].check: (None, "IPMI has no command for it") for name in wanted
    }
    answers[ACCOUNTS.check] = Found(), ""
    if bmc["accounts"]:
        answers[ACCOUNTS.check] = None, "ipmitool takes passwords of accounts as arguments alone"
    return answers
