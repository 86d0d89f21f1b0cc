# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""repair_nodes as a whole, on a scontrol and commands of the test's own, with the shipped gate."""

from __future__ import annotations

import contextlib
import json
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from redfish_server import PASSWORD
from ticket_server import KEY, Receiver

sys.path.insert(0, str(Path(__file__).parent))

from test_power import HOLDS, Machines
from test_upgrade_nodes import NODES, PROVE, ROOT, SCONTROL, Site

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
        "        given = [one for one in words[2:] if one != '-o']\n"
        "        if given and name not in given[0].split(','):\n"
        "            continue",
    ).replace('elif words[0] == "update":\n', HOLDS)
    (tmp_path / "reserved.json").write_text("{}")
    files = {"scontrol": scontrol.format(python=sys.executable, folder=tmp_path)}
    files |= {
        name: "#!/bin/sh\n" + text.replace("{folder}", str(tmp_path)) + "\n"
        for name, text in COMMANDS.items()
    }
    for name, text in files.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    # As validate_nodes: it takes a second at least, and what it finds fails the play or not.
    wait = {"ansible.builtin.command": {"argv": ["sleep", "1.1"]}, "changed_when": False}
    verdict = {**PROVE[0]["tasks"][1], "when": "findings_fail | default(true)"}
    play = {**PROVE[0], "tasks": [wait, PROVE[0]["tasks"][0], verdict]}
    (tmp_path / "prove.yml").write_text(yaml.safe_dump([play]))
    made.set_slurm({**made.slurm, NODE: ["IDLE+DRAIN", REASON]})
    (tmp_path / f"bad-{NODE}").touch()
    for name in NODES:
        judge(made, name, "fail" if name == NODE else "pass")
    return made


def judge(site: Site, name: str, status: str, check: str = "gpu.xid") -> None:
    """Write what a validation of the node has found just now."""
    record = {
        "check": check, "subject": f"gpu:{name}/3", "at": utc_text(), "text": "Xid 48",
        "status": status, "remedy": "reset the GPU",
    }  # fmt: skip
    (site.state / f"nodes/{name}.json").write_text(
        json.dumps({"version": 1, "node": name, "level": "standard", "records": [record]})
    )


# Stands for validate_fabric: notes whom it asks, and finds every cable where it should be.
SWEEP = [
    {
        "hosts": "{{ fabric_host }}",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.shell": {"cmd": "echo {{ fabric_nodes }} >> {{ notes }}/sweeps"}},
            {
                "ansible.builtin.command": {
                    "argv": ["sed", "-i", "s/{{ old }}/{{ new }}/g", "{{ cables }}"]
                },
                "vars": {
                    "old": "[0-9]*-[0-9]*-[0-9]*T[0-9:]*Z",
                    "new": "{{ now(utc=true, fmt='%Y-%m-%dT%H:%M:%SZ') }}",
                    "cables": "{{ cluster_state_dir }}/fabric/records.json",
                },
            },
            {
                "ansible.builtin.assert": {"that": False},
                "when": "findings_fail | default(true)",
            },
        ],
    }
]


def with_a_fabric(site: Site) -> dict[str, object]:
    """Plan an InfiniBand fabric that was swept before the drain; returns variables of the run."""
    site.plan_fabric()
    (site.folder / "sweep.yml").write_text(yaml.safe_dump(SWEEP))
    (site.state / "fabric").mkdir()
    records = [
        {"check": "fabric.cable", "subject": f"cable:{name}/rail1--leaf-01/1", "status": "pass",
         "text": "as planned", "at": "2026-11-21T08:00:00Z"}
        for name in NODES
    ]  # fmt: skip
    (site.state / "fabric/records.json").write_text(json.dumps({"records": records}))
    return {"repair_sweep": str(site.folder / "sweep.yml")}


def sweeps(site: Site) -> list[str]:
    path = site.folder / "sweeps"
    return path.read_text().splitlines() if path.exists() else []


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
        rc, output = run(site, steps=("power_cycle",), power_soft_s=1)
    assert rc == 0, output
    assert machines.bmcs[NODE].acts == ["GracefulShutdown", "On"]
    assert all(not bmc.log for name, bmc in machines.bmcs.items() if name != NODE)
    assert machines.holds == [f"create {NODE}", "delete "]
    assert site.slurm[NODE] == ["IDLE", ""]
    assert events(site) == [
        ("opened", ""), ("begun", "power_cycle"), ("ended", "power_cycle"), ("closed", "")
    ]  # fmt: skip
    assert PASSWORD not in output


# Stands for ssh and a node that hangs until its BMC switches it, for which it is held.
SSH = """#!/bin/sh
grep -qs "create {node}" {folder}/holds || {{ echo "Connection timed out" >&2; exit 255; }}
for words do :; done
exec sh -c "$words"
"""


def hang(site: Site) -> None:
    """Let ssh not reach the node."""
    ssh = site.folder / "ssh"
    ssh.write_text(SSH.format(node=NODE, folder=site.folder))
    ssh.chmod(0o755)
    path = site.folder / "hosts.yml"
    data = yaml.safe_load(path.read_text())
    hosts = data["all"]["children"]["cluster"]["children"]["gpu_nodes"]["hosts"]
    hosts[NODE] |= {
        "ansible_connection": "ssh", "ansible_ssh_executable": str(ssh),
        "ansible_pipelining": True, "ansible_ssh_retries": 0,
    }  # fmt: skip
    path.write_text(yaml.safe_dump(data))


def test_a_node_that_hangs_is_power_cycled_without_its_evidence(site: Site) -> None:
    with contextlib.ExitStack() as stack:
        machines = Machines(site, stack)
        (site.folder / f"bad-{NODE}").unlink()
        hang(site)
        rc, output = run(site, steps=("power_cycle",), power_soft_s=1)
    assert rc == 0, output
    assert machines.bmcs[NODE].acts == ["GracefulShutdown", "On"]
    assert machines.holds == [f"create {NODE}", "delete "]
    assert site.slurm[NODE] == ["IDLE", ""]
    assert events(site) == [
        ("opened", ""), ("begun", "power_cycle"), ("ended", "power_cycle"), ("closed", "")
    ]  # fmt: skip
    assert not list((site.state / "incidents").rglob("*.tar.gz"))
    assert list((site.state / "incidents").rglob("power_cycle-bmc*"))


def test_a_step_of_a_node_that_hangs_fails_with_its_end_written(site: Site) -> None:
    hang(site)
    _rc, output = run(site, steps=("reset_gpu",))
    assert "SSH does not reach the node" in output
    assert events(site)[:3] == [("opened", ""), ("begun", "reset_gpu"), ("ended", "reset_gpu")]
    assert acts(site) == []
    assert site.slurm[NODE][0] == "IDLE+DRAIN"


def test_a_node_that_is_lost_in_its_step_keeps_no_lock_and_no_ticket_back(site: Site) -> None:
    """It may be the only one, and a play that has lost all its hosts ends the playbook."""
    with site.inventory() as described:
        kept = f"find {site.state}/incidents -name reset_gpu.tar.gz"
        evidence = f"lookup('ansible.builtin.pipe', '{kept} 2> /dev/null || true')"
        described["all"]["children"]["cluster"]["children"]["gpu_nodes"]["hosts"][NODE] = {
            "ansible_host": "127.0.0.1", "ansible_port": 1,
            "ansible_connection": "{{ 'ssh' if %s else 'local' }}" % evidence,
        }  # fmt: skip
    # As validate_nodes, which reports what does not answer.
    (play,) = yaml.safe_load((site.folder / "prove.yml").read_text())
    (site.folder / "prove.yml").write_text(yaml.safe_dump([{**play, "ignore_unreachable": True}]))
    _rc, output = run(site)
    assert "reset_gpu: Check that the node was reached for the step: SSH does not" in output
    assert "TASK [Judge the steps]" in output
    assert not list((site.folder / "locks").glob("*.json"))
    lines = (site.state / "incidents/incidents.jsonl").read_text().splitlines()
    ended = [json.loads(line) for line in lines if json.loads(line)["what"] == "ended"]
    assert [(one["step"], one["text"]) for one in ended][:1] == [("reset_gpu", "failed")]
    assert site.slurm[NODE][0] == "IDLE+DRAIN"


def test_a_fault_is_repaired_and_the_gate_lets_the_node_in(site: Site) -> None:
    (site.folder / "reset-helps").touch()
    started = time.time()
    rc, output = run(site, "--check")
    assert rc == 0, output
    assert f"{NODE}: reset_gpu: gpu.xid: Xid 48" in output
    assert acts(site) == []
    assert not (site.state / "incidents").exists()
    with Receiver(site.folder) as receiver:
        hook = {"name": "tracker", "kind": "webhook", "timeout_s": 5, "url": receiver.url,
                "secret_file": str(receiver.secret)}  # fmt: skip
        # A new hook gets no ticket of what is over.
        begun = {"hook": "tracker", "what": "begun", "key": "", "at": 0}
        (site.state / "incidents").mkdir()
        (site.state / "incidents/tickets.jsonl").write_text(json.dumps(begun) + "\n")
        rc, output = run(site, hooks=[hook], repair_metrics_file=str(site.folder / "dgx.prom"))
    assert rc == 0, output
    # One run opens and ends the incident.
    assert [key.rpartition("/")[2] for key, _body in receiver.requests] == ["opened", "closed"]
    assert KEY not in output
    assert 'incident_closed_total{how="back"} 1' in (site.folder / "dgx.prom").read_text()
    assert acts(site) == ["nvidia-smi --gpu-reset"]
    assert (site.folder / "holds").read_text().splitlines() == [f"create {NODE}", "delete "]
    assert site.slurm[NODE] == ["IDLE", ""]
    assert events(site) == [
        ("opened", ""), ("begun", "reset_gpu"), ("ended", "reset_gpu"), ("closed", "")
    ]  # fmt: skip
    assert f"{NODE}: back" in output
    assert int(started) <= int(site.since(NODE)) <= time.time()
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
    rc, output = run(site, node_exporter_textfile_dir=str(site.folder))
    assert rc == 0, output
    assert (events(site), acts(site)) == (before, ["nvidia-smi --gpu-reset"])
    assert (site.folder / "baremetal_dgx_incidents.prom").is_file()


def test_a_node_is_loaded_for_what_it_fails_under_load_alone(site: Site) -> None:
    """At the gate's level a burn-in that failed is not measured; the other node needs none.

    It is back before that begins.
    """
    given = with_a_fabric(site)
    (site.folder / "reset-helps").touch()
    burned, reason = "dgx-02", write_reason("dgx-02", FAILED, "gpu3 gemm_bf16: 12 wrong")
    site.set_slurm({**site.slurm, burned: ["IDLE+DRAIN", reason]})
    judge(site, burned, "fail", "burn.gemm_bf16")
    gate = {**GATE["cluster_gate"], "level": "quick"}
    ladders = {"burn.gemm_bf16": ["reset_gpu", "return"]}
    allowed = {"steps": ["reset_gpu"], "at_once": 2, "ladders": ladders}
    rc, output = run(site, cluster_gate=gate, cluster_repair=allowed, **given)
    assert rc == 0, output
    levels = {name: json.loads((site.state / f"nodes/{name}.json").read_text())["level"]
              for name in (NODE, burned)}  # fmt: skip
    assert levels == {NODE: "quick", burned: "standard"}
    assert output.index(f"{NODE}: resume") < output.rindex(f"changed: [{burned}]")
    assert (sweeps(site), site.slurm[burned]) == (["gpu_nodes:cpu_nodes"], ["IDLE", ""])


def test_a_refusal_keeps_no_node_from_its_validation_under_load(site: Site) -> None:
    """Else it stays for good where that node alone would make the room."""
    (site.folder / "reset-helps").touch()
    burned, reason = "dgx-02", write_reason("dgx-02", FAILED, "gpu3 gemm_bf16: 12 wrong")
    site.set_slurm({**site.slurm, burned: ["IDLE+DRAIN", reason]})
    judge(site, burned, "fail", "burn.gemm_bf16")
    judge(site, "dgx-01", "fail", "gpu.ecc")
    gate = {**GATE["cluster_gate"], "level": "quick", "share": 0.25}
    ladders = {"burn.gemm_bf16": ["reset_gpu", "return"]}
    allowed = {"steps": ["reset_gpu"], "at_once": 2, "ladders": ladders}
    rc, output = run(site, cluster_gate=gate, cluster_repair=allowed)
    assert output.count("would be drained") == 1, output
    kept = json.loads((site.state / f"nodes/{burned}.json").read_text())
    assert kept["level"] == "standard", output
    assert (rc, site.slurm[burned][0]) == (0, "IDLE"), output


def test_a_node_that_is_still_held_ends_no_run_before_the_others_are_validated(site: Site) -> None:
    """A play that loses all its hosts ends the run: no gate, no ticket, and the lock is kept."""
    burned, reason = "dgx-02", write_reason("dgx-02", FAILED, "gpu3 gemm_bf16: 12 wrong")
    site.set_slurm({**site.slurm, burned: ["IDLE+DRAIN", reason]})
    judge(site, burned, "fail", "burn.gemm_bf16")
    (play,) = yaml.safe_load((site.folder / "prove.yml").read_text())
    lost = {"unreachable": True, "msg": "no route", "changed": False}
    known = {"__validate_released": lost, "__validate_hold": {"job": "77"}}
    released = {"ansible.builtin.set_fact": known, "when": f"inventory_hostname == '{NODE}'"}
    whole = yaml.safe_load((ROOT / "playbooks/validate_nodes.yml").read_text())
    (ends,) = [
        task for one in whole for task in one.get("tasks", [])
        if task["name"] == "Fail if the node is still held"
    ]  # fmt: skip
    include = {"ansible.builtin.include_tasks": str(ROOT / "playbooks/tasks/validate_held.yml")}
    play["tasks"] += [released, {**ends, **include}]
    (site.folder / "prove.yml").write_text(yaml.safe_dump([play]))
    gate = {**GATE["cluster_gate"], "level": "quick"}
    ladders = {"burn.gemm_bf16": ["reset_gpu", "return"]}
    allowed = {"steps": ["reset_gpu"], "at_once": 2, "ladders": ladders}
    rc, output = run(site, cluster_gate=gate, cluster_repair=allowed)
    assert rc != 0
    assert "77 holds the node until its time is over" in output.partition("Unlock repairs")[2]
    kept = json.loads((site.state / f"nodes/{burned}.json").read_text())
    assert kept["level"] == "standard", output


def test_a_step_that_does_not_help_is_not_repeated(site: Site) -> None:
    """The clock of the cluster is ten minutes behind that of the control machine."""
    clock = site.folder / "bin/date"
    clock.write_text("#!/bin/sh\nexec /usr/bin/date --date='-600 seconds' \"$@\"\n")
    clock.chmod(0o755)
    rc, output = run(site, behind_s=600)
    assert rc == 0, output
    assert site.slurm[NODE][0] == "IDLE+DRAIN"
    assert "reboot is next and not done (cluster_repair.steps lacks it)" in output
    rc, output = run(site, behind_s=600)
    assert rc == 0, output
    assert acts(site) == ["nvidia-smi --gpu-reset"]
    assert events(site)[-1][0] == "person"


def test_a_step_that_fails_is_noted_and_the_node_is_asked_all_the_same(site: Site) -> None:
    (site.folder / "smi-fails").touch()
    rc, output = run(site)
    assert rc == 0, output
    book = [
        json.loads(line)
        for line in (site.state / "incidents/incidents.jsonl").read_text().splitlines()
    ]
    assert [line["text"] for line in book if line["what"] == "ended"] == ["failed"]
    assert site.slurm[NODE][0] == "IDLE+DRAIN"


def test_a_step_is_taken_without_the_evidence_that_cannot_be_had(site: Site) -> None:
    """Else three runs without a step would come to the return of the part."""
    (site.folder / "reset-helps").touch()
    now = int(time.time())
    (site.folder / "bin/date").write_text(f"#!/bin/sh\necho {now}\n")
    (site.folder / "bin/date").chmod(0o755)
    # Where the folder of the incident would be.
    (site.state / "incidents").mkdir()
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    (site.state / f"incidents/{NODE}-{at}").touch()
    with contextlib.ExitStack() as stack:
        Machines(site, stack)
        rc, output = run(site)
    assert rc == 0, output
    assert "reset_gpu: Fetch the evidence: " in output
    assert "reset_gpu: Read the node's BMC: " in output
    removed = output.partition("TASK [Remove the evidence from the node]")[2]
    assert removed.lstrip(" *").startswith(f"ok: [{NODE}]")
    assert acts(site) == ["nvidia-smi --gpu-reset"]
    assert events(site)[1:] == [("begun", "reset_gpu"), ("ended", "reset_gpu"), ("closed", "")]


def test_the_fabric_is_swept_for_a_node_that_waits_for_that(site: Site) -> None:
    given = with_a_fabric(site)
    # It fails still, and no sweep would let it in.
    rc, output = run(site, **given)
    assert rc == 0, output
    assert (sweeps(site), site.slurm[NODE][0]) == ([], "IDLE+DRAIN")
    # As after a run that was killed: it passes, and nothing is due.
    judge(site, NODE, "pass")
    rc, output = run(site, **given)
    assert rc == 0, output
    assert sweeps(site) == ["gpu_nodes:cpu_nodes"]
    assert site.slurm[NODE] == ["IDLE", ""]
    assert events(site)[-1] == ("closed", "")
    rc, output = run(site, **given)
    assert (rc, len(sweeps(site))) == (0, 1)


def test_nothing_is_done_without_consent_or_under_a_job(site: Site) -> None:
    rc, output = run(site, steps=())
    assert rc == 0, output
    assert "reset_gpu is next and not done" in output
    site.set_slurm({**site.slurm, NODE: ["MIXED+DRAIN", REASON]})
    rc, output = run(site, steps=("reset_gpu", "reboot"))
    assert rc == 0, output
    assert f"{NODE} waits: its jobs end first" in output
    assert acts(site) == []
    site.set_slurm({**site.slurm, NODE: ["IDLE+DRAIN", REASON]})
    rc, output = run(site, steps=("reset_gpu",))
    assert rc == 0, output
    assert acts(site) == ["nvidia-smi --gpu-reset"]


@pytest.mark.parametrize(
    ("step", "queue", "reserved", "why"),
    [
        # Its state is that of a node without a job.
        ("reboot", f"7|alice|SUSPENDED|2026-11-21T08:00:00|{NODE}", {},
         "it has jobs: 7 (alice, SUSPENDED)"),
        # As while update_firmware writes to it.
        ("reset_gpu", "", {f"dgx-validate_ops-2_{NODE}": NODE}, "ops-2 holds it since"),
    ],
)  # fmt: skip
def test_no_step_is_taken_under_a_job_or_another_run(
    site: Site, step: str, queue: str, reserved: dict[str, str], why: str
) -> None:
    (site.folder / "bin/squeue").write_text(f"#!/bin/sh\necho '{queue}'\n")
    (site.folder / "reserved.json").write_text(json.dumps(reserved))
    rc, output = run(site, steps=(step,))
    assert rc == 0, output
    assert f"{step}: Fail if the node is not held: {why}" in output
    assert "TASK [Reboot the node]" not in output
    assert acts(site) == []
    assert json.loads((site.folder / "reserved.json").read_text()) == reserved
    # It is not one that did not help, and is still to come.
    lines = (site.state / "incidents/incidents.jsonl").read_text().splitlines()
    ended = [json.loads(line) for line in lines if json.loads(line)["what"] == "ended"]
    assert [(one["step"], one["text"]) for one in ended] == [(step, "not_measured")]


def test_a_step_that_the_operator_prevents_is_still_to_come(site: Site) -> None:
    """Minutes pass while evidence is collected."""
    path = site.folder / "bin/scontrol"
    begin = 'elif words[0] in ("create", "delete"):\n'
    taken = f'    nodes["{NODE}"] = ["IDLE+DRAIN", "fans, alice"]\n'
    kept = '    json.dump(nodes, open(path, "w"))\n'
    path.write_text(path.read_text().replace(begin, begin + taken + kept))
    rc, output = run(site)
    assert rc == 0, output
    assert "reset_gpu is not done: root has it: fans, alice" in output
    assert acts(site) == []
    lines = (site.state / "incidents/incidents.jsonl").read_text().splitlines()
    ended = [json.loads(line) for line in lines if json.loads(line)["what"] == "ended"]
    assert [(one["step"], one["text"]) for one in ended] == [("reset_gpu", "not_measured")]


def test_what_an_operator_drained_is_the_operators(site: Site) -> None:
    site.set_slurm({**site.slurm, NODE: ["IDLE+DRAIN", "fans, alice"]})
    rc, output = run(site)
    assert rc == 0, output
    assert acts(site) == []
    assert not (site.state / "incidents/incidents.jsonl").exists()


def test_without_the_gate_nothing_would_let_a_node_in(site: Site) -> None:
    rc, output = run(site, cluster_gate={"enabled": False})
    assert rc != 0
    assert "cluster_gate.enabled: is false, and nothing would let a repaired node in" in output
    assert acts(site) == []
