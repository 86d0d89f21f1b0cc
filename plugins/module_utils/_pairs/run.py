# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Runs a schedule from one host: all servers of a half, then all clients, each step with a limit.

One process drives everything, so it does not matter how many forks Ansible has. A pair that hangs
is not measured, and holds up no other pair: when the time of a step is over, the run goes on
without it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import Callable, Iterable, Iterator, Mapping, Sequence

from .._core.record import utc_text
from .._fabric.model import End
from .localise import Measurement
from .perftest import Recipe, last_words, read_result
from .remote import Answers, Task, Transport, node_script
from .results_file import ResultsFile
from .schedule import HALVES, Schedule, Unit

# perftest's own first port. Ports go up from here, so that a server that should be gone cannot be
# taken for a new one; below 32768, where ports begin that the system gives away itself.
_FIRST_PORT = 18515
_PORTS = 14000
# What a test takes beside its duration: connecting, registering memory, the end.
_SLACK_S = 15.0
# How long a node has to end its tests after the order.
_END_S = 4.0
_READ = 65536
_SAID = 400
# A node that did not answer so many times in a row is left alone.
_GIVE_UP_AFTER = 2


@dataclass(frozen=True)
class Setup:
    """What the runner needs to know beside the schedule."""

    recipe: Recipe
    # Names that a rail's adapter may have on its node.
    devices: Mapping[End, tuple[str, ...]]
    # Where a node's servers are reached by its partner.
    addresses: Mapping[str, str]
    gpus: Mapping[int, int] = field(default_factory=dict)
    sysfs_root: str = "/sys"
    connect_s: float = 10.0
    listen_s: float = 20.0
    # Pairs that run at the same time; each takes two connections.
    parallel: int = 128


@dataclass(frozen=True)
class _Flow:
    number: int
    source: End
    target: End
    port: int


class _Remote:
    """A script that runs on a node."""

    def __init__(self, node: str, argv: Sequence[str], numbers: Iterable[int]) -> None:
        self.node = node
        self.answers = Answers.of(numbers)
        self._rest = b""
        self.ended = False
        try:
            self.process: subprocess.Popen[bytes] | None = subprocess.Popen(  # pylint: disable=ansible-bad-function
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self.process = None
            self.answers.chatter.append(f"{argv[0]}: {error.strerror}")
            self.ended = True

    def read(self) -> None:
        """Take in what there is to read; at the end the process is waited for."""
        if self.process is None or self.process.stdout is None:
            return
        data = os.read(self.process.stdout.fileno(), _READ)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data:
            lines, self._rest, self.ended = [*lines, self._rest], b"", True
        for line in lines:
            self.answers.take(line.decode("utf-8", "replace"))

    def hang_up(self) -> None:
        """Close its standard input: its tests end."""
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def kill(self) -> None:
        """End the connection by force; the node ends what it runs by itself."""
        self.hang_up()
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.process.stdout is not None:
            self.process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=_END_S)

    @property
    def unreachable(self) -> str:
        """Say why nothing was received from the node; empty where it has answered."""
        if any(answer.state or answer.rc is not None for answer in self.answers.tasks.values()):
            return ""
        why = self.answers.chatter[-1] if self.answers.chatter else "no answer"
        return f"{self.node} did not answer: {why}"


def _attend(remotes: Iterable[_Remote], enough: Callable[[_Remote], bool], until: float) -> None:
    """Read from all until each has printed enough or has ended, or until that time."""
    with selectors.DefaultSelector() as selector:
        for remote in remotes:
            if remote.ended or enough(remote) or remote.process is None:
                continue
            if remote.process.stdout is not None:
                selector.register(remote.process.stdout, selectors.EVENT_READ, remote)
        while selector.get_map():
            left = until - time.monotonic()
            if left <= 0:
                return
            for key, _events in selector.select(left):
                remote = key.data
                remote.read()
                if remote.ended or enough(remote):
                    selector.unregister(key.fileobj)


class Runner:
    """Runs what a schedule has left to do, and adds each result to a file."""

    def __init__(
        self, schedule: Schedule, setup: Setup, transport: Transport, results: ResultsFile
    ) -> None:
        self.schedule = schedule
        self.setup = setup
        self.transport = transport
        self.results = results
        self._next_port = 0
        self._failures: dict[str, int] = {}
        self._running: list[_Remote] = []

    def run(self) -> int:
        """Run all halves that are not complete yet; return how many there were."""
        count = 0
        try:
            for number, units in enumerate(self.schedule.rounds):
                for half in HALVES:
                    if (number, half) not in self.results.results.done:
                        self._run_half(number, half, units)
                        count += 1
        finally:
            for remote in self._running:
                remote.kill()
        return count

    def _run_half(self, number: int, half: int, units: Sequence[Unit]) -> None:
        started = time.monotonic()
        counts = {"measured": 0, "not_measured": 0}
        for first in range(0, len(units), self.setup.parallel):
            for flow, message in self._run_units(
                number, half, units[first : first + self.setup.parallel]
            ):
                counts["not_measured" if flow.gbps is None else "measured"] += 1
                self.results.add(flow, utc_text(), message)
        self.results.close_half(
            number,
            half,
            of=len(self.schedule.rounds),
            at=utc_text(),
            took_s=round(time.monotonic() - started, 1),
            **counts,
        )

    def _run_units(
        self, number: int, half: int, units: Sequence[Unit]
    ) -> Iterator[tuple[Measurement, str]]:
        """Yield each flow of these units with what was reported of it."""
        flows = [
            _Flow(index, source, target, self._port())
            for index, (source, target) in enumerate(
                flow for unit in units for flow in unit.flows(half)
            )
        ]
        gone = {node for node, times in self._failures.items() if times >= _GIVE_UP_AFTER}
        alive = [f for f in flows if f.source.host not in gone and f.target.host not in gone]
        servers = self._start(alive, server=True)
        setup = self.setup
        until = time.monotonic() + setup.connect_s + setup.listen_s + 1
        _attend(servers.values(), lambda remote: remote.answers.settled, until)
        ready = [
            flow
            for flow in alive
            if servers[flow.target.host].answers.tasks[flow.number].state == "listens"
        ]
        clients = self._start(ready, server=False)
        until = time.monotonic() + setup.connect_s + self._client_limit_s() + 2 * _END_S
        _attend(clients.values(), lambda _remote: False, until)
        for remote in (*clients.values(), *servers.values()):
            remote.hang_up()
        _attend(servers.values(), lambda _remote: False, time.monotonic() + _END_S)
        for remote in self._running:
            remote.kill()
        self._running = []
        self._count_failures((*servers.values(), *clients.values()))
        for flow in flows:
            server, client = servers.get(flow.target.host), clients.get(flow.source.host)
            gbps, reason, output = self._outcome(flow, server, client, gone)
            yield Measurement(number, half, flow.source, flow.target, gbps, reason), output

    def _port(self) -> int:
        self._next_port = (self._next_port + 1) % _PORTS
        return _FIRST_PORT + self._next_port

    def _client_limit_s(self) -> float:
        return self.setup.recipe.duration_s + _SLACK_S

    def _start(self, flows: Iterable[_Flow], server: bool) -> dict[str, _Remote]:
        """Start the tests of each node, in one connection a node."""
        by_node: dict[str, list[_Flow]] = {}
        for flow in flows:
            by_node.setdefault((flow.target if server else flow.source).host, []).append(flow)
        limit = self._client_limit_s()
        if server:
            limit += self.setup.connect_s * 2 + self.setup.listen_s
        remotes = {}
        for node, some in by_node.items():
            tasks = [self._task(flow, server) for flow in some]
            script = node_script(tasks, server, limit, self.setup.listen_s, self._sysfs(node))
            argv = self.transport.argv(node, script)
            remotes[node] = _Remote(node, argv, [task.number for task in tasks])
            self._running.append(remotes[node])
        return remotes

    def _sysfs(self, node: str) -> str:
        return self.setup.sysfs_root.replace("{node}", node)

    def _task(self, flow: _Flow, server: bool) -> Task:
        end = flow.target if server else flow.source
        address = self.setup.addresses.get(flow.target.host, flow.target.host)
        gpu = self.setup.gpus.get(end.rail, end.rail)
        arguments = self.setup.recipe.arguments(flow.port, gpu, None if server else address)
        return Task(flow.number, self.setup.devices[end], flow.port, tuple(arguments))

    def _count_failures(self, remotes: Iterable[_Remote]) -> None:
        for remote in remotes:
            if remote.unreachable:
                self._failures[remote.node] = self._failures.get(remote.node, 0) + 1
            else:
                self._failures[remote.node] = 0

    def _outcome(
        self, flow: _Flow, server: _Remote | None, client: _Remote | None, gone: set[str]
    ) -> tuple[float | None, str, str]:
        """Return Gb/s, the reason where there is none, and the tool's own words."""
        absent = [end.host for end in (flow.target, flow.source) if end.host in gone]
        if absent or server is None:
            return None, f"left out: {absent[0]} did not answer {_GIVE_UP_AFTER} times in a row", ""
        at_server = server.answers.tasks[flow.number]
        message = "\n".join(at_server.out)
        if at_server.state != "listens":
            return (
                None,
                _why_no_server(server, at_server.state, flow.target, message),
                message[-_SAID:],
            )
        if client is None or client.unreachable:
            return None, client.unreachable if client else "no client", ""
        at_client = client.answers.tasks[flow.number]
        text = "\n".join(at_client.out)
        if at_client.state == "absent":
            return None, f"{flow.source} has no such adapter on its node", ""
        if at_client.rc is None:
            return None, f"{flow.source.host} did not end in time", text[-_SAID:]
        outcome = read_result(at_client.rc, text, "\n".join(at_client.json))
        message = "" if outcome.gbps else (text + "\n" + message).strip()[-_SAID:]
        return outcome.gbps, outcome.reason, message


def _why_no_server(server: _Remote, state: str, end: End, message: str) -> str:
    if server.unreachable:
        return server.unreachable
    if state == "absent":
        return f"{end} has no such adapter on its node"
    if state == "ended":
        return f"the server at {end} ended: {last_words(message)}"
    return f"the server at {end} did not listen in time"
