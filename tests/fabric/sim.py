# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fabric in ibsim, with the real opensm and infiniband-diags on it."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from world import ROOT  # first: it makes the collection importable

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)

CACHE = ROOT / ".cache" / "ibsim"
_TOOLS = ("opensm", "ibnetdiscover", "iblinkinfo", "ibqueryerrors", "sminfo", "saquery")


class NoSimulatorError(Exception):
    """There is no simulator here; the message says why."""


def _asked(*argv: str | Path) -> list[str]:
    """The lines that a program of this project prints; NoSimulatorError with what it says."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoSimulatorError(done.stderr.strip() or f"{argv[0]} failed")
    return done.stdout.split()


@functools.cache
def tools() -> dict[str, str]:
    """The environment in which opensm and infiniband-diags are found: installed, or unpacked."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if all(shutil.which(tool, path=path) for tool in _TOOLS):
        return {"PATH": path}
    (folder,) = _asked(ROOT / ".ci" / "tools")
    # A shell that starts one of them loads the simulator's library before it, which needs these.
    return {"PATH": f"{folder}:{path}", "LD_LIBRARY_PATH": str(Path(folder).with_name("lib"))}


@functools.cache
def find() -> tuple[str, str]:
    """The simulator and the library that its clients load first; NoSimulatorError without."""
    tools()
    program, library = _asked(ROOT / "tests" / "fabric" / "get_ibsim", CACHE)
    return program, library


@dataclass
class Sim:
    """A running simulator; `host` is the node id that commands look from, "H-" and its GUID."""

    folder: Path
    name: str
    library: str
    process: subprocess.Popen
    host: str
    masters: list[subprocess.Popen] = field(default_factory=list)

    def environment(self, host: str = "") -> dict[str, str]:
        """What a client needs, and nothing else of this process."""
        return {
            "LD_PRELOAD": self.library,
            "IBSIM_SOCKNAME": self.name,
            "SIM_HOST": host or self.host,
            "OSM_CACHE_DIR": str(self.folder),
            "OSM_TMP_DIR": str(self.folder),
        }

    def console(self, *commands: str) -> None:
        """Type commands at the simulator's console."""
        # It takes one line each time that it looks, and lets the rest wait for the next one.
        for command in commands:
            with (self.folder / "console").open("w") as pipe:
                pipe.write(f"{command}\n")
            time.sleep(0.02)
        time.sleep(0.2)

    def output(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def run(
        self, argv: Sequence[str], timeout_s: float = 30, env: Mapping[str, str] | None = None
    ) -> CommandResult:
        """The CommandRunner of the modules, on the simulated fabric."""
        words = tuple(argv)
        tool = shutil.which(words[0], path=tools()["PATH"])
        if tool is None:
            return CommandResult(words, MISSING)
        started = time.monotonic()
        try:
            done = subprocess.run(
                [tool, *words[1:]],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                cwd=self.folder,
                env={**tools(), "LC_ALL": "C", **self.environment(), **(env or {})},
                check=False,
            )
        except subprocess.TimeoutExpired:
            return CommandResult(words, TIMED_OUT, took_s=timeout_s)
        took = time.monotonic() - started
        return CommandResult(words, ENDED, done.returncode, done.stdout, done.stderr, took)

    def start_opensm(
        self, host: str, *options: str, wait_for: str = "SUBNET UP", wait_s: float = 120
    ) -> None:
        """Start a subnet manager on an adapter, and wait until its log shows it."""
        log = self.folder / f"opensm-{len(self.masters)}.log"
        tool = shutil.which("opensm", path=tools()["PATH"])
        process = subprocess.Popen(
            # -d2 writes the log at once.
            [tool, "-d2", "-f", str(log), *options],
            cwd=self.folder,
            env={**tools(), "LC_ALL": "C", **self.environment(host)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.masters.append(process)
        until(
            lambda: log.exists() and wait_for in log.read_text(errors="replace"), wait_s, wait_for
        )

    def stop_opensm(self) -> None:
        for process in self.masters:
            process.terminate()
        for process in self.masters:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.masters.clear()


def until(true, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.05)


@contextlib.contextmanager
def simulator(
    folder: Path, netlist: str, host: str, *options: str, wait_s: float = 120
) -> Iterator[Sim]:
    """Run a fabric: `with simulator(tmp_path, text, "H-…") as sim`."""
    program, library = find()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "netlist").write_text(netlist)
    os.mkfifo(folder / "console")
    # For reading and writing: with a writer's end alone it would stop at the first command.
    console = os.open(folder / "console", os.O_RDWR)
    name = f"fabric-{os.getpid()}-{secrets.token_hex(4)}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [program, "-s", *options, "netlist"],
            cwd=folder,
            env={**tools(), "IBSIM_SOCKNAME": name},
            stdin=console,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    sim = Sim(folder, name, library, process, host)
    try:
        until(
            lambda: "simulator ready" in sim.output() or process.poll() is not None,
            wait_s,
            "the netlist",
        )
        if process.poll() is not None:
            raise RuntimeError(f"ibsim ended: {sim.output()[-300:]}")
        yield sim
    finally:
        sim.stop_opensm()
        if process.poll() is None:
            os.write(console, b"quit\n")
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        os.close(console)


# Room for the largest fabrics; the simulator's own limits end below 1,024 nodes.
LARGE = ("-N", "16384", "-S", "1024", "-P", "131072", "-L", "49152")
