#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: spank_build
short_description: Build a SPANK plug-in against the very Slurm that is installed
description:
  - A plug-in built for another release of Slurm does not load, and with C(required) in
    C(plugstack.conf) every job fails then. So the build is named after what it depends on, namely
    Slurm's version, the machine's architecture and the sources. When one of them changes, there is
    a new build beside the old one, which running jobs go on using.
  - The headers must be those of the installed Slurm; others are refused.
  - The sources are copied before they are built, and are not changed. C(make) runs there.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Where Slurm or the sources are not there yet, the build is reported as one that would
      be made.
  diff_mode:
    support: none
    details: What is built is no text.
  idempotent:
    support: full
options:
  source:
    description: The directory of the sources, on the node; it may be a mount. It has a C(Makefile).
    type: path
    required: true
  plugin:
    description: The file that C(make) leaves in the directory.
    type: str
    default: spank_pyxis.so
  destination:
    description: The folder that builds are kept in, as C(NAME-FINGERPRINT.so).
    type: path
    required: true
  make_arguments:
    description: Arguments of C(make).
    type: list
    elements: str
    default: []
  headers:
    description: Files that may define C(SLURM_VERSION_NUMBER).
    type: list
    elements: path
    default: [/usr/include/slurm/slurm_version.h, /usr/include/slurm/slurm.h]
  timeout_s:
    description: Seconds that C(make) may take.
    type: int
    default: 300
seealso:
  - module: baremetal.dgx.spank_stack
"""

EXAMPLES = r"""
- name: Build pyxis for this Slurm
  baremetal.dgx.spank_build:
    source: /srv/sources/pyxis
    destination: /var/lib/baremetal-dgx/pyxis/builds
  register: built
"""

RETURN = r"""
slurm:
  description: Version of Slurm that it is built for.
  returned: always
  type: str
  sample: 24.11.5
fingerprint:
  description: 12 hex digits for what the build depends on; empty when that is not known.
  returned: always
  type: str
  sample: 5d41402abc4b
path:
  description: The build.
  returned: always
  type: str
  sample: /var/lib/baremetal-dgx/pyxis/builds/spank_pyxis-5d41402abc4b.so
"""

import hashlib
import os
import platform
import shutil
import tempfile
from typing import Any, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    CommandRunner,
    ModuleRunner,
    ToolError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._spank import (
    fingerprint,
    header_version,
    is_source,
    same_release,
    slurm_version,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "source": {"type": "path", "required": True},
    "plugin": {"type": "str", "default": "spank_pyxis.so"},
    "destination": {"type": "path", "required": True},
    "make_arguments": {"type": "list", "elements": "str", "default": []},
    "headers": {
        "type": "list",
        "elements": "path",
        "default": ["/usr/include/slurm/slurm_version.h", "/usr/include/slurm/slurm.h"],
    },
    "timeout_s": {"type": "int", "default": 300},
}
_ELF = b"\x7fELF"
_TIME_TO_ANSWER_S = 20


def digests(folder: str) -> dict[str, str]:
    """Return SHA-256 by relative path of all source files; ToolError where there is no Makefile."""
    if not os.path.isfile(os.path.join(folder, "Makefile")):
        raise ToolError(f"source: {folder} has no Makefile; name the directory of the sources")
    found = {}
    for place, _folders, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            relative = os.path.relpath(path, folder)
            if is_source(relative) and os.path.isfile(path):
                with open(path, "rb") as handle:
                    found[relative] = hashlib.sha256(handle.read()).hexdigest()
    return found


def installed_version(run: CommandRunner) -> str:
    """Return the version of the Slurm that runs here; ToolError where none answers."""
    answer = run(["srun", "--version"], timeout_s=_TIME_TO_ANSWER_S)
    version = slurm_version(answer.text)
    if not version:
        raise ToolError(f"Slurm's version is not known: {answer.describe()}")
    return version


def check_headers(paths: Sequence[str], version: str) -> None:
    """Raise ToolError unless the headers are those of this version."""
    for path in paths:
        try:
            with open(path, encoding="utf-8", errors="replace") as handle:
                found = header_version(handle.read())
        except OSError:
            continue
        if found and not same_release(found, version):
            raise ToolError(
                f"{path} is of Slurm {found}, and {version} runs here; a plug-in built with it "
                "would not load: install the headers of the same version"
            )
        if found:
            return
    raise ToolError(f"Slurm's headers are not there ({', '.join(paths)}); install them")


def load(run: CommandRunner, params: Mapping[str, Any]) -> dict[str, str]:
    """Return slurm, fingerprint and path of the build that is wanted."""
    version = installed_version(run)
    mark = fingerprint(version, platform.machine(), digests(params["source"]))
    stem = params["plugin"].rsplit(".so", 1)[0]
    path = os.path.join(params["destination"], f"{stem}-{mark}.so")
    return {"slurm": version, "fingerprint": mark, "path": path}


def build(run: CommandRunner, params: Mapping[str, Any], target: str) -> None:
    """Run make in a copy of the sources and keep what it made; ToolError when it made nothing."""
    folder = tempfile.mkdtemp(prefix="spank-build-")
    try:
        copy = os.path.join(folder, "source")
        shutil.copytree(
            params["source"], copy, ignore=shutil.ignore_patterns("*.o", "*.so", "*.lo", ".git")
        )
        answer = run(["make", "-C", copy, *params["make_arguments"]], timeout_s=params["timeout_s"])
        made = os.path.join(copy, params["plugin"])
        if not answer.ok:
            raise ToolError(f"the plug-in cannot be built: {answer.describe()}")
        if not os.path.isfile(made):
            raise ToolError(f"make ended well, and made no {params['plugin']}")
        with open(made, "rb") as handle:
            if handle.read(4) != _ELF:
                raise ToolError(f"make made a {params['plugin']} that is no library")
        os.makedirs(params["destination"], mode=0o755, exist_ok=True)
        shutil.copyfile(made, f"{target}.new")
        os.chmod(f"{target}.new", 0o644)
        os.replace(f"{target}.new", target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Load, compare, build, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    run = ModuleRunner(module)
    answer = {"slurm": "", "fingerprint": "", "path": ""}
    try:
        answer = load(run, module.params)
        if os.path.isfile(answer["path"]):
            module.exit_json(changed=False, **answer)
        if not module.check_mode:
            check_headers(module.params["headers"], answer["slurm"])
            build(run, module.params, answer["path"])
    except (ToolError, OSError, shutil.Error) as error:
        if module.check_mode:
            module.exit_json(changed=True, reason=str(error), **answer)
        module.fail_json(msg=str(error), changed=False, **answer)
    module.exit_json(changed=True, **answer)


if __name__ == "__main__":
    main()
