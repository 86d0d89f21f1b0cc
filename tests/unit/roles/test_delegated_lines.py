# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person reads in the lines of delegated tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from wiring import ROOT, example


def test_a_delegated_task_shows_the_address_of_the_other_host_and_no_template(
    tmp_path: Path,
) -> None:
    inventory = example(tmp_path, "minimal")
    play = {
        "name": "Delegate",
        "hosts": "dgx-01",
        "gather_facts": False,
        "tasks": [
            {"name": "Speak", "ansible.builtin.debug": {"msg": "x"}, "delegate_to": "head-01"}
        ],
    }
    book = tmp_path / "play.yml"
    book.write_text(json.dumps([{"import_playbook": "baremetal.dgx.check_inventory"}, play]))
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            f"--inventory={inventory}",
            str(book),
        ],
        env={
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_HOME": str(tmp_path / "home"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache/collections"),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok: [dgx-01 -> head-01(10.3.0.11)] =>" in done.stdout
    assert "{{" not in done.stdout
