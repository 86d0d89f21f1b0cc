# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Files and folders: the only place where the collection writes, makes and removes them.

Root works below folders that other users may write into (scratch, /tmp, a service's own folder).
Therefore a path is walked by directory descriptors, one component at a time:

- A folder is *open to others* if its owner is neither root nor the caller, or if its group or all
  users may write into it. In such a folder no link is followed, with one exception: in a sticky
  folder of root or the caller (/tmp), a link of root or the caller, which no other user can
  replace.
- A new file is made under its own name (`O_EXCL`, `O_NOFOLLOW`), gets owner and mode through
  its descriptor, and is renamed over the old one: a reader sees the old file or the whole new one.
- The temporary name is `.NAME.baremetal-dgx-PID-HOST-RANDOM~`: run-parts, sudoers.d, sysctl.d,
  systemd, Slurm's globs and node_exporter pass over it. It is removed if writing fails; what a
  killed process left is removed by the next write of the same file on the same host: of another
  host that shares the folder, it is not known which processes live.
- `sync=True` (the default): file and folder are synced before the call returns. `sync=False` is for
  what can be rebuilt at any time, such as metrics.
- What others may have put in place is only opened if it is a regular file with one name.

All functions raise OSError; a place that cannot be trusted raises UnsafeError, which is one. An
error of writing names the whole path: who reads that a disk is full needs to know which.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
import tempfile
import zlib
from typing import Any, BinaryIO, Callable, Iterable, Iterator

from .run import ToolError

LIMIT = 64 * 1024 * 1024
# What `deny` takes: others may not write into the folder; others may not even look into it.
NO_OTHER_WRITER, NO_OTHER = 0o022, 0o077
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS = 40
_TEMPORARY = re.compile(
    r"^\.(?P<name>.+)\.baremetal-dgx-(?P<pid>\d+)-(?:(?P<host>[0-9a-f]{8})-)?[^.-]*~$"
)


class UnsafeError(OSError):
    """A path that another user can steer; `str` is one line: the place, and what is wrong."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(errno.EPERM, why, path)

    def __str__(self) -> str:
        """Return the line."""
        return f"{self.filename}: {self.strerror}"


def trusted(uid: int) -> bool:
    """Return whether a file's owner is root or the caller."""
    return uid in (0, os.geteuid())


def open_to_others(found: os.stat_result) -> bool:
    """Return whether another user than root and the caller may change what is in this folder."""
    return not trusted(found.st_uid) or bool(found.st_mode & NO_OTHER_WRITER)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Put the path into an error: a descriptor's has none, and that of a name has no folder."""
    try:
        yield
    except OSError as error:
        # One of words alone would lose them.
        if error.errno is not None and not str(error.filename or "").startswith("/"):
            error.filename = path
            del error.filename2
        raise


def link_is_trusted(folder: os.stat_result, link: os.stat_result) -> bool:
    """Return whether only root and the caller can have made, and can replace, a link."""
    if not open_to_others(folder):
        return True
    sticky = trusted(folder.st_uid) and bool(folder.st_mode & stat.S_ISVTX)
    return sticky and trusted(link.st_uid)


class Folder:
    """An open folder. Names are single names in it; whatever happens to its path, it stays it.

    Use it in `with`. Methods raise OSError, and UnsafeError for what another user has put there.
    """

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        # Which files killed writers have left temporary ones of; looked up once, since who writes
        # a thousand files would list a thousand names for each.
        self._left: frozenset[str] | None = None

    def __enter__(self) -> Folder:
        """Return itself."""
        return self

    def __exit__(self, *_raised: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Let go of it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def status(self) -> os.stat_result:
        """Return owner, mode and so on of the folder itself."""
        return os.fstat(self.descriptor)

    def require(self, deny: int) -> None:
        """Raise UnsafeError unless root or the caller owns it and no bit of `deny` is set."""
        found = self.status()
        if not trusted(found.st_uid):
            raise UnsafeError(
                self.path, f"belongs to user {found.st_uid}: find out who made it, then remove it"
            )
        if found.st_mode & deny:
            mode = stat.S_IMODE(found.st_mode)
            raise UnsafeError(
                self.path, f"has mode {mode:04o}: find out who made it so; chmod {mode & ~deny:04o}"
            )

    def set_attributes(self, mode: int = -1, owner: int = -1, group: int = -1) -> None:
        """Set mode, owner and group of the folder itself."""
        _set_attributes(self.descriptor, mode, owner, group)

    def require_no_exchange(self) -> None:
        """Raise UnsafeError if another user could exchange root's or the caller's entries."""
        found = self.status()
        if open_to_others(found) and not (trusted(found.st_uid) and found.st_mode & stat.S_ISVTX):
            raise UnsafeError(
                self.path,
                f"belongs to user {found.st_uid} and has mode {stat.S_IMODE(found.st_mode):04o}: "
                "other users could exchange what is in it; use a folder of root's, or chmod +t",
            )

    # ---- looking

    def names(self) -> list[str]:
        """Return the names in it, sorted. PermissionError for one that may not be read."""
        return sorted(self._names())

    def lstat(self, name: str) -> os.stat_result:
        """Return the status of an entry, of a link that of the link. FileNotFoundError."""
        return os.stat(_plain(name), dir_fd=self.descriptor, follow_symlinks=False)

    def exists(self, name: str) -> bool:
        """Return whether there is an entry of this name, be it a link to nowhere."""
        try:
            self.lstat(name)
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str, limit: int = LIMIT) -> bytes:
        """Return the bytes of a regular file; EFBIG for more than `limit`."""
        with self._reading(name) as handle:
            return _read_all(handle, limit, self._path(name))

    def read_first(self, name: str, count: int) -> bytes:
        """Return so many bytes of the beginning of a regular file, or fewer."""
        with self._reading(name) as handle:
            return handle.read(count)

    def trusted_target(self, name: str) -> str:
        """Return where a link leads; UnsafeError if another user can have made it."""
        found = self.lstat(name)
        if not link_is_trusted(self.status(), found):
            raise UnsafeError(
                self._path(name),
                f"is a link of user {found.st_uid} in a folder that other users may write into, "
                "and is not followed: remove it, or write where it leads to",
            )
        return os.readlink(name, dir_fd=self.descriptor)

    # ---- folders

    def folder(self, name: str, make: int | None = None, deny: int = 0) -> Folder:
        """Open a folder in it that is not a link; `make` is the mode of one that is missing."""
        _plain(name)
        made = False
        if make is not None:
            with contextlib.suppress(FileExistsError), _named(self._path(name)):
                os.mkdir(name, 0o700, dir_fd=self.descriptor)
                made = True
        try:
            descriptor = _open_folder(name, self.descriptor)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and self.exists(name):
                kind = "a link" if stat.S_ISLNK(self.lstat(name).st_mode) else "not a folder"
                raise UnsafeError(self._path(name), f"is {kind}: remove it") from None
            raise
        child = Folder(self._path(name), descriptor)
        try:
            if made:
                # Another user may have exchanged it since.
                if child.status().st_uid != os.geteuid():
                    raise UnsafeError(child.path, "was exchanged by another user while it was made")
                os.fchmod(descriptor, make or 0)
            if deny:
                child.require(deny)
        except OSError:
            child.close()
            raise
        return child

    # ---- writing

    def write(
        self,
        name: str,
        data: bytes | str,
        mode: int = 0o644,
        owner: int = -1,
        group: int = -1,
        sync: bool = True,
    ) -> None:
        """Put a whole file in place, over whatever has that name and is not a folder."""
        fresh = self.prepare(name, data, mode, owner, group, sync)
        with _named(self._path(name)):
            try:
                self.rename(fresh, name)
            except BaseException:
                self.remove(fresh)
                raise
            if sync:
                self.sync()

    def prepare(
        self,
        name: str,
        data: bytes | str,
        mode: int = 0o644,
        owner: int = -1,
        group: int = -1,
        sync: bool = True,
    ) -> str:
        """Make the file `name` under its temporary name, which is returned: `rename` puts it."""
        fresh = self._temporary(name)
        with _named(self._path(name)):
            handle = self.create(fresh)
            try:
                with handle:
                    write_all(handle, data if isinstance(data, bytes) else _encoded(data))
                    _set_attributes(handle.fileno(), mode, owner, group)
                    if sync:
                        os.fsync(handle.fileno())
            except BaseException:
                self.remove(fresh)
                raise
        return fresh

    def write_first(self, name: str, data: bytes | str) -> bool:
        """Put a whole file in place unless the name is taken; return whether it did."""
        fresh = self.prepare(name, data, 0o600)
        try:
            with _named(self._path(name)):
                os.link(
                    fresh,
                    name,
                    src_dir_fd=self.descriptor,
                    dst_dir_fd=self.descriptor,
                    follow_symlinks=False,
                )
        except FileExistsError:
            return False
        finally:
            self.remove(fresh)
        self.sync()
        return True

    def rename(self, old: str, new: str) -> None:
        """Give an entry another name, over whatever has that name."""
        os.rename(_plain(old), _plain(new), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def create(self, name: str) -> BinaryIO:
        """Make a file that is not there yet and open it for writing. FileExistsError."""
        descriptor = os.open(_plain(name), _NEW, 0o600, dir_fd=self.descriptor)
        return os.fdopen(descriptor, "wb", buffering=0)

    def open(self, name: str, mode: int = 0o640, append: bool = True) -> BinaryIO:
        """Open a file for reading and writing, at its end; made if it is missing.

        For logs, locks and records that grow. Only a regular file with one name.
        """
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        flags |= os.O_APPEND if append else 0
        made = False
        for _try in range(3):
            try:
                self._regular(name, self.lstat(name), writing=True)
                with _named(self._path(name)):
                    descriptor = os.open(name, flags, dir_fd=self.descriptor)
            except FileNotFoundError:
                try:
                    with _named(self._path(name)):
                        descriptor = os.open(
                            name, flags | os.O_CREAT | os.O_EXCL, mode, dir_fd=self.descriptor
                        )
                except FileExistsError:
                    continue
                made = True
            break
        else:
            raise UnsafeError(self._path(name), "is removed and rebuilt all the time")
        handle = os.fdopen(descriptor, "r+b", buffering=0)
        try:
            self._regular(name, os.fstat(descriptor), writing=True)
            if made:
                # The umask may have taken bits away.
                os.fchmod(descriptor, mode)
        except OSError:
            handle.close()
            raise
        return handle

    def link(self, name: str, target: str) -> None:
        """Put a link in place, over whatever has that name and is not a folder."""
        fresh = self.prepare_link(name, target)
        try:
            self.rename(fresh, name)
        except BaseException:
            self.remove(fresh)
            raise

    def take(self, source: Folder, name: str) -> None:
        """Have a regular file of another folder here, too: the file itself, or a copy of it.

        The copy, where that folder is on another disk, has the time of the last change. The file
        must belong to whom its folder belongs to: a user may have linked the file of another one
        into it. This folder must be one that no other user writes into. FileExistsError.
        """
        try:
            os.link(
                name,
                name,
                src_dir_fd=source.descriptor,
                dst_dir_fd=self.descriptor,
                follow_symlinks=False,
            )
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
                raise
            self._copy(source, name)
            return
        try:
            # Not before: there it may be exchanged, and here it is not.
            self._owned(name, self.lstat(name), source.status().st_uid)
        except OSError:
            self.remove(name)
            raise

    def prepare_link(self, name: str, target: str) -> str:
        """Make the link `name` under its temporary name, which is returned: `rename` puts it."""
        fresh = self._temporary(name)
        os.symlink(target, fresh, dir_fd=self.descriptor)
        return fresh

    def attributes(self, name: str, mode: int = -1, owner: int = -1, group: int = -1) -> None:
        """Set mode, owner and group of a file with one name, or of a folder; never of a link."""
        found = self.lstat(name)
        if stat.S_ISDIR(found.st_mode):
            descriptor = _open_folder(name, self.descriptor)
        else:
            self._regular(name, found, writing=open_to_others(self.status()))
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
            descriptor = os.open(name, flags, dir_fd=self.descriptor)
        try:
            opened = os.fstat(descriptor)
            if not stat.S_ISDIR(opened.st_mode):
                self._regular(name, opened, writing=open_to_others(self.status()))
            _set_attributes(descriptor, mode, owner, group)
        finally:
            os.close(descriptor)

    def remove(self, name: str) -> bool:
        """Remove a file or a link; return whether there was one."""
        try:
            os.unlink(_plain(name), dir_fd=self.descriptor)
        except FileNotFoundError:
            return False
        return True

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder."""
        os.rmdir(_plain(name), dir_fd=self.descriptor)

    def remove_tree(self, name: str) -> None:
        """Remove a file, a link or a folder with all that is in it; never across a mount."""
        try:
            found = self.lstat(name)
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(found.st_mode):
            self.remove(name)
            return
        with self.folder(name) as below:
            if below.status().st_dev != self.status().st_dev:
                raise OSError(errno.EXDEV, "is a mount point: unmount it first", below.path)
            for one in below.names():
                below.remove_tree(one)
        with contextlib.suppress(FileNotFoundError):
            self.remove_folder(name)

    def sweep(self, name: str = "") -> None:
        """Remove the temporary files of killed writers: of one file, or of all."""
        for one in self.left_by_killed(name):
            with contextlib.suppress(OSError):
                self.remove(one)

    def left_by_killed(self, name: str = "") -> list[str]:
        """Return the names of what `sweep` removes."""
        found = []
        for one in self._names():
            old = _TEMPORARY.match(one)
            if (
                old
                and name in ("", old["name"])
                and old["host"] in (None, _own_host())
                and not runs(int(old["pid"]))
            ):
                with contextlib.suppress(OSError):
                    found += [one] if trusted(self.lstat(one).st_uid) else []
        return found

    def sync(self) -> None:
        """Make the names in it last a power failure."""
        try:
            os.fsync(self.descriptor)
        except OSError as error:
            # Some network file systems have no such call; a descriptor of a folder that may be
            # walked but not read cannot be synced.
            if error.errno not in (errno.EINVAL, errno.EBADF):
                raise

    # ---- details

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.descriptor)
        except OSError as error:
            # What may be walked but not read was opened without a right to either.
            if error.errno == errno.EBADF:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self.path) from None
            raise

    def _path(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _regular(self, name: str, found: os.stat_result, writing: bool = False) -> None:
        """Raise UnsafeError unless it is a regular file; to be written, with one name and owner."""
        path = self._path(name)
        if stat.S_ISLNK(found.st_mode):
            raise UnsafeError(
                path, f"is a link of user {found.st_uid}, a file is wanted: remove it"
            )
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a folder, a file is wanted", path)
        if not stat.S_ISREG(found.st_mode):
            raise UnsafeError(path, "is not a regular file: remove it")
        if writing and found.st_nlink > 1 and open_to_others(self.status()):
            raise UnsafeError(path, f"has {found.st_nlink} names (hard links): remove it")
        if writing and not trusted(found.st_uid) and not self._same_owner(found):
            raise UnsafeError(path, f"belongs to user {found.st_uid}: remove it")

    def _owned(self, name: str, found: os.stat_result, owner: int) -> None:
        """Raise UnsafeError unless it is a regular file of this user."""
        self._regular(name, found)
        if found.st_uid != owner:
            raise UnsafeError(
                self._path(name), f"belongs to user {found.st_uid}, not to {owner}: remove it"
            )

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[BinaryIO]:
        """Open a regular file for reading, whatever is put in its place meanwhile."""
        self._regular(name, self.lstat(name))
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        descriptor = os.open(name, flags, dir_fd=self.descriptor)
        with os.fdopen(descriptor, "rb") as handle:
            self._regular(name, os.fstat(descriptor))
            yield handle

    def _copy(self, source: Folder, name: str) -> None:
        """Copy a file of another folder in parts; what is not whole goes again."""
        with source._reading(name) as handle:
            found = os.fstat(handle.fileno())
            source._owned(name, found, source.status().st_uid)
            made = self.create(name)
            try:
                with made:
                    for part in iter(lambda: handle.read(1 << 20), b""):
                        write_all(made, part)
                    os.utime(made.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))
            except BaseException:
                self.remove(name)
                raise

    def _same_owner(self, found: os.stat_result) -> bool:
        """A file that belongs to its folder's owner: a service's file in the service's folder."""
        return found.st_uid == self.status().st_uid

    def _temporary(self, name: str) -> str:
        short = _plain(name)[:180]
        if self._left is None:
            found: list[str] = []
            # One may write into a folder that one may not read.
            with contextlib.suppress(PermissionError):
                found = self._names()
            left = map(_TEMPORARY.match, found)
            self._left = frozenset(old["name"] for old in left if old)
        if short in self._left:
            self.sweep(short)
        return f".{short}.baremetal-dgx-{os.getpid()}-{_own_host()}-{os.urandom(4).hex()}~"


# ---- by path


def open_folder(path: str, make: int | None = None, deny: int = 0) -> Folder:
    """Open a folder by its path; no link is followed that another user can have made.

    `make` is the mode of a folder that is missing; missing folders above it get 0755. With `deny`
    (`NO_OTHER_WRITER`, `NO_OTHER`) the folder must belong to root or the caller, and its mode must
    have none of these bits.
    """
    folder, _last = _walk(path, make, last_is_folder=True)
    try:
        if deny:
            folder.require(deny)
    except OSError:
        folder.close()
        raise
    return folder


def make_folder(path: str, mode: int = 0o755, deny: int = 0) -> None:
    """Make a folder and those above it, as far as they are missing."""
    open_folder(path, mode, deny).close()


def write_atomic(
    path: str,
    data: bytes | str,
    mode: int = 0o644,
    owner: int = -1,
    group: int = -1,
    sync: bool = True,
    make: int | None = 0o755,
) -> None:
    """Put a whole file in place. `make` is the mode of a folder that is missing; None: an error."""
    above, name = _split(path)
    with open_folder(above, make) as folder:
        folder.write(name, data, mode, owner, group, sync)


@contextlib.contextmanager
def create(path: str, mode: int = 0o644, make: int | None = 0o755) -> Iterator[BinaryIO]:
    """Make a file that is not there yet, for what is too large for `write_atomic`. Not buffered."""
    above, name = _split(path)
    with open_folder(above, make) as folder:
        handle = folder.create(name)
    with handle, _named(path):
        yield handle
        os.fchmod(handle.fileno(), mode)


def open_append(path: str, mode: int = 0o640, make: int | None = 0o755) -> BinaryIO:
    """Open a log: a file that grows at its end, made if it is missing. Not buffered."""
    above, name = _split(path)
    with open_folder(above, make) as folder:
        return folder.open(name, mode)


def write_all(handle: BinaryIO, data: bytes) -> None:
    """Write all of it to what `open` gave, which may take less at a time."""
    view = memoryview(data)
    while view:
        view = view[handle.write(view) :]


def set_aside(path: str, most_bytes: int) -> None:
    """Rename a file of this size or more to NAME.1, in the place of the one before.

    The caller must be the only one that writes to the file.
    """
    above, name = _split(path)
    with contextlib.suppress(FileNotFoundError), open_folder(above) as folder:
        if folder.lstat(name).st_size >= most_bytes:
            folder.rename(name, f"{name}.1")


def append_lines(path: str, lines: Iterable[str], mode: int = 0o640, sync: bool = True) -> None:
    """Add lines to a file. The beginning that a killed process left becomes its own line."""
    text = "".join(f"{line}\n" for line in lines).encode("utf-8")
    with open_append(path, mode) as handle, _named(path):
        size = handle.seek(0, os.SEEK_END)
        if size:
            handle.seek(size - 1)
            text = text if handle.read(1) == b"\n" else b"\n" + text
        write_all(handle, text)
        if sync:
            os.fsync(handle.fileno())


def read_bytes(path: str, limit: int = LIMIT) -> bytes:
    """Return the bytes of a regular file. No link is followed that another user can have made.

    FileNotFoundError, EFBIG for more than `limit` bytes.
    """
    folder, name = _walk(path, None, last_is_folder=False)
    with folder:
        if name is None:
            raise IsADirectoryError(errno.EISDIR, "is a folder, a file is wanted", path)
        return folder.read(name, limit)


def read_text(path: str, limit: int = LIMIT) -> str:
    """Return the text of a file, UTF-8; ValueError for bytes that are not UTF-8."""
    try:
        return read_bytes(path, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text, byte {error.start}") from None


def text_if_there(path: str, errors: str = "replace") -> str | None:
    """Return a text that belongs to this host's system (/etc, /boot); None if there is no file.

    Links are followed, as the system's own tools do. OSError for a file that cannot be read.
    A carriage return stays one: what a user has named with it must not become two lines.
    """
    try:
        with open(path, encoding="utf-8", errors=errors, newline="") as handle:
            return handle.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def text_if_readable(path: str, errors: str = "replace") -> str | None:
    """Return a text of the kernel (/proc, /sys) or of the system; None if it cannot be read."""
    try:
        return text_if_there(path, errors)
    except OSError:
        return None


def text_of_user(path: str, limit: int = 1 << 20) -> str | None:
    """Return a text that a user may have exchanged for anything; None if there is no file.

    The caller acts with the rights of this user, whose links are followed. UnsafeError for what is
    not a regular file: a pipe would not answer, and a device has no end. EFBIG as `read_bytes`.
    """
    asks = os.O_NONBLOCK | os.O_NOCTTY
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | asks)) as handle:
            if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
                raise UnsafeError(path, "is not a regular file: remove it")
            return _read_all(handle, limit, path).decode("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return None


def text_of_option(path: str, option: str) -> str:
    """Return the text of a file that an option of a module names; ToolError with the option."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as handle:
            return handle.read()
    except OSError as error:
        raise ToolError(f"{option}: {path} cannot be read: {error.strerror}") from error


def json_if_readable(path: str) -> Any:
    """Return what a JSON file holds; None if there is none, or what it holds is not JSON."""
    try:
        return json.loads(text_if_readable(path) or "")
    except ValueError:
        return None


def read_json(path: str, what: str = "") -> Any:
    """Return what a JSON file holds; ValueError in one wording for what is not JSON.

    `what` names the file's purpose: "PATH (WHAT): not JSON, line 3: …".
    """
    text = read_text(path)
    try:
        return json.loads(text)
    except ValueError as error:
        named = f"{path} ({what})" if what else path
        if not text.strip():
            raise ValueError(f"{named}: is empty, JSON is wanted") from None
        raise ValueError(f"{named}: not JSON: {error}") from None


def remove(path: str) -> bool:
    """Remove a file or a link; return whether there was one (also False for a missing folder)."""
    above, name = _split(path)
    try:
        with open_folder(above) as folder:
            return folder.remove(name)
    except FileNotFoundError:
        return False


def remove_tree(path: str) -> None:
    """Remove a file, a link, or a folder with all that is in it; never across a mount."""
    above, name = _split(path)
    with contextlib.suppress(FileNotFoundError), open_folder(above) as folder:
        folder.remove_tree(name)


def rename(old: str, new: str) -> None:
    """Give an entry another name, within one file system, over whatever has that name."""
    (above, name), (above_new, name_new) = _split(old), _split(new)
    with open_folder(above) as first, open_folder(above_new) as second:
        os.rename(name, name_new, src_dir_fd=first.descriptor, dst_dir_fd=second.descriptor)


@contextlib.contextmanager
def temporary_folder(prefix: str, parent: str = "", mode: int = 0o700) -> Iterator[str]:
    """Make a folder that only the caller may write into; it is removed at the end.

    `parent` (default: the system's folder for temporary files) must not let another user exchange
    it: it is root's or the caller's, and sticky if others may write into it.
    """
    path = make_temporary(prefix, parent, mode)
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            remove_tree(path)


def make_temporary(prefix: str, parent: str = "", mode: int = 0o700) -> str:
    """Make a folder as `temporary_folder` does and return its path; the caller removes it."""
    parent = parent or tempfile.gettempdir()
    with open_folder(parent) as folder:
        folder.require_no_exchange()
        while True:
            name = f"{prefix}{os.urandom(4).hex()}"
            try:
                os.mkdir(name, 0o700, dir_fd=folder.descriptor)
            except FileExistsError:
                continue
            if mode != 0o700:
                folder.attributes(name, mode)
            return os.path.join(parent, name)


def copy_file(source: str, target: str, mode: int | None = None) -> None:
    """Copy a regular file; the target is there as a whole or not at all.

    Without a mode it gets the source's, with owner and group: no other user may read it then.
    """
    owner = group = -1
    if mode is None:
        found = os.stat(source)
        mode, owner, group = stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid
    write_atomic(target, read_bytes(source, 1 << 32), mode, owner, group, sync=False)


def copy_tree(source: str, target: str, ignore: Callable[..., Iterable[str]] | None = None) -> None:
    """Copy a folder to one that is made; links stay links. The target's parent is the caller's."""
    with open_folder(os.path.dirname(target), deny=NO_OTHER_WRITER):
        # Closed until all in it has its mode, which shutil sets last.
        os.mkdir(target, 0o700)
        shutil.copytree(source, target, symlinks=True, ignore=ignore, dirs_exist_ok=True)


def give_tree(path: str, owner: int, group: int, mode: int) -> None:
    """Give a tree to a user; links are given, too, and not followed. `mode` is the folder's own."""
    with open_folder(path) as folder:
        for name in folder.names():
            if stat.S_ISDIR(folder.lstat(name).st_mode):
                give_tree(
                    os.path.join(path, name), owner, group, stat.S_IMODE(folder.lstat(name).st_mode)
                )
            else:
                os.chown(name, owner, group, dir_fd=folder.descriptor, follow_symlinks=False)
        folder.set_attributes(mode, owner, group)


def require_own_tree(path: str) -> None:
    """Raise UnsafeError unless only root and the caller can change what is in a folder, or it.

    For what root is about to run: each folder above it is looked at, too.
    """
    above = own = os.path.realpath(path)
    while True:
        with open_folder(above) as folder:
            found = folder.status()
        sticky = above != own and trusted(found.st_uid) and found.st_mode & stat.S_ISVTX
        if open_to_others(found) and not sticky:
            raise UnsafeError(
                above,
                f"belongs to user {found.st_uid} and has mode {stat.S_IMODE(found.st_mode):04o}: "
                "another user could change what root runs there; give it to root, and chmod go-w",
            )
        if above == "/":
            break
        above = os.path.dirname(above)
    _require_own_entries(own)


def _require_own_entries(path: str) -> None:
    with open_folder(path, deny=NO_OTHER_WRITER) as folder:
        for name in folder.names():
            found = folder.lstat(name)
            if stat.S_ISDIR(found.st_mode):
                _require_own_entries(os.path.join(path, name))
            elif not stat.S_ISLNK(found.st_mode) and open_to_others(found):
                raise UnsafeError(
                    os.path.join(path, name),
                    f"belongs to user {found.st_uid} and has mode {stat.S_IMODE(found.st_mode):04o}"
                    ": another user could change what root runs; give it to root, and chmod go-w",
                )


# ---- details


def _set_attributes(descriptor: int, mode: int, owner: int, group: int) -> None:
    """Owner first: chown clears set-id bits, and no mode may open a file to a wrong owner."""
    if (owner, group) != (-1, -1):
        os.fchown(descriptor, owner, group)
    if mode >= 0:
        os.fchmod(descriptor, mode)


def _own_host() -> str:
    """Return what tells this host's temporary files from those of others on shared storage."""
    return f"{zlib.crc32(os.uname().nodename.encode()):08x}"


def _read_all(handle: BinaryIO, limit: int, path: str) -> bytes:
    """Return all bytes, read in parts: Python would take `limit` bytes of memory for one."""
    parts: list[bytes] = []
    size = 0
    while size <= limit:
        part = handle.read(min(1 << 20, limit + 1 - size))
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
    raise OSError(errno.EFBIG, f"has more than {limit} bytes", path)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _plain(name: str) -> str:
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise ValueError(f"{name!r}: not a name in a folder")
    return name


def _split(path: str) -> tuple[str, str]:
    """Return the folder and the name of a path."""
    above, name = os.path.split(os.path.abspath(path))
    return above, _plain(name)


def runs(pid: int) -> bool:
    """Return whether a process of this number exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True


def _open_folder(name: str, above: int | None = None) -> int:
    """Open a folder that is not a link. Not by O_PATH, which would not mount an automount."""
    try:
        return os.open(name, _FOLDER, dir_fd=above)
    except PermissionError:
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=above)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _walk(path: str, make: int | None, last_is_folder: bool) -> tuple[Folder, str | None]:
    """Walk a path. Return its last folder, and the last name in it unless that is a folder."""
    parts = _parts(os.path.abspath(path))
    stack = [Folder("/", _open_folder("/"))]
    links = 0
    try:
        while parts:
            part = parts.pop(0)
            here = stack[-1]
            if part == "..":
                if len(stack) > 1:
                    stack.pop().close()
                continue
            found = None
            with contextlib.suppress(FileNotFoundError):
                found = here.lstat(part)
            if found is not None and stat.S_ISLNK(found.st_mode):
                links += 1
                if links > _LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                target = here.trusted_target(part)
                if target.startswith("/"):
                    while len(stack) > 1:
                        stack.pop().close()
                parts = [*_parts(target), *parts]
                continue
            below = bool(parts)
            if not below and not last_is_folder:
                if found is None:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                if not stat.S_ISDIR(found.st_mode):
                    return stack.pop(), part
            if found is None and make is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), here._path(part))
            if found is not None and not stat.S_ISDIR(found.st_mode):
                raise NotADirectoryError(
                    errno.ENOTDIR, os.strerror(errno.ENOTDIR), here._path(part)
                )
            mode = None if make is None else (0o755 if below else make)
            stack.append(here.folder(part, mode))
        return stack.pop(), None
    finally:
        for one in stack:
            one.close()
