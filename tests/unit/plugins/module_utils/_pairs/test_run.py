# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner as shipped, with a stand-in for ib_write_bw; this host pretends to be all nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from checkout import FIXTURES
from pair_plans import small_plan

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import Threshold, utc_text
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ToolError
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import rail_end
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.routes import computed_routes
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs import run as _pairs_run
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.localise import Measurement
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.perftest import (
    CUDA_DMABUF,
    Recipe,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.remote import Local, Transport
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.results_file import (
    ResultsFile,
    identity_of,
    read_results,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.run import Runner, Setup
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.schedule import Schedule, Unit
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.session import (
    Outcome,
    Session,
    judge_again,
    measure,
)

pytestmark = pytest.mark.slow

FIXTURES = FIXTURES / "pairs"
PLAN = small_plan(nodes=4)
RECIPE = Recipe(duration_s=3)


@pytest.fixture(autouse=True)
def ports_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run side by side, and all their nodes are this host."""
    monkeypatch.setattr(_pairs_run, "_FIRST_PORT", 20000 + os.getpid() % 100 * 100)


def unit(a: str, b: str, rails: tuple[int, ...] = (0, 1)) -> Unit:
    return Unit(a, b, 0, rails, 2)


class Site:
    """Nodes that all are this host."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state: dict[str, Any] = {}
        self.path = tmp_path / "state.json"
        self.results = tmp_path / "pairs.jsonl"
        self.sysfs = tmp_path / "sys"
        for node, rail in PLAN.hcas:
            (self.sysfs / node / f"class/infiniband/mlx5_rail{rail}/device").mkdir(parents=True)
        monkeypatch.setenv("FABRIC_PAIRS_STATE", str(self.path))
        monkeypatch.setenv("PATH", f"{FIXTURES}:{os.environ['PATH']}")
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        self.tmp_path = tmp_path

    def setup(self, **more: Any) -> Setup:
        devices = {rail_end(*key): hca.devices for key, hca in PLAN.hcas.items()}
        return Setup(
            **{
                "recipe": RECIPE,
                "devices": devices,
                "addresses": dict.fromkeys((node for node, _rail in PLAN.hcas), "127.0.0.1"),
                "sysfs_root": f"{self.sysfs}/{{node}}",
                "connect_s": 10.0,
                "listen_s": 15.0,
                **more,
            }
        )

    def run(self, rounds: list[tuple[Unit, ...]], transport: Any = None, **more: Any) -> list[Any]:
        self.path.write_text(json.dumps(self.state))
        schedule = Schedule(tuple(rounds), 1, 1, "test")
        setup = self.setup(**more)
        results = ResultsFile(str(self.results), identity_of(schedule, setup.recipe), "now")
        try:
            Runner(schedule, setup, transport or Local(), results).run()
        finally:
            results.close()
        return results.results.measurements()

    def log(self) -> list[str]:
        return Path(f"{self.path}.log").read_text().splitlines()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.results.read_text().splitlines()]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def values(found: list[Any]) -> dict[str, float | None]:
    return {f"{flow.source}>{flow.target}": flow.gbps for flow in found}


def reasons(found: list[Any]) -> dict[str, str]:
    return {f"{flow.source}>{flow.target}": flow.reason for flow in found if flow.gbps is None}


def test_both_directions_of_all_rails(site: Site) -> None:
    site.state["figures"] = {"dgx-02/mlx5_rail1>dgx-01/mlx5_rail1": 196.5}
    found = site.run([(unit("dgx-01", "dgx-02"), unit("dgx-03", "dgx-04"))])
    assert values(found) == {
        f"{a}/rail{rail}>{b}/rail{rail}": 196.5 if (a, rail) == ("dgx-02", 1) else 392.0
        for one, two in (("dgx-01", "dgx-02"), ("dgx-03", "dgx-04"))
        for a, b in ((one, two), (two, one))
        for rail in (0, 1)
    }
    closing = [line for line in site.lines() if line["kind"] == "half"]
    assert [(line["round"], line["half"], line["measured"]) for line in closing] == [
        (0, 0, 4),
        (0, 1, 4),
    ]
    # No port is used twice, so no old server can be taken for a new one.
    servers = [line for line in site.log() if not line.endswith("127.0.0.1") and "-p" in line]
    assert len({line.split("-p ")[1].split()[0] for line in servers}) == 8


def test_loopback_and_exact_arguments(site: Site) -> None:
    found = site.run(
        [(unit("dgx-01", "dgx-01", (1,)),)],
        recipe=Recipe(CUDA_DMABUF, both_ways=True, duration_s=3, extra=("-q", "2")),
        gpus={1: 5},
    )
    assert values(found) == {"dgx-01/rail1>dgx-01/rail1": 392.0}
    with_json = [line for line in site.log() if "--out_json_file" in line]
    words = with_json[0].split()
    assert words[: words.index("--out_json")] == [
        "dgx-01/mlx5_rail1", "-d", "mlx5_rail1", "-i", "1", "-p", words[6], "-s", "8388608",
        "-D", "3", "-f", "1", "-F", "--report_gbits", "-b", "--use_cuda=5", "--use_cuda_dmabuf",
        "-q", "2",
    ]  # fmt: skip


def test_perftest_without_json(site: Site) -> None:
    site.state["old"] = True
    found = site.run([(unit("dgx-01", "dgx-02", (0,)),)])
    assert set(values(found).values()) == {392.0}
    assert not any("json" in line for line in site.log())


def test_what_says_nothing_is_not_measured(site: Site) -> None:
    way = "dgx-01/mlx5_rail{0}>dgx-02/mlx5_rail{0}"
    site.state = {
        "cut": [way.format(0)],
        "dead": [way.format(1)],
        "port_down": ["dgx-03/mlx5_rail0"],
        "deaf": ["dgx-04/mlx5_rail1"],
    }
    found = site.run([(unit("dgx-01", "dgx-02"), unit("dgx-03", "dgx-04"))], listen_s=1.0)
    got, why = values(found), reasons(found)
    assert got["dgx-01/rail1>dgx-02/rail1"] == 0.0
    assert got["dgx-02/rail1>dgx-01/rail1"] == 392.0
    assert got["dgx-04/rail1>dgx-03/rail1"] == 392.0
    assert why["dgx-01/rail0>dgx-02/rail0"].startswith("ib_write_bw printed no result")
    assert why["dgx-03/rail0>dgx-04/rail0"] == "a port is Down"
    assert why["dgx-04/rail0>dgx-03/rail0"].startswith("the server at dgx-03/rail0 ended: ")
    assert why["dgx-03/rail1>dgx-04/rail1"] == "the server at dgx-04/rail1 did not listen in time"
    assert len(why) == 4


def test_a_device_that_is_not_there(site: Site) -> None:
    (site.sysfs / "dgx-02/class/infiniband/mlx5_rail0").rename(
        site.sysfs / "dgx-02/class/infiniband/mlx5_0"
    )
    for part in ("mlx5_rail1/device", "mlx5_rail1"):
        (site.sysfs / "dgx-02/class/infiniband" / part).rmdir()
    found = site.run([(unit("dgx-01", "dgx-02"),)])
    # The first rail is found by its other name.
    assert values(found)["dgx-01/rail0>dgx-02/rail0"] == 392.0
    assert set(reasons(found).values()) == {"dgx-02/rail1 has no such adapter on its node"}


def test_a_pair_that_hangs_holds_up_none(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = "ansible_collections.baremetal.dgx.plugins.module_utils._pairs.run."
    monkeypatch.setattr(prefix + "_SLACK_S", 0.0)
    site.state["hang"] = ["dgx-01/mlx5_rail0>dgx-02/mlx5_rail0"]
    started = time.monotonic()
    found = site.run([(unit("dgx-01", "dgx-02"), unit("dgx-03", "dgx-04"))])
    assert time.monotonic() - started < 20
    assert reasons(found) == {"dgx-01/rail0>dgx-02/rail0": "ib_write_bw did not end in time"}
    assert_nothing_is_left(site)


def test_a_node_that_does_not_answer(site: Site) -> None:
    class Broken(Local):
        def argv(self, node: str, script: str) -> list[str]:
            if node == "dgx-02":
                return ["sh", "-c", "echo ssh: connect to host dgx-02: No route to host; exit 255"]
            return super().argv(node, script)

    found = site.run([(unit("dgx-01", "dgx-02", (0,)),)] * 2, Broken())
    assert [flow.reason for flow in found] == [
        "dgx-02 did not answer: ssh: connect to host dgx-02: No route to host"
    ] * 2 + ["left out: dgx-02 did not answer 2 times in a row"] * 2


def test_a_transport_that_is_not_installed(site: Site) -> None:
    class Absent(Local):
        def argv(self, node: str, script: str) -> list[str]:
            return ["no-such-ssh", node]

    found = site.run([(unit("dgx-01", "dgx-02", (0,)),)], Absent())
    assert "dgx-02 did not answer: no-such-ssh: No such file or directory" in {
        flow.reason for flow in found
    }


def test_more_pairs_than_may_run_at_a_time(site: Site) -> None:
    found = site.run([(unit("dgx-01", "dgx-02"), unit("dgx-03", "dgx-04"))], parallel=1)
    assert len(found) == 8
    assert set(values(found).values()) == {392.0}


def test_what_is_done_is_not_done_again(site: Site) -> None:
    rounds = [(unit("dgx-01", "dgx-02", (0,)),), (unit("dgx-03", "dgx-04", (0,)),)]
    assert len(site.run(rounds)) == 4
    whole = site.results.read_text()
    lines = whole.splitlines(keepends=True)
    last_half = max(index for index, line in enumerate(lines) if '"kind": "half"' in line)
    # Killed in the last half, in the middle of a line.
    site.results.write_text("".join(lines[: last_half - 1]) + lines[last_half - 1][:20])
    Path(f"{site.path}.log").unlink()
    assert len(read_results(site.results.read_text()).measurements()) == 3
    assert len(site.run(rounds)) == 4
    again = [line for line in site.log() if line.startswith(("dgx-01/", "dgx-02/"))]
    assert not again
    assert len(site.log()) == 2


SCHEDULE = Schedule(((unit("dgx-01", "dgx-02"),),), 1, 1, "test")
SESSION = Session(
    PLAN, computed_routes(PLAN), SCHEDULE, {400: Threshold(">=", 90.0, "Gb/s", "test")}, False
)
_HOUR_S = 3600


def killed_run(site: Site, began_s: float) -> None:
    """A run of SCHEDULE that began so many seconds ago, a minute a flow, and was killed."""
    at = time.time() - began_s
    results = ResultsFile(str(site.results), identity_of(SCHEDULE, RECIPE), utc_text(at))
    for number, (source, target) in enumerate(SCHEDULE.rounds[0][0].flows(0)):
        flow = Measurement(0, 0, source, target, 100.0)
        results.add(flow, utc_text(at + 60 * number), "")
    results.close_half(0, 0)
    results.close()


def measured(site: Site, transport: Transport | None = None) -> Outcome:
    site.path.write_text(json.dumps(site.state))
    return measure(SESSION, site.setup(), transport or Local(), str(site.tmp_path), 0)


def test_a_killed_run_goes_on_for_a_day_and_is_dated_by_its_oldest_flow(site: Site) -> None:
    killed_run(site, 23 * _HOUR_S)
    before = [line["at"] for line in site.lines() if line["kind"] == "flow"]
    outcome = measured(site)
    assert [flow.gbps for flow in outcome.measurements[:2]] == [100.0, 100.0]
    assert not Path(f"{site.results}.1").exists()
    assert {record.at for record in outcome.records} == {before[0]}
    again = judge_again(SESSION, str(site.tmp_path))
    assert {record.at for record in again.records} == {before[0]}


@pytest.mark.parametrize("began_s", [25 * _HOUR_S, -_HOUR_S])
def test_a_run_that_is_old_or_of_the_future_is_set_aside(site: Site, began_s: float) -> None:
    killed_run(site, began_s)
    before = site.results.read_text()
    began = utc_text()
    outcome = measured(site)
    assert {flow.gbps for flow in outcome.measurements} == {392.0}
    assert Path(f"{site.results}.1").read_text() == before
    assert all(record.at >= began for record in outcome.records)


def test_a_run_without_a_time_is_set_aside(site: Site) -> None:
    killed_run(site, 0)
    head, rest = site.results.read_text().split("\n", 1)
    site.results.write_text(json.dumps({**json.loads(head), "at": "now"}) + "\n" + rest)
    assert {flow.gbps for flow in measured(site).measurements} == {392.0}


def test_follow_ups_of_an_earlier_run_are_set_aside_before_a_new_one(site: Site) -> None:
    """It was killed in its follow-up: all but that was complete, and is measured again."""
    old = site.tmp_path / "pairs.follow-up-1.jsonl"
    old.write_text('{"kind": "run"}\n')

    class Looking(Local):
        def argv(self, node: str, script: str) -> list[str]:
            assert not old.exists()
            return super().argv(node, script)

    measured(site, Looking())
    assert Path(f"{old}.1").exists()


def test_results_of_another_schedule_are_kept(site: Site) -> None:
    site.run([(unit("dgx-01", "dgx-02", (0,)),)])
    before = site.results.read_text()
    with pytest.raises(ToolError, match="holds results of another schedule or recipe"):
        site.run([(unit("dgx-01", "dgx-03", (0,)),)])
    assert site.results.read_text() == before


def test_two_runs_do_not_share_a_file(site: Site) -> None:
    schedule = Schedule((), 1, 1, "test")
    identity = identity_of(schedule, RECIPE)
    first = ResultsFile(str(site.results), identity, "now")
    with pytest.raises(ToolError, match="another run is adding to it"):
        ResultsFile(str(site.results), identity, "now")
    first.close()
    ResultsFile(str(site.results), identity, "now").close()


CHILD = """
import sys
sys.path.insert(0, {collections!r})
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.remote import (
    Local,
    Task,
    node_script,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.run import _Remote
import time

script = node_script([Task(0, ("mlx5_rail0",), 18999, {arguments!r})], True, 60, 5, {sysfs!r})
remote = _Remote("dgx-01", Local().argv("dgx-01", script), [0])
while not remote.answers.settled:
    remote.read()
print(remote.answers.tasks[0].state, flush=True)
time.sleep(60)
"""


def assert_nothing_is_left(site: Site) -> None:
    """No test of this site runs any more, and no work folder is left."""
    deadline = time.monotonic() + 8
    while time.monotonic() < deadline:
        left = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if str(site.path).encode() in (folder / "environ").read_bytes():
                    if int(folder.name) != os.getpid():
                        left.append((folder / "cmdline").read_bytes())
            except OSError:
                continue
        left += [str(one).encode() for one in site.tmp_path.glob("fabric_pairs.*")]
        if not left:
            return
        time.sleep(0.1)
    raise AssertionError(left)


def test_nothing_runs_on_when_the_control_host_dies(site: Site, root: Path) -> None:
    site.path.write_text("{}")
    collections = next(path for path in sys.path if (Path(path) / "ansible_collections").is_dir())
    arguments = tuple(RECIPE.arguments(18999, 0, None))
    code = CHILD.format(
        collections=str(collections), arguments=arguments, sysfs=f"{site.sysfs}/dgx-01"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "listens\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert_nothing_is_left(site)
