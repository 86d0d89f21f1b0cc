#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_plugin_build
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
    details: What is built is not a text.
  idempotent:
    support: full
options:
  source:
    description:
      - The directory of the sources, on the node; it may be a mount. It has a C(Makefile).
      - Root runs C(make) in a copy of it. So it, all in it and the directories above it belong to
        root, and no other user may write there; else nothing is built.
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
  - module: baremetal.dgx.slurm_plugstack
"""

EXAMPLES = r"""
- name: Build pyxis for this Slurm
  baremetal.dgx.slurm_plugin_build:
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

import os
import shutil
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import look_in_time
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner, ToolError
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.containers import build

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


def main() -> None:
    """Load, compare, build, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    look_in_time(
        module, [module.params["source"], module.params["destination"], *module.params["headers"]]
    )
    run = ModuleRunner(module)
    answer = {"slurm": "", "fingerprint": "", "path": ""}
    try:
        answer = build.load(run, module.params)
        if os.path.isfile(answer["path"]):
            module.exit_json(changed=False, **answer)
        if not module.check_mode:
            build.check_headers(module.params["headers"], answer["slurm"])
            build.build(run, module.params, answer["path"])
    except (ToolError, OSError, shutil.Error) as error:
        if module.check_mode:
            module.exit_json(changed=True, reason=str(error), **answer)
        module.fail_json(msg=str(error), changed=False, **answer)
    module.exit_json(changed=True, **answer)


if __name__ == "__main__":
    main()
