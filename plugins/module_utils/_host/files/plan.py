# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""What must be done to a set of paths: wanted and observed values in, steps and diff out. Pure."""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

ABSENT, FILE, DIRECTORY, LINK, OTHER = "absent", "file", "directory", "link", "other"
WRITE, ATTRIBUTES, MAKE_DIRECTORY, MAKE_LINK, REMOVE = (
    "write",
    "attributes",
    "make_directory",
    "make_link",
    "remove",
)

_NEW_FILE_MODE = 0o644
_NEW_SECRET_MODE = 0o600
_NEW_DIRECTORY_MODE = 0o755
_OCTAL = re.compile(r"^[0-7]{3,4}$")


@dataclass(frozen=True)
class Wanted:
    """One path as it must be; `content` None means: whatever is there, or an empty file."""

    path: str
    state: str
    content: bytes | None = None
    secret: bool = False
    target: str = ""
    owner: str = ""
    group: str = ""
    mode: int | None = None
    replace: bool = True
    unsafe_writes: bool = False


@dataclass(frozen=True)
class Observed:
    """One path as it is. `parent` says that the folder it is in exists."""

    kind: str = ABSENT
    content: bytes = b""
    mode: int = 0
    uid: int = -1
    gid: int = -1
    owner: str = ""
    group: str = ""
    target: str = ""
    entries: int = 0
    parent: bool = True
    # a file that something is bind-mounted on (/etc/hosts in a container) cannot be renamed over
    mount_point: bool = False
    # of a link to a directory, which is as good as a directory
    leads_to_directory: bool = False
    # why root must not go there, or not follow the link: other users could steer it
    unsafe: str = ""
    unsafe_target: str = ""
    # another user may have put it there
    foreign: bool = False


@dataclass(frozen=True)
class Step:
    """One thing to do. uid, gid and mode are what the path gets; -1 leaves the owner alone."""

    action: str
    wanted: Wanted
    before: Observed
    content: bytes = b""
    uid: int = -1
    gid: int = -1
    mode: int = 0
    in_place: bool = False
    attributes_change: bool = False

    @property
    def path(self) -> str:
        """The path it changes."""
        return self.wanted.path


@dataclass(frozen=True)
class Plan:
    """Steps in the order asked for, every error, and whether an earlier change is missing.

    `pretended` is True when a folder, user or group that is needed is not there: in check mode an
    earlier task only pretended to make it, so a validation that fails then proves nothing.
    """

    steps: tuple[Step, ...]
    errors: tuple[str, ...]
    pretended: bool = False

    @property
    def changed_paths(self) -> list[str]:
        """Paths that change, in order."""
        return [step.path for step in self.steps]

    @property
    def replaces_content(self) -> bool:
        """True when what a program would read changes, not only who may read it."""
        return any(step.action in (WRITE, REMOVE, MAKE_LINK) for step in self.steps)


def parse_wanted(entries: Sequence[Mapping[str, Any]]) -> tuple[list[Wanted], list[str]]:
    """Module parameters as values; returns them with every error found (path first)."""
    wanted: list[Wanted] = []
    errors: list[str] = []
    seen: set[str] = set()
    for entry in entries:
        given = entry["path"]
        path = posixpath.normpath(given)
        state = entry.get("state") or FILE
        text, secret = entry.get("content"), entry.get("secret_content")
        problems: list[str] = []
        if not given.startswith("/"):
            problems.append("is not an absolute path")
        elif path == "/":
            problems.append("is the root directory")
        if path in seen:
            problems.append("is listed twice; give each path once")
        seen.add(path)
        if text is not None and secret is not None:
            problems.append("has content and secret_content; give one of them")
        if state not in (FILE, ABSENT) and (text is not None or secret is not None):
            problems.append(f"has content but state {state}; content needs state file")
        if (state == LINK) != bool(entry.get("target")):
            problems.append("needs both state: link and target, or neither")
        content: bytes | None = None
        body = secret if secret is not None else text
        if body is not None:
            content, problem = _decode(body, entry.get("encoding") or "text")
            problems += [problem] if problem else []
        mode, problem = parse_mode(entry.get("mode"))
        problems += [problem] if problem else []
        errors += [f"{given}: {problem}" for problem in problems]
        wanted.append(
            Wanted(
                path=path,
                state=state,
                content=content,
                secret=secret is not None,
                target=entry.get("target") or "",
                owner=str(entry.get("owner") or ""),
                group=str(entry.get("group") or ""),
                mode=mode,
                replace=entry.get("replace") is not False,
                unsafe_writes=bool(entry.get("unsafe_writes")),
            )
        )
    return wanted, errors


def parse_mode(value: Any) -> tuple[int | None, str]:
    """An octal string as a number; None and what is wrong with it, or None when not given."""
    if value is None or value == "":
        return None, ""
    if not isinstance(value, str):
        # YAML reads an unquoted 0644 as the number 420: guessing would set a wrong mode
        return None, f'has mode {value!r}; write it as a quoted octal string such as "0644"'
    if not _OCTAL.match(value):
        return None, f'has mode "{value}"; write it as an octal string such as "0644"'
    return int(value, 8), ""


def _decode(body: str, encoding: str) -> tuple[bytes | None, str]:
    if encoding != "base64":
        return body.encode("utf-8", "surrogateescape"), ""
    try:
        return base64.b64decode("".join(body.split()), validate=True), ""
    except (binascii.Error, ValueError):
        return None, "has encoding base64 but its content is not base64"


def plan_files(
    wanted: Sequence[Wanted],
    observed: Mapping[str, Observed],
    users: Mapping[str, int | None],
    groups: Mapping[str, int | None],
    check_mode: bool,
) -> Plan:
    """What must be done so that every path is as wanted.

    users and groups map each name that occurs to its number, or to None when the host does not
    know it. Unknown names and missing parents are errors, in check mode only signs that an earlier
    task has pretended.
    """
    steps: list[Step] = []
    errors: list[str] = []
    pretended = False
    made: set[str] = set()
    removed: dict[str, int] = {}
    for want in wanted:
        now = observed[want.path]
        missing = _missing(want, now, made, users, groups)
        pretended = pretended or bool(missing)
        problem = _obstacle(want, now, removed.get(want.path, 0)) or _squatted(want, now, users)
        problems = [*([] if check_mode else missing), *([problem] if problem else [])]
        errors += [f"{want.path}: {text}" for text in problems]
        if want.state == DIRECTORY:
            made.add(want.path)
        step = None if problems else _step(want, now, users, groups)
        if step is not None:
            steps.append(step)
            if step.action == REMOVE:
                above = posixpath.dirname(want.path)
                removed[above] = removed.get(above, 0) + 1
    return Plan(tuple(steps), tuple(errors), pretended)


def _missing(
    want: Wanted,
    now: Observed,
    made: set[str],
    users: Mapping[str, int | None],
    groups: Mapping[str, int | None],
) -> list[str]:
    """What an earlier task should have made: the parent directory, the user, the group."""
    if want.state == ABSENT:
        return []
    missing = []
    parent = posixpath.dirname(want.path)
    if not now.parent and parent not in made:
        missing.append(
            f"its directory {parent} does not exist; list it before with state: directory,"
            " or install the package that owns it"
        )
    for kind, name, known in (("user", want.owner, users), ("group", want.group, groups)):
        if name and known.get(name) is None:
            missing.append(f"{kind} {name} does not exist on this host")
    return missing


def _obstacle(want: Wanted, now: Observed, removed: int) -> str:
    """Why `want` cannot be put where `now` is, or nothing; `removed` entries of it go before."""
    if now.unsafe:
        return f"cannot be reached: {now.unsafe}"
    if want.state == ABSENT:
        if now.entries > removed:
            return (
                f"is a directory with {now.entries - removed} entries, which is not removed;"
                " remove what is in it first"
            )
        return "is a mount point and cannot be removed" if now.mount_point else ""
    if now.kind == OTHER:
        return f"is neither file, directory nor link, but a {want.state} is wanted"
    if want.state != DIRECTORY and now.kind == DIRECTORY:
        return f"is a directory, but a {want.state} is wanted"
    if want.state == DIRECTORY and now.kind == FILE:
        return "is a file, but a directory is wanted"
    if want.state == DIRECTORY and now.unsafe_target:
        return f"a directory is wanted: {now.unsafe_target}"
    if want.state == DIRECTORY and now.kind == LINK and not now.leads_to_directory:
        return f"is a link to {now.target}, but a directory is wanted"
    replaced = want.state == LINK or (want.state == FILE and _new_content(want, now) is not None)
    if now.mount_point and replaced and not (want.unsafe_writes and want.state == FILE):
        return (
            "is itself a mount point (as /etc/hosts in a container), so it cannot be replaced"
            " atomically; set unsafe_writes: true to write into it in place"
        )
    return ""


def _squatted(want: Wanted, now: Observed, users: Mapping[str, int | None]) -> str:
    """Why what is there is not taken over, or nothing: another user may have made it."""
    # A new file gets the owner and mode of the old one unless they are given.
    replaced = _new_content(want, now) is not None and want.owner and want.mode is not None
    stays = now.kind == DIRECTORY or (now.kind == FILE and not replaced)
    if not now.foreign or want.state == ABSENT or not stays:
        return ""
    if want.owner and users.get(want.owner) == now.uid:
        return ""
    return (
        f"belongs to {now.owner}, in a folder that other users may write into; look what it is,"
        " then remove it or give it to its owner"
    )


def _new_content(want: Wanted, now: Observed) -> bytes | None:
    """What must be written, or None when the content may stay."""
    if now.kind == FILE:
        if want.content is None or not want.replace or want.content == now.content:
            return None
        return want.content
    if now.kind == LINK and not want.replace:
        return None
    return want.content if want.content is not None else b""


def _step(
    want: Wanted,
    now: Observed,
    users: Mapping[str, int | None],
    groups: Mapping[str, int | None],
) -> Step | None:
    if want.state == ABSENT:
        return None if now.kind == ABSENT else Step(REMOVE, want, now)
    if want.state == LINK:
        same = now.kind == LINK and now.target == want.target
        return None if same else Step(MAKE_LINK, want, now)
    same_kind = now.kind == want.state or (want.state == DIRECTORY and now.leads_to_directory)
    if want.state == FILE and now.kind == LINK and not want.replace:
        return None
    if want.state == DIRECTORY:
        default = _NEW_DIRECTORY_MODE
    else:
        default = _NEW_SECRET_MODE if want.secret else _NEW_FILE_MODE
    uid = _number(want.owner, users, now.uid if same_kind else -1)
    gid = _number(want.group, groups, now.gid if same_kind else -1)
    mode = want.mode if want.mode is not None else (now.mode if same_kind else default)
    attributes_change = same_kind and (uid, gid, mode) != (now.uid, now.gid, now.mode)
    content = _new_content(want, now) if want.state == FILE else None
    if want.state == DIRECTORY and not same_kind:
        action = MAKE_DIRECTORY
    elif content is not None:
        action = WRITE
    elif attributes_change:
        action = ATTRIBUTES
    else:
        return None
    return Step(
        action,
        want,
        now,
        content or b"",
        uid,
        gid,
        mode,
        in_place=action == WRITE and now.mount_point,
        attributes_change=attributes_change or not same_kind,
    )


def _number(name: str, known: Mapping[str, int | None], otherwise: int) -> int:
    """The number of a name; -2 for one that is not known yet, which differs from every real one."""
    if not name:
        return otherwise
    number = known.get(name)
    return -2 if number is None else number


def diff_of(plan: Plan) -> list[dict[str, str]]:
    """Before and after of every step in Ansible's form; secrets are only named."""
    diffs: list[dict[str, str]] = []
    for step in plan.steps:
        if step.action == WRITE:
            diffs.append(_content_diff(step))
        if step.action != WRITE or step.attributes_change:
            diffs.append(
                {
                    "before_header": f"{step.path} (attributes)",
                    "after_header": f"{step.path} (attributes)",
                    "before": _describe_before(step.before),
                    "after": _describe_after(step),
                }
            )
    return diffs


def _content_diff(step: Step) -> dict[str, str]:
    before = step.before.content if step.before.kind == FILE else b""
    if step.wanted.secret:
        shown_before = f"(secret, {len(before)} bytes)\n" if step.before.kind == FILE else ""
        shown_after = f"(secret, {len(step.content)} bytes, new)\n"
    else:
        shown_before, shown_after = _shown(before), _shown(step.content)
    return {
        "before_header": step.path,
        "after_header": step.path,
        "before": shown_before,
        "after": shown_after,
    }


def _shown(content: bytes) -> str:
    """Content as text, or its size when it is not a text."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    return f"(binary, {len(content)} bytes)\n" if "\0" in text else text


def _describe_before(now: Observed) -> str:
    if now.kind == ABSENT:
        return "state: absent\n"
    if now.kind == LINK:
        return f"state: link\ntarget: {now.target}\n"
    return f"state: {now.kind}\nowner: {now.owner}\ngroup: {now.group}\nmode: {now.mode:04o}\n"


def _describe_after(step: Step) -> str:
    want = step.wanted
    if want.state == ABSENT:
        return "state: absent\n"
    if want.state == LINK:
        return f"state: link\ntarget: {want.target}\n"
    owner = want.owner or step.before.owner or "root"
    group = want.group or step.before.group or "root"
    return f"state: {want.state}\nowner: {owner}\ngroup: {group}\nmode: {step.mode:04o}\n"


def staged_names(paths: Iterable[str]) -> dict[str, str]:
    """Path → name below the stage folder: the base name, or `parent/base` where two share one."""
    paths = list(paths)
    bases = [posixpath.basename(path) for path in paths]
    return {
        path: base if bases.count(base) == 1 else path.lstrip("/")
        for path, base in zip(paths, bases)
    }
