# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What repair_nodes may do and whom it tells, compared with the checks and the BMCs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...module_utils._core.schema import Problem, closest
from ...module_utils._repair.ladders import BY_BMC, CHECKS, flaw
from .._inventory.values import Value
from .nodes import Node

# What each kind of hook needs, and what to write.
_NEEDS = {
    "webhook": {
        "url": "write where tickets are posted to",
        "secret_file": "write the file with the key of the signature",
    },
    "mail": {
        "server": "write the mail server",
        "sender": "write the address that mails come from",
        "recipients": "write a list of addresses",
    },
    "command": {"command": "write a list: the program and its arguments"},
}
# Beside those, what a kind knows.
_KNOWS = {
    "webhook": {"ca_file"},
    "mail": {"ca_file", "port", "tls", "user", "secret_file"},
    "command": set[str](),
}
_ALL = {"name", "kind", "timeout_s"}


def check_repair(
    value: Value | None, nodes: list[Node], valid: Mapping[str, Mapping[str, Value]]
) -> Iterator[Problem]:
    """Yield steps that no BMC can do, wrong ladders, and hooks that cannot be used."""
    if value is None:
        return
    path, declared = value.path, value.value
    protocols = {
        str(given.value.get("protocol", "redfish"))
        for node in nodes
        if (given := valid.get(node.name, {}).get("node_bmc")) is not None and given.value
    }
    yield from _steps(f"{path}.steps", declared.get("steps") or (), protocols)
    for check, words in (declared.get("ladders") or {}).items():
        yield from _ladder(f"{path}.ladders.{check}", str(check), words, protocols)
    names: set[str] = set()
    for number, hook in enumerate(declared.get("hooks") or ()):
        yield from _hook(f"{path}.hooks[{number}]", hook)
        if hook["name"] in names:
            wrong = f"'{hook['name']}' is the name of an earlier one"
            yield Problem(f"{path}.hooks[{number}].name", wrong, "write another name")
        names.add(hook["name"])


def _steps(path: str, steps: Any, protocols: set[str]) -> Iterator[Problem]:
    for number, step in enumerate(steps):
        if step in BY_BMC and not protocols:
            wrong = f"{step} is a BMC's, and no node has one"
            yield Problem(f"{path}[{number}]", wrong, "write node_bmc, or leave the step out")
        elif step == "ac_cycle" and protocols == {"ipmi"}:
            wrong = "IPMI has no command for ac_cycle"
            yield Problem(f"{path}[{number}]", wrong, "leave the step out")


def _ladder(path: str, check: str, words: Any, protocols: set[str]) -> Iterator[Problem]:
    if check not in CHECKS:
        near = closest(check, CHECKS)
        remedy = f"write {near}" if near else "write a check of docs/thresholds.md"
        yield Problem(path, f"'{check}' is not a check with a ladder", remedy)
        return
    texts = [str(word) for word in words]
    place, wrong, remedy = flaw(texts)
    if wrong:
        where = f"{path}[{place}]" if place < len(texts) else path
        yield Problem(where, wrong, remedy)
    yield from _steps(path, texts, protocols)


def _hook(path: str, hook: Mapping[str, Any]) -> Iterator[Problem]:
    kind = hook["kind"]
    for key, remedy in _NEEDS[kind].items():
        if not hook.get(key):
            yield Problem(f"{path}.{key}", "missing", remedy)
    known = {*_ALL, *_NEEDS[kind], *_KNOWS[kind]}
    for key in sorted(set(hook) - known):
        yield Problem(f"{path}.{key}", f"a {kind} has none", "leave it out")
    if kind != "mail":
        return
    if hook.get("user") and not hook.get("secret_file"):
        remedy = "write the file with the password"
        yield Problem(f"{path}.secret_file", "missing, and there is a user", remedy)
    if hook.get("user") and hook.get("tls") == "none":
        wrong = "the password would go over the network in the clear"
        yield Problem(f"{path}.tls", wrong, "write starttls or tls")
