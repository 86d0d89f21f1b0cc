# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm import nodes as state
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.commands import Job
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import Node, Wanted

# In the form of `scontrol show node -o` of 22.05 and 24.11.
ONE_LINE = (
    "NodeName=dgx-01 Arch=x86_64 CoresPerSocket=56  CPUAlloc=0 CPUEfctv=224 CPUTot=224 CPULoad=0.11"
    " AvailableFeatures=(null) Gres=gpu:h100:8(S:0-1) NodeAddr=dgx-01 NodeHostName=dgx-01"
    " Version=24.11.5 OS=Linux 6.8.0-51-generic #52-Ubuntu SMP PREEMPT_DYNAMIC  RealMemory=2000000"
    " State=IDLE ThreadsPerCore=2 Partitions=batch  BootTime=2026-01-02T03:04:05"
    " CfgTRES=cpu=224,mem=2000000M,billing=224 AllocTRES= CurrentWatts=0 AveWatts=0 \n"
    "NodeName=dgx-02 CoresPerSocket=56  State=MIXED+DRAIN ThreadsPerCore=2 AveWatts=0"
    " Reason=dgx: firmware update [root@2026-01-02T03:04:05] \n"
    "NodeName=dgx-03 State=DOWN+DRAIN+NOT_RESPONDING ThreadsPerCore=2"
    " ExtSensorsTemp=n/s Reason=fan 3 Foo=bar and (x < 100%) of it [ops@2026-01-02T03:04:05]"
    " Comment=State=IDLE Reason=none\n"
    "NodeName=dgx-04 State=DOWN* Threads=2 Reason=Not responding [slurm@2026-01-02T03:04:05]\n"
    "NodeName=dgx-05 State=ALLOCATED+COMPLETING ThreadsPerCore=2 Reason=unsigned words Comment=x\n"
)
MANY_LINES = """\
NodeName=c-01 Arch=x86_64 CoresPerSocket=4
   CPUAlloc=4 CPUTot=60 CPULoad=0.75
   OS=Linux 3.10.0 #1 SMP
   RealMemory=228884 State=MIXED+CLOUD ThreadsPerCore=1
   Partitions=hpc

NodeName=c-02 CoresPerSocket=4
   State=DOWN*+CLOUD ThreadsPerCore=1
   Reason=Not responding [slurm@2020-01-02T03:04:05]

"""


def test_parse_nodes():
    nodes = state.parse_nodes(ONE_LINE)
    assert {name: node.state for name, node in nodes.items()} == {
        "dgx-01": "IDLE",
        "dgx-02": "MIXED+DRAIN",
        "dgx-03": "DOWN+DRAIN+NOT_RESPONDING",
        "dgx-04": "DOWN+NOT_RESPONDING",
        "dgx-05": "ALLOCATED+COMPLETING",
    }
    assert {name: (node.reason, node.reason_by) for name, node in nodes.items()} == {
        "dgx-01": ("", ""),
        "dgx-02": ("dgx: firmware update", "root"),
        "dgx-03": ("fan 3 Foo=bar and (x < 100%) of it", "ops"),
        "dgx-04": ("Not responding", "slurm"),
        "dgx-05": ("unsigned words", ""),
    }
    assert (nodes["dgx-01"].address, nodes["dgx-02"].address) == ("dgx-01", "")


def test_parse_nodes_of_several_lines():
    nodes = state.parse_nodes(MANY_LINES)
    assert nodes["c-01"].states == ("MIXED", "CLOUD")
    assert nodes["c-02"].states == ("DOWN", "NOT_RESPONDING", "CLOUD")
    assert nodes["c-02"].reason == "Not responding"


def test_parse_a_real_capture(captures):
    text = (captures / "scontrol" / "show-node-mixed-cloud.txt").read_text(encoding="utf-8")
    nodes = state.parse_nodes(text)
    assert len(nodes) == text.count("NodeName=") > 0
    assert all(node.states for node in nodes.values())


FORMS = FIXTURES / "scontrol"


@pytest.mark.parametrize("release", ["22.05", "23.11", "24.11", "25.11", "26.05"])
@pytest.mark.parametrize("form", ["lines", "oneliner"])
def test_the_form_of_every_supported_release(release, form):
    text = (FORMS / f"show-node-{release}-{form}.txt").read_text(encoding="utf-8")
    nodes = state.parse_nodes(text)
    assert len(nodes) == text.count("NodeName=") == 4
    assert {node.state: node.usable for node in nodes.values()} == {
        "MIXED+CLOUD": True,
        "IDLE+DRAIN": False,
        "DOWN+NOT_RESPONDING": False,
        "IDLE+MAINTENANCE+RESERVED": False,
    }
    assert all(not node.unknown_states for node in nodes.values())
    drained = nodes["dgx-02"]
    assert drained.reason == "node-health: gpu:dgx-02/3 gpu.ecc is 12 #h00000000"
    assert (drained.reason_by, drained.reason_at) == ("root", "2026-11-21T09:00:00")
    assert drained.comment == "rack 7, PDU b"
    assert nodes["dgx-03"].reason == "Not responding"
    assert nodes["dgx-01"].comment == ""


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("idle*", ("IDLE", "NOT_RESPONDING")),
        ("idle~", ("IDLE", "POWERED_DOWN")),
        ("idle#", ("IDLE", "POWERING_UP")),
        ("idle!", ("IDLE", "POWER_DOWN")),
        ("idle%", ("IDLE", "POWERING_DOWN")),
        ("maint$", ("MAINT", "MAINTENANCE")),
        ("idle@", ("IDLE", "REBOOT_REQUESTED")),
        ("mixed^", ("MIXED", "REBOOT_ISSUED")),
        ("idle-", ("IDLE", "PLANNED")),
        ("alloc+", ("ALLOC",)),
        ("IDLE*+DRAIN", ("IDLE", "NOT_RESPONDING", "DRAIN")),
    ],
)
def test_flags_of_sinfo_are_written_out(text, states):
    assert state.parse_states(text) == states


def test_every_word_of_the_manual_is_judged():
    words = (FORMS.parent / "sinfo" / "states.txt").read_text(encoding="utf-8").split()
    assert len(words) >= 40
    assert not Node("n", tuple(words)).unknown_states
    assert len(state.USABLE | state.UNUSABLE | state.BY_PLAN) == sum(
        map(len, (state.USABLE, state.UNUSABLE, state.BY_PLAN))
    )


@pytest.mark.parametrize(
    ("states", "unfit"),
    [
        (("IDLE",), False),
        (("IDLE", "MAINTENANCE", "RESERVED"), False),
        (("IDLE", "POWERED_DOWN"), False),
        (("IDLE", "MAINTENANCE", "DRAIN"), True),
        (("DOWN", "REBOOT_ISSUED"), True),
        (("IDLE", "QUARANTINED"), True),
    ],
)
def test_a_maintenance_window_makes_no_node_unfit(states, unfit):
    assert Node("n", states).unfit is unfit


def test_unknown_words_are_named():
    assert Node("n", ("IDLE", "QUARANTINED")).unknown_states == ("QUARANTINED",)


@pytest.mark.parametrize("text", ["", "slurm_load_node error: Unable to contact\n", "No nodes"])
def test_parse_nothing(text):
    assert state.parse_nodes(text) == {}


@pytest.mark.parametrize(
    ("states", "busy", "usable"),
    [
        (("IDLE",), False, True),
        (("MIXED",), True, True),
        (("IDLE", "DRAIN"), False, False),
        (("ALLOCATED", "DRAIN"), True, False),
        (("IDLE", "COMPLETING", "DRAIN"), True, False),
        (("IDLE", "NOT_RESPONDING"), False, False),
        (("UNKNOWN",), False, False),
        (("IDLE", "CLOUD"), False, True),
        (("IDLE", "PLANNED"), False, True),
        (("IDLE", "RESERVED"), False, True),
        (("IDLE", "MAINTENANCE", "RESERVED"), False, False),
        (("IDLE", "CLOUD", "POWERED_DOWN"), False, False),
        (("IDLE", "POWERING_DOWN"), False, False),
        (("IDLE", "POWERING_UP"), False, False),
        (("IDLE", "REBOOT_REQUESTED"), False, False),
        (("MIXED", "REBOOT_ISSUED"), True, False),
        (("IDLE", "BLOCKED"), False, False),
        (("IDLE", "DYNAMIC_NORM"), False, True),
        # A word of a release to come: not known, so not usable.
        (("IDLE", "QUARANTINED"), False, False),
        ((), False, False),
    ],
)
def test_what_states_mean(states, busy, usable):
    node = Node("n", states)
    assert (node.busy, node.usable) == (busy, usable)


OURS, THEIRS = "dgx: fw", "broken fan"
DRAIN = Wanted("drained", "fw", "dgx")
DOWN = Wanted("down", "fw", "dgx")
RESUME = Wanted("resumed", "", "dgx")
FORCED = Wanted("resumed", "", "dgx", force=True)
FORCED_DRAIN = Wanted("drained", "fw", "dgx", force=True)

# wanted, states, reason → words for scontrol, states afterwards, left to its owner
TABLE = [
    (DRAIN, "IDLE", "", "State=DRAIN Reason=dgx: fw", "IDLE+DRAIN", False),
    (DRAIN, "MIXED", "old words", "State=DRAIN Reason=dgx: fw", "MIXED+DRAIN", False),
    (DRAIN, "IDLE+DRAIN", OURS, "", "IDLE+DRAIN", False),
    (DRAIN, "DOWN+DRAIN", f"{OURS} : Not responding", "", "DOWN+DRAIN", False),
    (DRAIN, "DOWN+DRAIN", f"{OURS} : seen", "Reason=dgx: fw", "DOWN+DRAIN", False),
    (DRAIN, "IDLE+DRAIN", "dgx: other", "Reason=dgx: fw", "IDLE+DRAIN", False),
    (DRAIN, "IDLE+DRAIN", THEIRS, "", "IDLE+DRAIN", True),
    (DRAIN, "IDLE+DRAIN", "dgx-gate: x", "", "IDLE+DRAIN", True),
    (DRAIN, "DOWN", THEIRS, "", "DOWN", True),
    (DRAIN, "DOWN", "dgx: x", "State=DRAIN Reason=dgx: fw", "DOWN+DRAIN", False),
    (DRAIN, "DOWN", "", "State=DRAIN Reason=dgx: fw", "DOWN+DRAIN", False),
    (FORCED_DRAIN, "IDLE+DRAIN", THEIRS, "Reason=dgx: fw", "IDLE+DRAIN", False),
    (DOWN, "IDLE", "", "State=DOWN Reason=dgx: fw", "DOWN", False),
    (DOWN, "MIXED+NOT_RESPONDING", "", "State=DOWN Reason=dgx: fw", "DOWN+NOT_RESPONDING", False),
    (DOWN, "DOWN", OURS, "", "DOWN", False),
    (DOWN, "IDLE+DRAIN", THEIRS, "", "IDLE+DRAIN", True),
    (RESUME, "IDLE", "", "", "IDLE", False),
    (RESUME, "MIXED", THEIRS, "", "MIXED", False),
    (RESUME, "IDLE+DRAIN", OURS, "State=RESUME", "IDLE", False),
    (RESUME, "MIXED+DRAIN", OURS, "State=RESUME", "MIXED", False),
    (RESUME, "DOWN+NOT_RESPONDING", OURS, "State=RESUME", "IDLE+NOT_RESPONDING", False),
    (RESUME, "IDLE+DRAIN", THEIRS, "", "IDLE+DRAIN", True),
    (RESUME, "DOWN", "Not responding", "", "DOWN", True),
    (RESUME, "IDLE+DRAIN", "dgx", "", "IDLE+DRAIN", True),
    (FORCED, "IDLE+DRAIN", THEIRS, "State=RESUME", "IDLE", False),
]


@pytest.mark.parametrize(("want", "states", "reason", "words", "then", "refused"), TABLE)
def test_plan(want, states, reason, words, then, refused):
    node = Node("n", tuple(states.split("+")), reason)
    plan = state.plan_nodes(want, [node])
    assert [" ".join(update.words) for update in plan.updates] == ([words] if words else [])
    assert plan.after["n"].state == then
    assert bool(plan.refused) is refused


@pytest.mark.parametrize(("want", "states", "reason", "words", "then", "refused"), TABLE)
def test_what_was_done_needs_no_doing_again(want, states, reason, words, then, refused):
    after = state.plan_nodes(want, [Node("n", tuple(states.split("+")), reason)]).after["n"]
    assert state.plan_nodes(want, [after]).updates == ()


def test_nodes_that_get_the_same_share_a_command():
    nodes = [Node(f"n{number}", ("IDLE",)) for number in range(450)]
    nodes[7] = Node("n7", ("IDLE", "DRAIN"), "dgx: other")
    plan = state.plan_nodes(DRAIN, nodes)
    assert [len(update.nodes) for update in plan.updates] == [200, 200, 49, 1]
    assert len(plan.changed_names) == 450


def test_what_is_waited_for():
    jobs = {"a": [Job("7", "bob", "x", "y", "RUNNING")]}
    nodes = [
        Node("a", ("MIXED", "DRAIN")),
        Node("b", ("IDLE", "COMPLETING", "DRAIN")),
        Node("c", ("IDLE", "DRAIN")),
    ]
    assert state.still_waiting(DRAIN, nodes, jobs) == [
        "a still has jobs: 7 (bob, RUNNING)",
        "b is IDLE+COMPLETING+DRAIN",
    ]
    assert state.still_waiting(
        RESUME, [Node("a", ("MIXED",)), Node("b", ("IDLE", "DRAIN"))], {}
    ) == ["b is IDLE+DRAIN"]


@pytest.mark.parametrize("want", [DRAIN, DOWN])
def test_a_node_that_was_resumed_meanwhile_is_not_there(want):
    """Out in another way, by another owner, is out."""
    out = [Node("a", ("DOWN",), THEIRS), Node("b", ("IDLE", "DRAIN")), Node("c", ("IDLE", "FAIL"))]
    nodes = [*out, Node("dgx-01", ("IDLE",)), Node("dgx-02", ("ALLOCATED",))]
    jobs = {"dgx-02": [Job("7", "bob", "x", "y", "RUNNING")]}
    assert state.still_waiting(want, nodes, jobs) == [
        "dgx-01 is IDLE: it was resumed",
        "dgx-02 is ALLOCATED: it was resumed",
    ]


def test_jobs_on_nodes():
    text = "7|bob|x|y|RUNNING|dgx-[01-02]\n8|eve|x|y|PENDING|\n"
    assert state.parse_jobs_on_nodes(text) == [
        (Job("7", "bob", "x", "y", "RUNNING"), "dgx-[01-02]")
    ]


def test_diff():
    node = Node("n", ("IDLE",))
    (diff,) = state.diff_of(state.plan_nodes(DRAIN, [node]), {"n": node})
    assert diff["before"] == "state: IDLE\nreason: -\n"
    assert diff["after"] == "state: IDLE+DRAIN\nreason: dgx: fw\n"
