# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module against a mlxconfig that keeps its settings in files."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.modules import mlxconfig

TOOL = """\
#!/bin/sh
# -d DEVICE [-e] query | -d DEVICE --yes set NAME=VALUE...
store="$(dirname "$0")/$2"; shift 2
test -d "$store" || { echo "-E- Failed to open the device"; exit 3; }
case "$1" in
-e) echo "Configurations:      Default     Current     Next Boot"
    for f in "$store"/*; do
      echo "        $(basename "$f")   $(cat "$store/../default")   $(cat "$f.now" 2>/dev/null || cat "$store/../default")   $(cat "$f")"
    done ;;
--yes) shift 2
    for pair in "$@"; do printf %s "${pair#*=}" > "$store/${pair%%=*}"; done ;;
*) exit 9 ;;
esac
"""  # noqa: E501
ONE, TWO = "0000:18:00.0", "0000:40:00.0"


@pytest.fixture
def adapters(run_module, tmp_path, monkeypatch):
    """Runs the module; `values(device)` reads what is stored."""
    (tmp_path / "mlxconfig").write_text(TOOL)
    (tmp_path / "mlxconfig").chmod(0o755)
    (tmp_path / "default").write_text("0")
    for device in (ONE, TWO):
        (tmp_path / device).mkdir()
        for name in ("SRIOV_EN", "NUM_OF_VFS"):
            (tmp_path / device / name).write_text("0")
    (tmp_path / ONE / "SRIOV_EN").write_text("1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def run(check=False, devices=(ONE, TWO), **params):
        return run_module(mlxconfig.main, {"devices": list(devices), **params}, check)

    run.folder = tmp_path
    return run


def test_without_consent_nothing_is_set(adapters):
    answer = adapters(settings={"SRIOV_EN": False})
    assert answer["changed"] is False
    assert "not set without set_allowed" in answer["msg"]
    assert answer["differences"] == [
        {"device": ONE, "setting": "SRIOV_EN", "before": "1", "after": "0"}
    ]
    assert (adapters.folder / ONE / "SRIOV_EN").read_text() == "1"


def test_check_mode_tells_what_the_run_does(adapters):
    rehearsal = adapters(check=True, settings={"SRIOV_EN": False}, set_allowed=True)
    assert (adapters.folder / ONE / "SRIOV_EN").read_text() == "1"
    answer = adapters(settings={"SRIOV_EN": False}, set_allowed=True)
    assert rehearsal["changed"] is answer["changed"] is True
    assert rehearsal["diff"] == answer["diff"]
    assert (adapters.folder / ONE / "SRIOV_EN").read_text() == "0"
    again = adapters(settings={"SRIOV_EN": False}, set_allowed=True)
    assert again["changed"] is False
    assert again["differences"] == again["reset_pending"] == []


def test_a_reset_is_pending(adapters):
    answer = adapters(settings={"NUM_OF_VFS": 8}, set_allowed=True, devices=["40:00.0"])
    assert answer["reset_pending"] == [
        {"device": TWO, "setting": "NUM_OF_VFS", "before": "0", "after": "8"}
    ]


def test_an_unknown_setting_changes_nothing_anywhere(adapters):
    (adapters.folder / TWO / "NUM_OF_VFS").unlink()
    answer = adapters(settings={"SRIOV_EN": 0, "NUM_OF_VFS": 4}, set_allowed=True)
    assert answer["failed"]
    assert answer["msg"].startswith(f"{TWO}: NUM_OF_VFS: not among")
    assert (adapters.folder / ONE / "SRIOV_EN").read_text() == "1"


def test_what_the_adapter_did_not_take(adapters):
    path = adapters.folder / "mlxconfig"
    path.write_text(TOOL.replace('> "$store/${pair%%=*}"', "> /dev/null"))
    answer = adapters(settings={"SRIOV_EN": 0}, set_allowed=True)
    assert answer["failed"]
    assert "reports success, but SRIOV_EN is 1" in answer["msg"]


def test_no_device_and_no_tool(adapters):
    assert "Failed to open" in adapters(devices=["aa:00.0"])["msg"]
    (adapters.folder / "mlxconfig").unlink()
    answer = adapters()
    assert answer["failed"]
    assert "install mstflint" in answer["msg"]
    # on a virgin host an earlier task has only pretended to install it
    assert adapters(check=True)["changed"] is False


def test_a_release_that_knows_only_one_column(adapters):
    text = TOOL.replace(
        '-e) echo "Conf', '-e) echo "unknown option -e"; exit 1 ;;\nquery) echo "Conf'
    )
    text = text.replace("Default     Current     ", "").replace(
        '$(cat "$store/../default")   $(cat "$f.now" 2>/dev/null || cat "$store/../default")', ""
    )
    (adapters.folder / "mlxconfig").write_text(text)
    answer = adapters(settings={"SRIOV_EN": 0}, set_allowed=True)
    assert answer["changed"] is True
    assert answer["reset_unknown"] == [ONE, TWO]
    assert answer["reset_pending"] == []
