# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pod's InfiniBand: ibsim on the head node pretends the fabric that the plan describes.

Simulated is what is below libibumad: adapters, switches, cables. opensm and infiniband-diags are
the real ones; they reach the simulator because libumad2sim takes the place of libibumad's files.
"""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess

from podlib import host, nodes
from podlib.layout import Pod, PodError
from podlib.progress import Progress

# The node that the simulator runs on, and the subnet manager.
HOST = "head-01"
DEVICE = "mlx5_0"
# Where the head node's adapter is plugged in: what the inventory reserves for it.
LEAF, LEAF_PORT = "ib-leaf-01", 64
# ibsim 0.12 is the first that knows NDR.
SUITES = ("trixie",)
# Two switches have ports for no more: four a node on each, and one for the head node.
MOST_NODES = 15
_PORT = 7070
_FOLDER = "/var/lib/pod-fabric"
_UNIT = f"""\
[Unit]
Description=Simulated InfiniBand fabric of the virtual pod (ibsim)
[Service]
RuntimeDirectory=pod-fabric
WorkingDirectory={_FOLDER}
ExecStartPre=/bin/sh -c 'mkfifo -m 600 /run/pod-fabric/console; : > {_FOLDER}/log'
# Opened for reading and writing: with a writer's end alone ibsim would stop at the first command.
ExecStart=/bin/sh -c 'exec /usr/bin/ibsim -r -l {_PORT} -s -N 4096 -S 1024 -P 65536 netlist \\
  <>/run/pod-fabric/console >>{_FOLDER}/log 2>&1'
"""
_START = f"""\
set -e
dpkg -s ibsim-utils infiniband-diags >/dev/null 2>&1 || {{
  apt-get update -qq
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -y -qq --no-install-recommends ibsim-utils infiniband-diags
}} >/dev/null
mkdir -p {_FOLDER}
cd {_FOLDER}
cat > netlist.new
cat > /etc/systemd/system/pod-fabric.service <<'UNIT'
{_UNIT}UNIT
if systemctl is-active -q pod-fabric && cmp -s netlist.new netlist; then exit 0; fi
mv netlist.new netlist
systemctl daemon-reload
# A client that does not know that the simulator is a new one makes it crash.
managers=$(systemctl list-units --all --plain --no-legend 'baremetal-dgx-opensm@*' | cut -d' ' -f1)
[ -z "$managers" ] || timeout 10 systemctl stop $managers || systemctl kill -s KILL $managers
systemctl restart pod-fabric
for i in $(seq 100); do
  if grep -q 'simulator ready' log; then
    [ -z "$managers" ] || systemctl start $managers
    echo started
    exit 0
  fi
  systemctl is-active -q pod-fabric || break
  sleep 0.1
done
tail -n 5 log >&2
exit 1
"""


def has_fabric(pod: Pod) -> bool:
    """Return whether the pod has a fabric: two switches must do, and its ibsim must know NDR."""
    count = sum(1 for node in pod.nodes if node.is_gpu)
    heads = [node for node in pod.nodes if node.name == HOST and node.suite in SUITES]
    return bool(heads) and 1 <= count <= MOST_NODES


def environment(pod: Pod, adapter: str = f"{HOST} {DEVICE}") -> dict[str, str]:
    """Return what makes a program on the head node use the simulated adapter of this name."""
    address = next(node.ip for node in pod.nodes if node.name == HOST)
    return {
        "LD_PRELOAD": f"/usr/lib/{platform.machine()}-linux-gnu/umad2sim/libumad2sim.so",
        "IBSIM_SERVER_NAME": address,
        "IBSIM_SERVER_PORT": str(_PORT),
        "SIM_HOST": adapter,
    }


def planned_netlist(pod: Pod) -> str:
    """Return the netlist of the pod's plan, with the head node's adapter at its reserved port."""
    plan = nodes.state_folder(pod.name) / "inventory" / ".dgx" / "plan"
    path = plan / "fabric" / "ibsim.net"
    if not path.exists():
        raise PodError(f"there is no {path}: run the playbook baremetal.dgx.check_inventory first")
    return with_adapter(path.read_text(), LEAF, LEAF_PORT, f"{HOST} {DEVICE}")


def with_adapter(netlist: str, switch: str, port: int, name: str) -> str:
    """Return the netlist with one more adapter, plugged into a free port of a switch."""
    guid = int("02d6" + hashlib.sha256(name.encode()).hexdigest()[:12], 16)
    found = re.search(
        rf'^Switch \d+ "(S-\w+)"\s+# "{re.escape(switch)}".*\n', netlist, re.MULTILINE
    )
    if not found:
        raise PodError(f"the netlist has no switch {switch}")
    own, far = f"H-{guid:016x}", found[1]
    line = f'[{port}]\t"{own}"[1]({guid + 1:016x})\t\t# "{name}" lid 0 4xNDR\n'
    return (
        netlist[: found.end()]
        + line
        + netlist[found.end() :]
        + f"\nvendid=0x2c9\ndevid=0x1021\nsysimgguid=0x{guid:016x}\ncaguid=0x{guid:016x}\n"
        + f'Ca 1 "{own}"\t# "{name}"\n'
        + f'[1]({guid + 1:016x})\t"{far}"[{port}]\t\t# lid 0 lmc 0 "{switch}" lid 0 4xNDR\n'
    )


def start(progress: Progress, pod: Pod, netlist: str) -> None:
    """Pretend the fabric of the netlist; what is pretended already goes on."""
    devices = len(re.findall(r"^(?:Ca|Switch)\s", netlist, re.MULTILINE))
    with progress.during(lambda: f"starting a simulated fabric of {devices} devices"):
        done = in_head(pod, _START, netlist, check=False)
    if done.returncode:
        raise PodError(f"the simulated fabric did not start: {done.stderr.strip()[-500:]}")
    what = "started" if "started" in done.stdout else "goes on"
    progress.say(f"simulated InfiniBand on {HOST} {what}: {devices} devices")


def in_head(
    pod: Pod, script: str, data: str = "", check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a shell script on the head node."""
    name = pod.container(HOST)
    return host.podman("exec", "-i", name, "sh", "-c", script, data=data, check=check)
