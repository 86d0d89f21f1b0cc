# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.releases import (
    _KEYS,
    _PARTITION_KEYS,
    FEATURES,
    RENAMED,
    RESTART_KEYS,
    VALUES,
    VERSIONS,
    has,
    is_since,
    judge_key,
    judge_values,
    release,
    spell,
)

MEASURED = ("22.05", "23.11", "24.11", "25.11", "26.05")


def measured_keys() -> list[tuple[bool, str, set[str]]]:
    text = (FIXTURES / "slurm_releases" / "keys.txt").read_text(encoding="utf-8")
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return [(row[0] == "part", row[1], set(row[2:])) for row in rows]


def test_versions_rise() -> None:
    assert list(VERSIONS) == sorted(VERSIONS, key=release)
    assert set(FEATURES.values()) <= set(VERSIONS)


def test_there_is_something_measured() -> None:
    assert len(measured_keys()) > 250
    assert {version for _part, _key, versions in measured_keys() for version in versions} == set(
        MEASURED
    )


@pytest.mark.parametrize("version", MEASURED)
def test_keys_are_judged_as_the_parser_of_the_release_did(version: str) -> None:
    wrong = []
    for partition, key, versions in measured_keys():
        result = judge_key(version, key, partition)
        if "is a name of old" in result:
            continue
        if (result == "") != (version in versions):
            wrong.append(f"{key} in {version}: {result or 'taken'}")
    assert wrong == []


def test_every_key_of_the_tables_was_measured() -> None:
    for partition, known in ((False, _KEYS), (True, _PARTITION_KEYS)):
        measured = {key.lower() for part, key, _versions in measured_keys() if part is partition}
        assert set(known) - measured == set()


@pytest.mark.parametrize(
    ("version", "key", "partition", "message"),
    [
        ("24.11", "maxarraysize", False, ""),
        (
            "24.11",
            "MaxArraySise",
            False,
            "is not a key of slurm.conf; write MaxArraySize",
        ),
        (
            "24.11",
            "zzz",
            False,
            "is not a key of slurm.conf; look into the man page of slurm.conf",
        ),
        (
            "25.05",
            "NamespaceType",
            False,
            "exists from 25.11 on, version is 25.05; leave it out",
        ),
        ("25.11", "NamespaceType", False, ""),
        (
            "23.11",
            "SlurmctldPlugstack",
            False,
            "is gone since 23.11, version is 23.11; leave it out",
        ),
        ("23.11", "CryptoType", False, "is a name of old; write CredType"),
        ("24.11", "Shared", True, "is a name of old; write OverSubscribe"),
        ("22.05", "Topology", True, "exists from 25.05 on, version is 22.05; leave it out"),
        ("24.11", "MaxTimes", True, "is not a key of a PartitionName line; write MaxTime"),
    ],
)
def test_judge_key(version: str, key: str, partition: bool, message: str) -> None:
    assert judge_key(version, key, partition) == message


def test_judge_values() -> None:
    given = ["enable_configless", "reconfig_on_restart"]
    assert judge_values("25.11", "SlurmctldParameters", given) == []
    assert judge_values("25.05", "SlurmctldParameters", given) == [
        "reconfig_on_restart exists from 25.11 on, version is 25.05; leave it out"
    ]
    assert judge_values("22.05", "SomethingElse", given) == []


@pytest.mark.parametrize(
    ("version", "feature", "known"),
    [
        ("22.05", "reconfigure takes all", False),
        ("23.02", "reconfigure takes all", False),
        ("23.11", "reconfigure takes all", True),
        ("23.11", "auth/slurm", False),
        ("24.11", "auth/slurm", True),
        ("23.11", "block sizes", False),
        ("25.05", "topology.yaml", True),
        ("23.11", "cgroup disabled", False),
    ],
)
def test_has(version: str, feature: str, known: bool) -> None:
    assert has(version, feature) is known


def test_releases_compare_as_numbers() -> None:
    assert is_since("100.05", "26.05")
    assert not is_since("9.11", "22.05")


def test_tables_name_keys_that_exist() -> None:
    for key in [*RESTART_KEYS, *VALUES]:
        assert spell(key.lower()) == key
    assert all(key == key.lower() for key in RENAMED)
