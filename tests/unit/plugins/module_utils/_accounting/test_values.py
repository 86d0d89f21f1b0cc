# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._accounting import values
from ansible_collections.baremetal.dgx.plugins.module_utils._accounting.values import Field

NUMBER = Field("max_jobs", "maxjobs", "maxjobs", values.INTEGER)
PRIORITY = Field("priority", "priority", "priority", values.INTEGER, unset=0, clear="0")
WALL = Field("max_wall", "maxwall", "maxwall", values.MINUTES)
GRACE = Field("grace_time", "gracetime", "gracetime", values.SECONDS, unset=0, clear="0")
FACTOR = Field("usage_factor", "usagefactor", "usagefactor", values.FACTOR, unset=1.0, clear="1")
TRES = Field("grp_tres", "grptres", "grptres", values.TRES, unset={})
FLAGS = Field("flags", "flags", "flags", values.NAMES, unset=frozenset())
QOS = Field("qos", "qos", "qos", values.NAMES, unset=frozenset(), clear="")
MODE = Field("mode", "mode", "mode", values.WORD, unset="cluster", clear="cluster")
DEFAULT = Field("default_qos", "defaultqos", "defaultqos", values.NAME)
TEXT = Field("description", "descr", "description", values.TEXT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90 * 60),
        ("1:30", 90),
        ("4:00:00", 4 * 3600),
        ("00:02:00", 120),
        ("2-0", 2 * 86400),
        ("1-12:30", 86400 + 12 * 3600 + 1800),
        ("7-00:00:00", 7 * 86400),
    ],
)
def test_seconds(text, expected):
    assert values.seconds(text) == expected


@pytest.mark.parametrize("text", ["", "x", "1:2:3:4", "-5", "1d", "1-"])
def test_seconds_refuses(text):
    with pytest.raises(ValueError, match="is not a time"):
        values.seconds(text)


def test_minutes_round_up_as_slurm_does():
    assert values.minutes("0:01") == 1
    assert values.minutes("1:00:01") == 61


@pytest.mark.parametrize(
    ("minutes", "text"), [(90, "0-01:30:00"), (2880, "2-00:00:00"), (1441, "1-00:01:00")]
)
def test_format_minutes(minutes, text):
    assert values.format_minutes(minutes) == text
    assert values.minutes(text) == minutes


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"gres/gpu": 16}, {"gres/gpu": 16}),
        ({"mem": "1500G"}, {"mem": 1536000}),
        ({"mem": "1.50T"}, {"mem": 1572864}),
        ({"mem": "1000001M"}, {"mem": 1000001}),
        ({"mem": 2048}, {"mem": 2048}),
        ({"mem": "2048K"}, {"mem": 2}),
        ({"mem": "2TiB"}, {"mem": 2097152}),
        ({"cpu": "2K"}, {"cpu": 2048}),
        ({"gres/gpu:h100": "8", "node": 4}, {"gres/gpu:h100": 8, "node": 4}),
        ({"cpu": -1, "node": 1}, {"node": 1}),
        ({}, {}),
    ],
)
def test_tres(given, expected):
    assert values.canonical_tres(given) == expected


@pytest.mark.parametrize("given", [{"GPU!": 1}, {"cpu": "many"}, {3: 1}, {"cpu": "-2"}])
def test_tres_refuses(given):
    with pytest.raises(ValueError, match="is not"):
        values.parse_wanted(TRES, given)


@pytest.mark.parametrize("name", ["license/fluent@flex", "gres/gpu:1g.10gb+me"])
def test_licences_of_a_server_and_mig_profiles_are_tres(name):
    assert values.parse_wanted(TRES, {name: 4}) == values.parse_cell(TRES, f"{name}=4")


@pytest.mark.parametrize(
    ("field", "printed", "expected"),
    [
        (TRES, "license/a~b=3,cpu=4", {"license/a~b": 3, "cpu": 4}),
        (DEFAULT, "of/others", "of/others"),
        (MODE, "Some:mode", "some:mode"),
        (TEXT, "it's theirs", "it's theirs"),
    ],
)
def test_what_others_have_written_is_read(field, printed, expected):
    assert values.parse_cell(field, printed) == expected


# What people write and what sacctmgr prints must meet in one canonical value.
@pytest.mark.parametrize(
    ("field", "written", "printed"),
    [
        (NUMBER, 5, "5"),
        (NUMBER, -1, ""),
        (PRIORITY, 0, "0"),
        (WALL, "90", "01:30:00"),
        (WALL, "7-00:00:00", "7-00:00:00"),
        (WALL, "UNLIMITED", ""),
        (GRACE, 120, "00:02:00"),
        (GRACE, "0:02:00", "00:02:00"),
        (FACTOR, 0.5, "0.500000"),
        (FACTOR, 1, "1.000000"),
        (TRES, {"gres/gpu": 16, "mem": "1.5T"}, "gres/gpu=16,mem=1536G"),
        (TRES, {}, ""),
        (QOS, ["b", "a"], "a,b"),
        (QOS, [], ""),
        (MODE, "requeue", "requeue"),
        (MODE, "WITHIN,cancel", "within,cancel"),
        (DEFAULT, "gpu.long", "gpu.long"),
        (TEXT, "All Research", "all research"),
    ],
)
def test_written_and_printed_meet(field, written, printed):
    assert values.parse_wanted(field, written) == values.parse_cell(field, printed)


@pytest.mark.parametrize(
    ("field", "written", "complaint"),
    [
        (NUMBER, "many", "'many' is not a number"),
        (WALL, 7200, "7200 is a number; write times in quotes"),
        (WALL, True, "True is not a time"),
        (WALL, "soon", "'soon' is not a time"),
        (TRES, ["gres/gpu=1"], "is not a mapping"),
        (QOS, ["a b"], "'a b' is not a name"),
        (MODE, "a b", "'a b' is not a word"),
        (DEFAULT, "a,b", "'a,b' is not a name"),
        (TEXT, 'say "x"', "has a quote"),
        (TEXT, "a|b", "has a quote"),
    ],
)
def test_parse_wanted_refuses(field, written, complaint):
    with pytest.raises(ValueError, match=complaint.replace("|", "[|]")):
        values.parse_wanted(field, written)


@pytest.mark.parametrize(
    ("field", "before", "after", "words"),
    [
        (NUMBER, 5, 5, []),
        (NUMBER, 5, 6, ["maxjobs=6"]),
        (NUMBER, 5, None, ["maxjobs=-1"]),
        (PRIORITY, 5, 0, ["priority=0"]),
        (WALL, None, 90, ["maxwall=0-01:30:00"]),
        (FACTOR, 0.5, 1.0, ["usagefactor=1"]),
        (FACTOR, 1.0, 0.1, ["usagefactor=0.1"]),
        (TRES, {}, {"cpu": 4, "gres/gpu": 2}, ["grptres=cpu=4,gres/gpu=2"]),
        (TRES, {"cpu": 4, "gres/gpu": 2}, {"gres/gpu": 2, "node": 1}, ["grptres=cpu=-1,node=1"]),
        (TRES, {"cpu": 4}, {}, ["grptres=cpu=-1"]),
        (FLAGS, frozenset("a"), frozenset(), ["flags=-1"]),
        (QOS, frozenset("a"), frozenset(), ["qos="]),
        (QOS, frozenset("a"), frozenset("ba"), ["qos=a,b"]),
        (MODE, "requeue", "cluster", ["mode=cluster"]),
        (DEFAULT, "a", None, ["defaultqos=-1"]),
    ],
)
def test_assignments(field, before, after, words):
    assert values.assignments(field, before, after) == words


def test_an_entry_is_complete_but_for_texts():
    settings, errors = values.wanted_settings((NUMBER, PRIORITY, TRES, QOS, TEXT), {}, "qos.x")
    assert errors == []
    assert settings == {
        "max_jobs": None,
        "priority": 0,
        "grp_tres": {},
        "qos": frozenset(),
        "description": None,
    }
    before = {**settings, "max_jobs": 4, "description": "theirs"}
    assert values.changes_of((NUMBER, TEXT), before, settings) == ["maxjobs=-1"]


def test_errors_have_their_path():
    asked = {"max_jobs": "x", "max_wall": 5}
    _settings, errors = values.wanted_settings((NUMBER, WALL), asked, "qos.x")
    assert errors == [
        "qos.x.max_jobs: 'x' is not a number; write a whole one, or -1 for no limit",
        'qos.x.max_wall: 5 is a number; write times in quotes, such as "2-00:00:00" or "90"',
    ]
