# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for the whole repository: metadata, plugins, playbooks, secrets, links.

A rule is a function from a text to the lines that name what is wrong; a bad example is beside it.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from role_rules import read_yaml

ROOT = Path(__file__).resolve().parents[2]
GALAXY = read_yaml(ROOT / "galaxy.yml")
PYTHON_LINES = 500
CONTRACT_GROUPS = {
    "cluster", "slurm_controllers", "slurm_databases", "login_nodes", "gpu_nodes", "cpu_nodes",
    "subnet_managers", "monitoring_nodes", "storage_nodes",
}  # fmt: skip


def project_files(*patterns: str) -> list[Path]:
    """The files git tracks or would add; `*` stays in a folder, `**` goes below."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others"]
    command += ["--exclude-standard", "-z", "--", *(f":(glob){pattern}" for pattern in patterns)]
    names = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.decode()
    return sorted({ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()})


def each(*patterns: str) -> pytest.MarkDecorator:
    """One test a file."""
    files = project_files(*patterns)
    return pytest.mark.parametrize("path", files, ids=lambda path: str(path.relative_to(ROOT)))


# Python that runs on a node: modules and what they use

GENERICS = {"dict", "frozenset", "list", "set", "tuple", "type"}


def newer_than_38(text: str) -> Iterator[str]:
    """Syntax newer than Python 3.8, and types that only annotations may subscript there."""
    try:
        tree = ast.parse(text, feature_version=(3, 8))
    except SyntaxError as problem:
        yield f"line {problem.lineno}: {problem.msg}"
        return
    generics = set(GENERICS)
    lazy: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "collections.abc":
            generics |= {alias.asname or alias.name for alias in node.names}
        for hint in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if hint is not None:
                lazy |= {id(below) for below in ast.walk(hint)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            if node.value.id in generics and id(node) not in lazy:
                yield f"line {node.lineno}: {node.value.id}[...] outside an annotation"


def foreign_imports(text: str) -> Iterator[str]:
    """Imports that a node may not have."""
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        for name in names:
            own = name.startswith(
                ("ansible.module_utils.", "ansible_collections.baremetal.dgx.plugins.module_utils")
            )
            if not own and name.split(".")[0] not in sys.stdlib_module_names:
                yield f"line {node.lineno}: {name}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("match 1:\n    case 1: pass\n", "Python 3.10"),
        ("import x\nA = dict[str, int]\n", "line 2: dict"),
        ("from collections.abc import Callable as C\nA = C[[int], int]\n", "line 2: C"),
    ],
)
def test_newer_python_is_found(text: str, said: str) -> None:
    assert said in "".join(newer_than_38(text))


def test_annotations_may_be_new() -> None:
    text = "from __future__ import annotations\nx: list[int] | None = None\n"
    assert not list(newer_than_38(text + "def f(a: dict[str, int]) -> tuple[int]: ...\n"))


def test_foreign_import_is_found() -> None:
    text = "import os, yaml\nfrom ansible.module_utils.basic import AnsibleModule\n"
    assert list(foreign_imports(text)) == ["line 1: yaml"]
    assert list(foreign_imports("from ansible.parsing import x\n")) == ["line 1: ansible.parsing"]


@each("plugins/modules/*.py", "plugins/module_utils/**/*.py")
def test_python_fits_the_nodes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not [*newer_than_38(text), *foreign_imports(text)]


# Modules as their users see them


def documentation(path: Path) -> dict[str, Any]:
    """DOCUMENTATION, EXAMPLES and RETURN of a module, parsed."""
    return {
        target.id: yaml.safe_load(node.value.value)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in ("DOCUMENTATION", "EXAMPLES", "RETURN")
    }


@each("plugins/modules/*.py")
def test_module_is_documented(path: Path) -> None:
    docs = documentation(path)
    said = docs["DOCUMENTATION"]
    assert said["module"] == path.stem
    assert "baremetal.dgx.attributes" in said["extends_documentation_fragment"]
    for attribute in ("check_mode", "diff_mode", "idempotent"):
        assert said["attributes"][attribute]["support"] in ("full", "partial", "none", "N/A")
    assert f"baremetal.dgx.{path.stem}" in str(docs["EXAMPLES"])
    assert docs["RETURN"]
    since = str(said.get("version_added", "1.0.0"))
    assert not since.startswith("0."), f"version_added: {since}, but the first release is 1.0.0"


def test_action_group_holds_all_modules() -> None:
    modules = sorted(path.stem for path in project_files("plugins/modules/*.py"))
    assert read_yaml(ROOT / "meta/runtime.yml")["action_groups"]["dgx"] == modules


# Ansible loads every filter file of a collection to find one filter, anew in each worker of each
# task, and compiles what they import: 0.3 s for each task and host when all was imported at once.


def imported_at_once(text: str) -> list[str]:
    """What of the collection a file imports when it is loaded."""
    return [
        node.module or ""
        for node in ast.parse(text).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ansible_coll")
    ]


def test_early_import_is_found() -> None:
    assert imported_at_once("from ansible_collections.baremetal.dgx.plugins import x\n")
    assert not imported_at_once("def f():\n    from ansible_collections.a.b import x\n")


@each("plugins/filter/*.py")
def test_filter_loads_fast(path: Path) -> None:
    assert not imported_at_once(path.read_text(encoding="utf-8"))


# Files


@each("**/*.py")
def test_python_file_is_short(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= PYTHON_LINES


@each("plugins/**/*.py", "tests/**/*.py", ".ci/*.py", "virtual_pod/**/*.py")
def test_python_file_names_its_licence(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not text or "SPDX-License-Identifier: GPL-3.0-or-later" in text[:400]


PUBLIC_HOSTS = re.compile(r"(^|\.)(debian\.org|ubuntu\.com|pypi\.org|python\.org|npmjs\.org)$")


def machine_names(configuration: str, checkout: Path) -> set[str]:
    """What only this machine knows: its package mirrors, and where the checkout lies."""
    hosts = re.findall(r"https?://(?:[^/@\s]*@)?([A-Za-z0-9.-]+)", configuration)
    folder = {str(checkout)} if len(checkout.parts) > 2 else set()
    return {host for host in hosts if not PUBLIC_HOSTS.search(host)} | folder


def test_machine_names_are_read() -> None:
    text = "deb http://mirror.lan/debian x\nindex-url = https://me:pw@pip.lan:80/\n"
    names = machine_names(text + "deb http://archive.ubuntu.com/ubuntu x\n", Path("/srv/co"))
    assert names == {"mirror.lan", "pip.lan", "/srv/co"}


def test_no_file_names_this_machine() -> None:
    files = [Path("/etc/pip.conf"), Path("/etc/apt/sources.list")]
    files += Path("/etc/apt/sources.list.d").glob("*")
    files += [Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf"]
    known = [path.read_text(encoding="utf-8") for path in files if os.access(path, os.R_OK)]
    known += [value for name, value in os.environ.items() if name.startswith("PIP_")]
    names = machine_names("\n".join(known), ROOT)
    found = [
        f"{path.relative_to(ROOT)} names {name}"
        for path in project_files()
        for name in names
        if name.encode() in path.read_bytes()
    ]
    assert not found


SECRET = re.compile(r"(password|passwd|passphrase|secret|token|api_?key|private_key|_pass)$")


def secrets_in(data: Any, above: str = "") -> Iterator[str]:
    """Keys that sound like a secret and hold a literal text."""
    if isinstance(data, dict):
        for key, value in data.items():
            path = f"{above}.{key}".lstrip(".")
            # In an argument spec the value is the option's default.
            held = value.get("default") if isinstance(value, dict) else value
            if SECRET.search(str(key)) and isinstance(held, str) and held and "{{" not in held:
                yield path
            yield from secrets_in(value, path)
    elif isinstance(data, list):
        for value in data:
            yield from secrets_in(value, above)


def test_secrets_are_found() -> None:
    data = {"db_password": "x", "a": [{"munge_secret": {"default": "y"}}], "secret": "{{ z }}"}
    assert list(secrets_in(data)) == ["db_password", "a.munge_secret"]


@each("roles/**/*.yml", "playbooks/**/*.yml", "inventories/**/*.yml", "molecule/**/*.yml")
def test_yaml_holds_no_secret(path: Path) -> None:
    assert not list(secrets_in(read_yaml(path)))


# Playbooks


def hosts_problem(hosts: str) -> str:
    """Why a play's hosts could hit machines nobody meant; empty when they cannot."""
    if hosts == "localhost":
        return ""
    variable = re.search(r"\{\{ *\w+ *\| *default\(", hosts)
    if "{{" in hosts and not variable:
        return "a variable without a default"
    words = set(re.split(r"[:,&!]+", re.sub(r"\{\{.*?\}\}", "", hosts))) - {""}
    return f"no groups of the contract: {words}" if words - CONTRACT_GROUPS else ""


@pytest.mark.parametrize("hosts", ["all", "*", "{{ target }}", "gpu_nodes:web"])
def test_bad_hosts_are_found(hosts: str) -> None:
    assert hosts_problem(hosts)


@each("playbooks/*.yml")
def test_playbook_is_safe_to_run(path: Path) -> None:
    assert re.fullmatch(r"[a-z_]+", path.stem), "ansible-playbook baremetal.dgx.NAME needs \\w"
    for play in read_yaml(path):
        assert play["name"]
        if "ansible.builtin.import_playbook" not in play:
            assert not hosts_problem(play["hosts"])


# What is shipped

COLLECTION = re.compile(
    r"\b(ansible_collections\.)?((?:ansible|community|containers)\.[a-z_]+)\.[a-z_]+"
)
CORE = {"ansible.builtin", "ansible.legacy", "ansible.module_utils", "ansible.plugins"}


def collections_in(text: str) -> set[str]:
    """Collections whose modules, filters or lookups a text names."""
    return {match.group(2) for match in COLLECTION.finditer(text)} - CORE


def test_collections_are_found() -> None:
    text = "ansible.builtin.copy:\nansible.posix.mount:\n{{ x | community.general.dict_kv('a') }}"
    assert collections_in(text) == {"ansible.posix", "community.general"}


def test_dependencies_are_those_used() -> None:
    files = project_files("roles/**/*.yml", "roles/**/*.j2", "playbooks/**/*.yml")
    used = set().union(*(collections_in(path.read_text(encoding="utf-8")) for path in files))
    assert set(GALAXY["dependencies"]) == used
    for bound in GALAXY["dependencies"].values():
        assert re.fullmatch(r">=[1-9]\d*\.\d+\.\d+", bound), "a lower bound, open above"


def test_artefact_leaves_out_what_git_ignores() -> None:
    ignored = {
        line.strip("/")
        for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    }
    assert ignored <= set(GALAXY["build_ignore"])


def test_metadata_fits_galaxy() -> None:
    importer_wants_one = {
        "cloud",
        "database",
        "infrastructure",
        "linux",
        "monitoring",
        "networking",
    }
    assert importer_wants_one & set(GALAXY["tags"])
    assert len(GALAXY["tags"]) <= 20
    assert re.fullmatch(r"\d+\.\d+\.\d+", GALAXY["version"])


# Documentation

LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")


@each("**/*.md")
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    lost = [target for target in LINK.findall(text) if not (path.parent / target).exists()]
    assert not lost
