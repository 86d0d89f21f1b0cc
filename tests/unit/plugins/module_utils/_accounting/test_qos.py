# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._accounting import qos
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.commands import Job, parse_table

# As `sacctmgr -nP show qos` of 22.05 and 24.11 prints it.
TABLE = (
    "normal|Normal QOS default|0||00:00:00||cluster|1.000000||||||||||||\n"
    "gpu|long gpu jobs|100|DenyOnLimit,OverPartQOS|00:02:00|normal|requeue|0.500000|7-00:00:00"
    "|5|10|20|30|cpu=100,gres/gpu=16,mem=1500G|node=4|gres/gpu=64|gres/gpu=96|20|99|gres/gpu=1\n"
)


def present(text=TABLE):
    return qos.parse_rows(parse_table(text, qos.COLUMNS))


def declared(*entries):
    settings, absent, errors = qos.parse_declared(entries)
    assert errors == []
    assert absent == set()
    return settings


def commands(plan):
    assert plan.errors == ()
    return [" ".join(words) for words in plan.commands]


GPU = {
    "name": "gpu",
    "priority": 100,
    "flags": ["overpartqos", "DenyOnLimit"],
    "grace_time": 120,
    "preempt": ["normal"],
    "preempt_mode": "REQUEUE",
    "usage_factor": 0.5,
    "max_wall": "7-0",
    "max_jobs_per_user": 5,
    "max_submit_jobs_per_user": 10,
    "max_jobs_per_account": 20,
    "max_submit_jobs_per_account": 30,
    "max_tres_per_user": {"cpu": 100, "gres/gpu": 16, "mem": "1500G"},
    "max_tres_per_job": {"node": 4},
    "max_tres_per_account": {"gres/gpu": 64},
    "grp_tres": {"gres/gpu": 96},
    "grp_jobs": 20,
    "grp_submit_jobs": 99,
    "min_tres_per_job": {"gres/gpu": 1},
}


def test_what_is_there_needs_nothing():
    plan = qos.plan_qos(declared({"name": "normal"}, GPU), [], present())
    assert commands(plan) == []
    assert plan.changed_names == []
    assert qos.diff_of(plan) == []


def test_only_what_differs_is_sent():
    wanted = {**GPU, "priority": 7, "max_tres_per_user": {"gres/gpu": 16, "node": 2}}
    del wanted["grp_jobs"]
    plan = qos.plan_qos(declared(wanted), [], present())
    assert commands(plan) == [
        "modify qos where name=gpu set priority=7 maxtresperuser=cpu=-1,mem=-1,node=2 grpjobs=-1"
    ]
    assert plan.changed_names == ["gpu"]


def test_everything_is_unset_by_an_empty_entry():
    plan = qos.plan_qos(declared({"name": "gpu"}), [], present())
    assert commands(plan) == [
        (
            "modify qos where name=gpu set priority=0 flags=-1 gracetime=0 preemptmode=cluster"
            " usagefactor=1 maxwalldurationperjob=-1 maxjobsperuser=-1 maxsubmitjobsperuser=-1"
            " maxjobsperaccount=-1 maxsubmitjobsperaccount=-1"
            " maxtresperuser=cpu=-1,gres/gpu=-1,mem=-1 maxtresperjob=node=-1"
            " maxtresperaccount=gres/gpu=-1 grptres=gres/gpu=-1 grpjobs=-1 grpsubmitjobs=-1"
            " mintresperjob=gres/gpu=-1 preempt="
        )
    ]
    assert plan.after["gpu"]["description"] == "long gpu jobs"


def test_a_new_qos_is_preempted_only_once_it_exists():
    plan = qos.plan_qos(
        declared({"name": "a", "preempt": ["b"], "priority": 3}, {"name": "b"}), [], present()
    )
    assert commands(plan) == [
        "add qos a priority=3",
        "add qos b",
        "modify qos where name=a set preempt=b",
    ]


def test_two_qos_change_places_without_a_loop_in_between():
    before = qos.plan_qos(
        declared({"name": "a", "preempt": ["b"]}, {"name": "b"}), [], present()
    ).after
    plan = qos.plan_qos(declared({"name": "b", "preempt": ["a"]}, {"name": "a"}), [], before)
    assert commands(plan) == [
        "modify qos where name=a set preempt=",
        "modify qos where name=b set preempt=a",
    ]


@pytest.mark.parametrize(
    ("entries", "error"),
    [
        ([{"name": "a", "preempt": ["a"]}], "qos.a.preempt: is a loop: a > a"),
        (
            [{"name": "b", "preempt": ["a"]}, {"name": "a", "preempt": ["b"]}],
            "qos.a.preempt: is a loop: a > b > a",
        ),
        ([{"name": "a", "preempt": ["gpu"]}, GPU, {"name": "normal", "preempt": ["a"]}], None),
        ([{"name": "a", "preempt": ["nope"]}], "qos.a.preempt: there is no QOS nope"),
    ],
)
def test_preemption_that_cannot_be(entries, error):
    errors = qos.plan_qos(declared(*entries), [], present()).errors
    (found,) = errors
    assert found.startswith(error or "qos.a.preempt: is a loop: a > gpu > normal > a;")


def test_removal():
    have = present()
    assert qos.to_remove({}, [], have, exclusive=False) == []
    assert qos.to_remove({}, ["gpu", "never_there"], have, exclusive=False) == ["gpu"]
    assert qos.to_remove({}, [], have, exclusive=True) == ["gpu"]
    plan = qos.plan_qos({}, ["gpu"], have)
    assert commands(plan) == ["delete qos where name=gpu"]
    assert qos.diff_of(plan)[0]["after"] == ""


def test_what_is_in_use_is_not_removed():
    rows = parse_table(
        "dgx|research||gpu,normal|\ndgx|research|alice|normal|gpu\ndgx|root||normal|\n",
        ("cluster", "account", "user", "qos", "defaultqos"),
    )
    partitions = (
        "PartitionName=batch AllowQos=ALL QoS=N/A MaxNodes=UNLIMITED\n"
        "PartitionName=big AllowQos=gpu,normal QoS=gpu DenyQos=x\n"
    )
    uses = qos.uses_by_associations(rows) + qos.uses_by_partitions(partitions)
    jobs = [Job("7", "bob", "x", "gpu", "PENDING"), Job("8", "bob", "x", "normal", "PENDING")]
    plan = qos.plan_qos({}, ["gpu"], present(), uses, jobs)
    assert plan.errors == (
        (
            "qos.gpu: cannot be removed while it is used by account research on dgx, partition big,"
            " user alice in research on dgx"
        ),
        "qos.gpu: cannot be removed while it has jobs: 7 (bob, PENDING)",
    )


@pytest.mark.parametrize(
    ("entries", "errors"),
    [
        ([{"name": "a b"}], ["qos.0.name: 'a b' is not a name"]),
        ([{"name": "a"}, {"name": "a"}], ["qos.a: is declared twice"]),
        ([{"name": "a"}, {"name": "a", "state": "absent"}], ["qos.a: is declared twice"]),
        (
            [{"name": "normal", "state": "absent"}],
            ["qos.normal: is Slurm's own and cannot be removed"],
        ),
        ([{"name": "a", "max_wall": 90}], ["qos.a.max_wall: 90 is a number; write times"]),
    ],
)
def test_declarations_that_are_refused(entries, errors):
    found = qos.parse_declared(entries)[2]
    assert len(found) == len(errors)
    assert all(text.startswith(error) for text, error in zip(found, errors, strict=True))
