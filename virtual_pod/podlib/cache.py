# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One package cache for all pods: apt-cacher-ng on the loopback, one relay per pod on its gateway.

apt-cacher-ng cannot take a further address without a restart, which would cut the downloads of
the other pods; a relay per pod can come and go. The nodes' network has no way to the outside but
this.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pathlib
import pwd
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator

from podlib import daemons, host, names
from podlib.layout import Pod, PodError
from podlib.progress import Progress, run_visible

RELAY_PORT = 3142
# While this file is beside pod.json, the pod's nodes get no packages.
SHUT = "no-packages"
# Exists on every Debian and Ubuntu host, and may do nothing but fetch packages.
_USER = "_apt"


def cache_config(folder: pathlib.Path, support: str, port: int, proxy: str) -> str:
    """Return acng.conf. No Remap lines: host names pass through as they are in the sources."""
    lines = [
        f"CacheDir: {folder}/cache",
        f"LogDir: {folder}/log",
        f"SupportDir: {support}",
        # Only the relays talk to it.
        "BindAddress: 127.0.0.1",
        f"Port: {port}",
        f"PidFile: {folder}/run/acng.pid",
        # Its default is in a folder of the package's own user.
        f"SocketPath: {folder}/run/acng.socket",
        "ForeGround: 1",
        "ReportPage: acng-report.html",
        "ExThreshold: 30",
        # A mirror may sit on any port.
        "AllowUserPorts: 0",
    ]
    if proxy:
        lines.append(f"Proxy: {proxy}")
    return "\n".join(lines) + "\n"


def host_proxy() -> str:
    """Return the proxy that apt on the host uses, or an empty text."""
    done = host.ask(["apt-config", "shell", "PROXY", "Acquire::http::Proxy"])
    value = done.stdout.strip().partition("=")[2]
    return (shlex.split(value) or [""])[0] if value else ""


def ensure_cache(progress: Progress) -> int:
    """Start the package cache unless it runs; return its port on the loopback."""
    folder = host.CACHE
    for name in ("cache", "log", "run", "conf"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    program, env = _program(progress)
    with (folder / "run" / "acng.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # The holder of the lock is the daemon, or has just started it.
            host.wait_until("the package cache answers", lambda: _port_answers(folder), 20)
            return _port(folder) or 0
        port = _free_port()
        support = str(pathlib.Path(program).parents[1] / "lib" / "apt-cacher-ng")
        (folder / "conf" / "acng.conf").write_text(
            cache_config(folder, support, port, host_proxy())
        )
        user = pwd.getpwnam(_USER)
        for name in ("cache", "log", "run"):
            if (folder / name).stat().st_uid != user.pw_uid:
                owner = f"{user.pw_uid}:{user.pw_gid}"
                done = host.ask(["chown", "-R", owner, str(folder / name)])
                if done.returncode:
                    raise PodError(f"{folder / name} cannot be given to {_USER}: {done.stderr}")
        argv = ["setpriv", "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid)]
        argv += ["--clear-groups", program, "-c", str(folder / "conf")]
        daemons.spawn(argv, lock, folder / "run" / "acng.out", env)
        (folder / "run" / "port").write_text(str(port))
    try:
        host.wait_until("the package cache answers", lambda: _port_answers(folder), 20)
    except PodError as exc:
        text = (folder / "run" / "acng.out").read_text().strip()
        raise PodError(f"{exc}: {text[-500:] or 'no message'}") from exc
    progress.say(f"package cache started ({folder / 'cache'})")
    return port


@contextlib.contextmanager
def in_use() -> Iterator[None]:
    """Keep the package cache while a pod comes up: before its first node it may make an image."""
    path = host.CACHE / "run" / "users.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def stop_cache() -> bool:
    """Stop the package cache unless a pod comes up; return whether it ran."""
    path = host.CACHE / "run" / "users.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return daemons.stop(host.CACHE / "run" / "acng.lock")


def ensure_relay(progress: Progress, pod: Pod) -> None:
    """Make the package cache answer on the pod's gateway."""
    path = _relay_lock(pod.name)
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        record = host.CHECKOUT / ".pod" / pod.name / "pod.json"
        argv = [sys.executable, os.path.realpath(sys.argv[0]), "_relay", pod.gateway, str(record)]
        env = os.environ | {"BAREMETAL_POD_CACHE": str(host.CACHE)}
        daemons.spawn(argv, lock, host.RUN / f"relay-{pod.name}.out", env)
    progress.say(f"{pod.gateway} answers the nodes: packages (port {RELAY_PORT}), names")


def stop_relay(name: str) -> bool:
    """Stop a pod's relay; return whether it ran."""
    stopped = daemons.stop(_relay_lock(name))
    for suffix in ("lock", "out"):
        (host.RUN / f"relay-{name}.{suffix}").unlink(missing_ok=True)
    return stopped


def proxy_url(pod: Pod) -> str:
    """Return where the nodes find the package cache."""
    return f"http://{pod.gateway}:{RELAY_PORT}"


def set_packages(name: str, offered: bool) -> None:
    """Open or shut a pod's way to packages; connections that are open end with their download."""
    mark = host.CHECKOUT / ".pod" / name / SHUT
    if offered:
        mark.unlink(missing_ok=True)
    else:
        mark.touch()


def serve_relay(address: str, record: str) -> None:
    """Pass connections on to the package cache, and answer for names, until killed."""
    asyncio.run(_serve(address, pathlib.Path(record)))


async def _serve(address: str, record: pathlib.Path) -> None:
    loop = asyncio.get_running_loop()
    listener = _bound(address, RELAY_PORT, socket.SOCK_STREAM)
    shut = record.with_name(SHUT)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if shut.exists():
            writer.close()
        else:
            await _relay(reader, writer)

    server = await asyncio.start_server(relay, sock=listener, limit=1 << 20)
    try:
        await loop.create_datagram_endpoint(
            lambda: names.Server(lambda: names.addresses_in(record)),
            sock=_bound(address, names.PORT, socket.SOCK_DGRAM),
        )
    except OSError as exc:
        # A name server of the host that listens everywhere. The nodes do without.
        print(f"no name server on {address}: {exc}", flush=True)
    async with server:
        await server.serve_forever()


def _bound(address: str, port: int, kind: socket.SocketKind) -> socket.socket:
    bound = socket.socket(type=kind)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # IP_FREEBIND: the pod's bridge may come later.
    bound.setsockopt(socket.IPPROTO_IP, 15, 1)
    bound.setblocking(False)
    bound.bind((address, port))
    return bound


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        port = _port(host.CACHE)
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_pump(reader, up_writer), _pump(up_reader, writer))
    writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 18):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def _relay_lock(name: str) -> pathlib.Path:
    host.RUN.mkdir(exist_ok=True)
    return host.RUN / f"relay-{name}.lock"


def _port(folder: pathlib.Path) -> int | None:
    try:
        return int((folder / "run" / "port").read_text())
    except (OSError, ValueError):
        return None


def _port_answers(folder: pathlib.Path) -> bool:
    port = _port(folder)
    if port is None:
        return False
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 2):
        return True
    return False


def _free_port() -> int:
    # apt-cacher-ng takes no port above 32767, which is where the ephemeral ones begin anyway.
    for port in range(23142, 32767):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise PodError("no free port for the package cache on the loopback")


def _program(progress: Progress) -> tuple[str, dict[str, str] | None]:
    """Return the daemon and its environment; fetch it into the cache folder if the host lacks it.

    Unpacked, not installed: the package would start its own service on every address.
    """
    installed = shutil.which("apt-cacher-ng", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if installed:
        return installed, None
    root = host.CACHE / "apt-cacher-ng"
    program = root / "usr/sbin/apt-cacher-ng"
    with host.locked(progress, host.CACHE / "run" / "fetch.lock", "the package cache's program"):
        if not program.exists():
            progress.say(f"fetching apt-cacher-ng into {root} (unpacked there, not installed)")
            fresh = host.CACHE / "apt-cacher-ng.new"
            shutil.rmtree(fresh, ignore_errors=True)
            debs = fresh / "debs"
            (debs / "partial").mkdir(parents=True)
            argv = ["apt-get", "install", "-y", "-q", "--download-only", "--no-install-recommends"]
            argv += ["-o", f"Dir::Cache::archives={debs}", "apt-cacher-ng"]
            if not any(pathlib.Path("/var/lib/apt/lists").glob("*Packages*")):
                run_visible(progress, "apt-get update", ["apt-get", "update", "-q"])
            run_visible(progress, "apt-get", argv, keep=lambda line: line.startswith("Get:"))
            for deb in sorted(debs.glob("*.deb")):
                subprocess.run(["dpkg-deb", "-x", deb, fresh], check=True)
            shutil.rmtree(debs)
            shutil.rmtree(root, ignore_errors=True)
            fresh.rename(root)
    libraries = [str(p) for p in (root / "usr/lib").glob("*-linux-gnu")]
    libraries += [str(p) for p in (root / "lib").glob("*-linux-gnu")]
    return str(program), os.environ | {"LD_LIBRARY_PATH": ":".join(libraries)}
