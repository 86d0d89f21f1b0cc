# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""A directory of packages with a list of checksums: the list read, an APT index written. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Iterable, Mapping

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
    data = index.encode()
    return (
        f"Origin: baremetal.dgx\nLabel: {label}\nDate: Thu, 01 Jan 1970 00:00:00 UTC\n"
        f"SHA256:\n {hashlib.sha256(data).hexdigest()} {len(data)} Packages\n"
    )


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return one line for each file that is missing or has another digest than the list says."""
    said = []
    for name in sorted(wanted):
        if name not in found:
            said.append(f"{name} is listed and not there")
        elif found[name] != wanted[name]:
            said.append(
                f"{name} has the wrong checksum: {found[name][:16]}… and not {wanted[name][:16]}…"
            )
    return said
