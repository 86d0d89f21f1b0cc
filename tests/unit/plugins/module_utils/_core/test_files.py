# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one place for files: what root does below a folder of other users, with real users."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core import files
from ansible_collections.baremetal.dgx.plugins.module_utils._core.files import (
    NO_OTHER,
    NO_OTHER_WRITER,
    UnsafeError,
)

ALICE, MALLORY = 65533, 65532


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


# What each user may rely on


def test_a_file_is_whole_and_has_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "made" / "below" / "file"
    files.write_atomic(str(path), "first\n", 0o640)
    files.write_atomic(str(path), b"second\n", 0o600)
    assert path.read_text() == "second\n"
    assert mode_of(path) == 0o600
    assert mode_of(path.parent) == 0o755
    assert os.listdir(path.parent) == ["file"]


def test_modes_are_those_asked_for_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        files.write_atomic(str(tmp_path / "a" / "b" / "file"), "", 0o644, make=0o711)
        files.append_lines(str(tmp_path / "a" / "log"), ["line"], 0o644)
    finally:
        os.umask(before)
    modes = {one: mode_of(tmp_path / one) for one in ("a", "a/b", "a/b/file", "a/log")}
    assert modes == {"a": 0o755, "a/b": 0o711, "a/b/file": 0o644, "a/log": 0o644}


@pytest.mark.parametrize("mode", [0o300, 0o100])
def test_a_folder_that_may_not_be_listed_is_written_into_where_that_may(
    open_place: Path, as_user: Callable[..., None], mode: int
) -> None:
    folder = open_place / "mail"
    folder.mkdir()
    os.chown(folder, ALICE, ALICE)
    folder.chmod(mode)

    def write() -> None:
        if mode & 0o200:
            files.write_atomic(str(folder / "file"), "first\n")
            files.write_atomic(str(folder / "file"), "second\n")
        else:
            with pytest.raises(PermissionError) as refused:
                files.write_atomic(str(folder / "file"), "")
            assert refused.value.filename == str(folder / "file")
        with files.open_folder(str(folder)) as opened:
            with pytest.raises(PermissionError, match="Permission denied") as refused:
                opened.names()
            assert refused.value.filename == str(folder)

    as_user(ALICE, write)
    assert [one.read_text() for one in folder.iterdir()] == ["second\n"] * bool(mode & 0o200)


def test_a_folder_that_must_exist_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.write_atomic(str(tmp_path / "none" / "file"), "", make=None)
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    for call in ("fsync", "fchmod", "rename"):
        with monkeypatch.context() as patch:

            def full(*_words: object, **_named: object) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr(os, call, full)
            with pytest.raises(OSError, match="No space") as caught:
                files.write_atomic(str(path), "new")
            assert caught.value.filename == str(path), "which disk is full"
        assert path.read_text() == "old"
        assert os.listdir(tmp_path) == ["file"]


def test_an_error_of_writing_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel knows a name in a folder, and of a descriptor nothing."""
    path = str(tmp_path / "file")
    work = {
        "open": lambda: files.write_atomic(path, "new"),
        "mkdir": lambda: files.make_folder(path),
        "link": lambda: files.open_folder(str(tmp_path)).write_first("file", "new"),
        "fsync": lambda: files.append_lines(path, ["one"]),
    }
    for call, write in work.items():
        real = getattr(os, call)

        def refuse(first: object, *words: object, _real=real, **named: object) -> object:
            if isinstance(first, str) and "file" not in first:
                return _real(first, *words, **named)
            raise OSError(30, "Read-only file system", first if isinstance(first, str) else None)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, refuse)
            with pytest.raises(OSError, match=f"Read-only file system: '{path}'$"):
                write()


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    (tmp_path / f".file.baremetal-dgx-{child}-00c0ffee~").write_text("half")
    living, other = (
        f".file.baremetal-dgx-{os.getpid()}-00c0ffee~",
        f".other.baremetal-dgx-{child}-00c0ffee~",
    )
    (tmp_path / living).write_text("being written")
    (tmp_path / other).write_text("of another file")
    files.write_atomic(str(tmp_path / "file"), "whole")
    assert sorted(os.listdir(tmp_path)) == sorted([living, other, "file"])


def test_what_another_host_is_writing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other host's processes are not known on this one."""
    monkeypatch.setattr(files, "runs", lambda _pid: False)
    here = os.uname()
    there = type("Uname", (), {"nodename": f"not-{here.nodename}"})
    with files.open_folder(str(tmp_path)) as folder:
        monkeypatch.setattr(os, "uname", lambda: there)
        fresh = folder.prepare("file", "of the other host")
        monkeypatch.setattr(os, "uname", lambda: here)
        files.write_atomic(str(tmp_path / "file"), "of this host")
        folder.sweep()
        folder.rename(fresh, "file")
        own = folder.prepare("file", "of this host, which was killed")
    assert (tmp_path / "file").read_text() == "of the other host"
    files.write_atomic(str(tmp_path / "file"), "again")
    assert own not in os.listdir(tmp_path)


def test_links_of_root_or_the_caller_are_followed_above_the_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "up").symlink_to("../link/.")
    files.write_atomic(str(tmp_path / "link" / "up" / "file"), "text")
    assert (tmp_path / "real" / "file").read_text() == "text"
    (tmp_path / "name").symlink_to("real/file")
    assert files.read_text(str(tmp_path / "name")) == "text"
    files.write_atomic(str(tmp_path / "name"), "own")
    assert (tmp_path / "real" / "file").read_text() == "text", "a link is replaced, not followed"


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=r"[Tt]oo many"):
        files.open_folder(str(tmp_path / "a"))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b"])
def test_a_name_is_one_name(tmp_path: Path, name: str) -> None:
    with files.open_folder(str(tmp_path)) as folder, pytest.raises(ValueError, match="not a name"):
        folder.write(name, "")


def test_reading_has_a_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 11)
    assert len(files.read_bytes(str(tmp_path / "file"), 11)) == 11
    with pytest.raises(OSError, match="more than 10 bytes"):
        files.read_bytes(str(tmp_path / "file"), 10)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(UnsafeError, match="not a regular file"):
            files.read_bytes(str(path))
    with pytest.raises(IsADirectoryError):
        files.read_bytes(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        files.read_bytes(str(tmp_path / "none"))


def test_a_file_that_its_user_may_have_exchanged(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    assert files.text_of_user(str(path)) is None
    (tmp_path / "there").write_bytes(b"key\xff\r\n")
    path.symlink_to("there")
    assert files.text_of_user(str(path)) == "key\udcff\r\n"
    assert files.text_of_user(str(path / "below")) is None
    with pytest.raises(OSError, match="more than 4 bytes"):
        files.text_of_user(str(path), 4)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(UnsafeError, match=f"{path}: is not a regular file"):
        files.text_of_user(str(path))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UnsafeError, match=f"{path}: is not a regular file"):
        files.text_of_user(str(path))
    with pytest.raises(IsADirectoryError):
        files.text_of_user(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b"{\n,", "not JSON: .*line 2"), (b"\xff", "not UTF-8 text, byte 0")],
)
def test_json_errors_have_one_wording(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        files.read_json(str(path), "the state")
    assert str(path) in str(raised.value)
    path.write_text(json.dumps({"a": 1}))
    assert files.read_json(str(path)) == {"a": 1}


def test_what_is_not_there_or_torn_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert files.json_if_readable(str(path)) is None
    path.write_text('{"a": ')
    assert files.json_if_readable(str(path)) is None
    path.write_text('{"a": 1}')
    assert files.json_if_readable(str(path)) == {"a": 1}


def test_lines_are_appended_and_a_torn_one_stays_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    files.append_lines(str(path), ["one"])
    with path.open("a") as handle:
        handle.write("tor")
    files.append_lines(str(path), ["two", "three"], sync=False)
    assert path.read_text() == "one\ntor\ntwo\nthree\n"
    assert mode_of(path) == 0o640


def test_a_file_of_a_size_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "log"
    files.set_aside(str(path), 4)
    for text in ("old", "new", "more"):
        files.append_lines(str(path), [text])
        files.set_aside(str(path), 6)
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == {
        "log.1": "old\nnew\n",
        "log": "more\n",
    }


def test_a_tree_goes_and_what_its_links_lead_to_stays(tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "file").write_text("kept")
    (tmp_path / "tree" / "below").mkdir(parents=True)
    (tmp_path / "tree" / "below" / "file").write_text("")
    (tmp_path / "tree" / "link").symlink_to("../keep")
    files.remove_tree(str(tmp_path / "tree"))
    files.remove_tree(str(tmp_path / "tree"))
    assert [one.name for one in tmp_path.rglob("*")] == ["keep", "file"]


def test_a_temporary_folder_is_closed_and_goes(tmp_path: Path) -> None:
    with files.temporary_folder("work-", str(tmp_path)) as folder:
        assert mode_of(Path(folder)) == 0o700
        files.write_atomic(f"{folder}/a/b", "")
    assert not list(tmp_path.iterdir())


def test_files_are_removed_and_renamed(tmp_path: Path) -> None:
    assert not files.remove(str(tmp_path / "none" / "file"))
    (tmp_path / "a").write_text("a")
    files.rename(str(tmp_path / "a"), str(tmp_path / "b"))
    assert files.remove(str(tmp_path / "b"))
    assert not files.remove(str(tmp_path / "b"))


def test_a_link_is_put_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    with files.open_folder(str(tmp_path)) as folder:
        folder.link("a", "elsewhere")
        assert folder.names() == ["a"]
    assert os.readlink(tmp_path / "a") == "elsewhere"


# What another user can do: each of these is tried with real users


@pytest.fixture
def victim(open_place: Path) -> Path:
    """A file that only root may read and write."""
    path = open_place / "root"
    path.mkdir(0o755)
    secret = path / "secret"
    secret.write_text("root's own file")
    secret.chmod(0o600)
    return secret


@pytest.fixture
def place(open_place: Path, as_user: Callable[..., None]) -> Path:
    """A folder of ALICE that all may write into, not sticky."""
    path = open_place / "scratch"
    path.mkdir()
    os.chown(path, ALICE, ALICE)
    path.chmod(0o777)
    assert as_user
    return path


ATTACKS: dict[str, Callable[[str], object]] = {
    "write": lambda path: files.write_atomic(path, "x", 0o644),
    "write below": lambda path: files.write_atomic(f"{path}/below/file", "x"),
    "append": lambda path: files.append_lines(path, ["x"]),
    "read": files.read_bytes,
    "make": lambda path: files.make_folder(f"{path}/new"),
    "temporary": lambda path: files.make_temporary("x-", path),
    "remove tree": files.remove_tree,
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("above", [False, True])
def test_a_users_link_leads_nowhere(
    place: Path, victim: Path, as_user: Callable[..., None], attack: str, above: bool
) -> None:
    target = victim.parent if above else victim
    as_user(MALLORY, lambda: os.symlink(target, place / "name"))
    before = victim.parent.stat()
    path = place / "name" / "secret" if above else place / "name"
    try:
        ATTACKS[attack](str(path))
        done = True
    except OSError:
        done = False
    # Only what replaces or removes the link itself may go on.
    assert done == (not above and attack in ("write", "remove tree"))
    assert victim.read_text() == "root's own file"
    assert mode_of(victim) == 0o600
    after = victim.parent.stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


def test_a_link_below_tmp_is_followed_only_if_root_made_it(
    place: Path, victim: Path, as_user: Callable[..., None]
) -> None:
    os.chown(place, 0, 0)
    place.chmod(0o1777)
    (place / "roots").symlink_to(victim.parent)
    as_user(MALLORY, lambda: os.symlink(victim.parent, place / "users"))
    assert files.read_text(str(place / "roots" / "secret")) == "root's own file"
    with pytest.raises(UnsafeError, match=f"users: is a link of user {MALLORY}"):
        files.read_text(str(place / "users" / "secret"))
    place.chmod(0o777)
    with pytest.raises(UnsafeError, match="roots: is a link of user 0"):
        files.read_text(str(place / "roots" / "secret"))


def test_attributes_follow_no_link_and_no_second_name(
    place: Path, victim: Path, as_user: Callable[..., None]
) -> None:
    as_user(MALLORY, lambda: os.symlink(victim, place / "link"))
    os.link(victim, place / "hard")
    with files.open_folder(str(place)) as folder:
        for name, message in (("link", "is a link"), ("hard", "2 names")):
            with pytest.raises(UnsafeError, match=message):
                folder.attributes(name, 0o644, MALLORY, MALLORY)
            with pytest.raises(UnsafeError, match=message):
                folder.open(name)
    assert (mode_of(victim), victim.stat().st_uid) == (0o600, 0)


def test_a_squatted_folder_is_refused(place: Path, as_user: Callable[..., None]) -> None:
    as_user(MALLORY, lambda: os.mkdir(place / "state", 0o700))
    with pytest.raises(UnsafeError, match=f"state: belongs to user {MALLORY}"):
        files.open_folder(str(place / "state"), 0o700, NO_OTHER)
    (place / "wide").mkdir(0o755)
    files.make_folder(str(place / "wide"), deny=NO_OTHER_WRITER)
    with pytest.raises(UnsafeError, match=r"has mode 0755.*chmod 0700"):
        files.open_folder(str(place / "wide"), 0o700, NO_OTHER)


def test_a_users_file_is_not_appended_to(place: Path, as_user: Callable[..., None]) -> None:
    as_user(MALLORY, (place / "log").touch)
    with pytest.raises(UnsafeError, match=f"belongs to user {MALLORY}"):
        files.append_lines(str(place / "log"), ["x"])


def test_no_temporary_folder_that_others_could_exchange(
    place: Path, as_user: Callable[..., None]
) -> None:
    assert as_user
    with pytest.raises(UnsafeError, match="other users could exchange"):
        files.make_temporary("work-", str(place))
    os.chown(place, 0, 0)
    place.chmod(0o1777)
    assert mode_of(Path(files.make_temporary("work-", str(place), 0o755))) == 0o755


def test_a_tree_that_changes_while_it_is_removed_takes_nothing_else(
    place: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "tree" / "below").mkdir(parents=True)
    opened = files.Folder.folder

    def exchanged(self: files.Folder, name: str, *words: int) -> files.Folder:
        if name == "below":
            os.rmdir(place / "tree" / "below")
            os.symlink(victim.parent, place / "tree" / "below")
        return opened(self, name, *words)

    monkeypatch.setattr(files.Folder, "folder", exchanged)
    with pytest.raises(UnsafeError, match="below: is a link"):
        files.remove_tree(str(place / "tree"))
    assert victim.read_text() == "root's own file"


@pytest.mark.parametrize("is_linked", [True, False])
def test_a_file_of_another_folder_is_taken_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_linked: bool
) -> None:
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    old, new = tmp_path / "from" / "file", tmp_path / "to" / "file"
    old.write_bytes(b"x" * (3 << 20))
    os.utime(old, ns=(5, 7))

    def link(*_words: object, **_more: object) -> None:
        raise OSError(errno.EXDEV, "another disk")

    if not is_linked:
        monkeypatch.setattr(os, "link", link)
    with files.open_folder(str(old.parent)) as source, files.open_folder(str(new.parent)) as into:
        into.take(source, "file")
        with pytest.raises(FileExistsError):
            into.take(source, "file")
        assert into.read_first("file", 4) == b"xxxx"
    assert new.samefile(old) == is_linked
    assert new.read_bytes() == old.read_bytes()
    assert new.stat().st_mtime_ns == 7


def test_half_a_copy_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    (tmp_path / "from" / "file").write_bytes(b"x")

    def fail(*_words: object, **_more: object) -> None:
        raise OSError(errno.EXDEV, "another disk")

    monkeypatch.setattr(os, "link", fail)
    monkeypatch.setattr(os, "utime", fail)
    with (
        files.open_folder(str(tmp_path / "from")) as source,
        files.open_folder(str(tmp_path / "to")) as into,
        pytest.raises(OSError, match="another disk"),
    ):
        into.take(source, "file")
    assert not os.listdir(tmp_path / "to")


def test_a_link_and_a_file_of_another_user_are_not_taken(
    place: Path, tmp_path: Path, as_user: Callable[..., None]
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    as_user(MALLORY, lambda: os.symlink("/etc/shadow", place / "link"))
    as_user(MALLORY, (place / "file").touch)
    with files.open_folder(str(place)) as source, files.open_folder(str(own)) as into:
        for name, why in (("link", "is a link"), ("file", "belongs to user 65532, not to 65533")):
            with pytest.raises(UnsafeError, match=why):
                into.take(source, name)
    assert not os.listdir(own)


def test_a_tree_that_is_being_copied_is_closed_to_others(tmp_path: Path) -> None:
    """shutil makes files by the umask, and gives them their modes once they are whole."""
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "below").mkdir(parents=True)
    (source / "below" / "file").write_text("secret")
    modes = []

    def look(_folder: str, _names: list[str]) -> list[str]:
        modes.append(mode_of(target) if target.exists() else 0)
        return []

    source.chmod(0o755)
    files.copy_tree(str(source), str(target), look)
    assert len(modes) == 2
    assert not [mode for mode in modes if mode & NO_OTHER]
    assert mode_of(target) == 0o755
    assert (target / "below" / "file").read_text() == "secret"
    with pytest.raises(FileExistsError):
        files.copy_tree(str(source), str(target))


def test_a_carriage_return_is_no_end_of_a_line(tmp_path: Path) -> None:
    """A user may write one into his line of /etc/passwd, and into the name of a program."""
    (tmp_path / "file").write_bytes(b"alice:x:1:1:A\rB:/home/alice:/bin/sh\n\xff\n")
    found = files.text_if_there(str(tmp_path / "file"), "surrogateescape")
    assert found == "alice:x:1:1:A\rB:/home/alice:/bin/sh\n\udcff\n"
