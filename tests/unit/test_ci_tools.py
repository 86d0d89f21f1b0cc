# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What CI brings along ends with one line where it cannot be had: no stage may go on without."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNPACK = ROOT / ".ci" / "unpack"
if not UNPACK.exists():
    pytest.skip("there is no .ci here", allow_module_level=True)


def unpack(folder: Path, apt: str | None) -> subprocess.CompletedProcess[str]:
    """Call it where `apt-get` is this script, or is missing."""
    tools = folder / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "basename", "readlink", "mktemp", "mkdir", "rm", "id", "grep",
                 "tail", "sed", "sort", "mv", "dpkg-deb"):  # fmt: skip
        (tools / name).symlink_to(f"/usr/bin/{name}")
    if apt is not None:
        (tools / "apt-get").write_text(f"#!/bin/sh\n{apt}\n")
        (tools / "apt-get").chmod(0o755)
    return subprocess.run(
        [UNPACK, folder / "root", "opensm"],
        env={**os.environ, "PATH": str(tools)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("apt", "message"),
    [
        (None, "unpack: apt-get is not here, and so opensm cannot be had"),
        ("echo 'E: no mirror' >&2; exit 100", "unpack: apt-get update: E: no mirror"),
        (
            'case "$*" in *update*) ;; *) echo "E: Unable to locate opensm"; exit 100;; esac',
            "unpack: E: Unable to locate opensm",
        ),
        (
            'case "$*" in *download*) echo "E: cut"; exit 100;; *) echo "Inst libx (1)";; esac',
            "unpack: apt-get download: E: cut",
        ),
    ],
)  # fmt: skip
def test_one_line_and_nothing_left(tmp_path: Path, apt: str | None, message: str) -> None:
    done = unpack(tmp_path, apt)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [message]
    assert [item.name for item in tmp_path.iterdir()] == ["tools"]


def test_who_waited_for_the_tools_does_not_build_them_again(tmp_path: Path) -> None:
    """Two workers ask at once; the second one removed the libraries that the first one used."""
    for name, text in {
        ".ci/unpack": 'mkdir -p "$1/usr/bin"; touch "$1/usr/bin/opensm"; sleep 1',
        "tests/fabric/get_ibsim": "echo built >> built; printf 'ibsim\\nlibumad2sim.so\\n'",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    shutil.copy(ROOT / ".ci" / "tools", tmp_path / ".ci" / "tools")
    runs = [
        subprocess.Popen(
            [tmp_path / ".ci" / "tools"],
            env={**os.environ, "PATH": "/usr/bin:/bin"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _run in range(2)
    ]
    assert [run.communicate()[0] for run in runs] == [f"{tmp_path}/.cache/tools/bin\n"] * 2
    assert [run.returncode for run in runs] == [0, 0]
    assert (tmp_path / "built").read_text() == "built\n"


EARLY = re.compile(r"\|\s*(head\b|grep -\w*[qm]|sed [^|]*\dq\b|awk [^|]*\bexit\b)")


def readers_that_leave(text: str) -> list[str]:
    """The lines of a script with pipefail whose pipe ends in a program that stops reading early."""
    return [line.strip() for line in text.splitlines() if "pipefail" in text and EARLY.search(line)]


def test_a_reader_that_leaves_early_is_found() -> None:
    """Its writer gets SIGPIPE now and then, and the script ends with 141 and no word."""
    bad = ["a=$(b | head -n 1)", "if b | grep -q x; then", "b | grep -m1 x", "b | sed 1q"]
    good = ["b | sed -n 1p", "b | grep x >/dev/null", "grep -q x file", "b | awk 'NR == 1'"]
    assert readers_that_leave("\n".join(["set -o pipefail", *bad, *good])) == bad
    assert readers_that_leave("\n".join(bad)) == []


def test_no_script_pipes_into_a_reader_that_leaves_early() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    found = {}
    for name in listed.stdout.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file() and not path.suffix:
            text = path.read_bytes()
            if text.startswith(b"#!") and b"sh" in text.splitlines()[0]:
                found[name] = readers_that_leave(text.decode())
    assert len(found) > 15
    assert {name: lines for name, lines in found.items() if lines} == {}
