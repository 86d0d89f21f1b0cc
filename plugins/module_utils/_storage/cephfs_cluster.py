# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Clients of CephFS in the cluster: their keys and capabilities, asked for and set with ceph."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from .._core.run import CommandResult, CommandRunner, ToolError
from .cephfs import perms_problem, same_caps, wanted_caps

# ceph's exit status for "there is no such client"
_ENOENT = 2


class Cluster:
    """Asks the cluster as its administrator; every question has a time limit."""

    def __init__(self, run: CommandRunner, admin: str, limit_s: float) -> None:
        self._run = run
        self._name = f"client.{admin}"
        self._limit_s = limit_s

    def ask(self, *words: str) -> CommandResult:
        """Run ceph; ToolError when it hangs or is missing."""
        limit = str(max(1, int(self._limit_s) - 2))
        argv = ["ceph", "--name", self._name, "--connect-timeout", limit, *words]
        done = self._run(argv, timeout_s=self._limit_s)
        if done.outcome != "ended":
            raise ToolError(f"the cluster was not asked: {done.describe(2)}")
        return done

    def client(self, name: str) -> tuple[str, dict[str, str]] | None:
        """Return key and capabilities of a client, None when the cluster does not know it."""
        done = self.ask("auth", "get", f"client.{name}", "--format", "json")
        if done.rc == _ENOENT:
            return None
        try:
            data = json.loads(done.out)[0]
            return str(data["key"]), {str(k): str(v) for k, v in data["caps"].items()}
        except (ValueError, LookupError, TypeError) as error:
            # Not with its output, in which a key may stand.
            raise ToolError(f"`ceph auth get client.{name}` ended with {done.rc}: "
                            f"{done.err.strip()[-300:]}") from error  # fmt: skip


def settle(cluster: Cluster, client: Mapping[str, Any], new: bool, wanted: dict[str, str]) -> str:
    """Make or change a client, and return its key; ToolError when it is not as wanted after."""
    name = client["name"]
    if new:
        grant = client["grants"][0]
        words = [grant["path"], grant["perms"]] + (["root_squash"] if grant["root_squash"] else [])
        done = cluster.ask("fs", "authorize", grant["fs"], f"client.{name}", *words)
        # Another administrator's host may have made it since, and given it more than this grant.
        if not done.ok and cluster.client(name) is None:
            raise ToolError(f"client.{name} was not made: {done.err.strip()[-300:]}")
    found = cluster.client(name)
    if found is not None and not same_caps(found[1], wanted):
        words = [word for kind, text in sorted(wanted.items()) for word in (kind, text)]
        done = cluster.ask("auth", "caps", f"client.{name}", *words)
        if not done.ok:
            raise ToolError(f"client.{name} was not changed: {done.err.strip()[-300:]}")
        found = cluster.client(name)
    if found is None or not same_caps(found[1], wanted):
        raise ToolError(f"client.{name} is not as it was made: {found[1] if found else 'unknown'}")
    return found[0]


@dataclass
class Authorized:
    """The keys of the clients, what was done, and the clients before and after."""

    keys: dict[str, str] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)

    def as_result(self) -> dict[str, Any]:
        """Return what the module returns."""
        diff = {side: "\n".join(getattr(self, side)) + "\n" for side in ("before", "after")}
        return {
            "changed": bool(self.steps),
            "client_keys": self.keys,
            "steps": self.steps,
            "diff": diff,
        }


def require_perms(clients: Sequence[Mapping[str, Any]]) -> None:
    """Raise ToolError for permissions that there are not."""
    wrong = [
        f"{client['name']}: {problem}"
        for client in clients
        for grant in client["grants"]
        for problem in [perms_problem(grant["perms"])]
        if problem
    ]
    if wrong:
        raise ToolError("\n".join(wrong))


def authorize(
    cluster: Cluster, clients: Sequence[Mapping[str, Any]], check_mode: bool, done: Authorized
) -> None:
    """Make or change what differs; `done` gets each client. Raises ToolError."""
    for client in clients:
        name, wanted = client["name"], wanted_caps(client["grants"])
        found = cluster.client(name)
        if found is not None and same_caps(found[1], wanted):
            done.keys[name] = found[0]
            continue
        done.steps.append(f"{'make' if found is None else 'change'} client.{name}")
        done.before.append(f"client.{name}: {found[1] if found else 'unknown'}")
        done.after.append(f"client.{name}: {wanted}")
        if check_mode:
            done.keys[name] = found[0] if found else ""
            continue
        done.keys[name] = settle(cluster, client, found is None, wanted)
