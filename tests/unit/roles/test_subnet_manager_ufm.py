# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's tasks send partitions to a model of UFM's REST interface, once for all hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ufm_server import TOKEN, UfmModel, certificate, serving

GUIDS = ["0xa088c20300e4a1b0", "a088c20300e4a1b1"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate(tmp_path_factory.mktemp("tls"))


def run(folder: Path, tasks: str, inputs: dict[str, Any]) -> tuple[int, str]:
    """Run tasks of the role for two hosts and return the return code and what was printed."""
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars": {
            "ansible_python_interpreter": sys.executable,
            "subnet_manager_provider": "ufm",
            "subnet_manager_hosts": ["head-01", "head-02"],
            **inputs,
        },
        "tasks": [
            {
                "name": "Run the tasks",
                "ansible.builtin.include_role": {
                    "name": "baremetal.dgx.subnet_manager",
                    "tasks_from": tasks,
                },
            }
        ],
    }
    (folder / "play.yml").write_text(json.dumps([play]))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "head-01,head-02,", "-c",
         "local", "-v", str(folder / "play.yml")],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "ANSIBLE_LOCAL_TEMP": str(folder), "NO_COLOR": "1"},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_partitions_are_sent_once_and_verified(tmp_path: Path, files: tuple[Path, Path]) -> None:
    model = UfmModel()
    with serving(model, *files) as url:
        inputs = {
            "subnet_manager_ufm_url": url,
            "subnet_manager_ufm_token": TOKEN,
            "subnet_manager_ufm_ca_certificate": files[1].read_text(),
            "subnet_manager_partitions": [{"name": "tenant", "pkey": "0x0010", "full": GUIDS}],
        }
        code, text = run(tmp_path, "verify", inputs)
        assert (code, model.log) == (2, []), text
        code, text = run(tmp_path, "configure", inputs)
        assert code == 0, text
        assert [path for _method, path in model.log] == ["resources/pkeys/add", "resources/pkeys"]
        assert TOKEN not in text
        code, text = run(tmp_path, "configure", inputs)
        assert (code, len(model.log)) == (0, 2), text
        assert "changed=0" in text
        code, text = run(tmp_path, "verify", inputs)
        assert code == 0, text
        fewer = [{"name": "tenant", "pkey": "0x0010", "full": GUIDS[:1]}]
        code, text = run(tmp_path, "configure", {**inputs, "subnet_manager_partitions": fewer})
        assert code == 2, text
        assert "removal_allowed: false" in text
        allowed = {"subnet_manager_partition_removal_allowed": True}
        code, text = run(
            tmp_path, "configure", {**inputs, **allowed, "subnet_manager_partitions": fewer}
        )
        assert code == 0, text
        assert set(model.members("0x10")) == {GUIDS[0][2:]}
