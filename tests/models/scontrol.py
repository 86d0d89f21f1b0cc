# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for scontrol of Slurm 24.11: it shows and updates nodes, and refuses what that does.

argv: FILE with the nodes as JSON, then the words of scontrol. Each call is added to FILE.calls.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

OUT = ("DOWN", "DRAIN", "FAIL")


def refuse(text: str) -> None:
    print(text, file=sys.stderr)
    sys.exit(1)


def show(name: str, node: dict[str, str]) -> str:
    line = f"NodeName={name} Arch=x86_64 CoresPerSocket=56 CPUTot=224 State={node['state']} "
    line += (
        "ThreadsPerCore=2 Partitions=batch BootTime=2026-11-21T01:36:10 CurrentWatts=0 AveWatts=0"
    )
    if node.get("reason"):
        line += f" Reason={node['reason']} [{node.get('by', 'root')}@2026-11-21T09:00:00]"
    if node.get("comment"):
        line += f" Comment={node['comment']}"
    return line


def update(file: Path, nodes: dict[str, dict[str, str]], words: dict[str, str]) -> None:
    node = nodes.get(words["NodeName"])
    if node is None:
        refuse("slurm_update error: Invalid node name specified")
        return
    state, reason = words.get("State", ""), words.get("Reason", "")
    states = node["state"].split("+")
    if state in ("DRAIN", "DOWN") and not reason:
        refuse("You must specify a reason when DOWNING a node. Request denied")
    if state == "RESUME" and not set(states) & set(OUT):
        refuse("slurm_update error: Invalid node state specified")
    if state == "DRAIN" and "DRAIN" not in states:
        states.append("DRAIN")
    if state == "RESUME":
        states = [one for one in states if one not in OUT] or ["IDLE"]
        node["reason"] = ""
    if reason:
        node["reason"], node["by"] = reason, "root"
    node["state"] = "+".join(states)
    node["comment"] = words.get("Comment", node.get("comment", ""))
    file.write_text(json.dumps(nodes))


def main() -> None:
    file, words = Path(sys.argv[1]), [one for one in sys.argv[2:] if one != "--oneliner"]
    with Path(f"{file}.calls").open("a") as calls:
        calls.write(" ".join(words) + "\n")
    world = json.loads(file.read_text())
    time.sleep(float(world.get("sleep", {}).get("state", 0)))
    nodes = {name: node for name, node in world.items() if name != "sleep"}
    if "down" in nodes:
        refuse("slurm_load_node error: Unable to contact slurm controller (connect failure)")
    if words == ["show", "node"]:
        for name in nodes:
            print(show(name, nodes[name]))
    elif words[:2] == ["show", "node"]:
        if words[2] not in nodes:
            print(f"Node {words[2]} not found", file=sys.stderr)
            sys.exit(1)
        print(show(words[2], nodes[words[2]]))
    elif words[:1] == ["update"]:
        update(file, nodes, dict(word.split("=", 1) for word in words[1:]))
    else:
        refuse(f"invalid keyword: {words[0]}")


main()
