# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._host.files import plan as _files
from ansible_collections.baremetal.dgx.plugins.module_utils._host.files.plan import Observed, Wanted

ROOT_FILE = Observed(_files.FILE, b"old\n", 0o644, 0, 0, "root", "root")
ROOT_DIRECTORY = Observed(_files.DIRECTORY, mode=0o755, uid=0, gid=0, owner="root", group="root")
USERS = {"root": 0, "slurm": 64030, "not_there": None}


def plan_one(want, now, check_mode=False):
    return _files.plan_files([want], {want.path: now}, USERS, USERS, check_mode)


def actions(plan):
    return [step.action for step in plan.steps]


@pytest.mark.parametrize(
    ("want", "now", "expected"),
    [
        pytest.param(Wanted("/f", "file", b"new\n"), Observed(), ["write"], id="new file"),
        pytest.param(Wanted("/f", "file", b"new\n"), ROOT_FILE, ["write"], id="other content"),
        pytest.param(Wanted("/f", "file", b"old\n"), ROOT_FILE, [], id="same content"),
        pytest.param(
            Wanted("/f", "file", b"old\n", mode=0o600), ROOT_FILE, ["attributes"], id="mode"
        ),
        pytest.param(
            Wanted("/f", "file", b"old\n", owner="slurm"), ROOT_FILE, ["attributes"], id="owner"
        ),
        pytest.param(
            Wanted("/f", "file", b"old\n", owner="root", mode=0o644), ROOT_FILE, [], id="as is"
        ),
        pytest.param(Wanted("/f", "file"), ROOT_FILE, [], id="content left alone"),
        pytest.param(Wanted("/f", "file"), Observed(), ["write"], id="empty file is made"),
        pytest.param(Wanted("/f", "file", b"new", replace=False), ROOT_FILE, [], id="kept"),
        pytest.param(
            Wanted("/f", "file", b"new", replace=False), Observed(), ["write"], id="first"
        ),
        pytest.param(
            Wanted("/f", "file", b"new", replace=False, mode=0o600),
            ROOT_FILE,
            ["attributes"],
            id="kept content, new mode",
        ),
        pytest.param(
            Wanted("/f", "file", b"x"),
            Observed(_files.LINK, target="/y"),
            ["write"],
            id="link replaced by a file",
        ),
        pytest.param(
            Wanted("/f", "file", b"x", replace=False),
            Observed(_files.LINK, target="/y"),
            [],
            id="link kept",
        ),
        pytest.param(Wanted("/f", "absent"), ROOT_FILE, ["remove"], id="file removed"),
        pytest.param(Wanted("/f", "absent"), Observed(), [], id="gone already"),
        pytest.param(Wanted("/f", "absent"), Observed(parent=False), [], id="gone with its parent"),
        pytest.param(
            Wanted("/f", "absent"), ROOT_DIRECTORY, ["remove"], id="empty directory removed"
        ),
        pytest.param(Wanted("/f", "directory"), Observed(), ["make_directory"], id="new directory"),
        pytest.param(Wanted("/f", "directory"), ROOT_DIRECTORY, [], id="same directory"),
        pytest.param(
            Wanted("/f", "directory", mode=0o700),
            ROOT_DIRECTORY,
            ["attributes"],
            id="directory mode",
        ),
        pytest.param(
            Wanted("/f", "directory"),
            Observed(_files.LINK, target="/d", leads_to_directory=True, mode=0o755, uid=0, gid=0),
            [],
            id="link to a directory is one",
        ),
        pytest.param(Wanted("/f", "link", target="/t"), Observed(), ["make_link"], id="new link"),
        pytest.param(
            Wanted("/f", "link", target="/t"),
            Observed(_files.LINK, target="/t"),
            [],
            id="same link",
        ),
        pytest.param(
            Wanted("/f", "link", target="/t"),
            Observed(_files.LINK, target="/u"),
            ["make_link"],
            id="other target",
        ),
        pytest.param(
            Wanted("/f", "link", target="/t"), ROOT_FILE, ["make_link"], id="file to link"
        ),
    ],
)
def test_plan(want, now, expected):
    plan = plan_one(want, now)
    assert plan.errors == ()
    assert actions(plan) == expected
    assert plan.changed_paths == ["/f"] * len(expected)


@pytest.mark.parametrize(
    ("want", "now", "message"),
    [
        (Wanted("/f", "file", b""), ROOT_DIRECTORY, "/f: is a directory, but a file is wanted"),
        (
            Wanted("/f", "link", target="/t"),
            ROOT_DIRECTORY,
            "/f: is a directory, but a link is wanted",
        ),
        (Wanted("/f", "directory"), ROOT_FILE, "/f: is a file, but a directory is wanted"),
        (
            Wanted("/f", "directory"),
            Observed(_files.LINK, target="/t"),
            "/f: is a link to /t, but a directory is wanted",
        ),
        (
            Wanted("/f", "file", b""),
            Observed(_files.OTHER),
            "/f: is neither file, directory nor link",
        ),
        (
            Wanted("/f", "absent"),
            Observed(_files.DIRECTORY, entries=3),
            "/f: is a directory with 3 entries, which is not removed",
        ),
        (
            Wanted("/d/f", "file", b""),
            Observed(parent=False),
            "/d/f: its directory /d does not exist; list it before with state: directory",
        ),
        (
            Wanted("/f", "file", b"", owner="not_there"),
            Observed(),
            "/f: user not_there does not exist",
        ),
        (
            Wanted("/f", "file", b"", group="not_there"),
            Observed(),
            "/f: group not_there does not",
        ),
        (
            Wanted("/f", "file", b"new"),
            Observed(_files.FILE, b"old", mount_point=True),
            "/f: is itself a mount point (as /etc/hosts in a container)",
        ),
        (
            Wanted("/f", "absent"),
            Observed(_files.FILE, b"old", mount_point=True),
            "/f: is a mount point and cannot be removed",
        ),
    ],
)
def test_plan_refuses(want, now, message):
    plan = plan_one(want, now)
    assert plan.steps == ()
    assert len(plan.errors) == 1
    assert plan.errors[0].startswith(message)


def test_every_error_is_told_at_once():
    wants = [
        Wanted("/a", "file", b""),
        Wanted("/no/b", "file", b"", owner="not_there", group="not_there"),
    ]
    plan = _files.plan_files(
        wants, {"/a": ROOT_DIRECTORY, "/no/b": Observed(parent=False)}, USERS, USERS, False
    )
    assert [error.split(":")[0] for error in plan.errors] == ["/a", "/no/b", "/no/b", "/no/b"]


def test_check_mode_tolerates_what_an_earlier_task_pretended():
    want = Wanted("/d/f", "file", b"", owner="not_there")
    plan = plan_one(want, Observed(parent=False), check_mode=True)
    assert plan.errors == ()
    assert plan.pretended
    assert actions(plan) == ["write"]


def test_check_mode_still_refuses_a_wrong_type():
    assert plan_one(Wanted("/f", "file", b""), ROOT_DIRECTORY, check_mode=True).errors


def test_a_directory_of_the_same_list_counts_as_a_parent():
    wants = [Wanted("/d", "directory"), Wanted("/d/f", "file", b"")]
    seen = {"/d": Observed(), "/d/f": Observed(parent=False)}
    assert _files.plan_files(wants, seen, USERS, USERS, False).errors == ()
    assert _files.plan_files(wants[::-1], seen, USERS, USERS, False).errors != ()


def test_a_mount_point_is_written_in_place_when_allowed():
    want = Wanted("/f", "file", b"new", unsafe_writes=True)
    plan = plan_one(want, Observed(_files.FILE, b"old", mount_point=True))
    assert plan.errors == ()
    assert plan.steps[0].in_place


@pytest.mark.parametrize(
    ("want", "now", "numbers"),
    [
        (Wanted("/f", "file", b"x"), Observed(), (-1, -1, 0o644)),
        (Wanted("/f", "file", b"x", secret=True), Observed(), (-1, -1, 0o600)),
        (Wanted("/f", "file", b"x"), Observed(_files.FILE, b"", 0o640, 5, 6), (5, 6, 0o640)),
        (Wanted("/f", "file", b"x", owner="slurm", mode=0o400), ROOT_FILE, (64030, 0, 0o400)),
        (Wanted("/f", "directory"), Observed(), (-1, -1, 0o755)),
    ],
)
def test_attributes_that_are_not_given_are_kept_or_have_one_default(want, now, numbers):
    step = plan_one(want, now).steps[0]
    assert (step.uid, step.gid, step.mode) == numbers


@pytest.mark.parametrize(
    ("value", "mode", "complaint"),
    [
        (None, None, ""),
        ("0644", 0o644, ""),
        ("644", 0o644, ""),
        ("4755", 0o4755, ""),
        (420, None, "has mode 420; write it as a quoted octal string"),
        ("u=rw", None, 'has mode "u=rw"'),
        ("0689", None, 'has mode "0689"'),
        ("7", None, 'has mode "7"'),
    ],
)
def test_parse_mode(value, mode, complaint):
    number, problem = _files.parse_mode(value)
    assert number == mode
    assert problem.startswith(complaint) if complaint else problem == ""


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"path": "etc/x"}, "etc/x: is not an absolute path"),
        ({"path": "/"}, "/: is the root directory"),
        (
            {"path": "/x", "content": "a", "secret_content": "b"},
            "/x: has content and secret_content",
        ),
        (
            {"path": "/x", "state": "link", "target": "/y", "content": "a"},
            "/x: has content but state link",
        ),
        ({"path": "/x", "state": "link"}, "/x: needs both state: link and target"),
        ({"path": "/x", "target": "/y"}, "/x: needs both state: link and target"),
        ({"path": "/x", "mode": 420}, "/x: has mode 420"),
        ({"path": "/x", "content": "$$", "encoding": "base64"}, "/x: has encoding base64 but"),
    ],
)
def test_parse_wanted_refuses(entry, complaint):
    errors = _files.parse_wanted([entry])[1]
    assert len(errors) == 1
    assert errors[0].startswith(complaint)


def test_parse_wanted_refuses_a_path_that_is_there_twice():
    errors = _files.parse_wanted([{"path": "/x/y"}, {"path": "/x//y/"}])[1]
    assert errors == ["/x//y/: is listed twice; give each path once"]


def test_parse_wanted_decodes_a_binary_key():
    wanted, errors = _files.parse_wanted(
        [{"path": "/k", "secret_content": "AAH/\n/g==\n", "encoding": "base64"}]
    )
    assert errors == []
    assert wanted[0].content == b"\x00\x01\xff\xfe"
    assert wanted[0].secret


def test_diff_shows_content_and_attributes():
    want = Wanted("/f", "file", b"new\n", mode=0o600)
    content, attributes = _files.diff_of(plan_one(want, ROOT_FILE))
    assert (content["before_header"], content["before"], content["after"]) == (
        "/f",
        "old\n",
        "new\n",
    )
    assert attributes["before"] == "state: file\nowner: root\ngroup: root\nmode: 0644\n"
    assert attributes["after"] == "state: file\nowner: root\ngroup: root\nmode: 0600\n"


def test_diff_never_shows_a_secret():
    want = Wanted("/f", "file", b"hunter2\n", secret=True)
    diff = _files.diff_of(plan_one(want, ROOT_FILE))
    assert diff == [
        {
            "before_header": "/f",
            "after_header": "/f",
            "before": "(secret, 4 bytes)\n",
            "after": "(secret, 8 bytes, new)\n",
        }
    ]


def test_diff_names_the_size_of_what_is_no_text():
    diff = _files.diff_of(plan_one(Wanted("/f", "file", b"\xff\x00"), ROOT_FILE))
    assert diff[0]["after"] == "(binary, 2 bytes)\n"


def test_staged_names():
    names = _files.staged_names(["/etc/slurm/slurm.conf", "/p/prolog.d/10-x", "/p/epilog.d/10-x"])
    assert names == {
        "/etc/slurm/slurm.conf": "slurm.conf",
        "/p/prolog.d/10-x": "p/prolog.d/10-x",
        "/p/epilog.d/10-x": "p/epilog.d/10-x",
    }
