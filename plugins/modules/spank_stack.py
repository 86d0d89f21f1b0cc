#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: spank_stack
short_description: Try a line of plugstack.conf before it is used, or verify the one in use
description:
  - One unknown or missing plug-in in C(plugstack.conf) breaks every job of the cluster, in ways
    that srun's return code does not tell. This module loads the whole C(plugstack.conf) with
    C(srun --help) and reads what it prints.
  - With O(state=tried) that is done with a copy beside Slurm's own files, so that nothing on the
    host changes.
  - With O(state=verified) the C(plugstack.conf) that this host uses is read, too, and compared with
    the line that every host must have.
  - It starts no job. M(baremetal.dgx.container_job) does.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Findings do not fail the task in check mode, since earlier tasks have only pretended.
  diff_mode:
    support: none
    details: Nothing is ever changed.
  idempotent:
    support: full
options:
  state:
    description:
      - V(tried) says whether O(lines) would work here.
      - V(verified) says whether O(line) is in use here and works.
      - V(absent) says whether the plug-in of O(line) is named here no longer.
    type: str
    choices: [tried, verified, absent]
    default: verified
  line:
    description: The line of the plug-in, as all hosts have it.
    type: str
    required: true
  lines:
    description: With O(state=tried), the other lines of C(plugstack.conf).
    type: list
    elements: str
    default: []
  option:
    description: An option of srun that the plug-in brings.
    type: str
    default: --container-image
  runs_jobs:
    description: Whether this host is a compute node; it tells what a fault does.
    type: bool
    default: false
  folders:
    description: Where Slurm's files may lie; the first one with a C(slurm.conf) is used.
    type: list
    elements: path
    default: [/etc/slurm, /run/slurm/conf]
  wait_s:
    description: Seconds to ask again while something is wrong, until a host has fetched the file.
    type: int
    default: 0
  fail:
    description: Whether findings fail the task.
    type: bool
    default: true
seealso:
  - module: baremetal.dgx.container_job
"""

EXAMPLES = r"""
- name: Try the line where it will be used
  baremetal.dgx.spank_stack:
    state: tried
    line: required /usr/local/lib/slurm/spank_pyxis-5d41402abc4b.so runtime_path=/run/pyxis
"""

RETURN = r"""
folder:
  description: Where the files of Slurm lie that this host uses; empty when there are none.
  returned: always
  type: str
findings:
  description: One line for each thing that is wrong, which begins with the host's name.
  returned: always
  type: list
  elements: str
"""

import os
import shutil
import socket
import tempfile
import time
from typing import Any, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    CommandRunner,
    ModuleRunner,
    ToolError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._spank import (
    judge_help,
    judge_stack,
    own_lines,
    parse_stack,
    staged_conf,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "state": {"choices": ["tried", "verified", "absent"], "default": "verified"},
    "line": {"type": "str", "required": True},
    "lines": {"type": "list", "elements": "str", "default": []},
    "option": {"type": "str", "default": "--container-image"},
    "runs_jobs": {"type": "bool", "default": False},
    "folders": {"type": "list", "elements": "path", "default": ["/etc/slurm", "/run/slurm/conf"]},
    "wait_s": {"type": "int", "default": 0},
    "fail": {"type": "bool", "default": True},
}
_TIME_TO_ANSWER_S = 20
_POLL_S = 1


def folder_in_use(folders: Sequence[str]) -> str:
    """Return the folder whose slurm.conf Slurm's commands read here; ToolError for none."""
    for folder in folders:
        if os.path.isfile(os.path.join(folder, "slurm.conf")):
            return folder
    raise ToolError(
        f"there is no slurm.conf in {' or '.join(folders)}; run configure_scheduler first"
    )


def read(path: str) -> str:
    """Return the text of a file, empty when there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read()
    except OSError:
        return ""


def readable(path: str) -> bool:
    """Whether Slurm could open the plug-in; a bare name is looked up in Slurm's own folder."""
    return os.path.isfile(path) if path.startswith("/") else True


def ask(run: CommandRunner, conf: str, option: str) -> str:
    """Return why srun with this slurm.conf would not know the option; empty when it does."""
    answer = run(["srun", "--help"], timeout_s=_TIME_TO_ANSWER_S, env={"SLURM_CONF": conf})
    if answer.outcome != "ended":
        raise ToolError(f"not measured: {answer.describe()}")
    return judge_help(answer.text, option)


def attempt(run: CommandRunner, folder: str, params: Mapping[str, Any]) -> list[str]:
    """Return what would be wrong with the lines, tried in a copy that nothing else reads."""
    plugin = parse_stack(params["line"]).lines[0].path
    if not readable(plugin):
        return [f"{plugin} is missing"]
    stage = tempfile.mkdtemp(prefix="spank-stack-")
    try:
        os.chmod(stage, 0o755)
        stack = os.path.join(stage, "plugstack.conf")
        conf = os.path.join(stage, "slurm.conf")
        for path, text in (
            (stack, "".join(f"{line}\n" for line in [*params["lines"], params["line"]])),
            (conf, staged_conf(read(os.path.join(folder, "slurm.conf")), stack)),
        ):
            with open(path, "w", encoding="utf-8") as handle:
                handle.write(text)
        # Beside slurm.conf commands look for what it names without a path.
        for name in ("cgroup.conf", "gres.conf", "topology.conf", "topology.yaml"):
            if os.path.isfile(os.path.join(folder, name)):
                shutil.copy(os.path.join(folder, name), stage)
        why = ask(run, conf, params["option"])
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return [f"`{params['line']}` does not work here: {why}"] if why else []


def verify(run: CommandRunner, folder: str, params: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the plugstack.conf in use."""
    path = os.path.join(folder, "plugstack.conf")
    stack = parse_stack(read(path))
    found = [line.path for line in stack.lines if readable(line.path)]
    said = judge_stack(stack, params["line"], found, path, params["runs_jobs"])
    if said:
        return said
    why = ask(run, os.path.join(folder, "slurm.conf"), params["option"])
    return [f"{path} does not work: {why}"] if why else []


def leave(_run: CommandRunner, folder: str, params: Mapping[str, Any]) -> list[str]:
    """Return the lines that still name the plug-in."""
    path = os.path.join(folder, "plugstack.conf")
    plugin = parse_stack(params["line"]).lines[0].path
    return [
        f"{path} still says `{line.strip()}`" for line in own_lines(read(path).splitlines(), plugin)
    ]


_JUDGES = {"tried": attempt, "verified": verify, "absent": leave}


def ask_again(run: CommandRunner, params: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the folder in use and what is wrong there, as soon as nothing is or time is up."""
    deadline = time.monotonic() + params["wait_s"]
    while True:
        folder = ""
        try:
            folder = folder_in_use(params["folders"])
            findings = _JUDGES[params["state"]](run, folder, params)
        except (ToolError, OSError) as error:
            findings = [str(error)]
        if not findings or time.monotonic() >= deadline:
            return folder, findings
        time.sleep(_POLL_S)


def main() -> None:
    """Load, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = {**module.params, "wait_s": 0 if module.check_mode else module.params["wait_s"]}
    host = socket.gethostname().split(".")[0]
    if not parse_stack(params["line"]).lines:
        module.fail_json(msg=f"line: `{params['line']}` is no line of plugstack.conf")
    folder, findings = ask_again(ModuleRunner(module), params)
    lines = [f"{host}: {line}" for line in findings]
    answer = {"changed": False, "folder": folder, "findings": lines}
    if lines and params["fail"] and not module.check_mode:
        module.fail_json(msg="\n".join(lines), **answer)
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
