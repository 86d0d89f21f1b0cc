# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet and its repairs for programs, and their metrics."""

from __future__ import annotations

from ticket_receiver import story

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.fleet import (
    fleet_data,
    incidents_data,
    metrics,
    rma_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.incident import (
    CLOSED,
    Event,
    fold,
    open_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.policy import Verdict
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import Node

AT = 1_800_000_000.0
BACK = Event(AT + 3604, "dgx-04-story", "dgx-04", CLOSED, text="back")
WHO = '{incident="dgx-01-story",node="dgx-01",check="gpu.xid"}'
OPEN = fold([*story(1, AT)[:-1], *story(4, AT)[:3], BACK])


def test_a_repair_has_what_nvidia_asks_of_operators() -> None:
    shown = incidents_data(OPEN, AT + 4000, 86400, "alpha")["incidents"]
    first, second = shown
    assert (first["ticket_id"], first["ticket_closed"], first["hand_over_date"]) == (
        "dgx-01-story", None, None
    )  # fmt: skip
    assert (first["state"], first["hardware_id"], first["part_category"]) == (
        "kept", "GPU-1", "GPU"
    )  # fmt: skip
    assert first["waits_for"] == "the operator: return the part, or consent"
    assert [one["step"] for one in first["actions"]] == ["reboot", "power_cycle"]
    assert second["ticket_closed"] == second["hand_over_date"] == "2027-01-15T09:00:04Z"
    assert [one["node"] for one in second["history"]] == ["dgx-01"]
    # What ended long ago is in the book alone.
    assert len(incidents_data(OPEN, AT + 200_000, 86400, "alpha")["incidents"]) == 1


def test_the_fleet_says_what_is_delivered_healthy_reserved_and_in_use() -> None:
    nodes = {
        "dgx-01": Node("dgx-01", ("IDLE", "DRAIN")),
        "dgx-02": Node("dgx-02", ("ALLOCATED",)),
        "dgx-03": Node("dgx-03", ("IDLE", "RESERVED")),
        "dgx-05": Node("dgx-05", ("DOWN",)),
    }
    result = {"dgx-01": FAIL, "dgx-02": PASS, "dgx-03": NOT_MEASURED, "dgx-05": PASS}
    verdicts = {name: Verdict(name, status, AT) for name, status in result.items()}
    planned = [{"name": f"dgx-0{number}", "serial": f"S{number}"} for number in range(1, 6)]
    parts = {"dgx-01": [{"category": "GPU", "serial": "17"}]}
    fleet = fleet_data(planned, nodes, verdicts, open_of(OPEN), parts, AT, "alpha")
    assert fleet["summary"] == {
        "nodes": 5, "delivered": 4, "healthy": 1, "reserved": 1, "in_use": 1, "out": 2
    }  # fmt: skip
    reported = {one["node"]: one for one in fleet["nodes"]}
    assert (reported["dgx-01"]["healthy"], reported["dgx-01"]["ticket_id"]) == (
        False,
        "dgx-01-story",
    )
    assert reported["dgx-01"]["parts"] == parts["dgx-01"]
    # What was not measured is neither healthy nor not, and what is down is not healthy.
    assert [reported[name]["healthy"] for name in ("dgx-03", "dgx-04", "dgx-05")] == [
        None,
        None,
        False,
    ]


def test_metrics_have_the_mean_time_to_repair_and_who_waits() -> None:
    text = metrics(OPEN, {"tracker": 2}, AT + 4000)
    prefix = "baremetal_dgx_incident_"
    for line in (
        'open{state="step"} 0',
        'open{state="kept"} 1',
        f"waits_since_timestamp_seconds{WHO} {AT + 1}",
        'closed_total{how="back"} 1',
        'steps_total{step="reboot",outcome="done"} 2',
        "repair_seconds_total 3600.0",
        "mean_time_to_repair_seconds 3600.0",
        'tickets_waiting{hook="tracker"} 2',
        f"run_timestamp_seconds {AT + 4000}",
    ):
        assert f"{prefix}{line}\n" in text
    # Nothing came back: there is no mean, and not zero.
    assert "mean_time" not in metrics({}, {}, AT)


def test_the_text_for_the_maker_is_of_what_is_to_be_returned() -> None:
    assert list(rma_of(OPEN)) == ["dgx-01-story"]
    text = rma_of(OPEN)["dgx-01-story"]
    assert "Serial number: not measured\nName: GPU-1\n" in text
    assert "reboot: done\n" in text
    assert "Earlier incidents of this part:\n  none\n" in text
