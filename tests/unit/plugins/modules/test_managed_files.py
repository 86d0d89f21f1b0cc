# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import signal
import time

import pytest
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core import files
from ansible_collections.baremetal.dgx.plugins.modules import managed_files


def listing(folder):
    return sorted(os.listdir(folder))


def stages():
    return [name for name in os.listdir("/run") if name.startswith("baremetal-dgx-stage-")]


@pytest.fixture
def bring(run_module, tmp_path):
    def bring(files, check=False, **options):
        entries = [{**entry, "path": str(tmp_path / entry["path"])} for entry in files]
        return run_module(managed_files.main, {"files": entries, **options}, check)

    return bring


FILES = [
    {"path": "d", "state": "directory", "mode": "0750"},
    {"path": "d/a.conf", "content": "one\n", "mode": "0644"},
    {"path": "d/key", "secret_content": "hunter2hunter2", "mode": "0400"},
    {"path": "d/l", "state": "link", "target": "a.conf"},
]


def test_check_then_real_then_again(bring, tmp_path):
    predicted = bring(FILES, check=True)
    assert listing(tmp_path) == []
    done = bring(FILES)
    assert predicted["changed"] is done["changed"] is True
    assert predicted["changed_paths"] == done["changed_paths"]
    assert predicted["diff"] == done["diff"]
    assert len(done["changed_paths"]) == 4
    again = bring(FILES)
    assert again["changed"] is False
    assert again["changed_paths"] == []
    assert again["diff"] == []


def test_no_secret_in_the_answer(bring):
    for check in (True, False):
        assert "hunter2" not in str(bring(FILES, check=check))


def test_no_secret_in_syslog(bring, monkeypatch):
    """AnsibleModule logs its arguments as one text, where it misses a secret of several lines."""
    logged = []
    monkeypatch.setattr(AnsibleModule, "log", lambda _self, *args, **_more: logged.append(args))
    bring([{"path": "a", "secret_content": 'line one\nhunter2 "quoted"\n'}])
    assert "hunter2" not in str(logged)
    assert "/a" in str(logged)


def test_nothing_is_replaced_when_a_validation_fails(bring, tmp_path):
    (tmp_path / "a").write_text("old")
    answer = bring(
        [{"path": "a", "content": "new"}, {"path": "b", "content": "new"}],
        validate=[
            {"command": "grep -q new %(stage)s/a"},
            {"command": "sh -c 'echo line 7: bad value >&2; exit 3'"},
        ],
    )
    assert answer["failed"]
    assert "ended with 3: line 7: bad value" in answer["msg"]
    assert (tmp_path / "a").read_text() == "old"
    assert listing(tmp_path) == ["a"]
    assert stages() == []


@pytest.mark.parametrize(
    ("output", "refused"),
    [("slurm.conf: error: bad line", True), ("no errors", False)],
)
def test_output_may_be_refused_though_the_command_ends_with_0(bring, output, refused):
    answer = bring(
        [{"path": "a", "content": "new"}],
        validate=[{"command": f"echo '{output}'", "reject_output": "\\berror:"}],
    )
    assert answer.get("failed", False) is refused
    if refused:
        assert f"ended with 0 but says: {output}" in answer["msg"]


@pytest.mark.parametrize(
    ("check", "when_missing", "failed"),
    [(False, "fail", True), (False, "skip", False), (True, "fail", False)],
)
@pytest.mark.parametrize("wrapper", ["", "env A=b timeout 5 "])
def test_a_validator_that_is_not_installed(bring, check, when_missing, failed, wrapper):
    answer = bring(
        [{"path": "a", "content": "new"}],
        check=check,
        validate=[{"command": f"{wrapper}no-such-tool %(stage)s/a", "when_missing": when_missing}],
    )
    assert answer.get("failed", False) is failed
    if failed:
        assert "no-such-tool" in answer["msg"]
        assert "so the new files cannot be validated" in answer["msg"]
    else:
        assert answer["validations"][0]["status"] == "skipped"


def test_a_validator_that_hangs(bring, tmp_path):
    answer = bring(
        [{"path": "a", "content": "new"}], validate=[{"command": "sleep 60", "timeout_s": 0.3}]
    )
    assert answer["failed"]
    assert "did not end within" in answer["msg"]
    assert listing(tmp_path) == []


def test_a_validation_in_check_mode_counts_unless_something_is_only_pretended(bring):
    validate = [{"command": "false"}]
    assert bring([{"path": "a", "content": "new"}], check=True, validate=validate)["failed"]
    virgin = bring(
        [{"path": "a", "content": "new", "owner": "no_such_user"}], check=True, validate=validate
    )
    assert "failed" not in virgin
    assert virgin["changed"]


def test_validation_sees_its_environment_and_the_stage(bring):
    answer = bring(
        [{"path": "slurm.conf", "content": "ClusterName=x"}],
        validate=[
            {
                "command": "sh -c 'test \"$SLURM_CONF\" = %(stage)s/slurm.conf && cat $SLURM_CONF'",
                "environment": {"SLURM_CONF": "%(stage)s/slurm.conf"},
            }
        ],
    )
    assert answer["validations"] == [
        {"command": answer["validations"][0]["command"], "status": "passed"}
    ]


def test_a_bad_pattern_is_named(bring):
    answer = bring(
        [{"path": "a", "content": ""}], validate=[{"command": "true", "reject_output": "("}]
    )
    assert "validate: true: reject_output is not a pattern" in answer["msg"]


def test_an_attribute_change_alone_is_not_validated(bring, tmp_path):
    (tmp_path / "a").write_text("x")
    answer = bring([{"path": "a", "content": "x", "mode": "0600"}], validate=[{"command": "false"}])
    assert answer["changed"]
    assert answer["validations"] == []


def test_all_errors_in_one_answer(bring, tmp_path):
    (tmp_path / "d").mkdir()
    answer = bring(
        [{"path": "d", "content": ""}, {"path": "no/f", "content": "", "owner": "no_such_user"}]
    )
    assert answer["failed"]
    assert len(answer["errors"]) == 3


def test_an_error_of_the_file_system_names_the_path(bring, tmp_path, monkeypatch):
    def read_only(*_args, **_kwargs):
        raise OSError(30, "Read-only file system", str(tmp_path / "a"))

    monkeypatch.setattr(os, "rename", read_only)
    answer = bring([{"path": "a", "content": "x"}])
    assert answer["failed"]
    assert answer["msg"] == (f"{tmp_path}/a: Read-only file system; nothing was replaced")


def test_a_folder_goes_with_what_is_in_it(bring, tmp_path):
    below = tmp_path / "d"
    below.mkdir()
    (below / "a").write_text("x")
    gone = [{"path": "d/a", "state": "absent"}, {"path": "d", "state": "absent"}]
    assert bring(gone, check=True)["changed"]
    assert bring(gone)["changed"]
    assert not below.exists()
    assert not bring(gone)["changed"]


def test_a_folder_stays_with_what_is_not_named(bring, tmp_path):
    below = tmp_path / "d"
    below.mkdir()
    for name in "ab":
        (below / name).write_text("x")
    result = bring([{"path": "d/a", "state": "absent"}, {"path": "d", "state": "absent"}])
    assert "is a directory with 1 entries" in result["msg"]
    assert sorted(path.name for path in below.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("killed", [True, False])
def test_a_folder_goes_with_what_a_killed_writer_has_left(bring, tmp_path, killed):
    below = tmp_path / "d"
    below.mkdir()
    child = os.fork()
    if not child:
        with files.open_folder(str(below)) as folder:
            folder.prepare("key", "secret", 0o600)
            os.kill(os.getpid(), signal.SIGKILL if killed else signal.SIGSTOP)
    os.waitpid(child, os.WUNTRACED)
    gone = [{"path": "d/key", "state": "absent"}, {"path": "d", "state": "absent"}]
    results = [bring(gone, check=True), bring(gone)]
    if not killed:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert all("is a directory with 1 entries" in result["msg"] for result in results)
        results = [bring(gone)]
    assert all(result["changed"] for result in results)
    assert not below.exists()


@pytest.mark.parametrize("below", ["", "/images", "/deep/er/images"])
def test_a_mount_that_does_not_answer_is_named_and_costs_its_time(
    run_module, tmp_path, hung_mount, below
):
    begun = time.monotonic()
    files = [
        {"path": str(tmp_path / "first"), "content": "1"},
        {"path": f"{hung_mount}{below}", "state": "directory", "mode": "1777"},
    ]
    result = run_module(managed_files.main, {"files": files, "timeout_s": 1}, False)
    assert time.monotonic() - begun < 15
    assert result["hung"] is True
    assert result["msg"] == (
        f"{tmp_path}/first and 1 more: did not come back within 1 s: {hung_mount} (fuse.hung, "
        f"storage:/dead) does not answer; bring its server back, or `umount -l {hung_mount}`"
        "; nothing was replaced"
    )
    # What is left behind holds no lock: the next run of the same host is not kept waiting.
    assert run_module(managed_files.main, {"files": files[:1]}, False)["changed"] is True


def test_a_link_to_a_mount_that_does_not_answer(run_module, tmp_path, hung_mount):
    (tmp_path / "images").symlink_to(hung_mount)
    files = [{"path": str(tmp_path / "images/x"), "content": "1"}]
    result = run_module(managed_files.main, {"files": files, "timeout_s": 1}, True)
    assert f"{hung_mount} (fuse.hung" in result["msg"]
