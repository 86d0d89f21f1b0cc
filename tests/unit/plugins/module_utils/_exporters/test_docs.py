# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/metrics.md has every metric that the programs for nodes publish, and no other of ours."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[5]
UTILS = ROOT / "plugins/module_utils"
NAME = re.compile(r"(?:baremetal_dgx|slurm)_[a-z_*]+")
# Every collector publishes these; see run_families.
RUN = ("run_timestamp_seconds", "run_duration_seconds", "run_cpu_seconds")


def text_of(node: ast.AST, prefix: str) -> str:
    """A name as far as it is written down: what is filled in is a `*`, PREFIX its value."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(one, prefix) for one in node.values)
    inner = ast.unparse(node.value) if isinstance(node, ast.FormattedValue) else ""
    return prefix if inner.endswith("PREFIX") else "*"


def names_in(text: str, prefix: str) -> Iterator[str]:
    """The metrics of a program: of Family and counted, and in rows that begin with a name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and node.args:
            name = ast.unparse(node.func).rpartition(".")[2]
            if name == "run_families":
                yield from (f"{prefix}_{one}" for one in RUN)
            elif name in ("Family", "_alone", "counted"):
                yield text_of(node.args[0], prefix) + "_*" * (name == "counted")
        elif isinstance(node, ast.Assign) and ast.unparse(node).startswith("_METRICS = "):
            assert isinstance(node.value, ast.Dict)
            yield from (f"{prefix}_{text_of(one, prefix)}" for one in node.value.keys if one)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and ast.unparse(node).startswith("rows"):
            for row in getattr(node.value, "elts", ()):
                assert isinstance(row, ast.Tuple)
                given = text_of(row.elts[0], prefix)
                yield given if NAME.fullmatch(given) else f"{prefix}_{given}"
        elif isinstance(node, ast.Dict):
            yield from (text_of(one, prefix) for one in node.values if one)


def published() -> set[str]:
    """All metrics of the programs; in Slurm's parser they are the values of a table."""
    found: set[str] = set()
    for folder in ("_backup", "_exporters", "_node_health", "_repair"):
        texts = {path: path.read_text(encoding="utf-8") for path in (UTILS / folder).glob("*.py")}
        for text in texts.values():
            own = re.search(r'^_?PREFIX = "(.*)"', text, re.MULTILINE)
            prefix = own[1] if own else "baremetal_dgx_slurm"
            found |= {one for one in names_in(text, prefix) if NAME.fullmatch(one)}
    # What roles write by themselves.
    for path in (ROOT / "roles").rglob("*.prom.j2"):
        found |= set(re.findall(r"^# TYPE (\S+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    # What a row fills in.
    return {one for one in found if not re.fullmatch(r"baremetal_dgx_\w+_\*", one)}


def documented(page: str) -> set[str]:
    """The metrics in the first cells of the page's tables; `_idle` replaces the end of a name."""
    found: set[str] = set()
    for line in page.splitlines():
        base = ""
        for name in re.findall(r"`(\w+)`", line.split("|")[1] if line.startswith("|") else ""):
            if name.startswith("_") and base:
                found |= {base[: place.start()] + name for place in re.finditer("_", base)} | {
                    base + name
                }
            elif NAME.fullmatch(name):
                base = name
                found.add(name)
    return found


def test_names_are_read_from_programs() -> None:
    text = (
        'a = Family(f"{PREFIX}_a", "A"), counted("slurm_b", "B", c), Family(f"slurm_{d}_e")\n'
        'rows: list = [("f", 1)]\nrun_families(PREFIX, 1)\n'
    )
    assert {"x_a", "slurm_b_*", "slurm_*_e", "x_f", "x_run_cpu_seconds"} <= {*names_in(text, "x")}
    assert documented("| `slurm_a_b`, `_c` |\n| no `slurm_d` |") >= {"slurm_a_b", "slurm_a_c"}


def test_the_page_has_every_metric() -> None:
    code, page = published(), documented((ROOT / "docs/metrics.md").read_text(encoding="utf-8"))
    assert len(code) > 60
    assert not [one for one in code if not any(fnmatchcase(name, one) for name in page)]


def test_the_page_has_no_other_metric() -> None:
    code = published()
    whole = re.compile(r"^\|[^|]*`((?:baremetal_dgx|slurm)_\w+)`", re.MULTILINE)
    page = set(whole.findall((ROOT / "docs/metrics.md").read_text(encoding="utf-8")))
    assert len(page) >= 50
    assert not [one for one in page if not any(fnmatchcase(one, name) for name in code)]
