# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site from the mirror's folder alone: the nodes' way to packages is shut before it begins.

Its own pod, AIR_GAP (default: gap) on AIR_GAP_SUBNET (default: the first free one), since the
nodes must be fresh. Hardware that is simulated (fabric, Ceph, GPUs) is made before, with packages,
as are racks and cables at a site.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from .conftest import CHECKOUT, environment, recap

POD = os.environ.get("AIR_GAP", "gap")
INVENTORY = CHECKOUT / ".pod" / POD / "inventory"
PORT = 8077


def pod(*words: str, seconds: float = 900) -> str:
    """Call `pod` for this pod; return what it prints."""
    command, *rest = words
    argv = [str(CHECKOUT / "virtual_pod" / "pod"), command, "--name", POD, *rest]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def play(name: str, *words: str, seconds: float = 3600) -> subprocess.CompletedProcess[str]:
    """Run a playbook of the collection on this pod's inventory."""
    argv = ["ansible-playbook", f"baremetal.dgx.{name}", "-i", str(INVENTORY), *words]
    return subprocess.run(
        argv, env=environment(), capture_output=True, text=True, timeout=seconds, check=False
    )


def mirror(folder: Path, url: str, control: str = "false") -> dict[str, int]:
    """Fill the folder; return the counts of its manifest and of this run."""
    words = ["-e", f"mirror_folder={folder}", "-e", f"mirror_url={url}"]
    words += ["-e", f"mirror_control={control}"]
    done = play("mirror", *words)
    assert done.returncode == 0, done.stdout
    print(done.stdout[-1500:])
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    changed = recap(done.stdout)["localhost"]["changed"]
    return {"files": len(manifest["files"]), "changed": changed}


@contextlib.contextmanager
def served(folder: Path, address: str) -> Iterator[str]:
    """Serve the folder on the pod's gateway, as any web server would."""
    argv = [sys.executable, "-m", "http.server", "--bind", address, str(PORT)]
    server = subprocess.Popen(argv, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        url = f"http://{address}:{PORT}"
        for _attempt in range(50):
            with contextlib.suppress(OSError), urlopen(f"{url}/key.asc", timeout=2):
                break
            time.sleep(0.2)
        yield url
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(name="gateway", scope="module")
def _gateway() -> Iterator[str]:
    """Fresh nodes with simulated hardware; return the gateway's address."""
    subnet = os.environ.get("AIR_GAP_SUBNET")
    pod("up", "--nodes", "1", "--storage", *(["--subnet", subnet] if subnet else []))
    try:
        shutil.rmtree(INVENTORY, ignore_errors=True)
        pod("inventory")
        checked = play("check_inventory")
        assert checked.returncode == 0, checked.stdout
        for step in ("fabric", "ceph", "gpus"):
            pod(step)
        record = json.loads((CHECKOUT / ".pod" / POD / "pod.json").read_text(encoding="utf-8"))
        yield record["subnet"].rpartition(".")[0] + ".1"
    finally:
        pod("down")


def test_site_from_the_folder_alone(gateway: str, tmp_path: Path) -> None:
    folder = tmp_path / "mirror"
    url = f"http://{gateway}:{PORT}"
    assert mirror(folder, url)["files"] > 300
    assert mirror(folder, url)["changed"] == 0
    shutil.copytree(folder / "inventory", INVENTORY, dirs_exist_ok=True)

    pod("packages", "off")
    node = ["exec", "head-01", "apt-get", "install", "-y", "hello"]
    with pytest.raises(AssertionError, match="Connection failed"):
        pod(*node)
    with served(folder, gateway):
        started = time.monotonic()
        done = play("site")
        assert done.returncode == 0, done.stdout[-6000:]
        print(f"site took {time.monotonic() - started:.0f} s")
        again = play("site")
        assert again.returncode == 0, again.stdout[-6000:]
    counts = recap(again.stdout)
    assert {host: one["changed"] for host, one in counts.items()} == dict.fromkeys(counts, 0)

    sources = pod("exec", "dgx-01", "sh", "-c", "cat /etc/apt/sources.list.d/* | grep URIs")
    assert sources.split() == ["URIs:", f"{url}/apt/debian-13"]
    assert "dgx-01" in pod("ssh", "alice@login-01", "srun", "-N1", "--gres=gpu:1", "hostname")
    units = ["slurmctld", "slurmdbd", "mariadb", "prometheus", "prometheus-alertmanager"]
    states = pod("exec", "head-01", "systemctl", "is-active", *units).split()
    assert states == ["active"] * len(units)
    # The same question to the inventory with the mirror in it is refused: it has no other source.
    refused = play("mirror", "-e", f"mirror_folder={folder}", "-e", f"mirror_url={url}")
    assert "takes its packages from the mirror already" in refused.stdout


def test_the_control_machine_is_installed_from_the_folder(gateway: str, tmp_path: Path) -> None:
    """In a virtual environment and a folder of collections, without any server."""
    for path in INVENTORY.rglob("zz_mirror.yml"):
        path.unlink()
    folder = tmp_path / "mirror"
    mirror(folder, f"http://{gateway}:{PORT}", control="true")
    control, venv = folder / "control", tmp_path / "venv"
    offline = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PATH": os.environ["PATH"],
               "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}  # fmt: skip
    (artefact,) = control.glob("baremetal-dgx-*.tar.gz")
    for argv in (
        [sys.executable, "-m", "venv", str(venv)],
        [f"{venv}/bin/pip", "install", "-q", "--no-index", "--find-links", f"{control}/wheels",
         "ansible-core", "ansible"],
        [f"{venv}/bin/ansible-galaxy", "collection", "install", "--offline", "--no-deps",
         str(artefact)],
        [f"{venv}/bin/ansible-playbook", "baremetal.dgx.check_inventory", "-i", str(INVENTORY)],
        [f"{venv}/bin/ansible-doc", "-t", "module", "community.mysql.mysql_db"],
    ):  # fmt: skip
        done = subprocess.run(argv, env=offline, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
