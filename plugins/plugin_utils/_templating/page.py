# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Pages from the templates of a package. Every value is escaped; templates alone write markup."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: object) -> str:
    """Return a text without what would move or hide its neighbours: control and bidi characters."""
    return _CONTROL.sub("\ufffd", str(text))


def _printed(value: object) -> object:
    return value if isinstance(value, Markup) else clean(value)


def environment(folder: Path, **filters: Any) -> Environment:
    """Return what renders the templates of a folder, with more filters.

    `inline` puts a style or a script of the folder into the page as it is. KeyError, ValueError and
    the like are a template's own faults: what is undefined is not an empty text.
    """
    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        finalize=_printed,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(filters, commas=_commas)
    made.globals["inline"] = lambda name: Markup((folder / name).read_text(encoding="utf-8"))
    return made


def _commas(number: int) -> str:
    return f"{number:,}"
