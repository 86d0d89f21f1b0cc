# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Kernel arguments: what boot loader and kernel have, what is missing, and the two boot loaders."""

from __future__ import annotations

import os
import re
import shlex
from fnmatch import fnmatchcase
from typing import Any, Callable, Iterable, Sequence

from .._core.files import remove, text_if_there, write_atomic
from .._core.run import CommandRunner, ToolError

# Nothing that a shell, GRUB or grubby would read as more than a word. GRUB ends one at ; < and >
# (GRUB manual, Shell-like scripting), and quotes for it do not survive grubby, which writes them as
# they are into GRUB_CMDLINE_LINUX="…" of /etc/default/grub.
_ARGUMENT = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.,:=/@%+^~!*\[\]-]*\Z")
_LINUX_LINE = re.compile(r"^\s*linux(?:16|efi)?\s+\S+[ \t]*(.*)$", re.M)
_GRUBBY_ARGS = re.compile(r'^args="(.*)"$', re.M)
# Last in the order of names, behind kdump-tools.cfg: what others set is there to be seen.
_DROP_IN = "/etc/default/grub.d/zz-baremetal-dgx.cfg"
# Its name before: a file with a letter was read after it.
_OLD_DROP_IN = "/etc/default/grub.d/99-baremetal-dgx.cfg"
# Each word of these patterns counts, of any other name the last one. verify.yml has the same list.
_LISTS = (
    "acpi_osi=*", "amd_iommu=*", "cgroup_disable=*", "cgroup_enable=*", "console=*",
    "crashkernel=*,high", "crashkernel=*,low", "earlycon=*", "hugepages=*", "hugepagesz=*",
    "initcall_blacklist=*", "intel_iommu=*", "iommu=*", "ip=*", "memmap=*", "modprobe.blacklist=*",
    "pci=*", "rd.*=*", "systemd.mask=*", "systemd.setenv=*", "systemd.wants=*",
)  # fmt: skip
_GRUB_CONFIG = "/boot/grub/grub.cfg"
_RECORD = "/var/lib/baremetal-dgx/kernel_arguments"
_MARKER = "/run/baremetal-dgx/reboot-required"
_LOADER_TIMEOUT_S = 300


def bad_arguments(arguments: Iterable[str]) -> list[str]:
    """Return the arguments that are not a single plain word."""
    return [argument for argument in arguments if not _ARGUMENT.match(argument)]


def require_plain(arguments: Sequence[str], removed: Sequence[str]) -> None:
    """Raise ToolError for what is not an argument, or is declared and removed at once."""
    bad = bad_arguments([*arguments, *removed])
    if bad:
        raise ToolError(
            "not a kernel argument of one plain word: " + ", ".join(repr(word) for word in bad)
            + "; write each without blanks, quotes and the signs ; < > $ & |, at which GRUB ends it"
        )  # fmt: skip
    both = [word for word in arguments if word in removed]
    if both:
        raise ToolError(f"declared and removed at once: {', '.join(both)}")


def split_line(line: str) -> list[str]:
    """Return the words of a kernel command line; a value may hold blanks in double quotes."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def running_words() -> list[str]:
    """Return the words of the running kernel's command line."""
    return split_line(text_if_there("/proc/cmdline") or "")


def by_order(arguments: Sequence[str]) -> bool:
    """Return whether a name occurs twice: `hugepages` belongs to the `hugepagesz` before it.

    Such arguments are in force as a whole and in their order, or not at all.
    """
    return len(set(map(_name, arguments))) < len(arguments)


def _name(word: str) -> str:
    return word.partition("=")[0]


def _in_force(argument: str, words: Sequence[str]) -> bool:
    same = [
        word
        for word in words
        if word == argument
        or (_name(word) == _name(argument) and not any(fnmatchcase(word, one) for one in _LISTS))
    ]
    return same[-1:] == [argument]


def missing(words: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Return the arguments that the words do not put in force, in their order.

    One whose name a later word has is not: the kernel takes the last.
    """
    if by_order(arguments):
        # Each is looked for behind the one before it.
        rest = iter(words)
        last = {_name(argument): argument for argument in arguments}.values()
        there = all(argument in rest for argument in arguments)
        return [] if there and all(_in_force(one, words) for one in last) else list(arguments)
    return [argument for argument in arguments if not _in_force(argument, words)]


def unwanted(words: Sequence[str], removed: Iterable[str]) -> list[str]:
    """Return the words that are to go; `name` stands for `name` alone, `name=*` for any value."""
    gone = []
    for pattern in removed:
        name, star = (pattern[:-1], True) if pattern.endswith("=*") else (pattern, False)
        gone += [word for word in words if word == pattern or (star and word.startswith(name))]
    return list(dict.fromkeys(gone))


def grub_drop_in(arguments: Sequence[str], removed: Sequence[str]) -> str:
    """Return the file below /etc/default/grub.d, which grub-mkconfig reads as a shell script.

    GRUB puts GRUB_CMDLINE_LINUX_DEFAULT last, and the kernel takes the last of several values; the
    recovery entries do not get it. With nothing declared the file stays, without effect, so that a
    run that was killed before grub.cfg was written is noticed by the age of the two files.
    """
    lines = ["# Managed by Ansible: baremetal.dgx. Local changes will be overwritten."]
    if removed:
        patterns = "|".join(
            shlex.quote(word[:-1]) + "*" if word.endswith("=*") else shlex.quote(word)
            for word in removed
        )
        lines.append("set -f")
        for name in ("GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"):
            lines += [
                "_kept=",
                f"for _word in ${name}; do",
                f'  case $_word in {patterns}) ;; *) _kept="$_kept $_word" ;; esac',
                "done",
                f'{name}="${{_kept# }}"',
            ]
        lines.append("set +f")
    if by_order(arguments):
        lines.append(
            'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT "'
            + shlex.quote(" ".join(arguments))
        )
    elif arguments:
        lines += [
            "# What another file has put in force already is not set twice.",
            "set -f",
            f"for _word in {' '.join(shlex.quote(word) for word in arguments)}; do",
            "  _last=",
            "  for _have in $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT; do",
            "    case $_have in",
            '      "$_word") _last=$_have ;;',
            f"      {'|'.join(_LISTS)}) ;;",
            '      "${_word%%=*}"|"${_word%%=*}="*) _last=$_have ;;',
            "    esac",
            "  done",
            '  test "$_last" = "$_word" ||',
            '    GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT $_word"',
            "done",
            "set +f",
        ]
    return "\n".join(lines) + "\n"


def grub_words(text: str) -> list[str] | None:
    """Return the arguments of the first entry of grub.cfg, or None when it has no entry."""
    match = _LINUX_LINE.search(text)
    return split_line(match.group(1)) if match else None


def grubby_words(text: str) -> list[list[str]]:
    """Return the arguments of each kernel from `grubby --info=ALL`."""
    return [split_line(line.replace('\\"', '"')) for line in _GRUBBY_ARGS.findall(text)]


class Grub:
    """The boot loader of Debian and Ubuntu."""

    def __init__(
        self, run: CommandRunner, arguments: Sequence[str], removed: Sequence[str]
    ) -> None:
        self.run = run
        self.arguments = arguments
        self.removed = removed
        self.wanted = grub_drop_in(arguments, removed)

    def problems(self) -> list[str]:
        """What keeps grub.cfg from being what is declared, empty when nothing does."""
        words = grub_words(text_if_there(_GRUB_CONFIG) or "")
        if words is None:
            return [f"{_GRUB_CONFIG} has no entry"]
        found = [
            f"{word} is not {'the last of its name ' if word in words else ''}in {_GRUB_CONFIG}"
            for word in missing(words, self.arguments)
        ]
        found += [f"{word} is in {_GRUB_CONFIG}" for word in unwanted(words, self.removed)]
        return found

    def plan(self) -> list[str]:
        """What has to be done."""
        have, old = text_if_there(_DROP_IN), os.path.lexists(_OLD_DROP_IN)
        if have is None and not old and not self.arguments and not self.removed:
            return []
        actions = [] if have == self.wanted else [f"write {_DROP_IN}"]
        actions += [f"remove {_OLD_DROP_IN}"] if old else []
        if actions or self.outdated() or self.problems():
            actions.append("update-grub")
        return actions

    def outdated(self) -> bool:
        """Whether grub.cfg is older than our file: a run was killed between the two."""
        try:
            return os.stat(_GRUB_CONFIG).st_mtime < os.stat(_DROP_IN).st_mtime
        except FileNotFoundError:
            return True

    def apply(self, actions: Sequence[str]) -> None:
        """Do it; raises ToolError when the boot loader does not take it."""
        if not actions:
            return
        # Also what is as it should be: one from before the clock was set back would stay newer.
        write_atomic(_DROP_IN, self.wanted)
        remove(_OLD_DROP_IN)
        answer = self.run(["update-grub"], timeout_s=_LOADER_TIMEOUT_S)
        if not answer.ok:
            raise ToolError(f"the boot loader's configuration cannot be made: {answer.describe()}")
        problems = self.problems()
        if problems:
            raise ToolError(
                "update-grub did not take what is declared: " + "; ".join(problems)
                + "; look for a later file in /etc/default/grub.d"
            )  # fmt: skip


class Grubby:
    """The boot loader entries of Enterprise Linux."""

    def __init__(
        self, run: CommandRunner, arguments: Sequence[str], removed: Sequence[str]
    ) -> None:
        self.run = run
        self.arguments = list(arguments)
        self.removed = list(removed)
        # What this module has set before and is no longer declared goes away.
        self.record = (text_if_there(_RECORD) or "").split()
        self.dropped = [word for word in self.record if word not in self.arguments]
        self.whole = by_order(self.arguments) or by_order(self.record)

    def words(self) -> list[list[str]]:
        """The arguments of each kernel."""
        answer = self.run(["grubby", "--info=ALL"])
        if not answer.ok:
            raise ToolError(f"the boot loader's entries cannot be read: {answer.describe()}")
        return grubby_words(answer.out)

    def plan(self) -> list[str]:
        """What has to be done."""
        if not (self.arguments or self.removed or self.record or self.dropped):
            return []
        add: list[str] = []
        drop: list[str] = []
        for words in self.words():
            add += missing(words, self.arguments)
            drop += unwanted(words, [*self.removed, *self.dropped])
        add, drop = list(dict.fromkeys(add)), list(dict.fromkeys(drop))
        if self.whole and (add or drop or self.record != self.arguments):
            # grubby puts what it is given in the place of all arguments of these names, and takes a
            # word out once for each time that it is given.
            add, drop = self.arguments, [
                *self.dropped, *(word for word in drop if word not in self.dropped)
            ]  # fmt: skip
        return [*(f"add {word}" for word in add), *(f"remove {word}" for word in drop)]

    def apply(self, actions: Sequence[str]) -> None:
        """Do it; the record holds what may have been set before it is set."""
        if self.record != self.arguments and (self.arguments or self.record):
            write_atomic(_RECORD, "".join(f"{w}\n" for w in [*self.arguments, *self.dropped]))
        if actions:
            command = ["grubby", "--update-kernel=ALL"]
            add = [action[4:] for action in actions if action.startswith("add ")]
            drop = [action[7:] for action in actions if action.startswith("remove ")]
            command += [f"--args={' '.join(add)}"] if add else []
            command += [f"--remove-args={' '.join(drop)}"] if drop else []
            answer = self.run(command, timeout_s=_LOADER_TIMEOUT_S)
            if not answer.ok:
                raise ToolError(answer.describe())
            self.record = self.arguments
            left = self.plan()
            if left:
                raise ToolError(f"grubby ended with 0 but left to do: {'; '.join(left)}")
        if self.dropped:
            write_atomic(_RECORD, "".join(f"{word}\n" for word in self.arguments))


def loader(
    find: Callable[[str], Any],
    run: CommandRunner,
    arguments: Sequence[str],
    removed: Sequence[str],
) -> Grub | Grubby | None:
    """The boot loader of this node; None when nothing is declared and there is none."""
    if find("grubby"):
        return Grubby(run, arguments, removed)
    if find("update-grub"):
        return Grub(run, arguments, removed)
    if arguments or removed:
        raise ToolError(
            "there is neither update-grub nor grubby here, so kernel arguments cannot be set; in a "
            "container leave them out"
        )
    return None


def mark(lacks: Sequence[str], surplus: Sequence[str]) -> None:
    """Say on the node itself that a reboot is pending, or take the word back."""
    if lacks or surplus:
        lines = [f"missing kernel argument {word}\n" for word in lacks]
        lines += [f"unwanted kernel argument {word}\n" for word in surplus]
        if text_if_there(_MARKER) != "".join(lines):
            write_atomic(_MARKER, "".join(lines))
    else:
        remove(_MARKER)
