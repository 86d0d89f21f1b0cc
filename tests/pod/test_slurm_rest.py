# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurmrestd with tokens and TLS, as a program sees it, on the pod of test_identity.py."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from .people import ADDRESSES, INVENTORY, SUBMIT, run, runs, shell, ssh

URL = "https://head-01:6820"
API = f"{URL}/slurm/v0.0.42"
HS256_FILE = INVENTORY / ".dgx" / "secrets" / "slurm_base_jwt_key"


def status(token: str, url: str = f"{API}/partitions", options: str = "") -> str:
    """Return the HTTP status that a client gets, which verifies the certificate."""
    header = f"X-SLURM-USER-TOKEN: {token}" if token else "X-Nothing: 1"
    return shell(
        "head-01",
        f"echo '{header}' | curl -s -o /tmp/answer -w '%{{http_code}}' -H @- {options}"
        f" --cacert /srv/directory/ca.pem {url} || echo ' curl ended with' $?",
    ).strip()


def token_of(name: str, seconds: int = 600, host: str = "head-01") -> str:
    """Return a token that Slurm makes."""
    result = shell(host, f"scontrol token username={name} lifespan={seconds}")
    return result.strip().partition("=")[2]


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Provider:
    """Signs tokens with RSA keys, as an identity provider does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, kid: str) -> dict[str, str]:
        """Make a key; return its public part."""
        key = str(self.folder / f"{kid}.pem")
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        asked = ["openssl", "rsa", "-in", key, "-noout", "-modulus"]
        reported = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        modulus = bytes.fromhex(reported.strip().partition("=")[2])
        # As providers publish them, and without alg, which is optional.
        return {"kty": "RSA", "kid": kid, "use": "sig", "n": encoded(modulus), "e": "AQAB"}

    def token(self, kid: str, name: str, seconds: int = 600) -> str:
        """Return a token of a person."""
        now = int(time.time())
        parts = [
            {"alg": "RS256", "typ": "JWT", "kid": kid},
            {"iat": now, "exp": now + seconds, "sun": name},
        ]
        text = ".".join(encoded(json.dumps(part).encode()) for part in parts)
        signed = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", str(self.folder / f"{kid}.pem")],
            input=text.encode(), check=True, capture_output=True,
        ).stdout  # fmt: skip
        return f"{text}.{encoded(signed)}"


@pytest.fixture(scope="module", name="cluster")
def the_cluster(people: Path) -> Path:
    for playbook in ("prepare_nodes", "configure_identity", "configure_scheduler"):
        done = run(playbook)
        assert done.rc == 0, done.why
    return people


def test_daemons_have_their_own_users_and_only_tls_listens(cluster: Path) -> None:
    users = shell("head-01", "ps -o user:20= -C slurmrestd,stunnel | sort").split()
    assert users == ["slurmrestd", "slurmrestd-tls"]
    listening = shell(
        "head-01", "ss -Hltnp | grep -E 'slurmrestd|stunnel|:6820' | awk '{print $4}'"
    )
    assert listening.split() == [f"{ADDRESSES['head-01']}:6820"]
    asks = "curl -s --unix-socket /run/slurmrestd/socket http://x/"
    refused = shell("head-01", f"su -s /bin/sh daemon -c '{asks}' || echo $?")
    assert refused.strip() == "7", "TLS alone opens the socket"
    key = "/etc/slurm/jwt_hs256.key"
    assert shell("head-01", f"stat -c '%U %a' {key}").split() == ["slurm", "600"]
    for host in ("login-01", "dgx-01"):
        assert shell(host, f"test ! -e {key} && echo absent").strip() == "absent"


def test_it_answers_only_with_a_token(cluster: Path) -> None:
    secret = HS256_FILE.read_text(encoding="utf-8").strip()
    dry = run("configure_scheduler", "--check", "--diff")
    assert dry.rc == 0, dry.why
    assert secret not in dry.output
    again = run("configure_scheduler")
    assert (again.rc, set(again.changed.values())) == (0, {0}), again.why
    assert status("") == "401"
    assert status(token_of("carol")) == "200"
    assert status(token_of("carol"), f"{URL}/slurmdb/v0.0.42/accounts") == "200"
    for wrong in ("wrong", token_of("carol")[:-6] + "aaaaaa"):
        assert status(wrong) not in ("200", "")
        assert status(wrong, f"{URL}/slurmdb/v0.0.42/accounts") not in ("200", "")
    assert "curl ended with" in status("", URL.replace("https", "http") + "/")
    assert "curl ended with" in status(token_of("carol"), options="--tls-max 1.1")


def test_an_expired_token_is_refused(cluster: Path) -> None:
    short = token_of("carol", 5)
    assert status(short) == "200"
    deadline = time.monotonic() + 60
    while status(short) == "200":
        assert time.monotonic() < deadline
        time.sleep(1)


def test_a_person_of_the_directory_makes_a_token_and_submits(cluster: Path) -> None:
    own = ssh("carol", "login-01", "scontrol token lifespan=600").stdout.strip().partition("=")[2]
    job = {
        "script": "#!/bin/sh\nid -un\n",
        "job": {
            "name": "rest", "current_working_directory": "/tmp", "environment": ["PATH=/bin"],
            "account": "hpc", "standard_output": "/tmp/rest-%j",
        },
    }  # fmt: skip
    shell("head-01", f"cat > /tmp/job.json <<'EOF'\n{json.dumps(job)}\nEOF")
    options = "-H 'Content-Type: application/json' --data-binary @/tmp/job.json"
    assert status(own, f"{API}/job/submit", options) == "200"
    number = json.loads(shell("head-01", "cat /tmp/answer"))["job_id"]
    deadline = time.monotonic() + 120
    asks = f"sacct -nXP -j {number} -o user,account,state"
    while shell("head-01", asks).strip() != "carol|hpc|COMPLETED":
        assert time.monotonic() < deadline, shell("head-01", asks)
        time.sleep(1)


def test_keys_rotate_without_losing_sessions(cluster: Path, tmp_path: Path) -> None:
    provider = Provider(tmp_path)
    old, new = provider.make("old"), provider.make("new")
    session = provider.token("old", "carol")
    assert status(session) != "200", "a provider that is not declared"
    file = INVENTORY / "group_vars" / "all" / "jwks.yml"
    submit = ssh("carol", "login-01", f"{SUBMIT} 'sleep 900'")
    job = submit.stdout.strip()
    assert job.isdigit(), submit.stderr
    runs(job)
    by_slurm = token_of("carol")
    try:
        for keys, good in (([old], ["old"]), ([old, new], ["old", "new"]), ([new], ["new"])):
            file.write_text(yaml.safe_dump({"slurm_base_jwks": keys}), encoding="utf-8")
            done = run("configure_scheduler")
            assert done.rc == 0, done.why
            tokens = {"old": session, "new": provider.token("new", "carol")}
            found = [kid for kid, token in tokens.items() if status(token) == "200"]
            assert found == good, "the session of the old key lives as long as its key is declared"
            assert status(by_slurm) == "200", "Slurm's own key is another matter"
            assert status(provider.token("new", "carol", -5)) != "200"
        assert shell("head-01", f"squeue -h -j {job} -o %T").strip() == "RUNNING"
    finally:
        file.unlink(missing_ok=True)
        shell("head-01", f"scancel {job}")


def test_a_new_key_of_slurm_ends_its_tokens(cluster: Path) -> None:
    before = token_of("carol")
    HS256_FILE.unlink()
    done = run("configure_scheduler")
    assert done.rc == 0, done.why
    assert status(before) != "200"
    assert status(token_of("carol")) == "200"


def test_switched_off_it_is_gone(cluster: Path) -> None:
    off = run("configure_scheduler", "-e", '{"slurm_rest_enabled": false}')
    assert off.rc == 0, off.why
    assert "curl ended with" in status("")
    assert shell("head-01", "ls /etc/slurm").split().count("jwt_hs256.key") == 0
    assert "AuthAlt" not in shell("head-01", "cat /etc/slurm/slurm.conf /etc/slurm/slurmdbd.conf")
    assert shell("head-01", "scontrol ping | grep -c UP").strip() == "1"
    on = run("configure_scheduler")
    assert on.rc == 0, on.why
    assert status(token_of("carol")) == "200"
