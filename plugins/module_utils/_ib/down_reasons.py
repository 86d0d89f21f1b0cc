# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Why a link went down, as the adapter's firmware and the kernel report it.

mlxlink tells it in the table that `--amber_collect` writes, and nowhere else: a line of names, and
a line of values for the port. mlx5 writes what happens to modules to the kernel's log.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re

from .._core.files import read_text, temporary_folder
from .._core.run import MISSING, CommandRunner
from .._host.kernel_log import messages

_TOOLS = ("mlxlink", "mstlink")
_FOLDER = "baremetal-dgx-links-"
_COLUMNS = ("down_blame", "local_reason_opcode", "remote_reason_opcode")
_NONE = frozenset(("", "N/A", "Unknown", "No_link_down_indication", "Unknown_reason", "0"))
# drivers/net/ethernet/mellanox/mlx5/core/events.c, port_module
_EVENT = re.compile(
    r"mlx5_core (?P<pci>[0-9a-f:.]+): Port module event(?:\[error\])?: module \d+, "
    r"(?P<what>.+?)\s*\Z"
)
_WORD = re.compile(r"[\w ,.()/-]{1,60}\Z")


def parse_amber(text: str) -> list[str]:
    """Return who is blamed and the reasons of a table of mlxlink; nothing where none is given.

    ValueError for any other text.
    """
    rows = list(csv.reader(io.StringIO(text)))
    names = [name.strip() for name in rows[0]] if rows else []
    if "down_blame" not in names or len(rows) < 2:
        raise ValueError("the table of mlxlink does not tell why a link went down")
    values = dict(zip(names, (value.strip() for value in rows[-1])))
    lines = [values.get(name, "") for name in _COLUMNS]
    return [word for word in lines if word not in _NONE and _WORD.match(word)]


def ask_down_reasons(run: CommandRunner, pci: str, timeout_s: float) -> list[str]:
    """Return the reasons that the firmware gives for the last time; nothing where it gives none."""
    with contextlib.suppress(OSError, ValueError), temporary_folder(_FOLDER) as folder:
        path = os.path.join(folder, "amber.csv")
        for tool in _TOOLS:
            answer = run([tool, "-d", pci, "--amber_collect", path], timeout_s=timeout_s)
            if answer.outcome != MISSING:
                return parse_amber(read_text(path)) if answer.ok else []
    return []


def module_events(text: str, pci: str, since_s: float) -> list[str]:
    """Return what the kernel reported of an adapter's module since a time after boot."""
    found = []
    for one in messages(text, ("Port module event",)):
        event = _EVENT.match(one.text)
        if event and event["pci"] == pci and (one.uptime_s or 0.0) >= since_s:
            if event["what"] != "Cable plugged" and _WORD.match(event["what"]):
                found.append(event["what"])
    return found
