# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks all BMCs once, and returns the records of what they say."""

from __future__ import annotations

import json
import os
import secrets
from typing import Any, Mapping

from .._core.files import write_atomic
from .._core.record import Record, stamped, utc_text
from .access import ask_bmcs, by_node, loaded, refuse_factory
from .event_log import Look, News, key_of, last_look, news_of, settle, write_look
from .judge import judge_fleet
from .read import read, read_ipmi


def look(params: Mapping[str, Any], write: bool) -> tuple[list[Record], str]:
    """Return the records of the module's BMCs, and the name of this look at their event logs.

    Records, and what is new in the logs, are left in `output`. ToolError if the client library is
    not installed, OSError of the output.
    """
    bmcs = by_node(params["bmcs"])
    loaded(bmcs)
    has_log = bool(params["log_folder"] or params["output"])

    def ask(_name: str, bmc: Mapping[str, Any]) -> dict[str, Any]:
        refuse_factory(bmc)
        return (read_ipmi if bmc["protocol"] == "ipmi" else read)(bmc, params["timeout_s"], has_log)

    seen, lacking = ask_bmcs(bmcs, ask, params)
    at, name = utc_text(), secrets.token_hex(8)
    news = {node: _news(node, one, params["log_folder"]) for node, one in seen.items()}
    if params["log_folder"]:
        for node, one in seen.items():
            one["news"] = news[node]
    records = stamped(judge_fleet(bmcs, seen, lacking), at)
    if write and params["output"]:
        entries = {node: one.entries for node, one in news.items() if one}
        _write(params["output"], "log.json", entries)
        _write(params["output"], "records.json", [one.as_data() for one in records])
    if write and params["log_folder"]:
        for node, one in seen.items():
            if "log" in one:
                keys = frozenset(map(key_of, one["log"]))
                write_look(params["log_folder"], node, name, Look(_serial(one), at, keys))
    return records, name


def settled(params: Mapping[str, Any], write: bool) -> list[str]:
    """Make the named look the last one; return the nodes. OSError of the folder."""
    names = [one["node"] for one in params["bmcs"]]
    return settle(params["log_folder"], names, params["look"]) if write else []


def _serial(seen: Mapping[str, Any]) -> str:
    return str((seen.get("system") or {}).get("serial") or "")


def _news(node: str, seen: Mapping[str, Any], folder: str | None) -> News | None:
    if "log" not in seen:
        return None
    return news_of(seen["log"], last_look(folder, node) if folder else None, _serial(seen))


def _write(folder: str, name: str, data: Any) -> None:
    write_atomic(os.path.join(folder, name), json.dumps(data) + "\n")
