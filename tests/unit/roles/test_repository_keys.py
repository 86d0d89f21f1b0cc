# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key of a repository on Enterprise Linux: dnf takes URLs alone, also for one given as text."""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Any

import pytest
from role_render import ROLES, render_many
from role_rules import read_yaml

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n=x\n-----END PGP PUBLIC KEY BLOCK-----\n"
URIS = {"uris": ["https://repo.example.org/x"]}
FACTS = {"distribution_version": "9.6", "distribution_major_version": "9", "architecture": "x86_64"}
GIVEN = {"text": KEY, "path": "/etc/pki/site", "url": "https://repo.example.org/key.asc"}


def inputs(role: str, key: str) -> dict[str, Any]:
    """Inputs with a repository that is signed by this key."""
    signed = {**URIS, "signed_by": key}
    if role == "node_base":
        return {"node_base_repositories": [{"name": "site", **signed}, {"name": "b", **signed}]}
    kind = {"infiniband": ("stack", "doca"), "slurm_base": ("source", "repository")}
    name, value = kind.get(role, ("source", "nvidia_repository"))
    return {f"{role}_{name}": value, f"{role}_repository": signed}


def written(role: str) -> str:
    """The expression of what the role writes about its package sources."""
    (task,) = (
        task
        for task in read_yaml(ROLES / role / "tasks/install.yml")
        if "/etc/yum.repos.d" in str(task.get("vars"))
    )
    text: str = task["baremetal.dgx.managed_files"]["files"].strip()
    return text.removeprefix("{{").removesuffix("}}")


# grafana has had it so from the beginning; its template is that of _service.
@pytest.mark.parametrize(
    "role",
    sorted(
        {path.relative_to(ROLES).parts[0] for path in ROLES.glob("*/templates/etc/yum.repos.d/*")
         if "gpgkey=" in path.read_text()} - {"_service"}
    ),
)  # fmt: skip
def test_a_key_that_is_given_as_text_is_in_a_file(tmp_path: Path, role: str) -> None:
    hosts = {name: inputs(role, key) for name, key in GIVEN.items()}
    shown = {"files": written(role)}
    found = render_many(tmp_path, role, "Rocky", hosts, shown, facts=FACTS)
    for name, key in GIVEN.items():
        *before, last = (one for one in found[name]["files"] if one.get("state") != "absent")
        assert last["path"].startswith("/etc/yum.repos.d/")
        repository = configparser.RawConfigParser()
        repository.read_string(last["content"])
        urls = [section["gpgkey"] for name, section in repository.items() if name != "DEFAULT"]
        if name != "text":
            assert before == []
            assert set(urls) == {f"file://{key}" if key.startswith("/") else key}
            continue
        assert [f"file://{one['path']}" for one in before] == urls
        for one in before:
            assert one["content"].strip() == KEY.strip()
            assert (one["owner"], one["group"], one["mode"]) == ("root", "root", "0644")
