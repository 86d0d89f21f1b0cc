# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The YAML files of an inventory as they are written, with the lines that Ansible does not keep."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from ansible.errors import AnsibleError
from ansible.inventory.manager import IGNORED
from ansible.parsing.dataloader import DataLoader

from ...module_utils._core.schema import Option, Problem, closest, words

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SUFFIXES = (".yml", ".yaml")
# Of files of variables.
FORMS = ("", *_SUFFIXES, ".json")
# Of files in a folder that are meant to have hosts; programs have any.
_HOSTS = (*_SUFFIXES, "", ".json", ".toml", ".ini")
# Where Ansible looks without -i. It need not be there.
_DEFAULT = "/etc/ansible/hosts"
_VARIABLES = ("group_vars", "host_vars")
# What Ansible reads of a group; it passes over other keys with a warning.
_OF_GROUPS = ("hosts", "children", "vars")
_MERGED = "<<"
_TEXT, _NOTHING = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null"
# What Slurm and nodesets write, and Ansible takes for a name that it refuses.
_DASHED = re.compile(r"\[(\w+)-(\w+)\]")
# A hash is not a secret's text, a path none either.
_NO_TEXT = re.compile(r"|[$/].*|.*\{\{.*", re.DOTALL)


@dataclass(frozen=True)
class File:
    """One file: its name beside the inventory, and the root of what it holds; None without it."""

    name: str
    node: Any = None
    problem: Problem | None = None


def _beside(source: str) -> str:
    """Return the folder of an inventory source, where its variables are."""
    return source if os.path.isdir(source) else os.path.dirname(source)


def _variables(source: str, names: Collection[str]) -> Iterator[str]:
    """Yield the files of variables that Ansible reads for an inventory source."""
    for name in _VARIABLES:
        top = os.path.join(_beside(source), name)
        below = os.listdir(top) if os.path.isdir(top) else []
        # A host's full name has dots.
        there = {*below, *(os.path.splitext(name)[0] for name in below)}
        for owner in sorted(there & {*names, "localhost"}):
            yield from map(os.fsdecode, DataLoader().find_vars_files(top, owner))


def read_files(sources: Iterable[str], names: Collection[str]) -> list[File]:
    """Return the YAML files of the inventory's sources; vaulted ones are left out.

    names are those of groups and hosts.
    """
    found: list[File] = []
    for source in sources:
        if not os.path.exists(source):
            continue
        hosts = (path for path in _hosts_paths(source) if path.endswith(_SUFFIXES))
        for path in (*filter(os.path.isfile, hosts), *_variables(source, names)):
            # Ansible has refused what it cannot decode, where it matters.
            with open(path, encoding="utf-8", errors="replace") as stream:
                text = stream.read()
            if text.startswith("$ANSIBLE_VAULT"):
                continue
            name = os.path.relpath(path, _beside(source))
            try:
                found.append(File(name, _compose(text)))
            except yaml.YAMLError as error:
                # Of hosts Ansible only warns, and goes on without.
                found.append(File(name, problem=_unreadable(name, text, error)))
    return found


def _compose(text: str) -> Any:
    """Return the root of YAML, or what JSON holds that only Ansible's reader of JSON takes."""
    try:
        return yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError:
        with contextlib.suppress(ValueError):
            return json.loads(text)
        raise


def find_closed(
    sources: Iterable[str], names: Collection[str], vault: Any = None
) -> Iterator[Problem]:
    """Yield the files of variables that Ansible cannot read: its own line names none of them.

    vault has the passwords that are given, and opens what is encrypted; names are those of groups
    and hosts.
    """
    for source in sources:
        # A list of hosts has no folder.
        if os.path.exists(source) or "," not in source:
            for path in _variables(source, names):
                yield from _closed(path, os.path.relpath(path, _beside(source)), vault)


def _closed(path: str, name: str, vault: Any) -> Iterator[Problem]:
    with open(path, encoding="utf-8", errors="replace") as stream:
        text = stream.read()
    if text.startswith("$ANSIBLE_VAULT"):
        if not getattr(vault, "secrets", None):
            remedy = "add --ask-vault-pass, or vault_password_file to ansible.cfg"
            yield Problem(name, "is encrypted, and no password is given", remedy)
            return
        try:
            vault.decrypt(text)
        except AnsibleError:
            labels = text.partition("\n")[0].split(";")[3:]
            remedy = f"add --vault-id {labels[0]}@FILE" if labels else "give its password"
            yield Problem(name, "is encrypted, and no password that is given opens it", remedy)
        return
    try:
        node = _compose(text)
    except yaml.YAMLError as error:
        yield _unreadable(name, text, error)
        return
    if node is not None and not isinstance(node, (yaml.MappingNode, dict)):
        yield Problem(name, "holds no variables", "write `name: value` lines")


def _unreadable(name: str, text: str, error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None)
    line = mark.line if mark else 0
    lines = text.splitlines()
    tab = line < len(lines) and "\t" in lines[line]
    wrong = "has a tab, which YAML does not take" if tab else f"is not YAML: {_reason(error)}"
    remedy = "write spaces" if tab else "correct this line, or the one above it"
    return Problem(f"{name}:{line + 1}", wrong, remedy)


def _reason(error: yaml.YAMLError) -> str:
    return str(getattr(error, "problem", None) or "it cannot be read")


def mappings(node: Any) -> Iterator[Any]:
    """Yield each mapping in the node, itself included, once."""
    waiting, seen = [node], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            yield node
            waiting.extend(value for _key, value in node.value)


def find_unreadable(files: Iterable[File]) -> Iterator[Problem]:
    """Yield what Ansible has not read, or has read as something else than is meant.

    These are files that are not YAML, ranges with a hyphen, and keys where groups, hosts or
    variables have others, most often by their indentation.
    """
    for file in files:
        if file.problem is not None:
            yield file.problem
        elif file.name.startswith(_VARIABLES):
            yield from _check_names(file.name, file.node)
        # The file of an inventory plugin has no groups.
        elif all(key.value != "plugin" for key, _value in _pairs(file.node)):
            yield from _check_groups(file.name, file.node)


def _pairs(node: Any) -> list[tuple[Any, Any]]:
    """Return the keys and values of a mapping, without merged ones; nothing of another node."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return [pair for pair in pairs if pair[0].value != _MERGED]


def _check_groups(name: str, groups: Any, above: frozenset[int] = frozenset()) -> Iterator[Problem]:
    """Yield keys of groups that Ansible does not know: it leaves out all that is below them."""
    # An alias may be one of what it is in.
    for group, content in _pairs(groups) if id(groups) not in above else ():
        if not isinstance(content, yaml.MappingNode) and content.tag != _NOTHING:
            wrong = f"'{group.value}' is a group, which has to be a mapping"
            yield Problem(_place(name, group), wrong, f"write {words(_OF_GROUPS)} in it")
        for key, value in _pairs(content):
            if key.value == "hosts":
                yield from _ranges(name, value)
                for _host, variables in _pairs(value):
                    yield from _check_names(name, variables)
            elif key.value == "children":
                yield from _check_groups(name, value, above | {id(groups)})
            elif key.value == "vars":
                yield from _check_names(name, value)
            else:
                near = closest(str(key.value), _OF_GROUPS, 0.7)
                wrong = f"'{key.value}' is not a key of a group, and is left out of {group.value}"
                remedy = f"write {near or 'it below ' + words(_OF_GROUPS)}"
                yield Problem(_place(name, key), wrong, remedy)


def _check_names(name: str, variables: Any) -> Iterator[Problem]:
    """Yield names of variables that are not text, such as keys that lost their indentation."""
    for key, _value in _pairs(variables):
        if key.tag != _TEXT:
            wrong = f"'{key.value}' is not the name of a variable"
            remedy = "indent it below its variable, or write a name"
            yield Problem(_place(name, key), wrong, remedy)


def _place(name: str, node: Any) -> str:
    return f"{name}:{node.start_mark.line + 1}"


def find_unparsed(
    sources: Iterable[str], parsed: Collection[str], files: Iterable[File]
) -> Iterator[Problem]:
    """Yield the sources, and files of a folder, that Ansible has warned of and goes on without.

    parsed are those that it has read; mistakes of YAML in files have a line of find_unreadable.
    """
    named = {str(problem.path).rpartition(":")[0] for problem in find_unreadable(files)}
    for source in sources:
        for path in _hosts_paths(source):
            name = os.path.relpath(path, source) if os.path.isdir(source) else source
            if path in parsed or {name, os.path.basename(path)} & named:
                continue
            if os.path.exists(path):
                wrong = "Ansible can read no hosts in it, as its warning says, and goes on without"
                yield Problem(name, wrong, "correct it, or take it out of the inventory")
            elif path != _DEFAULT:
                yield Problem(f"-i {name}", "there is no such file", "correct the path")


def _hosts_paths(source: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield what has hosts, as Ansible writes the paths, but no folder within itself.

    It tries every file of a folder, a text or a certificate as well.
    """
    if not os.path.isdir(source):
        yield source
        return
    real = os.path.realpath(source)
    if real in seen:
        return
    for name in sorted(os.listdir(source)):
        path = os.path.join(source, name)
        if IGNORED.search(os.fsencode(name)):
            continue
        if os.path.isdir(path):
            yield from _hosts_paths(path, seen | {real})
        elif os.path.splitext(name)[1] in _HOSTS or os.access(path, os.X_OK):
            yield path


def _ranges(name: str, hosts: Any) -> Iterator[Problem]:
    for key, _value in _pairs(hosts):
        text = str(key.value)
        if _DASHED.search(text):
            wrong = f"'{text}' is not a range of hosts to Ansible"
            yield Problem(_place(name, key), wrong, "write " + _DASHED.sub(r"[\1:\2]", text))


def find_clear_texts(files: Iterable[File], secrets: Mapping[str, Option]) -> Iterator[str]:
    """Yield a warning for each secret that is written as it is."""
    for file in files:
        for node in mappings(file.node):
            for key, value in node.value:
                option = secrets.get(key.value) if isinstance(key.value, str) else None
                if option is not None:
                    for place in _clear(key.value, value, option, option.no_log):
                        yield (
                            f"{file.name}:{value.start_mark.line + 1}: {place} is a secret in "
                            "clear text; encrypt it with ansible-vault encrypt_string, or refer to "
                            "a variable of a vaulted file"
                        )


def _clear(path: str, node: Any, option: Option | None, secret: bool) -> Iterator[str]:
    secret = secret or (option is not None and option.no_log)
    if isinstance(node, yaml.MappingNode):
        known = (option.options if option else None) or {}
        for key, value in node.value:
            inner = known.get(key.value, option.each if option else None)
            yield from _clear(f"{path}.{key.value}", value, inner, secret)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _clear(f"{path}[{index}]", value, option.each if option else None, secret)
    elif secret and node.tag == "tag:yaml.org,2002:str" and not _NO_TEXT.fullmatch(node.value):
        yield path


def _twice(node: Any) -> Iterator[tuple[str, int, int]]:
    """Yield each key that a mapping has again: its text and the two lines, from 1."""
    for mapping in mappings(node):
        lines: dict[str, int] = {}
        for key, _value in mapping.value:
            if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
                continue
            line = key.start_mark.line + 1
            if key.value in lines:
                yield key.value, lines[key.value], line
            lines.setdefault(key.value, line)


def find_duplicates(files: Iterable[File]) -> Iterator[Problem]:
    """Yield a problem for each key that is there twice, with file and line as its path.

    YAML readers keep the last one and Ansible only warns, so the copy of a host's line that was not
    edited replaces that host, and nothing in the inventory that Ansible hands on shows it.
    """
    for file in files:
        for key, first, second in _twice(file.node):
            yield Problem(
                f"{file.name}:{second}",
                f"'{key}' is written here and on line {first}, and only one of the two counts",
                "leave one",
            )
