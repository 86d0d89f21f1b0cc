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
import stat
import tempfile
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, Sequence

from ..._core.files import (
    NO_OTHER,
    NO_OTHER_WRITER,
    Folder,
    UnsafeError,
    make_temporary,
    open_folder,
    open_to_others,
    remove_tree,
    runs,
    trusted,
    write_all,
    write_atomic,
)
from ..._core.mounts import all_mounts
from .plan import (
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
    plan_files,
    staged_names,
)

# What is larger is not a configuration.
_MOST_BYTES = 1 << 30
_STAGE = re.compile(r"^baremetal-dgx-stage-(\d+)-")

# gives a file its SELinux context: (temporary path, final path) → None
Labeller = Callable[[str, str], None]


def observe(wanted: Sequence[Wanted]) -> dict[str, Observed]:
    """The present state of every path."""
    mounts = all_mounts()
    return {want.path: _observe_path(want.path, mounts) for want in wanted}


def _observe_path(path: str, mounts: Collection[str]) -> Observed:
    above, name = os.path.split(path)
    try:
        folder = open_folder(above)
    except UnsafeError as error:
        return Observed(ABSENT, unsafe=str(error))
    except (FileNotFoundError, NotADirectoryError):
        return Observed(ABSENT, parent=False)
    with folder:
        try:
            status = folder.lstat(name)
        except FileNotFoundError:
            return Observed(ABSENT)
        if stat.S_ISLNK(status.st_mode):
            return _observe_link(folder, name, status)
        kind, content, entries = OTHER, b"", 0
        if stat.S_ISREG(status.st_mode):
            kind, content = FILE, folder.read(name, _MOST_BYTES)
        elif stat.S_ISDIR(status.st_mode):
            with folder.folder(name) as below:
                # What a killed writer has left goes with the folder.
                kind, entries = DIRECTORY, len(below.names()) - len(below.left_by_killed())
        return _with_owner(
            status,
            kind,
            content=content,
            entries=entries,
            mount_point=path in mounts,
            foreign=_foreign(folder.status(), status),
        )


def _observe_link(folder: Folder, name: str, status: os.stat_result) -> Observed:
    """A link; of one that leads to a directory and can be trusted, that one's owner and mode."""
    path, unsafe, leads = os.path.join(folder.path, name), "", False
    try:
        with open_folder(path) as there:
            status, leads = there.status(), True
    except UnsafeError as error:
        unsafe = str(error)
    except OSError:
        leads = False
    target = os.readlink(name, dir_fd=folder.descriptor)
    # As a link it may be replaced or removed, wherever it leads.
    return _with_owner(status, LINK, target=target, leads_to_directory=leads, unsafe_target=unsafe)


def _with_owner(status: os.stat_result, kind: str, **more: Any) -> Observed:
    return Observed(
        kind,
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        owner=_name_of_user(status.st_uid),
        group=_name_of_group(status.st_gid),
        **more,
    )


def _foreign(folder: os.stat_result, found: os.stat_result) -> bool:
    """Return whether another user may have put a file or directory there.

    A service's own things in its own folder, which only it may write into, are not meant.
    """
    if trusted(found.st_uid) or not open_to_others(folder):
        return False
    return bool(folder.st_mode & NO_OTHER_WRITER) or folder.st_uid != found.st_uid


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

    It is in /run (memory), where a reboot clears what a killed run left; the next run does, too.
    """
    base = "/run" if os.access("/run", os.W_OK) else tempfile.gettempdir()
    for name in os.listdir(base):
        found = _STAGE.match(name)
        if found and not runs(int(found.group(1))):
            with contextlib.suppress(OSError):
                if trusted(os.lstat(os.path.join(base, name)).st_uid):
                    remove_tree(os.path.join(base, name))
    folder = make_temporary(f"baremetal-dgx-stage-{os.getpid()}-", base)
    try:
        files = [want for want in wanted if want.state == FILE]
        names = staged_names(want.path for want in files)
        for want in files:
            now = observed[want.path]
            keep = now.kind == FILE and (want.content is None or not want.replace)
            copy = os.path.join(folder, names[want.path])
            content = now.content if keep else want.content or b""
            write_atomic(copy, content, 0o600, sync=False, make=0o700)
        yield folder
    finally:
        with contextlib.suppress(OSError):
            remove_tree(folder)


def apply_steps(steps: Sequence[Step], label: Labeller) -> Iterator[str]:
    """Do the steps; yields each path once it is done.

    First everything that can run out of space or rights (folders, temporary files beside their
    targets), then the renames in the order asked for: a full disk leaves every old file in place.
    Each rename is atomic, so a run killed between two leaves files that are old or new, and the
    next run replaces the rest. Raises OSError.
    """
    folders: dict[str, Folder] = {}
    temporaries: dict[str, str] = {}
    try:
        emptied = {
            one.path for one in steps if (one.action, one.before.kind) == (REMOVE, DIRECTORY)
        }
        for swept in sorted({os.path.dirname(step.path) for step in steps} | emptied):
            with contextlib.suppress(OSError):
                sweep(swept)
        for step in steps:
            above, name = os.path.split(step.path)
            if above not in folders:
                folders[above] = open_folder(above)
            folder = folders[above]
            if step.action == MAKE_DIRECTORY:
                _make_directory(folder, name, step, label)
            elif step.action == MAKE_LINK:
                temporaries[step.path] = folder.prepare_link(name, step.wanted.target)
            elif step.action == WRITE and not step.in_place:
                uid, gid = _owner_of(step)
                temporaries[step.path] = folder.prepare(name, step.content, step.mode, uid, gid)
            if step.path in temporaries:
                label(os.path.join(above, temporaries[step.path]), step.path)
        for step in steps:
            above, name = os.path.split(step.path)
            _commit(folders[above], name, step, temporaries)
            yield step.path
    finally:
        for path, fresh in temporaries.items():
            with contextlib.suppress(OSError):
                folders[os.path.dirname(path)].remove(fresh)
        for folder in folders.values():
            folder.close()


def _commit(folder: Folder, name: str, step: Step, temporaries: dict[str, str]) -> None:
    """The part of a step that others can see."""
    if step.action == ATTRIBUTES:
        uid, gid = _owner_of(step)
        if step.before.kind == LINK:
            with open_folder(step.path) as there:
                there.set_attributes(step.mode, uid, gid)
        else:
            folder.attributes(name, step.mode, uid, gid)
        return
    if step.path in temporaries:
        _rename(folder, name, step, temporaries)
    elif step.action == WRITE:
        _write_in_place(folder, name, step)
    elif step.action == REMOVE and step.before.kind == DIRECTORY:
        folder.remove_folder(name)
    elif step.action == REMOVE:
        folder.remove(name)
    with contextlib.suppress(OSError):
        folder.sync()


def sweep(path: str) -> None:
    """Remove the temporary files that killed runs left in a folder."""
    with open_folder(path) as folder:
        folder.sweep()


def _owner_of(step: Step) -> tuple[int, int]:
    """Owner and group to set; -1 for what stays."""
    uid = step.uid if step.uid >= 0 and step.uid != step.before.uid else -1
    gid = step.gid if step.gid >= 0 and step.gid != step.before.gid else -1
    if step.action == ATTRIBUTES:
        return uid, gid
    return max(step.uid, -1), max(step.gid, -1)


def _make_directory(folder: Folder, name: str, step: Step, label: Labeller) -> None:
    # 0700 until it has its owner: nothing may be slipped into what will be root's directory
    try:
        with folder.folder(name, 0o700, NO_OTHER) as made:
            made.set_attributes(step.mode, *_owner_of(step))
    except UnsafeError:
        # A host that shares the storage may have made it a moment ago. Then this one does what its
        # next run would do.
        want = step.wanted
        numbers = user_numbers([want.owner]), group_numbers([want.group])
        again = plan_files([want], observe([want]), *numbers, False)
        if again.errors or any(one.action != ATTRIBUTES for one in again.steps):
            raise
        for one in again.steps:
            _commit(folder, name, one, {})
    label(step.path, step.path)


def _rename(folder: Folder, name: str, step: Step, temporaries: dict[str, str]) -> None:
    try:
        folder.rename(temporaries[step.path], name)
        del temporaries[step.path]
    except OSError as error:
        if error.errno != errno.EBUSY or not step.wanted.unsafe_writes or step.action != WRITE:
            raise
        _write_in_place(folder, name, step)


def _write_in_place(folder: Folder, name: str, step: Step) -> None:
    with folder.open(name, append=False) as handle:
        write_all(handle, step.content)
        handle.truncate()
        os.fsync(handle.fileno())
    folder.attributes(name, step.mode, *_owner_of(step))
