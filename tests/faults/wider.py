# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wider than a node: the fabric, pairs of nodes under load, and the records themselves."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from bench import NODE, ROOT, Seen

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "fabric")]

from library import build, fresh  # noqa: E402
from pair_faults import THRESHOLDS, Fault, Lab, plan_of  # noqa: E402
from world import INTERVAL_S, choose_start  # noqa: E402

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (  # noqa: E402
    PASS,
    Record,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (  # noqa: E402
    ENDED,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.ask import Answers  # noqa: E402
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_switches import (  # noqa: E402
    judge_switch,
    parse_ibswinfo,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (  # noqa: E402
    rail_end,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.report import (  # noqa: E402
    fabric_records,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.routes import (  # noqa: E402
    computed_routes,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl.groups import (  # noqa: E402
    left_out,
    usable,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl.nccl_tests import (  # noqa: E402
    judge as judge_nccl,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl.nccl_tests import (  # noqa: E402
    parse as parse_nccl,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl.nccl_tests import (  # noqa: E402
    published_for,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.follow_up import (  # noqa: E402
    follow_up,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.records import (  # noqa: E402
    make_records,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import (  # noqa: E402
    Node,
    parse_states,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.fio import (  # noqa: E402
    WRITE,
    Step,
    judge_step,
    questions_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.nvme import (  # noqa: E402
    judge_disk,
)

SIZE = "basepod-12"
FIXTURES = Path(__file__).resolve().parents[1] / "unit" / "fixtures"
# The names of the fleet: the fabric's are those of its plan.
_FLEET = tuple(f"dgx-{number:02d}" for number in range(1, 13))
_PLANNED = tuple(f"dgx-{number:04d}" for number in range(1, 13))
NODES_OF = {
    **dict.fromkeys(("gpu", "dcgm", "burn", "hca", "health", "records", "tools"), _FLEET),
    **dict.fromkeys(("fabric", "pairs"), _PLANNED),
}


def stamp(offset_s: float = 0.0) -> str:
    """Return a time as records have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + offset_s))


def _stamped(records: list[Record]) -> list[dict[str, Any]]:
    at = stamp()
    return [{**record.as_data(), "at": at} for record in records]


def healthy(node: str) -> list[dict[str, Any]]:
    """Return the records of a node that was validated and is well."""
    return _stamped([Record("gpu.count", f"node:{node}", PASS)])


def fabric(given: Mapping[str, Any]) -> Seen:
    """Break the fabric of twelve nodes by the library of faults, and sweep it."""
    size = given.get("size", SIZE)
    if not given.get("breaks"):
        world, expected = fresh(size), set()
        choose_start(world, set())
    else:
        case = build(size, (given["breaks"],), given.get("seed", 0))
        world, expected = case.world, case.expected | case.doubts
    world.share = given.get("share", 1)
    seen = world.observe()
    verdict = world.judge_seen(seen)
    lost = list(given.get("lost", {}).items())
    records = fabric_records(world.plan, verdict, Answers(seen, {}, lost), INTERVAL_S)
    if "switch" in given:
        text = (ROOT / f"tests/unit/fixtures/ibswinfo/{given['switch']}.txt").read_text()
        records += judge_switch("leaf-001", parse_ibswinfo(text))
        if given["switch"] == "ndr-psu-failed":
            expected = expected | {("switch_psu", "switch:leaf-001")}
    reported = {(f"fabric.{kind}", subject) for kind, subject in expected}
    reported |= {("fabric.sweep", "fabric")} if world.share < 1 else set()
    reported |= {("fabric.tool", f"tool:{tool}") for tool, _why in lost}
    return Seen([], fabric=_stamped(records), expected=reported)


@lru_cache(maxsize=1)
def _lab() -> Lab:
    plan = plan_of(SIZE)
    return Lab.of(plan, computed_routes(plan))


def pairs(given: Mapping[str, Any]) -> Seen:
    """Let a part slow down all flows over it, and judge the pair tests of all nodes."""
    lab, dice = _lab(), random.Random(given.get("seed", 0))
    faults: list[Fault] = []
    rail = rail_end(_PLANNED[0], given.get("rail", 3))
    leaves = given.get("leaves", 1.0)
    cable = next(one for one in lab.plan.cables if rail in (one.a, one.b))
    if given.get("part") == "cable":
        faults = [Fault("cable", cable.subject, leaves, frozenset({cable.a, cable.b}))]
    elif given.get("part") == "hca":
        ends = frozenset([rail])
        faults = [Fault("hca", f"hca:{rail}", leaves, sends=ends, receives=ends)]
    elif given.get("part") == "cage":
        cage = lab.plan.hcas[rail.host, rail.rail].cage
        rails = {rail_end(*key) for key, hca in lab.plan.hcas.items()
                 if (key[0], hca.cage) == (rail.host, cage)}  # fmt: skip
        ends = frozenset(end for one in lab.plan.cables if rails & {one.a, one.b}
                         for end in (one.a, one.b))  # fmt: skip
        faults = [Fault("cable", f"cage:{rail.host}/{cage}", leaves, ends)]
    elif given.get("part") == "node":
        faults = [Fault("node", f"node:{rail.host}", leaves, host=rail.host)]
    elif given.get("part") == "leaf":
        faults = [Fault("leaf", f"switch:{cable.b.host}", leaves, host=cable.b.host)]
    values = lab.measure(faults, dice, given.get("noise", 0.02))
    if given.get("part") == "everything":
        values = [type(one)(**{**vars(one), "gbps": (one.gbps or 0) * leaves}) for one in values]
    verdict = lab.judge(values)
    further = follow_up(lab.localiser.suspects, verdict, lab.schedule)
    records = make_records(lab.plan, lab.localiser.suspects, verdict, further, THRESHOLDS)
    return Seen([], pairs=_stamped(records))


def records(given: Mapping[str, Any]) -> Seen:
    """Spoil the records of a node that is well, on their way to the gate."""
    own = healthy(NODE)
    file: Any = {"version": 1, "node": NODE, "level": "standard", "records": own}
    spoil = given["spoil"]
    if spoil == "missing":
        file = ""
    elif spoil == "cut_short":
        file = json.dumps(file)[:-40]
    elif spoil == "other_node":
        file["node"] = "dgx-02"
    elif spoil == "version":
        file["version"] = 99
    elif spoil == "empty":
        file["records"] = []
    elif spoil == "unreadable":
        file["records"] = [*own, {"check": "gpu.count", "subject": "node:x", "status": "fine"}]
    elif spoil == "no_time":
        own[0]["at"] = ""
    elif spoil == "future":
        own[0]["at"] = stamp(7200)
    elif spoil == "old":
        own[0]["at"] = stamp(-30 * 86400)
    elif spoil == "level":
        file["level"] = "quick"
    elif spoil == "no_fabric":
        return Seen(own, fabric=None, file=file, expected=set())
    else:
        raise KeyError(spoil)
    return Seen(own, file=file)


def tools(given: Mapping[str, Any]) -> Seen:
    """Read the answer of a tool about the node: a text of tests/unit/fixtures, changed or not."""
    text = ""
    if "text" in given:
        text = (FIXTURES / given["text"]).read_text(encoding="utf-8")
        for old, new in given.get("replace", {}).items():
            assert old in text, f"{given['text']} has no {old!r}"
            text = text.replace(old, new)
        text = text[: int(len(text) * given.get("cut", 1))]
    result = CommandResult((given["tool"],), ENDED, given.get("rc", 0), text)
    if given["tool"] == "smartctl":
        found = list(judge_disk(NODE, "/dev/nvme0", result))
    elif given["tool"] == "fio":
        step = Step(WRITE, ("fio",), 60)
        found = list(judge_step(NODE, "/raid", step, result, questions_of({}, "")))
    elif given["tool"] == "all_reduce_perf":
        size = given["size"]
        found = judge_nccl(
            parse_nccl(text), f"node:{NODE}", size, published_for("h100", 1, size), ranks=8
        )
    else:
        nodes = {NODE: Node(NODE, parse_states(given["state"]))}
        found = left_out(usable([NODE], nodes)) or [Record("groups.node", f"node:{NODE}", PASS)]
    return Seen(_stamped(found))
