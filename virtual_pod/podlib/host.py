# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod needs of the host: packages, the private mount namespace, podman, one sysctl."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from podlib.layout import PodError
from podlib.progress import Progress, run_visible

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
PODMAN = pathlib.Path("/usr/bin/podman")
RUN = pathlib.Path("/run/baremetal-dgx-pod")
CACHE = pathlib.Path(os.environ.get("BAREMETAL_POD_CACHE") or "/var/cache/baremetal-dgx-pod")
NAMESPACE = RUN / "mnt"
V1 = RUN / "v1"
# What Slurm's cgroup/v1 plugin uses.
V1_CONTROLLERS = ("freezer", "memory", "devices", "cpuset", "cpuacct")
INOTIFY = pathlib.Path("/proc/sys/fs/inotify/max_user_instances")
# 24 of 32 nodes came up with the default of 128, and the dead ones left no log.
INOTIFY_WANTED = 8192

# program: package
_PROGRAMS = {
    "podman": "podman",
    "runc": "runc",
    "mmdebstrap": "mmdebstrap",
    "newuidmap": "uidmap",
    "ssh": "openssh-client",
    "ip": "iproute2",
    "gpg": "gpg",
}


def become_root(argv: Sequence[str]) -> None:
    """Start again through sudo unless this is root."""
    if os.geteuid() == 0:
        return
    if not shutil.which("sudo"):
        raise PodError("a pod needs root: run this as root, or install sudo")
    program = os.path.realpath(sys.argv[0])
    os.execvp("sudo", ["sudo", "--preserve-env=BAREMETAL_POD_CACHE", program, *argv])


def give_to_user(path: pathlib.Path) -> None:
    """Hand what root made in the checkout to the user who called sudo."""
    uid, gid = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if uid and gid:
        os.chown(path, int(uid), int(gid), follow_symlinks=False)


def write(path: pathlib.Path, text: str, mode: int = 0o644) -> None:
    """Write a file of the checkout at once: never half of it, never readable too early."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as stream:
        os.fchmod(descriptor, mode)
        stream.write(text)
    give_to_user(temporary)
    os.replace(temporary, path)


def make_folder(path: pathlib.Path, mode: int = 0o755) -> pathlib.Path:
    """Make a folder of the checkout, parents included."""
    for folder in (*reversed(path.parents), path):
        if not folder.exists():
            folder.mkdir(exist_ok=True)
            give_to_user(folder)
    path.chmod(mode)
    return path


@contextlib.contextmanager
def locked(progress: Progress, path: pathlib.Path, what: str) -> Iterator[None]:
    """Hold a lock that ends with the process, however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        with progress.during(lambda: f"waiting for another command that holds {what}"):
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def os_release() -> dict[str, str]:
    """Return /etc/os-release."""
    text = pathlib.Path("/etc/os-release").read_text()
    return {k: v.strip('"') for k, v in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE)}


def missing_packages(extra: dict[str, str], files: dict[str, str] | None = None) -> list[str]:
    """Return the packages that have to be installed.

    `extra` is {program: package}, `files` is {path: package}.
    """
    wanted = _PROGRAMS | extra
    missing = [package for program, package in wanted.items() if not shutil.which(program)]
    missing += [name for path, name in (files or {}).items() if not pathlib.Path(path).exists()]
    keyring = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    if not keyring.exists():
        missing.append("debian-archive-keyring")
    helpers = ("/usr/lib/podman/netavark", "/usr/libexec/podman/netavark", "/usr/lib/cni/bridge")
    if not any(pathlib.Path(path).exists() for path in helpers):
        # Pods bring their own network, but podman does not start without either of these.
        policy = _query(["apt-cache", "policy", "netavark"])
        has_netavark = "Candidate:" in policy and "(none)" not in policy
        missing.append("netavark" if has_netavark else "containernetworking-plugins")
    return sorted(set(missing))


def install_packages(
    progress: Progress, extra: dict[str, str] | None = None, files: dict[str, str] | None = None
) -> None:
    """Install what is missing on the host, and say so; one pod at a time."""
    if not missing_packages(extra or {}, files):
        return
    lock = RUN.parent / f"{RUN.name}-packages.lock"
    with locked(progress, lock, "the packages of this host"):
        _install(progress, missing_packages(extra or {}, files))


def _install(progress: Progress, missing: list[str]) -> None:
    if not missing:
        return
    release = os_release()
    if release.get("ID") not in ("debian", "ubuntu"):
        raise PodError(
            f"missing on this host: {', '.join(missing)}; only Debian and Ubuntu are known here, "
            "install them yourself"
        )
    progress.say(f"installing on this host: {' '.join(missing)}")
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    run_visible(progress, "apt-get update", ["apt-get", "update", "-q"], env=env, keep=_quiet)
    # The host's own updates may hold dpkg's lock.
    apt = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "-q"]
    run_visible(
        progress,
        "apt-get install",
        [*apt, "--no-install-recommends", *missing],
        env=env,
        keep=lambda line: line.startswith(("Setting up", "E:")),
    )


def _quiet(_line: str) -> bool:
    return False


def ask(
    argv: Sequence[str], data: str = "", timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command and return all its output; a missing program has exit status 127."""
    try:
        return subprocess.run(
            argv,
            check=False,
            input=data,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            cwd="/",
        )
    except FileNotFoundError as exc:
        return subprocess.CompletedProcess(argv, 127, "", str(exc))


def _query(argv: Sequence[str]) -> str:
    """Return what a command prints; nothing when it fails or is not there."""
    done = ask(argv)
    return done.stdout if done.returncode == 0 else ""


def is_hybrid() -> bool:
    """Return whether /sys/fs/cgroup is anything but pure cgroup v2."""
    return _query(["stat", "-fc", "%T", "/sys/fs/cgroup"]).strip() != "cgroup2fs"


def namespace_prefix(make: bool = True) -> list[str]:
    """Return the command that enters the private mount namespace; empty where none is needed.

    podman must see pure cgroup2, and always the same namespace: in another one it does not find
    the network namespaces of its running containers.
    """
    if not is_hybrid():
        return []
    prefix = ["nsenter", f"--mount={NAMESPACE}", "--"]
    if make:
        RUN.mkdir(exist_ok=True)
        with (RUN.parent / f"{RUN.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if ask([*prefix, "true"]).returncode:
                _make_namespace()
    return prefix


def _make_namespace() -> None:
    script = """
        mountpoint -q "$1" || mount --bind "$1" "$1"
        mount --make-private "$1"
        : > "$2"
        unshare --mount="$2" --propagation slave sh -ec '
          umount -R /sys/fs/cgroup
          mount -t cgroup2 cgroup2 /sys/fs/cgroup'
    """
    done = ask(["sh", "-ec", script, "sh", str(RUN), str(NAMESPACE)])
    if done.returncode:
        raise PodError(f"the private mount namespace cannot be made: {done.stderr.strip()}")


def drop_namespace() -> None:
    """Remove the private mount namespace and what was mounted in it."""
    if not is_hybrid() or not NAMESPACE.exists():
        return
    for group in v1_groups():
        path = V1 / group
        inside = [*namespace_prefix(make=False), "sh", "-c"]
        ask([*inside, f"find {path}/pod -depth -type d -exec rmdir {{}} + ; umount {path}"])
    script = f"umount {NAMESPACE}; umount {RUN}"
    ask(["sh", "-c", script])
    shutil.rmtree(V1, ignore_errors=True)
    NAMESPACE.unlink(missing_ok=True)


def v1_groups(text: str | None = None) -> dict[str, str]:
    """Return {controller: mount option} of those v1 controllers that Slurm wants and the host has.

    Controllers that the host mounts together (cpu,cpuacct) can only be mounted together.
    """
    if text is None:
        text = pathlib.Path("/proc/self/cgroup").read_text()
    groups = {}
    for line in text.splitlines():
        names = line.split(":")[1]
        for name in names.split(","):
            if name in V1_CONTROLLERS:
                groups[name] = names
    return {name: groups[name] for name in V1_CONTROLLERS if name in groups}


def v1_folders(container: str) -> dict[str, str]:
    """Make the node's own cgroup v1 folders; return {path on the host: path in the node}."""
    if not is_hybrid():
        return {}
    groups = v1_groups()
    script = ['name="$1"']
    for name, options in groups.items():
        root = V1 / name
        script += [
            f"mkdir -p {root}",
            f"mountpoint -q {root} || mount -t cgroup -o {options} cgroup {root}",
            f"mkdir -p {root}/pod",
        ]
        if name == "cpuset":
            # A new cpuset is empty, and nothing can run in an empty one.
            script += [
                f"cat {root}/cpuset.cpus > {root}/pod/cpuset.cpus",
                f"cat {root}/cpuset.mems > {root}/pod/cpuset.mems",
                f"echo 1 > {root}/pod/cgroup.clone_children",
            ]
        script.append(f'mkdir -p {root}/pod/"$name"')
    prefix = namespace_prefix()
    with (RUN.parent / f"{RUN.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = ask([*prefix, "sh", "-ec", "\n".join(script), "sh", container])
    if done.returncode:
        raise PodError(f"cgroup v1 folders of {container}: {done.stderr.strip()}")
    return {str(V1 / name / "pod" / container): f"/cgv1/{name}" for name in groups}


def drop_v1_folders(container: str) -> None:
    """Remove the cgroup v1 folders of a node that is gone."""
    if not is_hybrid() or not V1.exists():
        return
    script = "".join(
        f"find {V1 / name / 'pod' / container} -depth -type d -exec rmdir {{}} + ; "
        for name in v1_groups()
    )
    ask([*namespace_prefix(), "sh", "-c", script])


def runtime() -> str:
    """Return the OCI runtime that podman uses here."""
    # crun refuses hybrid hosts.
    return "runc" if is_hybrid() or not shutil.which("crun") else "crun"


def podman_argv(args: Sequence[str]) -> list[str]:
    """Return the command line of a podman call."""
    options: list[str] = []
    if is_hybrid():
        # There is no systemd that could manage these cgroups.
        options = [
            "--runtime",
            runtime(),
            "--cgroup-manager",
            "cgroupfs",
            "--events-backend",
            "file",
        ]
    return [*namespace_prefix(), str(PODMAN), *options, *args]


def podman(
    *args: str, data: str = "", check: bool = True, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run podman; PodError with its message when it fails and `check` is true."""
    try:
        done = ask(podman_argv(args), data, timeout)
    except subprocess.TimeoutExpired as exc:
        raise PodError(f"podman {args[0]} gave no answer in {timeout:.0f} s") from exc
    if check and done.returncode:
        raise PodError(f"podman {' '.join(args[:2])}: {done.stderr.strip()[-1500:]}")
    return done


def podman_json(*args: str) -> Any:
    """Return the parsed output of a podman call that lists things; [] where podman never was."""
    if not PODMAN.exists():
        return []
    return json.loads(podman(*args).stdout or "[]")


def raise_inotify_limit(progress: Progress) -> None:
    """Raise the one sysctl a pod needs on the host."""
    now = int(INOTIFY.read_text())
    if now >= INOTIFY_WANTED:
        return
    RUN.mkdir(exist_ok=True)
    before = RUN / "inotify.before"
    if not before.exists():
        before.write_text(str(now))
    INOTIFY.write_text(str(INOTIFY_WANTED))
    progress.say(
        f"fs.inotify.max_user_instances of this host raised from {now} to {INOTIFY_WANTED}"
    )


def restore_inotify_limit() -> int | None:
    """Set back what raise_inotify_limit changed; return the value."""
    before = RUN / "inotify.before"
    if not before.exists():
        return None
    value = int(before.read_text())
    INOTIFY.write_text(str(value))
    before.unlink()
    return value


def ulimits() -> list[str]:
    """Return --ulimit options that do not exceed what this process may set."""
    options = []
    for name, kind, most in (
        ("nofile", resource.RLIMIT_NOFILE, 1048576),
        # More than this is refused without CAP_SYS_RESOURCE, even below the hard limit.
        ("nproc", resource.RLIMIT_NPROC, 32768),
    ):
        hard = resource.getrlimit(kind)[1]
        value = most if hard == resource.RLIM_INFINITY else min(hard, most)
        options += ["--ulimit", f"{name}={value}:{value}"]
    return options


def host_addresses() -> list[tuple[str, str]]:
    """Return (interface, cidr) of the host's IPv4 addresses."""
    links = json.loads(_query(["ip", "-j", "-4", "addr"]) or "[]")
    return [
        (link["ifname"], f"{a['local']}/{a['prefixlen']}")
        for link in links
        for a in link.get("addr_info", [])
    ]


def wait_until(what: str, test: Any, timeout_s: float, pause_s: float = 0.2) -> None:
    """Return when test() is true; PodError after the time."""
    end = time.monotonic() + timeout_s
    while not test():
        if time.monotonic() > end:
            raise PodError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(pause_s)


def apparmor() -> bool:
    """Return whether the host's kernel enforces AppArmor profiles."""
    path = pathlib.Path("/sys/module/apparmor/parameters/enabled")
    return path.exists() and path.read_text().strip() == "Y"
