# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role backup writes, and what the plan gives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from role_render import ROLES, by_path, lines, render_many
from role_rules import Role
from wiring import Wiring, example, write

from ansible_collections.baremetal.dgx.plugins.module_utils._backup.settings import (
    settings_from_data,
)

CONFIG = "/etc/baremetal-dgx/cluster-backup.json"
FOLDER = "/etc/baremetal-dgx/backup"
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\n"
COMMON = {"backup_cluster_name": "demo", "backup_password": "a passphrase of some length"}
CASES: dict[str, dict[str, Any]] = {
    "both": {"backup_kinds": ["controller", "database"], "backup_repository": "/mnt/nas/copies"},
    "sftp": {
        "backup_kinds": ["controller"],
        "backup_repository": "sftp:backup@nas-01:/srv/x",
        "backup_ssh_key": KEY,
        "backup_ssh_known_hosts": "nas-01 ssh-ed25519 AAAA",
        "backup_environment": {"HIDDEN": "value"},
    },
    "remote": {
        "backup_kinds": ["database"],
        "backup_repository": "s3:https://s3/bucket",
        "backup_database": {"host": "db-01", "name": "acct"},
        "backup_database_password": 'pass"word\\',
        "backup_database_tls": False,
    },
    "remote_with_authority": {
        "backup_kinds": ["database"],
        "backup_repository": "s3:https://s3/bucket",
        "backup_database": {"host": "db-01", "name": "acct"},
        "backup_database_password": "word",
        "backup_database_ca_file": "/etc/ssl/site.pem",
    },
    "metrics": {
        "backup_kinds": ["metrics"],
        "backup_repository": "/mnt/nas/copies",
        "backup_prometheus_dir": "/srv/metrics",
    },
}
SHOWN = {
    "files": "__backup_program_files",
    "units": "__backup_unit_files",
    "timers": "__backup_timers",
    "probes": "__backup_probes",
    "packages": "__backup_database_packages",
    "validations": "__backup_validations | map(attribute='command') | list",
    "refusals": "__backup_refusals | selectattr('when') | map(attribute='say') | list",
}


def test_what_is_written(tmp_path: Path) -> None:
    cases = {name: {**COMMON, **inputs} for name, inputs in CASES.items()}
    found = render_many(tmp_path, "backup", "Debian", cases, SHOWN)
    files = {name: by_path(one["files"]) for name, one in found.items()}
    assert {name: one["refusals"] for name, one in found.items()} == {name: [] for name in CASES}
    settings = {}
    for name, own in files.items():
        for path in (CONFIG, f"{FOLDER}/password"):
            assert own[path]["mode"] == "0600"
            assert "content" not in own[path], "no diff shows it"
        settings[name] = settings_from_data(json.loads(own[CONFIG]["secret_content"]))
    assert settings["both"].database is not None
    assert settings["both"].database.socket == "/run/mysqld/mysqld.sock"
    assert settings["both"].data_dir == "/var/lib/mysql"
    assert settings["both"].keep == {"last": 96, "daily": 14, "weekly": 8, "monthly": 12}
    assert files["both"][f"{FOLDER}/id"]["state"] == "absent"
    (option,) = settings["sftp"].options
    assert option.startswith(f"sftp.command=ssh -i {FOLDER}/id -o IdentitiesOnly=yes")
    assert option.endswith(" backup@nas-01 -s sftp")
    assert {name: one.blocks_dir for name, one in settings.items() if one.blocks_dir} == {
        "metrics": "/srv/metrics"
    }
    assert settings["metrics"].keep_metrics == {"last": 2, "daily": 7, "weekly": 4}
    assert settings["metrics"].data_dir == settings["metrics"].state_dir == ""
    assert settings["sftp"].environment == {"HIDDEN": "value"}
    assert settings["sftp"].data_dir == ""
    assert files["sftp"][f"{FOLDER}/id"]["secret_content"] == KEY
    assert settings["remote"].database is not None
    assert settings["remote"].database.password_file == f"{FOLDER}/client.cnf"
    assert settings["remote"].database.name == "acct"
    options = files["remote"][f"{FOLDER}/client.cnf"]["secret_content"]
    # Tried with the clients of MariaDB 10.11 and 11.8 and a server with TLS, and without.
    assert options.splitlines()[1:] == ["[client]", r'password="pass\"word\\"', "skip-ssl"]
    secured = files["remote_with_authority"][f"{FOLDER}/client.cnf"]["secret_content"]
    assert secured.splitlines()[2:] == [
        'password="word"', "ssl-ca=/etc/ssl/site.pem", "ssl-verify-server-cert"
    ]  # fmt: skip
    assert found["both"]["validations"][0].endswith(
        "%(stage)s/cluster-backup.json check-config --passphrase %(stage)s/password"
    ), "a new passphrase does not replace the only one that opens the copies"
    units = by_path(found["both"]["units"])
    timer = lines(units["/etc/systemd/system/baremetal-dgx-backup.timer"])
    assert "OnCalendar=*:0/15" in timer
    proof = lines(units["/etc/systemd/system/baremetal-dgx-backup-proof.service"])
    assert "ExecStart=/usr/local/libexec/baremetal-dgx/cluster-backup prove" in proof
    assert [one["name"] for one in found["both"]["timers"]] == [
        "baremetal-dgx-backup.timer",
        "baremetal-dgx-backup-proof.timer",
    ]
    (probe,) = found["both"]["probes"]
    assert probe["command"] == ["/usr/local/libexec/baremetal-dgx/cluster-backup", "copied"]


def test_copies_are_due_by_what_is_known_of_this_repository() -> None:
    """The file of metrics says what it did of the old one, until the timer runs."""
    tasks = [task for stem, task in Role(ROLES / "backup").tasks if stem == "service"]
    _timers, asks, *creates = tasks
    assert asks["ansible.builtin.command"]["argv"] == ["{{ __backup_program }}", "copied"]
    assert len(creates) == 2
    assert all(one["when"].startswith("__backup_copied.rc != 0 and ") for one in creates)


def test_wiring(tmp_path: Path) -> None:
    """A database that two slurmdbd share is copied once; one host has to do with the repository."""
    inventory = example(tmp_path, "core_12")
    write(inventory, "group_vars/all/backup.yml", {"backup_repository": "sftp:b@nas-01:/x"})
    wired = Wiring(inventory)
    groups = wired.plan["cluster"]["groups"]
    controllers, databases = groups["slurm_controllers"], groups["slurm_databases"]
    makes = {one["name"] for one in wired.plan["nodes"] if "backup" in roles(wired, one["name"])}
    assert makes == {*controllers, databases[0]}
    first = wired.of(controllers[0])
    assert first["backup_tidies"] is True
    assert "controller" in first["backup_kinds"]
    assert "database" in wired.of(databases[0])["backup_kinds"]
    assert first["backup_cluster_name"] == wired.plan["cluster"]["name"]
    for other in controllers[1:]:
        assert wired.of(other)["backup_tidies"] is False


def test_the_first_host_that_copies_creates_the_repository(tmp_path: Path) -> None:
    """The primary makes no copies here."""
    inventory = example(tmp_path, "core_12")
    copies = {"backup_repository": "sftp:b@nas-01:/x"}
    write(inventory, "group_vars/slurm_databases/backup.yml", copies)
    primary = Wiring(inventory).plan["cluster"]["groups"]["slurm_controllers"][0]
    write(inventory, f"host_vars/{primary}/backup.yml", {"backup_repository": ""})
    wired = Wiring(inventory)
    groups = wired.plan["cluster"]["groups"]
    makes = [one for one in groups["slurm_databases"] if "backup" in roles(wired, one)]
    first = {one: wired.of(one)["backup_tidies"] for one in makes}
    assert list(first.values()) == [True] + [False] * (len(makes) - 1)


def test_wiring_of_time_series(tmp_path: Path) -> None:
    """Two Prometheus have the same: the first that runs is copied, the other left alone."""
    inventory = example(tmp_path, "core_12")
    write(inventory, "group_vars/all/backup.yml", {"backup_repository": "sftp:b@nas-01:/x"})
    hosts = inventory / "hosts.yml"
    before = "    monitoring_nodes:\n      hosts:\n        head-02:\n"
    text = hosts.read_text()
    assert before in text
    hosts.write_text(text.replace(before, before + "        login-[01:02]:\n"))
    write(inventory, "host_vars/head-02/zz.yml", {"prometheus_enabled": False})
    own = {"prometheus_enabled": True, "prometheus_data_dir": "/srv/metrics"}
    write(inventory, "group_vars/monitoring_nodes/zz.yml", own)
    wired = Wiring(inventory)
    assert "backup" not in roles(wired, "login-01"), "off by default"
    write(inventory, "group_vars/monitoring_nodes/zz.yml", {**own, "backup_prometheus": True})
    wired = Wiring(inventory)
    assert wired.of("head-02")["backup_kinds"] == ["controller"]
    assert "backup" not in roles(wired, "login-02")
    assert "backup" in roles(wired, "login-01")
    first = wired.of("login-01")
    assert (first["backup_kinds"], first["backup_tidies"]) == (["metrics"], False)
    assert first["backup_prometheus_dir"] == "/srv/metrics"
    assert "backup_state_dir" not in first


def roles(wired: Wiring, host: str) -> list[str]:
    """The roles of a host."""
    found: list[str] = wired.of(host)["__cluster_roles"]
    return found


def test_no_host_makes_copies_unless_the_inventory_says_so(tmp_path: Path) -> None:
    wired = Wiring(example(tmp_path, "core_12"))
    assert all("backup" not in roles(wired, one["name"]) for one in wired.plan["nodes"])


def test_a_restore_raises_the_next_number_of_a_job() -> None:
    """Through a file of the control machine, which every later run reads."""
    root = Path(__file__).resolve().parents[3]
    variables = yaml.safe_load((root / "playbooks/vars/cluster.yml").read_text(encoding="utf-8"))
    assert "/restored.json" in variables["slurm_controller_first_job_id"]
