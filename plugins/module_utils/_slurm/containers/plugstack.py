# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""SPANK plug-ins: what a build depends on, and what a host's plugstack.conf does to its jobs.

How Slurm behaves on a broken plugstack was measured with 22.05.8 and 24.11.5; the return code of
srun does not show it, so that every judgement here reads text.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

from ..._core.files import (
    copy_file,
    read_bytes,
    temporary_folder,
    text_if_readable,
    write_atomic,
)
from ..._core.run import CommandRunner, ToolError
from ..._core.wait import attempts

# `slurm-wlm 24.11.5`, `slurm 25.05.2-0rc1`
_VERSION = re.compile(r"^slurm\S*\s+(\d+\.\d+\.\d+\S*)", re.MULTILINE)
# slurm/slurm_version.h, before 23.11 slurm/slurm.h: major, minor and micro as bytes
_NUMBER = re.compile(r"^\s*#\s*define\s+SLURM_VERSION_NUMBER\s+0x([0-9a-fA-F]{6})", re.MULTILINE)
_FLAGS = ("required", "optional")
# What brings the controller's file back, where hosts fetch it and where they hold their own.
_FETCH = "run `scontrol reconfigure` on the controller, or configure_scheduler"
# What a build leaves behind, and what does not depend on the source.
_NO_SOURCE = re.compile(r"(\.(o|so|lo|la|pyc)|~)$|(^|/)\.git(/|$)")
# Keys of slurm.conf that lead elsewhere, which a staged copy must not follow.
_OWN_STACK = re.compile(r"^\s*PlugStackConfig\s*=.*\n?", re.MULTILINE | re.IGNORECASE)
# What an ELF file needs of the C library is among its strings.
_GLIBC = re.compile(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)*(?=\0)")
_TIME_TO_ANSWER_S = 20
_POLL_S = 1


@dataclass(frozen=True)
class Line:
    """A line of plugstack.conf: required or optional, the path of the plug-in, its options."""

    flag: str
    path: str
    options: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.flag, self.path, *self.options))


def parse_stack(text: str) -> list[Line]:
    """Return the lines of a plugstack.conf that name plug-ins."""
    found = []
    for raw in text.splitlines():
        words = raw.split("#", 1)[0].split()
        if len(words) > 1 and words[0].lower() in _FLAGS:
            found.append(Line(words[0].lower(), words[1], tuple(words[2:])))
    return found


def slurm_version(text: str) -> str:
    """Return 24.11.5 out of what `srun --version` prints; empty where it prints something else."""
    match = _VERSION.search(text)
    return match.group(1) if match else ""


def header_version(text: str) -> str:
    """Return 24.11.5 out of Slurm's headers; empty where they do not say."""
    match = _NUMBER.search(text)
    if not match:
        return ""
    major, minor, micro = (int(match.group(1)[at : at + 2], 16) for at in (0, 2, 4))
    return f"{major}.{minor:02d}.{micro}"


def same_release(left: str, right: str) -> bool:
    """Whether two versions agree in all three numbers: what is built for one fits the other."""
    return [*re.findall(r"\d+", left)[:3]] == [*re.findall(r"\d+", right)[:3]]


def is_source(name: str) -> bool:
    """Whether a file, by its path below the sources, is one that a build depends on."""
    return not _NO_SOURCE.search(name)


def fingerprint(version: str, machine: str, digests: Mapping[str, str]) -> str:
    """Return 12 hex digits for Slurm's version, the machine's architecture and the sources.

    digests are those of the source files by their relative paths.
    """
    whole = hashlib.sha256()
    for part in (version, machine, *(f"{name} {digests[name]}" for name in sorted(digests))):
        whole.update(part.encode() + b"\0")
    return whole.hexdigest()[:12]


def staged_conf(slurm_conf: str, plugstack: str) -> str:
    """Return a slurm.conf that is the same but for the plugstack.conf it uses."""
    return f"{_OWN_STACK.sub('', slurm_conf).rstrip()}\nPlugStackConfig={plugstack}\n"


def judge_help(text: str, option: str) -> str:
    """Return why commands with this plugstack.conf would not know the option; empty when they do.

    text is what `srun --help` prints on both streams, which loads the whole plugstack.
    """
    wrong = [line.strip() for line in text.splitlines() if re.search(r"\b(error|fatal):", line)]
    if wrong:
        return " | ".join(wrong[:2])
    if not re.search(rf"(^|\s){re.escape(option)}\b", text):
        return f"srun --help does not list {option}"
    return ""


def judge_stack(
    stack: Sequence[Line], wanted: str, readable: Iterable[str], where: str, runs_jobs: bool
) -> list[str]:
    """Return one line for each way in which this plugstack.conf is not what containers need.

    wanted is the line that every host has; readable are the plug-ins that are there. runs_jobs
    tells a compute node, where the damage is another one.
    """
    want = parse_stack(wanted)[0]
    same = [line for line in stack if _stem(line.path) == _stem(want.path)]
    if not same:
        effect = (
            "jobs with --container-image would run on the bare host, with return code 0"
            if runs_jobs
            else "srun from here would not know --container-image"
        )
        return [f"{where} has no line of {_stem(want.path)}: {effect}; {_FETCH}"]
    messages = []
    for line in same:
        if line.path not in set(readable):
            messages.append(_missing(line, runs_jobs))
        elif line != want:
            effect = (
                "; no job would start here, and srun may return 0 all the same"
                if runs_jobs and line.flag == "required"
                else "; all hosts must have the same line"
            )
            messages.append(f"{where} says `{line}` and not `{want}`{effect}; {_FETCH}")
    if len(same) > 1:
        messages.append(f"{where} names {_stem(want.path)} {len(same)} times; leave one line")
    return messages


def _missing(line: Line, runs_jobs: bool) -> str:
    if line.flag == "optional":
        effect = "jobs with --container-image would run on the bare host" if runs_jobs else ""
        effect = effect or "srun from here would not know --container-image"
    elif runs_jobs:
        effect = "no job starts here, and srun may return 0 all the same"
    else:
        effect = "every srun, sbatch and salloc from here fails"
    return f"{line.path} is missing, which plugstack.conf names: {effect}; run configure_containers"


def _stem(path: str) -> str:
    """`spank_pyxis` for every build of it: the name up to the fingerprint."""
    return re.sub(r"(-[0-9a-f]{12})?\.so$", "", path.rsplit("/", 1)[-1])


def own_lines(lines: Sequence[str], plugin: str) -> list[str]:
    """Return those of the lines that name a build of this plug-in."""
    return [
        raw for raw in lines if any(_stem(line.path) == _stem(plugin) for line in parse_stack(raw))
    ]


def folder_in_use(folders: Sequence[str]) -> str:
    """Return the folder whose slurm.conf Slurm's commands read here; ToolError for none."""
    for folder in folders:
        if os.path.isfile(os.path.join(folder, "slurm.conf")):
            return folder
    raise ToolError(
        f"there is no slurm.conf in {' or '.join(folders)}; run configure_scheduler first"
    )


def _text(path: str) -> str:
    return text_if_readable(path) or ""


def readable(path: str) -> bool:
    """Whether Slurm could open the plug-in; a bare name is looked up in Slurm's own folder."""
    return os.path.isfile(path) if path.startswith("/") else True


def too_new(path: str) -> str:
    """Return that the plug-in needs a later C library than this host's; empty for any other.

    A bare name is in Slurm's own folder, and was built for this system.
    """
    here = re.search(r"(\d+)\.(\d+)", os.confstr("CS_GNU_LIBC_VERSION") or "")
    if here is None or not path.startswith("/"):
        return ""
    needs = max(
        ((int(major), int(minor)) for major, minor in _GLIBC.findall(read_bytes(path))),
        default=(0, 0),
    )
    if needs <= (int(here.group(1)), int(here.group(2))):
        return ""
    return (
        f"{path} needs glibc {needs[0]}.{needs[1]}, and {here.group()} is here; build "
        "it on the oldest system (pyxis_builder)"
    )


def ask(run: CommandRunner, conf: str, option: str) -> str:
    """Return why srun with this slurm.conf would not know the option; empty when it does."""
    answer = run(["srun", "--help"], timeout_s=_TIME_TO_ANSWER_S, env={"SLURM_CONF": conf})
    if answer.outcome != "ended":
        raise ToolError(f"not measured: {answer.describe()}")
    return judge_help(answer.text, option)


def attempt(run: CommandRunner, folder: str, params: Mapping[str, Any]) -> list[str]:
    """Return what would be wrong with the lines, tried in a copy that nothing else reads."""
    plugin = parse_stack(params["line"])[0].path
    if not readable(plugin):
        return [f"{plugin} is missing"]
    why = too_new(plugin)
    if why:
        return [why]
    with temporary_folder("spank-stack-", mode=0o755) as stage:
        stack = os.path.join(stage, "plugstack.conf")
        conf = os.path.join(stage, "slurm.conf")
        for path, text in (
            (stack, "".join(f"{line}\n" for line in [*params["lines"], params["line"]])),
            (conf, staged_conf(_text(os.path.join(folder, "slurm.conf")), stack)),
        ):
            write_atomic(path, text, sync=False)
        # Beside slurm.conf commands look for what it names without a path.
        for name in ("cgroup.conf", "gres.conf", "topology.conf", "topology.yaml"):
            if os.path.isfile(os.path.join(folder, name)):
                copy_file(os.path.join(folder, name), os.path.join(stage, name))
        why = ask(run, conf, params["option"])
    return [f"`{params['line']}` does not work here: {why}"] if why else []


def verify(run: CommandRunner, folder: str, params: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the plugstack.conf in use."""
    path = os.path.join(folder, "plugstack.conf")
    stack = parse_stack(_text(path))
    found = [line.path for line in stack if readable(line.path)]
    verdict = judge_stack(stack, params["line"], found, path, params["runs_jobs"])
    if verdict:
        return verdict
    why = too_new(parse_stack(params["line"])[0].path)
    if why:
        return [why]
    why = ask(run, os.path.join(folder, "slurm.conf"), params["option"])
    return [f"{path} does not work: {why}"] if why else []


def leave(_run: CommandRunner, folder: str, params: Mapping[str, Any]) -> list[str]:
    """Return the lines that still name the plug-in."""
    path = os.path.join(folder, "plugstack.conf")
    plugin = parse_stack(params["line"])[0].path
    return [
        f"{path} still says `{line.strip()}`"
        for line in own_lines(_text(path).splitlines(), plugin)
    ]


_JUDGES = {"tried": attempt, "verified": verify, "absent": leave}


def ask_again(run: CommandRunner, params: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the folder in use and what is wrong there, as soon as nothing is or time is up."""
    folder = ""
    findings: list[str] = []
    for _left in attempts(params["wait_s"], _POLL_S):
        folder = ""
        try:
            folder = folder_in_use(params["folders"])
            findings = _JUDGES[params["state"]](run, folder, params)
        except (ToolError, OSError) as error:
            findings = [str(error)]
        if not findings:
            break
    return folder, findings
