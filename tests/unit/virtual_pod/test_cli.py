# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os

import pytest

from .conftest import podlib

cli = podlib("cli")
nodes = podlib("nodes")
layout = podlib("layout")


@pytest.fixture
def pod(tmp_path, monkeypatch):
    monkeypatch.setattr(nodes, "STATE", tmp_path)
    made = layout.resolve(layout.Request("demo", nodes=1), None)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "pod.json").write_text(json.dumps(layout.pod_to_record(made)))
    return made


@pytest.mark.usefixtures("pod")
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["ssh", "--name", "other", "dgx-01"], "there is no pod other in this checkout"),
        (["ssh", "dgx-09"], "pod demo has no node dgx-09: head-01, login-01, dgx-01"),
        (["inventory", "--name", "../etc"], "lower-case letters"),
        (["inventory", "--nodes", "100"], "write a number from 1 to 99"),
    ],
)
def test_mistakes_get_one_line(argv, message, capsys, tmp_path):
    (tmp_path / "demo" / "id.pub").write_text("key\n")
    assert cli.main(argv) == 1
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.usefixtures("pod")
@pytest.mark.parametrize(
    ("node", "target"), [("dgx-01", "root@10.77.0.101"), ("alice@login-01", "alice@10.77.0.21")]
)
def test_ssh_goes_to_the_node_as_the_user(node, target, monkeypatch):
    calls = []
    monkeypatch.setattr(os, "execvp", lambda _program, argv: calls.append(argv))
    cli.main(["ssh", node, "srun", "--gres=gpu:8", "hostname"])
    assert calls[0][-4:] == [target, "srun", "--gres=gpu:8", "hostname"]
