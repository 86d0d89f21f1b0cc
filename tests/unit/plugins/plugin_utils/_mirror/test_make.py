# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder: what is in it, signed by a real key, the same when it is made again."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    CommandResult,
    ToolError,
    run,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._mirror.fetched import Download, Wanted
from ansible_collections.baremetal.dgx.plugins.plugin_utils._mirror.make import (
    Host,
    Order,
    is_mirrored,
    make,
    problems_of,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._mirror.platforms import PLATFORMS

pytestmark = pytest.mark.slow
URL = "http://10.1.0.1:8080"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Outside:
    """Answers as apt and dpkg, with what they would fetch; gpg is the real one."""

    def __init__(self) -> None:
        self.packages = {"chrony_1.deb": "chrony", "libc6_2.deb": "libc"}
        self.keys: dict[str, str] = {}
        self.archive = "release"
        self.fetched: list[str] = []

    def __call__(
        self, argv: Sequence[str], timeout_s: float = 30, env: Any = None
    ) -> CommandResult:
        words = list(argv)
        if words[0] in ("gpg", "gpgconf"):
            return run(argv, timeout_s, env)
        if "download-file" in words:
            triples = words[words.index("download-file") + 1 :]
            for uri, path in zip(triples[::3], triples[1::3], strict=True):
                name = uri.rpartition("/")[2]
                text = {**self.packages, **self.keys}.get(name, self.archive)
                Path(path).write_text(text, encoding="utf-8")
                self.fetched.append(name)
        out = ""
        if "--print-uris" in words:
            out = "".join(
                f"'http://example.org/{name}' {name} {len(text)} SHA256:{digest(text)}\n"
                for name, text in self.packages.items()
            )
        if words[0] == "dpkg-deb":
            name = Path(words[-1]).name.partition("_")[0]
            out = f"Package: {name}\nVersion: 1\nArchitecture: amd64\n"
        return CommandResult(tuple(words), ENDED, 0, out)


@pytest.fixture(name="home")
def _home() -> Iterator[Path]:
    # The agent of gpg listens on a socket, whose path may have 108 characters.
    folder = Path("/tmp") / f"mirror-test-{digest(str(id(object())))[:8]}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(0o700)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def wanted() -> Wanted:
    found = Wanted(packages={"chrony": {"node_base"}})
    archive = {"url": "https://example.org/p.tar.gz", "sha256": digest("release")}
    found.downloads.add(Download(archive["url"], archive["sha256"], "/opt/p", "prometheus"))
    found.inputs = {"prometheus_archive": archive}
    found.images = {"docker://example.org/a": {"enroot"}}
    return found


def order(home: Path, **hosts: Host) -> Order:
    hosts = hosts or {"head-01": Host(PLATFORMS["debian-13"], wanted(), {})}
    return Order(str(home / "out"), str(home / "state"), URL, "", "", (), hosts)


def names(home: Path) -> set[str]:
    return {str(p.relative_to(home / "out")) for p in (home / "out").rglob("*") if p.is_file()}


def test_the_folder_is_whole_signed_and_the_same_the_second_time(home: Path) -> None:
    outside = Outside()
    lines: list[str] = []
    result = make(order(home), outside, lines.append)
    archive = f"files/{digest('release')}/p.tar.gz"
    assert names(home) == {
        "SHA256SUMS",
        "apt/debian-13/InRelease",
        "apt/debian-13/Packages",
        "apt/debian-13/chrony_1.deb",
        "apt/debian-13/libc6_2.deb",
        archive,
        "inventory/group_vars/cluster/zz_mirror.yml",
        "key.asc",
        "manifest.json",
    }
    assert (result["changed"], result["fetched"], result["files"]) == (True, 3, 7)
    assert result["left"] == ["image docker://example.org/a (enroot): import or load it by hand"]
    assert "debian-13: 2 packages, 0 MB, with all that they need" in lines
    rows = {
        row["path"]: row
        for row in json.loads((home / "out/manifest.json").read_text(encoding="utf-8"))["files"]
    }
    assert rows["apt/debian-13/chrony_1.deb"] == {
        "path": "apt/debian-13/chrony_1.deb",
        "size": 6,
        "sha256": digest("chrony"),
        "source": "http://example.org/chrony_1.deb",
        "asked_by": ["node_base"],
    }
    assert rows["apt/debian-13/libc6_2.deb"]["asked_by"] == ["a dependency"]
    assert rows[archive]["asked_by"] == ["prometheus"]
    subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=home / "out", check=True)
    variables = yaml.safe_load(
        (home / "out/inventory/group_vars/cluster/zz_mirror.yml").read_text(encoding="utf-8")
    )
    assert variables["prometheus_archive"]["url"] == f"{URL}/{archive}"
    key = (home / "out/key.asc").read_text(encoding="utf-8")
    assert variables["node_base_repositories"][0]["signed_by"] == key
    assert (home / "state/gnupg").stat().st_mode & 0o777 == 0o700
    assert "PRIVATE" not in key

    before = {name: (home / "out" / name).stat().st_mtime_ns for name in names(home)}
    outside.fetched.clear()
    result = make(order(home), outside, print)
    assert (result["changed"], result["fetched"], result["removed"]) == (False, 0, 0)
    assert outside.fetched == []
    assert {name: (home / "out" / name).stat().st_mtime_ns for name in names(home)} == before


def signature(home: Path) -> subprocess.CompletedProcess[str]:
    """What gpgv makes of the index by the key that is in the mirror."""
    ring = home / "ring.gpg"
    ring.unlink(missing_ok=True)
    key = home / "out/key.asc"
    subprocess.run(["gpg", "--batch", "--dearmor", "-o", ring, key], check=True)
    return subprocess.run(
        ["gpgv", "--keyring", ring, home / "out/apt/debian-13/InRelease"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_signature_is_that_of_the_key_and_of_the_index(home: Path) -> None:
    make(order(home), Outside(), print)
    signed = home / "out/apt/debian-13/InRelease"
    done = signature(home)
    assert done.returncode == 0, done.stderr
    index = (home / "out/apt/debian-13/Packages").read_text(encoding="utf-8")
    text = signed.read_text(encoding="utf-8")
    assert f" {digest(index)} {len(index)} Packages\n" in text
    # By which the role infiniband pins dkms.
    assert "Origin: Debian\n" in text
    assert "Filename: ./chrony_1.deb\n" in index


def test_what_nothing_asks_for_is_removed_and_a_new_version_comes(home: Path) -> None:
    outside = Outside()
    make(order(home), outside, print)
    outside.packages = {"chrony_2.deb": "newer", "libc6_2.deb": "libc"}
    (home / "out/apt/debian-13/.partial").mkdir()
    (home / "out/apt/debian-13/.partial/half.deb").write_text("h", encoding="utf-8")
    result = make(order(home), outside, print)
    assert (result["changed"], result["fetched"], result["removed"]) == (True, 1, 1)
    assert "apt/debian-13/chrony_1.deb" not in names(home)
    text = (home / "out/apt/debian-13/InRelease").read_text(encoding="utf-8")
    index = (home / "out/apt/debian-13/Packages").read_text(encoding="utf-8")
    assert digest(index) in text


def test_a_folder_with_other_things_is_left_alone(home: Path) -> None:
    (home / "out").mkdir()
    (home / "out/mine").touch()
    with pytest.raises(ToolError, match=r"out: not empty, and without a manifest.json"):
        make(order(home), Outside(), print)
    assert names(home) == {"mine"}


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "a web app", "icons": []}',
        '{"files": {"main.js": "/main.1a.js"}, "entrypoints": ["main.1a.js"]}',
        '{"files": [{"path": "kickstart/ks.cfg", "sha256": "0"}]}',
        '{"files": []}',
        "[]",
        "not JSON",
        "",
    ],
)
def test_a_manifest_of_another_program_makes_no_folder_ours(home: Path, text: str) -> None:
    (home / "out/kickstart").mkdir(parents=True)
    there = {"manifest.json", "index.html", "kickstart/ks.cfg"}
    for name in there:
        (home / "out" / name).write_text(text, encoding="utf-8")
    with pytest.raises(ToolError, match=r"/out: not empty, and without a manifest.json of this"):
        make(order(home), Outside(), print)
    assert names(home) == there
    assert {(home / "out" / name).read_text(encoding="utf-8") for name in there} == {text}


def test_a_killed_run_is_taken_up(home: Path) -> None:
    outside = Outside()

    def killed(argv: Sequence[str], timeout_s: float = 30, env: Any = None) -> CommandResult:
        if argv[0] == "dpkg-deb":
            raise KeyboardInterrupt
        return outside(argv, timeout_s, env)

    with pytest.raises(KeyboardInterrupt):
        make(order(home), killed, print)
    assert make(order(home), outside, print)["fetched"] == 1
    assert outside.fetched.count("chrony_1.deb") == 1


def test_another_key_signs_all_whichever_run_gets_there(home: Path) -> None:
    """The state was lost, and with it the key; the first run with a new one is killed."""
    make(order(home), Outside(), print)
    shutil.rmtree(home / "state")

    def killed(argv: Sequence[str], timeout_s: float = 30, env: Any = None) -> CommandResult:
        if argv[0] not in ("gpg", "gpgconf"):
            raise KeyboardInterrupt
        return run(argv, timeout_s, env)

    with pytest.raises(KeyboardInterrupt):
        make(order(home), killed, print)
    make(order(home), Outside(), print)
    done = signature(home)
    assert done.returncode == 0, done.stderr


def test_enterprise_linux_gets_a_list_and_says_so(home: Path) -> None:
    host = Host(PLATFORMS["rocky-9"], Wanted(packages={"chrony": {"node_base"}}), {})
    result = make(order(home, login=host), Outside(), print)
    assert (home / "out/rpm/rocky-9/packages.txt").read_text(encoding="utf-8") == "chrony\n"
    (line,) = result["left"]
    assert line.startswith("rocky-9: 1 packages; run sh rpm/rocky-9/fetch.sh")


def test_a_folder_of_the_site_must_be_here(home: Path) -> None:
    one = Wanted(packages={"x": {"dcgm"}})
    folder = {"path": "/no/such", "sha256": "", "manifest": "", "role": "dcgm"}
    one.folders = {"/var/lib/baremetal-dgx/packages/dcgm": folder}
    with pytest.raises(ToolError, match=r"dcgm: its packages are in /no/such, which is not on"):
        make(order(home, a=Host(PLATFORMS["debian-13"], one, {})), Outside(), print)


def site_folder(home: Path, name: str) -> dict[str, str]:
    """What a role takes from a folder of the site's, with one package."""
    folder = home / name
    folder.mkdir()
    (folder / f"{name}_1.deb").write_text(name, encoding="utf-8")
    sums = f"{digest(name)}  {name}_1.deb\n"
    (folder / "SHA256SUMS").write_text(sums, encoding="utf-8")
    return {"path": str(folder), "sha256": digest(sums), "manifest": "", "role": "dcgm"}


def test_hosts_with_other_sources_in_the_same_places_are_asked_each(home: Path) -> None:
    def host(folder: dict[str, str], key: str, role: str = "node_base") -> Host:
        one = Wanted(packages={"chrony": {role}})
        one.folders = {"/var/lib/baremetal-dgx/packages/dcgm": folder}
        url = f"https://example.org/{key}.asc"
        one.downloads = {Download(url, digest(key), "/etc/apt/keyrings/x.asc", "dcgm")}
        return Host(PLATFORMS["debian-13"], one, {})

    outside = Outside()
    outside.keys = {"old.asc": "old", "new.asc": "new"}
    first, second = site_folder(home, "first"), site_folder(home, "second")
    hosts = {
        "a": host(first, "old"),
        "b": host(second, "old"),
        "c": host(first, "new"),
        "d": host(first, "old", "chrony_server"),
    }
    lines: list[str] = []
    make(order(home, **hosts), outside, lines.append)
    assert "debian-13: packages of 3 of 3 kinds of hosts: 1 names" in lines
    held = {path.name for path in (home / "state/apt").rglob("packages/dcgm/*.deb")}
    assert held == {"first_1.deb", "second_1.deb"}
    keys = {path.read_text(encoding="utf-8") for path in (home / "state/apt").rglob("x.asc")}
    assert keys == {"old", "new"}
    rows = json.loads((home / "out/manifest.json").read_text(encoding="utf-8"))["files"]
    (chrony,) = (row for row in rows if row["path"].endswith("chrony_1.deb"))
    assert chrony["asked_by"] == ["chrony_server", "node_base"]


def test_problems_are_one_line_for_all_hosts() -> None:
    bad = Wanted(problems={"dcgm: no"})
    host = Host(PLATFORMS["debian-13"], bad, {})
    assert problems_of({"a": host, "b": host}, URL, []) == ["a, b: dcgm: no"]


def test_no_file_of_the_inventory_is_covered_by_those_of_the_mirror(tmp_path: Path) -> None:
    """Ansible reads the folder that the mirror makes, and the file of the same name no more."""
    (tmp_path / "group_vars").mkdir()
    for name in ("cluster.yml", "gpu_nodes", "login_nodes.yml"):
        (tmp_path / "group_vars" / name).write_text("a: 1\n", encoding="utf-8")
    hosts = {
        "head-01": Host(PLATFORMS["debian-13"], wanted(), {}),
        "dgx-01": Host(
            PLATFORMS["debian-13"], wanted(), {"prometheus_archive": "gpu_nodes.prometheus_archive"}
        ),
    }
    for sources in ([str(tmp_path)], [str(tmp_path / "hosts.yml"), str(tmp_path / "more.yml")]):
        assert problems_of(hosts, URL, sources) == [
            (
                "group_vars/cluster.yml: is not read beside a folder cluster/; move it to "
                "group_vars/cluster/cluster.yml"
            ),
            (
                "group_vars/gpu_nodes: is not read beside a folder gpu_nodes/; move it to "
                "group_vars/gpu_nodes/gpu_nodes.yml"
            ),
        ]
    shutil.rmtree(tmp_path / "group_vars")
    assert problems_of(hosts, URL, [str(tmp_path)]) == []


def test_a_mirror_is_not_made_from_itself() -> None:
    one = wanted()
    host = Host(PLATFORMS["debian-13"], one, {})
    assert not is_mirrored([host], URL)
    one.inputs["node_base_repositories"] = [{"uris": [f"{URL}/apt/debian-13"]}]
    assert is_mirrored([host], URL)
    assert not is_mirrored([host], "http://10.1.0.1:80")
