# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key of a repository on Debian and Ubuntu: with a URL there apt reads no source any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from role_render import ROLES, render_many
from role_rules import read_yaml
from test_repository_keys import FACTS, KEY, inputs
from wiring import ROOT

GOOD = {
    "text": KEY,
    "path": "/usr/share/keyrings/site.gpg",
    "fingerprint": "F6ECB3762474EDA9D21B7022871920D1991BC93C",
}
BAD = {
    "url": "https://packages.example.org/key.asc",
    "file": "file:///usr/share/keyrings/site.gpg",
    "relative": "keys/site.asc",
}


def signed(role: str, key: str) -> dict[str, Any]:
    """Inputs with a repository that is signed by this key."""
    if role == "grafana":
        return {"grafana_enabled": True, "grafana_source": "repository",
                "grafana_repository": {"signed_by": key}}  # fmt: skip
    slurm = {"slurm_base_version": "25.11", "slurm_base_key": "x" * 32}
    return {**inputs(role, key), **(slurm if role == "slurm_base" else {})}


def roles_with_a_key() -> list[str]:
    """Return the roles whose repository may be signed by a key of the site's."""
    specs = ROLES.glob("*/meta/argument_specs.yml")
    return sorted(path.parts[-3] for path in specs if "signed_by:" in path.read_text())


@pytest.mark.parametrize("role", roles_with_a_key())
def test_what_apt_does_not_take_is_refused(tmp_path: Path, role: str) -> None:
    hosts = {name: signed(role, key) for name, key in {**GOOD, **BAD}.items()}
    refusals = "_service_refusals" if role == "grafana" else f"__{role}_refusals"
    shown = {"says": f"{refusals} | selectattr('when') | map(attribute='say') | list"}
    facts = {**FACTS, "distribution_version": "24.04", "distribution_release": "noble"}
    found = render_many(tmp_path, role, "Ubuntu", hosts, shown, facts=facts)
    # Grafana's is a file.
    for name in sorted(GOOD.keys() - ({"fingerprint"} if role == "grafana" else set())):
        assert not [say for say in found[name]["says"] if "signed_by" in say], name
    for name, key in BAD.items():
        (say,) = (say for say in found[name]["says"] if "signed_by" in say)
        assert say.startswith(f"{role}_repositor"), say
        assert key in say or "site" in say
        assert "as text, or its path on the host" in " ".join(say.split())


@pytest.mark.parametrize("role", sorted({*roles_with_a_key()} - {"grafana"}))
def test_dnf_takes_a_url(tmp_path: Path, role: str) -> None:
    hosts = {"url": signed(role, BAD["url"])}
    shown = {"says": f"__{role}_refusals | selectattr('when') | map(attribute='say') | list"}
    found = render_many(tmp_path, role, "Rocky", hosts, shown, facts=FACTS)
    assert not [say for say in found["url"]["says"] if "signed_by" in say]


@pytest.mark.parametrize("path", sorted(ROOT.glob("inventories/*")), ids=lambda path: path.name)
def test_the_hosts_of_an_example_have_apt(path: Path) -> None:
    keys: list[str] = []
    for file in path.glob("*_vars/**/*.yml"):
        for value in (read_yaml(file) or {}).values():
            parts = value if isinstance(value, list) else [value]
            keys += [
                one["signed_by"] for one in parts if isinstance(one, dict) and "signed_by" in one
            ]
    assert [key for key in keys if not key.startswith(("/", "-----BEGIN"))] == []
