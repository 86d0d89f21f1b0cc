# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""How the BMCs of a module's options are reached."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, Mapping, Sequence

from .._core.lock import part_locks
from .._core.pool import ask_all
from .factory import is_factory
from .machine import Machine, Opener, machine, require_declared
from .redfish import BmcError, load_library

_BMC: dict[str, Any] = {
    "node": {"type": "str", "required": True},
    "protocol": {"type": "str", "choices": ["redfish", "ipmi"], "default": "redfish"},
    "address": {"type": "str", "required": True},
    "port": {"type": "int", "default": 443},
    "cipher": {"type": "int", "choices": [3, 17], "default": 17},
    "user": {"type": "str", "required": True},
    "password": {"type": "str", "required": True, "no_log": True},
    "certificate": {"type": "str", "default": ""},
    "profile": {"type": "str", "default": ""},
    "system": {"type": "str", "default": ""},
    "serial": {"type": "str", "default": ""},
    "firmware": {"type": "dict", "default": {}},
    "former_password": {"type": "str", "default": "", "no_log": True},
    "accounts": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "user": {"type": "str", "required": True},
            "password": {"type": "str", "default": "", "no_log": True},
            "role": {"choices": ["Administrator", "Operator", "ReadOnly"], "default": "ReadOnly"},
            "state": {"choices": ["present", "absent"], "default": "present"},
        },
    },
    "time_servers": {"type": "list", "elements": "str", "default": []},
    "log_server": {"type": "str", "default": ""},
    "bios": {"type": "dict", "default": {}},
    "boot_order": {"type": "list", "elements": "str", "default": []},
    "packages": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "file": {"type": "path", "required": True},
            "sha256": {"type": "str", "required": True},
            "components": {"type": "dict", "required": True},
            "activation": {"choices": ["none", "dc", "ac"], "required": True},
            "cycle": {"choices": ["own", "next"], "default": "own"},
            "targets": {"type": "list", "elements": "str", "default": []},
            "uri": {"type": "str", "default": ""},
        },
    },
}


def bmc_options(each_s: float, total_s: float, at_once: int = 512) -> dict[str, Any]:
    """Return the options of a module that asks BMCs, with its limits."""
    return {
        "bmcs": {"type": "list", "elements": "dict", "required": True, "options": _BMC},
        "at_once": {"type": "int", "default": at_once},
        "each_s": {"type": "float", "default": each_s},
        "total_s": {"type": "float", "default": total_s},
    }


def outing_options(change_s: float, poll_s: float) -> dict[str, Any]:
    """Return the options of a module for which nodes leave service."""
    return {
        "nodes": {"type": "str", "default": ""},
        "held": {"type": "list", "elements": "str", "default": []},
        "share": {"type": "float", "default": 0.1},
        "serving": {"type": "list", "elements": "str", "default": []},
        "soft_s": {"type": "float", "default": 120},
        "change_s": {"type": "float", "default": change_s},
        "poll_s": {"type": "float", "default": poll_s},
    }


def ask_bmcs(
    bmcs: Mapping[str, Any], ask: Callable[[str, Any], Any], params: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Ask these BMCs within the limits of the module's options, as ask_all does."""
    return ask_all(bmcs, ask, params["at_once"], params["each_s"], params["total_s"])


def change_bmcs(
    bmcs: Mapping[str, Any], change: Callable[[str, Any], Any], params: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """As ask_bmcs, with each machine locked against other runs; OSError of the locks.

    A module goes on when its ansible-playbook is killed, and must not be overtaken by the next run.
    """
    places = {name: f"{one['address']} {one['port']}" for name, one in bmcs.items()}
    with part_locks("bmc", places.values()) as taken:
        free = {name: one for name, one in bmcs.items() if places[name] not in taken}
        done, lacking = ask_bmcs(free, change, params)
    busy = "another run is at work on it; wait until it has ended, then write the same command"
    return done, {**lacking, **{name: busy for name in bmcs if name not in free}}


def by_node(bmcs: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the BMCs by the names of their nodes."""
    return {one["node"]: one for one in bmcs}


def loaded(bmcs: Mapping[str, Mapping[str, Any]]) -> None:
    """Load the library of Redfish where one of them needs it; ToolError if it is not installed."""
    if any(one["protocol"] == "redfish" for one in bmcs.values()):
        load_library()


def refuse_factory(bmc: Mapping[str, Any]) -> None:
    """BmcError for a password that is in a public manual: no login is tried with it."""
    if is_factory(bmc["user"], bmc["password"]):
        raise BmcError("node_bmc has a factory password, with which no login is tried")


def opener(bmc: Mapping[str, Any], timeout_s: float) -> Opener:
    """Return what opens a session with the machine, which must be the declared one.

    That is asked in the first session: a BMC that starts again may not know it at once.
    """
    is_known = not bmc["serial"]

    @contextlib.contextmanager
    def call() -> Iterator[Machine]:
        nonlocal is_known
        refuse_factory(bmc)
        with contextlib.ExitStack() as stack:
            opened = stack.enter_context(machine(bmc, timeout_s))
            if not is_known:
                require_declared(bmc, opened.serial())
                is_known = True
            yield opened

    return call
