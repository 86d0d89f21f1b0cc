# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings nodes up and down."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import pathlib
import secrets
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from podlib import cache, disk, host, image, leftovers, machines, network
from podlib.layout import (
    DEFAULT_SUBNET,
    Node,
    Pod,
    PodError,
    Request,
    overlapping,
    pod_from_record,
    pod_to_record,
    resolve,
)
from podlib.progress import Progress

STATE = host.CHECKOUT / ".pod"
READY_TIMEOUT_S = 180
# An emulated processor, on a host that has other work, too.
_MACHINE_TIMEOUT_S = 900
_LABEL = "baremetal.dgx"
_BOOT = [host.CHECKOUT / "virtual_pod" / name for name in ("node-identity.sh", "node-boot.sh")]
_WORKERS = 4
# States of a container that a killed run did not leave half-made.
_WHOLE = ("running", "exited", "stopped")

_SHARED_NOTE = """\
A folder of the host that all nodes of this pod see at /shared: a stand-in for shared storage.
It has the host's speed and none of the behaviour of a parallel file system.
"""


@dataclasses.dataclass(frozen=True)
class Container:
    """A node as podman knows it, or a machine as its folder shows it."""

    identity: str
    node: str
    container: str
    state: str
    spec: str
    image: str
    checkout: str
    is_machine: bool = False


def state_folder(name: str) -> pathlib.Path:
    """Return where the checkout keeps what belongs to a pod."""
    return STATE / name


def known_pod(name: str) -> Pod | None:
    """Return the pod as it was last asked for."""
    path = state_folder(name) / "pod.json"
    return pod_from_record(json.loads(path.read_text())) if path.exists() else None


def node_spec(node: Node) -> str:
    """Return what cannot be changed while a node lives."""
    return json.dumps(dataclasses.asdict(node), sort_keys=True)


def containers(pod_name: str | None = None) -> list[Container]:
    """Return the nodes of a pod, or of all pods, containers and machines."""
    label = f"label={_LABEL}.pod" + (f"={pod_name}" if pod_name else "")
    listed = host.podman_json("ps", "-a", "--external=false", "--filter", label, "--format", "json")
    monitored = leftovers.monitored()
    booted = [
        Container(
            identity=f"{machine.pod}/{machine.node}",
            node=machine.node,
            container=f"{machine.pod}-{machine.node}",
            state=machine.state,
            spec=machine.record.get("spec", ""),
            image=machine.record.get("disk", ""),
            checkout=machine.record.get("checkout", ""),
            is_machine=True,
        )
        for machine in machines.found(pod_name)
    ]
    return sorted(
        booted
        + [
            Container(
                identity=c["Id"],
                node=c["Labels"].get(f"{_LABEL}.node", "?"),
                container=c["Names"][0],
                # podman believes its notes: after a power cut, or in a copied disk, it still says
                # running of a container whose processes are gone.
                state="dead"
                if c["State"] == "running" and c["Id"] not in monitored
                else c["State"],
                spec=c["Labels"].get(f"{_LABEL}.spec", ""),
                image=c["Image"],
                checkout=c["Labels"].get(f"{_LABEL}.checkout", ""),
            )
            for c in listed or []
        ],
        key=lambda c: c.container,
    )


def action_for(node: Node, found: Container | None) -> str:
    """Return what brings a node up: keep, start or make. PodError when it must be removed first.

    Only running and cleanly stopped containers are whole; all others are what a killed run left.
    """
    if found is None or found.state not in _WHOLE:
        return "make"
    old = json.loads(found.spec or "{}")
    # As nodes: what was written before a field existed has its default.
    if not old or Node(**old) != node:
        raise PodError(
            f"{node.name} exists as {old.get('suite')} on {old.get('ip')}"
            f"{' (bare)' if old.get('bare') else ''}, not as asked for; "
            f"remove it first: pod down {node.name}, or the whole pod: pod down"
        )
    return "keep" if found.state == "running" else "start"


def run_argv(pod: Pod, node: Node, image_name: str, mounts: dict[str, str], key: str) -> list[str]:
    """Return the podman arguments that start a node."""
    shared = state_folder(pod.name) / "shared"
    labels = {
        "pod": pod.name,
        "node": node.name,
        "spec": node_spec(node),
        "checkout": str(host.CHECKOUT),
    }
    argv = ["run", "-d", "--replace", "--pull=never"]
    argv += ["--name", pod.container(node.name), "--hostname", node.name]
    argv += ["--network", f"ns:{network.NETNS / pod.container(node.name)}"]
    argv += ["--systemd=always", "--cgroupns=private", "--pids-limit=0", "--stop-timeout=5"]
    argv += host.ulimits()
    # Never --privileged: it would hand the host's disks to whatever runs mkfs.
    argv += ["--cap-add=ALL"]
    argv += [f"--cap-drop={cap}" for cap in ("SYS_TIME", "SYS_MODULE", "SYS_RAWIO")]
    argv += ["--security-opt=seccomp=unconfined", "--security-opt=unmask=ALL"]
    if host.apparmor():
        argv += ["--security-opt=apparmor=unconfined"]
    argv += ["--device=/dev/fuse"]
    if node.is_gpu:
        argv += ["--device-cgroup-rule=c 195:* rwm"]
    for source, target in {str(shared): "/shared", **mounts}.items():
        argv += ["--mount", f"type=bind,src={source},dst={target}"]
    for name, value in labels.items():
        argv += ["--label", f"{_LABEL}.{name}={value}"]
    boot = ["".join(path.read_text() for path in _BOOT), "node-boot", node.name, node.ip]
    boot += [cache.proxy_url(pod), "" if node.bare else key, "1" if node.bare else "0"]
    boot += ["1" if node.is_gpu else "0"]
    return [*argv, image_name, "/bin/sh", "-ec", *boot]


def up(progress: Progress, request: Request) -> Pod:
    """Bring a pod up; nodes that run stay as they are."""
    known = known_pod(request.name)
    if request.subnet is None and known is None:
        request = dataclasses.replace(request, subnet=_free_subnet(request.name))
    pod = resolve(request, known)
    bare = any(node.bare for node in pod.nodes)
    programs = {"sshpass": "sshpass"} if bare else {}
    if any(node.is_machine for node in pod.nodes):
        programs |= machines.PROGRAMS
    host.install_packages(progress, programs)
    host.raise_inotify_limit(progress)
    lock = host.RUN.parent / f"{host.RUN.name}-{pod.name}.lock"
    with host.locked(progress, lock, f"pod {pod.name}"), cache.in_use():
        _up(progress, pod)
    return pod


def _up(progress: Progress, pod: Pod) -> None:
    leftovers.wait_for_survivors(progress, pod)
    leftovers.clean(pod)
    found = {c.node: c for c in containers(pod.name)}
    _refuse_foreign(pod.name, found.values())
    actions = {node: action_for(node, found.get(node.name)) for node in pod.nodes}
    todo = [n for n in pod.nodes if actions[n] != "keep"]
    kept = len(pod.nodes) - len(todo)
    if todo:
        _check_subnet(pod)
    folder = _prepare_state(pod)
    key = _ensure_key(folder)
    passwords = _bare_password(folder) if any(n.bare for n in pod.nodes) else ""
    progress.say(
        f"{len(pod.nodes)} nodes on {pod.subnet}: {kept} running, "
        f"{sum(1 for n in todo if actions[n] == 'make')} to make, "
        f"{sum(1 for n in todo if actions[n] == 'start')} to start"
    )
    half_made = [c for c in found.values() if c.state not in _WHOLE]
    if half_made:
        names = ", ".join(f"{c.node} ({c.state})" for c in half_made)
        progress.say(f"removing what a killed run left: {names}")
        _remove(progress, half_made)
        leftovers.clean(pod)
    port = cache.ensure_cache(progress)
    making = [n for n in todo if actions[n] == "make"]
    kinds = sorted({(n.suite, n.bare) for n in making if not n.is_machine})
    images = {kind: image.ensure_image(progress, *kind, port) for kind in kinds}
    suites = sorted({n.suite for n in making if n.is_machine})
    disks = {suite: disk.ensure_disk(progress, suite, port) for suite in suites}
    if todo and network.ensure_bridge(pod):
        progress.say(
            f"network {pod.subnet} made: bridge {network.bridge_name(pod.name)}, no way to the "
            "outside"
        )
    cache.ensure_relay(progress, pod)

    def begin(node: Node) -> None:
        if node.is_machine:
            if actions[node] == "make":
                boot = machines.boot_text(pod, node, cache.proxy_url(pod), key)
                record = {"spec": node_spec(node), "checkout": str(host.CHECKOUT)}
                machines.make(pod, node, disks[node.suite], boot, record)
            machines.start(pod, node)
            return
        if actions[node] == "start":
            _start(pod, node)
            return
        mounts = host.v1_folders(pod.container(node.name))
        network.connect(pod, node)
        kind = (node.suite, node.bare)
        host.podman(*run_argv(pod, node, images[kind], mounts, key))

    def ready(node: Node) -> None:
        _wait_ready(pod, node, folder)
        if node.bare:
            _set_password(pod, node, passwords)
        kind = ", bare" if node.bare else ", machine" if node.is_machine else ""
        progress.say(f"{node.name}: up ({node.suite}{kind}, {node.ip})")

    booting = {node.name for node in todo if node.is_machine}

    def describe(name: str) -> str:
        return f"{name} ({machines.console(pod.name, name)})" if name in booting else name

    _for_all(progress, "starting", todo, begin)
    _for_all(progress, "waiting for", pod.nodes if todo else (), ready, describe)
    if not todo:
        _for_all(progress, "asking", pod.nodes, lambda node: _wait_ready(pod, node, folder))
    extra = sorted(set(found) - {n.name for n in pod.nodes})
    if extra:
        progress.say(f"also there, not in this layout and left alone: {', '.join(extra)}")
    progress.say(f"pod {pod.name} is up: {len(pod.nodes)} nodes")


def _start(pod: Pod, node: Node) -> None:
    """Start a container that was stopped."""
    host.v1_folders(pod.container(node.name))
    network.connect(pod, node)
    host.podman("start", pod.container(node.name))


def start_again(pod: Pod, node: Node) -> None:
    """Start a node that was stopped, and wait until it is up."""
    _start(pod, node)
    _wait_ready(pod, node, state_folder(pod.name))


def _refuse_foreign(name: str, found: Iterable[Container]) -> None:
    """Refuse a pod that runs for another checkout; what is dead, or without an owner, is free."""
    for container in found:
        theirs = (
            container.checkout != str(host.CHECKOUT) and pathlib.Path(container.checkout).exists()
        )
        if theirs and container.state == "running":
            raise PodError(
                f"a pod {name} of another checkout runs ({container.checkout}): choose another "
                f"--name, or remove it with: pod down --name {name} --force"
            )


def _for_all(
    progress: Progress,
    doing: str,
    nodes: Iterable[Node],
    work: Callable[[Node], None],
    describe: Callable[[str], str] = str,
) -> None:
    """Do the work for several nodes at a time; PodError names each node that failed."""
    lock = threading.Lock()
    open_nodes = [n.name for n in nodes]
    failed: list[str] = []

    def one(node: Node) -> None:
        try:
            work(node)
        except PodError as exc:
            with lock:
                failed.append(f"{node.name}: {exc}")
        finally:
            with lock:
                open_nodes.remove(node.name)

    with (
        progress.during(lambda: f"{doing} {', '.join(map(describe, open_nodes)) or 'nothing'}"),
        concurrent.futures.ThreadPoolExecutor(_WORKERS) as pool,
    ):
        for future in [pool.submit(one, node) for node in nodes]:
            future.result()
    if failed:
        raise PodError("\n".join(sorted(failed)))


def _prepare_state(pod: Pod) -> pathlib.Path:
    folder = host.make_folder(state_folder(pod.name), 0o755)
    host.write(folder / "pod.json", json.dumps(pod_to_record(pod), indent=2) + "\n")
    host.write(folder / "ssh_config", ssh_config(pod, folder))
    shared = host.make_folder(folder / "shared", 0o755)
    if not (shared / "STAND_IN").exists():
        host.write(shared / "STAND_IN", _SHARED_NOTE)
    return folder


def _ensure_key(folder: pathlib.Path) -> str:
    key = folder / "id"
    if not (folder / "id.pub").exists():
        key.unlink(missing_ok=True)
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"pod-{folder.name}"]
        subprocess.run([*argv, "-f", str(key)], check=True, stdin=subprocess.DEVNULL)
        for path in (key, folder / "id.pub"):
            host.give_to_user(path)
    return (folder / "id.pub").read_text().strip()


def _bare_password(folder: pathlib.Path) -> str:
    path = folder / "bare_password"
    if not path.exists():
        host.write(path, secrets.token_urlsafe(16) + "\n", 0o600)
    return path.read_text().strip()


def _set_password(pod: Pod, node: Node, password: str) -> None:
    script = "[ -e /var/lib/pod-password ] || { chpasswd && touch /var/lib/pod-password; }"
    argv = ("exec", "-i", pod.container(node.name), "sh", "-c", script)
    host.podman(*argv, data=f"root:{password}\n")


def _taken_subnets(pod_name: str) -> list[tuple[str, str]]:
    """Return (name, cidr) of what this host uses besides the pod itself."""
    networks = host.podman_json("network", "ls", "--format", "json") or []
    found = [(n["name"], s["subnet"]) for n in networks for s in n.get("subnets") or []]
    own = network.bridge_name(pod_name)
    return [*found, *(address for address in host.host_addresses() if address[0] != own)]


def _check_subnet(pod: Pod) -> None:
    """Refuse a subnet that something else on this host uses; its ARP answers would mix."""
    taken = overlapping(pod.subnet, _taken_subnets(pod.name))
    if taken:
        raise PodError(f"{pod.subnet} is in use on this host ({taken}); choose another --subnet")


def _free_subnet(name: str) -> str:
    """Return the first free subnet from the default on."""
    if not shutil.which("podman"):
        return DEFAULT_SUBNET
    taken = _taken_subnets(name)
    start = DEFAULT_SUBNET[: -len("0.0/24")]
    candidates = [DEFAULT_SUBNET, *(f"{start}{n}.0/24" for n in range(256))]
    free = next((c for c in candidates if not overlapping(c, taken)), None)
    if free is None:
        raise PodError("no free subnet; choose one with --subnet")
    return free


def ssh_option_values(folder: pathlib.Path) -> dict[str, str]:
    """Return how ssh reaches a node: the pod's key, host keys of this hour."""
    return {
        "IdentityFile": str(folder / "id"),
        "IdentitiesOnly": "yes",
        "StrictHostKeyChecking": "no",
        "UserKnownHostsFile": "/dev/null",
        "LogLevel": "ERROR",
        "ConnectTimeout": "10",
    }


def ssh_options(folder: pathlib.Path) -> list[str]:
    """Return the same as arguments of ssh."""
    return [f"-o{name}={value}" for name, value in ssh_option_values(folder).items()]


def _in_machine(folder: pathlib.Path, ip: str, *command: str) -> list[str]:
    """Return what runs a command in a machine; there is no other way in than SSH."""
    return ["ssh", *ssh_options(folder), "-oBatchMode=yes", f"root@{ip}", shlex.join(command)]


def ssh_config(pod: Pod, folder: pathlib.Path) -> str:
    """Return a file for `ssh -F`, in which the nodes go by their names."""
    lines = ["# Written by virtual_pod/pod, each time again: do not edit."]
    for node in pod.nodes:
        lines += [f"Host {node.name}", f"  HostName {node.ip}"]
    lines += ["Host *", "  User root"]
    for name, value in ssh_option_values(folder).items():
        lines.append(f'  {name} "{value}"' if name == "IdentityFile" else f"  {name} {value}")
    return "\n".join(lines) + "\n"


def _wait_ready(pod: Pod, node: Node, folder: pathlib.Path) -> None:
    name = pod.container(node.name)
    seen = {"systemd": "no answer", "ssh": "no answer"}

    def machine_up() -> bool:
        if not machines.lives(pod.name, node.name):
            raise PodError(f"ended at its boot: {machines.console(pod.name, node.name)}")
        # Asked in vain it would only boot more slowly.
        with contextlib.suppress(OSError), socket.create_connection((node.ip, 22), 5):
            argv = _in_machine(folder, node.ip, "systemctl", "is-system-running", "--wait")
            done = host.ask(argv, timeout=_MACHINE_TIMEOUT_S)
            seen["systemd"] = done.stdout.strip() or done.stderr.strip()[-200:]
        return seen["systemd"] in ("running", "degraded")

    def systemd_up() -> bool:
        done = host.podman("exec", name, "systemctl", "is-system-running", check=False, timeout=60)
        seen["systemd"] = done.stdout.strip() or done.stderr.strip()[-200:]
        if seen["systemd"] in ("running", "degraded"):
            return True
        state = host.podman("inspect", "--format", "{{.State.Status}}", name, check=False).stdout
        if state.strip() not in ("running", "created", "initialized"):
            log = host.podman("logs", "--tail", "5", name, check=False)
            text = (log.stdout + log.stderr).strip() or "no log: often too few inotify instances"
            raise PodError(f"ended at its boot ({state.strip()}): {text}")
        return False

    def ssh_up() -> bool:
        # A bare node takes no key: being asked for a password is the answer.
        argv = ["ssh", *ssh_options(folder), "-o", "BatchMode=yes", f"root@{node.ip}", "true"]
        done = host.ask(argv, timeout=60)
        seen["ssh"] = done.stderr.strip()[-200:]
        return done.returncode == 0 or (node.bare and "Permission denied" in done.stderr)

    try:
        if node.is_machine:
            host.wait_until("boot", machine_up, _MACHINE_TIMEOUT_S, 2)
            return
        host.wait_until("boot", systemd_up, READY_TIMEOUT_S, 0.5)
        host.wait_until("ssh", ssh_up, 60, 0.5)
    except PodError as exc:
        raise PodError(f"{exc} (systemd: {seen['systemd']}; ssh: {seen['ssh']})") from exc


def down(
    progress: Progress, name: str, nodes: Sequence[str], purge: bool, force: bool = False
) -> None:
    """Remove nodes, or the whole pod with its network.

    `purge` removes all that is kept besides, `force` also a running pod of another checkout.
    """
    lock = host.RUN.parent / f"{host.RUN.name}-{name}.lock"
    with host.locked(progress, lock, f"pod {name}"):
        pod = known_pod(name) or Pod(name, "", ())
        leftovers.wait_for_survivors(progress, pod)
        leftovers.clean(pod)
        found = containers(name)
        if not force:
            _refuse_foreign(name, found)
        unknown = sorted(set(nodes) - {c.node for c in found})
        if unknown:
            progress.say(f"not there: {', '.join(unknown)}")
        gone = [c for c in found if not nodes or c.node in nodes]
        _remove(progress, gone)
        if any(c.state not in _WHOLE for c in gone):
            leftovers.clean(pod)
        if nodes:
            return
        stopped = cache.stop_relay(name)
        stopped = network.drop_bridge(name) or stopped
        host.podman("network", "rm", f"{name}-pod", check=False)  # TRANSITION
        if not containers():
            stopped = cache.stop_cache() or stopped
        # What was asked for is only remembered for as long as the pod exists. So is whose queue of
        # jobs the next primary must have: that is gone, and of a single lost node it is not.
        noted = "inventory/.dgx/slurm_controller.json"
        for file in ("pod.json", "ssh_config", cache.SHUT, noted):
            (state_folder(name) / file).unlink(missing_ok=True)
        if gone or stopped:
            progress.say(f"pod {name} is down: {len(gone)} nodes removed")
        else:
            progress.say(f"pod {name} is down already")
        if purge:
            _purge(progress, name)


def _remove(progress: Progress, gone: Sequence[Container]) -> None:
    left = [c.node for c in gone]

    def one(container: Container) -> None:
        if container.is_machine:
            machines.remove(*container.identity.split("/"))
            left.remove(container.node)
            return
        if container.state not in _WHOLE:
            # Its monitor holds mounts on which the removal would fail.
            leftovers.end_monitor(container.identity)
        if container.state == "running":
            # What a node would do on its way down is not needed; rm alone waits for it.
            host.podman("kill", container.container, check=False)
        host.podman("rm", "-f", container.container)
        host.drop_v1_folders(container.container)
        network.disconnect(container.container, json.loads(container.spec or "{}").get("ip", ""))
        left.remove(container.node)

    with (
        progress.during(lambda: f"removing {', '.join(left)}"),
        concurrent.futures.ThreadPoolExecutor(_WORKERS) as pool,
    ):
        for future in [pool.submit(one, container) for container in gone]:
            future.result()


def _purge(progress: Progress, name: str) -> None:
    folder = state_folder(name)
    if folder.exists():
        shutil.rmtree(folder)
        progress.say(f"removed {folder}")
    others = containers()
    if others:
        progress.say(f"other pods run ({others[0].container}, ...): their cache and images stay")
        return
    for old in image.images():
        host.podman("rmi", "-f", old)
    shutil.rmtree(host.CACHE, ignore_errors=True)
    host.drop_namespace()
    progress.say(f"removed the images, {host.CACHE} and the private mount namespace")
    value = host.restore_inotify_limit()
    if value is not None:
        progress.say(f"fs.inotify.max_user_instances of this host set back to {value}")
    shutil.rmtree(host.RUN, ignore_errors=True)


def status_rows(name: str | None) -> list[dict[str, Any]]:
    """Return one row per node of a pod or of all pods: pod, node, address, suite, state."""
    rows = []
    for found in containers(name):
        spec = json.loads(found.spec or "{}")
        systemd = "-"
        command = ("systemctl", "is-system-running")
        if found.state == "running" and found.is_machine:
            folder = state_folder(found.identity.split("/")[0])
            done = host.ask(_in_machine(folder, spec["ip"], *command), timeout=60)
            systemd = done.stdout.strip() or "no answer"
        elif found.state == "running":
            done = host.podman("exec", found.container, *command, check=False, timeout=30)
            systemd = done.stdout.strip() or "no answer"
        rows.append(
            {
                "pod": found.container[: -len(found.node) - 1],
                "node": found.node,
                "address": spec.get("ip", "?"),
                "suite": spec.get("suite", "?")
                + (" (bare)" if spec.get("bare") else " (machine)" if found.is_machine else ""),
                "state": found.state,
                "systemd": systemd,
            }
        )
    return rows
