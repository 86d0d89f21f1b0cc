# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The node's own place in Slurm, as its health program sees and changes it.

It drains its own node with a reason of its own, and takes back nothing but that. A node that
somebody else has taken out keeps its reason. Draining ends no job.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.baremetal.dgx.plugins.module_utils._gate_reason import (
    ITSELF,
    NODE_HEALTH,
    sign,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import CommandRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_state import (
    DRAINED,
    RESUMED,
    Node,
    Wanted,
    is_owned,
    parse_nodes,
    plan_nodes,
)


class SlurmError(Exception):
    """Slurm cannot be asked, or refuses."""


@dataclass(frozen=True)
class Change:
    """Whether something was changed, and that in words."""

    changed: bool
    said: str
    reason: str = ""


@dataclass(frozen=True)
class OwnNode:
    """This node in Slurm, by the command `scontrol`."""

    run: CommandRunner
    node: str
    command: str = "scontrol"

    def read(self, timeout_s: float) -> Node:
        """Return the node as Slurm sees it. Raises SlurmError."""
        result = self.run([self.command, "--oneliner", "show", "node", self.node], timeout_s)
        if not result.ok:
            raise SlurmError(result.describe(1))
        found = parse_nodes(result.out).get(self.node)
        if found is None:
            raise SlurmError(f"Slurm tells nothing of a node {self.node}")
        return found

    def drain(self, text: str, timeout_s: float) -> Change:
        """Take the node out, unless somebody has. Raises SlurmError."""
        node = self.read(timeout_s)
        if node.has("DRAIN") and is_owned(node, NODE_HEALTH):
            # The first reason is the nearest to the cause.
            return Change(False, f"is drained already: {node.reason}", node.reason)
        wanted = Wanted(DRAINED, sign(self.node, ITSELF, text), NODE_HEALTH)
        plan = plan_nodes(wanted, [node])
        if not plan.updates:
            return Change(False, f"is {node.state}, by somebody else: {node.reason or 'no reason'}")
        self._update(plan.updates[0].words, timeout_s)
        return Change(True, f"drained: {wanted.reason}", wanted.reason)

    def resume(self, reason: str, timeout_s: float) -> Change:
        """Take back the drain of exactly this reason, and no other. Raises SlurmError."""
        node = self.read(timeout_s)
        if node.reason != reason or not is_owned(node, NODE_HEALTH) or node.has("DOWN", "FAIL"):
            return Change(False, f"is {node.state}, and not by this program")
        plan = plan_nodes(Wanted(RESUMED, "", NODE_HEALTH), [node])
        if not plan.updates:
            return Change(False, f"is {node.state}")
        self._update(plan.updates[0].words, timeout_s)
        return Change(True, "resumed")

    def _update(self, words: tuple[str, ...], timeout_s: float) -> None:
        result = self.run([self.command, "update", f"NodeName={self.node}", *words], timeout_s)
        # Older releases say an error and end with 0.
        if not result.ok or "error:" in result.err:
            raise SlurmError(result.describe(1))
