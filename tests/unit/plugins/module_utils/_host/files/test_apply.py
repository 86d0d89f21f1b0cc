# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._host.files import apply as _files_apply
from ansible_collections.baremetal.dgx.plugins.module_utils._host.files import plan as _files
from ansible_collections.baremetal.dgx.plugins.module_utils._host.files.plan import Wanted

# A process number that no kernel gives out (PID_MAX_LIMIT is 2^22).
DEAD = 2**22 + 1


def no_label(_temporary, _path):
    return None


def bring(*wanted):
    """Observe, plan and apply; returns the paths that changed."""
    observed = _files_apply.observe(wanted)
    plan = _files.plan_files(wanted, observed, {}, {}, False)
    assert plan.errors == ()
    return list(_files_apply.apply_steps(plan.steps, no_label))


def test_everything_once_and_nothing_twice(tmp_path):
    wanted = [
        Wanted(f"{tmp_path}/d", "directory", mode=0o750),
        Wanted(f"{tmp_path}/d/f", "file", b"text\n", mode=0o640),
        Wanted(f"{tmp_path}/d/key", "file", b"\x00\xff", secret=True),
        Wanted(f"{tmp_path}/d/link", "link", target="f"),
    ]
    assert bring(*wanted) == [want.path for want in wanted]
    assert (tmp_path / "d" / "f").read_bytes() == b"text\n"
    assert (tmp_path / "d").stat().st_mode & 0o7777 == 0o750
    assert (tmp_path / "d" / "f").stat().st_mode & 0o7777 == 0o640
    assert (tmp_path / "d" / "key").stat().st_mode & 0o7777 == 0o600
    assert (tmp_path / "d" / "link").read_bytes() == b"text\n"
    assert bring(*wanted) == []
    assert sorted(os.listdir(tmp_path / "d")) == ["f", "key", "link"]


def test_a_file_is_replaced_not_written_into(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    inode = path.stat().st_ino
    with path.open("rb") as reader:
        bring(Wanted(str(path), "file", b"new content"))
        assert reader.read() == b"old"
    assert path.stat().st_ino != inode


def test_attributes_change_in_place(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    inode = path.stat().st_ino
    bring(Wanted(str(path), "file", b"old", mode=0o400))
    assert path.stat().st_ino == inode
    assert path.stat().st_mode & 0o7777 == 0o400


def test_a_link_is_replaced_by_the_file_and_its_target_is_left_alone(tmp_path):
    (tmp_path / "target").write_bytes(b"precious")
    (tmp_path / "f").symlink_to("target")
    bring(Wanted(f"{tmp_path}/f", "file", b"new"))
    assert (tmp_path / "f").read_bytes() == b"new"
    assert not (tmp_path / "f").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"precious"


def test_removal(tmp_path):
    (tmp_path / "f").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    bring(*(Wanted(f"{tmp_path}/{name}", "absent") for name in ("f", "empty", "dangling")))
    assert os.listdir(tmp_path) == []


def test_a_failure_before_the_renames_leaves_every_old_file(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / name).write_bytes(b"old")
    calls = []

    def full_disk(_descriptor):
        calls.append(1)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        bring(*(Wanted(f"{tmp_path}/{name}", "file", b"new") for name in "ab"))
    assert [(tmp_path / name).read_bytes() for name in "ab"] == [b"old", b"old"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_killed_between_two_renames_the_next_run_does_the_rest(tmp_path):
    wanted = [Wanted(f"{tmp_path}/{name}", "file", name.encode()) for name in "abc"]
    observed = _files_apply.observe(wanted)
    steps = _files_apply.apply_steps(
        _files.plan_files(wanted, observed, {}, {}, False).steps, no_label
    )
    assert next(steps) == f"{tmp_path}/a"
    # kill -9 runs no clean-up: keep the generator from doing its own
    leftovers = sorted(name for name in os.listdir(tmp_path) if name.startswith("."))
    assert len(leftovers) == 2
    kept = {name: (tmp_path / name).read_bytes() for name in leftovers}
    steps.close()
    for name, content in kept.items():
        (tmp_path / name.replace(f"-{os.getpid()}-", f"-{DEAD}-")).write_bytes(content)
    assert bring(*wanted) == [f"{tmp_path}/b", f"{tmp_path}/c"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


@pytest.mark.parametrize("made_mode", [0o1777, 0o755, 0o700])
def test_a_folder_that_another_host_makes_at_the_same_moment_is_taken(tmp_path, made_mode):
    """All nodes make the folder of the images on shared storage at once."""
    wanted = [Wanted(f"{tmp_path}/images", "directory", mode=0o1777)]
    steps = _files.plan_files(wanted, _files_apply.observe(wanted), {}, {}, False).steps
    (tmp_path / "images").mkdir()
    (tmp_path / "images").chmod(made_mode)
    assert list(_files_apply.apply_steps(steps, no_label)) == [f"{tmp_path}/images"]
    assert (tmp_path / "images").stat().st_mode & 0o7777 == 0o1777


def test_what_else_takes_the_name_of_a_folder_is_refused(tmp_path):
    wanted = [Wanted(f"{tmp_path}/images", "directory", mode=0o1777)]
    steps = _files.plan_files(wanted, _files_apply.observe(wanted), {}, {}, False).steps
    (tmp_path / "images").symlink_to("/nowhere")
    with pytest.raises(_files_apply.UnsafeError, match="is a link"):
        list(_files_apply.apply_steps(steps, no_label))
    if os.geteuid() == 0:
        tmp_path.chmod(0o1777)
        (tmp_path / "images").unlink()
        (tmp_path / "images").mkdir()
        os.chown(tmp_path / "images", 65534, -1)
        with pytest.raises(_files_apply.UnsafeError, match="belongs to user 65534"):
            list(_files_apply.apply_steps(steps, no_label))
        assert (tmp_path / "images").stat().st_mode & 0o7777 == 0o755


def test_sweep_spares_what_a_living_run_is_writing(tmp_path):
    ours = f".f.baremetal-dgx-{os.getpid()}-abc~"
    for name in (ours, f".f.baremetal-dgx-{DEAD}-abc~", ".f.other~", "f~"):
        (tmp_path / name).write_bytes(b"")
    _files_apply.sweep(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == sorted([ours, ".f.other~", "f~"])


def test_a_temporary_name_fits_for_the_longest_base_name(tmp_path):
    bring(Wanted(f"{tmp_path}/{'x' * 255}", "file", b"text"))
    assert os.listdir(tmp_path) == ["x" * 255]


@pytest.mark.parametrize("unsafe_writes", [True, False])
def test_a_busy_target(tmp_path, monkeypatch, unsafe_writes):
    path = tmp_path / "hosts"
    path.write_bytes(b"old and longer")

    def busy(_source, _target, **_folders):
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(os, "rename", busy)
    want = Wanted(str(path), "file", b"new", unsafe_writes=unsafe_writes)
    if unsafe_writes:
        bring(want)
        assert path.read_bytes() == b"new"
    else:
        with pytest.raises(OSError, match="busy"):
            bring(want)
        assert path.read_bytes() == b"old and longer"
    assert os.listdir(tmp_path) == ["hosts"]


def test_stage_holds_what_the_files_will_be_and_goes_away(tmp_path):
    (tmp_path / "kept").write_bytes(b"theirs")
    (tmp_path / "old").write_bytes(b"old")
    wanted = [
        Wanted(f"{tmp_path}/new.conf", "file", b"secret", secret=True, mode=0o644),
        Wanted(f"{tmp_path}/kept", "file", b"ours", replace=False),
        Wanted(f"{tmp_path}/old", "file", b"new"),
        Wanted(f"{tmp_path}/gone", "absent"),
    ]
    with _files_apply.stage(wanted, _files_apply.observe(wanted)) as folder:
        assert os.stat(folder).st_mode & 0o777 == 0o700
        names = sorted(os.listdir(folder))
        assert names == ["kept", "new.conf", "old"]
        contents = [(Path(folder) / name).read_bytes() for name in names]
        assert contents == [b"theirs", b"secret", b"new"]
        assert {os.stat(os.path.join(folder, name)).st_mode & 0o777 for name in names} == {0o600}
    assert not os.path.exists(folder)


def test_observe(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "f").write_bytes(b"x")
    (tmp_path / "f").chmod(0o604)
    (tmp_path / "l").symlink_to("d")
    os.mkfifo(tmp_path / "pipe")
    names = ["d", "f", "l", "pipe", "none", "none/below", "f/below"]
    seen = _files_apply.observe([Wanted(f"{tmp_path}/{name}", "file") for name in names])
    kinds = {name: seen[f"{tmp_path}/{name}"].kind for name in names}
    assert kinds == {
        "d": "directory",
        "f": "file",
        "l": "link",
        "pipe": "other",
        "none": "absent",
        "none/below": "absent",
        "f/below": "absent",
    }
    assert seen[f"{tmp_path}/f"].mode == 0o604
    assert seen[f"{tmp_path}/l"].leads_to_directory
    assert not seen[f"{tmp_path}/none/below"].parent
    assert not seen[f"{tmp_path}/f/below"].parent


def test_numbers_of_names():
    assert _files_apply.user_numbers(["root", "1234", "no_such_user", ""]) == {
        "root": 0,
        "1234": 1234,
        "no_such_user": None,
    }
    assert _files_apply.group_numbers(["root", "no_such_group"]) == {
        "root": 0,
        "no_such_group": None,
    }


# A folder that other users may write into: each is tried with real users.
ALICE, MALLORY = 65533, 65532


@pytest.fixture
def scratch(open_place, as_user):
    """A folder that all may write into, and beside it root's own."""
    assert as_user
    for name, mode in (("scratch", 0o777), ("root", 0o755)):
        (open_place / name).mkdir()
        (open_place / name).chmod(mode)
    (open_place / "root" / "secret").write_bytes(b"root's own file")
    (open_place / "root" / "secret").chmod(0o600)
    return open_place / "scratch"


def refused(*wanted, users=None):
    """The one reason why nothing is done."""
    (error,) = _files.plan_files(
        wanted, _files_apply.observe(wanted), users or {}, {}, False
    ).errors
    return error


def modes(root):
    return root.stat().st_mode & 0o7777, (root / "secret").stat().st_mode & 0o7777


def test_a_directory_that_is_a_users_link_is_refused(scratch, as_user):
    root = scratch.parent / "root"
    as_user(MALLORY, lambda: os.symlink(root, scratch / "images"))
    want = Wanted(f"{scratch}/images", "directory", mode=0o1777)
    assert f"is a link of user {MALLORY}" in refused(want)
    assert f"is a link of user {MALLORY}" in refused(Wanted(f"{scratch}/images/new", "file", b""))
    assert modes(root) == (0o755, 0o600)
    assert os.listdir(root) == ["secret"]
    # If no other user can have made it, a link to a directory is as good as one.
    scratch.chmod(0o755)
    (scratch / "images").unlink()
    (scratch / "images").symlink_to(root)
    bring(Wanted(f"{scratch}/images", "directory", mode=0o750))
    assert modes(root) == (0o750, 0o600)


@pytest.mark.parametrize("sticky", [True, False])
def test_a_link_that_comes_between_looking_and_doing_is_refused(scratch, as_user, sticky):
    if sticky:
        scratch.chmod(0o1777)
    root = scratch.parent / "root"
    wanted = [
        Wanted(f"{scratch}/images", "directory", mode=0o1777),
        Wanted(f"{scratch}/file", "file", mode=0o666),
    ]
    as_user(ALICE, lambda: os.mkdir(scratch / "images"))
    as_user(ALICE, (scratch / "file").touch)
    for want in wanted:
        now = _files_apply.observe([want])[want.path]
        step = _files.Step("attributes", want, now, mode=want.mode or 0)
        (scratch.parent / "x").mkdir()
        os.rename(want.path, scratch.parent / "x" / "gone")
        target = root if want.state == "directory" else root / "secret"
        as_user(MALLORY, lambda path=want.path, to=target: os.symlink(to, path))
        with pytest.raises(OSError, match=r"link|Not a directory"):
            list(_files_apply.apply_steps([step], no_label))
        os.rename(scratch.parent / "x", scratch.parent / f"old-{want.state}")
    assert modes(root) == (0o755, 0o600)


def test_a_second_name_of_roots_file_gets_no_mode(scratch):
    os.link(scratch.parent / "root" / "secret", scratch / "file")
    with pytest.raises(OSError, match="2 names"):
        bring(Wanted(f"{scratch}/file", "file", mode=0o644))
    assert modes(scratch.parent / "root") == (0o755, 0o600)


def test_what_a_user_made_there_is_not_taken_over(scratch, as_user):
    as_user(MALLORY, lambda: os.mkdir(scratch / "images"))
    as_user(MALLORY, (scratch / "file").touch)
    images, file = f"{scratch}/images", f"{scratch}/file"
    for want in (Wanted(images, "directory", mode=0o755), Wanted(file, "file", mode=0o644)):
        assert f"belongs to {MALLORY}" in refused(want)
    # Its owner and mode would stay.
    assert f"belongs to {MALLORY}" in refused(Wanted(file, "file", b"ours"))
    ours = Wanted(file, "file", b"ours", owner="root", mode=0o644)
    plan = _files.plan_files([ours], _files_apply.observe([ours]), {"root": 0}, {}, False)
    assert list(_files_apply.apply_steps(plan.steps, no_label)) == [file]
    assert (scratch / "file").stat().st_uid == 0
    mine = Wanted(images, "directory", owner=str(MALLORY), mode=0o700)
    plan = _files.plan_files(
        [mine], _files_apply.observe([mine]), {str(MALLORY): MALLORY}, {}, False
    )
    assert plan.errors == ()


def test_a_file_is_not_written_below_a_users_link(scratch, as_user):
    as_user(MALLORY, lambda: os.symlink(scratch.parent / "root", scratch / "conf"))
    assert "cannot be reached" in refused(Wanted(f"{scratch}/conf/secret", "file", b"x"))
    assert "cannot be reached" in refused(Wanted(f"{scratch}/conf/secret", "absent"))
    assert (scratch.parent / "root" / "secret").read_bytes() == b"root's own file"
