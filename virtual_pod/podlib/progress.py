# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress on stdout: every line has the time since the start, nothing is silent for long."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

from podlib.layout import PodError

SILENCE_S = 4.0


class Progress:
    """Prints lines with the elapsed time; safe to call from several threads."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._start = time.monotonic()
        self._last = self._start
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """Print one line."""
        with self._lock:
            now = time.monotonic()
            self._last = now
            sys.stdout.write(f"[{self._label} {now - self._start:6.1f}s] {text}\n")
            sys.stdout.flush()

    def show(self, line: str) -> None:
        """Print one line of another program's output as it is."""
        with self._lock:
            self._last = time.monotonic()
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

    def elapsed(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._start

    def silent_for(self) -> float:
        """Return the seconds since the last line."""
        return time.monotonic() - self._last

    def during(self, doing: Callable[[], str]) -> Heartbeat:
        """Return a context that says doing() whenever nothing else was printed for a while."""
        return Heartbeat(self, doing)


class Heartbeat:
    """See Progress.during."""

    def __init__(self, progress: Progress, doing: Callable[[], str]) -> None:
        self._progress = progress
        self._doing = doing
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def _beat(self) -> None:
        while not self._stop.wait(0.5):
            if self._progress.silent_for() >= SILENCE_S:
                self._progress.say(self._doing())

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self._thread.join()


def run_visible(
    progress: Progress,
    what: str,
    argv: Sequence[str],
    *,
    env: dict[str, str] | None = None,
    keep: Callable[[str], bool] = lambda line: True,
) -> None:
    """Run a command, show those lines of its output that keep() accepts, and beat in between.

    PodError with the last lines when it fails.
    """
    lines: list[str] = []
    with (
        progress.during(lambda: f"{what}: at work ({(lines or ['no output yet'])[-1][:100]})"),
        subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        for raw in process.stdout or ():
            line = raw.rstrip()
            if not line:
                continue
            lines = [*lines[-30:], line]
            if keep(line):
                progress.say(f"{what}: {line[:160]}")
    if process.returncode:
        tail = "\n  ".join(lines[-15:])
        raise PodError(f"{what} failed (exit status {process.returncode}):\n  {tail}")
