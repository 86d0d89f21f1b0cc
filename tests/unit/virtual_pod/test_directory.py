# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pod's directory: its entries, and how the inventory names it."""

from __future__ import annotations

import re

import pytest

from .conftest import podlib

ceph = podlib("ceph")
demo = podlib("demo")
directory = podlib("directory")
host = podlib("host")
layout = podlib("layout")
people = podlib("people")
progress = podlib("progress")

TEXTS = {"ca.pem": "CA", "head-01.pem": "CERTIFICATE", "head-01.key": "KEY"}


def test_people_and_groups_have_numbers_of_their_own():
    found = list(directory.entries("ssh-ed25519 AAAA", 5000, 200))
    text = "\n".join(found)
    numbers = [int(one) for one in re.findall(r"uidNumber: (\d+)", text)]
    groups = [
        int(number)
        for one in found
        if "posixGroup" in one
        for number in re.findall(r"gidNumber: (\d+)", one)
    ]
    assert len(numbers) == len(set(numbers)) == 5003
    assert len(groups) == len(set(groups)) == 202
    # Slurm's roles and services of distributions have those from 60000 to 65535.
    assert not set(numbers + groups) & set(range(60000, 65536))
    members = re.findall(r"memberUid: (p\d+)", text)
    assert len(members) == len(set(members)) == 5000, "everyone is in one group"


@pytest.mark.parametrize("storage", [True, False])
def test_homes_are_shared_where_there_is_storage(storage):
    pod = layout.resolve(layout.Request("demo", nodes=2, storage=storage), None)
    files = directory.variables(pod, TEXTS)
    identity = files["group_vars/all/directory.yml"]
    assert identity["identity_ca"] == "CA"
    assert ("identity_home" in identity) is storage
    assert ("group_vars/storage_nodes/home_quotas.yml" in files) is storage
    rest = files["group_vars/slurm_controllers/slurm_rest.yml"]
    assert rest["slurm_rest_tls"] == {"certificate": "CERTIFICATE", "key": "KEY"}


def test_the_demo_has_a_directory_where_it_is_asked_for(monkeypatch):
    assert not demo._parse([]).identity
    assert demo._parse(["--identity"]).identity
    monkeypatch.setenv("IDENTITY", "1")
    assert demo._parse([]).identity


SEEN = "0::/system.slice/slurmstepd.scope/job_7/step_extern\n" + "\n".join(
    f"nvidia{number}: {'No such device' if number < 2 else 'Operation not permitted'}"
    for number in range(8)
)
GOOD = {
    "id -un": "carol\npeople hpc\n/home/carol",
    "sbatch": "7",
    "squeue": "7",
    "cgroup": SEEN,
    "version": "slurm 24.11.5",
    "urlopen": '{"jobs": [{"job_state": ["RUNNING"]}]}',
    "scancel": "",
}


@pytest.mark.parametrize(
    ("key", "answer", "message"),
    [
        ("", "", ""),
        ("id -un", "carol\npeople\n/home/carol", "carol is"),
        ("cgroup", SEEN.replace("job_7", "user-20001"), "is not in job 7"),
        ("cgroup", SEEN.replace("Operation not permitted", "No such device"), "kept from 0 GPUs"),
        ("urlopen", '{"jobs": [{"job_state": ["PENDING"]}]}', "slurmrestd says"),
    ],
)
def test_what_a_person_must_see(tmp_path, monkeypatch, key, answer, message):
    answers = {**GOOD, **({key: answer} if key else {})}

    def user(_self, command, timeout_s=240, node="login-01", name="alice"):
        assert name == "carol"
        return next(text for key, text in reversed(answers.items()) if key in command)

    pod = layout.resolve(layout.Request("demo", nodes=2), None)
    monkeypatch.setattr(demo.Demo, "user", user)
    monkeypatch.setattr(demo.Demo, "pod", lambda _self: pod)
    monkeypatch.setattr(people, "refused", lambda *_arguments: None)
    monkeypatch.setattr(host, "wait_until", lambda what, test, *_times: test() or pytest.fail(what))
    run = demo.Demo(progress.Progress("t"), "demo", tmp_path, {})
    if not message:
        people.use_people(run)
        return
    with pytest.raises(layout.PodError, match=message):
        people.use_people(run)
