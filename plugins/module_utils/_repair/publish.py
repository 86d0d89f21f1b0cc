# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Tells others of the incidents: files for programs, texts for makers, tickets, metrics."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Mapping, Sequence

from .._core.files import make_folder, read_json, write_atomic
from .._core.record import PASS
from .._core.redact import Redactor
from .._slurm.gate.policy import verdict_from_data
from .._slurm.nodes import parse_nodes
from .book import Book
from .fleet import fleet_data, incidents_data, metrics, rma_of
from .incident import fold, open_of
from .send import send_all
from .tickets import category_of, slot_of

_FLEET, _INCIDENTS, _RMA = "fleet.json", "incidents.json", "rma.txt"
# What says which firmware a part has: its value, or else the lines of its evidence.
_FIRMWARE = ("gpu.versions", "gpu.firmware_equal", "ib.firmware", "bmc.firmware")


def bring_about(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return what repair_publish returns. Raises OSError, ValueError."""
    now, state = time.time(), params["state_folder"]
    book = Book(os.path.join(state, "incidents"))
    events, unread = book.events()
    incidents = fold(events)
    redactor = Redactor([text for text in params["secret_values"] if text])
    sent = send_all(
        book.folder, params["hooks"], events, params["cluster"], redactor, not check_mode
    )
    verdicts = [verdict_from_data(one) for one in params["verdicts"]]
    plan = _planned(params["plan"])
    fleet = fleet_data(
        plan,
        parse_nodes(params["nodes"]),
        {one.node: one for one in verdicts},
        open_of(incidents),
        {str(one["name"]): _parts(state, str(one["name"])) for one in plan},
        now,
        params["cluster"],
    )
    shown = incidents_data(incidents, now, params["keep_days"] * 86400, params["cluster"])
    texts = {
        os.path.join(book.folder, _FLEET): _packed(fleet),
        os.path.join(book.folder, _INCIDENTS): _packed(redactor.data(shown)),
    }
    for name, text in rma_of(incidents).items():
        texts[os.path.join(book.evidence_of(name), _RMA)] = redactor.text(text)
    if not check_mode:
        make_folder(book.folder, 0o750)
        for path, text in texts.items():
            write_atomic(path, text, 0o640, make=0o750)
    waiting = {name: len(one["waiting"]) for name, one in sent.items()}
    return {
        "tickets": sent,
        "files": sorted(texts),
        "metrics": metrics(incidents, waiting, float(int(now))),
        "unread": unread,
        "problems": [f"{name}: {one['why']}" for name, one in sent.items() if one["why"]],
    }


def _packed(data: Mapping[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":")) + "\n"


def _planned(folder: str) -> list[dict[str, Any]]:
    nodes = read_json(os.path.join(folder, "plan.json"), "the plan")["nodes"]
    return [one for one in nodes if one.get("state", "present") == "present"]


def _mapping(path: str) -> dict[str, Any]:
    try:
        found = read_json(path)
    except FileNotFoundError:
        return {}
    except ValueError:
        # The next validation replaces it.
        return {}
    return found if isinstance(found, dict) else {}


def _parts(state: str, node: str) -> list[dict[str, Any]]:
    """Return the parts of a node that were seen, with names, serials and firmware if known."""
    names = _mapping(os.path.join(state, "evidence", "parts", f"{node}.json"))
    slots = _mapping(os.path.join(state, "identities", f"{node}.json"))
    firmware = _firmware(_mapping(os.path.join(state, "nodes", f"{node}.json")).get("records", ()))
    found = []
    for subject in sorted({*names, *slots, *firmware}):
        slot = slots.get(subject) or {}
        found.append(
            {
                "category": category_of(subject),
                "slot": slot_of(subject),
                "serial": slot.get("serial") or None,
                "name": names.get(subject) or slot.get("uuid") or None,
                "firmware": firmware.get(subject, []),
            }
        )
    return found


def _firmware(records: Sequence[Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in records:
        if one.get("check") in _FIRMWARE and one.get("status") == PASS:
            measured = one.get("measured") or {}
            lines = [str(measured["value"])] if "value" in measured else one.get("evidence") or []
            found.setdefault(str(one.get("subject")), []).extend(map(str, lines))
    return found
