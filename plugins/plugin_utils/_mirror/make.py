# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Makes the folder that an air-gapped site takes everything from, and its manifest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from ...module_utils._core.files import (
    make_folder,
    remove,
    remove_tree,
    text_if_there,
    write_atomic,
)
from ...module_utils._core.run import CommandRunner, ToolError
from ...module_utils._host.packages import directory
from .._inventory.orphans import find_covered
from .apt import File, Say, digest_of, fetch, index, prepare, public, resolve
from .control import build_collection, fetch_wheels
from .fetched import FETCHED, Wanted
from .key import Key
from .platforms import PLATFORMS, Platform
from .redirects import Place, redirected, variable_files

MANIFEST = "manifest.json"
SUMS = "SHA256SUMS"
_COLUMNS = ("path", "size", "sha256", "source", "asked_by")


@dataclass(frozen=True)
class Host:
    """A host: its system, what it would fetch, and where the inventory says each of its inputs."""

    platform: Platform
    wanted: Wanted
    places: Mapping[str, str]


@dataclass(frozen=True)
class Order:
    """What is to be made, and where."""

    folder: str
    # Beside the cluster's secrets: the key, and apt's lists.
    state: str
    url: str
    # The collection's own folder, and the ansible-core that runs; empty: nothing for the control
    # machine.
    root: str
    core: str
    extra: tuple[str, ...] = ()
    hosts: Mapping[str, Host] = field(default_factory=dict)


@dataclass
class Made:
    """What a run has fetched, and what it has left to the site."""

    fetched: int = 0
    # Path in the folder -> source, and what asked for it.
    sources: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    # What begins with it was not made by this run, and stays: its source, and what asked for it.
    kept: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)


def problems_of(hosts: Mapping[str, Host], url: str, sources: Iterable[str]) -> list[str]:
    """Return what of the hosts is not understood, each line once with the hosts it is about.

    Where all is, return which files of the inventory's sources the mirror's would cover.
    """
    reported: dict[str, list[str]] = {}
    for name, host in hosts.items():
        for line in host.wanted.problems:
            reported.setdefault(line, []).append(name)
    if reported:
        return [f"{', '.join(names[:3])}: {line}" for line, names in sorted(reported.items())]
    return [str(one) for one in find_covered(sources, _variables(hosts, url, "", str))]


def is_mirrored(hosts: Iterable[Host], url: str) -> bool:
    """Whether hosts take packages from this mirror already: it cannot be made from itself."""
    ours = url.rstrip("/") + "/"
    return any(
        str(uri).startswith(ours)
        for host in hosts
        for one in host.wanted.inputs.get("node_base_repositories") or []
        for uri in one.get("uris", [])
    )


def make(order: Order, run: CommandRunner, say: Say) -> dict[str, Any]:
    """Fetch everything, sign it, write the manifest; ToolError, OSError."""
    _take(order.folder)
    made = Made()
    places = _downloads(order, run, say, made)
    key = Key(run, f"{order.state}/gnupg")
    try:
        fresh = text_if_there(f"{order.folder}/key.asc") != key.public
        for name in sorted({host.platform.name for host in order.hosts.values()}):
            hosts = {n: h for n, h in order.hosts.items() if h.platform.name == name}
            if PLATFORMS[name].has_apt:
                _apt(order, run, say, made, key, fresh, name, hosts, places)
            else:
                _rpm(order, made, name, hosts)
        # Not before all is signed by it: what a run did not get to would keep an old signature.
        _put(order, made, "key.asc", key.public, "made here")
    finally:
        key.close()
    if order.core:
        say("what the control machine needs")
        fetch_wheels(run, f"{order.folder}/control/wheels", order.core)
        for name in os.listdir(f"{order.folder}/control/wheels"):
            made.sources[f"control/wheels/{name}"] = ("PyPI", ("the control machine",))
        path = build_collection(run, order.root, f"{order.folder}/control")
        named = f"control/{os.path.basename(path)}"
        made.sources[named] = ("this collection", ("the control machine",))
    else:
        # A control machine may have been left out of this run, not of the folder.
        made.kept["control/"] = ("an earlier run", ("the control machine",))
    base = order.url.rstrip("/")
    texts = _variables(
        order.hosts, base, key.public, lambda sha256: f"{base}/{quote(places[sha256], safe='/+~')}"
    )
    for name, text in texts.items():
        _put(order, made, f"inventory/{name}", text, "made here")
    _own(order, made)
    return _finish(order, made)


def _take(folder: str) -> None:
    """Make the folder, or take one of an earlier run: what is not asked for is removed from it."""
    make_folder(folder)
    path = os.path.join(folder, MANIFEST)
    if not os.listdir(folder):
        write_atomic(path, "{}\n")
    if not _is_ours(text_if_there(path) or ""):
        raise ToolError(
            f"{folder}: not empty, and without a {MANIFEST} of this playbook; name an empty folder"
        )


def _is_ours(text: str) -> bool:
    """Return whether this playbook wrote a manifest: many programs have one of that name."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    # Empty is that of a run which was killed.
    if not isinstance(found, dict) or not found:
        return found == {}
    rows = found.get("files")
    return (
        isinstance(rows, list)
        and bool(rows)
        and all(isinstance(row, dict) and tuple(row) == _COLUMNS for row in rows)
    )


def _put(order: Order, made: Made, name: str, text: str, source: str) -> None:
    path = f"{order.folder}/{name}"
    if text_if_there(path) != text:
        write_atomic(path, text)
    made.sources[name] = (source, ())


def _groups(hosts: Mapping[str, Host]) -> list[tuple[Wanted, dict[str, tuple[str, ...]]]]:
    """Return what hosts want that have the same sources and packages, once, with all their roles.

    A source is also what a role puts in place: a folder of the site's or a key, by their contents.
    """
    found: dict[tuple[Any, ...], tuple[Wanted, dict[str, tuple[str, ...]]]] = {}
    for host in hosts.values():
        wanted = host.wanted
        key = (
            tuple(sorted(wanted.files.items())),
            tuple(sorted(wanted.packages)),
            tuple(sorted((place, *folder.values()) for place, folder in wanted.folders.items())),
            tuple(sorted(one for one in wanted.downloads if one.is_key)),
        )
        _first, asked = found.setdefault(key, (wanted, {}))
        for name, roles in sorted(wanted.packages.items()):
            asked[name] = tuple(sorted({*asked.get(name, ()), *roles}))
    return list(found.values())


def _apt(
    order: Order,
    run: CommandRunner,
    say: Say,
    made: Made,
    key: Key,
    fresh: bool,
    name: str,
    hosts: Mapping[str, Host],
    places: Mapping[str, str],
) -> None:
    files: dict[str, File] = {}
    groups = _groups(hosts)
    for number, (wanted, asked) in enumerate(groups, 1):
        root = f"{order.state}/apt/{name}-{number}"
        prepare(root, {**wanted.files, **_keys(order, run, wanted)}, wanted.folders)
        _stores(order, run, root, wanted, places)
        packages = [*asked, *order.extra]
        say(f"{name}: packages of {number} of {len(groups)} kinds of hosts: {len(packages)} names")
        for one in resolve(run, root, packages):
            names = [n for n in asked if n.split("=")[0] == one.name.split("_")[0]]
            roles = {role for n in names for role in asked[n]}
            before = files[one.name].asked_by if one.name in files else ()
            files[one.name] = File(
                one.uri, one.name, one.size, one.sha256, tuple(sorted({*before, *roles}))
            )
    found = [files[one] for one in sorted(files)]
    size = sum(one.size for one in found)
    say(f"{name}: {len(found)} packages, {size / 1e6:.0f} MB, with all that they need")
    target = f"{order.folder}/apt/{name}"
    made.fetched += fetch(run, say, found, target)
    text = index(run, target, found)
    key.sign(target, text, PLATFORMS[name].facts["distribution"], fresh)
    for one in found:
        made.sources[f"apt/{name}/{one.name}"] = (
            public(one.uri),
            one.asked_by or ("a dependency",),
        )
    for one_name in ("Packages", "InRelease"):
        made.sources[f"apt/{name}/{one_name}"] = ("made here", ())


def _keys(order: Order, run: CommandRunner, wanted: Wanted) -> dict[str, str]:
    """Return the keys that roles fetch for their repositories, as text files."""
    keys: dict[str, str] = {}
    for one in sorted(wanted.downloads):
        if one.is_key:
            folder = f"{order.state}/keys"
            fetch(run, lambda _line: None, [File(one.url, one.sha256, -1, one.sha256)], folder)
            keys[one.place] = text_if_there(f"{folder}/{one.sha256}") or ""
    return keys


def _stores(
    order: Order, run: CommandRunner, root: str, wanted: Wanted, places: Mapping[str, str]
) -> None:
    """Make the repositories that roles make of folders, whose packages may need others."""
    for place, folder in wanted.folders.items():
        if folder["path"].startswith(FETCHED):
            folder = _fetched(order, root, wanted, folder, places)
        elif not os.path.isdir(folder["path"]):
            raise ToolError(
                f"{folder['role']}: its packages are in {folder['path']}, which is not on this "
                "machine; copy or mount it here under the same path"
            )
        params = {**folder, "manifest": folder["manifest"] or SUMS}
        params["destination"] = root + place
        sums, kind, text = directory.load(params)
        if not directory.is_taken_over(params["destination"], sums, text):
            directory.bring_over(run, params, sums, kind, text, check_mode=False)


def _fetched(
    order: Order,
    root: str,
    wanted: Wanted,
    folder: Mapping[str, str],
    places: Mapping[str, str],
) -> dict[str, str]:
    """Return a folder of packages that the role fetches itself, with copies of them."""
    path, sums = root + folder["path"], ""
    remove_tree(path)
    for one in sorted(wanted.downloads):
        above, name = os.path.split(one.place)
        if above == folder["path"]:
            directory.take(f"{order.folder}/{places[one.sha256]}", f"{path}/{name}")
            sums += f"{one.sha256}  {name}\n"
    write_atomic(f"{path}/{SUMS}", sums)
    return {**folder, "path": path, "sha256": hashlib.sha256(sums.encode()).hexdigest()}


def _rpm(order: Order, made: Made, name: str, hosts: Mapping[str, Host]) -> None:
    """Write the list of packages and the commands for a machine of that system."""
    asked = sorted({n for host in hosts.values() for n in host.wanted.packages})
    script = (
        "#!/bin/sh\n# Rendered, never run by the authors: see docs/sites.md, air gap.\nset -eu\n"
        'cd "$(dirname "$0")"\n'
        "dnf -y install dnf-plugins-core createrepo_c\n"
        "xargs dnf download --resolve --alldeps --destdir packages < packages.txt\n"
        "createrepo_c packages\n"
    )
    _put(order, made, f"rpm/{name}/packages.txt", "\n".join(asked) + "\n", "made here")
    _put(order, made, f"rpm/{name}/fetch.sh", script, "made here")
    made.kept[f"rpm/{name}/packages/"] = (f"rpm/{name}/fetch.sh", ())
    made.left.append(
        f"{name}: {len(asked)} packages; run sh rpm/{name}/fetch.sh on a machine of that system, "
        "and write node_base_repositories for its hosts by hand"
    )


def _downloads(order: Order, run: CommandRunner, say: Say, made: Made) -> dict[str, str]:
    """Fetch archives and the like; returns their paths in the folder by checksum."""
    asked: dict[str, tuple[str, set[str]]] = {}
    for host in order.hosts.values():
        for one in host.wanted.downloads:
            if not one.is_key:
                asked.setdefault(one.sha256, (one.url, set()))[1].add(one.role)
    places: dict[str, str] = {}
    for sha256, (url, roles) in sorted(asked.items()):
        name = os.path.basename(unquote(url.split("?")[0]))
        name = name if name.strip(".") else "file"
        folder = f"{order.folder}/files/{sha256}"
        made.fetched += fetch(run, say, [File(url, name, -1, sha256)], folder)
        places[sha256] = f"files/{sha256}/{name}"
        made.sources[places[sha256]] = (public(url), tuple(sorted(roles)))
    return places


def _variables(hosts: Mapping[str, Host], url: str, key: str, place: Place) -> dict[str, str]:
    """Return what points each role's sources to the mirror, by its path in the inventory."""
    inputs = {
        name: redirected(host.wanted.inputs.get, url, host.platform.name, key, place)
        for name, host in hosts.items()
        if host.platform.has_apt
    }
    return variable_files(inputs, {name: hosts[name].places for name in inputs}, "cluster")


def _own(order: Order, made: Made) -> None:
    """Name what is the site's own to bring along."""
    images: dict[str, set[str]] = {}
    folders: dict[str, str] = {}
    for host in order.hosts.values():
        for image, roles in host.wanted.images.items():
            images.setdefault(image, set()).update(roles)
        for folder in host.wanted.folders.values():
            if not folder["path"].startswith(FETCHED):
                folders[folder["path"]] = folder["role"]
    for image, roles in sorted(images.items()):
        made.left.append(
            f"image {public(image)} ({', '.join(sorted(roles))}): import or load it by hand"
        )
    for path, role in sorted(folders.items()):
        made.left.append(f"folder {path} ({role}): copy or mount it on the nodes")


def _finish(order: Order, made: Made) -> dict[str, Any]:
    """Remove what nothing asks for, and write the manifest of all that is there."""
    removed = 0
    for above, folders, names in os.walk(order.folder, topdown=False):
        for name in names:
            path = os.path.join(above, name)
            relative = os.path.relpath(path, order.folder)
            if relative not in made.sources and relative not in (MANIFEST, SUMS):
                place = next((one for one in made.kept if relative.startswith(one)), None)
                if place:
                    made.sources[relative] = made.kept[place]
                    continue
                remove(path)
                removed += 1
        for name in folders:
            path = os.path.join(above, name)
            if not os.listdir(path):
                remove_tree(path)
    rows: list[dict[str, Any]] = []
    for path, (source, asked_by) in sorted(made.sources.items()):
        full = os.path.join(order.folder, path)
        values = (path, os.path.getsize(full), digest_of(full), source, list(asked_by))
        rows.append(dict(zip(_COLUMNS, values, strict=True)))
    manifest = json.dumps({"files": rows, "left": made.left}, indent=1) + "\n"
    sums = "".join(f"{row['sha256']}  {row['path']}\n" for row in rows)
    before = text_if_there(os.path.join(order.folder, MANIFEST))
    for name, text in ((SUMS, sums), (MANIFEST, manifest)):
        if text_if_there(os.path.join(order.folder, name)) != text:
            write_atomic(os.path.join(order.folder, name), text)
    total = sum(row["size"] for row in rows)
    return {
        "changed": before != manifest or removed > 0,
        "fetched": made.fetched,
        "removed": removed,
        "files": len(rows),
        "bytes": total,
        "left": made.left,
    }
