# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A node in one half of a round: its script, how that gets there, how its answers read. Pure.

It gets there over SSH, as a step of a Slurm job, or runs here.

All rails of a node share one connection. The script ends when its standard input does, and takes
its tests with it: so nothing is left behind when the control host goes away, even by kill -9. What
hangs is ended by `timeout` on the node itself.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Iterable, Mapping, Protocol, Sequence

from .perftest import TOOL

SSH = "ssh"
SLURM = "slurm"

# What a connection that does not answer any more may take before it is given up.
_ALIVE_S = 5
_ALIVE_COUNT = 3
# Every line of an answer that is the script's own begins with it.
_MARK = "@pairs "
_OUTPUT = "@out "
_JSON = "@json "
_POLLS_PER_S = 5
_KILL_AFTER_S = 2


class Transport(Protocol):
    """Makes the command that runs a script on a node."""

    def argv(self, node: str, script: str) -> list[str]:
        """Return the command."""


@dataclass(frozen=True)
class Ssh:
    """Over SSH, without asking anything.

    `targets` has what to connect to (user@address), or all words of ssh before the command.
    """

    targets: Mapping[str, str | Sequence[str]]
    connect_s: int = 10
    options: tuple[str, ...] = ()

    def argv(self, node: str, script: str) -> list[str]:
        """Return the command."""
        target = self.targets.get(node, node)
        command = ["ssh", "--", target] if isinstance(target, str) else list(target)
        words = [command[0], "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={self.connect_s}"]
        words += ["-o", f"ServerAliveInterval={_ALIVE_S}"]
        words += ["-o", f"ServerAliveCountMax={_ALIVE_COUNT}", "-o", "LogLevel=ERROR"]
        return [*words, *self.options, *command[1:], "exec sh -c " + shlex.quote(script)]


@dataclass(frozen=True)
class Local:
    """On this host, which pretends to be every node."""

    def argv(self, node: str, script: str) -> list[str]:
        """Return the command."""
        return ["env", f"FABRIC_PAIRS_NODE={node}", "sh", "-c", script]


@dataclass(frozen=True)
class Slurm:
    """As steps of one job that has all nodes to itself.

    Steps overlap: server and client of different pairs are on the same node one after the other,
    and none may wait for resources of another.
    """

    job: str
    gres: str = ""

    def argv(self, node: str, script: str) -> list[str]:
        """Return the command."""
        words = ["srun", f"--jobid={self.job}", "--overlap", "--nodes=1", "--ntasks=1"]
        words += [f"--nodelist={node}", "--cpu-bind=none", "--mem=0", "--unbuffered", "--quiet"]
        if self.gres:
            words.append(f"--gres={self.gres}")
        return [*words, "sh", "-c", script]


_SCRIPT = r"""
set -u
work=$(mktemp -d "${TMPDIR:-/tmp}/fabric_pairs.XXXXXX") || exit 9
export CUDA_DEVICE_ORDER=PCI_BUS_ID LC_ALL=C
exec 3<&0
tests= watch=
leave() {
  trap - EXIT HUP INT TERM PIPE
  for one in $tests $watch; do kill "$one" 2>/dev/null; done
  rm -rf "$work"
  exit "$1"
}
trap 'leave 0' EXIT
trap 'leave 1' HUP INT TERM PIPE
(while read -r _ <&3; do :; done; kill "$$") >/dev/null 2>&1 &
watch=$!
json=
case $(@TOOL@ --help 2>&1) in *--out_json_file*) json=yes ;; esac
begin() {
  id=$1 names=$2
  shift 2
  device=
  for name in $names; do
    if [ -e "$sys/class/infiniband/$name" ]; then device=$name; break; fi
  done
  if [ -z "$device" ]; then
    echo "@pairs $id absent"
    return
  fi
  set -- @TOOL@ -d "$device" "$@"
  if [ -n "$json" ]; then set -- "$@" --out_json --out_json_file="$work/$id.json"; fi
  cpus=$(cat "$sys/class/infiniband/$device/device/local_cpulist" 2>/dev/null)
  if [ -n "$cpus" ] && taskset -c "$cpus" true 2>/dev/null; then set -- taskset -c "$cpus" "$@"; fi
  timeout -k @KILL@ "$limit" "$@" >"$work/$id.out" 2>&1 </dev/null 3<&- &
  tests="$tests $!"
  ids="$ids $id:$!"
}
expect() {
  # Only what has begun is waited for.
  case "$ids " in *" $1:"*) ports="$ports $1:$2:$!" ;; esac
}
listens() {
  hex=$(printf %04X "$1")
  grep -Eqs "^ *[0-9]+: [0-9A-F]+:$hex [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6
}
await() {
  waiting=$ports polls=$1
  while [ -n "$waiting" ] && [ "$polls" -gt 0 ]; do
    left=
    for one in $waiting; do
      rest=${one#*:}
      if listens "${rest%:*}"; then
        echo "@pairs ${one%%:*} listens"
        continue
      fi
      # A process that has ended is there until its parent waits for it.
      case $(cat "/proc/${rest#*:}/stat" 2>/dev/null) in
      '' | *') Z '*) echo "@pairs ${one%%:*} ended" ;;
      *) left="$left $one" ;;
      esac
    done
    waiting=$left polls=$((polls - 1))
    if [ -n "$waiting" ]; then sleep 0.2; fi
  done
  for one in $waiting; do echo "@pairs ${one%%:*} silent"; done
}
collect() {
  for one in $ids; do
    wait "${one#*:}"
    rc=$?
    id=${one%:*}
    tail -n 60 "$work/$id.out" | sed "s/^/@out $id /"
    if [ -s "$work/$id.json" ]; then sed "s/^/@json $id /" "$work/$id.json"; echo; fi
    echo "@pairs $id rc $rc"
  done
  tests=
}
ids= ports=
"""


@dataclass(frozen=True)
class Task:
    """One test on one node: names its adapter may have, port to listen on, the tool's arguments."""

    number: int
    devices: tuple[str, ...]
    port: int
    arguments: tuple[str, ...]


def node_script(
    tasks: Iterable[Task], server: bool, limit_s: float, listen_s: float, sysfs_root: str
) -> str:
    """Return the script that runs these tests, each for limit_s seconds at most."""
    text = _SCRIPT.replace("@TOOL@", TOOL).replace("@KILL@", str(_KILL_AFTER_S)).lstrip()
    lines = [f"sys={shlex.quote(sysfs_root)} limit={limit_s:g}"]
    for task in tasks:
        words = [str(task.number), " ".join(task.devices), *task.arguments]
        lines.append("begin " + " ".join(shlex.quote(word) for word in words))
        if server:
            lines.append(f"expect {task.number} {task.port}")
    if server:
        lines.append(f"await {max(1, int(listen_s * _POLLS_PER_S))}")
    return text + "\n".join([*lines, "collect", ""])


@dataclass
class Answer:
    """What is known of one test on one node."""

    # "" at first, then absent, ended, silent or listens
    state: str = ""
    rc: int | None = None
    out: list[str] = field(default_factory=list)
    json: list[str] = field(default_factory=list)


@dataclass
class Answers:
    """What a node has printed so far; `chatter` is what is not the script's own."""

    tasks: dict[int, Answer]
    chatter: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Answers:
        """Expect answers to these tests."""
        return cls({number: Answer() for number in numbers})

    def take(self, line: str) -> None:
        """Take in one line of output."""
        words = line.split(" ", 3)
        number = int(words[1]) if len(words) > 1 and words[1].isdigit() else -1
        answer = self.tasks.get(number)
        if answer is None:
            if line.strip():
                self.chatter = [*self.chatter, line.strip()][-5:]
        elif line.startswith(_OUTPUT):
            answer.out.append(line.split(" ", 2)[2] if len(words) > 2 else "")
        elif line.startswith(_JSON):
            answer.json.append(line.split(" ", 2)[2] if len(words) > 2 else "")
        elif line.startswith(_MARK) and len(words) > 3 and words[2] == "rc":
            answer.rc = int(words[3]) if words[3].strip().isdigit() else None
        elif line.startswith(_MARK) and len(words) > 2:
            answer.state = words[2].strip()

    @property
    def settled(self) -> bool:
        """Return whether each server listens, or will not."""
        return all(answer.state for answer in self.tasks.values())
