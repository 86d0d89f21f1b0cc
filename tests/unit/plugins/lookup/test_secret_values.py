# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets that hosts have, each once, and none that cannot be known."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleUndefinedVariable

from ansible_collections.baremetal.dgx.plugins.lookup import secret_values


class Undefined(dict[str, Any]):
    """Variables of a host, one of which refers to what is not known."""

    def get(self, name: str, default: Any = None) -> Any:
        if name == "grafana_admin_password":
            raise AnsibleUndefinedVariable("'fact' is undefined")
        return super().get(name, default)


def test_each_secret_once(capsys: pytest.CaptureFixture[str]) -> None:
    hostvars = {
        "head-01": {"slurm_base_key": "s3cret", "slurm_base_version": "24.11"},
        "head-02": {"slurm_base_key": "s3cret", "cephfs_keys": {"node": "0ther"}},
        "mon-01": Undefined(prometheus_users={"grafana": "third"}),
    }
    found = secret_values.LookupModule().run(
        [["head-01", "head-02"], "mon-01"], {"hostvars": hostvars}
    )
    assert sorted(found) == ["0ther", "s3cret", "third"]
    assert "mon-01: grafana_admin_password is not known here" in capsys.readouterr().err
