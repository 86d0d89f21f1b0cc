# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node does with a request, in a folder of the test's own."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core import lock
from ansible_collections.baremetal.dgx.plugins.module_utils._core.files import Folder
from ansible_collections.baremetal.dgx.plugins.module_utils._core.program import archive
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    TIMED_OUT,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._local import apply
from ansible_collections.baremetal.dgx.plugins.module_utils._local.apply import answer
from ansible_collections.baremetal.dgx.plugins.plugin_utils._apply.start import start
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.way import Way
from ansible_collections.baremetal.dgx.plugins.plugin_utils._programs import program

RUNTIME = archive({"manifest.json": '{"ansible_core": "2.19.0", "python": [3, 8]}'}, "pass\n")
FILES = {"plan/hosts": "192.0.2.1 dgx-01\n", "plan/slurm/slurm.conf": "ClusterName=x\n"}
VALUES = json.dumps({"inventory": "all: {}\n", "files": FILES}).encode()
TOLD = {"ok": 3, "changed": 1, "skipped": 0, "changes": ["x"], "failed": []}


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "locks").mkdir(mode=0o700)
    monkeypatch.setattr(lock, "_folder", lambda: str(tmp_path / "locks"))
    # The roles get none of the caller's settings; other tests keep them.
    monkeypatch.setattr(os, "environ", {**os.environ, "ANSIBLE_CALLER": "1"})


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def request(
    sent: Sequence[str] = (),
    cut: int | None = None,
    runtime: bytes = RUNTIME,
    values: bytes = VALUES,
    **reported: Any,
) -> io.BytesIO:
    parts = {"runtime": runtime, "values": values}
    head = {
        "digests": {name: digest(data) for name, data in parts.items()},
        "sizes": {name: len(parts[name]) for name in sent},
        "check": False,
        "limit_s": 9.0,
        "wait_s": 0.0,
        **reported,
    }
    data = json.dumps(head).encode() + b"\n" + b"".join(parts[name] for name in sent)
    return io.BytesIO(data[:cut])


class Player:
    """Plays ansible-playbook, and keeps how it was called and what it found."""

    def __init__(self, out: str = json.dumps(TOLD), rc: int = 0, outcome: str = ENDED) -> None:
        self.ended = CommandResult(("x",), outcome, rc, out, "", 7.0)
        self.argv: list[str] = []
        self.found: dict[str, str] = {}
        self.modes: set[int] = set()

    def __call__(
        self, argv: Sequence[str], timeout_s: float = 0, env: Mapping[str, str] | None = None
    ) -> CommandResult:
        self.argv, self.limit, self.env = list(argv), timeout_s, dict(env or {})
        folder = Path(argv[argv.index("-i") + 1]).parent
        for path in [folder / "inventory.yml", *(folder / "state").rglob("*")]:
            if path.is_file():
                self.found[str(path.relative_to(folder))] = path.read_text()
                self.modes.add(stat.S_IMODE(path.stat().st_mode))
        return self.ended


def test_what_is_lacking_is_asked_for_and_sent_once(tmp_path: Path) -> None:
    place, player = str(tmp_path / "apply"), Player()
    assert answer(request(), place, player) == {"lacks": ["runtime", "values"]}
    assert answer(request(["runtime"]), place, player) == {"lacks": ["values"]}
    assert player.argv == []
    assert answer(request(["values"]), place, player) == {"ran": TOLD}
    assert answer(request(), place, player) == {"ran": TOLD}


def test_the_roles_run_with_the_values_and_nothing_is_left(tmp_path: Path) -> None:
    place, player = tmp_path / "apply", Player()
    answer(request(["runtime", "values"], check=True), str(place), player)
    runtime = str(place / f"runtime-{digest(RUNTIME)[:16]}")
    assert player.argv[:3] == [sys.executable, "-IS", runtime]
    assert "--check" in player.argv
    assert player.argv[-1].startswith(runtime)
    assert player.limit == 9.0
    assert player.env["ANSIBLE_CONFIG"] == f"{runtime}/ansible.cfg"
    files = {f"state/{name}": text for name, text in FILES.items()}
    assert player.found == {"inventory.yml": "all: {}\n", **files}
    assert player.modes == {0o600}
    assert sorted(path.name for path in place.iterdir()) == [
        Path(runtime).name, "values.json",
    ]  # fmt: skip
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE((place / "values.json").stat().st_mode) == 0o600


def test_another_runtime_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    place = tmp_path / "apply"
    answer(request(["runtime", "values"]), str(place), Player())
    (place / "runtime-killed.new").mkdir()
    other = archive({"manifest.json": '{"ansible_core": "2.20.0", "python": [3, 8]}'}, "pass\n")
    assert answer(request(["runtime"], runtime=other), str(place), Player()) == {"ran": TOLD}
    assert [path.name for path in place.glob("runtime-*")] == [f"runtime-{digest(other)[:16]}"]


def test_a_runtime_that_has_lost_files_is_asked_for_again(tmp_path: Path) -> None:
    """As after a power failure: the name is there, and a file is empty."""
    place, player = tmp_path / "apply", Player()
    answer(request(["runtime", "values"]), str(place), player)
    (runtime,) = place.glob("runtime-*")
    (runtime / "manifest.json").write_bytes(b"")
    assert answer(request(), str(place), player) == {"lacks": ["runtime"]}
    assert answer(request(["runtime"]), str(place), player) == {"ran": TOLD}
    # Only the run itself shows that the program is empty.
    (runtime / "__main__.py").write_bytes(b"")
    assert "the roles gave no answer" in answer(request(), str(place))["why"]
    assert answer(request(), str(place), player) == {"lacks": ["runtime"]}
    assert answer(request(["runtime"]), str(place), player) == {"ran": TOLD}


def test_a_runtime_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    synced = apply._sync_disk

    def sync(folder: Folder) -> None:
        seen.append(folder.names())
        synced(folder)

    monkeypatch.setattr(apply, "_sync_disk", sync)
    answer(request(["runtime", "values"]), str(tmp_path / "apply"), Player())
    assert seen == [[f"runtime-{digest(RUNTIME)[:16]}.new"]]


def test_values_that_were_changed_on_the_node_are_asked_for_again(tmp_path: Path) -> None:
    place = tmp_path / "apply"
    answer(request(["runtime", "values"]), str(place), Player())
    (place / "values.json").write_text("{}")
    assert answer(request(), str(place), Player()) == {"lacks": ["values"]}


@pytest.mark.parametrize("cut", [0, 20, -1, -200])
def test_a_torn_request_changes_nothing(tmp_path: Path, cut: int) -> None:
    place, player = tmp_path / "apply", Player()
    reported = answer(request(["runtime", "values"], cut=cut), str(place), player)
    assert "the request arrived in part" in reported["why"]
    assert reported["unmeasured"]
    assert not place.exists()
    assert player.argv == []


def test_a_path_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    values = json.dumps({"inventory": "", "files": {"../x": "y"}}).encode()
    sent = request(["runtime", "values"], values=values)
    reported = answer(sent, str(tmp_path / "apply"), Player())
    assert reported == {"why": "../x is not a path below state"}
    assert not (tmp_path / "apply/x").exists()


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "apply").mkdir(mode=0o777)
    os.chmod(tmp_path / "apply", 0o777)
    reported = answer(request(["runtime", "values"]), str(tmp_path / "apply"), Player())
    assert "has mode 0777" in reported["why"]


def test_an_old_python_is_named(tmp_path: Path) -> None:
    new = archive({"manifest.json": '{"ansible_core": "2.99.0", "python": [9, 1]}'}, "pass\n")
    player = Player()
    reported = answer(request(["runtime", "values"], runtime=new), str(tmp_path / "a"), player)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert reported["why"].startswith(
        f"Python {here} is on the node, and ansible-core 2.99.0 needs 9.1"
    )
    assert player.argv == []


@pytest.mark.parametrize(
    ("player", "message"),
    [
        (Player(out="Traceback\n", rc=1), "the roles gave no answer"),
        (Player(out="", rc=-1, outcome=TIMED_OUT), "did not end within 7 s"),
        (Player(rc=4), "ended with 4"),
    ],
)
def test_a_run_without_an_answer_is_named(tmp_path: Path, player: Player, message: str) -> None:
    reported = answer(request(["runtime", "values"]), str(tmp_path / "apply"), player)
    assert message in reported["why"]
    # Roles that were cut off have neither passed nor failed.
    assert reported.get("unmeasured", False) == (player.ended.outcome == TIMED_OUT)


def test_a_failed_task_is_told(tmp_path: Path) -> None:
    result = {**TOLD, "failed": [{"task": "Start slurmd", "msg": "it is dead"}]}
    player = Player(out="noise\n" + json.dumps(result) + "\n", rc=2)
    assert answer(request(["runtime", "values"]), str(tmp_path / "a"), player) == {"ran": result}


def test_two_at_once_are_one_and_a_busy_one(tmp_path: Path) -> None:
    place = str(tmp_path / "apply")
    inner: list[dict[str, Any]] = []

    class Busy(Player):
        def __call__(self, *arguments: Any, **options: Any) -> CommandResult:
            # Another process: the lock is the process's.
            pid = os.fork()
            if pid == 0:
                busy = "busy" in answer(request(), place, Player())
                os._exit(0 if busy else 1)
            inner.append({"status": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])})
            return super().__call__(*arguments, **options)

    assert answer(request(["runtime", "values"]), place, Busy()) == {"ran": TOLD}
    assert inner == [{"status": 0}]


def test_roles_that_outlive_their_program_keep_the_lock(tmp_path: Path) -> None:
    place, begun = str(tmp_path / "apply"), tmp_path / "begun"
    slow = f"import os, time\nopen({str(begun)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    runtime = archive({"manifest.json": '{"ansible_core": "2.19.0", "python": [3, 8]}'}, slow)
    program = os.fork()
    if program == 0:
        answer(request(["runtime", "values"], runtime=runtime, limit_s=60.0), place)
        os._exit(0)
    until = time.monotonic() + 30
    while not (begun.exists() and begun.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(program, signal.SIGKILL)
    os.waitpid(program, 0)
    assert "busy" in answer(request(runtime=runtime), place, Player())
    os.kill(int(begun.read_text()), signal.SIGKILL)
    assert answer(request(runtime=runtime, wait_s=10.0), place, Player()) == {"ran": TOLD}


def test_the_program_runs_from_standard_input() -> None:
    """As ssh starts it: a request that is torn is answered by one line of JSON."""
    data = program("node-apply")
    given = b"%d\n" % len(data) + data + b"{"
    here = start(Way((), "", (), sys.executable))
    done = subprocess.run(here, input=given, capture_output=True, check=True)
    assert "arrived in part" in json.loads(done.stdout)["why"], done.stderr
