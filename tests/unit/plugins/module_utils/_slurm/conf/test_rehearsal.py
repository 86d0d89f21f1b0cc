# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
from pathlib import Path

import pytest
from checkout import FIXTURES
from slurm_clusters import CASES, names

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.conf.rehearsal import (
    ACCEPTED,
    ADDRESS,
    SCRIPT,
    alone,
    compact,
    host_names,
    hosts_file,
    judge,
    lay,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.conf.render import render

SLURM = 65531
RELEASES = ("22.05", "23.11", "24.11", "25.11", "26.05")


def log(release: str, case: str) -> str:
    """What slurmctld of that release logged in a rehearsal."""
    folder = FIXTURES / "slurm_releases"
    return (folder / f"{release}.{case}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("release", RELEASES)
def test_a_good_configuration_passes_in_every_release(release: str) -> None:
    verdict = judge(log(release, "good"))
    assert verdict.findings == ()
    assert verdict.remarks == ()


@pytest.mark.parametrize("release", RELEASES)
def test_a_fatal_mistake_is_found_in_every_release(release: str) -> None:
    assert judge(log(release, "part_unknown_node")).findings == (
        'error: _find_node_record: lookup failure for node "dgx-99"',
        "fatal: Invalid node names in partition p2",
    )


@pytest.mark.parametrize("release", RELEASES)
def test_a_mistake_that_slurmctld_swallows_is_found(release: str) -> None:
    text = log(release, "topo_unknown_node")
    assert ACCEPTED in text
    assert 'error: _find_node_record: lookup failure for node "dgx-77"' in judge(text).findings


@pytest.mark.parametrize("release", RELEASES)
def test_one_that_waits_for_a_file_is_named(release: str) -> None:
    (finding,) = judge(log(release, "topo_missing_file")).findings
    assert "cannot stat file /tmp/c/topology.conf" in finding


def test_silence_is_no_consent() -> None:
    assert judge("").findings == ("slurmctld ended, or hung, without a reason",)
    assert judge("slurmctld: slurmctld version 24.11.5 started\nENDED\n").findings


def test_other_errors_are_remarks() -> None:
    text = f"slurmctld: error: Something new\nslurmctld: {ACCEPTED}\n"
    assert judge(text).remarks == ("error: Something new",)


@pytest.mark.parametrize("name", CASES)
def test_alone_it_reaches_none(name: str) -> None:
    text = alone(render(CASES[name])["slurm.conf"], "here", "/scratch/state")
    lines = text.splitlines()
    assert not [line for line in lines if line.startswith(("Accounting", "Priority"))]
    assert [line for line in lines if line.startswith("SlurmctldHost=")] == [
        f"SlurmctldHost=here({ADDRESS})"
    ]
    assert [line for line in lines if line.startswith("StateSaveLocation=")] == [
        "StateSaveLocation=/scratch/state"
    ]
    assert "SlurmctldLogFile" not in text
    assert "QOS=" not in text


def test_alone_keeps_what_is_to_be_read() -> None:
    given = CASES["pod_2411_configless"]
    before = render(given)["slurm.conf"].splitlines()
    after = alone("\n".join(before), "here", "/scratch").splitlines()
    gone = [line.split("=")[0] for line in before if line not in after]
    assert gone == [
        "SlurmctldHost",
        "StateSaveLocation",
        "SlurmctldLogFile",
        "PriorityType",
        "PriorityWeightQOS",
        "PriorityWeightFairshare",
        "PriorityWeightAge",
        "AccountingStorageType",
        "AccountingStorageHost",
        "AccountingStorageTRES",
        "AccountingStorageEnforce",
        "PartitionName",
    ]
    assert "PartitionName=debug Nodes=ALL State=UP MaxTime=00:30:00 PriorityTier=10" in after


def test_partition_keys_from_the_database_go_wherever_they_stand() -> None:
    line = "PartitionName=p Nodes=ALL qos=a AllowQos=b,c MaxNodes=4 TRESBillingWeights=GRES/gpu=2"
    assert alone(line, "here", "/s").splitlines()[0] == "PartitionName=p Nodes=ALL MaxNodes=4"


def test_host_names() -> None:
    text = """\
# NodeName=not-this
SlurmctldHost=head-01(10.0.0.11)
SlurmctldHost=head-02
NodeName=DEFAULT CPUs=2
NodeName=dgx-[01-02,04] CPUs=224
 nodename=old NodeHostname=old-host NodeAddr=10.0.0.5
PartitionName=p Nodes=ALL
"""
    found = host_names(text)
    assert sorted(found) == ["dgx-01", "dgx-02", "dgx-04", "head-01", "head-02", "old", "old-host"]


def test_every_name_is_this_host() -> None:
    names_of_pod = host_names(render(CASES["pod_2411_configless"])["slurm.conf"])
    lines = hosts_file(names_of_pod, "here").splitlines()
    assert lines[0] == "127.0.0.1 localhost"
    assert {line.split()[1] for line in lines[1:]} == {"here", "head-01", *names(4)}
    assert {line.split()[0] for line in lines[1:]} == {ADDRESS}


def test_the_script_has_its_values() -> None:
    assert "@" not in SCRIPT
    assert ACCEPTED in SCRIPT


def test_a_copy_is_open_to_no_more_users_than_its_source(tmp_path: Path) -> None:
    """acct_gather.conf holds the password of InfluxDB."""
    installed, folder = tmp_path / "installed", tmp_path / "conf"
    installed.mkdir()
    for name, mode in {
        "acct_gather.conf": 0o600,
        "job_submit.lua": 0o644,
        "init.sh": 0o750,
    }.items():
        (installed / name).write_text(name)
        (installed / name).chmod(mode)
    if os.geteuid() == 0:
        os.chown(installed / "acct_gather.conf", SLURM, SLURM)
    lay(str(folder), {"slurm.conf": "x"}, str(installed))
    assert (folder / "slurm.conf").stat().st_mode & 0o777 == 0o644
    for path in installed.iterdir():
        copied, found = (folder / path.name).stat(), path.stat()
        assert (folder / path.name).read_text() == path.name
        assert (copied.st_mode, copied.st_uid, copied.st_gid) == (
            found.st_mode, found.st_uid, found.st_gid,
        )  # fmt: skip


def test_compact() -> None:
    assert compact(["a", "b"], 2) == ["a", "b"]
    assert compact(["a", "b", "c"], 2) == ["a", "b", "and 1 more"]
