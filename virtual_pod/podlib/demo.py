# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole job on a virtual pod: boot it, run site.yml of the built collection, use it."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from podlib import fabric, faults, gpus, host, nodes
from podlib.layout import Pod, PodError, check_name
from podlib.progress import Progress

GPUS = 8
# Opens each GPU: with cgroups in force a job reaches its own (no driver answers) and no other.
_DEVICES = (
    'for i in 0 1 2 3 4 5 6 7; do (true < /dev/nvidia$i) 2>&1 | sed "s/.*nvidia/nvidia/"; done'
)


@dataclass
class Demo:
    """What a run knows: its pod, its environment, and how long its phases took."""

    progress: Progress
    name: str
    work: pathlib.Path
    env: Mapping[str, str]
    phases: list[tuple[str, float]] = field(default_factory=list)

    @property
    def log(self) -> pathlib.Path:
        """Return where all output goes besides the terminal."""
        return self.work / "log"

    def phase(self, title: str, work: Callable[[], None]) -> None:
        """Do one phase and note its time; PodError says which phase failed."""
        self.progress.say(f"==== {title}")
        start = time.monotonic()
        try:
            work()
        except PodError as exc:
            raise PodError(f"FAILED in phase '{title}': {exc}") from exc
        self.phases.append((title, time.monotonic() - start))

    def stream(self, what: str, argv: Sequence[str]) -> None:
        """Run a command whose output goes to the terminal and the log as it is."""
        last = [what]

        def doing() -> str:
            return f"{what}: at work ({re.sub(chr(27) + r'[^m]*m', '', last[0])[:100]})"

        with (
            self.progress.during(doing),
            self.log.open("a") as log,
            subprocess.Popen(
                argv,
                env=dict(self.env),
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ) as process,
        ):
            for line in process.stdout or ():
                self.progress.show(line.rstrip("\n"))
                log.write(line)
                if line.strip():
                    last[0] = line.strip().rstrip(" *")
        if process.returncode:
            raise PodError(f"{what} ended with exit status {process.returncode}; log: {self.log}")

    def pod(self) -> Pod:
        """Return the pod as it is now."""
        pod = nodes.known_pod(self.name)
        if pod is None:
            raise PodError(f"there is no pod {self.name}")
        return pod

    def user(self, command: str, timeout_s: float = 120, node: str = "login-01") -> str:
        """Run a command as the ordinary user alice; return its output."""
        config = nodes.state_folder(self.name) / "ssh_config"
        self.progress.say(f"alice@{node}$ {command}")
        argv = ["ssh", "-F", str(config), "-o", "BatchMode=yes", f"alice@{node}", command]
        try:
            with self.progress.during(lambda: f"waiting for: {command}"):
                done = host.ask(argv, timeout=timeout_s)
        except subprocess.TimeoutExpired as exc:
            raise PodError(f"no answer in {timeout_s:.0f} s: {command}") from exc
        output = (done.stdout + done.stderr).rstrip()
        for line in output.splitlines()[:12]:
            self.progress.show(f"    {line}")
        if done.returncode:
            raise PodError(f"exit status {done.returncode} of: {command}\n{output[-1500:]}")
        return output


def expect(condition: bool, message: str) -> None:
    """Raise PodError with the message unless the condition holds."""
    if not condition:
        raise PodError(message)


def build_collection(demo: Demo) -> None:
    """Build the collection and install the artefact, as a site would."""
    shutil.rmtree(demo.work / "build", ignore_errors=True)
    shutil.rmtree(demo.work / "collections", ignore_errors=True)
    build = ["ansible-galaxy", "collection", "build", str(host.CHECKOUT), "--output-path", "build"]
    demo.stream("build", build)
    artefacts = sorted((demo.work / "build").glob("*.tar.gz"))
    expect(
        len(artefacts) == 1, f"one artefact expected in {demo.work / 'build'}, not {len(artefacts)}"
    )
    install = ["ansible-galaxy", "collection", "install", "--offline", "--force"]
    demo.stream("install", [*install, "--no-deps", "-p", "collections", str(artefacts[0])])


def use_cluster(demo: Demo) -> None:
    """Do what a user does, and look at the answers."""
    gpu_nodes = sorted(n.name for n in demo.pod().nodes if n.is_gpu)
    count = len(gpu_nodes)
    demo.user("sinfo")

    answers = demo.user(f"srun -N{count} --gres=gpu:{GPUS} hostname").split()
    expect(sorted(answers) == gpu_nodes, f"answers from {sorted(answers)}, not from {gpu_nodes}")

    tasks = demo.user(
        f"srun -N{count} --gres=gpu:{GPUS} --ntasks-per-node={GPUS} "
        "sh -c 'echo $SLURMD_NODENAME $SLURM_LOCALID $CUDA_VISIBLE_DEVICES' | sort"
    ).splitlines()
    expect(len(set(tasks)) == count * GPUS, f"{len(set(tasks))} tasks, not {count * GPUS}")

    devices = demo.user(f"srun -N1 --gres=gpu:2 sh -c '{_DEVICES}'")
    expect(
        devices.count("Operation not permitted") == GPUS - 2,
        f"a job with 2 GPUs is not kept from the other {GPUS - 2}: {devices}",
    )

    job = demo.user(
        f"sbatch --parsable --wait -N{count} --gres=gpu:{GPUS} -o /dev/null --wrap 'srun hostname'"
    ).split(";")[0]
    record = ""

    def accounted() -> bool:
        nonlocal record
        query = f"sacct -X -n -P -j {job} -o jobid,state,alloctres"
        record = demo.user(query)
        return "COMPLETED" in record and f"gres/gpu={count * GPUS}" in record

    try:
        # Records reach the database some seconds late.
        host.wait_until(f"job {job} in the accounting", accounted, 60, 2)
    except PodError as exc:
        raise PodError(f"{exc}; last answer: {record or 'nothing'}") from exc
    stays_out(demo, gpu_nodes[0])


def stays_out(demo: Demo, node: str) -> None:
    """A user without a job on a node is not let in."""
    config = nodes.state_folder(demo.name) / "ssh_config"
    argv = ["ssh", "-F", str(config), "-o", "BatchMode=yes", "-o", "LogLevel=INFO"]
    argv += [f"alice@{node}", "true"]

    def refused() -> bool:
        done = host.ask(argv, timeout=60)
        return done.returncode == 255 and "Access denied" in done.stderr

    demo.progress.say(f"alice logs in on {node} without a job there")
    # The jobs from before may still be on their way out.
    host.wait_until(f"refusal by {node}", refused, 30, 2)
    demo.progress.show("    refused")


def playbook(demo: Demo, name: str, *options: str) -> list[str]:
    """Return the command line of a playbook of the collection on this pod."""
    inventory = nodes.state_folder(demo.name) / "inventory"
    return ["ansible-playbook", "-i", str(inventory), f"baremetal.dgx.{name}", *options]


def prove_fabric(demo: Demo, fault: str | None) -> None:
    """Let the collection judge the fabric: sound, then broken as asked for, then sound again."""
    pod = [str(host.CHECKOUT / "virtual_pod" / "pod"), "fabric", "--name", demo.name]
    judge = playbook(demo, "validate_fabric")
    demo.stream("validate_fabric", judge)
    if fault not in faults.FAULTS:
        return
    expected = faults.FAULTS[fault]
    names = [expected.finding, *expected.subjects, ": 1 finding;"]
    find(demo, fault, [*pod, "--fault", fault], judge, names, pod)


def prove_gpus(demo: Demo, fault: str | None) -> None:
    """Let the collection judge the GPUs under load: sound, then with the fault."""
    demo.stream("validate_nodes", playbook(demo, "validate_nodes"))
    found = gpus.faults()
    if fault not in found:
        return
    pod = [str(host.CHECKOUT / "virtual_pod" / "pod"), "gpus", "--name", demo.name]
    level = "standard" if found[fault].needs_load else "quick"
    judge = playbook(demo, "validate_nodes", "-e", f"level={level}", "-e", "again=true")
    first = min(node.name for node in demo.pod().nodes if node.is_gpu)
    number = found[fault].gpu
    subject = f"node:{first}" if number is None else f"gpu:{first}/{number}"
    find(demo, fault, [*pod, "--fault", fault], judge, [subject, *found[fault].checks], pod)


def report(demo: Demo) -> None:
    """Let the collection put all that was measured into one page; all of it must have passed."""
    demo.stream("report", playbook(demo, "report"))
    folder = nodes.state_folder(demo.name) / "inventory" / ".dgx" / "report"
    verdict = json.loads((folder / "report.json").read_text())["verdict"]
    expect(verdict == "pass", f"the report says {verdict}, not pass: {folder / 'report.html'}")


def find(
    demo: Demo,
    fault: str,
    breaking: Sequence[str],
    judge: Sequence[str],
    names: Sequence[str],
    mending: Sequence[str],
) -> None:
    """Break something, let it be judged, expect these names in what is said; then mend it."""
    demo.stream("pod", breaking)
    try:
        before = demo.log.stat().st_size
        try:
            demo.stream("judgement", judge)
        except PodError:
            said = demo.log.read_bytes()[before:].decode(errors="replace")
        else:
            raise PodError(f"with the fault {fault} everything was called sound")
        missing = [name for name in names if name not in said]
        expect(not missing, f"the fault {fault} was not found as it is: no {', '.join(missing)}")
        demo.progress.say(f"fault {fault} was found")
    finally:
        demo.stream("pod", mending)
    demo.stream("judgement", judge)


def summary(demo: Demo) -> list[str]:
    """Return the lines at the end: phases with times, nodes with states, what to try."""
    width = max(len(title) for title, _ in demo.phases)
    lines = ["", "Phases"]
    lines += [f"  {title.ljust(width)}  {seconds:6.1f} s" for title, seconds in demo.phases]
    lines += [f"  {'together'.ljust(width)}  {sum(s for _, s in demo.phases):6.1f} s", "", "Nodes"]
    states = dict(
        line.split(maxsplit=1)
        for line in demo.user("sinfo -h -N -p batch -o '%N %T, %c CPUs, %G'").splitlines()
    )
    for node in demo.pod().nodes:
        if node.name not in states:
            states[node.name] = demo.user("systemctl is-system-running || true", node=node.name)
        lines.append(f"  {node.name:10} {node.ip:14} {states[node.name]}")
    option = "" if demo.name == "demo" else f" --name {demo.name}"
    lines += [
        "",
        "Try next",
        f"  virtual_pod/pod ssh{option} alice@login-01    as a user: sinfo, srun, sbatch, sacct",
        f"  virtual_pod/pod ssh{option} dgx-01            as root (make demo-ssh NODE=dgx-01)",
        f"  xdg-open {nodes.state_folder(demo.name)}/inventory/.dgx/report/report.html",
        f"  $EDITOR {nodes.state_folder(demo.name) / 'inventory'}",
        f"  virtual_pod/pod down{option}                  remove it all (make demo-down)",
    ]
    return lines


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    env = os.environ
    parser = argparse.ArgumentParser(
        prog="demo",
        description="Boot a virtual pod and make it a Slurm cluster. "
        "The environment may say POD_NAME, NODES, SUITE, SUBNET and FAULT instead.",
    )
    parser.add_argument("--name", default=env.get("POD_NAME") or "demo")
    parser.add_argument("--nodes", default=env.get("NODES") or None, help="number of DGX nodes")
    parser.add_argument("--suite", default=env.get("SUITE") or None)
    parser.add_argument("--subnet", default=env.get("SUBNET") or None)
    parser.add_argument(
        "--fault",
        choices=sorted([*faults.FAULTS, *gpus.faults()]),
        default=env.get("FAULT") or None,
        help="then break fabric or GPUs so, and show that this is found",
    )
    return parser.parse_args(argv)


def _environment(work: pathlib.Path) -> dict[str, str]:
    bin_folder = host.CHECKOUT / ".venv" / "bin"
    path = f"{bin_folder}:{os.environ['PATH']}"
    if not shutil.which("ansible-playbook", path=path):
        raise PodError("ansible-playbook is not there; make demo sets it up (or run .ci/setup)")
    env = {k: v for k, v in os.environ.items() if not k.startswith("ANSIBLE_")}
    env |= {
        "PATH": path,
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        # The installed artefact first; what it depends on lies where .ci/setup put it.
        "ANSIBLE_COLLECTIONS_PATH": f"{work / 'collections'}:{host.CHECKOUT}/.cache/collections",
        "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "false",
        "ANSIBLE_FORKS": "10",
        "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false",
    }
    if sys.stdout.isatty():
        env["ANSIBLE_FORCE_COLOR"] = "1"
    return env


def _run(args: argparse.Namespace) -> None:
    work = host.CHECKOUT / ".cache" / "demo" / check_name("pod", args.name)
    work.mkdir(parents=True, exist_ok=True)
    demo = Demo(Progress("demo"), args.name, work, _environment(work))
    with host.locked(demo.progress, work / "lock", f"the demo of pod {args.name}"):
        demo.log.write_text("")
        _phases(demo, args)


def _phases(demo: Demo, args: argparse.Namespace) -> None:
    pod = str(host.CHECKOUT / "virtual_pod" / "pod")
    options = [
        f"--{key}={value}"
        for key, value in (("nodes", args.nodes), ("suite", args.suite), ("subnet", args.subnet))
        if value is not None
    ]
    count = [f"--nodes={args.nodes}"] if args.nodes is not None else []

    def describe() -> None:
        demo.stream("pod inventory", [pod, "inventory", "--name", args.name, *count])

    def simulate() -> None:
        demo.stream("plan", playbook(demo, "check_inventory"))
        demo.stream("pod fabric", [pod, "fabric", "--name", args.name])

    def site() -> None:
        demo.stream("site", playbook(demo, "site"))

    demo.phase(
        "boot the pod", lambda: demo.stream("pod up", [pod, "up", "--name", args.name, *options])
    )
    demo.phase("write its inventory", describe)
    demo.phase("build and install the collection", lambda: build_collection(demo))
    if fabric.has_fabric(demo.pod()):
        demo.phase("simulate the InfiniBand fabric", simulate)
    demo.phase("simulate the GPUs", lambda: demo.stream("pod", [pod, "gpus", "--name", args.name]))
    demo.phase("site.yml", site)
    demo.phase("use the cluster as alice", lambda: use_cluster(demo))
    if fabric.has_fabric(demo.pod()):
        demo.phase("prove the fabric cable by cable", lambda: prove_fabric(demo, args.fault))
    demo.phase("prove the GPUs under load", lambda: prove_gpus(demo, args.fault))
    demo.phase("write the report", lambda: report(demo))
    for line in summary(demo):
        demo.progress.show(line)


def main(argv: Sequence[str]) -> int:
    """Run the demo; return its exit status."""
    try:
        _run(_parse(argv))
    except PodError as exc:
        print(f"\ndemo: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; run the same command again", file=sys.stderr)
        return 130
    return 0
