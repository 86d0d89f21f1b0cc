#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_hold
short_description: Keep a node free of jobs while something else loads it
description:
  - Asks Slurm whether a node may be loaded, and holds it with a job of its own that does nothing
    and has the node to itself. To be run where C(scontrol) and C(salloc) are.
  - A node with a job of somebody else is refused. One that is drained or down needs no job. When
    nobody gives the node back, the job's own time limit does.
  - Nothing is failed for a node that is refused; RV(may_load) and RV(why) tell.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: In check mode it tells what it would do.
  diff_mode:
    support: none
    details: A job has no former text.
  idempotent:
    support: full
    details: A job that an earlier run has left is taken over.
options:
  node:
    description: The node, by its name in Slurm.
    type: str
    required: true
  state:
    description: V(held) before the load, V(released) after it.
    type: str
    choices: [held, released]
    default: held
  transport:
    description:
      - V(slurm) holds the node, and refuses one that Slurm does not know.
      - V(auto) holds it where Slurm is there and knows it.
      - V(ssh) holds nothing, and refuses only a node with jobs. A job may start meanwhile.
    type: str
    choices: [auto, ssh, slurm]
    default: auto
  seconds:
    description: Seconds until the job ends by itself. Choose more than the load takes.
    type: float
    default: 3600
  wait_s:
    description: Seconds to wait for the node.
    type: int
    default: 60
  job_name:
    description: Name of the job. One of this name and of the same user is taken for an own one.
    type: str
    default: dgx-validate
  slurm_options:
    description:
      - More arguments for C(salloc), for example an account, a partition or a reservation. Without
        a partition those of the node are tried.
    type: list
    elements: str
    default: []
seealso:
  - module: baremetal.dgx.slurm_node
"""

EXAMPLES = r"""
- name: Hold the node for half an hour
  baremetal.dgx.slurm_hold:
    node: "{{ inventory_hostname }}"
    seconds: 1800
  delegate_to: head-01
  register: hold

- name: Give it back
  baremetal.dgx.slurm_hold:
    node: "{{ inventory_hostname }}"
    state: released
  delegate_to: head-01
"""

RETURN = r"""
action:
  description: V(free), V(hold), V(adopt), V(refuse), V(release) or V(none).
  returned: always
  type: str
may_load:
  description: Whether the node may be loaded now.
  returned: always
  type: bool
why:
  description: The reason.
  returned: always
  type: str
busy:
  description: Whether jobs of others are on the node.
  returned: always
  type: bool
job:
  description: Number of the job that holds the node; empty where there is none.
  returned: always
  type: str
command:
  description: What holds the node, or would in check mode.
  returned: always
  type: list
  elements: str
"""

import os
import pwd
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_hold import (
    ADOPT,
    HOLD,
    REFUSE,
    Decision,
    Seen,
    Wish,
    ask,
    decide,
    extend,
    hold,
    hold_commands,
    release,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "node": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["held", "released"], "default": "held"},
    "transport": {"type": "str", "choices": ["auto", "ssh", "slurm"], "default": "auto"},
    "seconds": {"type": "float", "default": 3600},
    "wait_s": {"type": "int", "default": 60},
    "job_name": {"type": "str", "default": "dgx-validate"},
    "slurm_options": {"type": "list", "elements": "str", "default": []},
}


def user_name() -> str:
    """Return the name that squeue shows for jobs of this process."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def others_on(seen: Seen, name: str, user: str) -> bool:
    """Tell whether somebody else's job is on the node."""
    return any((job.name, job.user) != (name, user) for job in seen.jobs)


def take(run: ModuleRunner, wish: Wish, seen: Seen, decided: Decision, user: str) -> Decision:
    """Hold the node as was decided, and look again; returns what came of it."""
    if decided.action == ADOPT:
        why = extend(run, decided.job, wish)
        if why:
            return Decision(REFUSE, f"the job of an earlier run cannot be given more time: {why}")
        return decided
    job, why = hold(run, wish, seen.partitions)
    if not job:
        return Decision(REFUSE, f"Slurm does not give it: {why}")
    # A partition with OverSubscribe=FORCE gives a node to others all the same.
    after = ask(run, wish.node)
    if after.problem or others_on(after, wish.name, user):
        release(run, job)
        return Decision(
            REFUSE, f"it is not ours alone: {after.problem or 'jobs have started on it'}"
        )
    return Decision(HOLD, decided.why, job)


def give_back(module: AnsibleModule, run: ModuleRunner, user: str) -> None:
    """End our jobs on the node, and the module."""
    params = module.params
    seen = ask(run, params["node"])
    mine = [job.job_id for job in seen.jobs if (job.name, job.user) == (params["job_name"], user)]
    why = ""
    if not module.check_mode:
        why = "; ".join(filter(None, (release(run, job) for job in mine)))
    if seen.problem or why:
        module.warn(f"{params['node']} is held until the job's time limit: {seen.problem or why}")
    module.exit_json(
        changed=bool(mine), action="release" if mine else "none", may_load=False,
        why=seen.problem or why, busy=others_on(seen, params["job_name"], user),
        job=" ".join(mine), command=[],
    )  # fmt: skip


def main() -> None:
    """Ask, decide, hold, look again, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, run, user = module.params, ModuleRunner(module), user_name()
    if params["state"] == "released":
        give_back(module, run, user)
    wish = Wish(
        params["node"],
        params["job_name"],
        params["seconds"],
        params["wait_s"],
        tuple(params["slurm_options"]),
    )
    seen = ask(run, wish.node)
    decided = decide(seen, params["transport"], wish.name, user)
    acts = decided.action in (HOLD, ADOPT)
    command = hold_commands(wish, seen.partitions)[0] if decided.action == HOLD else []
    if acts and not module.check_mode:
        decided = take(run, wish, seen, decided, user)
        acts = decided.may_load
    module.exit_json(
        changed=acts,
        action=decided.action,
        may_load=decided.may_load,
        why=decided.why,
        busy=others_on(seen, wish.name, user),
        job=decided.job,
        command=command,
    )


if __name__ == "__main__":
    main()
