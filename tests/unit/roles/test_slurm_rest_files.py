# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurmrestd behind TLS: what the roles would write, which keys lie where, and what they refuse."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from role_render import by_path, lines, render, render_many
from wiring import Wiring, example, write

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----"
TLS = {"certificate": CERTIFICATE, "key": KEY}
FOLDER = "/etc/baremetal-dgx/slurm-rest"
SHOWN = {
    "units": "__slurm_rest_unit_files",
    "files": "__slurm_rest_files",
    "probes": "__slurm_rest_probes",
    "refusals": "__slurm_rest_refusals | selectattr('when') | map(attribute='say') | list",
}
HOST = {
    "slurm_base_version": "24.11",
    "slurm_rest_address": "10.1.0.11",
    "slurm_rest_tls": TLS,
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"slurm_rest_tls": {}}, "slurm_rest_tls.certificate: tokens would be readable"),
    "path": (
        {"slurm_rest_tls": {**TLS, "certificate": "/etc/ssl/head.pem"}},
        "slurm_rest_tls.certificate: tokens would be readable",
    ),
    "no-key": ({"slurm_rest_tls": {"certificate": CERTIFICATE}}, "slurm_rest_tls.key: not a pr"),
    "passphrase": (
        {"slurm_rest_tls": {**TLS, "key": KEY.replace(" PRIVATE", " ENCRYPTED PRIVATE")}},
        "slurm_rest_tls.key: has a passphrase",
    ),
    "client": (
        {"slurm_rest_tls": {**TLS, "client_ca": "ca.pem"}},
        "slurm_rest_tls.client_ca: not PEM text",
    ),
    "port": ({"slurm_rest_port": 443}, "slurm_rest_port: 443 is not a port"),
}


def test_slurmrestd_is_a_user_of_its_own_and_tls_is_all_that_reaches_it(tmp_path: Path) -> None:
    found = render(tmp_path, "slurm_rest", "Debian", HOST, SHOWN)
    assert found["refusals"] == []
    units = by_path(found["units"])
    rest = lines(units["/etc/systemd/system/slurmrestd.service"])
    tls = lines(units["/etc/systemd/system/baremetal-dgx-slurm-rest-tls.service"])
    assert "User=slurmrestd" in rest
    # No address: tokens would pass it in clear text. Its own way of TLS is not needed.
    assert "ExecStart=/usr/sbin/slurmrestd -a rest_auth/jwt unix:/run/slurmrestd/socket" in rest
    assert {"RuntimeDirectoryMode=0750", "Environment=SLURM_JWT=daemon"} <= set(rest)
    assert {"User=slurmrestd-tls", "SupplementaryGroups=slurmrestd"} <= set(tls)
    files = by_path(found["files"])
    conf = lines(files[f"{FOLDER}/stunnel.conf"])
    assert {
        "accept = 10.1.0.11:6820", "connect = /run/slurmrestd/socket", "sslVersionMin = TLSv1.2",
        f"cert = {FOLDER}/certificate.pem", f"key = {FOLDER}/key.pem",
    } <= set(conf)  # fmt: skip
    assert not [line for line in conf if "verify" in line]
    key = files[f"{FOLDER}/key.pem"]
    assert (key["mode"], key["group"], key["secret_content"]) == (
        "0640", "slurmrestd-tls", KEY + "\n",
    )  # fmt: skip
    assert files[f"{FOLDER}/client-ca.pem"]["state"] == "absent"
    token, _certificate, way = found["probes"]
    assert token["command"][-1] == "/slurm/v0.0.42/partitions"
    assert way["command"][-1] == "https://10.1.0.11:6820/slurm/v0.0.42/partitions"


def test_the_socket_is_named_as_the_release_takes_it(tmp_path: Path) -> None:
    """Changelog of 25.11.0rc1; manual of 25.11.1."""
    versions = ("22.05", "24.11", "25.05", "25.11", "26.05")
    cases = {version: {**HOST, "slurm_base_version": version} for version in versions}
    found = render_many(tmp_path, "slurm_rest", "Debian", cases, {"units": SHOWN["units"]})
    addresses = {}
    for version in versions:
        unit = by_path(found[version]["units"])["/etc/systemd/system/slurmrestd.service"]
        (start,) = (line for line in lines(unit) if line.startswith("ExecStart="))
        addresses[version] = start.rpartition(" ")[2]
    old, new = "unix:/run/slurmrestd/socket", "unix:///run/slurmrestd/socket"
    assert addresses == {"22.05": old, "24.11": old, "25.05": old, "25.11": new, "26.05": new}


def test_the_check_asks_the_host_itself_where_a_proxy_is_set(tmp_path: Path) -> None:
    inputs = {**HOST, "slurm_rest_address": "127.0.0.1"}
    way = render(tmp_path, "slurm_rest", "Debian", inputs, SHOWN)["probes"][2]
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        address = f"http://name:word@127.0.0.1:{proxy.getsockname()[1]}"
        env = {**os.environ, "https_proxy": address, "all_proxy": address, "no_proxy": ""}
        subprocess.run([*way["command"], "--max-time", "2"], env=env, check=False)
        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_a_certificate_that_is_over_or_not_valid_yet_is_a_finding(tmp_path: Path) -> None:
    """By the clock of the host, which may be the one that is wrong."""
    path = str(tmp_path / "certificate.pem")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "10", "-subj",
            "/CN=head-01", "-keyout", f"{path}.key", "-out", path]  # fmt: skip
    subprocess.run(made, check=True, capture_output=True)
    probe = render(tmp_path, "slurm_rest", "Debian", HOST, SHOWN)["probes"][1]
    words = [path if word == f"{FOLDER}/certificate.pem" else word for word in probe["command"]]
    assert words.count(path) == 2
    for days, why in ((0, ""), (365, "has expired"), (-365, "is not yet valid")):
        at = ["-attime", str(int(time.time()) + days * 86400)]
        asked = [*words[:2], *at, *words[2:]]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is (not why)
        assert bool(re.search(probe["expect"], done.stdout.strip())) is (not why)
        assert why in done.stderr


def test_clients_with_certificates_and_ipv6(tmp_path: Path) -> None:
    inputs = {
        **HOST,
        "slurm_rest_address": "fd00::11",
        "slurm_rest_tls": {**TLS, "client_ca": CERTIFICATE},
    }
    found = render(tmp_path, "slurm_rest", "Debian", inputs, SHOWN)
    conf = lines(by_path(found["files"])[f"{FOLDER}/stunnel.conf"])
    assert {
        "accept = [fd00::11]:6820",
        f"CAfile = {FOLDER}/client-ca.pem",
        "verifyChain = yes",
    } <= set(conf)
    assert len(found["probes"]) == 2, "verify has no certificate of a client"


def test_what_has_no_tls_is_refused(tmp_path: Path) -> None:
    cases = {name: {**HOST, **inputs} for name, (inputs, _messages) in REFUSED.items()}
    found = render_many(tmp_path, "slurm_rest", "Debian", cases, {"said": SHOWN["refusals"]})
    for name, (_inputs, reported) in REFUSED.items():
        assert [text[: len(reported)] for text in found[name]["said"]][:1] == [reported], name


RSA = {"kty": "RSA", "kid": "one", "n": "abc", "e": "AQAB", "x5c": ["long"]}
BASE = {
    "slurm_base_version": "24.11",
    "slurm_base_key": "k" * 64,
    "slurm_base_jwt_key": "j" * 64,
    "__slurm_base_component": "controller",
    "slurm_base_jwt": True,
}
BASES: dict[str, dict[str, Any]] = {
    "off": {**BASE, "slurm_base_jwt": False},
    "on": BASE,
    "two": {
        **BASE,
        "slurm_base_jwks": [
            RSA, {**RSA, "kid": "two", "alg": "RS256"}, {"kty": "EC", "kid": "three"},
        ],
        "slurm_base_jwt_options": ["userclaimfield=preferred_username"],
    },
    "private": {**BASE, "slurm_base_jwks": [{**RSA, "d": "secret"}]},
    "none": {**BASE, "slurm_base_jwks": [{"kty": "EC", "kid": "three"}]},
    "twice": {**BASE, "slurm_base_jwks": [RSA, RSA]},
    "short": {**BASE, "slurm_base_jwt_key": "short"},
    "options": {**BASE, "slurm_base_jwt_options": ["jwks=/tmp/x", "a b", "max_token_lifespan=60"]},
}  # fmt: skip
BASE_SHOWN = {
    "files": "__slurm_base_key_files",
    "conf": "__slurm_base_jwt_conf",
    "wanted": "__slurm_base_wanted",
    "refusals": SHOWN["refusals"].replace("_rest_", "_base_"),
}


@pytest.fixture(scope="module", name="bases")
def the_bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("base")
    # Up to ansible-core 2.18 the text of a refusal is templated whether or not it applies.
    facts = {"distribution_version": "13"}
    return render_many(folder, "slurm_base", "Debian", BASES, BASE_SHOWN, facts=facts)


def test_keys_are_where_tokens_are_checked(bases: dict[str, dict[str, Any]]) -> None:
    off, on = (by_path(bases[name]["files"]) for name in ("off", "on"))
    key = on["/etc/slurm/jwt_hs256.key"]
    assert (key["owner"], key["mode"], key["secret_content"]) == ("slurm", "0600", "j" * 64)
    assert on["/etc/slurm/jwks.json"]["state"] == "absent"
    assert {off[path]["state"] for path in off if "/j" in path} == {"absent"}
    assert bases["off"]["conf"] == {}
    assert bases["on"]["conf"] == {
        "AuthAltTypes": "auth/jwt", "AuthAltParameters": "jwt_key=/etc/slurm/jwt_hs256.key",
    }  # fmt: skip
    assert "slurm-wlm-jwt-plugin" in bases["on"]["wanted"]
    assert "slurm-wlm-jwt-plugin" not in bases["off"]["wanted"]


def test_a_key_is_made_only_where_tokens_are_checked(tmp_path: Path) -> None:
    """Ansible fills in the defaults of an argument spec, whether or not they are used."""
    given = {"slurm_base_secrets_dir": str(tmp_path / "secrets"), "slurm_base_key": "k" * 64}
    cases = {name: {**given, "slurm_base_jwt": name == "on"} for name in ("off", "on")}
    shown = {"key": "slurm_base_jwt_key"}
    kept = tmp_path / "secrets" / "slurm_base_jwt_key"
    off = render_many(tmp_path, "slurm_base", "Debian", {"off": cases["off"]}, shown)
    assert off["off"] == {"key": ""}
    assert not kept.exists()
    on = render_many(tmp_path, "slurm_base", "Debian", {"on": cases["on"]}, shown)
    assert on["on"]["key"] == kept.read_text().strip() != ""


def test_two_public_keys_are_good_at_a_time(bases: dict[str, dict[str, Any]]) -> None:
    """Slurm passes over a key without alg, which few providers write, and over what is not RSA."""
    found = bases["two"]
    keys = json.loads(by_path(found["files"])["/etc/slurm/jwks.json"]["content"])["keys"]
    assert [(one["kid"], one["alg"]) for one in keys] == [("one", "RS256"), ("two", "RS256")]
    assert found["conf"]["AuthAltParameters"] == (
        "jwt_key=/etc/slurm/jwt_hs256.key,jwks=/etc/slurm/jwks.json,"
        "userclaimfield=preferred_username"
    )
    assert found["refusals"] == []


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("private", "slurm_base_jwks: has a private key (d)"),
        ("none", "slurm_base_jwks: no RSA key with kid, n and e is in it"),
        ("twice", "slurm_base_jwks: two keys have the same kid"),
        ("short", "slurm_base_jwt_key: shorter than 32 characters"),
        ("options", "slurm_base_jwt_options: jwks=/tmp/x, a b: not a parameter"),
    ],
)
def test_bad_keys_are_refused(bases: dict[str, dict[str, Any]], case: str, message: str) -> None:
    assert [text[: len(message)] for text in bases[case]["refusals"]] == [message]


def wired(folder: Path, settings: dict[str, Any]) -> Wiring:
    inventory = example(folder, "core_12")
    write(inventory, "group_vars/all/zz_rest.yml", settings)
    return Wiring(inventory)


def test_only_controllers_and_databases_get_keys(tmp_path: Path) -> None:
    found = wired(tmp_path, {"slurm_rest_enabled": True, "slurm_rest_tls": TLS})
    head, node, login = (found.of(host) for host in ("head-01", "dgx-07", "login-01"))
    assert "slurm_rest" in head["__cluster_roles"]
    (address,) = (
        n["addresses"]["management"] for n in found.plan["nodes"] if n["name"] == "head-01"
    )
    assert head["slurm_rest_address"] == address
    assert head["slurm_base_jwt"] is True
    for host in (node, login):
        assert "slurm_rest" not in host["__cluster_roles"]
        assert host["slurm_base_jwt"] is False


@pytest.mark.parametrize("settings", [{}, {"slurm_rest_enabled": False}])
def test_without_slurmrestd_slurm_takes_no_tokens(tmp_path: Path, settings: dict[str, Any]) -> None:
    head = wired(tmp_path, settings).of("head-01")
    assert head["slurm_base_jwt"] is False
    assert ("slurm_rest" in head["__cluster_roles"]) is bool(settings), "what there was is removed"
