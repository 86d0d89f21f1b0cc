# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import pwd
import time

import pytest
from slurm_clusters import CASES, FOLDER

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.conf import (
    rehearsal as _rehearsal,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.conf.render import render
from ansible_collections.baremetal.dgx.plugins.modules import slurm_config_check

LOGS = FOLDER.parent / "slurm_releases"
FILES = render(CASES["pod_2411_configless"])

# Prints what slurmctld printed in a real rehearsal, and keeps what it was given.
UNSHARE = """\
#!/bin/sh
here=$(dirname "$0")
for last; do case $last in */slurm-rehearsal-*) folder=$last ;; esac; done
rm -rf "$here/given"
cp -a "$folder" "$here/given"
[ ! -e "$here/no-namespaces" ] || { echo 'unshare failed: Operation not permitted' >&2; exit 1; }
cat "$here/log"
"""
SCONTROL = """\
#!/bin/sh
if grep -q '^FooBar=' "$SLURM_CONF"; then
  echo 'scontrol: error: _parse_next_key: Parsing error at unrecognized key: FooBar' >&2
  echo 'scontrol: fatal: Unable to process configuration file' >&2
  exit 1
fi
echo probe
"""


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A folder of stand-ins for the tools; the module finds them first."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, text in (
        ("unshare", UNSHARE),
        ("scontrol", SCONTROL),
        ("slurmctld", "#!/bin/sh\nexit 9\n"),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(_rehearsal, "_USER", pwd.getpwuid(os.getuid()).pw_name)
    return folder


@pytest.fixture
def rehearse(run_module, tools, tmp_path):
    """Runs the module against a slurmctld that prints what it printed in a real case."""

    def rehearse(case="good", release="24.11", check=False, **params):
        log = LOGS / f"{release}.{case}.txt"
        (tools / "log").write_text(log.read_text("utf-8"))
        values = {
            "files": FILES,
            "installed": str(tmp_path / "installed"),
            "names_resolve": False,
            **params,
        }
        return run_module(slurm_config_check.main, values, check)

    return rehearse


def scratch():
    return {name for name in os.listdir("/tmp") if name.startswith("slurm-rehearsal-")}


def assert_gone(before):
    """Nothing is left in /tmp; folders of tests beside this one go by themselves."""
    deadline = time.monotonic() + 10
    while scratch() - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert scratch() - before == set()


@pytest.mark.parametrize("check", [False, True])
def test_a_good_configuration_passes(rehearse, check):
    before = scratch()
    answer = rehearse(check=check)
    assert answer["rehearsed"] is True
    assert answer["findings"] == []
    assert answer["changed"] is False
    assert_gone(before)


@pytest.mark.parametrize("case", ["part_unknown_node", "topo_unknown_node", "topo_missing_file"])
@pytest.mark.parametrize("release", ["22.05", "26.05"])
def test_a_bad_one_fails_in_slurms_words(rehearse, case, release):
    answer = rehearse(case, release)
    assert answer["failed"] is True
    assert answer["findings"]
    assert answer["msg"].splitlines()[1:] == answer["findings"]


def test_what_scontrol_finds_does_not_reach_slurmctld(rehearse, tools):
    wrong = {**FILES, "slurm.conf": FILES["slurm.conf"] + "FooBar=1\n"}
    answer = rehearse(files=wrong)
    assert answer["findings"] == [
        "error: _parse_next_key: Parsing error at unrecognized key: FooBar",
        "fatal: Unable to process configuration file",
    ]
    assert not (tools / "given").exists()


def test_slurmctld_is_given_all_files_and_no_way_out(rehearse, tools, tmp_path):
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "job_submit.lua").write_text("return slurm.SUCCESS")
    (installed / "slurm.conf").write_text("the old one")
    (installed / "slurmdbd.conf").write_text("StoragePass=secret")
    (installed / "slurm.key").write_text("secret")
    (installed / "prolog.d").mkdir()
    rehearse()
    conf = tools / "given" / "conf"
    assert sorted(os.listdir(conf)) == sorted([*FILES, "job_submit.lua", "slurm.key"])
    assert (conf / "slurm.key").is_symlink()
    text = (conf / "slurm.conf").read_text("utf-8")
    assert "the old one" not in text
    assert "slurmdbd" not in text
    assert "SlurmctldHost=head-01" not in text
    assert (conf / "gres.conf").read_text("utf-8") == FILES["gres.conf"]
    assert " dgx-04\n" in (tools / "given" / "hosts").read_text("utf-8")
    assert (tools / "given" / "state").stat().st_mode & 0o777 == 0o700


def test_what_is_installed_has_been_rehearsed(rehearse, tools, tmp_path):
    installed = tmp_path / "installed"
    installed.mkdir()
    for name, text in FILES.items():
        (installed / name).write_text(text)
    answer = rehearse("part_unknown_node")
    assert answer["rehearsed"] is False
    assert answer["reason"] == f"the files are those in {installed}"
    assert not (tools / "given").exists()


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("missing", ["scontrol", "slurmctld"])
def test_a_missing_tool_measures_nothing(rehearse, tools, monkeypatch, missing, check):
    (tools / missing).unlink()
    if missing == "scontrol":
        monkeypatch.setattr(slurm_config_check.AnsibleModule, "get_bin_path", _without(missing))
    answer = rehearse(check=check)
    assert answer["rehearsed"] is False
    assert answer.get("failed", False) is not check
    assert f"{missing} is not installed" in answer["reason"]


def _without(missing):
    real = slurm_config_check.AnsibleModule.get_bin_path

    def get_bin_path(self, name, *args, **kwargs):
        return None if name == missing else real(self, name, *args, **kwargs)

    return get_bin_path


def test_a_host_that_forbids_namespaces_is_no_verdict(rehearse, tools):
    (tools / "no-namespaces").touch()
    answer = rehearse()
    assert answer["failed"] is True
    assert answer["rehearsed"] is False
    assert answer["findings"] == []
    assert "Operation not permitted" in answer["reason"]


def test_names_that_do_not_resolve_are_named(rehearse, monkeypatch):
    def getaddrinfo(name, port):
        if name == "dgx-03":
            raise OSError("unknown")

    monkeypatch.setattr(_rehearsal.socket, "getaddrinfo", getaddrinfo)
    answer = rehearse(names_resolve=True)
    assert answer["findings"] == [
        "dgx-03 does not resolve on this host; add it to /etc/hosts or the DNS"
    ]
    # in check mode /etc/hosts has not been written yet
    assert rehearse(names_resolve=True, check=True)["findings"] == []


def test_slurm_conf_must_be_there(rehearse):
    answer = rehearse(files={"gres.conf": ""})
    assert answer["msg"] == "files: slurm.conf is missing"
