# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Programs of one file, made of the sources of this collection: they need nothing but Python."""

from __future__ import annotations

import zipfile
from io import BytesIO
from types import ModuleType
from typing import Any, Iterable

_OLD = (1980, 1, 1, 0, 0, 0)


def start_of(main: str) -> str:
    """Return a __main__.py that calls `main` of the module of this name."""
    return f"import sys\nfrom {main} import main\nsys.exit(main(sys.argv[1:]))\n"


def sources(modules: Iterable[ModuleType]) -> dict[str, str]:
    """Return path -> text of these modules and of the packages above them, which are empty."""
    texts = {}
    for module in modules:
        loader: Any = getattr(module, "__loader__", None)
        folder = ""
        for part in module.__name__.split(".")[:-1]:
            folder += part + "/"
            texts[folder + "__init__.py"] = ""
        text = loader.get_source(module.__name__)
        # Ansible's own loader on the controller gives bytes.
        texts[module.__name__.replace(".", "/") + ".py"] = (
            text.decode("utf-8") if isinstance(text, bytes) else text
        )
    return texts


def archive(texts: dict[str, str], start: str) -> bytes:
    """Return a zip archive that Python runs: the same bytes for the same texts.

    `texts` is path -> text, `start` the text of its __main__.py.
    """
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for path, text in sorted({**texts, "__main__.py": start}.items()):
            info = zipfile.ZipInfo(path, _OLD)
            info.compress_type = zipfile.ZIP_DEFLATED
            made.writestr(info, text)
    return out.getvalue()
