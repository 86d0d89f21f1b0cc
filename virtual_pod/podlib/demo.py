# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole job on a virtual pod: boot it, run site.yml of the built collection, use it."""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from podlib import ceph, fabric, faults, gpus, host, nodes
from podlib.layout import Pod, PodError, check_name, expect
from podlib.mixed import use_mixed
from podlib.people import use_people
from podlib.progress import Progress
from podlib.proofs import admit, live_with, playbook, prove_fabric, prove_gpus, report
from podlib.repair import AGAIN, repair_without_a_hand

GPUS = 8
# Where the inventory mounts CephFS for all users.
SHARED = "/cluster/scratch"
# Lines of failed tasks that are repeated at the end, where a reader of a long output looks.
_SHOWN = 16
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
        last, task, failed = [what], "", list[str]()

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
                if line.startswith(("TASK ", "RUNNING HANDLER ")):
                    task = last[0]
                elif re.match(r"(fatal|failed): \[", line):
                    failed += [task, f"  {last[0][:600]}"]
        if process.returncode:
            listed = "".join(f"\n  {one}" for one in dict.fromkeys(failed[:_SHOWN]))
            raise PodError(
                f"{what} ended with exit status {process.returncode}; log: {self.log}{listed}"
            )

    def pod(self) -> Pod:
        """Return the pod as it is now."""
        pod = nodes.known_pod(self.name)
        if pod is None:
            raise PodError(f"there is no pod {self.name}")
        return pod

    def user(
        self, command: str, timeout_s: float = 240, node: str = "login-01", name: str = "alice"
    ) -> str:
        """Run a command as an ordinary user; return its output without what it warns of.

        srun says on standard error that it waits for a node that does not answer at once.
        """
        config = nodes.state_folder(self.name) / "ssh_config"
        self.progress.say(f"{name}@{node}$ {command}")
        argv = ["ssh", "-F", str(config), "-o", "BatchMode=yes", f"{name}@{node}", command]
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
        return done.stdout.rstrip()


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


def share_files(demo: Demo) -> None:
    """A job on one node reads what a job on another wrote to CephFS, and nothing of it is lost."""
    gpu_nodes = sorted(n.name for n in demo.pod().nodes if n.is_gpu)
    first, last = gpu_nodes[0], gpu_nodes[-1]
    path = f"{SHARED}/alice-{time.time_ns()}"
    written = demo.user(
        f"srun -N1 -w {first} sh -c 'head -c 8388608 /dev/urandom | tee {path} | sha256sum; "
        f"stat -f -c %T {SHARED}'"
    ).split()
    read = demo.user(f"srun -N1 -w {last} sh -c 'sha256sum < {path}; hostname; rm {path}'").split()
    expect(written[0] == read[0], f"{last} reads something else than {first} wrote: {read[0]}")
    expect("fuse" in written[-1] or "ceph" in written[-1], f"{SHARED} is {written[-1]}, no CephFS")
    expect(read[-1] == last, f"the second job ran on {read[-1]}, not on {last}")


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
        "The environment may say POD_NAME, NODES, SUITE, SUBNET, INVENTORY, IDENTITY, FAULT and "
        "REPAIR instead.",
    )
    parser.add_argument("--name", default=env.get("POD_NAME") or "demo")
    parser.add_argument("--nodes", default=env.get("NODES") or None, help="number of DGX nodes")
    parser.add_argument("--suite", default=env.get("SUITE") or None)
    parser.add_argument("--subnet", default=env.get("SUBNET") or None)
    inventory = env.get("INVENTORY") or None
    parser.add_argument("--inventory", default=inventory, help="mixed: nodes of three kinds")
    parser.add_argument(
        "--storage",
        action=argparse.BooleanOptionalAction,
        default=env.get("STORAGE", "1") not in ("0", "no", "false"),
        help="with a node for Ceph, which all others mount (default: with)",
    )
    parser.add_argument(
        "--identity",
        action=argparse.BooleanOptionalAction,
        default=env.get("IDENTITY", "0") not in ("", "0", "no", "false"),
        help="with a directory of people on two nodes, and slurmrestd (default: without)",
    )
    parser.add_argument(
        "--fault",
        type=_faults,
        default=env.get("FAULT") or "",
        help="then break it so, and show what finds that and who leaves service: one of "
        f"{', '.join(sorted(faults.FAULTS))}; or of {', '.join(sorted(gpus.faults()))}; "
        "or one of each with a comma between",
    )
    parser.add_argument(
        "--repair",
        action=argparse.BooleanOptionalAction,
        default=env.get("REPAIR", "0") not in ("", "0", "no", "false"),
        help="let repair_nodes bring the node with the fault back, by its BMC; with "
        f"--fault xid79,{AGAIN} the fault comes back, and the GPU is to be returned",
    )
    args = parser.parse_args(argv)
    wrong = _wrong_repair(args.fault) if args.repair else ""
    if wrong or (AGAIN in args.fault and not args.repair):
        parser.error(wrong or f"--fault {AGAIN} is for --repair")
    return args


def _wrong_repair(fault: tuple[str, ...]) -> str:
    """Return why the loop cannot be shown with this fault; empty if it can."""
    able = [name for name, one in gpus.faults().items() if not one.needs_load]
    if fault and fault[0] in able and set(fault[1:]) <= {AGAIN}:
        return ""
    return f"--repair takes --fault NAME or --fault NAME,{AGAIN}, and NAME is {', '.join(able)}"


def _faults(text: str) -> tuple[str, ...]:
    chosen = tuple(name for name in text.split(",") if name)
    of_gpus = set(gpus.faults())
    for name in chosen:
        if name not in faults.FAULTS and name not in of_gpus and name != AGAIN:
            known = ", ".join(sorted({*faults.FAULTS, *of_gpus}))
            raise argparse.ArgumentTypeError(f"there is no fault {name!r}; write one of {known}")
    at_once = [name in of_gpus for name in chosen if name != AGAIN]
    if len(at_once) > len(set(at_once)):
        raise argparse.ArgumentTypeError(
            "write one fault of the fabric and one of the GPUs at most"
        )
    return chosen


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
    if args.inventory:
        options.append(f"--inventory={args.inventory}")
    else:
        options.append("--storage" if args.storage else "--no-storage")
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
    if args.identity:
        people = [pod, "directory", "--name", args.name]
        demo.phase("make a directory of people", lambda: demo.stream("pod directory", people))
    demo.phase("build and install the collection", lambda: build_collection(demo))
    if fabric.has_fabric(demo.pod()):
        demo.phase("simulate the InfiniBand fabric", simulate)
    if ceph.has_storage(demo.pod()):
        store = [pod, "ceph", "--name", args.name]
        demo.phase("make the storage a Ceph cluster", lambda: demo.stream("pod ceph", store))
    demo.phase("simulate the GPUs", lambda: demo.stream("pod", [pod, "gpus", "--name", args.name]))
    demo.phase("site.yml", site)
    use = use_mixed if args.inventory else use_cluster
    demo.phase("use the cluster as alice", lambda: use(demo))
    if args.identity:
        demo.phase("use it as a person of the directory", lambda: use_people(demo))
    if ceph.has_storage(demo.pod()):
        demo.phase("read what another node wrote", lambda: share_files(demo))
    if fabric.has_fabric(demo.pod()):
        demo.phase("prove the fabric cable by cable", lambda: prove_fabric(demo))
    demo.phase("prove the GPUs under load", lambda: prove_gpus(demo))
    demo.phase("let the nodes in on evidence", lambda: admit(demo))
    if args.repair:
        title = f"repair {args.fault[0]} without a hand"
        again = AGAIN in args.fault
        demo.phase(title, lambda: repair_without_a_hand(demo, args.fault[0], again))
    elif args.fault:
        title = f"live with {' and '.join(args.fault)}"
        demo.phase(title, lambda: live_with(demo, args.fault))
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
