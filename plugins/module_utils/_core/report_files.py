# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The files that a check keeps beside what it returns."""

from __future__ import annotations

import os
from typing import Mapping

from .child import Send
from .files import make_folder, write_atomic
from .hang import BrokenError, HungError, in_time
from .run import ToolError


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
