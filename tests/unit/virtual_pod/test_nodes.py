# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .conftest import FOLDER, podlib

layout = podlib("layout")
host = podlib("host")
nodes = podlib("nodes")

POD = layout.Pod("demo", "10.77.0.0/24", layout.default_nodes("10.77.0.0/24", "trixie", 1))
HEAD, LOGIN, DGX = POD.nodes


def found(state, node=HEAD, spec=None):
    return nodes.Container(
        "id", node.name, f"demo-{node.name}", state, spec or nodes.node_spec(node), "i", "/c"
    )


@pytest.mark.parametrize(
    ("state", "action"),
    [
        ("running", "keep"),
        ("exited", "start"),
        ("stopped", "start"),
        ("created", "make"),
        ("configured", "make"),
        ("initialized", "make"),
        ("removing", "make"),
        ("paused", "make"),
        ("unknown", "make"),
    ],
)
def test_only_whole_containers_are_used_again(state, action):
    assert nodes.action_for(HEAD, found(state)) == action


def test_a_host_without_podman_has_no_nodes(monkeypatch, tmp_path):
    monkeypatch.setattr(host, "PODMAN", tmp_path / "podman")
    monkeypatch.setattr(nodes.machines, "found", lambda _name: [])
    monkeypatch.setattr(host, "podman", lambda *_args: pytest.fail("podman was called"))
    assert nodes.containers() == []


def test_missing_node_is_made():
    assert nodes.action_for(HEAD, None) == "make"


@pytest.mark.parametrize(
    "other",
    [
        layout.Node(HEAD.name, "10.77.0.99", "trixie"),
        layout.Node(HEAD.name, HEAD.ip, "bookworm"),
        layout.Node(HEAD.name, HEAD.ip, "trixie", bare=True),
    ],
)
@pytest.mark.parametrize("state", ["running", "exited"])
def test_node_that_is_another_one_is_not_replaced_behind_the_users_back(other, state):
    with pytest.raises(layout.PodError, match="remove it first: pod down head-01"):
        nodes.action_for(other, found(state))


def test_half_made_node_of_another_kind_is_simply_made_again():
    assert nodes.action_for(HEAD, found("created", spec='{"ip": "10.77.0.9"}')) == "make"


def run_argv(node, mounts=None):
    return nodes.run_argv(POD, node, "image", mounts or {}, "ssh-ed25519 KEY")


def test_no_node_is_privileged_or_may_touch_the_hosts_clock_and_modules():
    for node in POD.nodes:
        argv = run_argv(node)
        assert "--privileged" not in argv
        assert {"--cap-drop=SYS_TIME", "--cap-drop=SYS_MODULE", "--cap-drop=SYS_RAWIO"} < set(argv)


def test_only_dgx_nodes_get_gpus():
    rule = "--device-cgroup-rule=c 195:* rwm"
    assert rule in run_argv(DGX)
    assert rule not in run_argv(HEAD)
    assert run_argv(DGX)[-3:] == ["ssh-ed25519 KEY", "0", "1"]
    assert run_argv(HEAD)[-3:] == ["ssh-ed25519 KEY", "0", "0"]


def test_bare_node_gets_no_key():
    bare = layout.Node("fresh", "10.77.0.9", "trixie", bare=True)
    assert run_argv(bare)[-3:] == ["", "1", "0"]


def test_cgroup_folders_and_the_shared_folder_are_mounted():
    argv = run_argv(DGX, {"/run/x/freezer": "/cgv1/freezer"})
    assert "type=bind,src=/run/x/freezer,dst=/cgv1/freezer" in argv
    assert f"type=bind,src={nodes.state_folder('demo')}/shared,dst=/shared" in argv


def test_ssh_config_is_understood_by_ssh(tmp_path):
    config = tmp_path / "ssh_config"
    config.write_text(nodes.ssh_config(POD, Path("/a folder/demo")))
    done = subprocess.run(
        ["ssh", "-F", config, "-G", "dgx-01"], capture_output=True, text=True, check=True
    )
    answers = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if " " in line)
    assert answers["hostname"] == "10.77.0.101"
    assert answers["user"] == "root"
    assert answers["identityfile"] == "/a folder/demo/id"
    assert answers["stricthostkeychecking"] in ("no", "false")


@pytest.mark.parametrize("script", ["node-boot.sh", "image-hook.sh"])
def test_scripts_are_posix_shell(script):
    subprocess.run(["sh", "-n", FOLDER / script], check=True)


def _container(state, checkout):
    return nodes.Container("i", "dgx-01", "demo-dgx-01", state, "{}", "", str(checkout))


def test_only_a_running_pod_of_an_existing_other_checkout_is_refused(tmp_path):
    ours, gone = host.CHECKOUT, tmp_path / "gone"
    nodes._refuse_foreign("demo", [_container("running", ours), _container("running", gone)])
    nodes._refuse_foreign("demo", [_container("dead", tmp_path)])
    with pytest.raises(layout.PodError, match=f"another checkout runs .{tmp_path}.*--force"):
        nodes._refuse_foreign("demo", [_container("running", tmp_path)])


@pytest.mark.parametrize(("named", "is_kept"), [([], False), (["head-01"], True)])
def test_the_note_on_the_queue_goes_with_the_whole_pod(tmp_path, monkeypatch, named, is_kept):
    """The next pod's primary has no queue, and would be refused; a lost head must be noticed."""
    note = tmp_path / "inventory/.dgx/slurm_controller.json"
    note.parent.mkdir(parents=True)
    note.write_text('{"primary": "head-01"}')
    monkeypatch.setattr(host, "RUN", tmp_path / "run")
    monkeypatch.setattr(host, "podman", lambda *_words, **_options: None)
    monkeypatch.setattr(nodes, "state_folder", lambda _name: tmp_path)
    monkeypatch.setattr(nodes, "known_pod", lambda _name: None)
    monkeypatch.setattr(nodes, "containers", lambda *_name: [])
    monkeypatch.setattr(nodes.leftovers, "wait_for_survivors", lambda *_words: None)
    monkeypatch.setattr(nodes.leftovers, "clean", lambda _pod: None)
    monkeypatch.setattr(nodes.cache, "stop_relay", lambda _name: False)
    monkeypatch.setattr(nodes.cache, "stop_cache", lambda: False)
    monkeypatch.setattr(nodes.network, "drop_bridge", lambda _name: False)
    nodes.down(nodes.Progress("pod demo"), "demo", named, purge=False)
    assert note.exists() is is_kept


def test_podman_is_not_believed_that_a_container_runs(monkeypatch):
    labels = {"baremetal.dgx.node": "dgx-01"}
    listed = [
        {"Id": i, "Labels": labels, "Names": [i], "State": s, "Image": ""}
        for i, s in (("alive", "running"), ("lost", "running"), ("stopped", "exited"))
    ]
    monkeypatch.setattr(host, "podman_json", lambda *_: listed)
    monkeypatch.setattr(nodes.machines, "found", lambda _name: [])
    monkeypatch.setattr(nodes.leftovers, "monitored", lambda: {"alive"})
    states = {c.identity: c.state for c in nodes.containers()}
    assert states == {"alive": "running", "lost": "dead", "stopped": "exited"}
