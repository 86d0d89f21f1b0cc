# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Saves the records of many nodes: a file for each, the serial numbers by slot, the evidence.

What did not come back is an answer, too: that the node does not answer, by name of the part.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._core.files import make_folder, read_json, write_atomic
from ...module_utils._core.record import PASS, utc_text
from ...module_utils._evidence.batch import with_standing
from ...module_utils._evidence.links import LinkStore
from ...module_utils._evidence.parts import known_parts, merged
from ...module_utils._evidence.store import Store
from ...module_utils._node_validation.spool import Spool
from .levels import fold
from .node_file import node_file
from .runs import forget

_SOURCE = "validate_nodes"
_MORE = 200


def save_all(options: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Save what came of a run; return what validation_records returns. OSError, ValueError."""
    state = options["state_dir"]
    place = os.path.join(state, "validation")
    notes = read_json(os.path.join(place, options["run"], "notes.json"), "what nodes were asked")
    spool = read_spool(options["run"], options["files"], notes)
    folders = {name: os.path.join(state, name) for name in ("nodes", "identities", "evidence")}
    for name in ("nodes", "identities"):
        make_folder(folders[name], 0o755)
    store, at, level = Store(folders["evidence"]), utc_text(now), options["level"]
    verdicts: dict[str, list[str]] = {}
    lines: list[str] = []
    for node, note in notes.items():
        try:
            result, links = result_of(spool, node, note["asked"], note["nothing"], at, level)
            links = links if isinstance(links, list) else []
            content = _save(folders, node, result, note["asked"], links)
            _add(store, options, node, content, now)
        except OSError:
            raise
        except Exception as error:  # pylint: disable=broad-exception-caught
            # One odd answer must not cost the nodes after it, now and in each run that goes on.
            # What was not the answer's fault is raised again here.
            odd = {"failed": True, "msg": f"its answer has another form: {error}"}
            answers = dict.fromkeys(note["asked"], odd)
            result = fold(node, note["asked"], answers, at, level=level)
            content = _save(folders, node, result, note["asked"], [])
            _add(store, options, node, content, now)
        verdicts.setdefault(result["verdict"], []).append(node)
        if result["verdict"] != PASS:
            lines.append(f"{node}: {result['text']}")
            if sum(len(verdicts[one]) for one in verdicts if one != PASS) <= options["shown"]:
                lines += [f"  {line}" for line in result["lines"]]
    forget(place)
    text = ", ".join(
        f"{len(nodes)} {verdict.replace('_', ' ')}" for verdict, nodes in sorted(verdicts.items())
    )
    return {"nodes": verdicts, "lines": lines, "text": f"{len(notes)} nodes: {text}"}


def _save(
    folders: Mapping[str, str],
    node: str,
    result: Mapping[str, Any],
    asked: Mapping[str, str],
    links: list[Any],
) -> Mapping[str, Any]:
    """Write the file of a node, and who sits in its slots; return it. OSError, ValueError."""
    path, former = os.path.join(folders["nodes"], f"{node}.json"), None
    # Nothing is left of a file that is not whole.
    with contextlib.suppress(FileNotFoundError, ValueError):
        former = read_json(path, "records of a node")
    content = node_file(result, node, asked, links, former)
    records = content["records"]
    head = json.dumps({key: value for key, value in content.items() if key != "records"})
    # A record a line: an indented file of 700 records takes ten times as long.
    lines = ",\n".join(map(json.dumps, records))
    # The evidence is what must last; these files are written again by each run.
    write_atomic(path, f'{head[:-1]}, "records": [\n{lines}\n]}}\n', 0o644, sync=False)
    path = os.path.join(folders["identities"], f"{node}.json")
    before = known_parts(path)
    after = merged(before, records)
    if after != before:
        write_atomic(path, json.dumps(after, indent=1) + "\n", 0o640)
    return content


def _add(
    store: Store,
    options: Mapping[str, Any],
    node: str,
    content: Mapping[str, Any],
    now: float,
) -> None:
    """Add what the file of a node has to the evidence. OSError, ValueError."""
    at, simulated, records = utc_text(now), options["simulated"], with_standing(content)
    run, level, ends = options["evidence_run"], content["level"], content["ended"]
    store.add(run, node, _SOURCE, records, at, level, simulated, (), ends)
    if content["links"]:
        with store.locked():
            LinkStore(store.folder).add(node, content["links"], now, simulated)


def read_spool(run: str, paths: Iterable[str], nodes: Iterable[str]) -> Spool:
    """Return the answers of these compressed files; one that is cut gives what it has. OSError."""
    known, spool = set(nodes), Spool(run)
    for path in paths:
        try:
            with gzip.open(path, "rt", encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    node, colon, text = line.partition(": ")
                    if colon and node in known:
                        spool.feed(node, text)
        except (EOFError, gzip.BadGzipFile):
            continue
    return spool


def why_missing(spool: Spool, node: str, part: str) -> str:
    """Return why a part of a node has no answer, one line."""
    torn = spool.torn(node, part)
    reported = " | ".join(spool.messages.get(node, ()))[-_MORE:]
    if node in spool.foreign:
        return f"its lines speak of another node ({spool.foreign[node]} lines were left out)"
    if torn:
        return torn
    if spool.count(node):
        return f"it answered {spool.count(node)} parts and then nothing" + (
            f": {reported}" if reported else ""
        )
    return reported or "nothing came from it"


def answers_of(
    spool: Spool, node: str, parts: Sequence[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what each part answered, as a task returns it, and why some were not begun."""
    answers: dict[str, Any] = {}
    in_the_way: dict[str, str] = {}
    for part in parts:
        answer = spool.answer(node, part)
        if answer is None:
            answers[part] = {"unreachable": True, "msg": why_missing(spool, node, part)}
        elif answer.get("skipped"):
            in_the_way[part] = f"the node was not loaded: {answer.get('why') or 'no reason given'}"
        else:
            answers[part] = answer
    return answers, in_the_way


def result_of(
    spool: Spool,
    node: str,
    asked: Mapping[str, str],
    nothing: Mapping[str, str],
    at: str,
    level: str,
) -> tuple[dict[str, Any], list[Any]]:
    """Return the folded answer of a node, and the readings of its links."""
    parts = [part for part, why in asked.items() if not why]
    answers, in_the_way = answers_of(spool, node, parts)
    result = fold(node, asked, answers, at, in_the_way, nothing, level)
    return result, answers.get("ib_health", {}).get("links") or []
