# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for the whole repository: metadata, plugins, playbooks, secrets, links.

A rule is a function from a text to the lines that name what is wrong; a bad example is beside it.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from role_rules import FORBIDDEN, read_yaml

from ansible_collections.baremetal.dgx.plugins.doc_fragments.check import (
    ModuleDocFragment as CheckFragment,
)

ROOT = Path(__file__).resolve().parents[2]
FRAGMENTS = "ansible_collections.baremetal.dgx.plugins.doc_fragments"
GALAXY = read_yaml(ROOT / "galaxy.yml")
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
    ("text", "message"),
    [
        ("match 1:\n    case 1: pass\n", "Python 3.10"),
        ("import x\nA = dict[str, int]\n", "line 2: dict"),
        ("from collections.abc import Callable as C\nA = C[[int], int]\n", "line 2: C"),
    ],
)
def test_newer_python_is_found(text: str, message: str) -> None:
    assert message in "".join(newer_than_38(text))


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


# Files that root writes: in one place, which follows no link of another user's

FILES = "plugins/module_utils/_core/files.py"
CHANGES = {
    "os": {
        "chmod", "chown", "fchmod", "fchown", "lchmod", "lchown", "link", "makedirs", "mkdir",
        "mkfifo", "mknod", "remove", "removedirs", "rename", "renames", "replace", "rmdir",
        "setxattr", "symlink", "truncate", "unlink", "utime",
    },
    "shutil": {
        "chown", "copy", "copy2", "copyfile", "copymode", "copystat", "copytree", "make_archive",
        "move", "rmtree", "unpack_archive",
    },
    "tempfile": {
        "NamedTemporaryFile", "SpooledTemporaryFile", "TemporaryDirectory", "TemporaryFile",
        "mkdtemp", "mkstemp", "mktemp",
    },
}  # fmt: skip
METHODS = {"extractall", "write_bytes", "write_text", "touch", "symlink_to", "hardlink_to"}
WRITING_FLAGS = {"O_APPEND", "O_CREAT", "O_RDWR", "O_TRUNC", "O_WRONLY"}
# File, call, why it is none that another user can steer.
OWN_WRITERS = {
    (
        "plugins/module_utils/_burn/program.py",
        "archive.extractall",
    ): "a folder that control.py has made; refused if others may write",
    (
        "plugins/module_utils/_local/apply.py",
        "archive.extractall",
    ): "a folder of root alone, just made; the archive's digest is known",
    ("plugins/module_utils/_core/child.py", "os.open"): "/dev/null, for a child's streams",
    (
        "plugins/module_utils/_host/cpu_memory_load.py",
        "open",
    ): "/proc/self, which no user can exchange",
    ("plugins/module_utils/_host/runtime.py", "open"): "a kernel file below /proc/sys or /sys",
}


def _mode_writes(call: ast.Call, position: int) -> bool:
    modes = [word.value for word in call.keywords if word.arg == "mode"]
    modes += call.args[position : position + 1]
    return any(
        not isinstance(mode, ast.Constant)
        or (isinstance(mode.value, str) and bool(set(mode.value) & set("wax+")))
        for mode in modes
    )


def _opens_for_writing(call: ast.Call) -> bool:
    names = {node.attr for node in ast.walk(call) if isinstance(node, ast.Attribute)}
    names |= {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
    # Flags that come from elsewhere may be any.
    return bool(names & WRITING_FLAGS) or not any(name.startswith("O_") for name in names)


def _imported_writers(node: ast.AST) -> Iterator[str]:
    """Imports that would hide a writer's name from this rule."""
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        for alias in node.names:
            hidden = {*CHANGES.get(module, ()), *({"open"} if module in ("io", "os") else ())}
            if module == "pathlib" or alias.name in hidden:
                yield f"from {module} import {alias.name}"
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name == "pathlib" or (alias.asname and alias.name in CHANGES):
                yield f"import {alias.name}"


def written_files(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of each call that writes, makes, removes or gives away a file or folder."""
    for node in ast.walk(ast.parse(text)):
        for name in _imported_writers(node):
            yield getattr(node, "lineno", 0), name
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "open" and _mode_writes(node, 1):
            yield node.lineno, "open"
        if not isinstance(called, ast.Attribute):
            continue
        owner = called.value.id if isinstance(called.value, ast.Name) else ""
        name = f"{owner}.{called.attr}"
        if (owner, called.attr) == ("os", "open"):
            if _opens_for_writing(node):
                yield node.lineno, name
        elif (owner, called.attr) in (("io", "open"), ("gzip", "open"), ("codecs", "open")):
            if _mode_writes(node, 1):
                yield node.lineno, name
        elif called.attr in CHANGES.get(owner, ()) or called.attr in METHODS:
            yield node.lineno, name


@pytest.mark.parametrize(
    "text",
    [
        "open(path, 'w')", "open(path, mode='ab')", "open(path, 'r+b')", "open(path, how)",
        "os.open(path, os.O_WRONLY | os.O_CREAT)", "os.open(path, flags)", "os.chmod(path, 0o644)",
        "os.makedirs(path, exist_ok=True)", "os.replace(a, b)", "os.unlink(path)",
        "shutil.rmtree(path)", "shutil.copyfile(a, b)", "tempfile.mkdtemp()",
        "with tempfile.TemporaryDirectory() as x:\n    pass", "gzip.open(path, 'wb')",
        "Path(path).write_text(text)", "from pathlib import Path", "import pathlib",
        "from os import replace", "import os as o", "archive.extractall(path)",
    ],
)  # fmt: skip
def test_a_writer_beside_the_one_place_is_found(text: str) -> None:
    assert list(written_files(text))


@pytest.mark.parametrize(
    "text",
    [
        "open(path)", "open(path, 'rb')", "open(path, encoding='utf-8')", "gzip.open(path, 'rt')",
        "os.open(path, os.O_RDONLY | os.O_CLOEXEC)", "tempfile.gettempdir()", "shutil.which('x')",
        "folder.open(name, 0o600)", "text.replace('a', 'b')", "folder.rename(a, b)",
    ],
)  # fmt: skip
def test_reading_is_no_writing(text: str) -> None:
    assert not list(written_files(text))


@each("plugins/modules/*.py", "plugins/module_utils/**/*.py", "plugins/action/*.py")
def test_files_are_written_in_one_place(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    if name == FILES:
        return
    found = list(written_files(path.read_text(encoding="utf-8")))
    wrong = [f"line {line}: {call}" for line, call in found if (name, call) not in OWN_WRITERS]
    assert not wrong, f"use {FILES}"


def test_no_exception_is_left_over() -> None:
    for name, call in OWN_WRITERS:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert call in [found for _line, found in written_files(text)], f"{name}: {call}"


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
    reported = docs["DOCUMENTATION"]
    assert reported["module"] == path.stem
    assert "baremetal.dgx.attributes" in reported["extends_documentation_fragment"]
    attributes = {**reported.get("attributes", {})}
    if "baremetal.dgx.check" in reported["extends_documentation_fragment"]:
        shared = yaml.safe_load(CheckFragment.DOCUMENTATION)["attributes"]
        attributes = {name: {**shared[name], **attributes.get(name, {})} for name in shared}
    for attribute in ("check_mode", "diff_mode", "idempotent"):
        assert attributes[attribute]["support"] in ("full", "partial", "none", "N/A")
    assert f"baremetal.dgx.{path.stem}" in str(docs["EXAMPLES"])
    assert docs["RETURN"]
    since = str(reported.get("version_added", "1.0.0"))
    assert not since.startswith("0."), f"version_added: {since}, but the first release is 1.0.0"


def documented_options(docs: dict[str, Any]) -> set[str]:
    """The options of a module, with those of its fragments in this collection, and aliases."""
    options = dict(docs["DOCUMENTATION"].get("options", {}))
    for fragment in docs["DOCUMENTATION"].get("extends_documentation_fragment", []):
        _namespace, _name, file, *part = fragment.split(".")
        found = importlib.import_module(f"{FRAGMENTS}.{file}").ModuleDocFragment
        text = getattr(found, part[0].upper() if part else "DOCUMENTATION")
        options.update((yaml.safe_load(text) or {}).get("options", {}))
    return {alias for key, option in options.items() for alias in (key, *option.get("aliases", []))}


def unknown_options(name: str, docs: dict[str, Any]) -> set[str]:
    """What the examples, tasks and plays, give the module that it does not have."""
    tasks, found = list(docs["EXAMPLES"]), set()
    while tasks:
        task = tasks.pop()
        tasks += task.get("tasks", [])
        options = task.get(f"baremetal.dgx.{name}")
        found |= set(options) - documented_options(docs) if isinstance(options, dict) else set()
    return found


@each("plugins/modules/*.py")
def test_examples_use_the_options_of_the_module(path: Path) -> None:
    assert not unknown_options(path.stem, documentation(path))


def test_an_option_that_a_module_does_not_have_is_found() -> None:
    docs = documentation(ROOT / "plugins/modules/gpu_health.py")
    docs["EXAMPLES"] = [{"tasks": [{"baremetal.dgx.gpu_health": {"fail": False, "fail_on": []}}]}]
    assert unknown_options("gpu_health", docs) == {"fail"}


def test_action_group_holds_all_modules() -> None:
    modules = sorted(path.stem for path in project_files("plugins/modules/*.py"))
    assert read_yaml(ROOT / "meta/runtime.yml")["action_groups"]["dgx"] == modules


# Ansible loads every filter file of a collection to find one filter, again in each worker of each
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


def test_quotes_are_ascii() -> None:
    """As ansible-test asks, which takes minutes to say so."""
    texts = project_files("**/*.md", "**/*.py", "**/*.yml", "**/*.j2")
    quotes = re.compile("[\u2018\u2019\u201c\u201d]")
    found = [
        str(path.relative_to(ROOT)) for path in texts if quotes.search(path.read_text("utf-8"))
    ]
    assert not found


def unnamed(text: str) -> list[int]:
    """The lines that bind `_`, a name that ansible-test's pylint forbids."""
    names = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name))
    return [node.lineno for node in names if node.id == "_" and isinstance(node.ctx, ast.Store)]


def test_nothing_is_named_by_an_underscore() -> None:
    """As ansible-test asks of what is in the artefact."""
    assert unnamed("a, _, b = c\nd = [_ for _ in e]\n_f = _(g)\n") == [1, 2]
    texts = project_files("plugins/**/*.py", "tests/unit/**/*.py")
    found = {str(path.relative_to(ROOT)): unnamed(path.read_text("utf-8")) for path in texts}
    assert not {path: lines for path, lines in found.items() if lines}


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
    """Keys that look like a secret and hold a literal text."""
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
    """Why a play's hosts could hit machines that were not meant; empty when they cannot."""
    if hosts == "localhost":
        return ""
    # Patterns that are added to each other, of which one may have commas.
    listed = re.fullmatch(r"\{\{ *\[(.*)\](?: *\+ *__\w+)? *\}\}", hosts.strip())
    if listed:
        parts = [re.sub(r"^(?!')(.*)$", r"{{ \1 }}", one) for one in listed[1].split(", ")]
        return next(filter(None, (hosts_problem(part.strip("'")) for part in parts)), "")
    # Those of some groups that others leave out.
    rest = re.fullmatch(
        r"\{\{ *query\('[\w.]+', '([\w:]+)'\)\s*\| difference\([^+]*\)(?: *\+ *__\w+)? *\}\}",
        hosts.strip(),
    )
    if rest:
        return hosts_problem(rest[1])
    # Names with two underscores are the collection's own, and have a value in vars/cluster.yml.
    variable = re.search(
        r"\{\{ *(?:lookup\('[\w.]+', )?(?:\w+ *\| *default\(|__\w+\)? *\}\})", hosts
    )
    if "{{" in hosts and not variable:
        return "a variable without a default"
    words = set(re.split(r"[:,&!]+", re.sub(r"\{\{.*?\}\}|\[\d+\]", "", hosts))) - {""}
    # Names with two underscores are of groups that the run itself makes.
    foreign = {word for word in words - CONTRACT_GROUPS if not word.startswith("__")}
    return f"no groups of the contract: {foreign}" if foreign else ""


@pytest.mark.parametrize(
    "hosts",
    [
        "all", "*", "{{ target }}", "{{ lookup('x', target) }}", "gpu_nodes:web",
        "{{ ['gpu_nodes', target] }}", "{{ ['web'] + __x }}",
        "{{ ['web', target | default('gpu_nodes')] }}",
        "{{ query('x.y', 'web') | difference([]) }}",
    ],
)  # fmt: skip
def test_bad_hosts_are_found(hosts: str) -> None:
    assert hosts_problem(hosts)


@each("playbooks/*.yml")
def test_playbook_is_safe_to_run(path: Path) -> None:
    assert re.fullmatch(r"[a-z_]+", path.stem), "ansible-playbook baremetal.dgx.NAME needs \\w"
    for play in read_yaml(path):
        assert play["name"]
        if "ansible.builtin.import_playbook" not in play:
            assert not hosts_problem(play["hosts"])


def choices_of(data: Any) -> Iterator[tuple[str, str]]:
    """Each word of a pytest -k in a file of tasks, with a file of tests that it chooses from."""
    if isinstance(data, dict):
        for value in data.values():
            yield from choices_of(value)
    elif isinstance(data, list):
        if "-k" in data:
            chosen = str(data[data.index("-k") + 1])
            files = [str(word) for word in data if str(word).endswith(".py")]
            for word in re.split(r"\s+(?:or|and|not)\s+", chosen.strip()):
                yield word, " ".join(file.partition("/")[2] for file in files)
        for value in data:
            yield from choices_of(value)


def test_what_molecule_chooses_of_the_tests_is_there() -> None:
    """pytest is silent about a word that no test has, as long as another word has one."""
    chosen = [one for path in ROOT.glob("molecule/*/*.yml") for one in choices_of(read_yaml(path))]
    assert chosen
    for word, files in chosen:
        texts = "".join((ROOT / file).read_text(encoding="utf-8") for file in files.split())
        assert re.search(rf"def test_\w*{word}", texts), word


@each("playbooks/*.yml")
def test_a_play_that_reads_the_plan_has_it_made_where_its_task_is_passed(path: Path) -> None:
    """The lookup plan_inputs does, once, before tasks run in other processes."""
    for play in read_yaml(path):
        text = str(play)
        for name in re.findall(r"tasks/\w+\.yml", text):
            text += (ROOT / "playbooks" / name).read_text(encoding="utf-8")
        if "__cluster_plan" in text:
            assert "baremetal.dgx.plan_inputs" in str(play["vars_files"]), play["name"]


# What a task does, as its name begins: an operator reads it in a log, and gives it to
# --start-at-task.
VERBS = re.compile(
    "Add|Admit|Allow|Apply|Authorize|Back|Begin|Boot|Bootstrap|Break|Build|Change|Check|Choose|Collect"
    "|Close|Combine|Compare|Compute|Configure|Confirm|Copy|Create|Disable|Drain|Enable|End|Fail|Fetch|Find"
    "|Gather|Group|Hold|Import|Install|Invalidate|Judge|Learn|Load|Lock|Log|Mask|Measure|Mount|Pack|Pin|Plan"
    "|Prepare|Prove|Provide|Publish|Read|Reboot|Rebuild|Reconfigure|Record|Register|Release|Reload|Remove"
    "|Rename|Render|Repair|Reset|Restart|Restore|Run|Save|Set|Share|Show|Simulate|Skip|Start|Stop|Take|Test|Try|Unlock|Unpack"
    "|Switch|Update|Upgrade|Validate|Verify|Wait|Write"
)
# The object is missing, or is a sentence.
VAGUE = re.compile(r"(?:it|them|those|what|who|which|where)\b(?! a | is next)")


def names_in(tasks: Any) -> Iterator[str]:
    """The names of plays and tasks, at any depth."""
    for task in tasks or []:
        if isinstance(task, dict):
            yield str(task.get("name", ""))
            for part in ("tasks", "pre_tasks", "post_tasks", "block", "rescue", "always"):
                yield from names_in(task.get(part))


def name_problem(name: str) -> str:
    """Why a task's name is not a verb and its object; empty if it is."""
    verb, *rest = re.sub(r"^[a-z_]+ \| ", "", name).split(" ", 1)
    if not VERBS.fullmatch(verb.rstrip(",")):
        return f"'{name}': begin with a verb of VERBS"
    return f"'{name}': name the object" if not rest or VAGUE.match(rest[0]) else ""


@pytest.mark.parametrize(
    "name",
    [
        "Install slurmd", "verify | Check that slurmd answers", "Create, change and remove groups",
        "Hold the nodes; {{ batch | join(', ') }}",
    ],
)  # fmt: skip
def test_good_names_pass(name: str) -> None:
    assert not name_problem(name)


@pytest.mark.parametrize(
    "name",
    [
        "slurmd", "install slurmd", "Every rail is up", "{{ name }} is there", "Let users in", "",
        "plugins | Install", "build | Unpack it", "configure | Write what is asked",
        "Say what is next",
    ],
)  # fmt: skip
def test_bad_names_are_found(name: str) -> None:
    assert name_problem(name)


@each("roles/*/tasks/**/*.yml", "playbooks/*.yml", "playbooks/tasks/*.yml", "molecule/*/*.yml")
def test_task_names_are_a_verb_and_its_object(path: Path) -> None:
    tasks = read_yaml(path)
    if path.name != "molecule.yml":
        assert not [problem for name in names_in(tasks) if (problem := name_problem(name))]


def swallowed_in(text: str) -> list[str]:
    """Lines of a playbook in which a failure is turned into nothing found."""
    (pattern,) = (one for one in FORBIDDEN if "true" in one)
    return [line for line in text.splitlines() if re.search(pattern, line)]


def test_swallowed_failures_are_found() -> None:
    for bad in ("argv: [sh, -c, 'squeue || true']", "squeue ||true", 'pipe("a || :")', "a; true"):
        assert swallowed_in(bad), bad
    for good in ("a || exit 1", "if a; then :; fi", "when: a or true", "x | default(true)"):
        assert not swallowed_in(good), good


@each("playbooks/**/*.yml")
def test_playbook_swallows_no_failure(path: Path) -> None:
    assert swallowed_in(path.read_text(encoding="utf-8")) == []


@each("playbooks/**/*.yml")
def test_hosts_are_left_out_whatever_the_tags(path: Path) -> None:
    """With --tags, Ansible drops a task without them: the roles would come to absent hosts.

    In bootstrap no task has a tag, so that none is left to come to a host.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    ends = [
        index for index, line in enumerate(lines) if re.search(r"\bmeta: end_(host|play)$", line)
    ]
    tasks = ["\n".join(lines[index:]).split("\n\n")[0] for index in ends]
    bare = [task.splitlines()[1].strip() for task in tasks if "tags: [always]" not in task]
    assert bare == (
        ["when: __bootstrap_try.rc == 0", "when: ansible_check_mode"]
        if path.name == "bootstrap.yml"
        else []
    )


def conditions_in(data: Any) -> Iterator[str]:
    """Every `when`, `until`, `failed_when` and `changed_when` of tasks, at any depth."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key in ("when", "until", "failed_when", "changed_when"):
                yield from (str(one) for one in (value if isinstance(value, list) else [value]))
            yield from conditions_in(value)
    elif isinstance(data, list):
        for value in data:
            yield from conditions_in(value)


def is_text(condition: str) -> bool:
    """Whether a condition joins texts and compares nothing: ansible-core 2.19 refuses it."""
    compared = re.search(r"[=!<>]=|[<>]|\b(in|is|not|length|bool)\b", condition)
    return "~" in condition and not compared


def test_text_for_a_condition_is_found() -> None:
    assert is_text("a.job | default('') ~ a.reservation | default('')")
    assert not is_text("(a ~ b) | length > 0")
    assert list(conditions_in([{"block": [{"when": ["a", "b"]}], "until": "c"}])) == ["a", "b", "c"]


@each("roles/**/*.yml", "playbooks/**/*.yml")
def test_conditions_are_true_or_false(path: Path) -> None:
    assert [one for one in conditions_in(read_yaml(path)) if is_text(one)] == []


def root_here_in(data: Any) -> Iterator[str]:
    """The tasks on the control machine that `-b` would make root's."""
    if isinstance(data, dict):
        if data.get("delegate_to") == "localhost" and data.get("become") is not False:
            yield str(data.get("name"))
        for value in data.values():
            yield from root_here_in(value)
    elif isinstance(data, list):
        for value in data:
            yield from root_here_in(value)


def test_root_on_the_control_machine_is_found() -> None:
    bad = {"name": "x", "delegate_to": "localhost"}
    assert list(root_here_in([{"block": [bad, {**bad, "become": True}]}])) == ["x", "x"]
    assert list(root_here_in([{**bad, "become": False}, {"delegate_to": "head-01"}])) == []


@each("roles/**/*.yml", "playbooks/**/*.yml")
def test_no_task_is_roots_on_the_control_machine(path: Path) -> None:
    """Its files would be, too, and the operator could not write them in the next run."""
    assert list(root_here_in(read_yaml(path))) == []


# What needs no inventory of a cluster, so that there is no plan to begin with.
WITHOUT_A_PLAN = {"inspect_fabric"}


def beginning_problem(plays: list[dict[str, Any]]) -> str:
    """Why a playbook could work from another inventory's plan, or on no host; empty if it cannot.

    Imports at the top of a playbook of the whole cluster have their own subject.
    """
    first = plays[0]
    if first.get("ansible.builtin.import_playbook") != "check_inventory.yml":
        return "does not begin with check_inventory.yml"
    rest = plays[1:]
    if "vars" not in first and any("hosts" in play for play in rest):
        return "does not say which hosts it is for: vars check_inventory_for"
    reported = first.get("vars", {}).get("check_inventory_for", "cluster")
    groups = re.compile("|".join(sorted(CONTRACT_GROUPS)) + "|__fabric_host")
    if not all(
        groups.search(pattern)
        for pattern in ([reported] if isinstance(reported, str) else reported)
    ):
        return f"is for {reported}, which names no group"
    if any("strategy" in play for play in rest):
        return "has a strategy: what is done once for all would be done for each host"
    return ""


def test_bad_beginnings_are_found() -> None:
    check = {"ansible.builtin.import_playbook": "check_inventory.yml"}
    play = {"hosts": "gpu_nodes"}
    assert beginning_problem([play])
    assert beginning_problem([check, play])
    assert beginning_problem([{**check, "vars": {"check_inventory_for": "web"}}, play])
    healthy = {**check, "vars": {"check_inventory_for": "gpu_nodes"}}
    assert not beginning_problem([healthy, play])
    assert beginning_problem([healthy, {**play, "strategy": "free"}])


@each("playbooks/*.yml")
def test_playbook_begins_with_the_plan(path: Path) -> None:
    if path.stem not in {"check_inventory", *WITHOUT_A_PLAN}:
        assert not beginning_problem(read_yaml(path))


def refusal_problem(plays: list[dict[str, Any]]) -> str:
    """Why a playbook without a plan could end green on no host; empty if it cannot."""
    first, *rest = plays
    tasks = first.get("tasks", [])
    if not tasks or "ansible.builtin.assert" not in tasks[0] or not tasks[0].get("run_once"):
        return "does not begin with a refusal, made once"
    if "localhost:all" not in first["hosts"] or first.get("connection") != "local":
        return "does not refuse on the controller, whatever --limit leaves"
    names = {re.sub(r"[{} ]|\|.*", "", play["hosts"]) for play in rest}
    asked = str(tasks[0]["ansible.builtin.assert"]["that"])
    return f"refuses without a look at {names}" if not all(name in asked for name in names) else ""


def test_bad_refusals_are_found() -> None:
    asked = {"ansible.builtin.assert": {"that": ["one in groups.all"]}, "run_once": True}
    first = {"hosts": "localhost:all", "connection": "local", "tasks": [asked]}
    play = {"hosts": "{{ one | default('none') }}"}
    assert not refusal_problem([first, play])
    assert refusal_problem([first, {"hosts": "{{ other | default('none') }}"}])
    assert refusal_problem([{**first, "tasks": [play]}, play])
    assert refusal_problem([{**first, "hosts": "{{ one | default('none') }}"}, play])


@pytest.mark.parametrize("name", sorted(WITHOUT_A_PLAN))
def test_playbook_without_a_plan_refuses_to_work_on_nothing(name: str) -> None:
    assert not refusal_problem(read_yaml(ROOT / f"playbooks/{name}.yml"))


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


def test_the_collection_that_copies_a_database_knows_debian_13() -> None:
    """mysql_db asks for `mysqldump` before 3.13.0, and Debian 13 has `mariadb-dump` alone."""
    (lowest,) = re.findall(r">=(\d+)\.(\d+)\.\d+$", GALAXY["dependencies"]["community.mysql"])
    assert tuple(map(int, lowest)) >= (3, 13)


# Documentation

LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")


@each("**/*.md")
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    lost = [target for target in LINK.findall(text) if not (path.parent / target).exists()]
    assert not lost


# What a role is given is computed by the plan, in Python with types and tests.

PROGRAMS = {
    "{%": "a statement",
    "from_json": "a value made of text",
    "hostvars": "a look at other hosts",
}
MOST_LINES = 40


def programs_in(text: str) -> list[str]:
    """What in a file of variables is a program, line by line."""
    return [
        f"line {number}: {what}"
        for number, line in enumerate(text.splitlines(), 1)
        for word, what in PROGRAMS.items()
        if word in line and not line.lstrip().startswith("#")
    ]


def test_a_program_in_variables_is_found() -> None:
    text = '---\n# hostvars\na: 1\nb: >-\n  {% set x = [] %}\nc: "{{ hostvars[x] }}"\n'
    assert programs_in(text) == ["line 5: a statement", "line 6: a look at other hosts"]


def test_playbooks_have_one_small_file_of_variables_and_no_program_in_it() -> None:
    (path,) = project_files("playbooks/vars/**")
    text = path.read_text(encoding="utf-8")
    assert programs_in(text) == []
    assert len(text.splitlines()) <= MOST_LINES


# A name that one place changed and another did not is undefined, and `default()` hides it.

PRIVATE = re.compile(r"(?<![\w.$])__[a-z]\w*")
# Where such a name gets its value: a key, a register or loop, a statement; groups are in quotes.
GIVEN = re.compile(
    r"(?m)(?:^|[{,])[\s-]*(__[a-z]\w*): ?|(?:register|_var): (__\w+)"
    r"|\{% (?:set|for|macro) (__\w+)|['\[](__\w+)['\]]"
)


def given_in(text: str) -> set[str]:
    """The private variables that a file gives a value to."""
    return {name for names in GIVEN.findall(text) for name in names if name}


def test_private_variables_that_a_file_gives_are_found() -> None:
    text = (
        "- x:\n    register: __a\n  vars:\n    __b: 1\n    c: {__d: 1}\n  loop_var: __e\n"
        '  when: __f\n  groups: [__g]\n  msg: "{{ __h | default(__i.msg) }}"\n'
    )
    assert given_in(text) == {"__a", "__b", "__d", "__e", "__g"}
    assert set(PRIVATE.findall(text)) - given_in(text) == {"__f", "__h", "__i"}


def test_each_private_variable_is_given_somewhere() -> None:
    """By a playbook, by a role, or by the code, which names what the plan gives."""
    files = project_files("playbooks/**/*.yml", "roles/*/tasks/**", "roles/*/vars/**")
    files += project_files("roles/*/templates/**")
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    code = "".join(path.read_text(encoding="utf-8") for path in project_files("plugins/**/*.py"))
    given = set(re.findall(r"__[a-z]\w*", code)).union(*map(given_in, texts.values()))
    lost = {
        str(path.relative_to(ROOT)): sorted(names)
        for path, text in texts.items()
        if (names := set(PRIVATE.findall(text)) - given)
    }
    assert not lost
