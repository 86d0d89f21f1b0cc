# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Work on paths that may be on a mount that does not answer: it ends in time, and names the mount.

A process that touches such a path waits in the kernel and cannot be killed. So a child touches it;
when it does not come back, all mounts of the host are asked, each by its own child, and the line
says which of them do not answer either.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from functools import partial
from typing import Any, Callable, Iterable, Mapping, Sequence

from .child import DONE, HUNG, Answer, Call, Send, ask_all, parts_of
from .failures import reported
from .files import make_folder, write_atomic
from .mounts import Live, all_mounts, errno_of
from .run import ToolError

LIMIT_S = 60.0
_ASK_S = 2.0
_MOST = 64
# They have no server and no disk that could keep one waiting.
_IN_MEMORY = frozenset(
    (
        "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts",
        "devtmpfs", "efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "overlay", "proc",
        "pstore", "ramfs", "rpc_pipefs", "securityfs", "selinuxfs", "squashfs", "sysfs", "tmpfs",
        "tracefs",
    )
)  # fmt: skip


class HungError(ToolError):
    """Work that did not come back; `str` is one line, `parts` what it sent before."""

    def __init__(self, message: str, parts: Sequence[Any] = ()) -> None:
        super().__init__(message, hung=True)
        self.parts = tuple(parts)


class BrokenError(ToolError):
    """Work that ended without an answer: its own fault; `str` is one line."""


def hung_mounts(mounts: Iterable[Live], limit_s: float = _ASK_S) -> list[Live]:
    """Ask mounts all at once; returns those that do not answer."""
    asked = {one.where: one for one in mounts if one.fstype not in _IN_MEMORY}
    names = sorted(asked)[:_MOST]
    calls = [Call(where, partial(errno_of, where), limit_s) for where in names]
    answers = ask_all(calls, time.monotonic() + 2 * limit_s)
    return [asked[where] for where in names if answers[where].how == HUNG]


def line_of(what: str, answer: Answer, hung: Sequence[Live]) -> str:
    """Return what to report about work that did not come back."""
    waited = f"{what}: {answer.message}"
    if not hung:
        return f"{waited}, though every mount of this host answers; is its disk broken? (dmesg)"
    names, many = ", ".join(map(str, hung)), len(hung) > 1
    does = "do not answer" if many else "does not answer"
    return f"{waited}: {names} {does}; bring its server back, or `umount -l {hung[0].where}`"


def in_time(what: str, work: Callable[[Send], Any], limit_s: float = LIMIT_S) -> Any:
    """Return what `work` returns (JSON data); it may send parts. Raises HungError, BrokenError.

    An OSError of the work is raised here. `what` is what it works on, for the message.
    """

    def report(send: Send) -> dict[str, Any]:
        try:
            return {"value": work(send)}
        except OSError as error:
            name = error.filename
            place = name if isinstance(name, str) else None
            return {"error": [error.errno or errno.EIO, error.strerror or str(error), place]}

    answer = parts_of(report, limit_s)
    if answer.how == DONE:
        if "error" in answer.value:
            raise OSError(*answer.value["error"])
        return answer.value["value"]
    if answer.how == HUNG:
        raise HungError(line_of(what, answer, hung_mounts(all_mounts().values())), answer.parts)
    raise BrokenError(f"{what}: {answer.message}")


def touch(what: str, paths: Iterable[str], limit_s: float = LIMIT_S) -> None:
    """Look at folders before work on them begins. Raises HungError, BrokenError.

    For work that cannot be given up in the middle, such as that of useradd.
    """

    def work(_send: Send) -> None:
        for path in paths:
            # That there is nothing, or nothing to be seen, is an answer, too.
            with contextlib.suppress(OSError):
                os.statvfs(path)
                os.listdir(path)

    in_time(what, work, limit_s)


def look_in_time(module: Any, paths: Iterable[str | None]) -> None:
    """End a module, before its work begins, that was given a path on a mount that hangs."""
    given = sorted({path for path in paths if path})
    with reported(module):
        touch(", ".join(given), given)


class _EndedError(BaseException):
    """How a module would have ended; no `except Exception` takes it for a fault."""

    def __init__(self, how: str, answer: Mapping[str, Any]) -> None:
        super().__init__(how)
        self.how, self.answer = how, answer


def _ends(how: str) -> Callable[..., None]:
    def end(*words: Any, **answer: Any) -> None:
        raise _EndedError(how, {**({"msg": words[0]} if words else {}), **answer})

    return end


def finish_in_time(
    module: Any, what: str, body: Callable[[], None], limit_s: float = LIMIT_S
) -> None:
    """End a module as `body` does, which calls exit_json, or with its error; or say what hangs."""

    def work(_send: Send) -> dict[str, Any]:
        module.exit_json, module.fail_json = _ends("exit_json"), _ends("fail_json")
        warnings = module.warn
        messages: list[str] = []
        module.warn = messages.append
        try:
            with reported(module):
                body()
        except _EndedError as end:
            return {"how": end.how, "answer": end.answer, "warnings": messages}
        finally:
            module.warn = warnings
        return {"how": "exit_json", "answer": {}, "warnings": messages}

    with reported(module):
        ended = in_time(what, work, limit_s)
    for message in ended["warnings"]:
        module.warn(message)
    getattr(module, ended["how"])(**ended["answer"])


def write_files(folder: str, files: Mapping[str, str]) -> list[str]:
    """Write files into a folder, each in one step, and return their paths; ToolError."""

    def write(_send: Send) -> None:
        make_folder(folder)
        for name, text in files.items():
            write_atomic(os.path.join(folder, name), text.encode("utf-8", "replace"), sync=False)

    try:
        in_time(folder, write)
    except OSError as error:
        raise ToolError(f"{folder} cannot be written: {error}") from error
    except (HungError, BrokenError) as error:
        raise ToolError(str(error)) from error
    return [os.path.join(folder, name) for name in files]
