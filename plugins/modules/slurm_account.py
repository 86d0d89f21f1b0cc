#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_account
short_description: Keep the accounts and users of a Slurm cluster as declared
description:
  - Registers the cluster in the accounting database, and compares declared accounts, users and
    their limits with
    what is there. Only what differs is sent, through C(sacctmgr).
  - An entry is complete. A limit that it does not name is unset and then inherited from the parent
    account. Only a
    description and an organization that are not given are left alone, and everything of the account
    C(root).
  - Accounts are made before what lies below them, moved to another parent, and removed from the
    leaves up.
  - Nothing is removed that has jobs in the queue; the error names the jobs.
  - After a change the database is read again; what did not take effect is an error.
  - Runs on any host with C(sacctmgr) from where slurmdbd can be reached. Tried with Slurm 22.05 and
    24.11.
notes:
  - Associations of single partitions are passed over, but a change of a user's limits reaches them
    as well.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Where the database cannot be asked, because earlier tasks have only pretended, it is
      taken to be empty.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  cluster:
    description: Name of the cluster, as in C(ClusterName) of C(slurm.conf).
    type: str
    required: true
  accounts:
    description: The accounts, in any order.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name, in lower case. Of V(root) only what is given is changed.
        type: str
        required: true
      state:
        description: Whether it exists on this cluster. Its users are removed with it.
        type: str
        choices: [present, absent]
        default: present
      parent:
        description: The account it lies below.
        type: str
        default: root
      description:
        description: Some words; Slurm keeps them in lower case.
        type: str
      organization:
        description: Some words; Slurm keeps them in lower case.
        type: str
      fairshare:
        description: Shares, V(1) when not given.
        type: str
      qos:
        description: QOS that may be used; inherited when not given. They must exist, see
          M(baremetal.dgx.slurm_qos).
        type: list
        elements: str
      default_qos:
        description: QOS of jobs that ask for none; inherited when not given.
        type: str
      grp_tres:
        description:
          - 'Resources of all running jobs of the account and below it, such as C({gres/gpu: 64}).'
        type: dict
      grp_jobs:
        description: Running jobs of the account and what lies below it.
        type: int
      grp_submit_jobs:
        description: Queued and running jobs of the account and what lies below it.
        type: int
      max_jobs:
        description: Running jobs of each user.
        type: int
      max_submit_jobs:
        description: Queued and running jobs of each user.
        type: int
      max_tres_per_job:
        description: Resources of one job.
        type: dict
      max_wall:
        description:
          - Longest run time of a job as a quoted string, V("D-HH:MM:SS"), V("HH:MM:SS") or minutes.
          - A number is refused, since YAML reads an unquoted C(2:00:00) as 7200.
        type: raw
      users:
        description:
          - Members. Each is a name, or a dictionary of C(name) and any of C(state), C(admin_level)
            (V(none), V(operator),
            V(administrator)), C(default_account) (whether this account is the user's default), and
            the
            limits of an account (C(fairshare), where V(parent) shares that of the account, C(qos),
            C(default_qos),
            C(grp_tres), C(grp_jobs), C(grp_submit_jobs), C(max_jobs), C(max_submit_jobs),
            C(max_tres_per_job), C(max_wall)).
          - The admin level belongs to the user. It is enough to give it in one account, and it
            is V(none) when it is given nowhere (the user C(root) keeps its own).
        type: list
        elements: raw
        default: []
  exclusive:
    description:
      - Whether accounts of this cluster, and users of declared accounts, that are not declared are
        removed.
      - The account C(root) and the user C(root) in it are never removed.
    type: bool
    default: false
seealso:
  - module: baremetal.dgx.slurm_qos
"""

EXAMPLES = r"""
- name: Give two teams their shares
  baremetal.dgx.slurm_account:
    cluster: dgx
    accounts:
      - name: research
        description: all research
        fairshare: 10
        qos: [normal, interactive]
        default_qos: normal
        grp_tres: {gres/gpu: 64}
      - name: vision
        parent: research
        users:
          - alice
          - {name: bob, admin_level: operator, default_account: true, max_jobs: 4}
      - {name: old_team, state: absent}
"""

RETURN = r"""
commands:
  description: The C(sacctmgr) commands that were run, or would be in check mode, without C(sacctmgr
    -i).
  returned: always
  type: list
  elements: str
  sample: ["add account vision cluster=dgx parent=research", "add user name=alice cluster=dgx
    account=vision"]
errors:
  description: Everything that is wrong, when nothing was changed because of it.
  returned: when the declaration was refused
  type: list
  elements: str
"""

from typing import Any, Sequence

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    CommandRunner,
    ModuleRunner,
    ToolError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_accounting import (
    ACCOUNT_COLUMNS,
    ASSOCIATION_COLUMNS,
    Account,
    Present,
    parse_declared,
    parse_present,
    without_qos,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_accounting_plan import (
    AccountPlan,
    diff_of,
    plan_accounts,
    to_remove,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_tools import (
    NoAnswerError,
    change,
    queued_jobs,
    show,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_values import is_name

# Some versions drop the record of a user or account with its last association, some leave it to a
# second command: so the plan is made again until nothing is left.
_ROUNDS = 3

ACCOUNT_SPEC: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "state": {"choices": ["present", "absent"], "default": "present"},
    "parent": {"type": "str", "default": "root"},
    "description": {"type": "str"},
    "organization": {"type": "str"},
    "fairshare": {"type": "str"},
    "qos": {"type": "list", "elements": "str"},
    "default_qos": {"type": "str"},
    "grp_tres": {"type": "dict"},
    "grp_jobs": {"type": "int"},
    "grp_submit_jobs": {"type": "int"},
    "max_jobs": {"type": "int"},
    "max_submit_jobs": {"type": "int"},
    "max_tres_per_job": {"type": "dict"},
    "max_wall": {"type": "raw"},
    "users": {"type": "list", "elements": "raw", "default": []},
}
ARGUMENT_SPEC: dict[str, Any] = {
    "cluster": {"type": "str", "required": True},
    "accounts": {"type": "list", "elements": "dict", "default": [], "options": ACCOUNT_SPEC},
    "exclusive": {"type": "bool", "default": False},
}


def load(run: CommandRunner, cluster: str) -> Present:
    """What the database holds. Raises ToolError."""
    try:
        return parse_present(
            cluster,
            show(run, "cluster", ("cluster",)),
            show(run, "account", ACCOUNT_COLUMNS),
            show(run, "user", ("user", "adminlevel")),
            show(
                run,
                "user",
                ("user", "defaultaccount"),
                ["withassoc", "where", f"cluster={cluster}"],
            ),
            show(run, "assoc", ASSOCIATION_COLUMNS, ["wopl"]),
            show(run, "qos", ("name",)),
        )
    except ValueError as error:
        raise ToolError(f"cannot read what sacctmgr prints: {error}") from error


def make_plan(
    run: CommandRunner,
    cluster: str,
    accounts: Sequence[Account],
    exclusive: bool,
    present: Present,
) -> AccountPlan:
    """The plan for what is present. Raises ToolError with every error at once."""
    removal = to_remove(accounts, present, exclusive)
    jobs = queued_jobs(run) if removal.members or removal.accounts else []
    plan = plan_accounts(cluster, accounts, removal, present, jobs)
    if plan.errors:
        raise ToolError("; ".join(plan.errors), errors=list(plan.errors))
    return plan


def main() -> None:
    """Load, plan, apply, read again, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    run = ModuleRunner(module)
    cluster, exclusive = module.params["cluster"].lower(), module.params["exclusive"]
    done: list[str] = []
    try:
        accounts, errors = parse_declared(module.params["accounts"])
        if not is_name(cluster):
            errors.insert(0, f"cluster: {cluster!r} is not a name")
        if errors:
            raise ToolError("; ".join(errors), errors=errors)
        try:
            present = load(run, cluster)
        except NoAnswerError as error:
            if not module.check_mode:
                raise
            module.warn(f"{error}: predicting for an empty database")
            present = Present()
        if module.check_mode:
            present = without_qos(present)
        first = plan = make_plan(run, cluster, accounts, exclusive, present)
        rounds = 0
        while plan.commands and not module.check_mode:
            if rounds == _ROUNDS:
                undone = "; ".join(" ".join(words) for words in plan.commands)
                raise ToolError(f"slurmdbd accepted every command, but still needs: {undone}")
            for words in plan.commands:
                change(run, words)
                done.append(" ".join(words))
            plan = make_plan(run, cluster, accounts, exclusive, load(run, cluster))
            rounds += 1
    except ToolError as error:
        module.fail_json(
            msg=str(error), **{"commands": done, "changed": bool(done), **error.details}
        )
    result: dict[str, Any] = {
        "changed": bool(first.commands),
        "commands": done or [" ".join(words) for words in first.commands],
    }
    if module._diff:
        result["diff"] = diff_of(first)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
