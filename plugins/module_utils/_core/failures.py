# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""How a module fails: each kind of error in one wording, and with what was done before it."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, Mapping

from .run import ToolError


def message_of(error: BaseException) -> str:
    """Return an error as one line: of an OSError the path and what is wrong with it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


@contextlib.contextmanager
def reported(
    module: Any,
    result: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    *also: type[Exception],
) -> Iterator[None]:
    """Fail the module if the work raises ToolError (BusyError, HungError, ...) or OSError.

    It returns `result`, or what `result` returns then, and the details of the ToolError. `also`
    names further errors whose text is meant for the operator, such as ValueError; all others are
    faults of the module and pass.
    """
    expected: tuple[type[Exception], ...] = (ToolError, OSError, *also)
    try:
        yield
    except expected as error:
        done = result() if callable(result) else result or {}
        details = error.details if isinstance(error, ToolError) else {}
        module.fail_json(**{**done, "msg": message_of(error), **details})
