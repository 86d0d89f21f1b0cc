# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The house rules for roles, as code: each rule yields one line for each place that breaks it.

What ansible-lint knows (names, FQCN, file modes) is its own, and not repeated here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from role_readmes import tables, with_tables

PHASES = ("set_vars", "preflight", "install", "configure", "service", "verify")
FILES = (
    "README.md",
    "defaults/main.yml",
    "meta/main.yml",
    "meta/argument_specs.yml",
    "vars/main.yml",
    "tasks/main.yml",
    *(f"tasks/{phase}.yml" for phase in PHASES),
)
# An internal role, whose name begins with an underscore, has phases for other roles to import.
INTERNAL_FILES = (
    "README.md",
    "meta/main.yml",
    "meta/argument_specs.yml",
    *(f"tasks/{phase}.yml" for phase in PHASES[1:]),
)
MAIN_LINES = 30
BLOCKS = ("block", "rescue", "always")
COMMANDS = ("command", "shell", "raw", "script", "expect")
ROLE_CALLS = ("import_role", "include_role")


class Loader(yaml.SafeLoader):
    """YAML as Ansible writes it: an unknown tag such as `!unsafe` is its text."""


Loader.add_multi_constructor("!", lambda loader, _tag, node: loader.construct_scalar(node))


def read_yaml(path: Path) -> Any:
    """The content of a YAML file, or None where there is no such file."""
    if not path.is_file():
        return None
    return yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)


def short(key: str) -> str:
    """`command` for `ansible.builtin.command`."""
    return key.removeprefix("ansible.builtin.").removeprefix("ansible.legacy.")


def flat(tasks: Any) -> Iterator[dict[str, Any]]:
    """All tasks, those inside blocks included."""
    for task in tasks or []:
        yield task
        for part in BLOCKS:
            yield from flat(task.get(part))


@dataclass(frozen=True)
class Role:
    """A role's files, read when a rule asks for them."""

    path: Path

    @property
    def name(self) -> str:
        """Its name, which its inputs start with."""
        return self.path.name

    @property
    def internal(self) -> bool:
        """Whether other roles alone import its tasks."""
        return self.name.startswith("_")

    @cached_property
    def specs(self) -> dict[str, Any]:
        """Entry point -> argument spec."""
        return (read_yaml(self.path / "meta/argument_specs.yml") or {}).get("argument_specs", {})

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The options of all entry points."""
        return {k: v for spec in self.specs.values() for k, v in spec.get("options", {}).items()}

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """What defaults/main.yml sets."""
        return read_yaml(self.path / "defaults/main.yml") or {}

    @cached_property
    def values(self) -> dict[str, Any]:
        """Private variables: those of the role, and those of its tasks."""
        given = [read_yaml(self.path / "vars/main.yml") or {}]
        given += [task.get("vars", {}) for _stem, task in self.tasks]
        return {name: value for variables in given for name, value in variables.items()}

    @cached_property
    def texts(self) -> dict[str, str]:
        """Relative path -> text of everything a run reads: not the README, not the metadata."""
        files = sorted(p for p in self.path.rglob("*") if p.is_file())
        found = {str(p.relative_to(self.path)): p for p in files}
        return {
            name: path.read_text(encoding="utf-8")
            for name, path in found.items()
            if name.split("/")[0] not in ("README.md", "meta", "files")
        }

    @cached_property
    def tasks(self) -> list[tuple[str, dict[str, Any]]]:
        """(stem of the file, task) of every task."""
        files = sorted((self.path / "tasks").rglob("*.yml"))
        return [(path.stem, task) for path in files for task in flat(read_yaml(path))]


def files_are_there(role: Role) -> Iterator[str]:
    """Every role has the same files, so that one learns one and knows them all."""
    for name in INTERNAL_FILES if role.internal else FILES:
        if not (role.path / name).is_file():
            yield f"{name} is missing"


def main_only_imports(role: Role) -> Iterator[str]:
    """tasks/main.yml is the table of contents: the phases in order, each with its tags."""
    if role.internal:
        if (role.path / "tasks/main.yml").exists():
            yield "tasks/main.yml: other roles import the phases one by one"
        return
    text = role.texts.get("tasks/main.yml", "")
    if len(text.splitlines()) > MAIN_LINES:
        yield f"tasks/main.yml has more than {MAIN_LINES} lines"
    phases = []
    for task in read_yaml(role.path / "tasks/main.yml") or []:
        if set(task) - {"name", "ansible.builtin.import_tasks", "tags"}:
            yield f"tasks/main.yml: '{task.get('name')}' is more than name, import_tasks and tags"
            continue
        phase = Path(task["ansible.builtin.import_tasks"]).stem
        phases.append(phase)
        tags = task.get("tags", [])
        # Every phase needs the constants, also when it is run alone.
        for tag in ("always",) if phase == "set_vars" else (role.name, f"{role.name}_{phase}"):
            if tag not in tags:
                yield f"tasks/main.yml: the import of {phase}.yml lacks the tag {tag}"
    if [phase for phase in phases if phase in PHASES] != list(PHASES):
        yield f"tasks/main.yml imports {', '.join(phases)}; in order it must be {', '.join(PHASES)}"


def defaults_equal_spec(role: Role) -> Iterator[str]:
    """The spec is the documentation; what it calls the default is the default."""
    optional = {name: option for name, option in role.inputs.items() if not option.get("required")}
    for name in sorted(optional.keys() - role.defaults.keys()):
        yield f"defaults/main.yml lacks {name}, which the spec does not require"
    for name in sorted(role.defaults.keys() - optional.keys()):
        yield f"defaults/main.yml sets {name}, which the spec requires or does not know"
    for name in sorted(role.defaults.keys() & optional.keys()):
        stated, is_ = optional[name].get("default"), role.defaults[name]
        if stated != is_ or type(stated) is not type(is_):
            yield f"{name}: the spec says {stated!r}, defaults/main.yml says {is_!r}"


def defaults_pass_the_spec(role: Role) -> Iterator[str]:
    """Ansible checks defaults like inputs: an empty mapping lacks each key required in it."""
    for name, option in role.inputs.items():
        value = role.defaults.get(name)
        if value is None or (isinstance(value, str) and "{{" in value):
            continue
        # Without what a default cannot decide: whether the inputs as a whole are there.
        spec = {**option, "required": False}
        errors = ArgumentSpecValidator({name: spec}).validate({name: value}).error_messages
        yield from (f"defaults/main.yml: {error}" for error in errors)


def spec_is_complete(role: Role) -> Iterator[str]:
    """Every option has a type and a description, every list names the type of its elements."""
    for entry_point, spec in role.specs.items():
        if not spec.get("short_description"):
            yield f"{entry_point}: no short_description"
        yield from _incomplete(spec.get("options", {}), "")


def _incomplete(options: dict[str, Any], above: str) -> Iterator[str]:
    for name, option in options.items():
        path = above + name
        for key in ("type", "description"):
            if not option.get(key):
                yield f"{path}: no {key}"
        if option.get("type") == "list" and not option.get("elements"):
            yield f"{path}: a list without elements"
        if option.get("required") and "default" in option:
            yield f"{path}: required, and yet with a default"
        yield from _incomplete(option.get("options", {}), path + ".")


def inputs_carry_the_name(role: Role) -> Iterator[str]:
    """An input names its role, so that a variable in an inventory tells where it goes."""
    for name in role.inputs:
        if not name.startswith(role.name + "_"):
            yield f"the input {name} does not start with {role.name}_"


def readme_is_generated(role: Role) -> Iterator[str]:
    """The variable table of the README comes from the spec (`make readmes`)."""
    readme = role.path / "README.md"
    if not readme.is_file():
        return
    text = readme.read_text(encoding="utf-8")
    try:
        if with_tables(text, tables(role.specs)) != text:
            yield "README.md: the variable table is not that of the spec; run `make readmes`"
    except ValueError as problem:
        yield str(problem)


FORBIDDEN = {
    r"\bhostvars\b": "a role takes a value; the inventory or the playbook looks across hosts",
    r"\bgroups\s*[\[.]": "a role takes a value; the inventory or the playbook knows groups",
    r"\bignore_errors\b": "say what a failure is with failed_when",
    r"failed_when:\s*(false|no)\s*$": "say what a failure is",
    r"^\s*(- )?notify:": "a killed run loses its handlers; use service_sync",
    r"(\|\||;)\s*(true|:)(?=\s*([\"';)}]|$))": "a failure is not nothing found: say what it means",
    r"\bskip_list\b": "an exception is one line's noqa with its reason",
}


def no_forbidden_words(role: Role) -> Iterator[str]:
    """Nothing looks across hosts, swallows a failure, or is lost with a killed run."""
    if (role.path / "handlers").exists():
        yield "handlers/: a killed run loses its handlers; use service_sync"
    for name, text in role.texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, reason in FORBIDDEN.items():
                if re.search(pattern, line) and not line.lstrip().startswith("#"):
                    yield f"{name}:{number}: {line.strip()} ({reason})"


def inputs_have_one_default(role: Role) -> Iterator[str]:
    """An input's default is in defaults/main.yml, never again where it is read."""
    names = "|".join(sorted(role.inputs, key=len, reverse=True)) or "(?!)"
    pattern = re.compile(rf"\b({names})\s*\|\s*(default|d)\(")
    for name, text in role.texts.items():
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{name}:{line}: a second default for {match.group(1)}"


def commands_say_changed(role: Role) -> Iterator[str]:
    """A command says when it has changed something."""
    for stem, task in role.tasks:
        if any(short(key) in COMMANDS for key in task) and "changed_when" not in task:
            yield f"tasks/{stem}.yml: '{task.get('name')}' has no changed_when"


def templates_are_marked(role: Role) -> Iterator[str]:
    """Who opens a file on a node sees that it is managed, or who reads its template, why not."""
    for name, text in role.texts.items():
        # A program's first line is the system's.
        first, _newline, rest = text.partition("\n")
        head = rest if first.startswith(("#!", "#%")) else text
        if name.startswith("templates/") and not head.startswith(MARKS):
            yield f"{name} does not start with {' or '.join(MARKS)}, a reason"


MARKS = (
    "{{ ansible_managed | comment",
    "# Managed by Ansible: baremetal.dgx. Local changes will be overwritten.\n",
    "{# ",
)
PROGRAMS = {
    r"\{%": "no program in vars: a template, an expression, the filter for_each, or Python",
    "from_json": "what is built needs no JSON: for_each; a file is read by the lookup json_file",
    r"content: [|>]": "a file is a template below templates/; name it with template",
    r"lookup\('ansible\.builtin\.template'": "name the template in the entry of managed_files",
}


def vars_hold_no_program(role: Role) -> Iterator[str]:
    """Variables of a role and of its tasks are constants, lists and plain expressions."""
    for name, text in role.texts.items():
        held = name.startswith(("vars/", "tasks/"))
        for number, line in enumerate(text.splitlines() if held else (), 1):
            for pattern, reason in PROGRAMS.items():
                if re.search(pattern, line) and not line.lstrip().startswith("#"):
                    yield f"{name}:{number}: {line.strip()} ({reason})"


def private_names(role: Role) -> Iterator[str]:
    """What is not an input starts with two underscores and the role's name."""
    prefix = f"__{role.name.lstrip('_')}_"
    for path in sorted((role.path / "vars").glob("*.yml")):
        for name in read_yaml(path) or {}:
            if not name.startswith(prefix):
                yield f"vars/{path.name}: {name} does not start with {prefix}"
    for stem, task in role.tasks:
        names = [task.get("register"), (task.get("loop_control") or {}).get("loop_var")]
        for key in task:
            if short(key) == "set_fact":
                names += [name for name in task[key] if name != "cacheable"]
        if not any(short(key) in ROLE_CALLS for key in task):
            names += [name for name in task.get("vars", {}) if not _of_shared_role(name)]
        for name in names:
            if name and not name.startswith(prefix):
                yield f"tasks/{stem}.yml: {name} does not start with {prefix}"


def line_feeds_are_some(role: Role) -> Iterator[str]:
    r"""Ansible escapes what is a backslash after YAML: '\n' in a block stays two characters."""
    for folder in ("defaults", "vars", "tasks", "handlers"):
        for path in sorted((role.path / folder).glob("*.yml")):
            for text in _texts(read_yaml(path)):
                for code in re.findall(r"\{[{%].*?[%}]\}", text, re.DOTALL):
                    for found in re.findall(r"'[^'\n]*\\n[^'\n]*'", code):
                        yield f"{folder}/{path.name}: {found} is not a line feed; name a variable"


def _texts(value: Any) -> Iterator[str]:
    """All texts in what YAML was read into."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for item in value.values() for text in _texts(item))
    elif isinstance(value, list):
        yield from (text for item in value for text in _texts(item))


def _of_shared_role(name: str) -> bool:
    """slurm_base holds what the Slurm roles share; a task may hand its expressions a value."""
    return name.startswith("__slurm_base_")


def internal_roles_get_what_they_read(role: Role) -> Iterator[str]:
    """Who imports tasks of an internal role gives all that they read, and nothing else."""
    for stem, task in role.tasks:
        for key, call in task.items():
            name = call.get("name", "").split(".")[-1] if short(key) in ROLE_CALLS else ""
            if not name.startswith("_"):
                continue
            internal = Role(role.path.parent / name)
            given = {one for one in task.get("vars", {}) if not one.startswith("__")}
            read = _read_by(internal, f"tasks/{Path(call.get('tasks_from', 'main')).stem}.yml")
            where = f"tasks/{stem}.yml: '{task.get('name')}'"
            for missing in sorted(read - given):
                yield f"{where} does not give {missing}, which {name} reads there"
            for idle in sorted(given - read):
                yield f"{where} gives {idle}, which {name} does not read there"
    if role.internal:
        read = set().union(*(_read_by(role, name) for name in role.texts))
        yield from (f"{name} is not an input" for name in sorted(read - set(role.inputs)))
        yield from (f"nothing reads the input {name}" for name in sorted(set(role.inputs) - read))


def _read_by(role: Role, name: str) -> set[str]:
    """The names with the role's prefix in one of its files, and in what that file names."""
    found, todo = set(), [name]
    while todo:
        text = role.texts.get(todo.pop(), "")
        found.add(text)
        todo += [
            other
            for other in role.texts
            if other.partition("/")[2] in text and role.texts[other] not in found
        ]
    return {match for text in found for match in re.findall(rf"\b{role.name}_\w+", text)}


def tasks_carry_the_stem(role: Role) -> Iterator[str]:
    """In a run's output a task's name tells the file it is in."""
    for stem, task in role.tasks:
        name = task.get("name", "")
        if stem != "main" and not name.startswith(f"{stem} | "):
            yield f"tasks/{stem}.yml: '{name}' does not start with '{stem} | '"


SAYS = re.compile(r"(\{\{ _service_name \}\}_[a-z_]+|[a-z0-9_]+)[^ :]*: .+; .+")


# A part of a variable, in an expression, that fails if it is not there.
PART = re.compile(r"\{\{ ([a-z_]+\.[a-z_.]+)(?! \| default)\b[^}]*\}\}")


def refusals_are_asked_of_the_inventory(role: Role) -> Iterator[str]:
    """check_inventory asks a preflight's refusals: each is an input, what is wrong, a remedy.

    Up to ansible-core 2.18 the text of one that does not hold is templated, too, so it must not
    fail where a part of an input is left out, or what a task registers that is skipped.
    """
    skipped = {task["register"] for _stem, task in role.tasks if {"register", "when"} <= {*task}}
    for stem, task in role.tasks:
        for name, refusals in (task.get("vars") or {}).items():
            if not name.endswith("_refusals"):
                continue
            if not isinstance(refusals, list):
                yield f"tasks/{stem}.yml: {name} is not a list of `when` and `say`"
                continue
            for say in (" ".join(item["say"].split()) for item in refusals):
                found = SAYS.fullmatch(say)
                inputs = (role.name, "_service", "slurm_controller", "slurm_base")
                if found is None or not found.group(1).startswith(("{{", *inputs)):
                    yield f"tasks/{stem}.yml: write `input: what is wrong; what to write`: {say}"
                for part in PART.findall(say):
                    if part.partition(".")[0] in {*role.inputs, *skipped}:
                        yield f"tasks/{stem}.yml: {part} may be left out; write default(): {say}"


TOUCHING = (*COMMANDS, "stat", "slurp", "find")


def no_task_waits_for_a_mount(role: Role) -> Iterator[str]:
    """What is at a path of the inventory's is asked by a module that gives up a dead mount."""
    places = [
        name
        for name, option in role.inputs.items()
        if option.get("type") == "path" or re.search(r"_(dir|directory|folder|location)$", name)
    ]
    if role.internal:  # what it is given is a constant of the role that imports it
        return
    for stem, task in role.tasks:
        for key, value in task.items():
            words = set(re.findall(r"\w+", str(value))) if short(key) in TOUCHING else set()
            for name in words.intersection(places):
                yield (
                    f"tasks/{stem}.yml: {task.get('name')}: {short(key)} waits forever if {name}"
                    " is on a mount that does not answer; take path_status, or a module"
                )


def half_an_archive_is_not_final(role: Role) -> Iterator[str]:
    """A run that is killed while it unpacks leaves some of the files: none of them says "done"."""
    for stem, task in role.tasks:
        for key, given in task.items():
            if short(key) == "unarchive" and isinstance(given, dict) and "creates" in given:
                yield f"tasks/{stem}.yml: unarchive with creates; write a file .complete after it"


APT = re.compile(r"\bapt(-get)?\b.*\binstall\b", re.DOTALL)


def restarts_daemons(task: dict[str, Any]) -> bool:
    """Whether needrestart of Ubuntu would restart daemons after the packages of this task."""
    return "NEEDRESTART_SUSPEND" not in str(task) and any(
        short(key) in ("apt", "package") or (short(key) in COMMANDS and APT.search(str(task[key])))
        for key in task
    )


def packages_restart_no_daemon(role: Role) -> Iterator[str]:
    """service_sync restarts a daemon, in its turn; system_packages suspends needrestart, too."""
    for stem, task in role.tasks:
        if restarts_daemons(task):
            yield f"tasks/{stem}.yml: '{task.get('name')}' has no NEEDRESTART_SUSPEND"


def timers_are_stopped_before_their_files_go(role: Role) -> Iterator[str]:
    """A timer runs on without its file; service.yml stops and disables it, then removes that."""
    for stem, task in role.tasks:
        for entry in _entries(task) if stem == "configure" else ():
            state = str(entry.get("state", ""))
            state += "".join(str(role.values.get(name)) for name in re.findall(r"__\w+", state))
            if str(entry["path"]).endswith(".timer") and "absent" in state:
                yield f"tasks/{stem}.yml: {entry['path']} is removed before service.yml stops it"


def _entries(value: Any) -> Iterator[dict[str, Any]]:
    """All mappings with a path in what YAML was read into."""
    if isinstance(value, dict):
        if "path" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        yield from (entry for item in value for entry in _entries(item))


RULES: tuple[Callable[[Role], Iterator[str]], ...] = (
    files_are_there,
    main_only_imports,
    defaults_equal_spec,
    defaults_pass_the_spec,
    spec_is_complete,
    inputs_carry_the_name,
    readme_is_generated,
    no_forbidden_words,
    inputs_have_one_default,
    commands_say_changed,
    templates_are_marked,
    vars_hold_no_program,
    private_names,
    internal_roles_get_what_they_read,
    tasks_carry_the_stem,
    line_feeds_are_some,
    half_an_archive_is_not_final,
    no_task_waits_for_a_mount,
    packages_restart_no_daemon,
    refusals_are_asked_of_the_inventory,
    timers_are_stopped_before_their_files_go,
)


def roles_of(playbook: Path, collection: Path) -> set[str]:
    """The roles of this collection that a playbook and those it imports run."""
    found: set[str] = set()
    for play in read_yaml(playbook) or []:
        for key, target in play.items():
            if short(key) == "import_playbook":
                below = (
                    collection / "playbooks" / f"{target.removeprefix('baremetal.dgx.')}.yml"
                    if target.startswith("baremetal.dgx.")
                    else playbook.parent / target
                )
                found |= roles_of(below, collection)
        called = [role if isinstance(role, str) else role["role"] for role in play.get("roles", [])]
        for part in ("pre_tasks", "tasks", "post_tasks"):
            for task in flat(play.get(part)):
                calls = (task[key] for key in task if short(key) in ROLE_CALLS)
                called += [call["name"] for call in calls if "tasks_from" not in call]
        found |= {role.removeprefix("baremetal.dgx.") for role in called}
    return found
