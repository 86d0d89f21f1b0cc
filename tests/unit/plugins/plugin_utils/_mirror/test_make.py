# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder: what is in it, signed by a real key, the same when it is made again."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

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
    found.images = {"docker://bot:S3cr3t@example.org/a": {"enroot"}}
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
    assert make(order(home), outside, print)["fetched"] == 0
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
    # What that script has fetched stays, as long as hosts have this system.
    there = {"rpm/rocky-9/packages/a.rpm", "rpm/rocky-9/packages/repodata/repomd.xml"}
    for name in there:
        (home / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "out" / name).write_text("x", encoding="utf-8")
    assert make(order(home, login=host), Outside(), print)["removed"] == 0
    assert there < names(home)
    assert "  rpm/rocky-9/packages/a.rpm\n" in (home / "out/SHA256SUMS").read_text(encoding="utf-8")
    (home / "out/rpm/rocky-9/b.rpm").touch()
    result = make(order(home, login=host), Outside(), print)
    assert (result["removed"], result["changed"]) == (1, True)
    make(order(home), Outside(), print)
    assert not there & names(home)


def test_passwords_of_urls_are_in_no_file_of_the_folder(home: Path) -> None:
    """And the names of files are the same to nodes, which ask for them by another URL."""
    one = wanted()
    url = "https://bot:S3cr3t@example.org/enroot%2Bcaps%2541_1.deb?token=S3cr3t"
    one.downloads.add(Download(url, digest("more"), "/opt/e", "enroot"))
    one.inputs["enroot_urls"] = [{"url": url, "sha256": digest("more")}]
    outside = Outside()
    outside.keys = {"enroot%2Bcaps%2541_1.deb?token=S3cr3t": "more"}

    def listed(argv: Sequence[str], timeout_s: float = 30, env: Any = None) -> CommandResult:
        answer = outside(argv, timeout_s, env)
        return replace(answer, out=answer.out.replace("http://", "http://bot:S3cr3t@"))

    make(order(home, dgx=Host(PLATFORMS["debian-13"], one, {})), listed, print)
    for path in (home / "out").rglob("*"):
        assert not path.is_file() or b"S3cr3t" not in path.read_bytes(), path
    text = (home / "out/inventory/group_vars/cluster/zz_mirror.yml").read_text(encoding="utf-8")
    assert f"files/{digest('more')}/enroot+caps%41_1.deb" in names(home)
    (entry,) = yaml.safe_load(text)["enroot_urls"]
    handler = partial(SimpleHTTPRequestHandler, directory=str(home / "out"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        there = entry["url"].replace(URL, f"http://127.0.0.1:{server.server_port}")
        with urlopen(there, timeout=60) as answer:
            assert answer.read() == b"more"
        server.shutdown()


def package(folder: Path, name: str, needs: str = "") -> str:
    """Make a package in a folder; returns the line of its checksum."""
    made = folder / f"{name}-made" / "DEBIAN"
    made.mkdir(parents=True)
    lines = [
        f"Package: {name}",
        "Version: 1",
        "Architecture: amd64",
        "Maintainer: a <a@example.org>",
    ]
    lines += [f"Depends: {needs}"] if needs else []
    text = "\n".join([*lines, "Description: x"]) + "\n"
    (made / "control").write_text(text, encoding="utf-8")
    path = folder / f"{name}_1.deb"
    subprocess.run(["dpkg-deb", "-b", made.parent, path], check=True, capture_output=True)
    shutil.rmtree(made.parent)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    entry = f"Filename: ./{path.name}\nSize: {path.stat().st_size}\nSHA256: {found}\n\n"
    with (folder / "Packages").open("a", encoding="utf-8") as index:
        index.write(text + entry)
    return f"{found}  {path.name}\n"


@pytest.mark.skipif(not shutil.which("apt-get"), reason="apt is not installed")
def test_repositories_on_this_machine_are_copied_by_the_real_apt(home: Path) -> None:
    """But for those that roles make on the node: of the site's folders, and of what they fetch."""
    for name in ("mounted", "site", "web"):
        (home / name).mkdir()
    package(home / "mounted", "slurm-smd")
    sums = package(home / "site", "dcgm", needs="slurm-smd")
    (home / "site/SHA256SUMS").write_text(sums, encoding="utf-8")
    sha256 = package(home / "web", "enroot", needs="slurm-smd")[:64]
    above = "/var/lib/baremetal-dgx/packages"
    one = Wanted(packages={"dcgm": {"dcgm"}, "enroot": {"enroot"}})
    for name, uri in (
        ("slurm", f"file:{home}/mounted"),
        ("dcgm", f"file:{above}/dcgm"),
        ("enroot", f"file:{above}/enroot"),
    ):
        text = f"Types: deb\nURIs: {uri}\nSuites: ./\nTrusted: yes\n"
        one.files[f"/etc/apt/sources.list.d/{name}.sources"] = text
    site = {"path": str(home / "site"), "sha256": digest(sums), "manifest": "", "role": "dcgm"}
    fetched = {**site, "path": f"{above}/enroot-fetched", "role": "enroot"}
    one.folders = {f"{above}/dcgm": site, f"{above}/enroot": fetched}
    url = f"file://{home}/web/enroot_1.deb"
    one.downloads = {Download(url, sha256, f"{above}/enroot-fetched/enroot_1.deb", "enroot")}
    made = order(home, dgx=Host(PLATFORMS["debian-13"], one, {}))
    result = make(made, run, print)
    assert result["left"] == [f"folder {home}/site (dcgm): copy or mount it on the nodes"]
    assert {name for name in names(home) if name.endswith(".deb")} == {
        "apt/debian-13/slurm-smd_1.deb", f"files/{sha256}/enroot_1.deb",
    }  # fmt: skip
    assert not [path for path in (home / "out").rglob("*") if path.is_symlink()]
    assert make(made, run, print)["changed"] is False


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
