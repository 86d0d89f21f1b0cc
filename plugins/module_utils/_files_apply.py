# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Reading paths and replacing them atomically: the file system side of `_files`."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import re
import shutil
import stat
import tempfile
from typing import Callable, Iterable, Iterator, Mapping, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._files import (
    ABSENT,
    ATTRIBUTES,
    DIRECTORY,
    FILE,
    LINK,
    MAKE_DIRECTORY,
    MAKE_LINK,
    OTHER,
    REMOVE,
    WRITE,
    Observed,
    Step,
    Wanted,
    parse_mount_points,
    staged_names,
)

# Leading dot and trailing tilde: run-parts, sudoers.d, sshd_config.d, sysctl.d, systemd and
# Slurm's prolog globs all pass over such a name, should a killed run leave one behind.
_TEMPORARY = re.compile(r"^\..+\.baremetal-dgx-(\d+)-[^.]*~$")
_STAGE = re.compile(r"^baremetal-dgx-stage-(\d+)-")

# gives a file its SELinux context: (temporary path, final path) → None
Labeller = Callable[[str, str], None]


def observe(wanted: Sequence[Wanted]) -> dict[str, Observed]:
    """The present state of every path."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as handle:
            mounts = parse_mount_points(handle.read())
    except OSError:
        mounts = set()
    return {want.path: _observe_path(want.path, mounts) for want in wanted}


def _observe_path(path: str, mounts: set[str]) -> Observed:
    parent = os.path.isdir(os.path.dirname(path))
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return Observed(ABSENT, parent=parent)
    mounted = path in mounts
    if stat.S_ISLNK(status.st_mode):
        leads_to_directory = os.path.isdir(path)
        if leads_to_directory:
            status = os.stat(path)
        return Observed(
            LINK,
            target=os.readlink(path),
            parent=parent,
            leads_to_directory=leads_to_directory,
            mode=stat.S_IMODE(status.st_mode),
            uid=status.st_uid,
            gid=status.st_gid,
            owner=_name_of_user(status.st_uid),
            group=_name_of_group(status.st_gid),
        )
    kind, content, entries = OTHER, b"", 0
    if stat.S_ISREG(status.st_mode):
        kind = FILE
        with open(path, "rb") as handle:
            content = handle.read()
    elif stat.S_ISDIR(status.st_mode):
        kind, entries = DIRECTORY, len(os.listdir(path))
    return Observed(
        kind,
        content,
        stat.S_IMODE(status.st_mode),
        status.st_uid,
        status.st_gid,
        _name_of_user(status.st_uid),
        _name_of_group(status.st_gid),
        entries=entries,
        parent=parent,
        mount_point=mounted,
    )


def _name_of_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _name_of_group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def user_numbers(names: Iterable[str]) -> dict[str, int | None]:
    """Each user name with its number, None for those the host does not know."""
    return {name: _lookup(name, lambda n: pwd.getpwnam(n).pw_uid) for name in names if name}


def group_numbers(names: Iterable[str]) -> dict[str, int | None]:
    """Each group name with its number, None for those the host does not know."""
    return {name: _lookup(name, lambda n: grp.getgrnam(n).gr_gid) for name in names if name}


def _lookup(name: str, find: Callable[[str], int]) -> int | None:
    if name.isdigit():
        return int(name)
    try:
        return find(name)
    except KeyError:
        return None


@contextlib.contextmanager
def stage(wanted: Sequence[Wanted], observed: Mapping[str, Observed]) -> Iterator[str]:
    """A 0700 folder with a 0600 copy of every regular file as it will be; removed afterwards.

    It lies in /run (memory), where a reboot clears what a killed run left; the next run does, too.
    """
    base = "/run" if os.access("/run", os.W_OK) else tempfile.gettempdir()
    for name in os.listdir(base):
        found = _STAGE.match(name)
        if found and not _alive(int(found.group(1))):
            shutil.rmtree(os.path.join(base, name), ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=f"baremetal-dgx-stage-{os.getpid()}-", dir=base)
    try:
        files = [want for want in wanted if want.state == FILE]
        names = staged_names(want.path for want in files)
        for want in files:
            now = observed[want.path]
            keep = now.kind == FILE and (want.content is None or not want.replace)
            copy = os.path.join(folder, names[want.path])
            os.makedirs(os.path.dirname(copy), mode=0o700, exist_ok=True)
            with open(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:
                handle.write(now.content if keep else want.content or b"")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def apply_steps(steps: Sequence[Step], label: Labeller) -> Iterator[str]:
    """Do the steps; yields each path once it is done.

    First everything that can run out of space or rights (folders, temporary files beside their
    targets), then the renames in the order asked for: a full disk leaves every old file in place.
    Each rename is atomic, so a run killed between two leaves files that are old or new, and the
    next run replaces the rest. Raises OSError.
    """
    temporaries: dict[str, str] = {}
    try:
        for folder in sorted({os.path.dirname(step.path) for step in steps}):
            sweep(folder)
        for step in steps:
            if step.action == MAKE_DIRECTORY:
                _make_directory(step, label)
            elif step.action == MAKE_LINK:
                temporaries[step.path] = _temporary_link(step, label)
            elif step.action == WRITE and not step.in_place:
                temporaries[step.path] = _temporary_file(step, label)
        for step in steps:
            _commit(step, temporaries)
            yield step.path
    finally:
        for name in temporaries.values():
            with contextlib.suppress(OSError):
                os.unlink(name)


def _commit(step: Step, temporaries: dict[str, str]) -> None:
    """The part of a step that others can see."""
    if step.action == ATTRIBUTES:
        _set_attributes(step.path, step)
        return
    if step.path in temporaries:
        _rename(step, temporaries)
    elif step.action == WRITE:
        _write_in_place(step)
    elif step.action == REMOVE and step.before.kind == DIRECTORY:
        os.rmdir(step.path)
    elif step.action == REMOVE:
        os.unlink(step.path)
    _sync_folder(os.path.dirname(step.path))


def sweep(folder: str) -> None:
    """Remove the temporary files that killed runs left in a folder."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        found = _TEMPORARY.match(name)
        if found and not _alive(int(found.group(1))):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))


def _temporary_name(path: str) -> tuple[str, str]:
    folder, base = os.path.split(path)
    # NAME_MAX is 255 bytes; the base name is only there for the reader
    return folder, f".{base[:180]}.baremetal-dgx-{os.getpid()}-"


def _temporary_file(step: Step, label: Labeller) -> str:
    folder, prefix = _temporary_name(step.path)
    descriptor, name = tempfile.mkstemp(prefix=prefix, suffix="~", dir=folder)
    try:
        with open(descriptor, "wb") as handle:
            handle.write(step.content)
            handle.flush()
            _set_attributes(name, step)
            label(name, step.path)
            os.fsync(handle.fileno())
    except BaseException:
        os.unlink(name)
        raise
    return name


def _temporary_link(step: Step, label: Labeller) -> str:
    folder, prefix = _temporary_name(step.path)
    name = os.path.join(folder, prefix + "link~")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name)
    os.symlink(step.wanted.target, name)
    label(name, step.path)
    return name


def _make_directory(step: Step, label: Labeller) -> None:
    # 0700 until it has its owner: nothing may be slipped into what will be root's directory
    os.mkdir(step.path, 0o700)
    _set_attributes(step.path, step)
    label(step.path, step.path)


def _rename(step: Step, temporaries: dict[str, str]) -> None:
    try:
        os.replace(temporaries[step.path], step.path)
        del temporaries[step.path]
    except OSError as error:
        if error.errno != errno.EBUSY or not step.wanted.unsafe_writes or step.action != WRITE:
            raise
        _write_in_place(step)


def _write_in_place(step: Step) -> None:
    with open(step.path, "r+b") as handle:
        handle.write(step.content)
        handle.truncate()
        handle.flush()
        os.fsync(handle.fileno())
    _set_attributes(step.path, step)


def _set_attributes(path: str, step: Step) -> None:
    """Owner first: chown clears set-id bits, and no mode may open a file to a wrong owner."""
    status = os.stat(path)
    uid = step.uid if step.uid >= 0 else status.st_uid
    gid = step.gid if step.gid >= 0 else status.st_gid
    if (uid, gid) != (status.st_uid, status.st_gid):
        os.chown(path, uid, gid)
    os.chmod(path, step.mode)


def _sync_folder(folder: str) -> None:
    """Make a rename durable; a file system that cannot sync folders is left alone."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
