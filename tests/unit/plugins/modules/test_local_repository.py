# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory of real, tiny packages becomes a repository that the real apt reads."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.modules import local_repository

needs_dpkg = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="there is no dpkg-deb")
needs_apt = pytest.mark.skipif(not shutil.which("apt-cache"), reason="there is no apt")
CONTROL = """\
Package: {name}
Version: {version}
Architecture: all
Maintainer: Jörg <joerg@example.org>
Depends: {depends}
Description: an empty package
 of a test
"""


def make_deb(folder: Path, name: str, version: str, depends: str = "", code: str = "utf-8") -> None:
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    text = CONTROL.format(name=name, version=version, depends=depends)
    (tree / "DEBIAN/control").write_bytes(text.replace("Depends: \n", "").encode(code))
    target = folder / f"{name}_{version.replace(':', '%3a')}_all.deb"
    subprocess.run(["dpkg-deb", "-b", str(tree), str(target)], check=True, capture_output=True)
    shutil.rmtree(tree)


def sums(folder: Path) -> str:
    """Write SHA256SUMS and return its own checksum."""
    names = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "SHA256SUMS")
    text = "".join(
        f"{hashlib.sha256(p.read_bytes()).hexdigest()}  ./{p.relative_to(folder)}\n" for p in names
    )
    (folder / "SHA256SUMS").write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def site(tmp_path, run_module):
    """`site()` runs the module over `site.folder`, which `site.target` is made from."""

    def run(check=False, **params):
        given = {
            "path": str(run.folder),
            "destination": str(run.target),
            "sha256": sums(run.folder),
            **params,
        }
        return run_module(local_repository.main, given, check)

    run.folder = tmp_path / "packages"
    run.folder.mkdir()
    run.target = tmp_path / "var/driver"
    return run


@pytest.fixture
def debs(site):
    make_deb(site.folder, "nvidia-open", "580.126.20-1", "nvidia-fabricmanager (= 580.126.20-1)")
    make_deb(site.folder, "nvidia-fabricmanager", "580.126.20-1")
    make_deb(site.folder, "datacenter-gpu-manager-4-core", "1:4.6.0-1")
    return site


@needs_dpkg
def test_files_become_a_repository_once(debs):
    rehearsal = debs(check=True)
    assert not debs.target.exists()
    first = debs()
    assert rehearsal["changed"] is first["changed"] is True
    assert first["kind"] == "deb"
    assert len(first["files"]) == 3
    assert debs()["changed"] is False
    assert not list(debs.target.parent.glob("*.new")) + list(debs.target.parent.glob("*.old"))
    paragraphs = (debs.target / "Packages").read_text().split("\n\n")
    assert [text.splitlines()[0] for text in paragraphs] == [
        "Package: datacenter-gpu-manager-4-core",
        "Package: nvidia-fabricmanager",
        "Package: nvidia-open",
    ]


@needs_dpkg
def test_what_a_package_says_in_another_code_stays_as_it_is(site):
    make_deb(site.folder, "old", "1", code="latin-1")
    assert site()["changed"]
    index = (site.target / "Packages").read_bytes()
    assert "Jörg".encode("latin-1") in index
    line = f" {hashlib.sha256(index).hexdigest()} {len(index)} Packages"
    assert line in (site.target / "Release").read_text().splitlines()


@needs_dpkg
@needs_apt
def test_apt_installs_from_it(debs, tmp_path):
    debs()
    root = tmp_path / "root"
    for name in ("etc/apt/preferences.d", "var/lib/apt/lists/partial", "var/lib/dpkg"):
        (root / name).mkdir(parents=True)
    (root / "var/cache/apt/archives/partial").mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text("")
    (root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{debs.target} ./\n")
    (root / "etc/apt/preferences.d/driver").write_text(
        "Package: *nvidia*\nPin: version 580.126.20-*\nPin-Priority: 1001\n"
    )
    options = [f"-oDir={root}", "-oAPT::Sandbox::User=", "-oDebug::NoLocking=1"]

    def apt(*words: str) -> str:
        done = subprocess.run(
            [words[0], *options, *words[1:]], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    apt("apt-get", "update", "-oAPT::Update::Error-Mode=any")
    assert "580.126.20-1" in apt("apt-cache", "madison", "nvidia-open")
    planned = apt("apt-get", "install", "--simulate", "nvidia-open=580.126.20-*")
    assert "Inst nvidia-fabricmanager (580.126.20-1" in planned
    assert "Inst nvidia-open (580.126.20-1" in planned


@needs_dpkg
@pytest.mark.parametrize("check", [True, False])
def test_a_changed_file_is_named(debs, run_module, check):
    declared = sums(debs.folder)
    victim = next(debs.folder.glob("nvidia-open*"))
    victim.write_bytes(victim.read_bytes() + b"x")
    given = {"path": str(debs.folder), "destination": str(debs.target), "sha256": declared}
    answer = run_module(local_repository.main, given, check)
    assert answer["failed"]
    (line,) = answer["findings"]
    assert line.startswith(f"{victim.name} has the wrong checksum")
    assert not debs.target.exists()
    assert not list(debs.target.parent.glob("*"))


@needs_dpkg
def test_a_changed_file_leaves_the_old_repository(debs, run_module):
    debs()
    before = {path.name: path.read_bytes() for path in debs.target.iterdir()}
    make_deb(debs.folder, "nvlsm", "2025.10.11-1")
    declared = sums(debs.folder)
    next(debs.folder.glob("nvlsm*")).write_bytes(b"x")
    given = {"path": str(debs.folder), "destination": str(debs.target), "sha256": declared}
    assert run_module(local_repository.main, given)["failed"]
    assert {path.name: path.read_bytes() for path in debs.target.iterdir()} == before


@needs_dpkg
def test_a_missing_file_is_named(debs, run_module):
    declared = sums(debs.folder)
    next(debs.folder.glob("nvidia-fabric*")).unlink()
    given = {"path": str(debs.folder), "destination": str(debs.target), "sha256": declared}
    (line,) = run_module(local_repository.main, given)["findings"]
    assert "nvidia-fabricmanager_580.126.20-1_all.deb is listed and not there" in line


@needs_dpkg
def test_the_list_itself_is_pinned(debs):
    answer = debs(sha256="0" * 64)
    assert answer["failed"]
    assert "SHA256SUMS has the wrong checksum" in answer["msg"]
    assert not debs.target.exists()


@needs_dpkg
def test_a_new_list_takes_the_place_of_the_old(debs):
    debs()
    next(debs.folder.glob("datacenter*")).unlink()
    make_deb(debs.folder, "nvlsm", "2025.10.11-1")
    assert debs()["changed"] is True
    assert sorted(p.name for p in debs.target.glob("*.deb")) == [
        "nvidia-fabricmanager_580.126.20-1_all.deb",
        "nvidia-open_580.126.20-1_all.deb",
        "nvlsm_2025.10.11-1_all.deb",
    ]


@needs_dpkg
def test_a_file_that_is_no_package(site):
    (site.folder / "broken.deb").write_bytes(b"no package")
    answer = site()
    assert answer["failed"]
    assert "broken.deb is not a package" in answer["msg"]
    assert not site.target.exists()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["a.rpm"], "run createrepo_c"),
        (["a.rpm", "b.deb"], "make a directory for each"),
        (["readme"], "lists no package"),
    ],
)
def test_directories_that_do_not_serve(site, files, message):
    for name in files:
        (site.folder / name).write_text("x")
    answer = site()
    assert answer["failed"]
    assert message in answer["msg"]


def test_rpms_with_their_repodata(site):
    (site.folder / "repodata").mkdir()
    (site.folder / "repodata/repomd.xml").write_text("<repomd/>")
    (site.folder / "a.rpm").write_text("x")
    answer = site()
    assert (answer["kind"], answer["changed"]) == ("rpm", True)
    assert (site.target / "repodata/repomd.xml").read_text() == "<repomd/>"
    assert not (site.target / "Packages").exists()


def test_no_list(site):
    answer = site(path=str(site.folder / "none"))
    assert "cannot be read: No such file" in answer["msg"]
