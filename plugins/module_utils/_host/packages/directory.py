# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""A directory of packages with a list of checksums: the list read, an APT index written."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from typing import Any, Iterable, Mapping

from ..._core.files import (
    NO_OTHER_WRITER,
    create,
    make_folder,
    remove_tree,
    rename,
    write_all,
    write_atomic,
)
from ..._core.run import CommandRunner, ToolError

_BLOCK = 1 << 20
_TAKEN_OVER = ".taken-over"
# sha256sum(1): the digest, a space, then a space or an asterisk, then the name.
_LINE = re.compile(r"^([0-9a-f]{64}) [ *](.+)$")
REPODATA = "repodata/repomd.xml"


def parse_sums(text: str) -> tuple[dict[str, str], list[str]]:
    """Return digest by name out of a SHA256SUMS file, and one line for each thing wrong with it.

    Names are relative to the file and stay below its folder.
    """
    sums: dict[str, str] = {}
    wrong = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.match(line)
        if not match:
            wrong.append(f"line {number} is not that of sha256sum: {line[:80]!r}")
            continue
        name = match.group(2)
        while name.startswith("./"):
            name = name[2:]
        if name.startswith("/") or ".." in name.split("/") or not name:
            wrong.append(f"line {number} leads out of the directory: {name!r}")
        elif sums.setdefault(name, match.group(1)) != match.group(1):
            wrong.append(f"line {number} gives {name} a second checksum")
    return sums, wrong


def wanted_kind(names: Iterable[str]) -> tuple[str, str]:
    """Return deb or rpm by what a list of names has, and what is wrong with it."""
    names = list(names)
    debs = any(name.endswith(".deb") for name in names)
    rpms = any(name.endswith(".rpm") for name in names)
    if debs and rpms:
        return "", "holds .deb and .rpm files; make a directory for each"
    if not debs and not rpms:
        return "", "lists no package"
    if rpms and REPODATA not in names:
        return "", f"lists no {REPODATA}; run createrepo_c there, then sha256sum over all files"
    return ("deb" if debs else "rpm"), ""


def index_entry(control: str, name: str, size: int, digest: str) -> str:
    """Return the paragraph of a package in an APT index; control is what `dpkg-deb -f` prints."""
    lines = [line for line in control.rstrip("\n").splitlines() if line.strip()]
    lines += [f"Filename: ./{name}", f"Size: {size}", f"SHA256: {digest}"]
    return "\n".join(lines) + "\n"


def release_file(index: str, label: str) -> str:
    """Return the Release file of a flat APT repository that has one index."""
    data = index.encode("utf-8", "surrogateescape")
    return (
        f"Origin: baremetal.dgx\nLabel: {label}\nDate: Thu, 01 Jan 1970 00:00:00 UTC\n"
        f"SHA256:\n {hashlib.sha256(data).hexdigest()} {len(data)} Packages\n"
    )


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return one line for each file that is missing or has another digest than the list says."""
    messages = []
    for name in sorted(wanted):
        if name not in found:
            messages.append(f"{name} is listed and not there")
        elif found[name] != wanted[name]:
            messages.append(
                f"{name} has the wrong checksum: {found[name][:16]}… and not {wanted[name][:16]}…"
            )
    return messages


def _refusal(line: str) -> ToolError:
    return ToolError(line, findings=[line])


def load(params: Mapping[str, Any]) -> tuple[dict[str, str], str, str]:
    """Return digests by name, deb or rpm, and the text of the list; ToolError for a bad one."""
    path = os.path.join(params["path"], params["manifest"])
    try:
        with open(path, "rb") as handle:
            data = handle.read()
    except OSError as error:
        raise _refusal(f"{path} cannot be read: {error.strerror}") from error
    found = hashlib.sha256(data).hexdigest()
    if found != params["sha256"].strip().lower():
        raise _refusal(
            f"{path} has the wrong checksum: {found} and not the declared {params['sha256']}; "
            "nothing was changed"
        )
    sums, wrong = parse_sums(data.decode("utf-8", "replace"))
    kind, problem = wanted_kind(sums)
    wrong += [problem] if problem else []
    if wrong:
        raise ToolError("\n".join(f"{path} {line}" for line in wrong), findings=wrong)
    return sums, kind, data.decode("utf-8", "replace")


def is_taken_over(destination: str, sums: Mapping[str, str], text: str) -> bool:
    """Whether an earlier run has finished with the same list."""
    try:
        with open(os.path.join(destination, _TAKEN_OVER), encoding="utf-8") as handle:
            return handle.read() == text and all(
                os.path.getsize(os.path.join(destination, name)) > 0 for name in sums
            )
    except OSError:
        return False


def take(source: str, target: str) -> str:
    """Copy a file, or only read it where target is empty; returns the digest of what was read."""
    digest = hashlib.sha256()
    with open(source, "rb") as reader:
        if not target:
            for block in iter(lambda: reader.read(_BLOCK), b""):
                digest.update(block)
            return digest.hexdigest()
        with create(target) as writer:
            for block in iter(lambda: reader.read(_BLOCK), b""):
                digest.update(block)
                write_all(writer, block)
    return digest.hexdigest()


def take_all(path: str, target: str, sums: Mapping[str, str]) -> list[str]:
    """Copy all listed files, or read them; returns one line for each that is not as listed."""
    found = {}
    for name in sorted(sums):
        source = os.path.join(path, name)
        if os.path.isfile(source):
            found[name] = take(source, os.path.join(target, name) if target else "")
    return differences(sums, found)


def index(run: CommandRunner, folder: str, sums: Mapping[str, str]) -> None:
    """Write the index of all .deb files; ToolError for an invalid file."""
    entries = []
    for name in sorted(sums):
        if name.endswith(".deb"):
            path = os.path.join(folder, name)
            answer = run(["dpkg-deb", "-f", path])
            if not answer.ok:
                raise _refusal(f"{name} is not a package: {answer.describe()}; nothing was changed")
            entries.append(index_entry(answer.out, name, os.path.getsize(path), sums[name]))
    text = "\n".join(entries)
    write_atomic(os.path.join(folder, "Packages"), text)
    write_atomic(os.path.join(folder, "Release"), release_file(text, os.path.basename(folder)))


def take_over(
    run: CommandRunner, params: Mapping[str, Any], sums: Mapping[str, str], kind: str, text: str
) -> list[str]:
    """Make the repository beside the old one, then put it in its place."""
    destination = params["destination"].rstrip("/")
    fresh, old = destination + ".new", destination + ".old"
    remove_tree(fresh)
    remove_tree(old)
    # Root installs what is in it.
    make_folder(fresh, deny=NO_OTHER_WRITER)
    try:
        findings = take_all(params["path"], fresh, sums)
        if findings:
            return findings
        if kind == "deb":
            index(run, fresh, sums)
        write_atomic(os.path.join(fresh, _TAKEN_OVER), text)
        if os.path.isdir(destination):
            rename(destination, old)
        rename(fresh, destination)
    finally:
        for path in (fresh, old):
            with contextlib.suppress(OSError):
                remove_tree(path)
    return []


def look(params: Mapping[str, Any]) -> tuple[dict[str, str], str, str, bool]:
    """Return what `load` does, and whether the repository has to be made. ToolError, OSError."""
    sums, kind, text = load(params)
    return sums, kind, text, not is_taken_over(params["destination"], sums, text)


def bring_over(
    run: CommandRunner,
    params: Mapping[str, Any],
    sums: Mapping[str, str],
    kind: str,
    text: str,
    check_mode: bool,
) -> None:
    """Make the repository, or only read all files; ToolError for what is not as listed."""
    if check_mode:
        findings = take_all(params["path"], "", sums)
    else:
        findings = take_over(run, params, sums, kind, text)
    if findings:
        lines = "\n".join(f"{params['path']}: {line}" for line in findings)
        raise ToolError(lines, findings=findings)
