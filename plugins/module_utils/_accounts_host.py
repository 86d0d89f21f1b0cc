# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Local accounts: what is on the node, and the acts a plan of `_accounts` asks for."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import shutil
import socket
import stat
import tempfile
import time
from typing import Iterator, Mapping, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._accounts import (
    State,
    Step,
    UserEntry,
    WantedGroup,
    WantedUser,
    count_keys,
    parse_group,
    parse_passwd,
    parse_shadow,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    CommandResult,
    CommandRunner,
    ToolError,
)

_KEYS_FILE = ".ssh/authorized_keys"
_SKELETON = "/etc/skel"
# Another package manager or admin holds /etc/passwd only for moments.
_LOCK_TRIES = 20
_UNSET_LOGIN_UID = 0xFFFFFFFF


def read_text(path: str) -> str:
    """The content of a file, empty when there is none."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as handle:
            return handle.read()
    except (FileNotFoundError, NotADirectoryError):
        return ""


@contextlib.contextmanager
def acting_as(uid: int, gid: int) -> Iterator[None]:
    """Do file work with a user's own rights.

    A home belongs to its user, who may have put a link where root would follow it, and root may not
    write at all into a home on a network file system.
    """
    if os.geteuid() != 0 or uid == 0:
        yield
        return
    groups, old_gid = os.getgroups(), os.getegid()
    os.setgroups([gid])
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(old_gid)
        os.setgroups(groups)


def login_user(environ: Mapping[str, str]) -> str:
    """The user of this connection, also behind sudo."""
    if environ.get("SUDO_USER"):
        return environ["SUDO_USER"]
    number = read_text("/proc/self/loginuid").strip()
    uid = int(number) if number.isdigit() and int(number) != _UNSET_LOGIN_UID else os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _foreign_users(users: Sequence[WantedUser], local: Mapping[str, UserEntry]) -> dict[str, int]:
    """Declared names and numbers that only a directory service knows."""
    found: dict[str, int] = {}
    for user in users:
        if not user.present or user.name in local:
            continue
        with contextlib.suppress(KeyError):
            found[user.name] = pwd.getpwnam(user.name).pw_uid
        if user.uid is not None:
            with contextlib.suppress(KeyError):
                entry = pwd.getpwuid(user.uid)
                if entry.pw_name not in local:
                    found[entry.pw_name] = entry.pw_uid
    return found


def _foreign_groups(groups: Sequence[WantedGroup], local: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for group in groups:
        if not group.present or group.name in local:
            continue
        with contextlib.suppress(KeyError):
            found[group.name] = grp.getgrnam(group.name).gr_gid
        if group.gid is not None:
            with contextlib.suppress(KeyError):
                entry = grp.getgrgid(group.gid)
                if entry.gr_name not in local:
                    found[entry.gr_name] = entry.gr_gid
    return found


def processes_of(uids: Mapping[int, str]) -> dict[str, tuple[str, ...]]:
    """User name → its processes as "PID name", at most five of each."""
    found: dict[str, list[str]] = {}
    if not uids:
        return {}
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        with contextlib.suppress(OSError):
            name = uids.get(os.stat(f"/proc/{pid}").st_uid)
            if name is not None and len(found.setdefault(name, [])) < 5:
                found[name].append(f"{pid} {read_text(f'/proc/{pid}/comm').strip()}")
    return {name: tuple(words) for name, words in found.items()}


def load_state(
    groups: Sequence[WantedGroup], users: Sequence[WantedUser], environ: Mapping[str, str]
) -> State:
    """What is on the node, as far as the declared groups and users need it."""
    local_users = parse_passwd(read_text("/etc/passwd"))
    local_groups = parse_group(read_text("/etc/group"))
    keys: dict[str, str] = {}
    homes: set[str] = set()
    leaving: dict[int, str] = {}
    for user in users:
        entry = local_users.get(user.name)
        home = user.home or (entry.home if entry else f"/home/{user.name}")
        candidates = {home, entry.home} if entry else {home}
        homes.update(path for path in candidates if path and os.path.lexists(path))
        if not user.present and entry:
            leaving[entry.uid] = entry.name
        if user.keys and entry:
            with acting_as(entry.uid, entry.gid):
                try:
                    keys[user.name] = read_text(os.path.join(home, _KEYS_FILE))
                except PermissionError as error:
                    raise ToolError(
                        f"user {user.name}: cannot read its own {error.filename}; "
                        "look at the owner and mode of the folders above it"
                    ) from error
    wants_hash = any(user.present and user.password is not None for user in users)
    return State(
        users=local_users,
        groups=local_groups,
        hashes=parse_shadow(read_text("/etc/shadow")) if wants_hash else {},
        foreign_users=_foreign_users(users, local_users),
        foreign_groups=_foreign_groups(groups, list(local_groups)),
        keys=keys,
        homes=homes,
        processes=processes_of(leaving),
        login_user=login_user(environ),
    )


def run_account_tool(run: CommandRunner, command: Sequence[str]) -> CommandResult:
    """Run useradd and its siblings; waits while somebody else holds the account files."""
    result = run(command)
    for _attempt in range(_LOCK_TRIES):
        if result.ok or "try again later" not in result.text:
            break
        time.sleep(1)
        result = run(command)
    if not result.ok:
        raise ToolError(result.describe())
    return result


def create_home(path: str, uid: int, gid: int, mode: int) -> None:
    """Make a home with the skeleton files; it appears under its name only when it is complete."""
    parent = os.path.dirname(path.rstrip("/"))
    os.makedirs(parent, mode=0o755, exist_ok=True)
    # The host name keeps nodes apart that make the same home on a shared file system.
    unfinished = os.path.join(parent, f".{os.path.basename(path)}.{socket.gethostname()}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    if os.path.isdir(_SKELETON):
        shutil.copytree(_SKELETON, unfinished, symlinks=True)
    else:
        os.mkdir(unfinished)
    for folder, folders, files in os.walk(unfinished):
        for name in folders + files:
            os.chown(os.path.join(folder, name), uid, gid, follow_symlinks=False)
    os.chown(unfinished, uid, gid)
    os.chmod(unfinished, mode)
    try:
        os.rename(unfinished, path)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        # Another node made it a moment ago.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def write_keys(home: str, uid: int, gid: int, content: str) -> None:
    """Replace authorized_keys atomically, with the rights of its user."""
    path = os.path.join(home, _KEYS_FILE)
    folder = os.path.dirname(path)
    with acting_as(uid, gid):
        # A home on a shared file system is given its keys by many nodes at once.
        os.makedirs(folder, 0o700, exist_ok=True)
        number, temporary = tempfile.mkstemp(prefix=".authorized_keys.", dir=folder)
        try:
            with os.fdopen(number, "w", encoding="utf-8", errors="surrogateescape") as handle:
                handle.write(content)
                handle.flush()
                os.fsync(handle.fileno())
            # mkstemp makes 0600, which is what sshd's StrictModes wants.
            os.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def remove_home(path: str) -> None:
    """Remove a home and all in it; a link is removed, not followed."""
    if stat.S_ISLNK(os.lstat(path).st_mode):
        os.unlink(path)
    else:
        shutil.rmtree(path)


def label(run: CommandRunner, path: str) -> None:
    """Give new files the context the policy has for them, where SELinux is in use."""
    if os.path.exists("/sys/fs/selinux/enforce"):
        run(["restorecon", "-R", path])


def apply_step(run: CommandRunner, step: Step, home_mode: int) -> None:
    """Do one act, except for a password, which has to go through standard input."""
    if step.kind == "remove_group":
        if step.command[-1] in parse_group(read_text("/etc/group")):
            run_account_tool(run, step.command)
    elif step.kind == "command":
        run_account_tool(run, step.command)
    elif step.kind == "remove_home":
        remove_home(step.path)
    else:
        entry = pwd.getpwnam(step.subject.split(" ", 1)[1])
        if step.kind == "home":
            create_home(step.path, entry.pw_uid, entry.pw_gid, home_mode)
            label(run, step.path)
        elif step.kind == "keys":
            write_keys(step.path, entry.pw_uid, entry.pw_gid, step.content)
            label(run, os.path.join(step.path, ".ssh"))


def parse_sshd_settings(text: str) -> dict[str, str]:
    """Settings of `sshd -T` by lower-case keyword (the first line of each)."""
    settings: dict[str, str] = {}
    for line in text.splitlines():
        keyword, _blank, value = line.strip().partition(" ")
        settings.setdefault(keyword.lower(), value)
    return settings


def login_keys(run: CommandRunner, user: str) -> int | None:
    """How many keys admit a user by now, or None when that cannot be told.

    It cannot where sshd asks a command or trusts certificates, or where there is no sshd.
    """
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return None
    answer = run(["sshd", "-T", "-C", f"user={user},host=localhost,addr=127.0.0.1"])
    if not answer.ok:
        return None
    settings = parse_sshd_settings(answer.out)
    for keyword in ("authorizedkeyscommand", "trustedusercakeys"):
        if settings.get(keyword, "none") != "none":
            return None
    count = 0
    for pattern in settings.get("authorizedkeysfile", _KEYS_FILE).split():
        name = pattern.replace("%%", "\0").replace("%h", entry.pw_dir).replace("%u", user)
        path = os.path.join(entry.pw_dir, name.replace("\0", "%"))
        with acting_as(entry.pw_uid, entry.pw_gid), contextlib.suppress(OSError):
            count += count_keys(read_text(path))
    return count
