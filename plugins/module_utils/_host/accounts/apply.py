# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Local accounts: what is on the node, and the acts that a plan asks for."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import socket
import time
from typing import TYPE_CHECKING, Any, Callable, Collection, Iterable, Iterator, Mapping, Sequence

from ..._core.files import (
    NO_OTHER,
    copy_tree,
    give_tree,
    make_folder,
    open_folder,
    remove_tree,
    rename,
    text_if_there,
    text_of_user,
    write_atomic,
)
from ..._core.hang import touch
from ..._core.run import CommandResult, CommandRunner, ToolError
from .parse import (
    Plan,
    State,
    Step,
    WantedGroup,
    WantedUser,
    count_keys,
    parse_group,
    parse_passwd,
    parse_shadow,
)
from .plan import make_plan

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

_KEYS_FILE = ".ssh/authorized_keys"
_SKELETON = "/etc/skel"
_KEYTAB = "/etc/krb5.keytab"
# Another package manager or admin holds /etc/passwd only for moments.
_LOCK_TRIES = 20
_UNSET_LOGIN_UID = 0xFFFFFFFF
_WORK_S = 120.0
_USER_S = 5.0
# A home that is removed may hold millions of files.
_REMOVE_S = 3600.0


def read_text(path: str) -> str:
    """The content of a file, empty when there is none."""
    return text_if_there(path, "surrogateescape") or ""


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


def _foreign(
    wanted: Mapping[str, int | None],
    local: Collection[str],
    by_name: Callable[[str], Sequence[Any]],
    by_number: Callable[[int], Sequence[Any]],
) -> dict[str, int]:
    """Declared names and numbers that only a directory service knows; entries as of pwd and grp."""
    found: dict[str, int] = {}
    for name, number in wanted.items():
        if name in local:
            continue
        with contextlib.suppress(KeyError):
            found[name] = by_name(name)[2]
        if number is not None:
            with contextlib.suppress(KeyError):
                entry = by_number(number)
                if entry[0] not in local:
                    found[entry[0]] = entry[2]
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
                path = os.path.join(home, _KEYS_FILE)
                try:
                    keys[user.name] = text_of_user(path) or ""
                except PermissionError as error:
                    raise ToolError(
                        f"user {user.name}: cannot read its own {error.filename}; "
                        "look at the owner and mode of the folders above it"
                    ) from error
                except OSError as error:
                    raise ToolError(f"user {user.name}: {path}: {error.strerror}") from error
    wants_hash = any(user.present and user.password is not None for user in users)
    return State(
        users=local_users,
        groups=local_groups,
        hashes=parse_shadow(read_text("/etc/shadow")) if wants_hash else {},
        foreign_users=_foreign(
            {one.name: one.uid for one in users if one.present},
            local_users,
            pwd.getpwnam,
            pwd.getpwuid,
        ),
        foreign_groups=_foreign(
            {one.name: one.gid for one in groups if one.present},
            local_groups,
            grp.getgrnam,
            grp.getgrgid,
        ),
        keys=keys,
        homes=homes,
        processes=processes_of(leaving),
        login_user=login_user(environ),
    )


def run_account_tool(run: CommandRunner, command: Sequence[str]) -> CommandResult:
    """Run useradd and its siblings; waits while another process holds the account files."""
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
    above, name = os.path.split(path.rstrip("/"))
    # The host name keeps nodes apart that make the same home on a shared file system.
    unfinished = f".{name}.{socket.gethostname()}.new"
    with open_folder(above, 0o755) as parent:
        parent.require_no_exchange()
        parent.remove_tree(unfinished)
        try:
            # Closed until all in it is the user's: nothing can be put in between.
            parent.folder(unfinished, 0o700, NO_OTHER).close()
            home = os.path.join(above, unfinished, "home")
            if os.path.isdir(_SKELETON):
                copy_tree(_SKELETON, home)
            else:
                make_folder(home)
            give_tree(home, uid, gid, mode)
            rename(home, path.rstrip("/"))
        except OSError as error:
            # Another node made it a moment ago.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        finally:
            with contextlib.suppress(OSError):
                parent.remove_tree(unfinished)


def write_keys(home: str, uid: int, gid: int, content: str) -> None:
    """Replace authorized_keys atomically, with the rights of its user."""
    path = os.path.join(home, _KEYS_FILE)
    with acting_as(uid, gid):
        # A home on a shared file system is given its keys by many nodes at once.
        # 0600 is what sshd's StrictModes wants.
        write_atomic(path, content, 0o600, make=0o700)


def remove_home(path: str) -> None:
    """Remove a home and all in it; a link is removed, not followed."""
    remove_tree(path.rstrip("/"))


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


def key_files(run: CommandRunner, user: str) -> dict[str, int] | None:
    """How many keys by now admit a user, by the files that sshd reads; None when not known.

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
    found: dict[str, int] = {}
    for pattern in settings.get("authorizedkeysfile", _KEYS_FILE).split():
        name = pattern.replace("%%", "\0").replace("%h", entry.pw_dir).replace("%u", user)
        path = os.path.join(entry.pw_dir, name.replace("\0", "%"))
        with acting_as(entry.pw_uid, entry.pw_gid), contextlib.suppress(OSError):
            found[path] = count_keys(text_of_user(path) or "")
    return found


def login_keys(run: CommandRunner, user: str) -> int | None:
    """How many keys admit a user by now, or None when that is not known."""
    files = key_files(run, user)
    return None if files is None else sum(files.values())


def mode_of(text: str) -> int:
    """The number of a quoted octal mode; raises ToolError for anything else."""
    try:
        return int(text, 8)
    except ValueError as error:
        raise ToolError(
            f"home_mode: {text!r} is not an octal mode; write one like '0700'"
        ) from error


def set_password(module: AnsibleModule, step: Step) -> None:
    """Hand the hash to chpasswd through standard input, where no process list shows it."""
    name = step.subject.split(" ", 1)[1]
    rc, _out, err = module.run_command(
        [module.get_bin_path("chpasswd", required=True), "-e"], data=f"{name}:{step.secret}"
    )
    if rc != 0:
        raise ToolError(f"{step.subject}: the password was refused: {err.strip()}")


def apply(module: AnsibleModule, run: CommandRunner, plan: Plan, home_mode: int) -> None:
    """Do all steps in order."""
    for step in plan.steps:
        try:
            if step.kind == "password":
                set_password(module, step)
            else:
                apply_step(run, step, home_mode)
        except OSError as error:
            raise ToolError(
                f"{step.subject}: {step.summary}: {error.filename}: {error.strerror}"
            ) from error


def login(run: CommandRunner, state: State, users: list[WantedUser]) -> dict[str, Any]:
    """The user of this connection, how many keys will admit it, and whether a ticket can.

    A keytab is asked for, not sshd: Enterprise Linux has GSSAPIAuthentication on without Kerberos.
    """
    keys = login_keys(run, state.login_user)
    if keys is not None:
        declared = [user for user in users if user.name == state.login_user and user.present]
        keys = max(keys, sum(len(user.keys) for user in declared))
    return {"user": state.login_user, "key_count": keys, "keytab": os.path.exists(_KEYTAB)}


def see_homes(users: Iterable[WantedUser]) -> None:
    """Raise ToolError if a home, or the folder above, is on a mount that does not answer."""
    homes = {user.home or f"/home/{user.name}" for user in users}
    touch("homes", sorted(homes | {os.path.dirname(home) for home in homes}))


def time_for(users: Iterable[WantedUser]) -> float:
    """Return the seconds that all steps may take together; useradd must not be interrupted."""
    return _WORK_S + sum(_REMOVE_S if user.remove_home else _USER_S for user in users)


def bring_about(
    module: AnsibleModule,
    run: CommandRunner,
    groups: list[WantedGroup],
    users: list[WantedUser],
) -> dict[str, Any]:
    """Load, plan, apply; return what the module returns. Raises ToolError."""
    params = module.params
    result: dict[str, Any] = {}
    home_mode = mode_of(params["home_mode"])
    state = load_state(groups, users, os.environ)
    plan = make_plan(state, groups, users, params["home_removal_allowed"])
    if plan.errors:
        raise ToolError("\n".join(plan.errors), errors=list(plan.errors))
    if params["login_check"]:
        result["login"] = login(run, state, users)
    if not module.check_mode:
        apply(module, run, plan, home_mode)
    actions = [f"{step.subject}: {step.summary}" for step in plan.steps]
    result.update(changed=bool(plan.steps), actions=actions)
    if module._diff and actions:
        result["diff"] = {"prepared": "\n".join(actions) + "\n"}
    return result
