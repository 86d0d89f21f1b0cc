# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plug-in is built once for each Slurm and each state of its sources, by the real make."""

from __future__ import annotations

import os
import shutil

import pytest

from ansible_collections.baremetal.dgx.plugins.modules import slurm_plugin_build

needs_make = pytest.mark.skipif(not shutil.which("make"), reason="there is no make")
# Is in for a compiler: a file that begins like a library.
MAKEFILE = "spank_pyxis.so: code.c\n\tprintf '\\177ELF' > $@\n\tcat code.c >> $@\n"


@pytest.fixture
def site(tmp_path, run_module, monkeypatch):
    """`site()` runs the module; `site.slurm(version)` says which Slurm and headers are here."""

    def run(check=False, **params):
        given = {
            "source": str(run.source),
            "destination": str(run.builds),
            "headers": [str(run.headers)],
            **params,
        }
        return run_module(slurm_plugin_build.main, given, check)

    def slurm(version: str, headers: str = "") -> None:
        program = tmp_path / "bin/srun"
        program.write_text(f"#!/bin/sh\necho slurm-wlm {version}\n")
        program.chmod(0o755)
        major, minor, micro = (int(word) for word in (headers or version).split("."))
        run.headers.write_text(
            f"#define SLURM_VERSION_NUMBER 0x{major:02x}{minor:02x}{micro:02x}\n"
        )

    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    run.slurm, run.headers = slurm, tmp_path / "slurm_version.h"
    run.source, run.builds = tmp_path / "source", tmp_path / "var/builds"
    run.source.mkdir()
    (run.source / "Makefile").write_text(MAKEFILE)
    (run.source / "code.c").write_text("one")
    slurm("24.11.5")
    return run


@needs_make
def test_builds_once(site):
    rehearsal = site(check=True)
    assert rehearsal["changed"]
    assert not site.builds.exists()
    first = site()
    assert first["changed"]
    assert first["slurm"] == "24.11.5"
    assert first["path"].endswith(f"spank_pyxis-{first['fingerprint']}.so")
    assert rehearsal["path"] == first["path"]
    assert not site()["changed"]
    # the sources are as they were
    assert sorted(path.name for path in site.source.iterdir()) == ["Makefile", "code.c"]


@needs_make
def test_builds_again_beside_the_old_one(site):
    paths = [site()["path"]]
    site.slurm("24.11.6")
    paths.append(site()["path"])
    (site.source / "code.c").write_text("two")
    paths.append(site()["path"])
    assert len({*paths}) == 3
    assert len(list(site.builds.iterdir())) == 3


@needs_make
def test_headers_of_another_version_are_refused(site):
    site.slurm("24.11.5", headers="26.5.1")
    result = site()
    assert result["failed"]
    assert "is of Slurm 26.05.1, and 24.11.5 runs here" in result["msg"]
    assert not site.builds.exists()


def test_headers_that_are_not_there(site):
    site.headers.unlink()
    assert "headers are not there" in site()["msg"]


@needs_make
@pytest.mark.parametrize(
    ("makefile", "words"),
    [
        ("all:\n\tfalse\n", "cannot be built"),
        ("all:\n\ttrue\n", "made no spank_pyxis.so"),
        ("all:\n\techo text > spank_pyxis.so\n", "is not a library"),
    ],
)
def test_make_that_makes_nothing(site, makefile, words):
    (site.source / "Makefile").write_text(makefile)
    result = site()
    assert result["failed"]
    assert words in result["msg"]
    assert not site.builds.exists()


def test_without_slurm_or_sources(site):
    (site.source / "Makefile").unlink()
    assert "has no Makefile" in site()["msg"]
    rehearsal = site(check=True)
    assert rehearsal["changed"]
    assert "has no Makefile" in rehearsal["reason"]


@pytest.mark.parametrize("place", ["above", "folder", "file"])
def test_sources_that_a_user_may_change_are_not_built_by_root(site, open_place, as_user, place):
    assert as_user
    above = open_place / "src"
    above.mkdir()
    source = site.source.rename(above / "pyxis")
    site.source = source
    taken = {"above": above, "folder": source, "file": source / "Makefile"}[place]
    os.chown(taken, 65532, 65532)
    answer = site()
    assert answer["failed"]
    assert f"{taken}: belongs to user 65532" in answer["msg"]
    assert "another user could change what root runs" in answer["msg"] or place == "folder"
    assert not site.builds.exists()
    os.chown(taken, 0, 0)
    assert site()["changed"]
