# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which values of an inventory are secrets, and which are not."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import (
    collection_root,
    load_roles,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.secrets import (
    secret_options,
    secret_texts,
)

OPTIONS = secret_options(load_roles(collection_root()))
JOB = {"name": "ipmi", "password": "s3cret", "targets": [{"address": "bmc:9290"}]}


@pytest.mark.parametrize(
    ("name", "value", "secrets"),
    [
        ("slurm_base_key", "s3cret", ["s3cret"]),
        ("slurm_database_password", None, []),
        ("node_base_users", [{"name": "alice", "password": "s3cret"}, {"name": "bob"}], ["s3cret"]),
        ("cephfs_keys", {"node": "s3cret", "admin": "0ther"}, ["s3cret", "0ther"]),
        ("prometheus_users", {"grafana": "s3cret"}, ["s3cret"]),
        ("prometheus_tls", {"certificate": "public", "key": "s3cret"}, ["s3cret"]),
        (
            "monitoring_access",
            {"username": "prometheus", "password": "s3cret", "ca": "public"},
            ["s3cret"],
        ),
        # The name of a job stays readable.
        ("monitoring_jobs", [JOB], ["s3cret"]),
    ],
)
def test_secrets_are_found_and_nothing_else(name: str, value: Any, secrets: list[str]) -> None:
    assert list(secret_texts(OPTIONS[name], value)) == secrets


def test_what_hides_nothing_is_not_looked_at() -> None:
    assert {"grafana_admin_password", "alertmanager_users"} <= OPTIONS.keys()
    assert OPTIONS.keys().isdisjoint({"slurm_base_version", "cephfs_mounts", "prometheus_enabled"})
