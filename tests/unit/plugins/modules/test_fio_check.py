# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""fio_check with a program that answers as fio 3 does, and with the real one where FIO names it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._storage import ask_fio
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.fio import (
    MIB,
    Place,
    parse,
    questions_of,
    refuse,
    size_mib,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.thresholds import RATES
from ansible_collections.baremetal.dgx.plugins.modules import fio_check

pytestmark = pytest.mark.slow

GIB = 1024 * MIB
# Answers like fio 3.33: its command line decides what it says.
FAKE = """\
import json, os, sys, time
from pathlib import Path

given = dict(word[2:].split("=", 1) for word in sys.argv[1:])
plan = json.loads(Path(__file__).with_name("plan.json").read_text()).get(given["name"], {})
folder = Path(given["directory"])
(folder / given["filename"]).write_bytes(b"x" * 1000)
time.sleep(plan.get("sleep", 0))
sys.stdout.write(plan.get("before", ""))
sys.stderr.write(plan.get("stderr", ""))
if "text" in plan:
    sys.stdout.write(plan["text"])
    sys.exit(plan.get("rc", 0))


def side(name):
    on = name in given["rw"] or (given["name"] == "data" and name == "read")
    on = on and name not in plan.get("idle", ())
    rate = plan.get("rate", 5e9)
    return {
        "io_bytes": 1 << 30 if on else 0,
        "bw_bytes": int(rate) if on else 0,
        "iops": rate / 4096 if on else 0.0,
        "clat_ns": {"percentile": {"99.000000": 1500000}} if on else {"N": 0},
    }


error = plan.get("error", 0)
job = {"jobname": given["name"], "error": error, "read": side("read"), "write": side("write")}
print(json.dumps({"fio version": "fio-3.33", "jobs": [job]}, indent=2))
sys.exit(1 if error else 0)
"""


@pytest.fixture
def fio(tmp_path, run_module, monkeypatch):
    """`fio(plan, **options)` → the module's answer; scratch is a folder of the test."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    tool = tmp_path / "fio"
    tool.write_text(f"#!{sys.executable}\n{FAKE}")
    tool.chmod(0o755)
    real = ask_fio.place_of
    healthy = Place(100 * GIB, 200 * GIB, "/raid", "xfs")
    monkeypatch.setattr(
        ask_fio, "place_of", lambda folder: healthy if folder == str(scratch) else real(folder)
    )

    def run(plan=None, check=False, **params):
        (tmp_path / "plan.json").write_text(json.dumps(plan or {}))
        options = {"node": "n", "folder": str(scratch), "tool": str(tool), "seconds": 1, **params}
        answer = run_module(fio_check.main, options, check=check)
        assert not list(scratch.glob(".fio_check-*"))
        return answer

    run.scratch = scratch
    return run


def bad(answer):
    return {one["check"]: one for one in answer["records"] if one["status"] != "pass"}


def test_healthy_disks_pass_with_figures_and_sources(fio):
    answer = fio()
    assert answer["verdict"] == "pass", answer["findings"]
    found = {one["check"]: one for one in answer["records"]}
    assert set(found) == {
        "fio.data",
        "fio.write",
        "fio.read",
        "fio.random_read",
        "fio.random_write",
    }
    assert found["fio.write"]["measured"] == {"value": 5000.0, "unit": "MB/s"}
    assert found["fio.write"]["threshold"]["value"] == RATES["write_mb_s"].value
    assert "PCIe 3.0 x4" in found["fio.write"]["threshold"]["source"]
    assert found["fio.read"]["subject"] == f"mount:n{fio.scratch}"
    assert "99 % within 1.5 ms" in found["fio.random_read"]["evidence"][1]
    assert all(one["at"] for one in answer["records"])
    assert len(answer["commands"]) == 5


def test_questions_of_the_profile_win_and_are_cited(fio):
    answer = fio(
        thresholds={"read_mb_s": 6000, "write_iops": None}, threshold_source="profile dgx_x"
    )
    assert set(bad(answer)) == {"fio.read"}
    assert bad(answer)["fio.read"]["threshold"]["source"] == "profile dgx_x"
    assert answer["failed"] is True
    assert "fio.read" in answer["msg"]


def test_a_wrong_block_fails_and_ends_it(fio):
    answer = fio({"data": {"error": errno.EILSEQ, "stderr": "crc32c: verify failed at file x\n"}})
    assert set(bad(answer)) == {"fio.data"}
    assert bad(answer)["fio.data"]["status"] == "fail"
    assert "verify failed" in bad(answer)["fio.data"]["text"]
    assert len(answer["commands"]) == 1


def test_an_error_of_the_disk_fails(fio):
    answer = fio({"random_read": {"error": errno.EIO}})
    assert {check: one["status"] for check, one in bad(answer).items()} == {
        "fio.random_read": "fail"
    }
    assert bad(answer)["fio.random_read"]["remedy"].startswith("replace:")


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        ({"error": errno.ENOSPC}, "ENOSPC"),
        ({"error": errno.EINVAL}, "EINVAL"),
        ({"text": '{"fio version": "fio-3.33", "jobs": [{"jobna'}, "ended with 0"),
        ({"text": ""}, "no JSON"),
        ({"text": '{"jobs": []}'}, "no jobs"),
        ({"text": '{"jobs": [{"error": 0}]}'}, "lacks"),
        ({"stderr": "fio: something new\n"}, "something new"),
        ({"idle": ["read"]}, "MB/s"),
    ],
)
def test_what_says_nothing_of_the_disk_is_not_measured(fio, plan, text):
    answer = fio({"read": plan}, fail_on=["fail"])
    (record,) = bad(answer).values()
    assert (record["check"], record["status"]) == ("fio.read", "not_measured")
    assert text in str(record)


def test_data_that_was_not_read_back_is_not_called_healthy(fio):
    answer = fio({"data": {"idle": ["read"]}}, fail_on=["fail"])
    assert bad(answer)["fio.data"]["status"] == "not_measured"


def test_a_hang_is_ended_and_no_second_one_begun(fio, monkeypatch):
    monkeypatch.setattr(ask_fio, "plan", _impatient(ask_fio.plan))
    answer = fio({"write": {"sleep": 60}}, fail_on=["fail"])
    assert set(bad(answer)) == {"fio.write"}
    assert "did not end within" in bad(answer)["fio.write"]["text"]
    assert len(answer["commands"]) == 2


def _impatient(plan):
    def changed(*arguments):
        return [type(one)(one.name, one.argv, 1.5) for one in plan(*arguments)]

    return changed


def test_notes_before_the_json_are_passed_over(fio):
    assert (
        fio({"read": {"before": "note: both iodepth >= 1 and synchronous\n"}})["verdict"] == "pass"
    )


def test_without_fio_nothing_is_written(fio):
    answer = fio(tool="/none/fio", fail_on=["fail"])
    assert bad(answer)["fio.run"]["text"] == "/none/fio is not installed"
    assert answer["commands"] == []
    assert fio(tool="/none/fio")["failed"] is True


def test_a_folder_that_is_not_there(fio, monkeypatch, tmp_path):
    monkeypatch.undo()
    # run_module's own patches are gone, too: ask the part that looks.
    with pytest.raises(FileNotFoundError):
        ask_fio.place_of(str(tmp_path / "none"))
    here = ask_fio.place_of(str(tmp_path))
    assert here.total > here.free > 0
    assert os.path.ismount(here.mount)
    assert here.fstype


def test_a_mount_that_does_not_answer_is_not_measured(fio, monkeypatch, hung_mount):
    monkeypatch.setattr(ask_fio, "_LOOK_S", 0.5)
    begun = time.monotonic()
    answer = fio(folder=str(hung_mount / "scratch"))
    assert time.monotonic() - begun < 15
    assert answer["verdict"] == "not_measured"
    assert f"{hung_mount} (fuse.hung, storage:/dead) does not answer" in str(answer["records"])


def test_check_mode_writes_nothing(fio):
    answer = fio(check=True)
    assert len(answer["commands"]) == 5
    assert answer["verdict"] == "not_measured"
    assert not list(fio.scratch.iterdir())


def test_what_a_power_cut_left_is_removed_but_not_what_is_anothers(fio, tmp_path):
    old = fio.scratch / ".fio_check-old"
    old.mkdir()
    (old / "speed").write_bytes(b"x")
    elsewhere = tmp_path / "precious"
    elsewhere.mkdir()
    link = fio.scratch / ".fio_check-link"
    link.symlink_to(elsewhere)
    assert ask_fio.remove_old(str(fio.scratch)) == [str(old)]
    assert elsewhere.is_dir()
    assert link.is_symlink()
    link.unlink()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_killed_it_leaves_nothing(tmp_path, how):
    script = (
        "import signal, time\n"
        # As a shell starts it: nohup and CI may have this ignored.
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "from ansible_collections.baremetal.dgx.plugins.module_utils._storage "
        "import ask_fio\n"
        f"with ask_fio.own_folder({str(tmp_path)!r}) as own:\n"
        "    open(own + '/speed', 'w').write('x' * 9999)\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
    )
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        assert list(tmp_path.iterdir())
        process.send_signal(how)
        process.wait(10)
    deadline = time.monotonic() + 10
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list(tmp_path.iterdir())


SOUND = Place(100 * GIB, 200 * GIB, "/raid", "xfs")


@pytest.mark.parametrize(
    ("change", "allowed", "why"),
    [
        ({}, {}, ""),
        ({"mount": "/"}, {}, "root file system"),
        ({"mount": "/"}, {"root_ok": True}, ""),
        ({"fstype": "ceph"}, {}, "shared (ceph)"),
        ({"fstype": "nfs4"}, {"shared_ok": True}, ""),
        ({"fstype": "tmpfs"}, {}, "memory"),
        # A tenth of 200 GiB must be left.
        ({"free": 20 * GIB}, {}, "are free"),
        ({"free": 20 * GIB + 600 * MIB}, {}, ""),
        ({"free": 1 * GIB, "total": 2 * GIB}, {}, "are free"),
    ],
)
def test_where_it_may_write(change, allowed, why):
    place = Place(**{**vars(SOUND), **change})
    result = refuse(place, allowed.get("root_ok", False), allowed.get("shared_ok", False))
    assert (why in result) if why else not result


def test_it_never_fills_a_disk():
    for free in range(0, 200 * GIB, 3 * GIB + 7):
        place = Place(free, 200 * GIB, "/raid", "xfs")
        written = 2 * size_mib(place, 1 << 40) * MIB
        assert written <= free * 0.25
        assert not written or free - written >= 20 * GIB
    assert size_mib(SOUND, 8192) == 8192


def test_each_rate_has_unit_and_source():
    questions = questions_of({"read_iops": "250000"}, "mine")
    assert set(questions) == {question.check for question in RATES.values()}
    own = questions["fio.random_read"]
    assert (own.value, own.source) == (250000.0, "mine")
    assert {question.unit for question in questions.values()} == {"MB/s", "IOPS"}
    assert all(question.source for question in questions.values())


def test_rates_of_several_jobs_are_added_and_the_worst_time_counts():
    job = {
        "error": 0,
        "read": {"bw_bytes": 1500000, "iops": 10, "io_bytes": 5,
                 "clat_ns": {"percentile": {"99.000000": 2000000}}},
        "write": {"bw_bytes": 0, "iops": 0, "io_bytes": 0, "clat_ns": {"N": 0}},
    }  # fmt: skip
    slow = json.loads(json.dumps(job))
    slow["read"]["clat_ns"]["percentile"]["99.000000"] = 9000000
    found = parse(json.dumps({"fio version": "fio-3.36", "jobs": [job, slow]}))
    assert found.mb_s["read"] == 3.0
    assert found.iops["read"] == 20
    assert found.p99_ms["read"] == 9.0
    assert found.version == "fio-3.36"


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("fio"), reason="fio is not installed")
def test_the_real_one(tmp_path, run_module, monkeypatch):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    answer = run_module(
        fio_check.main,
        {
            "node": "n",
            "folder": str(tmp_path / "scratch"),
            "tool": shutil.which("fio"),
            "seconds": 1,
            "size_mib": 256,
            "root_ok": True,
            "thresholds": dict.fromkeys(RATES, 1),
        },
    )
    assert answer["verdict"] == "pass", answer["findings"]
    assert {one["measured"]["unit"] for one in answer["records"]} == {
        "wrong blocks",
        "MB/s",
        "IOPS",
    }
    assert not [*(tmp_path / "scratch").iterdir(), *(tmp_path / "here").iterdir()]


def test_no_files_in_a_folder_that_another_user_could_exchange(open_place, as_user):
    """Where all may write and nothing is sticky, root's folder could become a link."""
    assert as_user
    scratch = open_place / "scratch"
    scratch.mkdir()
    scratch.chmod(0o777)
    refused = pytest.raises(OSError, match="other users could exchange")
    with refused, ask_fio.own_folder(str(scratch)):
        pytest.fail("a folder was made")
    assert not list(scratch.iterdir())
    scratch.chmod(0o1777)
    with ask_fio.own_folder(str(scratch)) as own:
        assert os.stat(own).st_mode & 0o777 == 0o700


def test_a_users_folder_is_not_removed(open_place, as_user):
    open_place.chmod(0o1777)
    path = open_place / ".fio_check-mine"
    as_user(65532, path.mkdir)
    assert ask_fio.remove_old(str(open_place)) == []
    assert path.is_dir()
