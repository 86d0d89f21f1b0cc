#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: managed_files
short_description: Write a set of files, directories and links in one call, all or nothing
description:
  - Brings a list of paths to their wanted state. Everything is planned and validated before the
    first
    path changes, so that an unknown user, a wrong type or a configuration its own program refuses
    leaves all old files in place.
  - Each file is written beside its target, gets its owner and mode, is synced, and is then renamed
    over
    the target. A reader sees the old file or the new one, never a part.
  - A run killed between two renames leaves files that are old or new; the next run replaces the
    rest.
    Temporary files of killed runs are removed by the next run that changes something in the same
    directory.
  - There are no handlers to lose, M(baremetal.dgx.service_sync) compares what daemons run with to
    what is on disk.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Of secret files only the size is shown.
  idempotent:
    support: full
options:
  files:
    description:
      - The paths, in the order in which they are to be changed. Directories must come before what
        is in them.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path. Each path may be given once.
        type: path
        required: true
      state:
        description:
          - V(file) is a regular file with the given content. Without content an existing file keeps
            its own, and a missing one is made empty.
          - V(directory) is a directory; a link that leads to one is accepted.
          - V(absent) means that there is neither file nor link, nor an empty directory; a directory
            with
            something in it is an error.
          - V(link) is a symbolic link; a file in its place is replaced.
        type: str
        choices: [file, directory, absent, link]
        default: file
      content:
        description: The whole content. With state V(absent) it is ignored.
        type: str
      secret_content:
        description: Like O(files[].content), but never shown in output, logs or diff.
        type: str
      encoding:
        description: How O(files[].content) or O(files[].secret_content) is written down; V(base64)
          is for binary keys.
        type: str
        choices: [text, base64]
        default: text
      target:
        description: Where a V(link) points.
        type: str
      owner:
        description: Name or number of the user. Kept as it is when not given.
        type: str
      group:
        description: Name or number of the group. Kept as it is when not given.
        type: str
      mode:
        description:
          - Quoted octal string such as V("0644"). A number is refused, since YAML reads C(0644) as
            420.
          - When not given, it is kept; a new file gets V("0644"), a new secret one V("0600"), a new
            directory V("0755").
        type: raw
      replace:
        description: With V(false) the content is only written when the path does not exist.
        type: bool
        default: true
      unsafe_writes:
        description:
          - Write into the file in place where it is a mount point of its own and cannot be renamed
            over
            (C(/etc/hosts) in a container). Not atomic.
        type: bool
        default: false
  validate:
    description:
      - Commands that judge the new files before anything is replaced. They run when content
        changes.
      - Every regular file of the call is staged as C(%(stage)s/<base name>) with mode 0600 in a
        directory only
        root can enter; files that share a base name are staged under their whole path below
        C(%(stage)s).
      - In check mode they run as well. Where a user, group or directory is still missing on the
        host, a
        failure is then only a warning, since an earlier task has merely pretended.
    type: list
    elements: dict
    default: []
    suboptions:
      command:
        description: Command line, split like a shell would but run without one.
        type: str
        required: true
      when_missing:
        description: What to do when the program is not installed. In check mode it is always passed
          over.
        type: str
        choices: [fail, skip]
        default: fail
      reject_output:
        description:
          - Regular expression searched line by line in the output. A match fails the validation
            even when
            the command ends with 0, as some Slurm tools do on errors.
        type: str
      environment:
        description: Environment variables; C(%(stage)s) is replaced in the values, too.
        type: dict
        default: {}
      timeout_s:
        description: Seconds the command may take.
        type: float
        default: 60
seealso:
  - module: baremetal.dgx.service_sync
  - module: ansible.builtin.copy
"""

EXAMPLES = r"""
- name: Write Slurm's configuration, which must agree with itself
  baremetal.dgx.managed_files:
    files:
      - {path: /etc/slurm, state: directory, owner: root, group: root, mode: "0755"}
      - path: /etc/slurm/slurm.conf
        content: "{{ my_slurm_conf }}"
        owner: root
        group: root
        mode: "0644"
      - path: /etc/munge/munge.key
        secret_content: "{{ my_munge_key_base64 }}"
        encoding: base64
        owner: munge
        group: munge
        mode: "0400"
      - {path: /etc/slurm/old.conf, state: absent}

- name: Never let sshd see a configuration that it would refuse
  baremetal.dgx.managed_files:
    files:
      - path: /etc/ssh/sshd_config
        content: "{{ my_sshd_config }}"
        mode: "0600"
    validate:
      - command: sshd -t -f %(stage)s/sshd_config
"""

RETURN = r"""
changed_paths:
  description: The paths that were changed, or would be in check mode, in order.
  returned: always
  type: list
  elements: str
  sample: [/etc/slurm/slurm.conf]
errors:
  description: Everything that is wrong, one sentence each, when nothing was changed because of it.
  returned: on failure, when the plan was refused
  type: list
  elements: str
validations:
  description: The validation commands that ran, and how each ended (C(passed), C(skipped),
    C(failed)).
  returned: success
  type: list
  elements: dict
  sample: [{"command": "sshd -t -f %(stage)s/sshd_config", "status": "passed"}]
"""

import contextlib
import re
import shlex
from typing import Any, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._files import (
    Observed,
    Plan,
    Wanted,
    diff_of,
    parse_wanted,
    plan_files,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._files_apply import (
    apply_steps,
    group_numbers,
    observe,
    stage,
    user_numbers,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._lock import BusyError, host_lock
from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    MISSING,
    CommandResult,
    CommandRunner,
    ModuleRunner,
    ToolError,
)

_COMMAND_NOT_FOUND = 127
# longer than a run that was killed can still be busy with its validations
_LOCK_WAIT_S = 150

FILE_SPEC = {
    "path": {"type": "path", "required": True},
    "state": {"choices": ["file", "directory", "absent", "link"], "default": "file"},
    "content": {"type": "str"},
    "secret_content": {"type": "str", "no_log": True},
    "encoding": {"choices": ["text", "base64"], "default": "text"},
    "target": {"type": "str"},
    "owner": {"type": "str"},
    "group": {"type": "str"},
    "mode": {"type": "raw"},
    "replace": {"type": "bool", "default": True},
    "unsafe_writes": {"type": "bool", "default": False},
}
VALIDATE_SPEC = {
    "command": {"type": "str", "required": True},
    "when_missing": {"choices": ["fail", "skip"], "default": "fail"},
    "reject_output": {"type": "str"},
    "environment": {"type": "dict", "default": {}},
    "timeout_s": {"type": "float", "default": 60},
}
ARGUMENT_SPEC = {
    "files": {"type": "list", "elements": "dict", "required": True, "options": FILE_SPEC},
    "validate": {"type": "list", "elements": "dict", "default": [], "options": VALIDATE_SPEC},
}


def load(wanted: Sequence[Wanted]) -> tuple[dict[str, Observed], dict[str, Any], dict[str, Any]]:
    """The paths as they are, and the numbers of the users and groups that occur."""
    return (
        observe(wanted),
        user_numbers(want.owner for want in wanted),
        group_numbers(want.group for want in wanted),
    )


def run_validations(
    run: CommandRunner,
    validations: Sequence[Mapping[str, Any]],
    folder: str,
    check_mode: bool,
) -> list[dict[str, str]]:
    """Run the validations on the staged files; returns command, status and message of each."""
    outcomes = []
    for validation in validations:
        # split first: the stage folder must stay one word whatever it is called
        words = [w.replace("%(stage)s", folder) for w in shlex.split(validation["command"])]
        environment = {
            key: str(value).replace("%(stage)s", folder)
            for key, value in validation["environment"].items()
        }
        result = run(words, timeout_s=validation["timeout_s"], env=environment)
        status, message = judge_validation(result, validation, check_mode)
        outcomes.append(
            {
                "command": validation["command"],
                "status": status,
                "message": message.replace(folder, "%(stage)s"),
            }
        )
    return outcomes


def judge_validation(
    result: CommandResult, validation: Mapping[str, Any], check_mode: bool
) -> tuple[str, str]:
    """passed, skipped or failed, and why."""
    # 127 is what `env` and `timeout` answer when the command they are given is not there
    if result.outcome == MISSING or result.rc == _COMMAND_NOT_FOUND:
        if check_mode or validation["when_missing"] == "skip":
            return "skipped", result.describe()
        return "failed", f"{result.describe()}, so the new files cannot be validated"
    if not result.ok:
        return "failed", result.describe()
    pattern = validation["reject_output"] or ""
    for line in result.text.splitlines() if pattern else ():
        if re.search(pattern, line):
            name = " ".join(result.argv)
            return "failed", f"`{name}` ended with 0 but says: {line.strip()[:300]}"
    return "passed", ""


def check_patterns(validations: Sequence[Mapping[str, Any]]) -> list[str]:
    """One sentence for each reject_output that is no regular expression."""
    problems = []
    for validation in validations:
        try:
            re.compile(validation["reject_output"] or "")
        except re.error as error:
            problems.append(
                f"validate: {validation['command']}: reject_output is no pattern: {error}"
            )
    return problems


def validate(
    module: AnsibleModule, plan: Plan, wanted: Sequence[Wanted], observed: Mapping[str, Observed]
) -> list[dict[str, str]]:
    """Judge the staged files; raises ToolError when one is refused."""
    if not (module.params["validate"] and plan.replaces_content):
        return []
    with stage(wanted, observed) as folder:
        outcomes = run_validations(
            ModuleRunner(module), module.params["validate"], folder, module.check_mode
        )
    refused = [outcome["message"] for outcome in outcomes if outcome["status"] == "failed"]
    if refused and module.check_mode and plan.pretended:
        for message in refused:
            module.warn(f"validation is inconclusive before earlier changes are real: {message}")
    elif refused:
        raise ToolError(
            "the new files were refused, nothing was replaced: " + "; ".join(refused),
            errors=refused,
            changed_paths=[],
        )
    return [{"command": o["command"], "status": o["status"]} for o in outcomes]


def selinux_labeller(module: AnsibleModule) -> Any:
    """Gives a temporary file the context of what it replaces, or the policy's default."""

    def label(temporary: str, path: str) -> None:
        if not module.selinux_enabled():
            return
        try:
            context = module.selinux_context(path) if temporary != path else [None]
        except Exception:  # the path does not exist yet
            context = [None]
        if context[0] is None or temporary == path:
            context = module.selinux_default_context(path)
        module.set_context_if_different(temporary, context, False)

    return label


class QuietModule(AnsibleModule):
    """Writes paths to syslog, where AnsibleModule writes its arguments.

    It would write them as the text of one list, in which a secret of several lines is not the
    text that it knows as secret. Its own parameter no_log does not help: what the controller sends
    with every task overrides it.
    """

    def _log_invocation(self) -> None:
        self.log("Invoked for " + " ".join(str(entry["path"]) for entry in self.params["files"]))


def main() -> None:
    """Load, plan, validate, apply, report."""
    module = QuietModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    wanted, errors = parse_wanted(module.params["files"])
    errors += check_patterns(module.params["validate"])
    done: list[str] = []
    try:
        if errors:
            raise ToolError("; ".join(errors), errors=errors, changed_paths=[])
        lock = contextlib.nullcontext() if module.check_mode else host_lock("files", _LOCK_WAIT_S)
        with lock:
            observed, users, groups = load(wanted)
            plan = plan_files(wanted, observed, users, groups, module.check_mode)
            if plan.errors:
                raise ToolError("; ".join(plan.errors), errors=list(plan.errors), changed_paths=[])
            validations = validate(module, plan, wanted, observed)
            if not module.check_mode:
                for path in apply_steps(plan.steps, selinux_labeller(module)):
                    done.append(path)
    except BusyError as error:
        module.fail_json(
            msg=f"another run is still writing files on this host (process {error.holder})"
        )
    except ToolError as error:
        module.fail_json(msg=str(error), **error.details)
    except OSError as error:
        module.fail_json(
            msg=f"cannot change {error.filename or 'the files'}: {error.strerror}"
            + (f"; already changed: {', '.join(done)}" if done else "; nothing was replaced"),
            changed_paths=done,
            changed=bool(done),
        )
    result: dict[str, Any] = {
        "changed": bool(plan.steps),
        "changed_paths": plan.changed_paths,
        "validations": validations,
    }
    if module._diff:
        result["diff"] = diff_of(plan)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
