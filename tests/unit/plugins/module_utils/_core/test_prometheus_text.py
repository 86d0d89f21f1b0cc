# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text format: nothing that node_exporter would drop a file for is ever written."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from exposition_text import read, value

from ansible_collections.baremetal.dgx.plugins.module_utils._core.files import write_atomic
from ansible_collections.baremetal.dgx.plugins.module_utils._core.prometheus_text import (
    COUNTER,
    Family,
    counted,
    exposition,
    run_families,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.report import metrics_of

NASTY = 'fan "3"\\n is\nloud \x07\x00 \udc80 ä'


def test_whatever_a_label_says_it_can_be_read_again() -> None:
    family = Family("a_b", "what\nit\\is")
    family.add(1, reason=NASTY, empty="")
    found = read(exposition([family]))
    assert len(found) == 1
    name, labels = next(iter(found))
    assert name == "a_b"
    assert dict(labels) == {"reason": 'fan "3"\\n is\nloud ?? ? ä', "empty": ""}


def test_numbers_keep_all_that_they_have() -> None:
    family = Family("a", "a", COUNTER)
    family.add(2**63 + 1, of="int")
    family.add(0.1 + 0.2, of="float")
    text = exposition([family])
    assert 'a{of="int"} 9223372036854775809' in text
    assert value(read(text), "a", of="float") == 0.1 + 0.2


@pytest.mark.parametrize("nothing", [None, float("nan"), float("inf"), True])
def test_what_was_not_measured_has_no_sample(nothing: float | None) -> None:
    family = Family("a", "a")
    family.add(nothing)
    assert exposition([family]) == ""


def test_the_first_of_two_counts() -> None:
    family = Family("a", "a")
    family.add(1, node="x")
    family.add(2, node="x")
    assert read(exposition([family])) == {("a", frozenset({("node", "x")})): 1}


def test_names_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="not a name of a metric"):
        Family("a-b", "")
    with pytest.raises(ValueError, match="not a name of a label"):
        Family("a", "").add(1, **{"a-b": "c"})
    # Prometheus has them of the target, and calls ours exported_job.
    for name in ("job", "instance"):
        with pytest.raises(ValueError, match="not a name of a label"):
            Family("a", "").add(1, **{name: "c"})
    with pytest.raises(ValueError, match="there twice"):
        exposition([Family("a", ""), Family("a", "")])


def test_families_by_key_and_the_run_itself() -> None:
    text = exposition(
        [*counted("n", "N {}.", {"a_b": 1, "c": None}), *run_families("p", 1e9, 1.5, 0.25)]
    )
    found = read(text)
    assert "# HELP n_a_b N a b." in text
    assert value(found, "p_run_timestamp_seconds") == 1e9
    assert value(found, "p_run_cpu_seconds") == 0.25
    assert value(found, "n_c") is None


@pytest.mark.parametrize(
    "text",
    [
        "a 1",
        "a 1\n",
        "# TYPE a gauge\na 1\n",
        "# HELP a b\n# TYPE a gauge\n",
        "# HELP a b\n# TYPE a gauge\na 1\na 1\n",
        "# HELP a b\n# TYPE a gauge\na NaN\n",
        "# HELP a b\n# TYPE a counter\na -1\n",
        '# HELP a b\n# TYPE a gauge\na{x="1",} 1\n',
        '# HELP a b\n# TYPE a gauge\na{x="1",x="2"} 1\n',
        '# HELP a b\n# TYPE a gauge\na{x="\\d"} 1\n',
        "# HELP a b\n# TYPE a gauge\na 1\n# HELP c d\n# TYPE c gauge\nc 1\na 2\n",
        "# HELP a b\n# TYPE a gage\na 1\n",
        "# hello\n",
        "# HELP a b\n# TYPE a gauge\na 1 2 3\n",
    ],
)
def test_the_reader_of_these_tests_is_strict(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(text)


def test_metrics_of_node_health_are_valid_too() -> None:
    record = {
        "check": "gpu.xid", "subject": 'gpu:n/"0"', "status": "fail", "text": "", "remedy": "",
        "measured": {"value": 79, "unit": ""}, "threshold": None,
    }  # fmt: skip
    found = read(metrics_of({"records": [record, record]}, 1e9, 1.0, 0.5))
    assert (
        value(
            found,
            "baremetal_dgx_health_finding",
            check="gpu.xid",
            subject='gpu:n/"0"',
            status="fail",
        )
        == 1
    )
    assert value(found, "baremetal_dgx_health_run_timestamp_seconds") == 1e9


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    target = tmp_path / "a.prom"
    texts = [exposition(run_families(name * 2000, 1, 1, 1)) for name in ("a", "b")]
    write_atomic(str(target), texts[0])
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for text in texts:
                write_atomic(str(target), text)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _turn in range(300):
            assert target.read_text() in texts
            # What is not whole yet has a name that node_exporter does not read.
            assert [name for name in os.listdir(tmp_path) if name.endswith(".prom")] == ["a.prom"]
    finally:
        stop.set()
        writer.join()


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.prom"
    write_atomic(str(target), "old\n")

    def full(*_words: object, **_folders: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(str(target), "new\n")
    assert target.read_text() == "old\n"
    assert os.listdir(tmp_path) == ["a.prom"]
