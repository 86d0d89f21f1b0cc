# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import time

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._host.units import (
    systemd as _units_host,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units.plan import (
    PathDigest,
    Stamp,
    UnitState,
    Wanted,
)


def test_digest_of_a_file(tmp_path):
    path = tmp_path / "f"
    path.write_text("a")
    first = _units_host.digest_path(str(path))
    assert list(first.files) == [str(path)]
    assert first.changed_at == path.stat().st_ctime_ns / 1e9
    path.write_text("b")
    assert _units_host.digest_path(str(path)).files != first.files


def test_a_file_that_was_changed_back_is_still_touched(tmp_path):
    path = tmp_path / "f"
    path.write_text("a")
    first = _units_host.digest_path(str(path))
    assert _units_host.digest_path(str(path)) == first
    for text in ("b", "a"):
        time.sleep(0.02)
        path.write_text(text)
    os.utime(path, ns=(1, 1))
    again = _units_host.digest_path(str(path))
    assert again.files == first.files
    assert again.touched != first.touched
    assert again.around == first.around == ""


def test_an_absent_file_that_came_and_went_leaves_its_trace_around(tmp_path):
    first = _units_host.digest_path(f"{tmp_path}/none")
    time.sleep(0.02)
    (tmp_path / "none").write_text("a")
    (tmp_path / "none").unlink()
    again = _units_host.digest_path(f"{tmp_path}/none")
    assert (again.files, again.touched) == (first.files, first.touched)
    assert again.around != first.around


def test_a_match_of_a_pattern_that_came_and_went_is_a_touch(tmp_path):
    first = _units_host.digest_path(f"{tmp_path}/*.conf")
    time.sleep(0.02)
    (tmp_path / "a.conf").write_text("a")
    (tmp_path / "a.conf").unlink()
    again = _units_host.digest_path(f"{tmp_path}/*.conf")
    assert (again.files, again.around) == (first.files, first.around)
    assert again.touched != first.touched


def test_a_change_cannot_be_hidden_by_setting_the_time_back(tmp_path):
    path = tmp_path / "f"
    path.write_text("a")
    os.utime(path, (1, 1))
    assert _units_host.digest_path(str(path)).changed_at > time.time() - 60


def test_digest_of_what_is_absent_has_the_time_of_its_directory(tmp_path):
    digest = _units_host.digest_path(f"{tmp_path}/none")
    assert dict(digest.files) == {f"{tmp_path}/none": "absent"}
    assert digest.changed_at == tmp_path.stat().st_ctime_ns / 1e9
    assert _units_host.digest_path(f"{tmp_path}/no/ne").changed_at == 0.0


def test_digest_of_a_directory_sees_every_file_and_every_removal(tmp_path):
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "sub" / "b").write_text("b")
    (tmp_path / "d" / "a").write_text("a")
    digest = _units_host.digest_path(f"{tmp_path}/d")
    assert sorted(digest.files) == [f"{tmp_path}/d/a", f"{tmp_path}/d/sub/b"]
    os.unlink(tmp_path / "d" / "sub" / "b")
    fewer = _units_host.digest_path(f"{tmp_path}/d")
    assert sorted(fewer.files) == [f"{tmp_path}/d/a"]
    assert fewer.changed_at >= (tmp_path / "d" / "sub").stat().st_ctime_ns / 1e9


def test_digest_of_an_empty_directory_differs_from_none(tmp_path):
    (tmp_path / "d").mkdir()
    empty = _units_host.digest_path(f"{tmp_path}/d").files
    (tmp_path / "d").rmdir()
    assert empty != _units_host.digest_path(f"{tmp_path}/d").files


def test_digest_of_a_pattern(tmp_path):
    for name in ("a.conf", "b.conf", "c.txt"):
        (tmp_path / name).write_text(name)
    digest = _units_host.digest_path(f"{tmp_path}/*.conf")
    assert sorted(digest.files) == [f"{tmp_path}/a.conf", f"{tmp_path}/b.conf"]
    for name in ("a.conf", "b.conf"):
        (tmp_path / name).unlink()
    none = _units_host.digest_path(f"{tmp_path}/*.conf")
    assert dict(none.files) == {}
    assert none.changed_at == tmp_path.stat().st_ctime_ns / 1e9


def test_a_link_counts_with_what_it_leads_to(tmp_path):
    (tmp_path / "target").write_text("a")
    (tmp_path / "link").symlink_to("target")
    first = _units_host.digest_path(f"{tmp_path}/link")
    (tmp_path / "target").write_text("b")
    then = _units_host.digest_path(f"{tmp_path}/link")
    assert first.files != then.files
    assert then.changed_at == pytest.approx((tmp_path / "target").stat().st_ctime, abs=1e-3)


def test_definition_digest_ignores_comments(tmp_path):
    path = tmp_path / "u.service"
    state = UnitState("u.service", files=(str(path), f"{tmp_path}/gone.conf"))
    want = Wanted("u.service")
    path.write_text("[Service]\nExecStart=/bin/a\n")
    first = _units_host.on_disk(want, state).definition
    path.write_text("# new comment\n[Service]\nExecStart=/bin/a\n")
    assert _units_host.on_disk(want, state).definition.files == first.files
    path.write_text("[Service]\nExecStart=/bin/b\n")
    assert _units_host.on_disk(want, state).definition.files != first.files
    assert first.files[f"{tmp_path}/gone.conf"] == "absent"


@pytest.fixture
def definitions(tmp_path, monkeypatch):
    """Folders for unit files: of administrators, then of packages."""
    folders = [tmp_path / "etc", tmp_path / "lib"]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(_units_host, "UNIT_FOLDERS", [str(folder) for folder in folders])
    (folders[1] / "a.service").write_text("[Service]")
    return folders


def is_stale(name, *files):
    state = UnitState(name, load_state="loaded", files=tuple(str(path) for path in files))
    return _units_host.stale_definitions({name: state}) == {name}


def test_definitions_that_systemd_has_loaded(definitions):
    _etc, lib = definitions
    (lib / "service.d").mkdir()
    (lib / "service.d" / "all.conf").write_text("")
    assert not is_stale("a.service", lib / "a.service", lib / "service.d" / "all.conf")


def test_definitions_that_systemd_says_are_stale(definitions):
    state = UnitState("a.service", load_state="loaded", need_daemon_reload=True)
    assert _units_host.stale_definitions({"a.service": state}) == {"a.service"}


def test_a_new_drop_in_folder_is_noticed(definitions):
    """Systemd 252 does not say so."""
    etc, lib = definitions
    (etc / "a.service.d").mkdir()
    assert not is_stale("a.service", lib / "a.service")
    (etc / "a.service.d" / "x.conf").write_text("")
    assert is_stale("a.service", lib / "a.service")
    assert not is_stale("a.service", lib / "a.service", etc / "a.service.d" / "x.conf")


def test_a_drop_in_that_is_hidden_counts_for_nothing(definitions):
    etc, lib = definitions
    (etc / "a.service.d").mkdir()
    (etc / "a.service.d" / "x.conf").symlink_to("/dev/null")
    assert not is_stale("a.service", lib / "a.service")


def test_a_definition_that_overrides_that_of_the_package_is_noticed(definitions):
    etc, lib = definitions
    (etc / "a.service").write_text("[Service]")
    assert is_stale("a.service", lib / "a.service")
    assert not is_stale("a.service", etc / "a.service")


def test_an_alias_is_no_definition_of_its_own(definitions):
    etc, lib = definitions
    (etc / "alias.service").symlink_to(lib / "a.service")
    assert not is_stale("alias.service", lib / "a.service")


def test_an_instance_has_its_templates_definition(definitions):
    etc, lib = definitions
    (lib / "t@.service").write_text("[Service]")
    assert not is_stale("t@1.service", lib / "t@.service")
    (etc / "t@.service").write_text("[Service]")
    assert is_stale("t@1.service", lib / "t@.service")


def test_what_generators_make_is_left_to_systemd(definitions):
    _etc, lib = definitions
    assert not is_stale("a.service", "/run/systemd/generator/a.service")
    assert is_stale("a.service", lib / "b.service")


@pytest.fixture
def stamps(tmp_path, monkeypatch):
    monkeypatch.setattr(_units_host, "STAMP_FOLDER", str(tmp_path / "applied"))
    return tmp_path / "applied"


def test_stamps_are_for_root_alone(stamps):
    digest = PathDigest({"/u": "1"}, 5.25, "touched", "around")
    known = Stamp("one", True, digest, {"/f": digest}, "k", "812 9", True, ("/f",))
    assert _units_host.read_stamp("a.service") is None
    _units_host.write_stamp("a.service", known)
    assert _units_host.read_stamp("a.service") == known
    assert (stamps / "a.service.json").stat().st_mode & 0o777 == 0o600
    assert stamps.stat().st_mode & 0o777 == 0o700
    assert os.listdir(stamps) == ["a.service.json"]
    _units_host.remove_stamp("a.service")
    _units_host.remove_stamp("a.service")
    assert _units_host.read_stamp("a.service") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', "\xff"])
def test_a_damaged_stamp_is_none(stamps, text):
    stamps.mkdir()
    (stamps / "a.service.json").write_text(text, encoding="latin-1")
    assert _units_host.read_stamp("a.service") is None
