# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The node's own place in Slurm, as its health program sees and changes it.

It drains its own node with its own reason, within the share of the fleet that the brake
allows, and takes back nothing but that. A node that others have taken out keeps its reason.
Draining ends no job.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from dataclasses import dataclass
from typing import Mapping

from .._core.files import json_if_readable, remove, write_atomic
from .._core.lock import BusyError, host_lock
from .._core.run import CommandRunner
from .._slurm.gate.reason import NODE_HEALTH, as_written
from .._slurm.nodes import RESUMED, UNSETTLED, Node, Wanted, is_owned, parse_nodes, plan_nodes
from .brake import (
    Outcome,
    PendingError,
    Read,
    Wait,
    Write,
    claims_now,
    drain_steps,
    has_token,
    without_token,
)
from .settings import Settings
from .state import lock_name

_SENT = "brake-sent.json"
_LEAST_S = 0.2
# slurmctld has looked at the update and did nothing; after any other error it may still do it.
_REFUSED = re.compile(r"(?i)invalid|denied|must specify|not permitted|not supported")


class SlurmError(Exception):
    """Slurm cannot be asked, or refuses."""


@dataclass(frozen=True)
class Change:
    """Whether something was changed, and that in words."""

    changed: bool
    message: str
    reason: str = ""


@dataclass(frozen=True)
class OwnNode:
    """This node in Slurm, by the command `scontrol`."""

    run: CommandRunner
    node: str
    command: str = "scontrol"
    share: float = 0.1
    # The lock that one run of this node holds, and the file that holds an unanswered update.
    lock: str = ""
    sent: str = ""

    def read(self, timeout_s: float) -> Node:
        """Return the node as Slurm sees it. Raises SlurmError."""
        result = self.run([self.command, "--oneliner", "show", "node", self.node], timeout_s)
        if not result.ok:
            raise SlurmError(result.describe(1))
        found = parse_nodes(result.out).get(self.node)
        if found is None:
            raise SlurmError(f"Slurm does not know a node {self.node}")
        return found

    def drain(self, text: str, timeout_s: float, until: float | None = None) -> Outcome:
        """Take the node out, unless it is out or the share of the fleet is out already.

        Every command gets `timeout_s`, all of them the time until `until` (of time.monotonic).
        Raises SlurmError.
        """
        until = time.monotonic() + 6 * timeout_s if until is None else until
        wait_s = max(0.0, until - time.monotonic())
        try:
            with host_lock(self.lock, wait_s) if self.lock else contextlib.nullcontext():
                return self._drain(text, timeout_s, until)
        except BusyError as error:
            raise SlurmError(f"process {error.holder} of this node is asking Slurm") from error
        except OSError as error:
            raise SlurmError(f"no lock can be had: {error}") from error

    def _drain(self, text: str, timeout_s: float, until: float) -> Outcome:
        steps = drain_steps(self.node, text, self.share, time.time, self._unanswered())
        seen: Mapping[str, Node] | None = None
        try:
            while True:
                # The first request of a generator is asked for with None.
                request = steps.send(seen)  # type: ignore[arg-type]
                seen = {}
                left = until - time.monotonic()
                # An update that is given up may still arrive, and holds the node up for minutes.
                if left <= (_LEAST_S if isinstance(request, Write) else 0):
                    raise SlurmError("no time is left to ask Slurm")
                if isinstance(request, Read):
                    seen = self._read_all(min(timeout_s, left))
                elif isinstance(request, Wait):
                    time.sleep(min(request.seconds, left))
                else:
                    self._update(request.words, min(timeout_s, left))
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        except KeyError:
            raise SlurmError(f"Slurm does not know a node {self.node}") from None
        except PendingError as error:
            raise SlurmError(str(error)) from error

    def clear(self, node: Node, timeout_s: float) -> bool:
        """Take back what the brake has left in the node's comment. Raises SlurmError."""
        if not has_token(node):
            return False
        try:
            with host_lock(self.lock, 0.0) if self.lock else contextlib.nullcontext():
                now = self.read(timeout_s)
                if has_token(now) and not claims_now(now, time.time()):
                    self._update(without_token(now), timeout_s)
        except (BusyError, OSError) as error:
            raise SlurmError(f"no lock can be had: {error}") from error
        return True

    def resume(self, reason: str, timeout_s: float) -> Change:
        """Take back the drain of exactly this reason, and no other. Raises SlurmError."""
        node = self.read(timeout_s)
        mine = node.has("DRAIN") and as_written(node.reason) == reason
        # With ReturnToService=1 Slurm leaves it DOWN after a long boot. RESUME cancels a reboot.
        others = node.has("NOT_RESPONDING", "FAIL", *UNSETTLED)
        if not mine or not is_owned(node, NODE_HEALTH) or others:
            return Change(False, f"is {node.state}, and not by this program")
        plan = plan_nodes(Wanted(RESUMED, "", NODE_HEALTH), [node])
        if not plan.updates:
            return Change(False, f"is {node.state}")
        self._update(plan.updates[0].words, timeout_s)
        return Change(True, "resumed")

    def _read_all(self, timeout_s: float) -> dict[str, Node]:
        result = self.run([self.command, "--oneliner", "show", "node"], timeout_s)
        if not result.ok:
            raise SlurmError(result.describe(1))
        return parse_nodes(result.out)

    def _unanswered(self) -> float | None:
        """Return when an update was sent that was not seen answered."""
        found = json_if_readable(self.sent) if self.sent else None
        at = found.get("at") if isinstance(found, Mapping) else None
        return float(at) if isinstance(at, (int, float)) else None

    def _note_sent(self) -> None:
        # A node whose disk is full must be able to leave.
        with contextlib.suppress(OSError):
            if self.sent:
                write_atomic(self.sent, json.dumps({"at": time.time()}), 0o600, sync=False)

    def _note_answered(self) -> None:
        with contextlib.suppress(OSError):
            if self.sent:
                remove(self.sent)

    def _update(self, words: tuple[str, ...], timeout_s: float) -> None:
        self._note_sent()
        result = self.run([self.command, "update", f"NodeName={self.node}", *words], timeout_s)
        # Older releases say an error and end with 0.
        wrong = not result.ok or "error:" in result.err
        if not wrong or _REFUSED.search(result.text):
            self._note_answered()
        if wrong:
            raise SlurmError(result.describe(1))


def own_node(run: CommandRunner, settings: Settings) -> OwnNode:
    """Return the node of a configuration."""
    return OwnNode(
        run,
        settings.node,
        settings.scontrol,
        settings.share,
        lock_name(settings.state_dir, "brake"),
        os.path.join(settings.state_dir, _SENT),
    )
