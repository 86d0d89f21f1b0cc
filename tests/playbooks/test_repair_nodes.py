# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""repair_nodes as a whole, on a scontrol and commands of the test's own, with the shipped gate."""

from __future__ import annotations

import contextlib
import json
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from redfish_server import PASSWORD
from ticket_receiver import KEY, Receiver

sys.path.insert(0, str(Path(__file__).parent))

from test_power import Machines
from test_upgrade_nodes import NODES, PROVE, SCONTROL, Site

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import utc_text
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import (
    FAILED,
    write_reason,
)

NODE = "dgx-03"
REASON = write_reason(NODE, FAILED, "gpu3 xid: Xid 48")
GATE = {"cluster_gate": {"enabled": True, "share": 0.5}}
# What the node's commands do is noted. A reset repairs what the test says it does.
COMMANDS = {
    "nvidia-smi": (
        'echo "$0 $*" | sed "s,.*/,," >> {folder}/acts\n'
        "if [ $1 = --gpu-reset ] && [ -e {folder}/reset-helps ]; then rm -f {folder}/bad-*; fi\n"
        "! test -e {folder}/smi-fails"
    ),
    "systemctl": 'case "$*" in *is-active*) exit 3;; esac',
    "modprobe": 'echo "modprobe $*" >> {folder}/acts',
    "dmesg": "echo NVRM: Xid 48",
    "lspci": "echo 3D controller",
}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    # The gate lets in by UNDRAIN.
    scontrol = SCONTROL.replace('== "RESUME"', 'in ("RESUME", "UNDRAIN")')
    scontrol = scontrol.replace(
        "for name, (state, reason) in nodes.items():",
        "for name, (state, reason) in nodes.items():\n"
        "        if words[3:] and name not in words[3].split(','):\n"
        "            continue",
    )
    files = {"scontrol": scontrol.format(python=sys.executable, folder=tmp_path)}
    files |= {
        name: "#!/bin/sh\n" + text.replace("{folder}", str(tmp_path)) + "\n"
        for name, text in COMMANDS.items()
    }
    for name, text in files.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    # As validate_nodes: a finding fails no play, and it takes a second at least.
    wait = {"ansible.builtin.command": {"argv": ["sleep", "1.1"]}, "changed_when": False}
    play = {**PROVE[0], "tasks": [wait, PROVE[0]["tasks"][0]]}
    (tmp_path / "prove.yml").write_text(yaml.safe_dump([play]))
    made.set_slurm({**made.slurm, NODE: ["IDLE+DRAIN", REASON]})
    (tmp_path / f"bad-{NODE}").touch()
    for name in NODES:
        record = {
            "check": "gpu.xid", "subject": f"gpu:{name}/3", "at": utc_text(), "text": "Xid 48",
            "status": "fail" if name == NODE else "pass", "remedy": "reset the GPU",
        }  # fmt: skip
        (made.state / f"nodes/{name}.json").write_text(
            json.dumps({"version": 1, "node": name, "level": "standard", "records": [record]})
        )
    return made


def run(
    site: Site,
    *arguments: str,
    steps: tuple[str, ...] = ("reset_gpu",),
    hooks: Sequence[object] = (),
    **more: object,
) -> tuple[int, str]:
    given = {
        "repair_validate": str(site.folder / "prove.yml"),
        "cluster_repair": {"steps": list(steps), "hooks": list(hooks)},
        "repair_lock_folder": str(site.folder / "locks"), **GATE, **more,
    }  # fmt: skip
    return site.run(*arguments, playbook="repair_nodes", **given)


def events(site: Site) -> list[tuple[str, str]]:
    book = site.state / "incidents/incidents.jsonl"
    lines = [json.loads(line) for line in book.read_text().splitlines()]
    return [(line["what"], line["step"]) for line in lines]


def acts(site: Site) -> list[str]:
    path = site.folder / "acts"
    return (
        [line for line in path.read_text().splitlines() if "reset" in line] if path.exists() else []
    )


def test_a_power_cycle_is_the_bmcs_and_the_node_is_reserved(site: Site) -> None:
    with contextlib.ExitStack() as stack:
        machines = Machines(site, stack)
        # What the cycle repairs.
        (site.folder / f"bad-{NODE}").unlink()
        rc, said = run(site, steps=("power_cycle",), power_soft_s=1)
    assert rc == 0, said
    assert machines.bmcs[NODE].acts == ["GracefulShutdown", "On"]
    assert all(not bmc.log for name, bmc in machines.bmcs.items() if name != NODE)
    assert machines.holds == [f"create {NODE}", "delete "]
    assert site.slurm[NODE] == ["IDLE", ""]
    assert events(site) == [
        ("opened", ""), ("begun", "power_cycle"), ("ended", "power_cycle"), ("closed", "")
    ]  # fmt: skip
    assert PASSWORD not in said


def test_a_fault_is_repaired_and_the_gate_lets_the_node_in(site: Site) -> None:
    (site.folder / "reset-helps").touch()
    rc, said = run(site, "--check")
    assert rc == 0, said
    assert f"{NODE}: reset_gpu: gpu.xid: Xid 48" in said
    assert acts(site) == []
    assert not (site.state / "incidents").exists()
    with Receiver(site.folder) as receiver:
        hook = {"name": "tracker", "kind": "webhook", "timeout_s": 5, "url": receiver.url,
                "secret_file": str(receiver.secret)}  # fmt: skip
        # A new hook gets no ticket of what is over.
        begun = {"hook": "tracker", "what": "begun", "key": "", "at": 0}
        (site.state / "incidents").mkdir()
        (site.state / "incidents/tickets.jsonl").write_text(json.dumps(begun) + "\n")
        rc, said = run(site, hooks=[hook], repair_metrics_file=str(site.folder / "dgx.prom"))
    assert rc == 0, said
    # One run opens and ends the incident.
    assert [key.rpartition("/")[2] for key, _body in receiver.requests] == ["opened", "closed"]
    assert KEY not in said
    assert 'incident_closed_total{how="back"} 1' in (site.folder / "dgx.prom").read_text()
    assert acts(site) == ["nvidia-smi --gpu-reset"]
    assert site.slurm[NODE] == ["IDLE", ""]
    assert events(site) == [
        ("opened", ""), ("begun", "reset_gpu"), ("ended", "reset_gpu"), ("closed", "")
    ]  # fmt: skip
    assert f"{NODE}: back" in said
    (incident,) = json.loads((site.state / "incidents/incidents.json").read_text())["incidents"]
    assert (incident["node"], incident["state"], incident["action"]) == (NODE, "closed", "back")
    assert incident["actions"][0]["outcome"] == "done"
    fleet = json.loads((site.state / "incidents/fleet.json").read_text())
    assert fleet["summary"]["delivered"] == len(NODES)
    folder = site.state / "incidents" / incident["ticket_id"]
    with tarfile.open(folder / "reset_gpu.tar.gz") as archive:
        assert {"kernel.log", "gpus.txt", "pci.txt"} <= set(archive.getnames())
    # Nothing is out any more, and nothing is done.
    before = events(site)
    rc, said = run(site)
    assert rc == 0, said
    assert (events(site), acts(site)) == (before, ["nvidia-smi --gpu-reset"])


def test_a_step_that_does_not_help_is_not_repeated(site: Site) -> None:
    rc, said = run(site)
    assert rc == 0, said
    assert site.slurm[NODE][0] == "IDLE+DRAIN"
    assert "reboot is next and not done (cluster_repair.steps lacks it)" in said
    rc, said = run(site)
    assert rc == 0, said
    assert acts(site) == ["nvidia-smi --gpu-reset"]
    assert events(site)[-1][0] == "person"


def test_a_step_that_fails_is_noted_and_the_node_is_asked_all_the_same(site: Site) -> None:
    (site.folder / "smi-fails").touch()
    rc, said = run(site)
    assert rc == 0, said
    book = [
        json.loads(line)
        for line in (site.state / "incidents/incidents.jsonl").read_text().splitlines()
    ]
    assert [line["text"] for line in book if line["what"] == "ended"] == ["failed"]
    assert site.slurm[NODE][0] == "IDLE+DRAIN"


def test_nothing_is_done_without_consent_or_under_a_job(site: Site) -> None:
    rc, said = run(site, steps=())
    assert rc == 0, said
    assert "reset_gpu is next and not done" in said
    site.set_slurm({**site.slurm, NODE: ["MIXED+DRAIN", REASON]})
    rc, said = run(site, steps=("reset_gpu", "reboot"))
    assert rc == 0, said
    assert f"{NODE} waits: its jobs end first" in said
    assert acts(site) == []


def test_what_an_operator_drained_is_the_operators(site: Site) -> None:
    site.set_slurm({**site.slurm, NODE: ["IDLE+DRAIN", "fans, alice"]})
    rc, said = run(site)
    assert rc == 0, said
    assert acts(site) == []
    assert not (site.state / "incidents/incidents.jsonl").exists()


def test_without_the_gate_nothing_would_let_a_node_in(site: Site) -> None:
    rc, said = run(site, cluster_gate={"enabled": False})
    assert rc != 0
    assert "cluster_gate.enabled: is false, and nothing would let a repaired node in" in said
    assert acts(site) == []
