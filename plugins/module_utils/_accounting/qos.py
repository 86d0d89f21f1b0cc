# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""What must be done so that the QOS of a Slurm database are as declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from .._core.run import CommandRunner, ToolError
from .._slurm.commands import Job, NoAnswerError, answer_or, change, name_jobs, queued_jobs, show
from . import values
from .values import Field, Settings

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

# slurmdbd makes this one by itself and gives it to every cluster
BUILT_IN = "normal"
_STALE_PREEMPTION = (
    "slurmdbd 22.05 remembers preemptions that were removed until it is restarted:"
    " systemctl restart slurmdbd, then run again"
)

FIELDS: tuple[Field, ...] = (
    Field("description", "description", "description", values.TEXT),
    Field("priority", "priority", "priority", values.INTEGER, unset=0, clear="0"),
    Field("flags", "flags", "flags", values.NAMES, unset=frozenset()),
    Field("grace_time", "gracetime", "gracetime", values.SECONDS, unset=0, clear="0"),
    Field("preempt", "preempt", "preempt", values.NAMES, unset=frozenset(), clear=""),
    Field(
        "preempt_mode", "preemptmode", "preemptmode", values.WORD, unset="cluster", clear="cluster"
    ),
    Field("usage_factor", "usagefactor", "usagefactor", values.FACTOR, unset=1.0, clear="1"),
    Field("max_wall", "maxwall", "maxwalldurationperjob", values.MINUTES),
    Field("max_jobs_per_user", "maxjobspu", "maxjobsperuser", values.INTEGER),
    Field("max_submit_jobs_per_user", "maxsubmitpu", "maxsubmitjobsperuser", values.INTEGER),
    Field("max_jobs_per_account", "maxjobspa", "maxjobsperaccount", values.INTEGER),
    Field("max_submit_jobs_per_account", "maxsubmitpa", "maxsubmitjobsperaccount", values.INTEGER),
    Field("max_tres_per_user", "maxtrespu", "maxtresperuser", values.TRES, unset={}),
    Field("max_tres_per_job", "maxtres", "maxtresperjob", values.TRES, unset={}),
    Field("max_tres_per_account", "maxtrespa", "maxtresperaccount", values.TRES, unset={}),
    Field("grp_tres", "grptres", "grptres", values.TRES, unset={}),
    Field("grp_jobs", "grpjobs", "grpjobs", values.INTEGER),
    Field("grp_submit_jobs", "grpsubmit", "grpsubmitjobs", values.INTEGER),
    Field("min_tres_per_job", "mintres", "mintresperjob", values.TRES, unset={}),
)
_PREEMPT = next(field for field in FIELDS if field.option == "preempt")
_OTHERS = tuple(field for field in FIELDS if field.option != "preempt")
COLUMNS = ("name", *(field.column for field in FIELDS))


@dataclass(frozen=True)
class Use:
    """Something that refers to a QOS, in words."""

    qos: str
    by: str


@dataclass(frozen=True)
class QosPlan:
    """sacctmgr commands in order, the QOS before and after, and every error."""

    commands: tuple[tuple[str, ...], ...]
    before: Mapping[str, Settings]
    after: Mapping[str, Settings]
    errors: tuple[str, ...] = ()

    @property
    def changed_names(self) -> list[str]:
        """Names of the QOS that are added, modified or removed."""
        names = [*self.before, *(name for name in self.after if name not in self.before)]
        return [name for name in names if self.before.get(name) != self.after.get(name)]


def parse_rows(rows: Iterable[Mapping[str, str]]) -> dict[str, Settings]:
    """QOS name → settings, from rows of `sacctmgr show qos`. Raises ValueError."""
    return {row["name"]: _fold_flags(values.parse_settings(FIELDS, row)) for row in rows}


def _fold_flags(settings: Settings) -> Settings:
    # sacctmgr takes flags in any case and prints them in its own
    flags = frozenset(flag.lower() for flag in settings["flags"])
    return {**settings, "flags": flags}


def parse_declared(
    entries: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Settings], set[str], list[str]]:
    """Declared QOS, names declared absent, and every error."""
    declared: dict[str, Settings] = {}
    absent: set[str] = set()
    errors: list[str] = []
    for number, entry in enumerate(entries):
        name = str(entry["name"])
        where = f"qos.{name}"
        if not values.is_name(name):
            errors.append(
                f"qos.{number}.name: {name!r} is not a name; write letters, digits and _.@+-"
            )
        if name in declared or name in absent:
            errors.append(f"{where}: is declared twice; leave one")
        if entry.get("state") == "absent":
            absent.add(name)
            if name == BUILT_IN:
                errors.append(f"{where}: is Slurm's own and cannot be removed; leave state out")
            continue
        settings, problems = values.wanted_settings(FIELDS, entry, where)
        declared[name] = _fold_flags(settings)
        errors += problems
    return declared, absent, errors


def to_remove(
    declared: Mapping[str, Settings],
    absent: Iterable[str],
    present: Mapping[str, Settings],
    exclusive: bool,
) -> list[str]:
    """Names of the QOS that have to go, as far as they are there."""
    gone = {name for name in absent if name in present}
    if exclusive:
        gone |= {name for name in present if name not in declared and name != BUILT_IN}
    return sorted(gone)


def plan_qos(
    declared: Mapping[str, Settings],
    removed: Sequence[str],
    present: Mapping[str, Settings],
    uses: Sequence[Use] = (),
    jobs: Sequence[Job] = (),
) -> QosPlan:
    """What must be done. uses and jobs matter only for what is to be removed."""
    errors = _preempt_errors(declared, removed, present)
    errors += _removal_errors(removed, uses, jobs)
    after: dict[str, Settings] = {
        name: settings for name, settings in present.items() if name not in removed
    }
    commands: list[tuple[str, ...]] = []
    for name, settings in declared.items():
        now = present.get(name)
        blank = {field.option: values.empty(field) for field in FIELDS}
        if now is None:
            words = values.changes_of(_OTHERS, blank, settings)
            commands.append(("add", "qos", name, *words))
        else:
            # What is no longer preempted goes first: two QOS may change places, and at no time
            # may they preempt each other.
            fewer = {**now, "preempt": now["preempt"] & settings["preempt"]}
            words = values.changes_of(_OTHERS, now, settings)
            words += values.changes_of((_PREEMPT,), now, fewer)
            if words:
                commands.append(("modify", "qos", "where", f"name={name}", "set", *words))
        text = settings["description"]
        if text is None:
            text = now["description"] if now else name
        after[name] = {**settings, "description": text}
    for name, settings in declared.items():
        # only now does every QOS exist that may be named
        now = present.get(name)
        kept = now["preempt"] & settings["preempt"] if now else frozenset()
        words = values.assignments(_PREEMPT, kept, settings["preempt"])
        if words:
            commands.append(("modify", "qos", "where", f"name={name}", "set", *words))
    commands += [("delete", "qos", "where", f"name={name}") for name in removed]
    return QosPlan(tuple(commands), dict(present), after, tuple(errors))


def _preempt_errors(
    declared: Mapping[str, Settings], removed: Sequence[str], present: Mapping[str, Settings]
) -> list[str]:
    """Preempted QOS that do not exist, and loops, which slurmdbd refuses."""
    known = {*declared, *present} - set(removed)
    errors = [
        f"qos.{name}.preempt: there is no QOS {other}; declare it, or leave it out"
        for name, settings in declared.items()
        for other in sorted(settings["preempt"] - known)
    ]
    preempts = {
        name: (declared.get(name) or present[name])["preempt"] & known for name in sorted(known)
    }
    for name in declared:
        path = _way_back(name, preempts)
        # each loop is reported once, from its first name
        if path and name == min(path):
            errors.append(
                f"qos.{name}.preempt: is a loop: {' > '.join([*path, name])}; leave one out"
            )
    return errors


def _way_back(start: str, preempts: Mapping[str, frozenset]) -> list[str]:
    """The names on a way from start back to itself, start first; empty when there is none."""
    ways = [[start]]
    seen: set[str] = set()
    while ways:
        way = ways.pop(0)
        for other in sorted(preempts.get(way[-1], frozenset())):
            if other == start:
                return way
            if other not in seen:
                seen.add(other)
                ways.append([*way, other])
    return []


def _removal_errors(removed: Sequence[str], uses: Sequence[Use], jobs: Sequence[Job]) -> list[str]:
    errors = []
    for name in removed:
        users = sorted({use.by for use in uses if use.qos == name})
        if users:
            shown = ", ".join(users[:5]) + (f" and {len(users) - 5} more" if users[5:] else "")
            errors.append(f"qos.{name}: cannot be removed while it is used by {shown}")
        # From 24.11 on a job may name several, and squeue shows all while it waits.
        queued = [job for job in jobs if name in job.qos.split(",")]
        if queued:
            errors.append(f"qos.{name}: cannot be removed while it has jobs: {name_jobs(queued)}")
    return errors


def uses_by_associations(rows: Iterable[Mapping[str, str]]) -> list[Use]:
    """Associations that have a QOS in their own list or as their default."""
    uses = []
    for row in rows:
        owner = f"user {row['user']} in {row['account']}" if row["user"] else row["account"]
        text = f"account {owner}" if not row["user"] else owner
        names = {name for name in row["qos"].split(",") if name} | {row["defaultqos"]}
        uses += [Use(name, f"{text} on {row['cluster']}") for name in sorted(names - {""})]
    return uses


def uses_by_partitions(text: str) -> list[Use]:
    """Partitions that name a QOS, from `scontrol show partition -o`."""
    uses = []
    for line in text.splitlines():
        pairs = dict(word.split("=", 1) for word in line.split() if "=" in word)
        for key in ("QoS", "AllowQos", "DenyQos"):
            for name in pairs.get(key, "").split(","):
                if name not in ("", "N/A", "ALL", "(null)"):
                    uses.append(Use(name, f"partition {pairs.get('PartitionName')}"))
    return uses


def diff_of(plan: QosPlan) -> list[dict[str, str]]:
    """Before and after of every QOS that changes, in Ansible's form."""

    def text(settings: Settings | None) -> str:
        if settings is None:
            return ""
        return "".join(
            line + "\n" for line in ["state: present", *values.describe(FIELDS, settings)]
        )

    return [
        {
            "before_header": f"qos {name}",
            "after_header": f"qos {name}",
            "before": text(plan.before.get(name)),
            "after": text(plan.after.get(name)),
        }
        for name in plan.changed_names
    ]


def load(run: CommandRunner) -> dict[str, Settings]:
    """The QOS in the database. Raises ToolError."""
    try:
        return parse_rows(show(run, "qos", COLUMNS))
    except ValueError as error:
        raise ToolError(f"cannot read what sacctmgr prints of a QOS: {error}") from error


def load_uses(run: CommandRunner) -> tuple[list[Use], list[Job]]:
    """Everything that may refer to a QOS that is to be removed. Raises ToolError."""
    columns = ("cluster", "account", "user", "qos", "defaultqos")
    uses = uses_by_associations(show(run, "assoc", columns, ["wopl"]))
    partitions = run(["scontrol", "show", "partition", "-o"])
    if not partitions.ok:
        raise NoAnswerError(f"the partitions cannot be read: {partitions.describe(2)}")
    return [*uses, *uses_by_partitions(partitions.out)], queued_jobs(run)


def make_plan(
    run: CommandRunner,
    declared: Mapping[str, Settings],
    absent: Sequence[str],
    params: Mapping[str, Any],
    present: Mapping[str, Settings],
) -> QosPlan:
    """The plan for what is present. Raises ToolError with every error at once."""
    removed = to_remove(declared, absent, present, params["exclusive"])
    if params["create_only"]:
        declared = {name: qos for name, qos in declared.items() if name not in present}
    uses, jobs = load_uses(run) if removed else ([], [])
    plan = plan_qos(declared, removed, present, uses, jobs)
    if plan.errors:
        raise ToolError("; ".join(plan.errors), errors=list(plan.errors), commands=[])
    return plan


def apply(run: CommandRunner, plan: QosPlan, done: list[str]) -> None:
    """Run the commands; done gets each one that succeeded. Raises ToolError."""
    for words in plan.commands:
        try:
            change(run, words)
        except ToolError as error:
            # the plan has no loop: slurmdbd 22.05 compares with what it has cached
            if "loop detected" in str(error):
                raise ToolError(f"{error}; {_STALE_PREEMPTION}") from error
            raise
        done.append(" ".join(words))


def present_in(module: AnsibleModule, run: CommandRunner) -> dict[str, Settings]:
    """Return the QOS in the database; in check mode none if it has no answer."""
    nothing: dict[str, Settings] = {}
    return answer_or(nothing, module, "predicting for an empty database", lambda: load(run))


def desired(entries: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Settings], list[str]]:
    """Return the QOS of the module's option, and the names of those that must be absent.

    Raises ToolError with every error at once.
    """
    declared, absent, errors = parse_declared(entries)
    if errors:
        raise ToolError("; ".join(errors), errors=errors)
    return declared, sorted(absent)


def bring_about(
    run: CommandRunner,
    declared: Mapping[str, Settings],
    absent: Sequence[str],
    params: Mapping[str, Any],
    plan: QosPlan,
    done: list[str],
) -> None:
    """Run the commands and look again; `done` gets each that succeeded. Raises ToolError."""
    if not plan.commands:
        return
    apply(run, plan, done)
    left = make_plan(run, declared, absent, params, load(run))
    if left.commands:
        undone = "; ".join(" ".join(words) for words in left.commands)
        raise ToolError(f"slurmdbd accepted every command, but still needs: {undone}")


def result_of(plan: QosPlan, diff: bool) -> dict[str, Any]:
    """Return what the module returns."""
    result: dict[str, Any] = {
        "changed": bool(plan.commands),
        "commands": [" ".join(words) for words in plan.commands],
        "changed_names": plan.changed_names,
    }
    if diff:
        result["diff"] = diff_of(plan)
    return result
