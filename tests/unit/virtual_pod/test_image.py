# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path

import pytest

from .conftest import podlib

image = podlib("image")

TARGETS = """\
http://mirror.example.org/debian/ bookworm main
http://mirror.example.org/debian/ bookworm contrib
http://mirror.example.org/debian/ bookworm-updates main
https://secure.example.org/debian-security/ bookworm-security main
https://packages.example.com/apt cloud-sdk-bookworm main
file:/srv/debs bookworm main
"""


def test_sources_of_another_suite_come_from_the_hosts_own():
    assert image.sources_of(TARGETS, "bookworm", "trixie") == (
        "deb http://HTTPS///secure.example.org/debian-security/ trixie-security main",
        "deb http://mirror.example.org/debian/ trixie contrib",
        "deb http://mirror.example.org/debian/ trixie main",
        "deb http://mirror.example.org/debian/ trixie-updates main",
    )


def test_sources_of_a_host_without_lists_are_none():
    assert image.sources_of("", "bookworm", "trixie") == ()


RECIPE = image.Recipe("trixie", False, ("deb a b c",), ('X "y"',), "hook")


def test_image_is_named_by_its_suite_and_what_it_is_made_of():
    assert RECIPE.name.startswith("localhost/baremetal-dgx-pod:trixie-")
    assert RECIPE.name == dataclasses.replace(RECIPE).name


@pytest.mark.parametrize(
    "change",
    [
        {"suite": "bookworm"},
        {"bare": True},
        {"sources": ()},
        {"apt_options": ()},
        {"hook": "other"},
    ],
)
def test_another_recipe_is_another_image(change):
    assert dataclasses.replace(RECIPE, **change).name != RECIPE.name


def test_bare_image_has_no_python():
    assert "python3" in RECIPE.packages
    bare = dataclasses.replace(RECIPE, bare=True)
    assert "python" not in bare.packages
    assert bare.name.startswith("localhost/baremetal-dgx-pod:trixie-bare-")


def test_mmdebstrap_gets_the_cache_the_options_and_the_sources():
    argv = image.mmdebstrap_argv(RECIPE, 4711, Path("/x/root.tar"))
    assert '--aptopt=Acquire::http::Proxy "http://127.0.0.1:4711"' in argv
    assert '--aptopt=X "y"' in argv
    assert argv[-3:] == ["trixie", "/x/root.tar", "deb a b c"]


@pytest.mark.parametrize("created", ["2026-11-20T12:00:00.123456789Z", "2026-11-20T12:00:00Z"])
def test_age_counts_from_the_creation(created):
    now = datetime.datetime(2026, 11, 22, 0, 0, tzinfo=datetime.timezone.utc)
    assert image.age_days([{"Created": created}], now) == pytest.approx(1.5)
