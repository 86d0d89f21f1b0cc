# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._host.accounts import (
    apply as _accounts_host,
)
from ansible_collections.baremetal.dgx.plugins.modules import system_accounts

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE/wwyhpHlXOwCL0FJc6Vap9x15wHpJmqNXVxMOMv8kJ alice"
HASH = "$6$salt$notahashofanything"
FILES = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/bash\nops:x:1000:1000::/home/ops:/bin/bash\n",
    "/etc/group": "root:x:0:\nops:x:1000:\n",
    "/etc/shadow": "root:*:::::::\nops:!:::::::\n",
}


@pytest.fixture
def node(monkeypatch):
    """Account files of a small node; `node` lists the steps that were carried out."""
    done = []
    monkeypatch.setattr(_accounts_host, "read_text", lambda path: FILES.get(path, ""))
    monkeypatch.setattr(_accounts_host, "_foreign", lambda *_args: {})
    monkeypatch.setattr(os.path, "lexists", lambda path: path in ("/root", "/home/ops"))
    monkeypatch.setattr(
        _accounts_host, "apply_step", lambda run, step, mode: done.append((step.kind, mode))
    )

    # A child's notes would stay in the child.
    def here(module, _what, body, _limit_s):
        with reported(module):
            body()

    monkeypatch.setattr(system_accounts, "finish_in_time", here)
    return done


def test_check_predicts_and_does_nothing(run_module, node):
    params = {
        "groups": [{"name": "hpc", "gid": 3000}],
        "users": [{"name": "alice", "uid": 2001, "groups": ["hpc"], "ssh_keys": [KEY]}],
    }
    predicted = run_module(system_accounts.main, params, check=True)
    assert node == []
    done = run_module(system_accounts.main, params)
    assert predicted["actions"] == done["actions"]
    assert done["actions"] == [
        "group hpc: create with gid 3000",
        "group alice: create",
        "user alice: create with uid 2001",
        "user alice: create home /home/alice",
        "user alice: authorized keys 0 -> 1",
    ]
    assert [kind for kind, _mode in node] == ["command"] * 3 + ["home", "keys"]
    assert {mode for _kind, mode in node} == {0o700}
    assert "user alice" in done["diff"]["prepared"]


def test_nothing_to_do(run_module, node):
    params = {"users": [{"name": "ops"}, {"name": "gone", "state": "absent"}]}
    answer = run_module(system_accounts.main, params)
    assert answer["changed"] is False
    assert answer["actions"] == []
    assert "diff" not in answer


def test_refusal_comes_before_the_first_change(run_module, node):
    params = {"users": [{"name": "alice", "uid": 2001}, {"name": "ops", "uid": 1}]}
    for check in (True, False):
        answer = run_module(system_accounts.main, params, check=check)
        assert answer["failed"] is True
        assert answer["msg"].startswith("user ops: exists with uid 1000")
        assert len(answer["errors"]) == 1
    assert node == []


def test_password_goes_through_standard_input_and_is_never_told(run_module, node, monkeypatch):
    reports = []

    def run_command(self, argv, data=None, **_options):
        reports.append((argv[-1], data))
        return 0, "", ""

    monkeypatch.setattr(system_accounts.AnsibleModule, "run_command", run_command)
    monkeypatch.setattr(
        system_accounts.AnsibleModule, "get_bin_path", lambda self, name, **_o: f"/usr/sbin/{name}"
    )
    answer = run_module(system_accounts.main, {"users": [{"name": "ops", "password": HASH}]})
    assert answer["actions"] == ["user ops: password (secret)"]
    assert reports == [("-e", f"ops:{HASH}")]
    assert HASH not in str({k: v for k, v in answer.items() if k != "invocation"})


def test_several_keys_in_one_text(run_module, node):
    other = KEY.replace("E/ww", "E/wx")
    users = [{"name": "ops", "ssh_keys": [f"{KEY}\n\n{other}\n"]}]
    answer = run_module(system_accounts.main, {"users": users})
    assert answer["actions"] == ["user ops: authorized keys 0 -> 2"]


@pytest.mark.parametrize(
    ("present", "declared", "keys"), [(0, [], 0), (0, [KEY], 1), (3, [KEY], 3), (None, [KEY], None)]
)
def test_login_is_told(run_module, node, monkeypatch, tmp_path, present, declared, keys):
    monkeypatch.setenv("SUDO_USER", "ops")
    monkeypatch.setattr(_accounts_host, "login_keys", lambda run, user: present)
    monkeypatch.setattr(_accounts_host, "_KEYTAB", str(tmp_path / "krb5.keytab"))
    params = {"users": [{"name": "ops", "ssh_keys": declared}], "login_check": True}
    answer = run_module(system_accounts.main, params, check=True)
    assert answer["login"] == {"user": "ops", "key_count": keys, "keytab": False}
    (tmp_path / "krb5.keytab").write_bytes(b"\x05\x02")
    assert run_module(system_accounts.main, params, check=True)["login"]["keytab"] is True


def test_bad_mode(run_module, node):
    answer = run_module(system_accounts.main, {"home_mode": "rwx"})
    assert answer["msg"].startswith("home_mode: 'rwx' is not an octal mode")


def test_an_error_of_the_file_system_names_user_and_file(run_module, node, monkeypatch):
    def fails(run, step, mode):
        raise OSError(30, "Read-only file system", "/home/ops/.ssh")

    monkeypatch.setattr(_accounts_host, "apply_step", fails)
    answer = run_module(system_accounts.main, {"users": [{"name": "ops", "ssh_keys": [KEY]}]})
    assert answer["msg"] == (
        "user ops: authorized keys 0 -> 1: /home/ops/.ssh: Read-only file system"
    )
