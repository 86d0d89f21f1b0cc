# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What a node keeps of one run of validate_nodes, so that no load is put on it twice."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Iterator, Mapping

from .._core.files import NO_OTHER, Folder, make_folder, open_folder
from .._core.names import boot_id

FOLDER = "/var/lib/baremetal-dgx/validation"


class Kept:
    """The answers of one run in a folder that only root looks into, a file for each part."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def answer(self, part: str) -> dict[str, Any] | None:
        """Return the answer of a part, None if there is none of this boot."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(self._folder.read(f"{part}.json"))
            if found["boot"] == boot_id() and isinstance(found["answer"], dict):
                return found["answer"]
        return None

    def keep(self, part: str, answer: Mapping[str, Any]) -> None:
        """Keep an answer; it is on disk on return. OSError."""
        data = {"boot": boot_id(), "answer": answer}
        self._folder.write(f"{part}.json", json.dumps(data), 0o600)


@contextlib.contextmanager
def kept_by(run: str, place: str) -> Iterator[Kept]:
    """Open what is kept of a run, and remove what other runs have left. OSError."""
    make_folder(place, 0o700, NO_OTHER)
    with open_folder(place, deny=NO_OTHER) as above:
        for name in above.names():
            if name != run:
                above.remove_tree(name)
        with above.folder(run, make=0o700, deny=NO_OTHER) as own:
            yield Kept(own)
