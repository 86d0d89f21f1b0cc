# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""runtime_settings on files that stand for the kernel's, and a systemd that is made up."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ENDED, CommandResult
from ansible_collections.baremetal.dgx.plugins.module_utils._host import runtime as _runtime
from ansible_collections.baremetal.dgx.plugins.modules import runtime_settings


class Systemd:
    """Shows defaults; takes those of its file at daemon-reload, or only when re-executed."""

    def __init__(self):
        self.shows = {"DefaultLimitMEMLOCK": "8388608", "DefaultLimitMEMLOCKSoft": "8388608"}
        self.file = {"DefaultLimitMEMLOCK": "infinity", "DefaultLimitMEMLOCKSoft": "infinity"}
        self.takes_at = "daemon-reload"
        self.log = []

    def __call__(self, argv, timeout_s=30, env=None):
        self.log.append(argv[1])
        out = ""
        if argv[1] == "show":
            names = [word.split("=")[1] for word in argv[2:]]
            out = "".join(f"{name}={self.shows[name]}\n" for name in names if name in self.shows)
        elif argv[1] == self.takes_at:
            self.shows = dict(self.file)
        return CommandResult(tuple(argv), ENDED, 0, out)


@pytest.fixture
def kernel(monkeypatch, tmp_path):
    """The folder in the place of /proc/sys; `vm/swappiness` is 60."""
    (tmp_path / "vm").mkdir()
    (tmp_path / "vm" / "swappiness").write_text("60\n")
    (tmp_path / "vm" / "row").write_text("1\t2\t3\n")
    names = ["old-name"]
    monkeypatch.setattr(_runtime, "sysctl_path", lambda key: str(tmp_path / key.replace(".", "/")))
    monkeypatch.setattr(_runtime.socket, "gethostname", lambda: names[-1])
    monkeypatch.setattr(_runtime.socket, "sethostname", names.append, raising=False)
    return tmp_path


@pytest.fixture
def systemd(monkeypatch):
    model = Systemd()
    monkeypatch.setattr(runtime_settings, "ModuleRunner", lambda module: model)
    return model


@pytest.fixture
def bring(run_module, kernel, systemd):
    def run(check=False, **params):
        return run_module(runtime_settings.main, params, check=check)

    return run


def huge_pages(folder):
    path = folder / "enabled"
    path.write_text("[always] madvise never\n")
    return {"name": "huge pages", "path": str(path), "value": "madvise"}


def test_check_then_real_then_again(bring, kernel):
    governors = []
    for number in (0, 1):
        (kernel / f"cpu{number}").mkdir()
        (kernel / f"cpu{number}" / "governor").write_text("powersave\n")
        governors.append(str(kernel / f"cpu{number}" / "governor"))
    params = {
        "hostname": "dgx-01",
        "sysctl": {"vm.swappiness": 1, "vm.row": "1 2 3"},
        "sysfs": [
            {"name": "governor", "path": f"{kernel}/cpu[0-9]*/governor", "value": "performance"}
        ],
        "manager": {"DefaultLimitMEMLOCK": "infinity"},
    }
    predicted = bring(check=True, **params)
    assert (kernel / "vm" / "swappiness").read_text() == "60\n"
    done = bring(**params)
    subjects = [change["subject"] for change in done["changes"]]
    assert sorted(subjects) == sorted(change["subject"] for change in predicted["changes"])
    assert set(subjects) == {
        "host name", "vm.swappiness", *governors, "DefaultLimitMEMLOCK", "DefaultLimitMEMLOCKSoft",
    }  # fmt: skip
    assert (kernel / "vm" / "swappiness").read_text() == "1\n"
    assert "vm.swappiness is 60, wanted 1" in predicted["msg"]
    again = bring(**params)
    assert again["changed"] is False
    assert again["changes"] == []


def test_a_missing_parameter(bring):
    answer = bring(sysctl={"vm.none": 1})
    assert answer["failed"] is True
    assert answer["msg"].startswith("this kernel does not have vm.none")
    answer = bring(sysctl={"vm.none": 1}, sysctl_required=False)
    assert answer["changed"] is False
    assert answer["not_applicable"] == [
        {"subject": "vm.none", "reason": "this kernel does not have it"}
    ]


def test_a_parameter_the_kernel_refuses(bring, kernel, monkeypatch):
    monkeypatch.setattr(_runtime, "write", lambda path, value: "Invalid argument")
    answer = bring(sysctl={"vm.swappiness": 1})
    assert answer["msg"] == "vm.swappiness cannot become 1: Invalid argument"
    answer = bring(sysctl={"vm.swappiness": 1}, sysctl_required=False)
    assert answer["changed"] is False
    assert answer["not_applicable"][0]["subject"] == "vm.swappiness"


def test_a_value_the_kernel_rounds(bring, kernel, monkeypatch):
    really = _runtime.write
    monkeypatch.setattr(_runtime, "write", lambda path, value: really(path, "4"))
    answer = bring(sysctl={"vm.swappiness": 5})
    assert answer["msg"] == "vm.swappiness cannot become 5: the kernel made it 4"


def test_sysfs_of_another_machine_does_not_apply(bring, kernel):
    entry = {"name": "governor", "path": f"{kernel}/none*", "value": "performance"}
    answer = bring(sysfs=[entry])
    assert answer["changed"] is False
    assert answer["not_applicable"][0]["subject"] == "governor"


def test_sysfs_that_cannot_be_written_fails(bring, kernel, monkeypatch):
    entry = huge_pages(kernel)
    monkeypatch.setattr(_runtime, "write", lambda path, value: "Read-only file system")
    answer = bring(sysfs=[entry], sysctl_required=False)
    assert answer["msg"] == f"{entry['path']} cannot become madvise: Read-only file system"


def test_choices_in_brackets(bring, kernel):
    entry = huge_pages(kernel)
    changes = bring(check=True, sysfs=[entry])["changes"]
    assert changes == [{"subject": entry["path"], "before": "always", "after": "madvise"}]
    (kernel / "enabled").write_text("always [madvise] never\n")
    assert bring(sysfs=[entry])["changed"] is False


def test_old_systemd_is_executed_again(bring, systemd):
    systemd.takes_at = "daemon-reexec"
    assert bring(manager={"DefaultLimitMEMLOCK": "infinity"})["changed"] is True
    assert systemd.log == ["show", "daemon-reload", "show", "daemon-reexec", "show"]


def test_a_file_that_wins_over_ours_is_an_error(bring, systemd):
    systemd.takes_at = "never"
    answer = bring(manager={"DefaultLimitMEMLOCK": "infinity"})
    assert "some other file does: DefaultLimitMEMLOCK is 8388608, wanted infinity" in answer["msg"]


def test_a_setting_that_systemd_does_not_know(bring):
    assert "systemd has no setting Defaults" in bring(manager={"Defaults": "1"})["msg"]


def test_nothing_asked_nothing_run(bring, systemd):
    answer = bring()
    assert answer["changed"] is False
    assert isinstance(answer["can_set_clock"], bool)
    assert systemd.log == []
