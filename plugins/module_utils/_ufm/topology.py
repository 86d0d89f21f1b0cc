# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""UFM's ports in the form of `ibnetdiscover -p`: what reads that answer reads UFM's. Pure.

Fields are those of the UFM Enterprise REST API guide, "Ports". A port is named GUID_NUMBER, and
names its peer so; the GUID is the switch's, or that of the adapter's port.
"""

from __future__ import annotations

import re
from typing import Any, Mapping

from .._core.run import ToolError

LIST = "resources/ports?active=true"
_NAME = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})_(\d+)")
_WIDTH = re.compile(r"(?:IB_)?(\d+x)", re.IGNORECASE)
# Behind the name of a switch stands the label of the port.
_LABEL = re.compile(r":[\w/]*$")
_NONE = ("", "N/A", "None", None)


def _port_of(text: Any) -> tuple[str, int]:
    found = _NAME.fullmatch(str(text))
    if not found:
        raise ValueError(f"{text!r} is not GUID_NUMBER")
    return found.group(1).lower().zfill(16), int(found.group(2))


def _kind(port: Mapping[str, Any]) -> str:
    return "SW" if str(port["description"]).lower().startswith("switch") else "CA"


def _named(port: Mapping[str, Any]) -> str:
    """Return the description of the device, as its node has it."""
    if _kind(port) == "SW" and port.get("system_name") not in _NONE:
        return str(port["system_name"])
    return _LABEL.sub("", str(port["node_description"]))


def _row(port: Mapping[str, Any], peer: Mapping[str, Any]) -> str:
    ends = []
    for one in (port, peer):
        guid, number = _port_of(one["name"])
        ends.append((f"{_kind(one)} {int(one['lid'])} {number} 0x{guid}", _named(one)))
    width = _WIDTH.fullmatch(str(port["active_width"]))
    if not width:
        raise ValueError(f"active_width {port['active_width']!r} is not like 4x")
    speed = str(port["active_speed"]).split()
    if not speed:
        raise ValueError(f"active_speed {port['active_speed']!r} is not like NDR")
    (near, name), (far, far_name) = ends
    return f"{near} {width.group(1).lower()} {speed[0]} - {far} ( '{name}' - '{far_name}' )"


def discovery(answer: Any) -> str:
    """Return UFM's answer to LIST as a text; ToolError if it is not as documented.

    A port whose peer UFM does not list keeps its line, without the peer's: the reader says then
    that an end is missing.
    """
    try:
        ports = {_port_of(one["name"]): one for one in answer}
        rows = []
        for port in ports.values():
            if port.get("peer") in _NONE or port.get("active_width") in _NONE:
                continue
            # A port that is just training.
            if port["active_speed"] in _NONE:
                continue
            guid, number = _port_of(port["peer"])
            unlisted = {
                "name": f"{guid}_{number}",
                "lid": port["peer_lid"],
                "description": "",
                "node_description": port["peer_node_description"],
            }
            rows.append(_row(port, ports.get((guid, number), unlisted)))
    except (KeyError, TypeError, ValueError) as error:
        raise ToolError(f"{LIST}: UFM's answer is not as documented: {error!r}") from error
    if not rows:
        raise ToolError(f"{LIST}: UFM knows no active link")
    return "".join(f"{row}\n" for row in sorted(rows))
