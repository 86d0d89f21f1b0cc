# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cleans up after runs that were killed, with or without the podman processes they had started."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import signal
from collections.abc import Iterable, Mapping, Sequence

from podlib import host
from podlib.layout import Pod
from podlib.progress import Progress


def clean(pod: Pod) -> None:
    """Remove what belongs to the pod but to no container that podman knows."""
    # The processes first: a container that is made in between is then known, not an orphan.
    lines = _command_lines()
    listed = host.podman_json("ps", "-a", "--external", "--format", "json") or []
    for identity in orphans(lines.values(), pod.name, {c["Id"] for c in listed}):
        end_monitor(identity, lines)
    ours = {pod.container(n.name) for n in pod.nodes}
    for container in listed:
        names = container.get("Names") or [""]
        # Only in the store: podman died before it had noted the container.
        if names[0] in ours and not (container.get("Labels") or {}):
            host.podman("rm", "-f", container["Id"], check=False)
            host.drop_v1_folders(names[0])
    for name in ours - {(c.get("Names") or [""])[0] for c in listed}:
        host.drop_v1_folders(name)


def monitored(processes: Iterable[Sequence[str]] | None = None) -> set[str]:
    """Return the ids of the containers that live: each has a monitor for as long as it does."""
    lines = _command_lines().values() if processes is None else processes
    options = [dict(itertools.pairwise(a)) for a in lines if _is_program(a, "conmon")]
    return {o["-c"] for o in options if "-c" in o}


def orphans(processes: Iterable[Sequence[str]], pod_name: str, known: set[str]) -> list[str]:
    """Return the ids of a pod's containers that have a monitor but that podman does not know.

    `processes` are command lines; podman's monitor has the container's id as -c, its name as -n.
    """
    found = []
    for argv in processes:
        if not _is_program(argv, "conmon"):
            continue
        options = dict(itertools.pairwise(argv))
        identity, name = options.get("-c", ""), options.get("-n", "")
        if name.startswith(f"{pod_name}-") and identity and identity not in known:
            found.append(identity)
    return found


def survivors(processes: Iterable[Sequence[str]], pod_name: str) -> list[str]:
    """Return the names of the pod's containers that a podman process is still starting."""
    found = []
    for argv in processes:
        if _is_program(argv, "podman") and "run" in argv and "-d" in argv:
            name = dict(itertools.pairwise(argv)).get("--name", "")
            if name.startswith(f"{pod_name}-"):
                found.append(name)
    return found


def wait_for_survivors(progress: Progress, pod: Pod) -> None:
    """Let the podman processes of a killed run finish: what they make is whole."""
    with progress.during(lambda: "waiting for podman processes of a killed run"):
        host.wait_until(
            "podman processes of a killed run ended",
            lambda: not survivors(_command_lines().values(), pod.name),
            120,
        )


def end_monitor(identity: str, lines: Mapping[int, Sequence[str]] | None = None) -> None:
    """Kill a container's monitor and its first process, and let the runtime forget it."""
    found = False
    for pid, argv in (lines or _command_lines()).items():
        if identity in argv and _is_program(argv, "conmon"):
            found = True
            _kill_with_children(pid)
    if found:
        argv = [*host.namespace_prefix(), host.runtime(), "delete", "--force", identity]
        host.ask(argv)


def _is_program(argv: Sequence[str], name: str) -> bool:
    return bool(argv) and os.path.basename(argv[0]) == name


def _command_lines() -> dict[int, list[str]]:
    lines = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines[int(path.parent.name)] = path.read_text(errors="replace").split("\0")
    return lines


def _kill_with_children(pid: int) -> None:
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    pids = [pid]
    with contextlib.suppress(OSError):
        pids += [int(child) for child in children.read_text().split()]
    for each in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
