# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module against an nvidia-smi that keeps the modes of three GPUs in files."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._driver import states
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.host import parse_instances
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.settings import (
    Gpu,
    compare,
    layout_of,
    parse_modes,
)
from ansible_collections.baremetal.dgx.plugins.modules import gpu_settings

TOOL = """\
#!/bin/sh
here="$(dirname "$0")"
case "$1" in
--query-gpu=*) test -e "$here/gone" && { echo "No devices were found"; exit 6; }
    for n in 0 1 2; do
      mig=$(cat "$here/mig.$n")
      echo "$n, 00000000:0$n:00.0, Enabled, $(cat "$here/ecc.$n"), $mig, $mig"
    done ;;
-L) cat "$here/list" ;;
-i) test "$3" = -e || exit 9
    test "$4" = 1 && echo Enabled > "$here/ecc.$2" || echo Disabled > "$here/ecc.$2" ;;
*) exit 9 ;;
esac
"""
SCONTROL = """\
echo "$@" >> "$here/scontrol.log"
case $2 in reservation) exit 0 ;; esac
echo "NodeName=dgx-02 State=IDLE ThreadsPerCore=2"
"""
LIST = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1)
GPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-2)
  MIG 3g.40gb     Device  0: (UUID: MIG-a)
  MIG 1g.10gb     Device  1: (UUID: MIG-b)
"""


@pytest.fixture
def gpus(tmp_path, monkeypatch, run_module):
    (tmp_path / "nvidia-smi").write_text(TOOL)
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "list").write_text(LIST)
    (tmp_path / "proc").mkdir()
    for number in range(3):
        (tmp_path / f"ecc.{number}").write_text("Enabled")
        (tmp_path / f"mig.{number}").write_text("Enabled" if number == 2 else "Disabled")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def run(check=False, **params):
        return run_module(gpu_settings.main, {"proc": str(tmp_path / "proc"), **params}, check)

    run.folder = tmp_path
    return run


def test_what_is_as_declared(gpus):
    answer = gpus(ecc="on", mig=[{"gpus": [2], "profiles": ["1g.10gb", "3g.40gb"]}])
    assert answer["differences"] == answer["reset_pending"] == []
    assert answer["changed"] is False


def test_ecc_needs_consent_and_a_reset(gpus):
    answer = gpus(ecc="off")
    assert [one["gpu"] for one in answer["differences"]] == [0, 1, 2]
    assert answer["changed"] is False
    rehearsal = gpus(check=True, ecc="off", ecc_allowed=True)
    assert rehearsal["changed"] is True
    assert (gpus.folder / "ecc.0").read_text() == "Enabled"
    answer = gpus(ecc="off", ecc_allowed=True)
    assert answer["changed"] is True
    assert answer["diff"] == rehearsal["diff"]
    assert {one["after"] for one in answer["reset_pending"]} == {"off"}
    again = gpus(ecc="off", ecc_allowed=True)
    assert (again["changed"], again["differences"]) == (False, [])
    assert len(again["reset_pending"]) == 3


def test_not_under_a_job(gpus):
    (gpus.folder / "proc/7").mkdir()
    (gpus.folder / "proc/7/cmdline").write_bytes(b"slurmstepd: [12.0]\0")
    answer = gpus(ecc="off", ecc_allowed=True)
    assert answer["failed"]
    assert "job steps run here (12.0)" in answer["msg"]
    assert (gpus.folder / "ecc.0").read_text() == "Enabled"


def test_slurm_is_asked_where_something_waits(gpus, monkeypatch):
    """A job could start during the reboot."""
    monkeypatch.setattr(states, "short_name", lambda: "dgx-02")
    for name, text in {"scontrol": SCONTROL, "squeue": "exit 0\n"}.items():
        (gpus.folder / name).write_text(f'#!/bin/sh\nhere="$(dirname "$0")"\n{text}')
        (gpus.folder / name).chmod(0o755)
    assert gpus(ecc="on")["in_service"] == ""
    assert not (gpus.folder / "scontrol.log").exists(), "a thousand nodes ask one controller"
    serving = "dgx-02 is in service in Slurm (IDLE)"
    assert gpus(ecc="off")["in_service"] == serving
    assert gpus(mig=[{"profiles": []}])["in_service"] == serving
    pending = gpus(ecc="off", ecc_allowed=True)
    assert len(pending["reset_pending"]) == 3
    assert pending["in_service"] == serving


def test_mig_is_compared_and_left_alone(gpus):
    answer = gpus(
        mig=[{"profiles": ["7g.80gb"]}, {"gpus": [1, 2], "profiles": []}], ecc_allowed=True
    )
    assert [(one["gpu"], one["before"], one["after"]) for one in answer["differences"]] == [
        (0, "off", "7g.80gb"),
        (2, "1g.10gb, 3g.40gb", "off"),
    ]
    assert answer["changed"] is False


def test_no_gpu_is_said(gpus):
    (gpus.folder / "gone").write_text("")
    answer = gpus(ecc="on")
    assert answer["failed"]
    assert "No devices were found" in answer["msg"]


@pytest.mark.parametrize(
    ("mig", "message"),
    [
        ([{"gpus": [3], "profiles": []}], "there are 3 GPUs"),
        ([{"gpus": [0], "profiles": []}, {"gpus": [0], "profiles": []}], "two MIG layouts"),
        ([{"gpus": [0], "profiles": ["small"]}], "not a MIG profile"),
    ],
)
def test_layouts_that_cannot_be(gpus, mig, message):
    answer = gpus(mig=mig)
    assert answer["failed"]
    assert message in answer["msg"]


def test_forms_of_the_answer():
    line = "0, 00000000:1B:00.0, [N/A], [N/A], [N/A], [N/A]\n"
    assert parse_modes(line) == [Gpu(0, "00000000:1b:00.0")]
    with pytest.raises(ValueError, match="nvidia-smi says"):
        parse_modes("Failed to initialize NVML: Driver/library version mismatch\n")
    assert parse_instances(LIST) == {0: (), 1: (), 2: ("1g.10gb", "3g.40gb")}
    _wrong, _pending, cannot = compare(
        parse_modes(line), "on", layout_of([{"profiles": ["1g.5gb"]}], 1)
    )
    assert cannot == [
        "GPU 0 (00000000:1b:00.0) has no ECC mode",
        "GPU 0 (00000000:1b:00.0) has no MIG",
    ]


@pytest.mark.parametrize("word", ["[Unknown Error]", "[GPU requires reset]", "[GPU is lost]"])
def test_a_mode_that_cannot_be_read_is_neither_on_nor_off(gpus, word):
    for setting, name in (("ecc", "its ECC mode"), ("mig", "MIG")):
        before = (gpus.folder / f"{setting}.1").read_text()
        (gpus.folder / f"{setting}.1").write_text(word)
        answer = gpus(ecc="on", ecc_allowed=True, mig=[{"gpus": [1], "profiles": []}])
        assert answer["msg"] == f"GPU 1 (00000000:01:00.0): nvidia-smi says '{word}' of {name}"
        assert (gpus.folder / f"{setting}.1").read_text() == word
        # What is not declared is not asked.
        answer = gpus(mig=[] if setting == "mig" else [{"gpus": [1], "profiles": []}])
        assert answer["differences"] == []
        (gpus.folder / f"{setting}.1").write_text(before)


def test_a_mode_that_waits_for_a_reset():
    gpu = Gpu(0, "1b:00.0", "on", "on", "off", "on")
    wrong, pending, _cannot = compare([gpu], "keep", {0: ("1g.10gb",)})
    assert wrong == []
    assert pending[0].after == "1g.10gb"
