# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes that apply their own roles, and a control machine that is killed again and again.

    apply_walk.py control WORLD        the control machine: what node_apply does
    apply_walk.py node WORLD NAME      a node, as ssh starts it: it outlives the connection

Both sides are the product's; the roles are played by a program in the place of ansible-core: it
writes some files, one after the other, and restarts a daemon that was started with others. The plan
changes now and then, and so does ansible-core. Sometimes nodes are killed, too.

Whatever happens, the roles never run twice at once on a node, nothing is written twice, the daemon
is restarted once for each plan, and the last run ends as planned on all nodes but those that are
dead, hang, or send torn answers. One more run sends nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.baremetal.dgx.plugins.module_utils._core import lock
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import run
from ansible_collections.baremetal.dgx.plugins.module_utils._local import apply as node_side
from ansible_collections.baremetal.dgx.plugins.plugin_utils._apply import nodes as control_side
from ansible_collections.baremetal.dgx.plugins.plugin_utils._apply.runtime import Runtime

_COLLECTIONS = Path(__file__).resolve().parents[2] / ".cache" / "collections"
DEAD, HANGS, TORN = "dead", "hangs", "torn"
STEPS, AT_ONCE, LIMIT_S = 6, 8, 20.0
ROLES = """\
import json, os, sys, time
with open(sys.argv[sys.argv.index("-i") + 1]) as stream:
    wanted = json.load(stream)
os.chdir(wanted["disk"])


def note(text):
    with open("log", "a") as kept:
        print(text, file=kept)


def read(name):
    try:
        with open(name) as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def write(name):
    with open(name + ".new", "w") as stream:
        stream.write(wanted["plan"])
    os.rename(name + ".new", name)


other = read("at-work")
# What was killed and not waited for has no command line, and its number may be another's.
if other and sys.argv[0] in read("/proc/" + other + "/cmdline"):
    note("twice")
with open("at-work", "w") as stream:
    stream.write(str(os.getpid()))
changes = []
for step in range(wanted["steps"]):
    if read("file-%d" % step) != wanted["plan"]:
        time.sleep(wanted["step_s"])
        write("file-%d" % step)
        note("file-%d %s" % (step, wanted["plan"]))
        changes.append("file-%d" % step)
if read("started") != wanted["plan"]:
    note("restart " + wanted["plan"])
    write("started")
    changes.append("daemon")
os.unlink("at-work")
print(json.dumps(dict(ok=9, changed=len(changes), skipped=0, changes=changes, failed=[])))
"""


class WalkError(Exception):
    """A property does not hold."""


@dataclass(frozen=True)
class Told:
    """What a walk has seen."""

    nodes: int
    kills: int
    plans: int
    node_kills: int
    sent: int
    seconds: float


@dataclass(frozen=True)
class World:
    """A folder with the nodes, what befalls them, and what they shall be."""

    folder: Path

    def wanted(self) -> dict[str, object]:
        return json.loads((self.folder / "wanted.json").read_text())

    def want(self, **changes: object) -> None:
        (self.folder / "wanted.json").write_text(json.dumps({**self.wanted(), **changes}))

    def make(self, names: list[str], fates: dict[str, str], step_s: float) -> None:
        for name in names:
            (self.folder / name / "disk").mkdir(parents=True)
            (self.folder / name / "locks").mkdir(mode=0o700)
        ssh = self.folder / "ssh"
        ssh.write_text(
            f'#!/bin/sh\n[ "$1" = -V ] || exec setsid {sys.executable} {__file__} node '
            f'{self.folder} "$1"\n'
        )
        ssh.chmod(0o755)
        first = {"names": names, "fates": fates, "plan": 1, "release": 1, "step_s": step_s}
        (self.folder / "wanted.json").write_text(json.dumps(first))

    def log(self, name: str) -> list[str]:
        path = self.folder / name / "disk" / "log"
        return path.read_text().splitlines() if path.exists() else []

    def asked(self, name: str) -> list[str]:
        path = self.folder / name / "asked"
        return path.read_text().splitlines() if path.exists() else []


def runtime_of(release: object) -> Runtime:
    """The program in the place of ansible-core."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        about = {"ansible_core": str(release), "python": [3, 8]}
        for name, text in (("__main__.py", ROLES), ("manifest.json", json.dumps(about))):
            # The same bytes at any time.
            archive.writestr(zipfile.ZipInfo(name), text)
    data = held.getvalue()
    return Runtime(hashlib.sha256(data).hexdigest(), data)


def control(world: World) -> None:
    """Have all nodes apply their roles, and keep how that ended."""
    wanted, ssh = world.wanted(), str(world.folder / "ssh")
    nodes = {}
    for name in wanted["names"]:
        result = {"plan": str(wanted["plan"]), "steps": STEPS, "step_s": wanted["step_s"],
                "disk": str(world.folder / name / "disk")}  # fmt: skip
        values = json.dumps({"inventory": json.dumps(result), "files": {"plan/hosts": name}})
        nodes[name] = control_side.Node((ssh, name), (ssh, name), values.encode())
    order = control_side.Order(runtime_of(wanted["release"]), b"", limit_s=LIMIT_S)
    outcomes = control_side.apply_all(nodes, order, AT_ONCE, 600.0, run)
    found = {name: [one.how, one.why, one.changed] for name, one in outcomes.items()}
    (world.folder / "outcomes.json").write_text(json.dumps(found))


def node(world: World, name: str) -> int:
    """Answer a request, as the program of a node does."""
    fate, folder = world.wanted()["fates"].get(name), world.folder / name
    if fate == DEAD:
        return 255
    if fate == HANGS:
        time.sleep(1000)
    lock._folder = lambda: str(folder / "locks")
    stream = sys.stdin.buffer
    stream.read(int(stream.readline()))
    line = stream.readline()
    with contextlib.suppress(ValueError, KeyError), (folder / "asked").open("a") as kept:
        print("asked", *json.loads(line)["sizes"], file=kept)
    result = json.dumps(node_side.answer(io.BytesIO(line + stream.read()), str(folder / "apply")))
    # The control machine may be gone.
    with contextlib.suppress(BrokenPipeError):
        os.write(1, (result[:20] if fate == TORN else result + "\n").encode())
    return 0


def _control(world: World) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, __file__, "control", str(world.folder)],
        env={**os.environ, "PYTHONPATH": str(_COLLECTIONS)},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def _kill_node(world: World, name: str) -> None:
    """A node loses its power: its processes, of this walk alone, are gone."""
    place = f"{world.folder / name}/".encode()
    mine = [b"node", str(world.folder).encode(), name.encode()]
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if place in words or words.split(b"\0")[-4:-1] == mine:
                os.kill(int(entry.name), signal.SIGKILL)


def _to_the_end(world: World) -> dict[str, list[object]]:
    """Run to the end; return how it ended on each node."""
    if _control(world).wait(900):
        raise WalkError("the last run ended with an error")
    return json.loads((world.folder / "outcomes.json").read_text())


def walk(
    folder: Path,
    nodes: int,
    kills: int,
    seed: int,
    fates: dict[str, str] | None = None,
    step_s: float = 0.1,
    most_s: float = 3.0,
) -> Told:
    """Apply, killed so many times, then to the end; WalkError says what does not hold."""
    numbers, started = random.Random(seed), time.monotonic()
    names = [f"dgx-{number:02}" for number in range(1, nodes + 1)]
    world, fates = World(folder), fates or {}
    world.make(names, fates, step_s)
    powerless: dict[str, int] = dict.fromkeys(names, 0)
    plan = 1
    for _kill in range(kills):
        running = _control(world)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(numbers.uniform(0.1, most_s))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        if numbers.random() < 0.5:
            for name in numbers.sample(names, max(1, nodes // 8)):
                _kill_node(world, name)
                powerless[name] += 1
        if numbers.random() < 0.2:
            plan += 1
            world.want(plan=plan)
        if numbers.random() < 0.1:
            world.want(release=plan + 1)
    _ended(world, _to_the_end(world), plan, powerless)
    before = {name: world.asked(name) for name in names}
    once_more = _to_the_end(world)
    for name in names:
        more = world.asked(name)[len(before[name]) :]
        if name not in fates and (once_more[name], more) != (["done", "", 0], ["asked"]):
            raise WalkError(f"{name} was as planned, and then {once_more[name]}, sent {more}")
    sent = sum(line != "asked" for name in names for line in world.asked(name))
    return Told(nodes, kills, plan, sum(powerless.values()), sent, time.monotonic() - started)


def _ended(
    world: World, outcomes: dict[str, list[object]], plan: int, powerless: dict[str, int]
) -> None:
    fates = world.wanted()["fates"]
    unmeasured = sorted(name for name, one in outcomes.items() if one[0] == "not_measured")
    failed = sorted(name for name, one in outcomes.items() if one[0] == "failed")
    if unmeasured != sorted(fates) or failed:
        raise WalkError(f"not measured are {unmeasured}, failed {failed}, and must be {fates}")
    for name in outcomes:
        lines, place = world.log(name), world.folder / name
        if "twice" in lines:
            raise WalkError(f"{name} ran its roles twice at once")
        again = {line for line in lines if line.startswith("file") and lines.count(line) > 1}
        if again:
            raise WalkError(f"{name} wrote twice: {sorted(again)}")
        for number in range(1, plan + 1):
            # Restarted, and gone before that was written down.
            if lines.count(f"restart {number}") > 1 + powerless[name]:
                raise WalkError(f"{name} restarted its daemon again for plan {number}")
        if name in fates:
            continue
        if (place / "disk" / "started").read_text() != str(plan):
            raise WalkError(f"{name} is not as plan {plan}")
        left = sorted(path.name for path in (place / "apply").iterdir())
        if [one for one in left if not one.startswith("runtime-")] != ["values.json"]:
            raise WalkError(f"{name} has values lying about: {left}")
        if len(left) != 2 or (place / "apply" / "values.json").stat().st_mode & 0o077:
            raise WalkError(f"{name} keeps more than it must: {left}")


if __name__ == "__main__":
    if sys.argv[1] == "control":
        control(World(Path(sys.argv[2])))
    else:
        sys.exit(node(World(Path(sys.argv[2])), sys.argv[3]))
