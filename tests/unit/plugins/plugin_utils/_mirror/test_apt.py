# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""apt in a folder: its output read, what is missing fetched, nothing kept that is not right."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    CommandResult,
    ToolError,
    run,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._mirror.apt import (
    _HELPER,
    File,
    fetch,
    keys_at,
    parse_uris,
    prepare,
    resolve,
)

DIGEST = "48118435a4580a822734482155f1e59d21d82eb295ea311965d547bd892acae0"
# apt 2.6.1 on Debian 12, with Acquire::ForceHash=SHA256, 23 November 2026.
URIS = (
    "Reading package lists...\n"
    "'http://archive.example.org/debian/pool/main/libc/libcap2/libpam-cap_2.75-10%2bdeb13u1%2bb3_amd64.deb'"
    f" libpam-cap_1%3a2.75-10+deb13u1+b3_amd64.deb 16612 SHA256:{DIGEST}\n"
    f"'file:/srv/site/./x_1.deb' x_1_amd64.deb 7 SHA256:{DIGEST}\n"
    f"'file:/root/own/y.deb' y_1_amd64.deb 7 SHA256:{DIGEST}\n"
)


def file_of(name: str, text: str) -> File:
    return File(
        f"http://example.org/{name}", name, len(text), hashlib.sha256(text.encode()).hexdigest()
    )


class Helper:
    """Answers as apt-helper: has some files, and checks digests as it does."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files
        self.asked: list[str] = []

    def __call__(
        self, argv: Sequence[str], timeout_s: float = 30, env: object = None
    ) -> CommandResult:
        words = list(argv)[list(argv).index("download-file") + 1 :]
        for uri, path, digest in zip(words[::3], words[1::3], words[2::3], strict=True):
            self.asked.append(uri)
            text = self.files.get(uri)
            if text is None:
                return self._failed(argv, f"E: Failed to fetch {uri} Connection failed")
            if "SHA256:" + hashlib.sha256(text.encode()).hexdigest() != digest:
                Path(path + ".FAILED").write_text(text, encoding="utf-8")
                return self._failed(argv, f"E: Failed to fetch {uri}  Hash Sum mismatch")
            Path(path).write_text(text, encoding="utf-8")
        return CommandResult(tuple(argv), ENDED, 0)

    def _failed(self, argv: Sequence[str], text: str) -> CommandResult:
        return CommandResult(tuple(argv), ENDED, 100, "", text)


def test_names_are_those_of_the_source_without_epoch() -> None:
    """What the site brings along, which is in root, is not fetched."""
    assert parse_uris(URIS, "/root") == [
        File(
            "http://archive.example.org/debian/pool/main/libc/libcap2/"
            "libpam-cap_2.75-10%2bdeb13u1%2bb3_amd64.deb",
            "libpam-cap_2.75-10+deb13u1+b3_amd64.deb",
            16612,
            DIGEST,
        ),
        File("file:/srv/site/./x_1.deb", "x_1.deb", 7, DIGEST),
    ]


def test_a_second_run_fetches_nothing_and_a_damaged_file_comes_again(tmp_path: Path) -> None:
    files = [file_of("a.deb", "aaa"), file_of("b.deb", "bbb")]
    helper = Helper({one.uri: one.name[0] * 3 for one in files})
    lines: list[str] = []
    target = str(tmp_path / "apt")
    assert fetch(helper, lines.append, files, target) == 2
    assert lines == ["apt: 2 of 2 files fetched"]
    assert fetch(helper, lines.append, files, target) == 0
    assert len(helper.asked) == 2
    (tmp_path / "apt" / "b.deb").write_text("bbx", encoding="utf-8")
    assert fetch(helper, lines.append, files, target) == 1
    assert (tmp_path / "apt" / "b.deb").read_text(encoding="utf-8") == "bbb"
    assert sorted(path.name for path in (tmp_path / "apt").iterdir()) == ["a.deb", "b.deb"]


def test_a_wrong_checksum_is_refused_and_nothing_has_its_name(tmp_path: Path) -> None:
    files = [file_of("a.deb", "aaa"), file_of("b.deb", "bbb")]
    helper = Helper({files[0].uri: "aaa", files[1].uri: "evil"})
    target = str(tmp_path / "apt")
    with pytest.raises(ToolError, match=r"example.org/b.deb has the wrong checksum: not kept"):
        fetch(helper, print, files, target)
    assert (tmp_path / "apt" / "a.deb").exists()
    assert not (tmp_path / "apt" / "b.deb").exists()
    helper.files[files[1].uri] = "bbb"
    assert fetch(helper, print, files, target) == 1


def test_what_cannot_be_fetched_says_so(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"a.deb cannot be fetched: .*with Internet access"):
        fetch(Helper({}), print, [file_of("a.deb", "aaa")], str(tmp_path / "apt"))


class Guarded(BaseHTTPRequestHandler):
    """Gives out what is asked for to those who log in."""

    logins = ("bot:S3#cr@t/", "token:")

    def do_GET(self) -> None:
        _basic, _space, code = self.headers.get("Authorization", "").partition(" ")
        allowed = base64.b64decode(code).decode() in self.logins
        text = self.path.rpartition("/")[2].encode() if allowed else b""
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_words: object) -> None:
        """Be silent."""


@pytest.fixture(name="guarded")
def _guarded() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Guarded)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.skipif(not Path(_HELPER).exists(), reason="apt is not installed")
def test_passwords_of_urls_are_in_no_command_and_no_message(guarded: str, tmp_path: Path) -> None:
    """The real apt-helper gets them, and copies a local file."""
    calls: list[str] = []

    def watched(argv: Sequence[str], timeout_s: float = 30, env: object = None) -> CommandResult:
        calls.extend(argv)
        return run(argv, timeout_s)

    (tmp_path / "c.deb").write_text("c.deb", encoding="utf-8")
    files = [
        replace(
            file_of("a%2B.deb", "a%2B.deb"), uri=f"http://bot:S3%23cr%40t%2F@{guarded}/p/a%2B.deb"
        ),
        replace(file_of("b.deb", "b.deb"), uri=f"http://token:@{guarded}/b.deb"),
        # apt-helper asks for it so.
        replace(
            file_of("e+~.deb", "e%2b%7e.deb"), uri=f"http://bot:S3%23cr%40t%2F@{guarded}/p/e+~.deb"
        ),
        replace(file_of("c.deb", "c.deb"), uri=f"file:{tmp_path}/c.deb"),
    ]
    target = tmp_path / "apt"
    assert fetch(watched, print, files, str(target)) == 4
    assert [path.is_symlink() for path in target.iterdir()] == [False] * 4
    wrong = [replace(files[0], uri=files[0].uri.replace("S3", "no"), name="d.deb")]
    with pytest.raises(ToolError, match=r"http://127\S+/a%2B.deb cannot be fetched") as refused:
        fetch(watched, print, wrong, str(target))
    kept = ("cr@t", "cr%40t", "token")
    assert not [text for text in [*calls, str(refused.value)] for word in kept if word in text]
    spaced = [replace(files[0], uri="http://bot:S3%20cr@h/d.deb", name="d.deb")]
    with pytest.raises(ToolError, match=r"^http://h/d.deb: its login has a space"):
        fetch(watched, print, spaced, str(target))
    unnamed = [replace(files[0], uri="http://:S3cr@h/d.deb", name="d.deb")]
    with pytest.raises(ToolError, match=r"^http://h/d.deb: its login has no name"):
        fetch(watched, print, unnamed, str(target))


def test_a_link_in_the_folder_is_fetched_again(tmp_path: Path) -> None:
    one = file_of("a.deb", "aaa")
    (tmp_path / "real").write_text("aaa", encoding="utf-8")
    (tmp_path / "apt").mkdir()
    (tmp_path / "apt" / "a.deb").symlink_to(tmp_path / "real")
    assert fetch(Helper({one.uri: "aaa"}), print, [one], str(tmp_path / "apt")) == 1
    assert not (tmp_path / "apt" / "a.deb").is_symlink()


@pytest.mark.parametrize("rc", ["update", "install"])
def test_passwords_of_sources_are_in_no_message(rc: str, tmp_path: Path) -> None:
    def failing(argv: Sequence[str], timeout_s: float = 30, env: object = None) -> CommandResult:
        text = "E: Failed to fetch https://bot:S3cr3t@example.org/x"
        return CommandResult(tuple(argv), ENDED, 100 if rc in argv else 0, "", text)

    with pytest.raises(ToolError, match=r" https://example.org/x"):
        resolve(failing, str(tmp_path), ["chrony"])
    root = tmp_path / "root"
    path = "/etc/apt/sources.list.d/x.sources"
    prepare(str(root), {path: "URIs: file:/store\n"}, ["/store"])
    assert (root / path[1:]).read_text(encoding="utf-8") == f"URIs: file:{root}/store\n"
    assert (root / path[1:]).stat().st_mode & 0o777 == 0o600


def test_without_a_way_out_nothing_is_resolved(tmp_path: Path) -> None:
    def lost(argv: Sequence[str], timeout_s: float = 30, env: object = None) -> CommandResult:
        return CommandResult(tuple(argv), ENDED, 100, "", "Could not resolve 'archive.example.org'")

    with pytest.raises(
        ToolError, match=r"the package sources cannot be reached: .*Could not resolve"
    ):
        resolve(lost, str(tmp_path), ["chrony"])


def test_closures_with_and_without_recommended_packages_are_one(tmp_path: Path) -> None:
    calls: list[Sequence[str]] = []

    def reached(argv: Sequence[str], timeout_s: float = 30, env: object = None) -> CommandResult:
        calls.append(argv)
        name = "less" if "--no-install-recommends" in argv else "more"
        line = f"'http://x/{name}_1.deb' {name}_1.deb 3 SHA256:{DIGEST}\n"
        return CommandResult(tuple(argv), ENDED, 0, line if "install" in argv else "")

    found = resolve(reached, str(tmp_path), ["chrony"])
    assert [one.name for one in found] == ["less_1.deb", "more_1.deb"]
    assert [call[-1] for call in calls] == ["-q", "chrony", "chrony"]


def test_keys_are_those_of_the_mirror_machine_or_of_the_role(tmp_path: Path) -> None:
    here = tmp_path / "here.gpg"
    here.touch()
    text = f"Signed-By: {here}\nSigned-By: /etc/apt/keyrings/role.asc\nSigned-By: /none.gpg\n"
    assert keys_at(text, "/root", ["/etc/apt/keyrings/role.asc"]) == (
        f"Signed-By: {here}\nSigned-By: /root/etc/apt/keyrings/role.asc\nSigned-By: /none.gpg\n",
        ["/none.gpg"],
    )
    with pytest.raises(ToolError, match=r"/role.asc: not on this machine"):
        prepare(str(tmp_path / "root"), {"/etc/apt/sources.list.d/x.sources": text})


def test_sources_of_an_earlier_run_are_gone(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    prepare(root, {"/etc/apt/sources.list.d/x.sources": "Types: deb\n"})
    prepare(root, {"/etc/apt/preferences.d/y": "Package: *\n"})
    names = [p.name for p in (tmp_path / "root").rglob("*") if p.is_file()]
    assert sorted(names) == ["status", "y"]
