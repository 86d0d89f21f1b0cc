# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The health program of a node: `node-health --MODE [--config FILE]`.

Exit status: 0 when nothing was measured to be broken, 10 when something was and the node is out of
service, 11 when something was and the node stays in service, 3 when the program itself is at fault,
2 for an invalid command line. --timer, which drains nothing, ends with 10 for whatever is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import syslog
import time
from typing import Any, Sequence

from .._core.files import write_atomic
from .._core.names import short_name
from .._core.record import utc_text
from .._core.run import cpu_seconds
from . import settings as s
from .events import follower_of
from .report import answer_of, checker_fault, metrics_of
from .run import FAULT, OK, look
from .settings import MODES, Settings, settings_from_data

CONFIG = "/etc/baremetal-dgx/node-health.json"
# The last word: what should have ended by itself is ended.
_GRACE_S = 1.0
_OWN_CONFIG = "config"


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="node-health", description="Is this node fit for jobs?")
    modes = parser.add_mutually_exclusive_group(required=True)
    for mode in (*MODES, s.EVENT):
        modes.add_argument(f"--{mode}", dest="mode", action="store_const", const=mode)
    modes.add_argument(
        "--check-config", dest="mode", action="store_const", const=_OWN_CONFIG,
        help="only read the configuration",
    )  # fmt: skip
    parser.add_argument("--config", default=CONFIG, metavar="FILE")
    parser.add_argument("--state-dir", default=Settings("").state_dir, metavar="FOLDER",
                        help="where a fault is reported without a configuration")  # fmt: skip
    parser.add_argument("--metrics-file", default="", metavar="FILE",
                        help="the same for the metrics; none are written without")  # fmt: skip
    return parser.parse_args(list(words))


def _say(mode: str, lines: Sequence[str]) -> None:
    """Tell the log: systemd reads our output, Slurm does not."""
    for line in lines:
        sys.stdout.write(line + "\n")
    sys.stdout.flush()
    if mode in (s.HEALTH, s.PROLOG, s.EPILOG):
        syslog.openlog("node-health")
        for line in lines:
            syslog.syslog(syslog.LOG_WARNING, line)


def _own_fault(mode: str, folder: str, metrics: str, text: str) -> int:
    """Report a fault of the program itself, whether or not there is a configuration."""
    node = short_name()
    at = utc_text()
    answer = answer_of(node, mode, at, 0.0, [checker_fault(node, text).as_data()])
    _say(mode, [f"checker: {text}"])
    reported = {os.path.join(folder, f"{mode}.json"): json.dumps(answer) + "\n"}
    if metrics and mode in (s.HEALTH, s.TIMER):
        # What the last good run has left would show until it is too old that all is well.
        reported[metrics] = metrics_of(answer, time.time(), 0.0, cpu_seconds())
    for path, content in reported.items():
        try:
            write_atomic(path, content, sync=False)
        except OSError as error:
            _say(mode, [f"checker: {path} cannot be written: {error.strerror}"])
    return FAULT


def _end(number: int, frame: Any) -> None:
    """End this process at once; what it waits for may never come."""
    del number, frame
    os._exit(FAULT)  # pylint: disable=protected-access


def main(words: Sequence[str]) -> int:
    """Do what the words say. Returns the exit status."""
    given = _arguments(words)
    mode: str = given.mode
    try:
        with open(given.config, encoding="utf-8") as handle:
            settings = settings_from_data(json.load(handle))
    except (OSError, ValueError) as error:
        text = f"{given.config}: {error}"
        return _own_fault(mode, given.state_dir, given.metrics_file, text)
    if mode == _OWN_CONFIG:
        return OK
    os.environ.update(settings.environment)
    try:
        if mode == s.EVENT:
            for _step in follower_of(settings, lambda line: _say(mode, [line])).steps():
                pass
            return FAULT
        signal.signal(signal.SIGALRM, _end)
        signal.setitimer(signal.ITIMER_REAL, MODES[mode].limit_s + _GRACE_S)
        status, lines = look(settings, mode)
    except Exception as error:  # pylint: disable=broad-exception-caught
        # An unexpected error shows nothing about the node.
        text = f"{type(error).__name__}: {error}"
        return _own_fault(mode, settings.state_dir, settings.metrics_file, text)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    _say(mode, lines)
    return status
