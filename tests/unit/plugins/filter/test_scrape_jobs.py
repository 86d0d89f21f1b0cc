# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.baremetal.dgx.plugins.filter.scrape_jobs import FilterModule

scrape_jobs = FilterModule().filters()["scrape_jobs"]
TARGET = {"address": "10.0.0.1:9100", "labels": {"instance": "dgx-01"}}


def made(**job: Any) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The configuration of one job, and its files by path."""
    given = {"name": "node", "targets": [TARGET], **job}
    found = scrape_jobs([given], 15, 10, folder="/etc/p", group="prometheus")
    (config,) = found["configs"]
    return config, {file["path"]: file for file in found["files"]}


def test_a_job_that_says_nothing_else() -> None:
    config, files = made()
    assert config == {
        "job_name": "node",
        "scheme": "http",
        "metrics_path": "/metrics",
        "scrape_interval": "15s",
        "scrape_timeout": "10s",
        "honor_labels": False,
        "file_sd_configs": [{"files": ["targets-node.json"]}],
    }
    (file,) = files.values()
    assert file["path"] == "/etc/p/targets-node.json"
    assert json.loads(file["content"]) == [
        {"targets": ["10.0.0.1:9100"], "labels": {"instance": "dgx-01"}}
    ]


@pytest.mark.parametrize(
    ("result", "interval", "timeout"),
    [
        ({"interval_s": 5}, "5s", "5s"),
        ({"interval_s": 60, "timeout_s": 40}, "60s", "40s"),
        ({"timeout_s": 40}, "15s", "15s"),
        ({"interval_s": None, "timeout_s": None}, "15s", "10s"),
    ],
)
def test_an_answer_may_not_take_longer_than_the_interval(
    result: dict[str, Any], interval: str, timeout: str
) -> None:
    config, _files = made(**result)
    assert (config["scrape_interval"], config["scrape_timeout"]) == (interval, timeout)


def test_secrets_lie_in_files_of_their_own() -> None:
    config, files = made(
        username="u", password="p", ca="CA", certificate="C", key="K", server_name="n"
    )
    assert config["tls_config"] == {
        "ca_file": "ca-node.pem",
        "cert_file": "certificate-node.pem",
        "key_file": "key-node.pem",
        "server_name": "n",
    }
    assert config["basic_auth"] == {"username": "u", "password_file": "password-node"}
    secret = {path: file for path, file in files.items() if "secret_content" in file}
    assert {path: file["secret_content"] for path, file in secret.items()} == {
        "/etc/p/ca-node.pem": "CA",
        "/etc/p/certificate-node.pem": "C",
        "/etc/p/key-node.pem": "K",
        "/etc/p/password-node": "p",
    }
    assert {(file["mode"], file["group"]) for file in secret.values()} == {("0640", "prometheus")}


def test_what_is_dropped_is_one_expression() -> None:
    config, _files = made(drop=["go_.*", "x"], honor_labels=True, path="/m", scheme="https")
    (rule,) = config["metric_relabel_configs"]
    assert rule == {"source_labels": ["__name__"], "action": "drop", "regex": "go_.*|x"}
    assert (config["honor_labels"], config["metrics_path"], config["scheme"]) == (
        True, "/m", "https",
    )  # fmt: skip


def test_a_job_without_targets_is_an_error() -> None:
    with pytest.raises(AnsibleFilterError, match="targets"):
        scrape_jobs([{"name": "a"}], 15, 10)
