# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real Prometheus and Alertmanager with the roles' files, and a target that says what we want."""

from __future__ import annotations

import http.server
import json
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_tools import RULES, tool
from role_render import render

from ansible_collections.baremetal.dgx.plugins.filter.alert_rules import alert_rules

pytestmark = pytest.mark.slow

LIMIT_S = 60
TEMPLATES = Path("/usr/share/prometheus/alertmanager")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(what: Callable[[], Any], seconds: float = LIMIT_S) -> Any:
    begun = time.monotonic()
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() - begun < seconds, "did not come true"
        time.sleep(0.3)


def alertmanager() -> list[str]:
    """The command: where Debian's is only unpacked, its templates are put in place for it alone."""
    program = tool("prometheus-alertmanager")
    templates = Path(program).with_name("templates")
    if TEMPLATES.exists() or not templates.exists():
        return [program]
    script = f"""
        exec 3< {templates}/default.tmpl 4< {templates}/email.tmpl
        mount -t tmpfs none {TEMPLATES.parents[1]} && mkdir -p {TEMPLATES} &&
        cat <&3 > {TEMPLATES}/default.tmpl && cat <&4 > {TEMPLATES}/email.tmpl && exec "$@"
    """
    apart = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("a mount namespace cannot be made here")
    return [*apart, "sh", "-c", script, "sh", program]


class Target:
    """An exporter whose page is `text`."""

    def __init__(self) -> None:
        self.text = ""
        target = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(target.text.encode())

            def log_message(self, *_arguments: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Stack:
    """Both daemons, the target, and what they say."""

    def __init__(self, folder: Path, target: Target, ports: tuple[int, int]) -> None:
        self.folder, self.target = folder, target
        self.prometheus, self.alertmanager = (f"http://127.0.0.1:{port}" for port in ports)
        self.processes: list[subprocess.Popen[bytes]] = []

    def get(self, url: str) -> Any:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)

    def started(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def answers(self, url: str) -> bool:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def firing(self) -> set[str]:
        found = self.get(f"{self.prometheus}/api/v1/alerts")["data"]["alerts"]
        return {one["labels"]["alertname"] for one in found if one["state"] == "firing"}

    def notified(self, **state: bool) -> set[str]:
        """Names of the alerts in Alertmanager that are in this state."""
        query = "&".join(f"{key}={str(value).lower()}" for key, value in state.items())
        found = self.get(f"{self.alertmanager}/api/v2/alerts?{query}")
        return {one["labels"]["alertname"] for one in found}


def rules(folder: Path, **more: Any) -> None:
    names = [path.stem for path in RULES.glob("*.yml")]
    prefix = f"{folder}/rules-"
    for path, text in alert_rules(
        names, str(RULES), wait_factor=0.001, prefix=prefix, **more
    ).items():
        Path(path).write_text(text)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack")
    target, ports = Target(), (free_port(), free_port())
    found = Stack(folder, target, ports)
    tool("prometheus")
    (folder / "render").mkdir()
    files = render(
        folder / "render", "alertmanager", "Debian",
        {"alertmanager_group_wait": "1s", "alertmanager_group_interval": "1s"},
        {"files": "__service_files"},
    )["files"]  # fmt: skip
    for file in files:
        if "secret_content" in file:
            (folder / Path(file["path"]).name).write_text(file["secret_content"])
    rules(folder)
    dead = f"127.0.0.1:{free_port()}"
    jobs = [
        {"job_name": name, "static_configs": [{"targets": [at], "labels": {"instance": host}}]}
        for name, host, at in (
            ("node", "head-01", target.address), ("dcgm", "dgx-09", dead),
        )
    ]  # fmt: skip
    jobs[0]["static_configs"].append({"targets": [dead], "labels": {"instance": "dgx-09"}})
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules-*.yml"],
        "alerting": {
            "alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{ports[1]}"]}]}]
        },
        "scrape_configs": jobs,
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    try:
        found.started("alertmanager", [
            *alertmanager(), f"--config.file={folder}/alertmanager.yml",
            f"--storage.path={folder}/silences", f"--web.listen-address=127.0.0.1:{ports[1]}",
            "--cluster.listen-address=",
        ])  # fmt: skip
        found.started("prometheus", [
            tool("prometheus"), f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/samples", f"--web.listen-address=127.0.0.1:{ports[0]}",
            f"--web.config.file={folder}/web.yml",
            # What fires before it knows Alertmanager is sent again, by default a minute later.
            "--rules.alert.resend-delay=1s",
        ])  # fmt: skip
        wait_for(lambda: found.answers(found.prometheus) and found.answers(found.alertmanager))
        yield found
    finally:
        for process in found.processes:
            process.terminate()
        for process in found.processes:
            process.wait(timeout=20)
        target.server.shutdown()
        target.server.server_close()


def test_a_fault_is_told_and_clears(stack: Stack) -> None:
    labels = 'gpu="3",UUID="GPU-3"'
    stack.target.text = f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} 91\n"
    wait_for(lambda: "GpuHot" in stack.notified(active=True, inhibited=False))
    (alert,) = (
        one
        for one in stack.get(f"{stack.alertmanager}/api/v2/alerts")
        if one["labels"]["alertname"] == "GpuHot"
    )
    assert alert["annotations"]["summary"] == "GPU 3 of head-01 has 91 °C"
    stack.target.text = f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} 40\n"
    wait_for(lambda: "GpuHot" not in stack.firing())
    wait_for(lambda: "GpuHot" not in stack.notified(active=True))


def test_a_dead_leaf_silences_its_ports(stack: Stack) -> None:
    finding = "baremetal_dgx_fabric_finding"
    leaf = 'status="fail",kind="switch_absent",subject="leaf-1",switch="leaf-1",node="",rail=""'
    cable = 'status="fail",kind="dark",subject="c1",switch="leaf-1",node="dgx-01",rail="3"'
    other = 'status="fail",kind="dark",subject="c2",switch="leaf-2",node="dgx-01",rail="5"'
    stack.target.text = f"{finding}{{{cable}}} 1\n"
    wait_for(lambda: "FabricCableDown" in stack.notified(active=True, inhibited=False))
    stack.target.text = f"{finding}{{{cable}}} 1\n{finding}{{{leaf}}} 1\n"
    wait_for(lambda: "FabricSwitchDown" in stack.notified(active=True, inhibited=False))
    wait_for(lambda: "FabricCableDown" not in stack.notified(active=True, inhibited=False))
    assert "FabricCableDown" in stack.firing(), "it is silent, not gone"
    stack.target.text += f"{finding}{{{other}}} 1\n"
    wait_for(lambda: "FabricCableDown" in stack.notified(active=True, inhibited=False))
    stack.target.text = ""
    wait_for(lambda: not stack.firing() & {"FabricCableDown", "FabricSwitchDown"})


def test_a_host_that_is_away_silences_its_exporters(stack: Stack) -> None:
    wait_for(lambda: "NodeUnreachable" in stack.notified(active=True, inhibited=False))
    wait_for(lambda: "ExporterDown" in stack.firing())
    wait_for(lambda: "ExporterDown" not in stack.notified(active=True, inhibited=False))


def test_the_watchdog_always_fires(stack: Stack) -> None:
    wait_for(lambda: "Watchdog" in stack.notified(active=True))


def test_new_rules_need_no_restart(stack: Stack) -> None:
    stack.target.text = 'DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-1"} 70\n'
    time.sleep(3)
    assert "GpuHot" not in stack.firing()
    changed = "max by (instance, gpu, UUID) (DCGM_FI_DEV_GPU_TEMP) > 60"
    rules(stack.folder, changes={"GpuHot": {"expr": changed}})
    prometheus = stack.processes[1]
    prometheus.send_signal(signal.SIGHUP)
    wait_for(lambda: "GpuHot" in stack.firing())
    assert prometheus.poll() is None
    rules(stack.folder)
    prometheus.send_signal(signal.SIGHUP)
    wait_for(lambda: "GpuHot" not in stack.firing())
