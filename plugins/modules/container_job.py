#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_job
short_description: Run a job in an image on each node, and see from its text whether it did
description:
  - A job that asks for an image and gets none runs on the bare host, and srun returns 0. It returns
    0 as well when a broken plug-in keeps the job from starting. So the return code is never asked.
    The job prints a file of the image, and that text is the answer.
  - Nodes that take no job now, since they are drained, down or busy, are C(not_measured).
  - One job is run on all nodes. Nodes that stay silent are asked again, alone, since the fault of
    one of them may have ended the job of all.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: No job is run in check mode.
  diff_mode:
    support: none
    details: Nothing is ever changed.
  idempotent:
    support: full
options:
  nodes:
    description: The nodes.
    type: list
    elements: str
    required: true
  image:
    description: The image, as C(--container-image) takes it.
    type: str
    required: true
  marker:
    description: File of the image that holds O(token), and that no host has.
    type: str
    default: /etc/baremetal-dgx-image
  token:
    description: What stands in it.
    type: str
    required: true
  user:
    description: As whom the job is submitted. Root sees faults of permissions less than users do.
    type: str
    default: root
  arguments:
    description: Other arguments of srun, such as a partition.
    type: list
    elements: str
    default: []
  wait_s:
    description: Seconds to wait for the job to start.
    type: int
    default: 30
  timeout_s:
    description: Seconds for the job as a whole.
    type: int
    default: 120
  alone:
    description: How many silent nodes are asked again.
    type: int
    default: 8
  not_measured_ok:
    description: Whether nodes that take no job now leave the task green.
    type: bool
    default: true
  fail:
    description: Whether a failure fails the task.
    type: bool
    default: true
seealso:
  - module: baremetal.dgx.spank_stack
"""

EXAMPLES = r"""
- name: See that containers run on every node
  baremetal.dgx.container_job:
    nodes: [dgx-01, dgx-02]
    image: /var/lib/baremetal-dgx/pyxis/verify.sqsh
    token: 5d41402abc4b
    user: alice
"""

RETURN = r"""
passed:
  description: Nodes whose job ran in the image.
  returned: always
  type: list
  elements: str
failed_nodes:
  description: One line for each node whose job did not.
  returned: always
  type: list
  elements: str
not_measured:
  description: One line for each node that was not asked, or did not answer for another reason.
  returned: always
  type: list
  elements: str
"""

from typing import Any, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils import _nodeset
from ansible_collections.baremetal.dgx.plugins.module_utils._container_job import (
    FAIL,
    NOT_MEASURED,
    PASS,
    SCRIPT,
    Answer,
    can_run,
    judge_job,
    ready,
    single_out,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    ENDED,
    MISSING,
    CommandRunner,
    ModuleRunner,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "nodes": {"type": "list", "elements": "str", "required": True},
    "image": {"type": "str", "required": True},
    "marker": {"type": "str", "default": "/etc/baremetal-dgx-image"},
    # It stands in a file of the image that everybody may read.
    "token": {"type": "str", "required": True, "no_log": False},
    "user": {"type": "str", "default": "root"},
    "arguments": {"type": "list", "elements": "str", "default": []},
    "wait_s": {"type": "int", "default": 30},
    "timeout_s": {"type": "int", "default": 120},
    "alone": {"type": "int", "default": 8},
    "not_measured_ok": {"type": "bool", "default": True},
    "fail": {"type": "bool", "default": True},
}
_TIME_TO_ANSWER_S = 20


def command(params: Mapping[str, Any], nodes: Sequence[str]) -> list[str]:
    """Return the command line of the job on these nodes."""
    srun = [
        "srun",
        f"--nodes={len(nodes)}",
        f"--nodelist={_nodeset.fold(nodes)}",
        "--ntasks-per-node=1",
        "--time=5",
        f"--immediate={params['wait_s']}",
        "--job-name=baremetal-dgx-containers",
        "--chdir=/",
        *params["arguments"],
        f"--container-image={params['image']}",
        "sh",
        "-c",
        SCRIPT.format(marker=params["marker"]),
    ]
    if params["user"] == "root":
        return srun
    return ["runuser", "-u", params["user"], "--", *srun]


def run_job(run: CommandRunner, params: Mapping[str, Any], nodes: Sequence[str]) -> list[Answer]:
    """Return the answers of these nodes, the silent ones asked a second time."""
    result = run(command(params, nodes), timeout_s=params["timeout_s"])
    ended = result.outcome == ENDED
    answers = {a.node: a for a in judge_job(result.text, nodes, params["token"], ended)}
    silent = single_out(nodes, result.text, params["alone"])
    for node in silent:
        alone = run(command(params, [node]), timeout_s=params["timeout_s"])
        ended = alone.outcome == ENDED
        answers[node] = judge_job(alone.text, [node], params["token"], ended)[0]
    return list(answers.values())


def ask(run: CommandRunner, params: Mapping[str, Any]) -> list[Answer]:
    """Return the answer of each node."""
    names = params["nodes"]
    listed = run(
        ["sinfo", "--Node", "--noheader", "--format=%N %T", "--nodes", _nodeset.fold(names)],
        timeout_s=_TIME_TO_ANSWER_S,
    )
    if listed.outcome == MISSING or not listed.ok:
        return [Answer(n, NOT_MEASURED, f"{n}: not measured: {listed.describe(1)}") for n in names]
    states = ready(listed.out)
    able = [name for name in names if can_run(states.get(name, ""))]
    answers = [
        Answer(
            name,
            NOT_MEASURED,
            f"{name}: not measured, the node is {states.get(name) or 'unknown to Slurm'}",
        )
        for name in names
        if name not in able
    ]
    return answers + (run_job(run, params, able) if able else [])


def main() -> None:
    """Ask, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    if module.check_mode or not params["nodes"]:
        module.exit_json(changed=False, passed=[], failed_nodes=[], not_measured=[])
    answers = ask(ModuleRunner(module), params)
    failed = [answer.line for answer in answers if answer.status == FAIL]
    unknown = [answer.line for answer in answers if answer.status == NOT_MEASURED]
    result = {
        "changed": False,
        "passed": [answer.node for answer in answers if answer.status == PASS],
        "failed_nodes": failed,
        "not_measured": unknown,
    }
    bad = failed + ([] if params["not_measured_ok"] else unknown)
    if bad and params["fail"]:
        module.fail_json(msg="\n".join(bad), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
