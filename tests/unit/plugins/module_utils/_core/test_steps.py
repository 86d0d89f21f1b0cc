# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of jobs among the processes of a host."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.steps import running_steps, titles


def test_running_steps():
    found = [
        "slurmstepd: [4711.batch]",
        "slurmstepd: [4711.extern]",
        "/usr/sbin/slurmstepd infinity",
        "slurmstepd infinity",
        "/usr/sbin/slurmd --systemd",
    ]
    assert running_steps(found) == ["4711.batch", "4711.extern"]


@pytest.mark.parametrize(("uids", "counts"), [
    ((65534, 65534), False),
    # A program of the user that is set-uid, and a step that acts as its job's user.
    ((65534, 0), False), ((0, 65534), True), ((0, 0), True),
])  # fmt: skip
def test_a_title_that_a_user_has_given_to_a_process_is_no_step(as_user, uids, counts):
    assert as_user
    real, effective = uids
    title = f"slurmstepd: [{os.getpid()}.{real}-{effective}]"
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        # The kernel names a process by the file that it runs.
        sleep = Path(folder, "slurmstepd")
        sleep.symlink_to("/bin/sleep")
        child = os.fork()
        if not child:
            try:
                os.setresuid(real, effective, 0)
                os.execv(sleep, [title, "60"])
            finally:
                os._exit(1)
        try:
            until = time.monotonic() + 10
            while not Path(f"/proc/{child}/cmdline").read_text().startswith(title):
                assert time.monotonic() < until
                time.sleep(0.01)
            assert (running_steps([title])[0] in running_steps(titles())) is counts
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_the_title_of_another_process_is_not_read(tmp_path):
    """Where that process hangs in the kernel, its title does not come back."""
    for number, name in (("1", "nv-hostengine"), ("2", "slurmstepd")):
        (tmp_path / number).mkdir()
        (tmp_path / number / "cmdline").write_text(f"slurmstepd: [{number}.batch]\0")
        status = f"Name:\t{name}\nUid:\t{os.getuid()}\t0\t0\t0\n"
        (tmp_path / number / "status").write_text(status)
    assert running_steps(titles(str(tmp_path))) == ["2.batch"]
