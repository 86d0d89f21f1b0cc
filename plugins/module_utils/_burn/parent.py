# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The parent of a burn-in: starts a process for each GPU, gives the time, and outlives all of them.

It calls neither CUDA nor NVML, so that no broken GPU can hold it up. A worker that shows nothing
for too long is killed and its GPU given up with the last that was known of it; the others go on.
The load goes on, too, without the watcher, and what it did not see is not measured.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import signal
import subprocess
import threading
import time
from typing import Any, Mapping, Sequence

from .._core.files import open_append, write_all
from .._gpu.load import loading
from .plan import Settings, Step, add, chosen_gpus, key, pair_key, plan, request
from .state import DONE, ENDED, FAILED, INTERRUPTED, RUNNING, STOPPED, State, load, save
from .watcher import Seen, add_sample, too_hot

PEERS = "peers"
_SAVE_S = 10.0
_LOOK_S = 60.0
_KILL_S = 5.0
# NVML is read each second; on a busy machine that takes several.
_SILENT_AT_END_S = 15.0
_MOST_SAMPLES = 64 << 20


class Child:
    """A process of the burn-in and the lines it says, the last of them at `reported_s`."""

    def __init__(self, name: str, argv: Sequence[str], lines: queue.Queue[Any], log: str) -> None:
        self.name, self._lines = name, lines
        # Workers see all GPUs; they get the address of theirs.
        hidden = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
        environment = {k: v for k, v in os.environ.items() if k not in hidden}
        with open_append(log) as stream:
            self.process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env=environment,
            )
        self.reported_s = time.monotonic()
        self.last: dict[str, Any] = {}
        self.busy = True
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        stream = self.process.stdout
        for line in stream or ():
            # Here, since the parent may be busy for seconds with killing another one.
            self.reported_s = time.monotonic()
            try:
                self._lines.put((self, json.loads(line)))
            except ValueError:
                self._lines.put((self, {"event": "noise", "text": repr(line[:200])}))
        self._lines.put((self, None))

    def tell(self, line: Mapping[str, Any]) -> None:
        """Send a line; one that is gone has ended its output."""
        try:
            if self.process.stdin:
                self.process.stdin.write(json.dumps(line).encode("ascii") + b"\n")
                self.process.stdin.flush()
        except OSError:
            return

    def kill(self) -> bool:
        """Kill it; False when it does not go, since it hangs inside the kernel."""
        self.process.kill()
        try:
            self.process.wait(_KILL_S)
        except subprocess.TimeoutExpired:
            return False
        return True


def listed(command: Sequence[str], nvml: str) -> dict[str, Any]:
    """Return the `gpus` that NVML lists now, or an `error`; `command` starts the program."""
    try:
        found = subprocess.run(  # pylint: disable=ansible-bad-function
            [*command, "look", nvml],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_LOOK_S,
            check=False,
        )
        seen: dict[str, Any] = json.loads(found.stdout.decode("utf-8", "replace") or "{}")
    except (subprocess.TimeoutExpired, ValueError) as error:
        return {"error": f"NVML does not answer: {type(error).__name__}"}
    return seen


def _replaced(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether these are two GPUs, of which one was at the address of the other."""
    pairs = ((before.get(name), now.get(name)) for name in ("uuid", "serial"))
    return any(one and other and one != other for one, other in pairs)


class Burn:
    """One run, from the state on disk to the end. `command` starts this program again."""

    def __init__(self, folder: str, command: Sequence[str], settings: Settings) -> None:
        self.folder, self.command = folder, list(command)
        self.lines: queue.Queue[Any] = queue.Queue()
        self.workers: dict[str, Child] = {}
        self.peers: Child | None = None
        self.watcher: Child | None = None
        self.samples: dict[str, dict[str, Any]] = {}
        self.saved = self.written = 0.0
        self.interrupted = False
        old = load(folder)
        self.state = old if old and old.settings == settings else State(settings)
        self.fresh = self.state is not old

    # ---- the whole

    def run(self) -> str:
        """Burn until the end, and return how it ended (a word of _burn_state)."""
        state = self.state
        if state.state in ENDED:
            return state.state
        state.pid, state.state = os.getpid(), RUNNING
        if self.fresh:
            state.started = time.time()
        else:
            state.resumed += 1
        steps = plan(state.settings)
        state.steps = len(steps)
        signal.signal(signal.SIGTERM, self._interrupt)
        try:
            # Who started this waits for the state; NVML without persistence takes half a minute.
            save(self.folder, state)
            self._look()
            save(self.folder, state)
            if state.state == RUNNING:
                self._start()
                while state.step < len(steps) and state.state == RUNNING:
                    self._step(steps[state.step])
                self._watch_end()
        finally:
            for child in [*self.workers.values(), *filter(None, (self.watcher, self.peers))]:
                child.kill()
            if state.state == RUNNING:
                state.state = INTERRUPTED if state.step < state.steps else DONE
            save(self.folder, state)
        return state.state

    def _interrupt(self, _number: int, _frame: Any) -> None:
        self.interrupted = True

    def _look(self) -> None:
        """Find the GPUs and leave out those that must not or cannot be burned in."""
        state = self.state
        seen = listed(self.command, state.settings.nvml)
        if seen.get("error") or not seen.get("gpus"):
            state.state, state.text = FAILED, seen.get("error") or "NVML knows no GPU"
            return
        # A GPU that fell off the bus no longer tells its address; before, it did.
        named = {gpu["address"] for gpu in seen["gpus"]}
        gone = {a: gpu for a, gpu in state.gpus.items() if a not in named}
        before = {f"index {gpu['index']}": address for address, gpu in gone.items()}
        for gpu in seen["gpus"]:
            gpu["address"] = before.get(gpu["address"], gpu["address"])
        found_now = {gpu["address"]: gpu for gpu in seen["gpus"]}
        known = state.gpus
        exchanged = [a for a, gpu in found_now.items() if _replaced(known.get(a, {}), gpu)]
        if exchanged:
            # All pass each step beside the new one; what was found of the others stands.
            afresh = State(state.settings, steps=state.steps, started=time.time(), pid=state.pid)
            for name in ("gpus", "ended", "sums", "seen"):
                stands = {
                    whose: value
                    for whose, value in getattr(state, name).items()
                    if not any(address in whose for address in exchanged)
                }
                setattr(afresh, name, stands)
            vars(state).update(vars(afresh))
        for address, gpu in found_now.items():
            state.gpus[address] = {**state.gpus.get(address, {}), **gpu}
        chosen, state.left = chosen_gpus(seen["gpus"], state.settings)
        if not state.settings.gpus:
            why = {"reason": "lost", "text": "NVML no longer knows it", "phase": state.phase}
            state.ended = {**{a: why for a in state.gpus if a not in found_now}, **state.ended}
        if not chosen:
            state.state, state.text = FAILED, "no GPU can be burned in"
        self.chosen = [address for address in chosen if address not in state.ended]

    def _start(self) -> None:
        """Start the watcher and the workers, and wait until every worker is ready or given up."""
        settings = self.state.settings
        for address in self.chosen:
            self.workers[address] = self._child(address, "worker", address)
            self.workers[address].tell(self._worker_settings())
        argv = [*self.command, "watch", settings.nvml, *self.chosen]
        self.watcher = Child("watch", argv, self.lines, self._log("watch"))
        # An invalid command ends a worker with words, but no context is made in less than seconds.
        self._wait(settings.start_timeout_s, settings.start_timeout_s)

    def _child(self, name: str, *words: str) -> Child:
        return Child(name, [*self.command, *words], self.lines, self._log(name))

    def _log(self, name: str) -> str:
        return os.path.join(self.folder, f"{name.replace(':', '_')}.log")

    def _worker_settings(self) -> dict[str, Any]:
        settings = self.state.settings
        return {
            "n": settings.n,
            "memory_share": settings.memory_share,
            "memory_bytes": settings.memory_mib << 20,
            "most_batch": settings.most_batch,
            "cublaslt": settings.cublaslt,
            "folder": self.folder,
        }

    # ---- one step

    def _step(self, step: Step) -> None:
        state = self.state
        state.phase = step.phase
        left = max(0.2, step.seconds - state.step_done_s)
        before = state.step_done_s
        began = time.monotonic()
        if step.phase == PEERS:
            self._start_peers(step, left)
        else:
            for child in self.workers.values():
                child.busy, child.reported_s = True, time.monotonic()
                child.tell(request(step, state.settings, left))
        self._wait(left + state.settings.silent_s, state.settings.silent_s, began, before)
        if self.peers:
            self.peers.kill()
            self.peers = None
        if state.state != RUNNING:
            return
        state.burnt_s += time.monotonic() - began
        state.step, state.step_done_s = state.step + 1, 0.0
        if not self.workers:
            state.state, state.text = FAILED, "no GPU is left to burn"
        self._save(always=True)

    def _start_peers(self, step: Step, seconds: float) -> None:
        addresses = sorted(self.workers)
        if len(addresses) < 2:
            self.state.peers_ended = {"reason": "not_supported", "text": "there is one GPU only"}
            return
        self.peers = self._child(PEERS, "worker", *addresses)
        self.peers.tell(self._worker_settings())
        self.peers.tell(request(step, self.state.settings, seconds))

    def _wait(
        self, limit_s: float, silent_s: float, began: float | None = None, before: float = 0.0
    ) -> None:
        """Take lines until none is busy, or the time is up for those that still are."""
        started = time.monotonic()
        while self.state.state == RUNNING and self._busy():
            try:
                child, line = self.lines.get(timeout=0.2)
                self._take(child, line)
            except queue.Empty:
                pass
            now = time.monotonic()
            if self.interrupted:
                self.state.state = INTERRUPTED
            for child in self._busy():
                silent, whole = now - child.reported_s, now - started
                if silent > silent_s:
                    self._give_up(child, "hang", f"printed nothing for {silent:.0f} s")
                elif whole > limit_s:
                    self._give_up(child, "hang", f"was not done after {whole:.0f} s")
            watcher = self.watcher
            if watcher and not self.state.watch_error and now - watcher.reported_s > silent_s:
                watcher.kill()
                self.state.watch_error = f"NVML hangs: it reported nothing for {silent_s:g} s"
            if began is not None:
                self.state.step_done_s = before + now - began
            self._save()

    def _watch_end(self) -> None:
        """Take what the watcher reported last, and note whether NVML hung by then."""
        silent = time.monotonic() - self.watcher.reported_s if self.watcher else 0.0
        while not self.lines.empty():
            child, line = self.lines.get()
            if child is self.watcher:
                self._watched(line)
        if silent > min(self.state.settings.silent_s, _SILENT_AT_END_S):
            text = f"NVML hangs: it reported nothing for the last {silent:.0f} s"
            self.state.watch_error = self.state.watch_error or text

    def _busy(self) -> list[Child]:
        everyone = [*self.workers.values(), *([self.peers] if self.peers else [])]
        return [child for child in everyone if child.busy]

    # ---- lines

    def _take(self, child: Child, line: dict[str, Any] | None) -> None:
        if child is self.watcher:
            self._watched(line)
        elif line is None:
            if child is self.peers or self.workers.get(child.name) is child:
                child.process.wait()
                code = child.process.returncode
                self._give_up(child, "broken", f"ended by itself with {code}")
        elif line["event"] in ("ready", "done"):
            # The peers get their orders before they are ready.
            child.busy = child is self.peers and line["event"] == "ready"
            self.state.simulated |= bool(line.get("simulated"))
            self._add(child, line)
        elif line["event"] == "failed":
            self._give_up(child, str(line["reason"]), str(line["text"]))
        else:
            child.last = line
            self._add(child, line)

    def _add(self, child: Child, line: Mapping[str, Any]) -> None:
        if line["event"] == "closed":
            pair = [line["source"], line["target"]]
            if pair not in self.state.closed_pairs:
                self.state.closed_pairs.append(pair)
        elif "source" in line:
            add(self.state.sum_of(pair_key(line["source"], line["target"])), line)
        elif child is not self.peers and line.get("phase"):
            add(self.state.sum_of(key(child.name, line["phase"])), line)
        elif child is self.peers and line["event"] == "not_run":
            self.state.peers_ended = {"reason": line["reason"], "text": line["text"]}

    def _watched(self, line: dict[str, Any] | None) -> None:
        state = self.state
        if line is None or "error" in line:
            why = (line or {}).get("error") or "the process that reads NVML ended"
            state.watch_error = state.watch_error or why
            return
        if "xid" in line:
            state.seen.setdefault(line["address"], Seen()).xids.append(line["xid"])
            return
        for address, one in line.get("samples", {}).items():
            self.samples[address] = one
            busy = address in self.workers and bool(state.phase)
            add_sample(state.seen.setdefault(address, Seen()), one, busy)
            slowdown = state.gpus.get(address, {}).get("slowdown_c")
            why = too_hot(one, state.settings.stop_c, slowdown)
            if why and state.state == RUNNING:
                state.stop = {"address": address, "why": why, "phase": state.phase}
                state.state, state.text = STOPPED, f"{address}: {why}"
        self._write_samples(line)

    def _write_samples(self, line: Mapping[str, Any]) -> None:
        """Keep a sample each ten seconds, for people, until the file is large."""
        now = time.monotonic()
        path = os.path.join(self.folder, "samples.jsonl")
        if now - self.written >= _SAVE_S:
            self.written = now
            with open_append(path) as stream:
                if stream.seek(0, os.SEEK_END) < _MOST_SAMPLES:
                    write_all(stream, (json.dumps(line) + "\n").encode("ascii"))

    def _give_up(self, child: Child, reason: str, text: str) -> None:
        """End a child and keep the last that is known of its GPU."""
        gone = child.kill()
        child.busy = False
        about = {
            "reason": reason,
            "text": text if gone else f"{text}; it cannot be killed, it hangs in the driver",
            "phase": self.state.phase,
            "last_line": child.last,
            "last_sample": self.samples.get(child.name, {}),
        }
        if child is self.peers:
            self.state.peers_ended = about
        elif self.workers.pop(child.name, None) is not None:
            self.state.ended[child.name] = about

    def _save(self, always: bool = False) -> None:
        now = time.monotonic()
        if always or now - self.saved >= _SAVE_S:
            self.saved = now
            save(self.folder, self.state)


class AlreadyRunningError(Exception):
    """Another parent burns in this folder."""


def burn(folder: str, command: Sequence[str], settings: Settings) -> str:
    """Run or resume the burn-in of a folder; returns how it ended. AlreadyRunningError, OSError."""
    with open_append(os.path.join(folder, "lock"), make=None) as lock:
        # Who asks whether a parent lives holds the lock for a moment.
        for more in (True, True, True, False):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not more:
                    raise AlreadyRunningError(folder) from None
                time.sleep(0.3)
        with loading():
            return Burn(folder, command, settings).run()


def is_running(folder: str) -> bool:
    """Return whether a parent lives: it holds a lock that the kernel takes from the dead."""
    try:
        with open(os.path.join(folder, "lock"), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
