# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What a variable may hold, as data, and the comparison of a value with it. Pure.

The same description serves the contract, the profiles and the roles' argument specs, so that a
wrong value reads the same wherever it stands.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Iterator, Mapping

# What Ansible takes for a boolean (ansible.module_utils.parsing.convert_bool).
_BOOLEANS = frozenset(["y", "yes", "on", "1", "true", "t", "n", "no", "off", "0", "false", "f"])

_TRUE = frozenset(["y", "yes", "on", "1", "true", "t"])

# Where a value that the command line gives is written.
EXTRA = "--extra-vars."

_LONGEST_SHOWN = 60

# What the contract demands of a value, and Ansible's argument specs cannot.
_LIMITS = ("pattern", "pattern_words", "key_pattern", "key_words", "minimum", "maximum")


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong in the inventory: where, what, and what to write instead."""

    path: str
    wrong: str
    remedy: str

    def __str__(self) -> str:
        """Return the one line that the operator reads."""
        return f"{self.path}: {self.wrong}; {self.remedy}"


@dataclass(frozen=True)
class Option:
    """What a value may be; the words are those of Ansible's argument specs, and a few more."""

    type: str = "str"
    description: str = ""
    required: bool = False
    choices: tuple[Any, ...] = ()
    default: Any = None
    nullable: bool = False
    no_log: bool = False
    # Of a list: what each element is. Of a mapping with free keys: what each value is.
    each: Option | None = None
    # Of a mapping with known keys.
    options: Mapping[str, Option] | None = None
    # A regular expression and its meaning in words ("lower-case letters"); of free keys likewise.
    pattern: str = ""
    pattern_words: str = ""
    key_pattern: str = ""
    key_words: str = ""
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class Opaque:
    """Stands for a value that is deliberately not looked at: a vaulted or generated secret."""

    kind: str = "secret"


@dataclass(frozen=True)
class Unresolved:
    """Stands for a value that could not be templated on the controller."""

    reason: str
    # A fact or a registered result: it is not known before hosts are touched.
    later: bool = False


_PASSED = (Opaque, Unresolved)


def leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each value that is neither a mapping nor a list, and its path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(f"{path}.{key}" if path else str(key), item)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from leaves(f"{path}[{index}]", item)
    else:
        yield path, value


def closest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name that the given one most likely means, None when none is near."""
    near = difflib.get_close_matches(name, sorted(known), 1, cutoff)
    return near[0] if near else None


def words(items: Iterable[Any], last: str = "or") -> str:
    """Return the items as a phrase: `a, b or c`."""
    texts = [str(item) for item in items]
    if len(texts) < 2:
        return "".join(texts)
    return "{} {} {}".format(", ".join(texts[:-1]), last, texts[-1])


def shown(value: Any) -> str:
    """Return the value in the words of an error message: its kind, and it itself when short."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return "the text '%s'" % (
            value if len(value) <= _LONGEST_SHOWN else value[: _LONGEST_SHOWN - 1] + "…"
        )
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return f"of type {type(value).__name__}"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (str, bool)) or _is_number(value)


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _meant(text: str, kind: str) -> bool | int | float | None:
    """Return the boolean or the number that a text spells, None when it spells none."""
    word = text.strip()
    if kind == "bool" and word.lower() in _BOOLEANS:
        return word.lower() in _TRUE
    try:
        if kind == "int":
            return int(word) if re.fullmatch(r"[+-]?[0-9]+", word) else None
        return float(word) if kind == "float" else None
    except ValueError:
        return None


def typed(value: Any, option: Option | None) -> Any:
    """Return what a template made as what it spells: up to ansible-core 2.18 it is a text."""
    if option is None:
        return value
    if isinstance(value, str):
        meant = _meant(value, option.type)
        return value if meant is None else meant
    if isinstance(value, Mapping):
        known = option.options or {}
        return {key: typed(item, known.get(key, option.each)) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item, option.each) for item in value]
    return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


# Stricter than Ansible, which turns numbers, booleans and even lists into text: YAML reads 12:00:00
# as 43200, 23.10 as 23.1, 0644 as 420 and off as false, and Slurm would believe each of them. A
# text is neither a number nor a boolean: Ansible checks that it spells one and hands on the text,
# which no comparison and no condition takes. What `-e name=value` gives is such a text.
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("text", _is_text),
    "path": ("a path", _is_text),
    "int": ("a whole number", _is_whole),
    "float": ("a number", _is_number),
    "bool": ("true or false", _is_boolean),
    # Of a tool's own, which knows its kind: Ansible has no such type.
    "scalar": ("a text or a number", _is_scalar),
    "list": ("a list", lambda value: isinstance(value, (list, tuple))),
    "dict": ("a mapping", lambda value: isinstance(value, Mapping)),
}


def _how_to_write(path: str, option: Option, value: Any) -> str:
    meant = _meant(value, option.type) if isinstance(value, str) else None
    if meant is not None and option.no_log:
        return "write it without quotes"
    if meant is not None:
        written = json.dumps(meant)
        name = path[len(EXTRA) :] if path.startswith(EXTRA) else ""
        if name.isidentifier():
            return f"write -e '{{\"{name}\": {written}}}'"
        return f"write {written} without quotes"
    if value is None:
        return "write a value, or leave the line out"
    if option.type in ("str", "path"):
        if isinstance(value, (bool, int, float)):
            return "put it in quotes"
        return "write one text"
    if option.type == "list":
        plain = isinstance(value, str) and "\n" not in value and len(value) <= _LONGEST_SHOWN
        return f"write [{value}]" if plain and not option.no_log else "write a list"
    if option.type == "dict":
        return "write `key: value` pairs below it"
    return f"write {_KINDS[option.type][0]}"


def _kind_problem(path: str, value: Any, option: Option) -> Problem | None:
    if option.type not in _KINDS:
        return None
    wanted, fits = _KINDS[option.type]
    if fits(value):
        return None
    given = shown(None if value is None else value)
    if option.no_log and value is not None:
        given = "something else (hidden)"
    return Problem(path, f"{wanted} is wanted, this is {given}", _how_to_write(path, option, value))


def _check_mapping(path: str, value: Mapping[Any, Any], option: Option) -> Iterator[Problem]:
    if option.options is not None:
        for key, item in value.items():
            if key in option.options:
                yield from check_value(f"{path}.{key}", item, option.options[key])
                continue
            near = closest(str(key), option.options)
            yield Problem(
                f"{path}.{key}",
                "unknown key",
                "write %s" % (near or "one of " + ", ".join(sorted(option.options))),
            )
        for key, inner in option.options.items():
            if inner.required and value.get(key) is None and key not in value:
                yield Problem(f"{path}.{key}", "missing", f"write {missing_remedy(inner)}")
    elif option.each is not None:
        for key, item in value.items():
            if option.key_pattern and not re.fullmatch(option.key_pattern, str(key)):
                yield Problem(
                    f"{path}.{key}",
                    f"'{key}' does not fit",
                    "write " + option.key_words,
                )
            else:
                yield from check_value(f"{path}.{key}", item, option.each)


def missing_remedy(option: Option) -> str:
    """Return what kind of value is to be written where a required one lacks."""
    if option.choices:
        return words(option.choices)
    return option.pattern_words or _KINDS.get(option.type, ("a value",))[0]


def _check_scalar(path: str, value: Any, option: Option) -> Iterator[Problem]:
    given = "what stands here (hidden)" if option.no_log else f"'{value}'"
    if option.choices and str(value) not in [str(choice) for choice in option.choices]:
        yield Problem(path, f"{given} is not known", f"write {words(option.choices)}")
    if option.pattern and not re.fullmatch(option.pattern, str(value)):
        yield Problem(path, f"{given} does not fit", f"write {option.pattern_words}")
    too_low = option.minimum is not None and float(value) < option.minimum
    too_high = option.maximum is not None and float(value) > option.maximum
    if too_low or too_high:
        limits = (
            f"at least {option.minimum}"
            if option.maximum is None
            else f"a number from {option.minimum} to {option.maximum}"
        )
        yield Problem(path, f"{value} is out of range", f"write {limits}")


def check_value(path: str, value: Any, option: Option) -> Iterator[Problem]:
    """Yield everything in which the value differs from what the option allows."""
    if isinstance(value, _PASSED) or (value is None and option.nullable):
        return
    problem = _kind_problem(path, value, option)
    if problem is not None:
        yield problem
    elif option.type == "dict":
        yield from _check_mapping(path, value, option)
    elif option.type == "list":
        if option.each is not None:
            for index, item in enumerate(value):
                yield from check_value(f"{path}[{index}]", item, option.each)
    elif option.type != "bool":
        yield from _check_scalar(path, value, option)


def option_from_spec(
    spec: Mapping[str, Any], top: bool = False, hidden: bool = False, strict: bool = False
) -> Option:
    """Return the option that one entry of an argument spec describes: of a role, or the contract.

    With hidden, an outer option is secret, and so is all that is in it. With strict, as in the
    contract, an empty value is allowed only where the spec says `nullable`.
    """
    kind = spec.get("type", "str")
    hidden = hidden or bool(spec.get("no_log"))
    choices = tuple(spec.get("choices") or ())
    nested: dict[str, Option] | None = None
    if spec.get("options") is not None:
        nested = {
            name: option_from_spec(sub or {}, hidden=hidden, strict=strict)
            for name, sub in spec["options"].items()
        }
    each: Option | None = None
    elements = spec.get("elements")
    if isinstance(elements, Mapping):
        each = option_from_spec(elements, hidden=hidden, strict=strict)
    elif elements:
        each = Option(type=elements, options=nested, choices=choices, no_log=hidden)
        choices = ()
    # A role's own default is what an empty value would take away; below, empty means not given.
    forgiving = not spec.get("required") and (not top or spec.get("default") is None)
    return Option(
        type=kind,
        description=_sentence(spec.get("description", "")),
        required=bool(spec.get("required")),
        choices=choices,
        default=spec.get("default"),
        nullable=bool(spec.get("nullable")) if strict else forgiving,
        no_log=hidden,
        each=each,
        options=nested if kind == "dict" and each is None else None,
        **{name: spec[name] for name in _LIMITS if name in spec},
    )


def _sentence(description: Any) -> str:
    return " ".join(description) if isinstance(description, list) else str(description)


@dataclass(frozen=True)
class RoleSpec:
    """What a role takes, and where the collection's playbooks run it."""

    name: str
    options: Mapping[str, Option] = field(default_factory=dict)
    # Groups whose hosts get the role from the playbooks.
    groups: tuple[str, ...] = ()
    # Inputs that the playbooks give themselves; what the inventory says there is not used,
    wired: frozenset = frozenset()
    # except here, where they begin with it.
    received: frozenset = frozenset()


def role_spec_options(argument_specs: Mapping[str, Any]) -> dict[str, Option]:
    """Return the options of all entry points of a role, from its parsed meta/argument_specs.yml."""
    options: dict[str, Option] = {}
    for entry in (argument_specs.get("argument_specs") or {}).values():
        for name, spec in ((entry or {}).get("options") or {}).items():
            options.setdefault(name, option_from_spec(spec or {}, top=True))
    return options
