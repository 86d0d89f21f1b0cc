# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A live pod is measured: every target answers, every panel shows something, faults raise their
alerts and clear again.

Prometheus listens on the loopback of head-01, so that it is asked there.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import panels
import pytest

from .conftest import CHECKOUT, POD, Run, on, playbook
from .test_operations import job_of_alice

HEAD = "head-01"
ENABLED = {
    "node_health_enabled": True,
    "node_exporter_enabled": True,
    "dcgm_exporter_enabled": True,
    "slurm_exporter_enabled": True,
    "fabric_exporter_enabled": True,
}
HEALTH = "/usr/local/libexec/baremetal-dgx/node-health"
CONFIG = "/etc/baremetal-dgx/node-health.json"
METRICS = "/var/lib/prometheus/node-exporter"
LIMIT_S = 120
# One call for many questions: a process in a node costs more than an answer.
ASK = """
import json, sys, urllib.parse, urllib.request
found = {}
for expr in json.load(sys.stdin):
    data = urllib.parse.urlencode({"query": expr}).encode()
    try:
        with urllib.request.urlopen("http://127.0.0.1:9090/api/v1/query", data, 20) as answer:
            found[expr] = json.load(answer)["data"]["result"]
    except OSError as error:
        found[expr] = str(error)
print(json.dumps(found))
"""


def ask(exprs: list[str]) -> dict[str, list[dict]]:
    """Return expression → samples of now."""
    script = f"cat > /run/ask.py <<'END'\n{ASK}\nEND\npython3 /run/ask.py <<'END'\n"
    done = on(HEAD, f"{script}{json.dumps(exprs)}\nEND", seconds=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict]] = json.loads(done.stdout)
    wrong = {expr: answer for expr, answer in found.items() if isinstance(answer, str)}
    assert not wrong
    return found


def firing() -> list[dict[str, str]]:
    """Return the labels of all alerts that fire, but the one that always does."""
    expr = 'ALERTS{alertstate="firing",severity!="none"}'
    return [one["metric"] for one in ask([expr])[expr]]


def received() -> list[dict[str, str]]:
    """Return the labels of the alerts that Alertmanager would tell, without those inhibited."""
    url = "http://127.0.0.1:9093/api/v2/alerts?active=true&inhibited=false&silenced=false"
    code = f"import urllib.request as u; print(u.urlopen({url!r}).read().decode())"
    done = on(HEAD, f'python3 -c "{code}"')
    return [one["labels"] for one in json.loads(done.stdout)]


def has(alert: str, **labels: str) -> bool:
    """Whether an alert with these labels fires."""
    wanted = {"alertname": alert, **labels}
    return any(wanted.items() <= one.items() for one in firing())


def wait_for(what: Callable[[], bool], seconds: float = LIMIT_S) -> float:
    """Return after how many seconds it came true."""
    begun = time.monotonic()
    while not what():
        assert time.monotonic() - begun < seconds, f"did not come true; firing: {firing()}"
        time.sleep(2)
    return time.monotonic() - begun


def pod(*arguments: str) -> None:
    """Run virtual_pod/pod."""
    subprocess.run(
        [str(CHECKOUT / "virtual_pod" / "pod"), *arguments, "--name", POD],
        check=True, stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip


def configured(name: str, **more: object) -> Run:
    done = playbook(name, "-e", json.dumps({**ENABLED, **more}), seconds=1800)
    assert done.rc == 0, done.output[-4000:]
    return done


def measure(nodes: list[str]) -> None:
    """Have every checker run now, instead of when its timer is due."""
    for node in nodes:
        on(node, f"{HEALTH} --timer")
    for part in ("slurm", "fabric"):
        on(HEAD, f"systemctl start baremetal-dgx-{part}-metrics.service", seconds=180)


@pytest.fixture(scope="module", autouse=True)
def monitored(nodes: list[str]) -> Iterator[None]:
    pod("gpus")
    pod("fabric")
    configured("configure_health")
    configured("configure_monitoring")
    for node in nodes:
        back_in_service(node)
    measure(nodes)
    yield
    pod("gpus")
    pod("fabric")


def test_a_second_run_changes_nothing() -> None:
    done = configured("configure_monitoring")
    assert set(done.changed.values()) == {0}, done.changed


def test_every_target_is_up(nodes: list[str]) -> None:
    def all_up() -> bool:
        found = ask(["up"])["up"]
        jobs = {(one["metric"]["job"], one["metric"]["instance"]) for one in found}
        assert {("node", node) for node in [*nodes, HEAD, "login-01"]} <= jobs
        assert {("dcgm", node) for node in nodes} <= jobs
        assert {("prometheus", HEAD), ("alertmanager", HEAD)} <= jobs
        return all(one["value"][1] == "1" for one in found)

    print(f"all targets up after {wait_for(all_up):.0f} s")


def test_nothing_listens_wider_than_declared() -> None:
    listening = on(HEAD, "ss -Hltn").stdout
    for port in (9090, 9093):
        assert f"127.0.0.1:{port}" in listening
        assert f"0.0.0.0:{port}" not in listening
        assert f"*:{port}" not in listening
    assert ":9094" not in listening


def test_all_is_well() -> None:
    wait_for(lambda: not [one for one in firing() if one["severity"] != "info"], 300)


@pytest.fixture
def used(nodes: list[str]) -> Iterator[None]:
    """A job that runs and one that waits for the nodes it runs on: a cluster in use."""
    jobs = [job_of_alice("sleep 900", "-N1", "--gres=gpu:2")]
    jobs.append(job_of_alice("sleep 1", f"-N{len(nodes)}", "--gres=gpu:8"))
    yield
    on(HEAD, f"scancel {' '.join(jobs)}")


@pytest.mark.usefixtures("used")
def test_every_panel_has_data() -> None:
    asked = panels.load()
    of_jobs = ("no job runs", "no job waits")

    def empty() -> list[panels.Question]:
        found = ask([one.expr for one in asked])
        return [one for one in asked if not found[one.expr]]

    def whole() -> bool:
        return not [
            one for one in empty() if one.quiet in ("", *of_jobs) and not one.missing_in_pod
        ]

    try:
        wait_for(whole, 180)
    finally:
        for one in empty():
            print(f"{one.panel}: {one.expr}: {one.quiet or one.missing_in_pod or 'NO DATA'}")


@dataclass(frozen=True)
class Fault:
    """What is done, which alert it raises, and what is done against it; NODE is the last node."""

    name: str
    alert: str
    labels: dict[str, str]
    harm: Callable[[str], object]
    repair: Callable[[str], object]


def gpu(fault: str) -> Callable[[str], object]:
    return lambda node: pod("gpus", "--fault", fault, "--node", node)


def whole(_node: str) -> None:
    pod("gpus")


def examined(before: Callable[[str], object]) -> Callable[[str], object]:
    """The same, after which the node examines itself."""

    def both(node: str) -> None:
        before(node)
        on(node, f"{HEALTH} --timer")

    return both


def script(text: str, on_head: bool = False, collect: str = "") -> Callable[[str], object]:
    """Run it on the node or on head-01; then have slurm or fabric collected."""

    def run(node: str) -> None:
        on(HEAD if on_head else node, text.replace("NODE", node), seconds=120)
        if collect:
            on(HEAD, f"systemctl start baremetal-dgx-{collect}-metrics.service", seconds=180)

    return run


def slurm(text: str) -> Callable[[str], object]:
    return script(text, on_head=True, collect="slurm")


def resume(node: str) -> None:
    on(HEAD, f"scontrol update NodeName={node} State=RESUME")
    on(HEAD, "systemctl start baremetal-dgx-slurm-metrics.service", seconds=60)


def back_in_service(node: str) -> None:
    """Take back what the node's own health program has done to it meanwhile."""
    state = "/var/lib/baremetal-dgx/node-health"
    on(node, f"rm -f {state}/state.json {state}/events.json")
    on(node, "systemctl restart baremetal-dgx-node-health-events")
    on(node, f"{HEALTH} --timer")
    resume(node)


def fabric(*arguments: str) -> Callable[[str], object]:
    def run(_node: str) -> None:
        pod("fabric", *arguments)
        on(HEAD, "systemctl start baremetal-dgx-fabric-metrics.service", seconds=180)

    return run


# As the timer starts it.
TIMED = "systemctl start baremetal-dgx-node-health.service"
RUN = "baremetal_dgx_health_run_timestamp_seconds"
OLD = f"sed -i 's/^{RUN} .*/{RUN} 1000000000/' {METRICS}/*"
FAULTS = [
    Fault("hot GPU", "GpuHot", {"gpu": "2"}, gpu("hot"), whole),
    Fault("row to remap", "GpuRemapPending", {"gpu": "3"}, gpu("ecc"), whole),
    Fault("lost GPU", "GpuMissing", {}, gpu("xid79"), whole),
    Fault("NVLink", "NvlinkDown", {}, examined(gpu("nvlink_down")), examined(whole)),
    Fault("fabric manager", "NvlinkFabricBroken", {},
          examined(gpu("fm_mismatch")), examined(whole)),
    Fault("drained node", "NodeDrained", {"owner": "node-health"},
          slurm("scontrol update NodeName=NODE State=DRAIN Reason='node-health: gpu:NODE/3 x'"),
          resume),
    Fault("node down", "NodeOutOfSlurm", {"state": "down"},
          slurm("scontrol update NodeName=NODE State=DOWN Reason='power'"), resume),
    Fault("exporter down", "ExporterDown", {"job": "dcgm"},
          script("systemctl stop nvidia-dcgm-exporter"),
          script("systemctl start nvidia-dcgm-exporter")),
    Fault("checker broken", "CheckerBroken", {},
          script(f"cp {CONFIG} {CONFIG}.whole; truncate -s 40 {CONFIG}; {TIMED}"),
          script(f"mv {CONFIG}.whole {CONFIG}; {TIMED}")),
    Fault("checker silent", "CheckerSilent", {}, script(OLD), examined(lambda _node: None)),
    Fault("torn file of metrics", "TextfileUnreadable", {},
          script(f"echo 'no metric at all' > {METRICS}/torn.prom"),
          script(f"rm {METRICS}/torn.prom")),
    Fault("controller down", "SlurmNoController", {"component": "slurm"},
          slurm("systemctl stop slurmctld"), slurm("systemctl start slurmctld; sleep 5")),
    Fault("accounting down", "SlurmDatabaseDown", {"component": "slurm"},
          slurm("systemctl stop slurmdbd"), slurm("systemctl start slurmdbd; sleep 5")),
    Fault("dead cable", "FabricCableDown", {"component": "fabric"},
          fabric("--fault", "dead_cable"), fabric()),
]  # fmt: skip
OF_THE_NODE = {
    "GpuHot", "GpuRemapPending", "GpuMissing", "NvlinkDown", "NvlinkFabricBroken", "NodeDrained",
    "NodeOutOfSlurm", "ExporterDown", "CheckerBroken", "CheckerSilent", "TextfileUnreadable",
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_raises_its_alert_and_clears(fault: Fault, nodes: list[str]) -> None:
    node = nodes[-1]
    labels = dict(fault.labels)
    if fault.alert in OF_THE_NODE:
        labels["instance"] = node
    assert not has(fault.alert, **labels)
    try:
        fault.harm(node)
        raised = wait_for(lambda: has(fault.alert, **labels))
    finally:
        fault.repair(node)
        back_in_service(node)
    cleared = wait_for(lambda: not has(fault.alert, **labels))
    print(
        f"{fault.name}: {fault.alert} after {raised:.0f} s, gone {cleared:.0f} s after the repair"
    )


def test_a_dead_leaf_silences_its_cables() -> None:
    try:
        fabric("--fault", "dead_leaf")("")
        wait_for(lambda: has("FabricSwitchDown"), 240)
        (leaf,) = {one["switch"] for one in firing() if one["alertname"] == "FabricSwitchDown"}
        wait_for(lambda: any(one["alertname"] == "FabricSwitchDown" for one in received()))
        assert not [
            one
            for one in received()
            if one.get("switch") == leaf and one["alertname"] != "FabricSwitchDown"
        ]
    finally:
        fabric()("")
    wait_for(lambda: not has("FabricSwitchDown"), 240)


def test_an_alert_tells_what_to_do(nodes: list[str]) -> None:
    url = "http://127.0.0.1:9090/api/v1/alerts"
    node = nodes[-1]
    try:
        pod("gpus", "--fault", "hot", "--node", node)
        wait_for(lambda: has("GpuHot", instance=node))
        code = f"import urllib.request as u; print(u.urlopen({url!r}).read().decode())"
        found = json.loads(on(HEAD, f'python3 -c "{code}"').stdout)["data"]["alerts"]
        (alert,) = [one for one in found if one["labels"]["alertname"] == "GpuHot"]
        assert f"of {node}" in alert["annotations"]["summary"]
        assert alert["annotations"]["look"]
        assert alert["annotations"]["do"]
    finally:
        pod("gpus")
        back_in_service(node)


def test_what_is_removed_is_gone() -> None:
    off = {"prometheus_enabled": False, "alertmanager_enabled": False, "grafana_enabled": False}
    configured("configure_monitoring", **off)
    try:
        assert "9090" not in on(HEAD, "ss -Hltn").stdout
        assert on(HEAD, "ls -d /etc/baremetal-dgx/prometheus").returncode != 0
        done = configured("configure_monitoring", **off)
        assert done.changed[HEAD] == 0
    finally:
        configured("configure_monitoring")
