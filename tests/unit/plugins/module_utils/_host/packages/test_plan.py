# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._host.packages.plan import (
    Package,
    Wanted,
    is_locked,
    is_unknown,
    make_plan,
    needs_update,
    parse_dpkg,
    parse_rpm,
    parse_simulation,
    parse_wanted,
    surplus_removals,
)

DPKG = (
    "ii \tchrony\t4.6-1\n"
    "hi \tslurmd\t24.11.5-4\n"
    "rc \tntp\t\n"
    "iU \tunpacked\t1\n"
    "iF \thalf\t1\n"
    "iHR\tbroken\t1\n"
    "it \ttriggers\t1\n"
    "ii \tlibc6\t2.41\n"
    "iU \tlibc6\t2.41\n"
    "nonsense\n"
)


def test_parse_dpkg():
    packages = parse_dpkg(DPKG)
    assert packages["chrony"] == Package("chrony", "4.6-1")
    assert packages["slurmd"].held
    assert not packages["ntp"].installed
    assert {name for name, package in packages.items() if package.unfinished} == {
        "unpacked", "half", "broken", "triggers", "libc6",
    }  # fmt: skip
    assert packages["libc6"].installed


def test_parse_rpm():
    locks = "# comment\nslurm-0:23.11.1-1.el9.*\nnvidia-driver-cuda-3:570.1-1.el9.*\n!slurm-x\n"
    text = "slurm\t23.11.1-1.el9\nnvidia-driver-cuda\t570.1-1.el9\nslurmx\t1-1\n"
    packages = parse_rpm(text, locks)
    assert {name: package.held for name, package in packages.items()} == {
        "slurm": True, "nvidia-driver-cuda": True, "slurmx": False,
    }  # fmt: skip
    assert packages["slurm"].version == "23.11.1-1.el9"


def test_parse_wanted():
    assert parse_wanted(["a", " b = 1.2* "]) == [Wanted("a"), Wanted("b", "1.2*")]


def plan(present=(), absent=(), held=(), unheld=(), packages=None):
    found = parse_dpkg(DPKG) if packages is None else packages
    return make_plan(found, parse_wanted(present), absent, held, unheld)


def test_nothing_to_do():
    packages = {"chrony": Package("chrony", "4.6-1", held=True)}
    done = plan(["chrony", "chrony=4.6*"], ["ntp"], ["chrony"], ["other"], packages)
    assert done.actions == ()


def test_everything_in_order():
    done = plan(["jq", "chrony=5*"], ["slurmd", "never"], ["chrony", "none"], ["slurmd"])
    assert done.actions == (
        "finish broken", "finish half", "finish libc6", "finish triggers", "finish unpacked",
        "release slurmd", "remove slurmd", "install jq", "install chrony 5*", "hold chrony",
    )  # fmt: skip
    # a version beside a hold is meant to replace what is held
    assert done.change_held


def test_removed_configuration_counts_as_not_installed():
    assert plan(["ntp"], packages=parse_dpkg("rc \tntp\t\n")).install == (Wanted("ntp"),)
    assert plan(absent=["ntp"], packages=parse_dpkg("rc \tntp\t\n")).actions == ()


def test_architecture_of_a_name():
    assert plan(["libc6:amd64"], packages=parse_dpkg("ii \tlibc6\t2\n")).actions == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"present": ["a"], "absent": ["a"]}, "package a is declared to be both installed and rem"),
        ({"held": ["a"], "unheld": ["a"]}, "both held and released"),
        ({"held": ["a"], "absent": ["a"]}, "both held and removed"),
        ({"present": ["-oRoot=/"]}, "'-oRoot' is not a package name"),
        ({"absent": ["a b"]}, "'a b' is not a package name"),
    ],
)
def test_contradictions(options, message):
    assert message in plan(**options).errors[0]


SIMULATION = """NOTE: This is only a simulation!
Remv systemd-timesyncd [257.9] []
Inst chrony (4.6.1 Debian:13.1/stable [amd64])
Conf chrony (4.6.1 Debian:13.1/stable [amd64])
Purg old:amd64 [1]
"""


def test_simulation():
    installs, removes = parse_simulation(SIMULATION)
    assert installs == ["chrony"]
    assert removes == ["systemd-timesyncd", "old:amd64"]
    assert surplus_removals(removes, ["systemd-timesyncd"]) == ["old:amd64"]
    assert surplus_removals(removes, ["systemd-timesyncd", "old"]) == []


@pytest.mark.parametrize(
    "text",
    [
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1 (apt)",
        "dpkg: error: dpkg frontend lock was locked by another process with pid 1",
        "E: Unable to acquire the dpkg frontend lock, is another process using it?",
        "E: Unable to lock directory /var/lib/apt/lists/",
    ],
)
def test_locks_are_recognised(text):
    assert is_locked(text)
    assert not is_unknown(text)


@pytest.mark.parametrize(
    "text",
    [
        "E: Unable to locate package jq",
        "E: Package 'jq' has no installation candidate",
        "E: Version '9' for 'jq' was not found",
        "Err:1 http://x y\n  404  Not Found [IP: 10.0.0.1 80]",
    ],
)
def test_old_lists_are_recognised(text):
    assert is_unknown(text)
    assert not is_locked(text)


@pytest.mark.parametrize(
    ("updated", "sources", "needed"),
    [
        (0, 0, True),
        (900, 0, False),
        (900, 950, True),
        (100, 50, True),
        (900, 900, False),
        # Fetched while the clock was ahead: they would be fresh until then.
        (9000, 0, True),
    ],
)
def test_needs_update(updated, sources, needed):
    assert needs_update(1000, updated, sources, 500) is needed
