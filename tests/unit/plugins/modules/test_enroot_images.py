# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Declared images in a folder that a real user may write into, too."""

from __future__ import annotations

import os
import time

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._storage import images as _images
from ansible_collections.baremetal.dgx.plugins.modules import enroot_images

ALICE, MALLORY = 65533, 65532
NAME = "pytorch.sqsh"
# Imports as enroot does: the file must not be there, and appears bit by bit.
ENROOT = """#!/bin/sh
if [ "$2" = --arch ]; then echo "$3" > "$LOG.arch"; set -- "$1" "$4" "$5" "$6"; fi
[ "$1 $2" = "import -o" ] || exit 9
case $4 in *broken*) echo half > "$3"; echo "[ERROR] no such image" >&2; exit 1 ;; esac
[ ! -e "$3" ] || exit 8
echo "$3" >> "$LOG"
echo "the site's own" > "$3"
"""


@pytest.fixture
def images(as_user, open_place):
    assert as_user
    folder = open_place / "images"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def bring(run_module, images, tmp_path, monkeypatch):
    tool = tmp_path / "bin" / "enroot"
    tool.parent.mkdir()
    tool.write_text(ENROOT)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))

    def bring(uri="docker://x", check=False, **options):
        given = {"folder": str(images), "images": [{"name": NAME, "uri": uri}], **options}
        return run_module(enroot_images.main, given, check)

    return bring


def test_a_missing_image_is_imported_once(bring, images, tmp_path):
    assert bring(check=True)["imported"] == [NAME]
    assert os.listdir(images) == []
    assert bring()["changed"] is True
    assert os.listdir(images) == [NAME]
    found = (images / NAME).stat()
    assert (found.st_uid, found.st_mode & 0o7777) == (0, 0o644)
    # never under its own name before it is whole, and where no other user can enter
    (where,) = (tmp_path / "log").read_text().splitlines()
    assert where.startswith(f"{images}/.enroot-import-")
    assert bring()["changed"] is False


def test_an_image_is_for_the_nodes_and_not_for_the_importing_host(bring, images, tmp_path):
    image = {"name": NAME, "uri": "docker://x"}
    assert (
        "value of arch must be one of: x86_64, aarch64"
        in (bring(images=[{**image, "arch": "arm64"}])["msg"])
    )
    assert bring(images=[{**image, "arch": "aarch64"}])["imported"] == [NAME]
    assert (tmp_path / "log.arch").read_text() == "aarch64\n"
    assert os.listdir(images) == [NAME]


SQUATS = {
    "a file": lambda path: path.write_text("EVIL"),
    "a link": lambda path: path.symlink_to("/etc/hostname"),
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize("squat", SQUATS)
@pytest.mark.parametrize("check", [True, False])
def test_what_another_user_has_put_there_is_refused(bring, images, as_user, squat, check):
    as_user(MALLORY, lambda: SQUATS[squat](images / NAME))
    result = bring(check=check)
    assert result["msg"].startswith(f"{images}/{NAME}: ")
    assert "is not taken for the site's image" in result["msg"]
    assert str(MALLORY) in result["msg"]
    assert "\n" not in result["msg"]
    # It is left for a person to look at.
    assert (images / NAME).lstat().st_uid == MALLORY


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_of_roots_that_others_may_write_into_is_refused(bring, images, mode):
    (images / NAME).write_text("x")
    (images / NAME).chmod(mode)
    assert f"has mode {mode:04o}" in bring()["msg"]


def test_the_declared_owner_counts_like_root(bring, images, as_user):
    as_user(ALICE, lambda: (images / NAME).write_text("theirs"))
    (images / NAME).chmod(0o644)
    assert f"belongs to user {ALICE}" in bring()["msg"]
    assert bring(owner=str(ALICE))["changed"] is False
    assert "there is no user nosuch" in bring(owner="nosuch")["msg"]


def test_a_name_that_is_taken_while_it_is_imported_is_the_sites_afterwards(
    bring, images, as_user, monkeypatch
):
    put = _images.put

    def late(*words):
        as_user(MALLORY, lambda: (images / NAME).write_text("EVIL"))
        return put(*words)

    monkeypatch.setattr(_images, "put", late)
    assert bring()["changed"] is True
    assert (images / NAME).read_text() == "the site's own\n"
    assert (images / NAME).stat().st_uid == 0


def test_an_import_that_fails_leaves_nothing(bring, images):
    result = bring("docker://broken")
    assert "[ERROR] no such image" in result["msg"]
    assert os.listdir(images) == []


def test_what_a_killed_run_left_is_removed(bring, images, as_user):
    (images / ".enroot-import-999999999-0011aabb").mkdir()
    (images / ".enroot-import-999999999-0011aabb" / NAME).write_text("half")
    # not what a user calls so
    as_user(MALLORY, (images / ".enroot-import-999999999-1").mkdir)
    bring()
    assert sorted(os.listdir(images)) == [".enroot-import-999999999-1", NAME]


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_folder_in_which_names_can_be_exchanged_is_refused(bring, images, mode):
    images.chmod(mode)
    assert "chmod +t" in bring()["msg"]


def test_a_mount_that_does_not_answer_is_named(bring, hung_mount, monkeypatch):
    monkeypatch.setattr(_images, "LIMIT_S", 0.5)
    begun = time.monotonic()
    result = bring(folder=str(hung_mount / "images"))
    assert time.monotonic() - begun < 15
    assert f"{hung_mount} (fuse.hung, storage:/dead) does not answer" in result["msg"]


def test_a_name_with_a_folder_in_it_is_refused(bring):
    result = bring(images=[{"name": "../x", "uri": "y"}])
    assert result["msg"] == "images: '../x' is not a file name"
