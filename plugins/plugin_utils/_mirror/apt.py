# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Packages of Debian and Ubuntu, fetched by apt-get in the folder of a fresh system.

The dpkg status there is empty, so what a package needs is fetched whole, down to libc: it does not
matter what a node has already. apt verifies the signatures of the sources and every checksum.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ...module_utils._core.files import make_folder, remove_tree, rename, write_atomic
from ...module_utils._core.redact import Redactor
from ...module_utils._core.run import CommandRunner, ToolError
from ...module_utils._host.packages.directory import index_entry, take

Say = Callable[[str], None]

_HELPER = "/usr/lib/apt/apt-helper"
_URI = re.compile(r"^'([^']+)' (\S+) (\d+) SHA256:([0-9a-f]{64})$", re.MULTILINE)
_SIGNED_BY = re.compile(r"^(Signed-By: *)(/\S+)$", re.MULTILINE)
_LOGIN = re.compile(r"(?<=://)[^\s/?#]*@")
_UPDATE_S, _RESOLVE_S, _FETCH_S = 600.0, 300.0, 7200.0
# One call of apt-helper: few enough for the length of a command line, and for a line of progress.
_BATCH = 60


@dataclass(frozen=True)
class File:
    """A file behind a URI: its name in the mirror, what it must be, and who wants it."""

    uri: str
    name: str
    size: int
    sha256: str
    asked_by: tuple[str, ...] = ()


def public(text: str) -> str:
    """Return a text without the logins and secrets of its URLs."""
    return Redactor().text(_LOGIN.sub("", text))


def parse_uris(text: str, root: str) -> list[File]:
    """Return the files of `apt-get --print-uris`, but for those of repositories in root."""
    return [
        File(uri, os.path.basename(unquote(uri)), int(size), digest)
        for uri, _name, size, digest in _URI.findall(text)
        if not uri.startswith(f"file:{root}/")
    ]


def options(root: str) -> list[str]:
    """Return the options that keep apt in the folder; proxies of this machine stay in force."""
    values = {
        "Dir": root,
        "Dir::State::status": f"{root}/var/lib/dpkg/status",
        "APT::Architecture": "amd64",
        "APT::Update::Error-Mode": "any",
        "APT::Sandbox::User": "",
        "Acquire::ForceHash": "SHA256",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Debug::NoLocking": "1",
    }
    words = ["-o", "APT::Architectures::=amd64"]
    for name, value in values.items():
        words += ["-o", f"{name}={value}"]
    return words


def keys_at(text: str, root: str, keys: Iterable[str]) -> tuple[str, list[str]]:
    """Return a source with its keys where they lie here, and the keys that are not here."""
    known, missing = set(keys), []

    def place(found: re.Match[str]) -> str:
        if found.group(2) in known:
            return found.group(1) + root + found.group(2)
        if not os.path.exists(found.group(2)):
            missing.append(found.group(2))
        return found.group(0)

    return _SIGNED_BY.sub(place, text), missing


def prepare(root: str, files: Mapping[str, str], stores: Iterable[str] = ()) -> None:
    """Write sources, pins and keys; lists of an earlier run stay, so that less is fetched.

    stores are the repositories that roles make on a node: here they are in root.
    """
    for name in ("sources.list.d", "preferences.d", "keyrings"):
        remove_tree(f"{root}/etc/apt/{name}")
    remove_tree(f"{root}/usr/share/keyrings")
    for name in (
        "etc/apt/sources.list.d",
        "etc/apt/preferences.d",
        "var/lib/apt/lists/partial",
        "var/cache/apt/archives/partial",
        "var/lib/dpkg",
    ):
        make_folder(f"{root}/{name}")
    write_atomic(f"{root}/var/lib/dpkg/status", "")
    missing: list[str] = []
    for path, text in files.items():
        if path.endswith(".sources"):
            text, lacking = keys_at(text, root, files)
            missing += lacking
            for store in stores:
                text = text.replace(f"file:{store}\n", f"file:{root}{store}\n")
        # It may have the password of a repository.
        write_atomic(root + path, text, 0o600)
    if missing:
        raise ToolError(
            f"{missing[0]}: not on this machine; install debian-archive-keyring or "
            "ubuntu-keyring, or copy it from a node"
        )


def resolve(run: CommandRunner, root: str, packages: Sequence[str]) -> list[File]:
    """Return all files that the packages need on a fresh system.

    Once with recommended packages and once without: some roles take them, and where a package
    accepts one of several others, which one it gets may depend on it.
    """
    answer = run(["apt-get", *options(root), "update", "-q"], _UPDATE_S)
    if not answer.ok:
        raise ToolError(
            f"the package sources cannot be reached: {public(answer.describe(3))}; run this on a "
            "machine with Internet access"
        )
    found: dict[str, File] = {}
    for extra in ([], ["--no-install-recommends"]):
        words = ["install", "-q", "-y", "--print-uris", *extra, *packages]
        answer = run(["apt-get", *options(root), *words], _RESOLVE_S)
        if not answer.ok:
            raise ToolError(f"the sources lack something: {public(answer.describe(8))}")
        for one in parse_uris(answer.out, root):
            found[one.name] = one
    return [found[name] for name in sorted(found)]


def fetch(run: CommandRunner, say: Say, files: Sequence[File], target: str) -> int:
    """Fetch what is missing in a folder; returns how many. None is there before its checksum fits.

    All that are there are read, so that a damaged one is fetched again.
    """
    make_folder(target)
    missing = [one for one in files if digest_of(os.path.join(target, one.name)) != one.sha256]
    partial = os.path.join(target, ".partial")
    for start in range(0, len(missing), _BATCH):
        batch = missing[start : start + _BATCH]
        remove_tree(partial)
        make_folder(partial)
        words = ["-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=3", "download-file"]
        for one in batch:
            # All users see a command; of file: there would be a link.
            uri = re.sub("^file:", "copy:", _LOGIN.sub("", one.uri))
            words += [uri, os.path.join(partial, one.name), f"SHA256:{one.sha256}"]
        with tempfile.TemporaryDirectory() as private:
            logins = _logins(batch)
            if logins:
                write_atomic(f"{private}/auth.conf", logins, 0o600)
                words = ["-o", f"Dir::Etc::netrc={private}/auth.conf", *words]
            answer = run([_HELPER, *words], _FETCH_S)
        for one in batch:
            if digest_of(os.path.join(partial, one.name)) == one.sha256:
                rename(os.path.join(partial, one.name), os.path.join(target, one.name))
        if not answer.ok:
            raise ToolError(_refusal(public(answer.text), public(answer.describe(3))))
        say(f"{os.path.basename(target)}: {start + len(batch)} of {len(missing)} files fetched")
    remove_tree(partial)
    return len(missing)


def _logins(files: Sequence[File]) -> str:
    """Return the logins of URLs as apt_auth.conf(5) has them; ToolError for one it cannot have."""
    lines = set()
    for one in files:
        parts = urlsplit(one.uri)
        login, found, host = parts.netloc.rpartition("@")
        if found:
            name, _colon, password = (unquote(word) for word in login.partition(":"))
            if re.search(r"\s", name + password):
                raise ToolError(f"{public(one.uri)}: its login has a space, which apt cannot take")
            if not name:
                raise ToolError(f"{public(one.uri)}: its login has no name, which apt cannot take")
            secret = f" password {password}" if password else ""
            # apt-helper encodes these two in a URL, and looks for the login of the result.
            for path in (parts.path, parts.path.replace("~", "%7e").replace("+", "%2b")):
                lines.add(f"machine {parts.scheme}://{host}{path} login {name}{secret}\n")
    return "".join(sorted(lines))


def _refusal(text: str, message: str) -> str:
    failed = re.search(r"Failed to fetch (\S+)", text)
    name = failed.group(1) if failed else "a file"
    if "Hash Sum mismatch" in text or "Hashes of received file" in text:
        return f"{name} has the wrong checksum: not kept, nothing else was changed"
    return f"{name} cannot be fetched: {message}; run this on a machine with Internet access"


def digest_of(path: str) -> str:
    """Return the SHA-256 of a file; empty without one, or with a link to one elsewhere."""
    return take(path, "") if os.path.isfile(path) and not os.path.islink(path) else ""


def index(run: CommandRunner, folder: str, files: Sequence[File]) -> str:
    """Return the index of the packages, for a repository without sub-folders."""
    entries = []
    for one in files:
        answer = run(["dpkg-deb", "-f", os.path.join(folder, one.name)])
        if not answer.ok:
            raise ToolError(f"{one.name} is not a package: {answer.describe()}")
        entries.append(index_entry(answer.out, one.name, one.size, one.sha256))
    return "\n".join(entries)


def release(index_digest: str, size: int, origin: str, date: str) -> str:
    """Return the Release file. A role pins packages by the distribution, which is the origin."""
    return (
        f"Origin: {origin}\nLabel: baremetal.dgx mirror\nSuite: mirror\nArchitectures: amd64\n"
        f"Date: {date}\nSHA256:\n {index_digest} {size} Packages\n"
    )
