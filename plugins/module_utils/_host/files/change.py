# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""One change of a host's files: look, plan, have the new files validated, replace them."""

from __future__ import annotations

import contextlib
import re
import shlex
from typing import Any, Callable, Dict, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.warnings import get_warning_messages

from ..._core.failures import message_of
from ..._core.hang import HungError, in_time
from ..._core.lock import host_lock
from ..._core.run import MISSING, CommandResult, CommandRunner, ModuleRunner, ToolError
from .apply import apply_steps, group_numbers, observe, stage, user_numbers
from .plan import Observed, Plan, Wanted, diff_of, parse_wanted, plan_files

_COMMAND_NOT_FOUND = 127
# longer than a run that was killed can still be busy with its validations
_LOCK_WAIT_S = 150
Answer = Dict[str, Any]


class QuietModule(AnsibleModule):
    """Writes paths to syslog, where AnsibleModule writes its arguments.

    It would write them as the text of one list, in which a secret of several lines is not the
    text that it knows as secret. Its own parameter no_log does not help: what the controller sends
    with every task overrides it.
    """

    def _log_invocation(self) -> None:
        self.log("Invoked for " + " ".join(str(entry["path"]) for entry in self.params["files"]))


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
    """One sentence for each reject_output that is not a regular expression."""
    problems = []
    for validation in validations:
        try:
            re.compile(validation["reject_output"] or "")
        except re.error as error:
            problems.append(
                f"validate: {validation['command']}: reject_output is not a pattern: {error}"
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


def work(module: AnsibleModule, wanted: Sequence[Wanted], done: Callable[[str], None]) -> Answer:
    """Load, plan, validate, apply; calls `done` for each path. Raises OSError, ToolError."""
    observed, users, groups = load(wanted)
    plan = plan_files(wanted, observed, users, groups, module.check_mode)
    if plan.errors:
        raise ToolError("; ".join(plan.errors), errors=list(plan.errors), changed_paths=[])
    validations = validate(module, plan, wanted, observed)
    if not module.check_mode:
        for path in apply_steps(plan.steps, selinux_labeller(module)):
            done(path)
    result: dict[str, Any] = {
        "changed": bool(plan.steps),
        "changed_paths": plan.changed_paths,
        "validations": validations,
    }
    if module._diff:
        result["diff"] = diff_of(plan)
    return {"result": result}


def guarded(module: AnsibleModule, wanted: Sequence[Wanted], send: Callable[[str], None]) -> Answer:
    """Do the work; returns `result`, or `failure` with a message, and `warnings`."""
    done: list[str] = []

    def note(path: str) -> None:
        done.append(path)
        send(path)

    try:
        answer = work(module, wanted, note)
    except ToolError as error:
        answer = {"failure": {"msg": str(error), **error.details}}
    except OSError as error:
        msg = message_of(error) + describe(done)
        answer = {"failure": {"msg": msg, "changed_paths": done, "changed": bool(done)}}
    answer["warnings"] = list(get_warning_messages())
    return answer


def describe(done: Sequence[str]) -> str:
    """Return what was done before a failure, as the end of its message."""
    return f"; already changed: {', '.join(done)}" if done else "; nothing was replaced"


def desired(params: Mapping[str, Any]) -> list[Wanted]:
    """Return the files of the module's options. Raises ToolError with every error at once."""
    wanted, errors = parse_wanted(params["files"])
    errors += check_patterns(params["validate"])
    if errors:
        raise ToolError("; ".join(errors), errors=errors)
    return wanted


def change(module: AnsibleModule, wanted: Sequence[Wanted]) -> Answer:
    """Do the work in a child, which a mount that does not answer may keep; return the answer.

    Raises ToolError, OSError, with what was done before.
    """
    params = module.params
    limit_s = params["timeout_s"] + sum(one["timeout_s"] for one in params["validate"])
    names = [want.path for want in wanted]
    what = names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "") if names else "-"
    # The lock is held here: a child that is left behind must not keep it.
    lock = contextlib.nullcontext() if module.check_mode else host_lock("files", _LOCK_WAIT_S)
    try:
        with lock:
            answer = in_time(what, lambda send: guarded(module, wanted, send), limit_s)
    except HungError as error:
        done = list(error.parts)
        error.details.update(changed_paths=done, changed=bool(done))
        raise ToolError(str(error) + describe(done), **error.details) from error
    for message in answer["warnings"]:
        module.warn(message)
    if "failure" in answer:
        failure = answer["failure"]
        raise ToolError(failure.pop("msg"), **failure)
    result: Answer = answer["result"]
    return result
