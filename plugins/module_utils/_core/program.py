# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Programs of one file, made of the sources of this collection: they need nothing but Python."""

from __future__ import annotations

import ast
import importlib.util
import zipfile
from io import BytesIO
from types import ModuleType
from typing import Any, Iterator

_OLD = (1980, 1, 1, 0, 0, 0)


def start_of(main: str) -> str:
    """Return a __main__.py that calls `main` of the module of this name."""
    return f"import sys\nfrom {main} import main\nsys.exit(main(sys.argv[1:]))\n"


def _imports(name: str, text: str) -> Iterator[str]:
    """Yield the modules that this text may import, as full names; some are names inside one."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = name.rsplit(".", node.level)[0] if node.level else ""
            base = ".".join(part for part in (above, node.module) if part)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _source(name: str) -> str | None:
    """Return the text of a module; None for a package, and for a name that is not a module."""
    try:
        spec: Any = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    if spec is None or spec.submodule_search_locations is not None:
        return None
    text = spec.loader.get_source(name)
    # Ansible's own loader on the controller gives bytes.
    return text.decode("utf-8") if isinstance(text, bytes) else str(text)


def sources(main: ModuleType) -> dict[str, str]:
    """Return path -> text of this module and all that it imports from its own collection.

    The packages above them are there too, and empty.
    """
    texts: dict[str, str] = {}
    own, todo, known = main.__name__.split(".")[0] + ".", [main.__name__], set()
    while todo:
        name = todo.pop()
        if name in known or not name.startswith(own):
            continue
        known.add(name)
        text = _source(name)
        if text is None:
            continue
        folder = ""
        for part in name.split(".")[:-1]:
            folder += part + "/"
            texts[folder + "__init__.py"] = ""
        texts[name.replace(".", "/") + ".py"] = text
        todo.extend(_imports(name, text))
    return texts


def archive(texts: dict[str, str], start: str) -> bytes:
    """Return a zip archive that Python runs: the same bytes for the same texts.

    `texts` is path -> text, `start` the text of its __main__.py.
    """
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for path, text in sorted({**texts, "__main__.py": start}.items()):
            info = zipfile.ZipInfo(path, _OLD)
            info.compress_type = zipfile.ZIP_DEFLATED
            made.writestr(info, text, compresslevel=9)
    return out.getvalue()
