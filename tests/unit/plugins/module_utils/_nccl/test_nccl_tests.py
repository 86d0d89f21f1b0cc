# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of nccl-tests, of all ages, whole and broken."""

from __future__ import annotations

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._core.question import Question
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl.nccl_tests import (
    busbw_at,
    finish,
    judge,
    judge_run,
    parse,
    published_for,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl.thresholds import PUBLISHED
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl.without_mpi import (
    parent as without_mpi,
)

QUESTION = Question("nccl.busbw", "bus bandwidth", ">=", 460.0, "GB/s", "a test", "look: there")
SIZE = 8 << 30
NEW = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time"
)
OLD = "#       size         count    type   redop     time   algbw   busbw  error     time"


def ranks(count=8, hosts=1):
    each = count // hosts
    return "".join(
        f"#  Rank {rank:>2} Group  0 Pid 77 on dgx-{rank // each:02} device {rank % each:>2} "
        f"[0x{rank:02x}] NVIDIA H100 80GB HBM3\n"
        for rank in range(count)
    )


def row(size=SIZE, busbw=470.0, wrong="0", in_place=None):
    def side(speed):
        return f"34280.1  {speed / 1.75:.2f}  {speed:.2f}  {wrong:>5}"

    words = f"{size:>12} {size // 4:>12}     float     sum      -1"
    return f"{words}  {side(busbw)}  {side(busbw if in_place is None else in_place)}\n"


def table(
    *rows, end="# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 464.0\n#\n", head=NEW
):
    top = "# nThread 1 nGpus 1 minBytes 1 maxBytes 8 validation: 1 graph: 0\n#\n# Using devices\n"
    return f"{top}{ranks()}NCCL version 2.23.4+cuda12.6\n{head}\n{''.join(rows)}{end}"


def judged(text, size=SIZE, question=QUESTION, count=8):
    found = judge(parse(text), "node:dgx-00", size, question, count)
    assert len({r.check for r in found}) == len(found)
    return {r.check: r for r in found}


def statuses(found):
    return {check: r.status for check, r in found.items()}


def test_a_good_run():
    found = judged(table(row(1 << 30, 100.0), row()))
    assert statuses(found) == {"nccl.correct": PASS, "nccl.busbw": PASS}
    assert found["nccl.busbw"].measured == {"value": 470.0, "unit": "GB/s"}
    assert found["nccl.busbw"].evidence[0] == "NCCL 2.23.4+cuda12.6"


def test_the_stated_size_counts_and_the_average_does_not():
    text = table(row(1 << 30, 500.0), row(SIZE, 300.0))
    assert judged(text)["nccl.busbw"].status == FAIL
    assert judged(text, 1 << 30)["nccl.busbw"].status == PASS


def test_the_slower_half_and_the_slower_repetition_count():
    assert judged(table(row(in_place=400.0)))["nccl.busbw"].measured["value"] == 400.0
    assert judged(table(row(), row(busbw=10.0)))["nccl.busbw"].measured["value"] == 10.0


def test_the_threshold_is_met_by_being_equal():
    assert judged(table(row(busbw=460.0)))["nccl.busbw"].status == PASS
    assert judged(table(row(busbw=459.99)))["nccl.busbw"].status == FAIL


def test_wrong_values_fail_at_any_speed():
    end = "# Out of bounds values : 6 FAILED\n"
    found = judged(table(row(1 << 30, wrong="2"), row(wrong="1"), end=end))
    assert found["nccl.correct"].status == FAIL
    assert found["nccl.correct"].measured["value"] == 6
    assert found["nccl.busbw"].status == PASS
    # Also where the run was interrupted after that, and where only the last line knows.
    assert judged(table(row(wrong="1"), end=""))["nccl.correct"].status == FAIL
    found = judged(table(row(wrong="5e-07"), end="# Out of bounds values : 3 FAILED\n", head=OLD))
    assert found["nccl.correct"].measured["value"] == 3
    assert (
        judged(table(row(), end="# Out of bounds values : 0 FAILED\n"))["nccl.correct"].status
        == FAIL
    )


def test_a_deviation_of_old_versions_is_no_count():
    found = judged(table(row(wrong="5e-07"), head=OLD))
    assert statuses(found) == {"nccl.correct": PASS, "nccl.busbw": PASS}
    found = judged(table(row(wrong="1"), head=OLD))
    assert found["nccl.correct"].status == PASS


def test_values_that_were_not_checked():
    assert judged(table(row(wrong="N/A")))["nccl.correct"].status == NOT_MEASURED
    text = table(row()).replace("validation: 1", "validation: 0")
    assert judged(text)["nccl.correct"].status == NOT_MEASURED


def test_columns_of_all_versions():
    line = "8589934592 2147483648 float {}34280 250.58 469.84 {} 34272 250.64 469.96 {}"
    for middle in ("", "sum ", "sum -1 "):
        for last in ("0", "N/A", "2e-07"):
            found = parse(line.format(middle, last, last))
            assert busbw_at(found, SIZE) == 469.84, (middle, last)
    half = parse("8589934592 2147483648 float sum -1 34280 250.58 469.84 0 N/A N/A N/A N/A")
    assert busbw_at(half, SIZE) == 469.84
    for kind in ("bfloat16", "half", "int8", "f8e4m3"):
        assert parse(line.replace("float", kind).format("sum -1 ", 0, 0)).rows


@pytest.mark.parametrize(
    "line",
    [
        "8589934592 2147483648 float sum -1 34280 250.58 469.84 0 34272 250.64",
        "8589934592 2147483648 float sum -1 34280 250.58 46node:1:1 [0] NCCL INFO x y z",
        "8589934592 2147483648 float sum -1 34280 250.58 nan 0 34272 250.64 469.96 0",
        "8589934592 2147483648 float sum -1 34280 250.58 469.84 x 34272 250.64 469.96 0",
        "a b float sum -1 1 2 3 0 1 2 3 0",
    ],
)
def test_lines_that_are_no_rows(line):
    assert parse(line).rows == ()


def test_other_lines_between_the_rows():
    noise = "dgx-00:77:78 [0] NCCL INFO comm 0x55 rank 0 nranks 8 cudaDev 0\n"
    assert statuses(judged(table(noise, row(1 << 30), noise, row(), noise))) == {
        "nccl.correct": PASS,
        "nccl.busbw": PASS,
    }
    tagged = "".join(f" 0: {line}\n" for line in table(row()).splitlines())
    assert judged(tagged)["nccl.busbw"].status == PASS


def test_a_table_cut_at_any_line_is_no_pass():
    lines = table(row(1 << 30), row()).splitlines()
    last = next(i for i, line in enumerate(lines) if line.startswith("# Out of bounds"))
    for length in range(last):
        found = judged("\n".join(lines[:length]))
        assert set(statuses(found).values()) == {NOT_MEASURED}, length


def test_a_size_that_was_not_measured():
    found = judged(table(row(1 << 30)))
    assert "size 8589934592 is not in the table" in found["nccl.run"].text
    assert statuses(found) == {
        "nccl.run": NOT_MEASURED,
        "nccl.correct": NOT_MEASURED,
        "nccl.busbw": NOT_MEASURED,
    }


def test_a_build_without_mpi_is_noticed():
    one = table(row(busbw=0.0)).replace(ranks(), ranks(1))
    found = judged(one * 8)
    assert "1 of 8 ranks took part: this build has no MPI" in found["nccl.run"].text
    assert found["nccl.busbw"].status == NOT_MEASURED
    nameless = table(row()).replace(ranks(), "")
    assert "2 tables" in judged(nameless * 2)["nccl.run"].text
    assert "nccl.run" not in judged(nameless)


@pytest.mark.parametrize("question", [QUESTION, None])
def test_one_rank_has_no_bus_bandwidth(question):
    alone = table(row(busbw=0.0)).replace(ranks(), ranks(1))
    assert statuses(judged(alone, question=question, count=1)) == {"nccl.correct": PASS}
    wrong = table(row(busbw=0.0, wrong="3")).replace(ranks(), ranks(1))
    assert statuses(judged(wrong, question=question, count=1)) == {"nccl.correct": FAIL}
    states = [without_mpi.RankState(sums={SIZE: {"bad_rows": 0, "time_us": 9.0}}, done=True)] * 2
    gpus = ["gpu:dgx-00/1", "gpu:dgx-00/2"]
    for count, checks in (
        (2, ["nccl.correct", "nccl.correct", "nccl.busbw"]),
        (1, ["nccl.correct"]),
    ):
        found = without_mpi.judge(states[:count], "dgx-00", gpus[:count], SIZE, question, [[]] * 2)
        assert [record.check for record in found] == checks


def test_ranks_that_share_a_gpu():
    text = table(row()).replace("device  7", "device  6")
    assert "several ranks ran on one GPU" in judged(text)["nccl.run"].text


def test_without_a_threshold_the_value_is_kept_and_not_judged():
    found = judged(table(row()), question=None)
    assert found["nccl.busbw"].status == NOT_MEASURED
    assert found["nccl.busbw"].measured["value"] == 470.0
    assert found["nccl.busbw"].remedy.startswith("settings:")


def test_how_the_command_ended():
    def run(*result):
        done = CommandResult(("all_reduce_perf",), *result)
        return judge_run(done, parse(done.text), "node:n")

    assert run(ENDED, 0, table(row())) == []
    # It ends with 1 where values are wrong, and the table reports it.
    assert run(ENDED, 1, table(row(wrong="1"))) == []
    (record,) = run(ENDED, 3, "n:1:1 [0] NCCL WARN Cuda failure 802 'system not yet initialized'")
    assert "802" in record.text
    (record,) = run(ENDED, 1, "", "cannot open shared object")
    assert "ended with 1" in record.text
    (record,) = run(TIMED_OUT)
    assert "it hung" in record.text
    (record,) = run(MISSING)
    assert "runner ctypes" in record.remedy
    assert record.status == NOT_MEASURED


def test_a_run_that_broke_keeps_failures_only():
    found = judge(parse(table(row(wrong="1"), end="")), "node:n", SIZE, QUESTION, 8)
    kept = finish(found)
    assert [(r.check, r.status) for r in kept] == [
        ("nccl.run", NOT_MEASURED),
        ("nccl.correct", FAIL),
    ]
    good = judge(parse(table(row())), "node:n", SIZE, QUESTION, 8)
    assert finish(good) == good


@pytest.mark.parametrize(
    ("gpu", "nodes", "value"),
    [
        ("h100", 1, 460.0), ("H100", 2, 440.0), ("h100", 4, 400.0), ("h200", 1, 431.0),
        ("a100", 1, 228.0), ("b200", 1, 600.0), ("b200", 2, None), ("gb300", 1, None),
    ],
)  # fmt: skip
def test_published(gpu, nodes, value):
    found = published_for(gpu, nodes, SIZE)
    assert (None if found is None else (found.value, found.unit, found.op)) == (
        None if value is None else (value, "GB/s", ">=")
    )


@pytest.mark.parametrize(
    ("size", "busbw", "status"),
    [(2 << 30, 437.79, NOT_MEASURED), (8 << 30, 480.0, PASS), (8 << 30, 437.79, FAIL),
     (16 << 30, 437.79, FAIL)],
)  # fmt: skip
def test_a_threshold_holds_from_the_size_it_was_published_for(size, busbw, status):
    found = judged(table(row(size, busbw)), size, published_for("h100", 2, size))
    assert found["nccl.busbw"].status == status
    assert found["nccl.busbw"].measured == {"value": busbw, "unit": "GB/s"}
    assert found["nccl.correct"].status == PASS


FORMS = FIXTURES / "nccl_tests"


@pytest.mark.parametrize("name", ["2.0", "2.11", "2.13", "2.13-mpirun", "2.13-srun", "2.17"])
def test_the_form_of_every_supported_version(name):
    text = (FORMS / f"all_reduce-{name}.txt").read_text(encoding="utf-8")
    found = judged(text)
    assert statuses(found) == {"nccl.correct": PASS, "nccl.busbw": PASS}
    assert found["nccl.busbw"].measured == {"value": 468.65, "unit": "GB/s"}
    read = parse(text)
    assert (len(read.rows), len(read.ranks)) == (4, 8)


@pytest.mark.parametrize("tag", ["", "0: ", "  3: ", "[1,0]<stdout>:", " [1,0]<stdout>: "])
def test_a_tag_of_the_launcher_hides_no_row(tag):
    text = "".join(f"{tag}{line}\n" for line in table(row()).splitlines())
    assert statuses(judged(text)) == {"nccl.correct": PASS, "nccl.busbw": PASS}


def test_every_published_threshold_has_a_source():
    assert all(question.source.strip() for question in PUBLISHED.values())


def test_captures(captures):
    folder = captures / "nccl-tests"
    two = parse((folder / "oci-h100-2node-rdma-allreduce.txt").read_text())
    assert len(two.ranks) == 16
    assert {host for _rank, host, _device in two.ranks} == {
        "h100-ord01-03-14",
        "h100-ord01-03-294",
    }
    assert (two.version, two.out_of_bounds) == ("2.23.4+cuda12.6", 0)
    assert [row.size for row in two.rows] == [1 << shift for shift in range(30, 35)]
    assert [busbw_at(two, 1 << shift) for shift in (30, 33, 34)] == [449.51, 469.84, 470.75]
    found = judge(two, "nodes:a,b", SIZE, published_for("h100", 2, SIZE), 16)
    assert [(r.check, r.status) for r in found] == [("nccl.correct", PASS), ("nccl.busbw", PASS)]

    old = parse((folder / "a100-8gpu-nccl_allreduce.log").read_text())
    assert len(old.ranks) == 8
    assert len([row for row in old.rows if row.size == 0]) == 2
    assert busbw_at(old, 1 << 28) == 222.40
    assert old.checked is False
    found = judge(old, "node:a", SIZE, published_for("a100", 1, SIZE), 8)
    assert [(r.check, r.status) for r in found] == [
        ("nccl.correct", NOT_MEASURED),
        ("nccl.busbw", PASS),
    ]
    for name, size, value in (
        ("a100-8gpu-nccl_allgather.log", SIZE, 223.39),
        ("a100-8gpu-nccl_reducescatter.log", SIZE, 231.25),
        ("gcp-a3mega-h100-2node-allgather.txt", SIZE, 188.73),
        ("gcp-a3ultra-h200-2node-allgather.txt", SIZE, 328.85),
    ):
        other = parse((folder / name).read_text())
        assert busbw_at(other, size) == value, name
        assert other.out_of_bounds == 0
    # Another program, with no table at all.
    scout = parse((folder / "ncclscout-3nodes.txt").read_text())
    assert scout.rows == ()
    assert not scout.ended
