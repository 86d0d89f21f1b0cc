# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of the nodes: one per suite and kind, shared by all pods of the machine."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from podlib import host
from podlib.layout import PodError
from podlib.progress import Progress, run_visible

REPOSITORY = "localhost/baremetal-dgx-pod"
# Package lists are baked in; with old ones an install asks for packages that mirrors have dropped.
MAX_AGE_DAYS = 7
_FOLDER = pathlib.Path(__file__).resolve().parents[1]
_HOOKS = (f"--customize-hook={_FOLDER / 'image-hook.sh'}",)
# What makes the same file system boot by itself.
_MACHINE_HOOKS = (
    f"--essential-hook={_FOLDER / 'machine-initrd.sh'}",
    *_HOOKS,
    f"--customize-hook={_FOLDER / 'machine-hook.sh'}",
)
_PACKAGES = (
    "systemd,systemd-sysv,dbus,openssh-server,sudo,iproute2,iputils-ping,ca-certificates,"
    "procps,kmod,udev,netbase,libpam-systemd,less,vim-tiny"
)
_PYTHON = ",python3,python3-apt"
_KERNEL = ",linux-image-amd64,initramfs-tools,lz4,grub-pc-bin,grub2-common,e2fsprogs"
# They hold in the nodes too. force-unsafe-io: a node need not survive a power cut.
_DPKG_OPTIONS = (
    "force-unsafe-io",
    *(f"path-exclude=/usr/share/{name}/*" for name in ("man", "doc", "locale", "info")),
)
_CHANGES = ("CMD /lib/systemd/systemd", "STOPSIGNAL SIGRTMIN+3")


@dataclass(frozen=True)
class Recipe:
    """All that an image is made of."""

    suite: str
    bare: bool
    sources: tuple[str, ...]
    apt_options: tuple[str, ...]
    hook: str
    machine: bool = False

    @property
    def variant(self) -> str:
        """Return the suite, with -bare for no Python, with -machine for one that boots."""
        return self.suite + ("-bare" if self.bare else "-machine" if self.machine else "")

    @property
    def packages(self) -> str:
        """Return mmdebstrap's --include list."""
        return _PACKAGES + ("" if self.bare else _PYTHON) + (_KERNEL if self.machine else "")

    @property
    def tag(self) -> str:
        """Return the image's name among those of pods; another recipe has another one."""
        parts = (self.variant, self.packages, self.sources, self.apt_options, self.hook)
        text = repr((*parts, _CHANGES, _DPKG_OPTIONS))
        return f"{self.variant}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @property
    def name(self) -> str:
        """Return repository:tag."""
        return f"{REPOSITORY}:{self.tag}"

    @property
    def hooks(self) -> tuple[str, ...]:
        """Return mmdebstrap's options for what is done in the file system."""
        return _MACHINE_HOOKS if self.machine else _HOOKS


def sources_of(indextargets: str, codename: str, suite: str) -> tuple[str, ...]:
    """Return the deb lines for a suite, out of the host's own ones.

    `indextargets` has one `URI RELEASE COMPONENT` a line. Third parties' repositories have other
    release names and drop out. Sources over https are fetched by the package cache's own notation,
    because it can keep nothing of a tunnelled connection.
    """
    lines = []
    for line in indextargets.splitlines():
        uri, release, component = line.split()[:3]
        if release != codename and not release.startswith(f"{codename}-"):
            continue
        if uri.startswith("https://"):
            uri = "http://HTTPS///" + uri[len("https://") :]
        if uri.startswith("http://"):
            lines.append(f"deb {uri} {suite}{release[len(codename) :]} {component}")
    return tuple(sorted(set(lines)))


def host_sources(suite: str) -> tuple[str, ...]:
    """Return the deb lines for the suite from a Debian host; nothing from any other host."""
    release = host.os_release()
    if release.get("ID") != "debian":
        return ()
    argv = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"]
    done = host.ask([*argv, "Created-By: Packages"])
    return sources_of(done.stdout, release.get("VERSION_CODENAME", ""), suite)


def host_apt_options() -> tuple[str, ...]:
    """Return the host's answers to how old a mirror may be (one that is frozen sets them)."""
    options = []
    for key in ("Acquire::Check-Valid-Until", "Acquire::Check-Date"):
        done = host.ask(["apt-config", "shell", "X", key])
        value = (shlex.split(done.stdout.strip().partition("=")[2]) or [""])[0]
        if value:
            options.append(f'{key} "{value}"')
    return tuple(options)


def recipe(suite: str, bare: bool, machine: bool = False) -> Recipe:
    """Return how the image is made on this host."""
    hooks = _MACHINE_HOOKS if machine else _HOOKS
    hook = "".join(pathlib.Path(option.partition("=")[2]).read_text() for option in hooks)
    return Recipe(suite, bare, host_sources(suite), host_apt_options(), hook, machine)


def age_days(inspected: Sequence[dict[str, Any]], now: datetime.datetime) -> float:
    """Return the age of an image out of `podman image inspect`."""
    created = inspected[0]["Created"].split(".")[0].rstrip("Z")
    made = datetime.datetime.fromisoformat(created).replace(tzinfo=datetime.timezone.utc)
    return (now - made).total_seconds() / 86400


def is_usable(name: str) -> bool:
    """Return whether the image exists and is young enough."""
    done = host.podman("image", "inspect", name, check=False)
    if done.returncode:
        return False
    now = datetime.datetime.now(datetime.timezone.utc)
    return age_days(json.loads(done.stdout), now) < MAX_AGE_DAYS


def ensure_image(progress: Progress, suite: str, bare: bool, cache_port: int) -> str:
    """Return the name of an image of the suite; make it when there is none, or only an old one."""
    wanted = recipe(suite, bare)
    if is_usable(wanted.name):
        return wanted.name
    lock = host.CACHE / "run" / f"image-{wanted.variant}.lock"
    with host.locked(progress, lock, f"the image {wanted.variant}"):
        if not is_usable(wanted.name):
            _build(progress, wanted, cache_port)
    return wanted.name


def _common_argv(
    options: Sequence[str], cache_port: int, keyring: pathlib.Path | None
) -> list[str]:
    """Return the part of mmdebstrap's command line that says what to trust and where to fetch."""
    argv = ["mmdebstrap", "--mode=root", *(f"--aptopt={option}" for option in options)]
    argv.append(f'--aptopt=Acquire::http::Proxy "http://127.0.0.1:{cache_port}"')
    if keyring:
        # mmdebstrap ties its own mirror to the host's keyring.
        argv += [f"--keyring={keyring}", _setup_hook(r"s/\[signed-by=[^]]*\] *//")]
    return argv


def _setup_hook(edit: str) -> str:
    return f"""--setup-hook=sed -i '{edit}' "$1"/etc/apt/sources.list"""


def ensure_keyring(
    progress: Progress, options: Sequence[str], cache_port: int
) -> pathlib.Path | None:
    """Return a keyring with the keys of all suites; nothing on Debian, which has them.

    Ubuntu's copy of Debian's keys is as old as the Ubuntu. Debian hands on its keys itself: each
    release's own keyring package is signed with keys that the release before already had.
    """
    if host.os_release().get("ID") == "debian":
        return None
    keyring = host.CACHE / "debian-archive-keyring.gpg"
    with host.locked(progress, host.CACHE / "run" / "keyring.lock", "Debian's keyring"):
        for chain in (("bookworm",), ("bullseye", "bookworm")):
            if keyring.exists():
                return keyring
            progress.say(f"fetching Debian's keyring out of {', then '.join(chain)}")
            with contextlib.suppress(PodError):
                _fetch_keyring(progress, chain, options, cache_port, keyring)
    if keyring.exists():
        return keyring
    raise PodError(
        "Debian's keyring on this host is too old; "
        f"put a newer debian-archive-keyring.gpg at {keyring}"
    )


def _fetch_keyring(
    progress: Progress,
    chain: Sequence[str],
    options: Sequence[str],
    cache_port: int,
    target: pathlib.Path,
) -> None:
    with tempfile.TemporaryDirectory(prefix="keyring.", dir=host.CACHE) as work:
        trusted = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")
        for suite in chain:
            root = pathlib.Path(work) / suite
            argv = _common_argv(options, cache_port, trusted)
            # The release itself is signed with more keys than its updates are.
            argv += ["--variant=extract", _setup_hook("/-updates\\|-security/d")]
            argv += ["--include=debian-archive-keyring", suite, str(root)]
            run_visible(progress, f"keyring of {suite}", argv, keep=lambda _line: False)
            trusted = root / "usr/share/keyrings/debian-archive-keyring.gpg"
        shutil.copyfile(trusted, f"{target}.new")
        os.replace(f"{target}.new", target)


def mmdebstrap_argv(
    wanted: Recipe, cache_port: int, target: pathlib.Path, keyring: pathlib.Path | None = None
) -> list[str]:
    """Return the command that makes the root file system."""
    apt = ['Acquire::Languages "none"', *wanted.apt_options]
    return [
        *_common_argv(apt, cache_port, keyring),
        "--variant=minbase",
        "--skip=cleanup/apt",
        *(f"--dpkgopt={option}" for option in _DPKG_OPTIONS),
        f"--include={wanted.packages}",
        # Out with the address that only this host can reach; nodes get their own.
        '--customize-hook=sed -i /127.0.0.1:/d "$1"/etc/apt/apt.conf.d/99mmdebstrap',
        *wanted.hooks,
        wanted.suite,
        str(target),
        *wanted.sources,
    ]


@contextlib.contextmanager
def root_of(
    progress: Progress, wanted: Recipe, cache_port: int, form: str
) -> Iterator[pathlib.Path]:
    """Make the root file system, a root.tar or a folder root; it goes when the block ends."""
    what = f"image {wanted.variant}"
    origin = "this host's apt sources" if wanted.sources else "mmdebstrap's default mirror"
    progress.say(f"{what}: making {wanted.tag} from {origin}")
    keyring = ensure_keyring(progress, wanted.apt_options, cache_port)
    work = host.CACHE / "build"
    work.mkdir(exist_ok=True)
    for left in work.glob(f"{wanted.variant}.*"):
        subprocess.run(["rm", "-rf", "--one-file-system", left], check=False)
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{wanted.variant}.", dir=work))
    # mmdebstrap unpacks as _apt in here.
    folder.chmod(0o755)
    try:
        made = folder / form
        # Dies with us: nothing may go on writing into a folder that the next run removes.
        argv = [
            "setpriv",
            "--pdeathsig",
            "TERM",
            *mmdebstrap_argv(wanted, cache_port, made, keyring),
        ]
        env = os.environ | {"TMPDIR": str(folder), "LC_ALL": "C.UTF-8"}
        run_visible(progress, what, argv, env=env, keep=lambda line: line.startswith(("I:", "E:")))
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _build(progress: Progress, wanted: Recipe, cache_port: int) -> None:
    what = f"image {wanted.variant}"
    with root_of(progress, wanted, cache_port, "root.tar") as tar:
        changes = [f"--change={change}" for change in _CHANGES]
        with progress.during(lambda: f"{what}: importing"):
            host.podman("import", "-q", *changes, str(tar), wanted.name)
    if not is_usable(wanted.name):
        raise PodError(f"{what}: made, but podman does not show it")
    for old in images():
        # podman refuses for an image that a node still uses, which is what we want.
        if old.startswith(f"{REPOSITORY}:{wanted.variant}-") and old != wanted.name:
            if old.split(":")[1].rsplit("-", 1)[0] == wanted.variant:
                host.podman("rmi", old, check=False)
    progress.say(f"{what}: ready")


def images() -> list[str]:
    """Return the names of all images of pods."""
    argv = ("images", "--format", "{{.Repository}}:{{.Tag}}", "--filter", f"reference={REPOSITORY}")
    return host.podman(*argv).stdout.split()
