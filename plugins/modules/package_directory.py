#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: package_directory
short_description: Make a directory of packages, whose checksums are right, a local repository
description:
  - For nodes without a way to the outside. The directory holds packages and a list of their
    checksums, as C(sha256sum) writes it; the checksum of that list stands in the inventory, so that
    whoever can write the directory cannot change what is installed.
  - Every listed file is copied to a folder that root alone can write, and its checksum is taken
    from what was copied. When one is wrong, none is used.
  - For C(.deb) files the index is written here. C(.rpm) files must come with the C(repodata) that
    C(createrepo_c) makes, which is listed as well.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: The files are read and compared in check mode, too.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  path:
    description: The directory, on the node. It may be a mount.
    type: path
    required: true
  manifest:
    description: Name of the list in it.
    type: str
    default: SHA256SUMS
  sha256:
    description: Checksum of the list.
    type: str
    required: true
  destination:
    description: The folder that becomes the repository.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Take the driver's packages over
  baremetal.dgx.package_directory:
    path: /srv/packages/nvidia
    sha256: 9f2b6c31c0a5f1e94c7a0c3d4a4b37f7b7f3f3a9e2b6f0f1c2d3e4f5a6b7c8d9
    destination: /var/lib/baremetal-dgx/packages/nvidia_driver
"""

RETURN = r"""
kind:
  description: V(deb) or V(rpm).
  returned: success
  type: str
files:
  description: The files of the repository.
  returned: success
  type: list
  elements: str
findings:
  description: One line for each file that is not what the list says.
  returned: always
  type: list
  elements: str
"""

import hashlib
import os
import shutil
from typing import Any, Mapping

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._package_directory import (
    differences,
    index_entry,
    parse_sums,
    release_file,
    wanted_kind,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    CommandRunner,
    ModuleRunner,
    ToolError,
)

_BLOCK = 1 << 20
_TAKEN_OVER = ".taken-over"

ARGUMENT_SPEC: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "manifest": {"type": "str", "default": "SHA256SUMS"},
    "sha256": {"type": "str", "required": True},
    "destination": {"type": "path", "required": True},
}


def load(params: Mapping[str, Any]) -> tuple[dict[str, str], str, str]:
    """Return digests by name, deb or rpm, and the text of the list; ToolError for a bad one."""
    path = os.path.join(params["path"], params["manifest"])
    try:
        with open(path, "rb") as handle:
            data = handle.read()
    except OSError as error:
        raise ToolError(f"{path} cannot be read: {error.strerror}") from error
    found = hashlib.sha256(data).hexdigest()
    if found != params["sha256"].strip().lower():
        raise ToolError(
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
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        with open(target, "wb") as writer:
            for block in iter(lambda: reader.read(_BLOCK), b""):
                digest.update(block)
                writer.write(block)
        os.chmod(target, 0o644)
    return digest.hexdigest()


def take_all(path: str, target: str, sums: Mapping[str, str]) -> list[str]:
    """Copy all listed files, or read them; returns one line for each that is not as listed."""
    found = {}
    for name in sorted(sums):
        source = os.path.join(path, name)
        if os.path.isfile(source):
            found[name] = take(source, os.path.join(target, name) if target else "")
    return differences(sums, found)


def write(path: str, text: str) -> None:
    """Write a text that everybody can read."""
    with open(path, "w", encoding="utf-8") as handle:
        handle.write(text)
    os.chmod(path, 0o644)


def index(run: CommandRunner, folder: str, sums: Mapping[str, str]) -> None:
    """Write the index of all .deb files; ToolError for a file that is none."""
    entries = []
    for name in sorted(sums):
        if name.endswith(".deb"):
            path = os.path.join(folder, name)
            answer = run(["dpkg-deb", "-f", path])
            if not answer.ok:
                raise ToolError(f"{name} is no package: {answer.describe()}; nothing was changed")
            entries.append(index_entry(answer.out, name, os.path.getsize(path), sums[name]))
    text = "\n".join(entries)
    write(os.path.join(folder, "Packages"), text)
    write(os.path.join(folder, "Release"), release_file(text, os.path.basename(folder)))


def take_over(
    run: CommandRunner, params: Mapping[str, Any], sums: Mapping[str, str], kind: str, text: str
) -> list[str]:
    """Make the repository beside the old one, then put it in its place."""
    destination = params["destination"].rstrip("/")
    fresh, old = destination + ".new", destination + ".old"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
    os.makedirs(fresh, mode=0o755)
    try:
        findings = take_all(params["path"], fresh, sums)
        if findings:
            return findings
        if kind == "deb":
            index(run, fresh, sums)
        write(os.path.join(fresh, _TAKEN_OVER), text)
        if os.path.isdir(destination):
            os.rename(destination, old)
        os.rename(fresh, destination)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return []


def main() -> None:
    """Load, compare, copy, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    findings: list[str] = []
    try:
        sums, kind, text = load(params)
        changed = not is_taken_over(params["destination"], sums, text)
        if changed and module.check_mode:
            findings = take_all(params["path"], "", sums)
        elif changed:
            findings = take_over(ModuleRunner(module), params, sums, kind, text)
    except ToolError as error:
        module.fail_json(msg=str(error), **{"findings": [str(error)], **error.details})
    except OSError as error:
        module.fail_json(msg=f"cannot use {error.filename}: {error.strerror}", findings=[])
    if findings:
        module.fail_json(
            msg="\n".join(f"{params['path']}: {line}" for line in findings), findings=findings
        )
    result: dict[str, Any] = {
        "changed": changed,
        "kind": kind,
        "files": sorted(sums),
        "findings": [],
    }
    if module._diff and changed:
        result["diff"] = {"prepared": "".join(f"{name}\n" for name in sorted(sums))}
    module.exit_json(**result)


if __name__ == "__main__":
    main()
