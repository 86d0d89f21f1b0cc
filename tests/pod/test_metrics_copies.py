# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time series are copied and proved, lost with Prometheus itself, and brought back.

Blocks of half a day are made by promtool, since Prometheus takes hours to write its first.
The tests build on each other, in their order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
import yaml

from .conftest import playbook
from .copies import VALUES, ask, repository

STORE = "stor-01"
DATA = "/var/lib/prometheus/metrics2"
# The pod keeps one day of them.
SPAN_S, EACH_S = 43200, 600
NAME = "dgx_pod_marker"


def samples(until_s: int) -> dict[int, float]:
    """Return what Prometheus has of the marker, by time."""
    query = f"query={NAME}&start={until_s - SPAN_S}&end={until_s}&step={EACH_S}"
    url = f"http://127.0.0.1:9090/api/v1/query_range?{query}"
    read = f"import urllib.request as r; print(r.urlopen('{url}').read().decode())"
    result = json.loads(ask(f'python3 -c "{read}"'))["data"]["result"]
    return {int(at): float(value) for one in result for at, value in one["values"]}


def has_all(wanted: dict[int, float], until_s: int, seconds: float = 180) -> None:
    """Wait until Prometheus has loaded the blocks, which it looks for each minute."""
    deadline = time.monotonic() + seconds
    while (found := samples(until_s)) != wanted:
        assert time.monotonic() < deadline, f"{len(found)} of {len(wanted)} samples"
        time.sleep(5)


@pytest.fixture(scope="module", name="written")
def the_written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[int, float], int]]:
    """What Prometheus has in blocks, and until when; the inventory names a repository meanwhile."""
    monitored = playbook("configure_monitoring")
    assert monitored.rc == 0, monitored.why
    # Blocks end at even hours.
    until_s = int(time.time()) // 7200 * 7200 - 4 * 3600
    wanted = {at: float(at % 9973) for at in range(until_s - SPAN_S, until_s, EACH_S)}
    lines = "\n".join(f"{NAME} {value} {at}" for at, value in wanted.items())
    ask(
        f"cat > /tmp/marker <<'EOF'\n# TYPE {NAME} gauge\n{lines}\n# EOF\nEOF\n"
        f"promtool tsdb create-blocks-from openmetrics /tmp/marker {DATA} > /dev/null"
        f" && chown -R prometheus: {DATA}"
    )
    with repository(STORE, tmp_path_factory.mktemp("backup")):
        values = yaml.safe_load(VALUES.read_text(encoding="utf-8"))
        VALUES.write_text(yaml.safe_dump({**values, "backup_prometheus": True}), encoding="utf-8")
        yield wanted, until_s


def test_blocks_are_copied_and_proved(written: tuple[dict[int, float], int]) -> None:
    has_all(*written)
    for name in ("configure_backup", "back_up", "prove_backup"):
        done = playbook(name)
        assert done.rc == 0, done.why
    again = playbook("configure_backup")
    assert (again.rc, set(again.changed.values())) == (0, {0}), again.tasks("changed") or again.why


def test_a_lost_prometheus_has_its_series_again(written: tuple[dict[int, float], int]) -> None:
    there = playbook("restore_metrics")
    assert there.rc != 0
    assert "metrics: there, and not replaced without consent" in there.why
    has_all(*written)
    ask(
        "systemctl stop prometheus; DEBIAN_FRONTEND=noninteractive apt-get -qq purge -y prometheus"
        f" > /dev/null; rm -rf {DATA} /etc/prometheus /var/lib/baremetal-dgx/backup"
    )
    restored = playbook("restore_metrics")
    assert restored.rc == 0, restored.why
    has_all(*written)
    assert ask(f"find {DATA} ! -user prometheus") == ""
    again = playbook("restore_metrics")
    assert (again.rc, set(again.changed.values())) == (0, {0}), again.tasks("changed") or again.why
    whole = playbook("configure_monitoring")
    assert whole.rc == 0, whole.why
    has_all(*written)
    # A Prometheus with its old series is the right one to copy again.
    copied = playbook("back_up")
    assert copied.rc == 0, copied.why
