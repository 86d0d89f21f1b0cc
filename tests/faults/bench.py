# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of simulated hardware that can be broken anywhere, and the shipped code that looks at it.

What is asked is what is installed: the modules' own main(), and the one file of the health program.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "tests" / "unit" / "plugins"
HARDWARE = ROOT / "virtual_pod" / "hardware"
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "models")]

import tests.conftest  # noqa: E402, F401, I001  (makes the collection importable)
from ansible.module_utils import basic  # noqa: E402
from ib_tree import RAILS, dgx  # noqa: E402

from ansible_collections.baremetal.dgx.plugins.module_utils._burn import control as _burn_app  # noqa: E402
from ansible_collections.baremetal.dgx.plugins.module_utils._ib import ethtool as _ethtool  # noqa: E402
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import (  # noqa: E402
    FAILED,
    ITSELF,
    write_reason,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._programs import program  # noqa: E402
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.profiles import (  # noqa: E402
    BUILT_IN,
)
from ansible_collections.baremetal.dgx.plugins.modules import (  # noqa: E402
    dcgm_diag,
    gpu_burn,
    gpu_health,
    ib_health,
)

NODE = "dgx-01"
_ETHTOOL = ROOT / "tests/unit/fixtures/ethtool/mlx5-linux-6.8.txt"
_LINK_ANSWER = json.loads(
    (ROOT / "tests/unit/fixtures/mlxlink/ndr-optical.json").read_text(encoding="utf-8")
)


def _module(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_hardware = _module("simulated_hardware", UNIT / "conftest.py")
_health = _module("simulated_health", UNIT / "module_utils" / "_node_health" / "conftest.py")


def call(main: Callable[[], None], params: Mapping[str, Any]) -> dict[str, Any]:
    """Run a module in this process, as a target would; returns its answer."""
    arguments = {**params, "_ansible_check_mode": False, "_ansible_diff": False}
    basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
    # core 2.19 and later
    basic._ANSIBLE_PROFILE = "legacy"  # type: ignore[attr-defined]
    out = io.StringIO()
    warn, basic.AnsibleModule.warn = basic.AnsibleModule.warn, lambda _self, _text: None
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main()
    finally:
        basic.AnsibleModule.warn = warn
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set variables of this process for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@dataclass
class Seen:
    """What a rig has found: the node's own records, those of the fabric, and what Slurm got.

    `file` is what the node's file holds instead, where the records are what is broken.
    """

    records: list[Any] = field(default_factory=list)
    fabric: list[Any] | None = None
    pairs: list[Any] = field(default_factory=list)
    file: Any = None
    level: str = "standard"
    reason: str = ""
    comment: str = ""
    expected: set[tuple[str, str]] | None = None


def fleet(others: Mapping[str, str]) -> dict[str, Any]:
    """Return twelve nodes as Slurm has them; `others` says what has become of some of them.

    itself: has drained itself; gate: drained by the gate; down: Slurm has lost it; operator.
    """
    nodes: dict[str, Any] = {
        f"dgx-{one:02d}": {"state": "IDLE", "reason": ""} for one in range(1, 13)
    }
    for name, how in others.items():
        kind = {"itself": ITSELF, "gate": FAILED}.get(how)
        reason = write_reason(name, kind, "ib.link_downed") if kind else "fan, ask Ann"
        nodes[name] = {"state": "IDLE+DRAIN", "reason": reason}
        if how == "down":
            nodes[name] = {"state": "DOWN+NOT_RESPONDING", "reason": "Not responding"}
    return nodes


class Tools:
    """What is made once: the simulated libraries, the health program, a file system that fails."""

    def __init__(self, folder: Path) -> None:
        self.libraries = folder / "libraries"
        self.libraries.mkdir(parents=True)
        names = ("libnvidia-ml.so.1", "old/libnvidia-ml.so.1", "libcuda.so.1", "libcublasLt.so.12")
        made = [f"{self.libraries}/{name}" for name in names]
        subprocess.run(
            ["make", "-s", "-C", str(HARDWARE), f"OUT={self.libraries}", *made], check=True
        )
        # A file system that does what it is asked to, for a program that is not changed for it.
        source, self.spoil = Path(__file__).with_name("statvfs.c"), folder / "statvfs.so"
        line = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(self.spoil), str(source), "-ldl"]
        subprocess.run(line, check=True)
        self.program = folder / "node-health"
        self.program.write_bytes(program("node-health"))
        self.program.chmod(0o755)


class Bench:
    """One healthy node in its own folder; every rig breaks it and asks."""

    def __init__(self, tools: Tools, folder: Path) -> None:
        self.tools, self.folder = tools, folder
        folder.mkdir()

    def _hardware(self, given: Mapping[str, Any]) -> Any:
        node = _hardware.SimulatedNode(self.folder, self.tools.libraries)
        for number, title in given.get("processes", {}).items():
            about = self.folder / "proc" / str(number)
            about.mkdir()
            (about / "cmdline").write_text(title)
        node.state(given.get("state", ""), given.get("log", ""))
        if given.get("inject"):
            node.inject(*given["inject"])
        return node

    def gpu(self, given: Mapping[str, Any]) -> Seen:
        """Ask gpu_health."""
        with environment(
            SIMULATED_HARDWARE=str(self.folder / "state"),
            PATH=f"{HARDWARE}:/usr/bin:/bin",
            LD_LIBRARY_PATH=str(self.tools.libraries),
        ):
            node = self._hardware(given)
            profile = BUILT_IN["dgx_h100"]
            gpus = {**profile["gpus"], "mig": given.get("instances", {})}
            options = {
                "node": NODE, "profile": {**profile, "gpus": gpus}, "library": node.library,
                "kernel_log": str(node.kernel_log), "fabric_manager": node.fabric_manager,
                "sysfs": node.sysfs, "proc": node.proc, "timeout_s": 3, "fail_on": [],
                **given.get("options", {}),
            }  # fmt: skip
            for name in given.get("broken", ()):
                tool = self._script(f"broken-{name}", given["broken"][name])
                options[name] = str(tool)
            answer = call(gpu_health.main, options)
        return Seen(answer["records"], level=given.get("level", "standard"))

    def dcgm(self, given: Mapping[str, Any]) -> Seen:
        """Ask dcgm_diag."""
        with environment(SIMULATED_HARDWARE=str(self.folder / "state")):
            node = self._hardware(given)
            options = {"node": NODE, "tool": str(HARDWARE / "dcgmi"), "nvml_library": node.library,
                       "expected_gpus": 8, "level": 2, "fail_on": [], "busy_ok": True,
                       **given.get("options", {})}  # fmt: skip
            answer = call(dcgm_diag.main, options)
        return Seen(answer["records"])

    def burn(self, given: Mapping[str, Any]) -> Seen:
        """Ask gpu_burn, its program unmodified."""
        (self.folder / "state").write_text("gpu.*.pace_ms = 2\n" + given.get("state", ""))
        options = {"node": NODE, "folder": str(self.folder / "burn"), "duration_s": 1.0, "n": 64,
                   "memory_mib": 2, "most_batch": 4, "silent_s": 30.0, "fail_on": [],
                   "phases": ["gemm_bf16"], **given.get("options", {})}  # fmt: skip
        which, _burn_app.shutil.which = _burn_app.shutil.which, lambda _name: None
        try:
            with environment(
                SIMULATED_HARDWARE=str(self.folder / "state"),
                LD_LIBRARY_PATH=given.get("libraries", str(self.tools.libraries)),
            ):
                answer = call(gpu_burn.main, options)
        finally:
            # No unit of the machine that this runs on is started.
            _burn_app.shutil.which = which
            _burn_app.stop(str(self.folder / "burn"))
        return Seen(answer["records"])

    def hca(self, given: Mapping[str, Any]) -> Seen:
        """Ask ib_health, twice, since counters are judged by what they grow."""
        sysfs, tools = self.folder / "sys", self.folder / "bin"
        dgx(sysfs)
        tools.mkdir()
        (self.folder / "answer").write_text(json.dumps(_LINK_ANSWER))
        self._script("bin/mlxlink", f"cat {self.folder}/answer")
        rails = [{"rail": rail, "pci": f"{bus}:00.0", "rate_gbps": 400, "pcie_generation": 5,
                  "pcie_width": 16} for rail, bus in enumerate(RAILS)]  # fmt: skip
        options = {"node": NODE, "rails": rails, "sysfs": str(sysfs), "window_s": 0.0,
                   "state_file": str(self.folder / "kept" / "ib.json"), "fail_on": [],
                   "link_log": str(self.folder / "kept" / "links.jsonl"),
                   "timeout_s": 3, **given.get("options", {})}  # fmt: skip
        if "ethernet" in given:
            self._ethernet(sysfs, rails, {})
            options["names"] = False
        with environment(PATH=f"{tools}:/usr/bin:/bin"):
            call(ib_health.main, options)
            if given.get("ethernet"):
                self._ethernet(sysfs, rails, given["ethernet"])
            if given.get("changes"):
                shutil.rmtree(sysfs)
                dgx(sysfs, **given["changes"])
            for device in given.get("gone", ()):
                (sysfs / "class/infiniband" / device).unlink()
            if "optics" in given:
                answer = json.loads(json.dumps(_LINK_ANSWER))
                for section, values in given["optics"].items():
                    answer["result"]["output"][section].update(values)
                (self.folder / "other").write_text(json.dumps(answer))
                which = f'case "$*" in *:{RAILS[3]}:00*) f=other;; *) f=answer;; esac'
                self._script("bin/mlxlink", f"{which}; cat {self.folder}/$f")
            if "mlxlink" in given:
                if given["mlxlink"] is None:
                    (tools / "mlxlink").unlink()
                else:
                    self._script("bin/mlxlink", given["mlxlink"])
            answer = call(ib_health.main, options)
        return Seen(answer["records"])

    def _ethernet(self, sysfs: Path, rails: list[dict[str, Any]], more: Mapping[str, Any]) -> None:
        """Make Ethernet ports of the rails; `more` are the counters of rail 3, or its answer."""
        shutil.rmtree(sysfs)
        dgx(sysfs, **{f"mlx5_rail{rail['rail']}": {"layer": "Ethernet"} for rail in rails})
        for rail in rails:
            rail["link_layer"] = "Ethernet"
        settings = self.folder / "roce-settings.env"
        settings.write_text(more.get("settings", 'RAILS="0 1 2 3 4 5 6 7"\n'))
        _ethtool.SETTINGS = str(settings)
        text = _ETHTOOL.read_text(encoding="utf-8")
        (self.folder / "port").write_text(text)
        for name, value in more.get("counters", {}).items():
            text = re.sub(rf"(?m)^( +{name}): \d+$", rf"\1: {value}", text)
        (self.folder / "port-3").write_text(text)
        (self.folder / "bin/ethtool.text").write_text(text)
        third = more.get("tool", f"cat {self.folder}/port-3")
        self._script(
            "bin/ethtool", f'case "$*" in *rail3) {third};; *) cat {self.folder}/port;; esac'
        )

    def health(self, given: Mapping[str, Any]) -> Seen:
        """Ask the health program, as Slurm calls it."""
        path = {"SIMULATED_HARDWARE": str(self.folder / "state")}
        with environment(**path):
            node = _health.Node(self.folder, self._hardware(given))
        node.show_host(**given.get("host", {}))
        for name, script in given.get("tools", {}).items():
            if script is None:
                (node.tools / name).unlink()
            else:
                node.tool(name, script)
        for name in given.get("gone", ()):
            shutil.rmtree(getattr(node, name))
        if given.get("rails"):
            self._rails(node)
        if "others" in given:
            node.slurm.write_text(json.dumps(fleet(given["others"])))
        if "fstab" in given:
            node.fstab.write_text(given["fstab"].replace("SCRATCH", str(node.scratch)))
        if given.get("unmounted"):
            (self.folder / "mountinfo").write_text("")
        if "mounted" in given:
            live = _health.MOUNTINFO.format(node.home).replace(
                "nfs4 storage:/home", given["mounted"]
            )
            (self.folder / "mountinfo").write_text(live)
        node.config["environment"] = path
        node.config["gpu"].update(given.get("gpu", {}))
        node.config["mounts"][0].update(given.get("mount", {}))
        node.config["disks"][0].update(given.get("disk", {}))
        config = node.config_file
        if "config" in given:
            config.write_text(given["config"])
        mode = given.get("mode", "health")
        faulty = {}
        if "faulty" in given:
            place = node.scratch if given.get("faulty_disk") else node.home
            faulty = {"LD_PRELOAD": str(self.tools.spoil), "FAULTY_HOW": given["faulty"],
                      "FAULTY_PATH": str(place)}  # fmt: skip
        line = [str(self.tools.program), f"--{mode}", "--config", str(config),
                "--state-dir", str(node.state)]  # fmt: skip
        found = {"PATH": f"{node.tools}:/usr/bin:/bin", "NODE_HEALTH_CACHE": str(node.folder / "c"),
                 **path, **faulty}  # fmt: skip
        for turn, wait_s in enumerate((0, *given.get("again_after_s", ()))):
            time.sleep(wait_s)
            for rail in given.get("link_downed", ()) if turn else ():
                port = self.folder / f"rails/class/infiniband/mlx5_rail{rail}/ports/1"
                (port / "counters/link_downed").write_text("1\n")
            done = subprocess.run(
                line, capture_output=True, text=True, check=False, timeout=100, env=found
            )
        answer = node.state / f"{mode}.json"
        records = json.loads(answer.read_text())["records"] if answer.exists() else []
        # Any other status must not take a node out, and 10 only one that is out.
        reported = {one["status"] for one in records}
        assert (done.returncode in (10, 11)) == ("fail" in reported), (done.returncode, done.stderr)
        home, scratch = str(node.home), str(node.scratch)
        for one in records:
            one["subject"] = one["subject"].replace(home, "/home").replace(scratch, "/scratch")
            if "config" in given:
                # Without a configuration the program knows the node by the name of the host.
                host = socket.gethostname().split(".")[0]
                one["subject"] = one["subject"].replace(f"node:{host}", f"node:{NODE}")
        state, reason = node.in_slurm if node.slurm.exists() else ("", "")
        drained = "DRAIN" in state
        assert drained or done.returncode != 10, done.stderr
        known = json.loads(node.slurm.read_text()) if node.slurm.exists() else {}
        comment = known.get(NODE, {}).get("comment", "")
        return Seen(records, reason=reason if drained else "", comment=comment)

    def _rails(self, node: Any) -> None:
        """Give the node of the health program its adapters; their sysfs is all that it has."""
        sysfs = self.folder / "rails"
        dgx(sysfs)
        rails = [{"rail": rail, "pci": f"{bus}:00.0", "rate_gbps": 400, "pcie_generation": 5,
                  "pcie_width": 16} for rail, bus in enumerate(RAILS)]  # fmt: skip
        node.config["ib"] = {"rails": rails, "window_s": 0.0}
        node.config["checks"] = ["ib", "mounts", "disks", "services"]
        node.config["roots"]["sysfs"] = str(sysfs)

    def _script(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path
