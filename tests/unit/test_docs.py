# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages for people: links lead somewhere, names exist, every check and refusal has an entry.

Alerts have theirs in tables made from the rules (.ci/alert_table.py, roles/test_alert_rules.py),
commands in test_page_commands.py.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from page_commands import anchor

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
# Pages elsewhere.
OTHERS = [
    ROOT / "SECURITY.md",
    *ROOT.glob("inventories/*/README.md"),
    *ROOT.glob("roles/*/README.md"),
]
GUIDE = DOCS / "troubleshooting.md"

each_page = pytest.mark.parametrize(
    "page", [*PAGES, *OTHERS], ids=lambda page: str(page.relative_to(ROOT))
)


def prose(text: str) -> str:
    """The text without fenced code."""
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)


def first_cells(text: str) -> Iterator[str]:
    """The first cell of each row of each table."""
    for line in prose(text).splitlines():
        if line.startswith("| ") and not line.startswith("| ---"):
            yield re.split(r"(?<!\\)\|", line)[1].strip()


# Links

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", prose(text), flags=re.MULTILINE)
    return {anchor(one) for one in headings}


def dead_links(page: Path, text: str) -> list[str]:
    """The links of a page that lead to no file, or to no heading of it."""
    lost = []
    for target, place in LINK.findall(prose(text)):
        path = page.parent / target
        if target and not path.exists():
            lost.append(target)
        elif place and not (target and path.suffix != ".md"):
            there = path.read_text(encoding="utf-8") if target else text
            if place not in anchors(there):
                lost.append(f"{target}#{place}")
    return lost


def test_dead_links_are_found() -> None:
    text = "# Here\n[a](no.md) [b](#there) [c](#here) [d](glossary.md#x) [e](glossary.md)\n"
    assert dead_links(DOCS / "x.md", text) == ["no.md", "#there", "glossary.md#x"]


@each_page
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    assert not dead_links(page, page.read_text(encoding="utf-8"))


def test_readme_names_every_page() -> None:
    linked = {target for target, _anchor in LINK.findall(PAGES[0].read_text(encoding="utf-8"))}
    assert {f"docs/{page.name}" for page in DOCS.glob("*.md")} <= linked


def test_a_page_follows_a_task_or_has_its_reason() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tasks, _line, reference = readme.partition("## Pages")[2].partition("| **to look up**")
    reasons = (DOCS / "development.md").read_text(encoding="utf-8").partition("\n## Pages\n")[2]
    cells = list(first_cells(reasons.partition("\n## ")[0]))[1:]
    first = set(re.findall(r"^\| \[(\w+)\]", tasks, flags=re.MULTILINE))
    assert len(first) <= 13
    assert {name for cell in cells for name in cell.split(", ")} == {
        page.stem for page in DOCS.glob("*.md")
    } - first
    assert {f"docs/{one}.md" for one in first}.isdisjoint(t for t, _a in LINK.findall(reference))


# Commands


def lost_commands(text: str) -> set[str]:
    """The playbooks, targets of make and commands of the pod in a text that do not exist."""
    playbooks = {path.stem for path in (ROOT / "playbooks").glob("*.yml")}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    named = re.findall(r"ansible-playbook [^\n`]*?\bbaremetal\.dgx\.([a-z_]+)", text)
    made = re.findall(r"(?:^|`|\$ )make ([a-z][a-z-]*)", text, flags=re.MULTILINE)
    return {*named} - playbooks | {f"make {one}" for one in {*made} - targets}


def test_lost_commands_are_found() -> None:
    text = "`make demo` `make coffee`\nansible-playbook -i x baremetal.dgx.brew\n"
    assert lost_commands(text) == {"brew", "make coffee"}


@each_page
def test_commands_exist(page: Path) -> None:
    assert not lost_commands(page.read_text(encoding="utf-8"))


# Names in the pages that say what to write into an inventory

WRITTEN = [DOCS / "quick_start.md", DOCS / "sites.md"]
# Names of devices and programs, with an underscore as variables have.
NO_VARIABLES = {"mlnx_qos", "mlx5_rail3"}
Spec = Mapping[str, Any]


@cache
def variables() -> dict[str, Spec]:
    """Everything that an inventory may set, by name: the contract's variables and roles' inputs."""
    contract = ROOT / "plugins/plugin_utils/_contract/contract.yml"
    parts = yaml.safe_load(contract.read_text(encoding="utf-8"))
    found: dict[str, Spec] = {**parts["cluster"], **parts["node"]}
    for path in ROOT.glob("roles/*/meta/argument_specs.yml"):
        specs = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]
        found |= specs["main"].get("options", {})
    return found


@cache
def other_names() -> frozenset[str]:
    """Groups, profiles, examples, playbooks, roles, modules: what a page may name as well."""
    contract = ROOT / "plugins/plugin_utils/_contract"
    groups = yaml.safe_load((contract / "contract.yml").read_text(encoding="utf-8"))["groups"]
    profiles = yaml.safe_load((contract / "profiles.yml").read_text(encoding="utf-8"))
    files = ("inventories/*", "playbooks/*.yml", "plugins/modules/*.py", "roles/*")
    return frozenset([*groups, *profiles, *(one.stem for path in files for one in ROOT.glob(path))])


def nested(spec: Spec) -> set[str]:
    """The names of all options within an option."""
    inner: Spec = spec.get("options") or {}
    return set(inner).union(*(nested(one or {}) for one in inner.values()))


def is_name(name: str) -> bool:
    """Whether a name, or a path like `cluster_fabric.topology`, exists."""
    first, *rest = name.split(".")
    if first not in variables():
        options = {one for spec in variables().values() for one in nested(spec)}
        return name in other_names() | NO_VARIABLES | options
    spec = variables()[first]
    for part in rest:
        inner: Spec = spec.get("options") or {}
        if part not in inner:
            return False
        spec = inner[part] or {}
    return True


def strange_values(value: Any, spec: Spec, path: str) -> Iterator[str]:
    """What is written for a variable and cannot be: unknown options and choices."""
    choices = spec.get("choices")
    if choices and not isinstance(value, (dict, list)) and value not in choices:
        yield f"{path}: {value}"
    options = spec.get("options")
    if not options:
        return
    keyed = "key_pattern" in spec and isinstance(value, dict)
    for one in value.values() if keyed else value if isinstance(value, list) else [value]:
        if not isinstance(one, dict):
            continue
        for key, inner in one.items():
            if key in options:
                yield from strange_values(inner, options[key] or {}, f"{path}.{key}")
            else:
                yield f"{path}.{key}"


def strange_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    """The variables of a file of group_vars, or of the hosts in hosts.yml, that do not exist."""
    for name, value in settings.items():
        if name == "cluster" and isinstance(value, dict):
            for group, inner in value["children"].items():
                if group not in other_names():
                    yield group
                for own in inner["hosts"].values():
                    yield from strange_settings(own or {})
        elif name in variables():
            yield from strange_values(value, variables()[name], name)
        else:
            yield name


def strange_names(text: str) -> list[str]:
    """The variables in YAML, and all names in the text, that do not exist."""
    found: list[str] = []
    for block in re.findall(r"^ *```yaml\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE):
        found += strange_settings(yaml.safe_load(dedent(block)))
    for name in re.findall(r"`([a-z]+(?:_[a-z0-9]+)+(?:\.[a-z0-9_]+)*)(?:: [^`]*)?`", prose(text)):
        found += [] if is_name(name) else [name]
    return found


def test_strange_names_are_found() -> None:
    text = (
        "`cluster_fabric.topology` `cluster_fabric.shape` `roce_dscp: 26` `roce_colour: 1` `site`\n"
        "`validate_fabric` `validate_coffee`\n```yaml\ncluster_fabric: {topology: ring, color: 1}\n"
        "cluster_networks: {rail0: {cidr: 10.0.0.0/8, speed: 1}}\nnode_state: gone\nnode_a: 1\n"
        "```\n```yaml\ncluster: {children: {gpu_nodes: {hosts: {a-1: {node_b: 1}, a-2: }}, "
        "pets: {hosts: {}}}}\n```"
    )
    assert strange_names(text) == [
        "cluster_fabric.topology: ring", "cluster_fabric.color", "cluster_networks.speed",
        "node_state: gone", "node_a", "node_b", "pets",
        "cluster_fabric.shape", "roce_colour", "validate_coffee",
    ]  # fmt: skip


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_names_to_write_exist(page: Path) -> None:
    assert not strange_names(page.read_text(encoding="utf-8"))


# The glossary


NAMED_TEST = re.compile(r"(?<![.\w/])((?:\w+/)*test_\w+[.]py)|::([A-Za-z_]\w*)")


@pytest.fixture(scope="module")
def tests() -> dict[str, str]:
    """Return the text of every module of tests by its path."""
    paths = (ROOT / "tests").rglob("test_*.py")
    return {f"/{path.relative_to(ROOT)}": path.read_text(encoding="utf-8") for path in paths}


def lost_tests(text: str, tests: Mapping[str, str]) -> list[str]:
    """Return the tests that a text names and that do not exist."""
    lost = []
    for line in text.splitlines():
        module = ""
        for path, name in NAMED_TEST.findall(line):
            module = path or module
            there = [code for at, code in tests.items() if at.endswith(f"/{module}")]
            if not any(not name or re.search(rf"^def {name}\(", code, re.M) for code in there):
                lost.append(f"{module}::{name}" if name else module)
    return lost


def test_lost_tests_are_found(tests: dict[str, str]) -> None:
    row = "| `test_docs.py::test_lost_tests_are_found`, `::test_docs`, `old/test_docs.py` |"
    assert lost_tests(row, tests) == ["test_docs.py::test_docs", "old/test_docs.py"]


@each_page
def test_tests_that_are_named_exist(page: Path, tests: dict[str, str]) -> None:
    assert not lost_tests(page.read_text(encoding="utf-8"), tests)


def test_glossary_is_in_order() -> None:
    words = list(first_cells((DOCS / "glossary.md").read_text(encoding="utf-8")))[1:]
    assert words == sorted(words, key=str.lower)
    assert len(words) > 50


# Checks: every name that the code gives to a record

LAYERS = (
    "burn|clock|cpu|dcgm|disk|evidence|fabric|fio|gpu|groups|health|host|ib|memory|mount|nccl|node"
    "|nvme|service|slurm|stack|storage"
)
NAME = re.compile(rf"(?:{LAYERS})\.[a-z0-9_.*]+")
# Files, and what the report computes from a record.
NO_CHECKS = re.compile(
    r".*\.(conf|html|j2|jsonl?|jwks|key|log|prom|py|pyz|service|svg|txt|ya?ml)|.*[._]|burn\.hottest"
)


def checks_in(text: str) -> set[str]:
    """The names of checks in a module; what is filled in later is a `*`."""
    tree = ast.parse(text)
    inner = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
        for part in node.values
    }  # fmt: skip
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            texts = [one.value if isinstance(one, ast.Constant) else "*" for one in node.values]
            names.add("".join(map(str, texts)))
        elif isinstance(node, ast.Constant) and id(node) not in inner:
            names.add(re.sub(r"\{[a-z_]*\}", "*", str(node.value)))
    return {one for one in names if NAME.fullmatch(one) and not NO_CHECKS.fullmatch(one)}


def entries() -> set[str]:
    """The checks that have an entry, by the tables of the pages."""
    found = {
        name
        for page in (GUIDE, DOCS / "thresholds.md")
        for cell in first_cells(page.read_text(encoding="utf-8"))
        for name in re.findall(r"`([^`]+)`", cell)
        # What to do about a GPU is in the table of its thresholds.
        if page == GUIDE or name.startswith("gpu.")
    }
    findings = (DOCS / "fabric.md").read_text(encoding="utf-8").partition("### Findings")[2]
    kinds = (re.findall(r"`([^`]+)`", cell) for cell in first_cells(findings.split("\n#")[0]))
    return found | {f"fabric.{kind}" for row in kinds for kind in row}


def lacking(names: set[str], known: set[str]) -> list[str]:
    """The names that match no other, by whichever of the two has a `*`."""
    return sorted(
        name
        for name in names
        if not any(fnmatchcase(name, one) or fnmatchcase(one, name) for one in known)
    )


def without_entry(names: set[str], known: set[str]) -> list[str]:
    """The checks of which no entry speaks: `fio.*` is that of names that code fills in, alone."""
    filled_in = {one for one in names if "*" in one}
    whole = {one for one in known if re.fullmatch(r"\w+\.\*", one)}
    return lacking(filled_in, known) + lacking(names - filled_in, known - whole)


def test_checks_are_read_from_code() -> None:
    text = 'judge("gpu.count", f"ib.pcie_{kind}", "slurm.conf", f"{x}.y", "burn.rate_", "a.b")'
    assert checks_in(text) == {"gpu.count", "ib.pcie_*"}
    assert lacking({"gpu.count", "ib.pcie_*"}, {"gpu.*"}) == ["ib.pcie_*"]
    assert without_entry({"fio.read", "fio.*"}, {"fio.*"}) == ["fio.read"]
    assert lacking({"gpu.count", "ib.pcie_*"}, {"gpu.count", "ib.pcie_speed"}) == []


def test_every_check_has_an_entry() -> None:
    names = set()
    for path in (ROOT / "plugins").rglob("*.py"):
        names |= checks_in(path.read_text(encoding="utf-8"))
    assert len(names) > 150
    known = entries()
    assert not without_entry(names, known), f"write an entry into {GUIDE.relative_to(ROOT)}"
    old = lacking({one for one in known if NAME.fullmatch(one)}, names)
    assert not [one for one in old if not one.startswith("fabric.")], "no code has this check"


# Refusals, by kind


def test_every_preflight_has_an_entry() -> None:
    known = set(first_cells(GUIDE.read_text(encoding="utf-8")))
    roles = {f"`{path.parents[1].name}`" for path in ROOT.glob("roles/*/tasks/preflight.yml")}
    assert len(roles) > 20
    assert not roles - known


def test_every_kind_of_inventory_mistake_has_an_entry() -> None:
    known = set(first_cells(GUIDE.read_text(encoding="utf-8")))
    mistakes = (ROOT / "tests/unit/fixtures/bad_inventories.yml").read_text(encoding="utf-8")
    kinds = set(re.findall(r"^# (.*)\n\n- name", mistakes, flags=re.MULTILINE))
    assert len(kinds) > 12
    assert not kinds - known


# Plain words: what newcomers stumble over, and what to write

WORDS = {
    r"(?<!CommandUser )(?:no|any|some|every)body(?!@| <)(?: else)?": (
        "nobody looks",
        "the passive, or who it is",
    ),
    r"who(?:m)?ever": ("whoever reads it", "the passive, or who it is"),
    r"(?<!\$)told": ("it is told", "report, show, list"),
    r"tell (?:whether|if)": ("Tell whether it runs", "return whether"),
    r"tells? (?:of|so|nothing|that)": ("the log tells of it", "reports, shows"),
    r"(?<!\$)said(?!\.)": ("what it said", "output, print, log, or who says it"),
    r"says (?:of|so|who|nothing|itself)": ("the log says so", "reports, contains, shows"),
    r"(?<![-.])marks?(?![\"':]| =)": ("it reaches its mark", "threshold"),
    r"anew": ("burnt anew", "again"),
    r"burnt": ("a GPU is burnt", "burned in"),
    r"(?<!['\"])sound(?!['\"_:])": ("a sound node", "healthy, valid"),
    r"mend(?:s|ed|ing)?": ("mend it", "repair, correct"),
    r"mute": ("a mute device", "silent"),
    r"spoilt|astray|condemn\w*": ("condemns a node", "corrupted, misrouted, fail"),
    r"(?<!there )(?:is|are) no (?!longer|more)\w+": ("it is no number", "is not a"),
    r"(?:that|which|where (?!there)\w+) (?:is|are) none(?: of)?": (
        "a path that is none",
        "an invalid path",
    ),
    r"of (?:its|their|his|your|our) own": ("a page of its own", "its own page, a separate page"),
    r"(?:by|through) the gate's hand": ("out by the gate's hand", "drained by the gate"),
    r"(?:no|without a|any) way out": ("without a way out", "air-gapped"),
    r"at once by": ("out at once by it", "at a time"),
    r"stands? (?:in|at|beside|there|still)": ("it stands in the file", "is in, is described in"),
    r"lies? (?:in|beside|below|there)": ("it lies below it", "is in, is next to, is below"),
    r"look(?:s|ed)? (?:whether|who|which)": ("looks whether it runs", "checks"),
    r"cut short": ("an answer cut short", "truncated, interrupted"),
    r"(?:was|were|is) (?:not )?foreseen": ("what was not foreseen", "unexpected"),
    r"goes on where": ("goes on where it stopped", "continues"),
    r"is at it already": ("a run is at it already", "is already running it"),
    r"slips? of the pen": ("a slip of the pen", "typo"),
    r"hears? of": ("before Slurm hears of it", "gets, uses, receives"),
    r"for ever": ("it waits for ever", "forever"),
    r"among its like": ("one among its like", "fleet outlier"),
    r"lemon|strangers?|wish(?:es)?": ("a lemon", "repeat offender, unknown host, option"),
}  # fmt: skip
# Made from the texts of the code alone.
MADE = {"thresholds.md"}


def own_words(text: str) -> str:
    """The text of a page, a line for each paragraph, without code and generated tables."""
    text = re.sub(r"<!-- BEGIN (\w+).*?<!-- END \1[^>]*>", "", prose(text), flags=re.S)
    text = re.sub(r"`[^`\n]*`", "``", text)
    return re.sub(r"\n +|\n(?=[^\n|#*\-\d])", " ", text)


STRANGE = [
    (re.compile(rf"\b(?:{one})\b", re.IGNORECASE), better) for one, (_bad, better) in WORDS.items()
]


def strange_words(lines: str) -> Iterator[str]:
    """Each word in lines that has a plainer one, with that."""
    for line in lines.splitlines():
        for pattern, better in STRANGE:
            for found in pattern.finditer(line):
                yield f"'{line[max(0, found.start() - 30) : found.end() + 10]}': write {better}"


@pytest.mark.parametrize("pattern", WORDS)
def test_a_strange_word_is_found(pattern: str) -> None:
    bad, better = WORDS[pattern]
    assert any(better in line for line in strange_words(own_words(bad)))
    assert not list(strange_words(own_words(f"`{bad}`\n```text\n{bad}\n```\n")))


@pytest.mark.parametrize(
    "page",
    [one for one in (*PAGES, *OTHERS) if one.name not in MADE],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_pages_are_in_plain_words(page: Path) -> None:
    assert not list(strange_words(own_words(page.read_text(encoding="utf-8"))))


# The same in everything else that people read: task names, messages, remedies, comments, templates


# Answers of tools as they were, lists of names, the licence, and this list of bad examples.
OTHERS_WORDS = re.compile(
    r"LICENSE|tests/unit/test_docs\.py|tests/unit/fixtures/(?!bad_inventories)"
    r"|.*\.(?:csv|json|kmsg|md|png|ptx|state|stderr|svg|txt)"
)
# A line feed, with the sign of a comment on the next line.
FOLD = re.compile(r"[ \t]*\n[ \t]*(?:#+ |// |\* )?")


def quoted_out(text: str) -> str:
    """The text in one line, without what is quoted as code."""
    return FOLD.sub(" ", re.sub(r"`[^`\n]*`|C\([^)\n]*\)", "``", text))


def texts_of_python(text: str) -> Iterator[str]:
    """The comments of a program, block by block, and its texts of several words."""
    block, last = "", 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            block += token.string.lstrip("#") if token.start[0] == last + 1 else f"\n{token.string}"
            last = token.start[0]
    yield from block.splitlines()
    inner: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            inner |= {id(part) for part in node.values}
            yield "".join(
                str(one.value) if isinstance(one, ast.Constant) else "``" for one in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in inner and " " in node.value.strip():
                yield node.value


def strange_words_of(name: str, text: str) -> list[str]:
    """The strange words of a file that is no page."""
    python = name.endswith(".py") or text.startswith("#!/usr/bin/env python")
    texts = texts_of_python(text) if python else [text]
    return [found for one in texts for found in strange_words(quoted_out(one))]


def test_strange_words_are_found_in_programs() -> None:
    program = (
        "# Run it\n# anew.\nmend = anew('wish', 'mend it', f'{x} is no number')  # `mend`\n"
        '"""A page\n\nof its own."""\n'
    )
    found = [one.rpartition("write ")[2] for one in strange_words_of("x.py", program)]
    assert sorted(found) == [
        "again", "is not a", "its own page, a separate page", "repair, correct",
    ]  # fmt: skip
    assert len(strange_words_of("x.yml", "- name: Mend what\n  # is\n  # told, C(mend)")) == 2


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """The text of every file that is not a page, by its path."""
    command = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    read = [one for one in names.split("\0") if one and not OTHERS_WORDS.fullmatch(one)]
    assert len(read) > 1000
    return {
        name: (ROOT / name).read_text(encoding="utf-8") for name in read if (ROOT / name).is_file()
    }


def test_everything_is_in_plain_words(files: dict[str, str]) -> None:
    found = {name: words for name, text in files.items() if (words := strange_words_of(name, text))}
    assert not found


# Names in code, by their parts

PARTS = re.compile(
    r"(?:^|_)(wish(?:es|ed)?|anew|mend(?:s|ed|ing)?|lemons?|unreal|strangers?|heard|spoilt|astray"
    r"|mute[ds]?|condemn\w*|nobody|somebody|whoever|foreseen)(?:_|$)",
    re.IGNORECASE,
)
# What Debian, Slurm and Alertmanager call so, and the changelog's table of old names.
NO_NAMES = {"nobody", "mute_time_intervals"}
OLD_NAMES = {"changelogs/fragments/1.0.0.yml"}


def strange_parts(text: str) -> set[str]:
    """The names in a text that have a strange word among their parts."""
    names = set(re.findall(r"[A-Za-z_]\w*", re.sub(r"[{}$]", " ", text)))
    return {
        name
        for name in names - NO_NAMES
        if re.search(r"[_A-Z]", name)
        if PARTS.search(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name))
    }


def test_strange_parts_of_names_are_found() -> None:
    text = "def is_mute(unrealNode): recommend, commute = STRANGER, nobody_knows, nobody, mend\n"
    assert strange_parts(text) == {"is_mute", "unrealNode", "STRANGER", "nobody_knows"}


def test_names_are_plain_words(files: dict[str, str]) -> None:
    found = {
        name: strange
        for name, text in files.items()
        if name not in OLD_NAMES and (strange := strange_parts(text))
    }
    assert not found


# Variables that say who spoke instead of what they hold: a message, lines, an answer, a report

SPEECH = {"said", "told"}


def spoken_names(text: str) -> set[str]:
    """The variables, arguments, fields and functions of a Python file that have such a name."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        for name in ("id", "arg", "attr", "name"):
            if isinstance(value := getattr(node, name, None), str) and value.strip("_") in SPEECH:
                found.add(value)
    return found


def test_spoken_names_are_found() -> None:
    text = "def told(a, *, said):\n    self._told = a.said\n    f(said=1)\n    unsaid = 'said'\n"
    assert spoken_names(text) == {"told", "said", "_told"}


def test_names_hold_what_they_are_called_by(files: dict[str, str]) -> None:
    found = {
        name: spoken
        for name, text in files.items()
        if name.endswith(".py") and (spoken := spoken_names(text))
    }
    assert not found
