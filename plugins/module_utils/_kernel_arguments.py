# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Kernel arguments: what boot loader and kernel say in, what is missing out. Pure."""

from __future__ import annotations

import re
import shlex
from typing import Iterable, Sequence

# Nothing that a shell, GRUB or grubby would read as more than a word.
_ARGUMENT = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.,:;=/@%+<>^~!*\[\]-]*$")
_LINUX_LINE = re.compile(r"^\s*linux(?:16|efi)?\s+\S+[ \t]*(.*)$", re.M)
_GRUBBY_ARGS = re.compile(r'^args="(.*)"$', re.M)
# `slurmstepd infinity` belongs to slurmd itself and is no job.
_STEP = re.compile(r"^slurmstepd: \[([^\]]+)\]")


def bad_arguments(arguments: Iterable[str]) -> list[str]:
    """Return the arguments that are no single plain word."""
    return [argument for argument in arguments if not _ARGUMENT.match(argument)]


def split_line(line: str) -> list[str]:
    """Return the words of a kernel command line; a value may hold blanks in double quotes."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def missing(words: Sequence[str], arguments: Iterable[str]) -> list[str]:
    """Return the arguments that are not among the words, in their order."""
    return [argument for argument in arguments if argument not in words]


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
    run that was killed before grub.cfg was made anew is noticed by the age of the two files.
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
    if arguments:
        lines += [
            "# What another file sets already is not set twice.",
            f"for _word in {' '.join(shlex.quote(word) for word in arguments)}; do",
            '  case " $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT " in',
            '    *" $_word "*) ;;',
            '    *) GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT $_word" ;;',
            "  esac",
            "done",
        ]
    return "\n".join(lines) + "\n"


def grub_words(text: str) -> list[str] | None:
    """Return the arguments of the first entry of grub.cfg, or None when it has no entry."""
    match = _LINUX_LINE.search(text)
    return split_line(match.group(1)) if match else None


def grubby_words(text: str) -> list[list[str]]:
    """Return the arguments of each kernel from `grubby --info=ALL`."""
    return [split_line(line.replace('\\"', '"')) for line in _GRUBBY_ARGS.findall(text)]


def running_steps(titles: Iterable[str]) -> list[str]:
    """Return the Slurm steps among process titles, such as `4711.batch`."""
    return sorted({match.group(1) for title in titles for match in [_STEP.match(title)] if match})
