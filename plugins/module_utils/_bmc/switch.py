# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Brings the power of one machine to what is asked, and reads it back."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, TypeVar

from .machine import AC_CYCLE, OFF, ON, SOFT_OFF, Machine, Opener
from .redfish import BmcError, RefusedError, SilentError

CYCLE = "cycle"
ACTIONS = (ON, OFF, CYCLE, AC_CYCLE)
# The end of a cycle that never began: it is On, as after one.
NEVER_OFF = "never Off"
# Looks without an answer, one after the other, before a BMC counts as gone: one gets lost.
_GONE = 2
_T = TypeVar("_T")


@dataclass(frozen=True)
class Limits:
    """Seconds: for a shutdown by the operating system, for each change, and between two looks."""

    soft_s: float = 120.0
    change_s: float = 300.0
    poll_s: float = 2.0


@dataclass(frozen=True)
class Switched:
    """What the machine is now, and what was done.

    On, Off, NEVER_OFF after a cycle that was none, or None where that is not known.
    """

    power: str | None
    text: str
    acted: bool = True


class Line:
    """A session with a BMC that is opened again when it is lost, as by the BMC's own reset."""

    def __init__(self, opener: Opener) -> None:
        self._opener, self._stack = opener, contextlib.ExitStack()
        self._machine: Machine | None = None

    def ask(self, question: Callable[[Machine], _T]) -> _T:
        """Return what the machine answers; after a BmcError the next question is a new session.

        A BMC that starts again lacks much of what a session begins with. That does not refuse the
        question.
        """
        if self._machine is None:
            try:
                self._machine = self._stack.enter_context(self._opener())
            except RefusedError as error:
                raise BmcError(str(error)) from error
        try:
            return question(self._machine)
        except RefusedError:
            raise
        except BmcError:
            self.close()
            raise

    def close(self) -> None:
        """End the session."""
        self._machine = None
        self._stack.close()


def switch(
    opener: Opener,
    action: str,
    limits: Limits,
    sleep: Callable[[float], Any] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Switched:
    """Do one of ACTIONS; BmcError where the BMC was not reached at all, and nothing was done."""
    line = Line(opener)
    try:
        return _Switch(line, limits, sleep, now).do(action)
    finally:
        line.close()


class _Switch:
    """The steps for one machine, and what was read last."""

    def __init__(
        self, line: Line, limits: Limits, sleep: Callable[[float], Any], now: Callable[[], float]
    ) -> None:
        self._line, self._limits, self._sleep, self._now = line, limits, sleep, now
        self._last: str | None = None
        self._error = ""
        # How many looks in a row had no answer.
        self._silent = 0

    def do(self, action: str) -> Switched:
        """Do one of ACTIONS."""
        before = self._line.ask(lambda machine: machine.power())
        if action == AC_CYCLE:
            return self._ac_cycle()
        if action in (ON, OFF) and before == action.capitalize():
            return Switched(before, f"was {before} already", acted=False)
        if action != ON and before != "Off":
            ended = self._off()
            if action == OFF:
                return ended
            if ended.power != "Off":
                power = ended.power and NEVER_OFF
                return replace(ended, power=power, text=f"did not go off: {ended.text}")
        return self._bring(ON, "On", "cycled" if action == CYCLE else "switched on")

    def _off(self) -> Switched:
        """Let the operating system end; after that, or where it cannot, cut the power."""
        refusal = self._send(SOFT_OFF)
        if not refusal and self._reached("Off", self._limits.soft_s):
            return Switched("Off", "shut down by its operating system")
        return self._bring(OFF, "Off", "switched off")

    def _bring(self, kind: str, state: str, text: str) -> Switched:
        refusal = self._send(kind)
        # A refusal since the machine is there already does not fail.
        limit_s = 0.0 if refusal else self._limits.change_s
        if self._reached(state, limit_s):
            return Switched(state, text)
        if refusal:
            return Switched(None, refusal)
        return Switched(self._last, self._error or f"is {self._last} after {limit_s:g} s")

    def _send(self, kind: str) -> str:
        """Send a command; return why it was refused. After a lost answer the state decides."""
        try:
            self._line.ask(lambda machine: machine.reset(kind))
        except RefusedError as error:
            return str(error)
        except BmcError as error:
            self._error = str(error)
        return ""

    def _look(self) -> str | None:
        silent = 0
        try:
            self._last, self._error = self._line.ask(lambda machine: machine.power()), ""
        except BmcError as error:
            self._last, self._error = None, str(error)
            silent = self._silent + 1 if isinstance(error, SilentError) else 0
        self._silent = silent
        return self._last

    def _reached(self, state: str, limit_s: float) -> bool:
        end = self._now() + limit_s
        while self._look() != state:
            if self._now() >= end:
                return False
            self._sleep(self._limits.poll_s)
        return True

    def _ac_cycle(self) -> Switched:
        """Cut AC power: the BMC goes, too, which is the only proof that it happened."""
        try:
            self._line.ask(lambda machine: machine.reset(AC_CYCLE))
        except BmcError as error:
            # The power may go before the answer. A machine without power gives no status.
            if not isinstance(error, SilentError):
                return Switched(None, str(error), acted=not isinstance(error, RefusedError))
        end = self._now() + self._limits.change_s
        while self._silent < _GONE:
            if self._now() >= end:
                return Switched(None, "the BMC was asked for an AC cycle and never went away")
            self._sleep(self._limits.poll_s)
            self._look()
        if self._reached("On", self._limits.change_s):
            return Switched("On", "AC power cycled")
        if self._last is None:
            return Switched(None, f"the BMC does not answer after an AC cycle: {self._error}")
        # Its restore policy leaves it off.
        return self._bring(ON, "On", "AC power cycled, then switched on")
