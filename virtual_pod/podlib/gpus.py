# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pod's GPUs: libraries that pretend eight H100 on every DGX node, with faults on request.

Simulated are libnvidia-ml, libcuda and libcublasLt, the GPUs' part of sysfs, and the kernel log.
What reads them is the shipped code. See virtual_pod/hardware/.
"""

from __future__ import annotations

import hashlib
import pathlib
import platform
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass

from podlib import host
from podlib.layout import Node, Pod, PodError
from podlib.progress import Progress, run_visible

HARDWARE = host.CHECKOUT / "virtual_pod" / "hardware"
# Below it lie the simulated parts of /sys and /proc, the kernel log and the state of the GPUs.
ROOT = "/run/simulated-hardware"
_PLACE = "/usr/local/lib/simulated-hardware"
_TOOLS = (
    "nvidia-smi",
    "nvidia-modprobe",
    "nv-fabricmanager",
    "dcgmi",
    "dcgm-exporter",
    "all_reduce_perf",
)
# The model that the libraries pretend by default.
_DEFAULT_MODEL = "h100"
# The role nvidia_driver makes MIG instances by it. It has no driver to work with in a pod.
_MIG = host.CHECKOUT / "roles" / "nvidia_driver" / "files" / "baremetal-dgx-mig"
# As the role writes it for the mig_nodes of virtual_pod/inventories/mixed.
_MIG_LAYOUT = (
    "6 1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb\n7 1g.10gb,1g.10gb,2g.20gb,3g.40gb\n"
)
_FOUND = re.compile(r"^# Found: (?P<found>.*)$", re.MULTILINE)
_CHECKS = re.compile(r"\b(?:gpu|burn)\.\w+")
# A process may have a library mapped, so that each is renamed into its place.
_INSTALL = f"""\
set -e
cd {_PLACE}.new
for file in lib/*; do
  cp "$file" "/usr/local/$file.new"
  mv "/usr/local/$file.new" "/usr/local/$file"
done
rm -rf {_PLACE}
mv {_PLACE}.new {_PLACE}
for tool in {" ".join(_TOOLS)}; do ln -sf {_PLACE}/$tool /usr/local/bin/$tool; done
ldconfig
python3 - <<'END'
import ctypes
for name in ("libnvidia-ml.so.1", "libcuda.so.1", "libcublasLt.so.12", "libnccl.so.2"):
    ctypes.CDLL(name)
END
"""


@dataclass(frozen=True)
class Fault:
    """A fault of one GPU, or of a node: checks that must fail, and those GPUs of the node."""

    name: str
    title: str
    checks: tuple[str, ...]
    gpu: int | None

    @property
    def needs_load(self) -> bool:
        """Return whether only a burn-in finds it."""
        return all(check.startswith("burn.") for check in self.checks)


def faults() -> dict[str, Fault]:
    """Return the faults of virtual_pod/hardware/faults; the first lines of each say what it is."""
    found = {}
    for path in sorted((HARDWARE / "faults").glob("*.state")):
        text = path.read_text()
        title = text.splitlines()[0].lstrip("# ")
        match = _FOUND.search(text)
        # What stands behind a semicolon is what else there is to say.
        first = match["found"].split(";")[0] if match else ""
        number = re.search(r"of GPU (\d+)", first)
        checks = tuple(_CHECKS.findall(first))
        if not checks:
            raise PodError(f"{path.name} does not say what finds it")
        found[path.stem] = Fault(path.stem, title, checks, int(number[1]) if number else None)
    return found


def build(progress: Progress) -> pathlib.Path:
    """Compile the libraries on this host; return a folder with all that a node gets.

    Its name says what it was made from, so that other checkouts make their own.
    """
    host.install_packages(
        progress, {"gcc": "gcc", "make": "make"}, {"/usr/include/stdio.h": "libc6-dev"}
    )
    ready = host.CACHE / "hardware" / _digest(HARDWARE)[:16]
    with host.locked(progress, host.CACHE / "run" / "hardware.lock", "the simulated hardware"):
        if not ready.exists():
            _build(progress, ready)
    return ready


def _build(progress: Progress, ready: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory(prefix="hardware.", dir=host.CACHE) as work:
        libraries, fresh = pathlib.Path(work) / "build", pathlib.Path(work) / "node"
        argv = ["make", "-s", "-C", str(HARDWARE), f"OUT={libraries}"]
        run_visible(progress, "simulated hardware", argv, keep=lambda line: "error" in line)
        (fresh / "lib").mkdir(parents=True)
        for library in libraries.glob("*.so.*"):
            shutil.copy(library, fresh / "lib")
        for name in (*_TOOLS, "inject", "sysfs.py"):
            shutil.copy(HARDWARE / name, fresh)
        for folder in ("faults", "models"):
            shutil.copytree(HARDWARE / folder, fresh / folder)
        (fresh / "digest").write_text(ready.name)
        ready.parent.mkdir(parents=True, exist_ok=True)
        fresh.rename(ready)


def _digest(folder: pathlib.Path) -> str:
    """Return a digest of the sources: what Python caches beside them must not renew the nodes."""
    total = hashlib.sha256(platform.machine().encode())
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            total.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return total.hexdigest()


def simulate(progress: Progress, pod: Pod, fault: str | None = None, where: str = "") -> None:
    """Give every DGX node healthy GPUs; one of them gets the fault of this name."""
    nodes = [node for node in pod.nodes if node.is_gpu]
    if not nodes:
        raise PodError(f"pod {pod.name} has no DGX node")
    broken = where or nodes[0].name
    if fault and broken not in {node.name for node in nodes}:
        raise PodError(f"{broken} is not a DGX node of pod {pod.name}")
    _install(progress, pod, nodes, build(progress))
    for node in nodes:
        if node.model != _DEFAULT_MODEL:
            _inject(pod, node, ["--model", node.model])
        _inject(pod, node, ["--clear"])
        if node.name.startswith("mig"):
            _divide(progress, pod, node)
    if fault:
        progress.say(f"fault {fault} on {broken}: {faults()[fault].title}")
        _inject(pod, next(node for node in nodes if node.name == broken), [fault])


def are_simulated(pod: Pod, node: Node) -> bool:
    """Return whether a node that runs was given GPUs before."""
    argv = ("exec", pod.container(node.name), "test", "-e", f"{_PLACE}/digest")
    return not host.podman(*argv, check=False).returncode


def _install(progress: Progress, pod: Pod, nodes: Iterable[Node], folder: pathlib.Path) -> None:
    renewed = []
    for node in nodes:
        name = pod.container(node.name)
        there = host.podman("exec", name, "cat", f"{_PLACE}/digest", check=False)
        if there.stdout == folder.name:
            continue
        host.podman("exec", name, "rm", "-rf", f"{_PLACE}.new")
        host.podman("cp", str(folder), f"{name}:{_PLACE}.new")
        done = host.podman("exec", "-i", name, "sh", "-s", data=_INSTALL, check=False)
        if done.returncode:
            raise PodError(
                f"{node.name} cannot use the simulated libraries: {done.stderr.strip()[-300:]}"
            )
        renewed.append(node.name)
    what = f"put on {', '.join(renewed)}" if renewed else "are there"
    progress.say(f"simulated GPUs {what}: libnvidia-ml, libcuda, libcublasLt, sysfs")


def _divide(progress: Progress, pod: Pod, node: Node) -> None:
    """Let the collection's own script make MIG instances of simulated GPUs."""
    script = f"cat > /run/mig.conf <<'END'\n{_MIG_LAYOUT}END\n"
    script += (
        f"sh -s /run/mig.conf {ROOT}/proc <<'END_OF_SCRIPT'\n{_MIG.read_text()}END_OF_SCRIPT\n"
    )
    name = pod.container(node.name)
    done = host.podman("exec", "-i", name, "sh", "-s", data=script, check=False)
    if done.returncode:
        raise PodError(f"{node.name} has no MIG instances: {done.stderr.strip()[-300:]}")
    progress.say(f"simulated MIG instances on {node.name}: GPU 6 has seven, GPU 7 has four")


def _inject(pod: Pod, node: Node, words: list[str]) -> None:
    host.podman("exec", pod.container(node.name), f"{_PLACE}/inject", *words)
