#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_stack
short_description: Plan a node's GPU driver, and see that all of its parts agree
description:
  - Loaded kernel module, module on disk, libraries, fabric manager and NSCQ of a driver must have
    one version, or no CUDA program starts on the node. DCGM, CUDA libraries and NCCL must fit its
    CUDA release.
  - With O(state=plan) it tells which packages the declared driver is on this operating system and
    for this GPU, and fails with one line for each thing that stands in the way, before anything is
    changed.
  - With O(state=offered) it fails when the package sources lack a package or version of the plan.
  - With O(state=verified) it compares the versions, one record each.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details:
      - Findings of O(state=verified) do not fail the task in check mode, since earlier tasks have
        only pretended.
      - The package lists are not read anew in check mode, and O(state=offered) asks nothing.
  diff_mode:
    support: none
    details: Nothing is changed but the package lists.
  idempotent:
    support: full
options:
  state:
    description: What to do; see the description.
    type: str
    choices: [plan, offered, verified]
    required: true
  node:
    description: Name of the node in the records. The host name when not given.
    type: str
    default: ""
  driver:
    description: What is declared about the driver.
    type: dict
    default: {}
    suboptions:
      source:
        description: Where the packages come from. V(preinstalled) plans nothing.
        type: str
        choices: [preinstalled, distribution, nvidia_repository, directory]
        default: preinstalled
      branch:
        description: Branch of the driver, V(580) for instance.
        type: str
        default: ""
      version:
        description: Version of the driver, V(580.126.20) for instance.
        type: str
        default: ""
      kernel_modules:
        description: Flavour of the kernel modules. V(auto) is that of the GPU.
        type: str
        choices: [auto, open, proprietary]
        default: auto
      gpu:
        description: GPU model as profiles write it, V(h100) for instance.
        type: str
        default: ""
      nvswitches:
        description: NVSwitches of the node. With any it needs a fabric manager.
        type: int
        default: 0
      packages:
        description: Packages instead of those of the tables for the driver itself.
        type: list
        elements: str
        default: []
      extra:
        description: Other packages that come along; C(NAME) or C(NAME=VERSION).
        type: list
        elements: str
        default: []
  gpudirect:
    description: How adapters reach GPU memory, to be verified. Empty asks nothing.
    type: str
    choices: ["", dmabuf, peermem]
    default: ""
  reload_allowed:
    description: Whether the driver may be unloaded and loaded again.
    type: bool
    default: false
  reboot_allowed:
    description: Whether the node may be rebooted.
    type: bool
    default: false
  sources_file:
    description: The APT source whose list is read anew for O(state=offered); all of them when
      empty.
    type: str
    default: ""
  fail:
    description: Whether findings of O(state=verified) fail the task.
    type: bool
    default: true
  sysfs:
    description: The tree of the kernel to read.
    type: path
    default: /sys
  proc:
    description: The tree of processes to read.
    type: path
    default: /proc
  root:
    description: The root of files to read.
    type: path
    default: /
  libraries:
    description: Folders in which libraries of the driver lie.
    type: list
    elements: path
    default:
      - /usr/lib/x86_64-linux-gnu
      - /usr/lib/aarch64-linux-gnu
      - /usr/lib/x86_64-linux-gnu/nvidia/current
      - /usr/lib64
      - /usr/lib
      - /usr/local/lib
"""

EXAMPLES = r"""
- name: See what stands in the way of a driver
  baremetal.dgx.nvidia_stack:
    state: plan
    driver: {source: nvidia_repository, version: 580.126.20, gpu: h100, nvswitches: 4}

- name: See that all parts have one version
  baremetal.dgx.nvidia_stack:
    state: verified
    driver: {version: 580.126.20, gpu: h100, nvswitches: 4}
"""

RETURN = r"""
present:
  description: Packages of the plan, as M(baremetal.dgx.system_packages) takes them.
  returned: with O(state=plan) or O(state=offered)
  type: list
  elements: str
held:
  description: Packages that are to be held.
  returned: with O(state=plan) or O(state=offered)
  type: list
  elements: str
removals:
  description: Packages of another driver whose place the new ones take.
  returned: with O(state=plan) or O(state=offered)
  type: list
  elements: str
missing:
  description: Names of packages that are not there in the planned version.
  returned: with O(state=plan) or O(state=offered)
  type: list
  elements: str
stream:
  description: Module stream to enable with dnf; empty for none.
  returned: with O(state=plan) or O(state=offered)
  type: str
pin:
  description: Version pattern that all packages of the driver are pinned to.
  returned: with O(state=plan) or O(state=offered)
  type: str
fabric_manager:
  description: Whether the node's fabric manager has to run.
  returned: success
  type: bool
next_step:
  description: V(load), V(reload) or V(reboot) where the declared driver is on disk and not loaded;
    empty otherwise.
  returned: success
  type: str
steps:
  description: Steps of Slurm jobs that run on the node.
  returned: success
  type: list
  elements: str
loaded:
  description: Version of the loaded kernel module; empty for none.
  returned: success
  type: str
cuda:
  description: CUDA major of the driver that is loaded, or on disk; V(0) when it is not known.
  returned: success
  type: int
system:
  description: Operating system as the tables call it.
  returned: success
  type: str
records:
  description: One record for each part.
  returned: with O(state=verified)
  type: list
  elements: dict
verdict:
  description: The records folded into one; V(pass), V(fail) or V(not_measured).
  returned: with O(state=verified)
  type: str
findings:
  description: One line for each obstacle, or for each record that failed.
  returned: always
  type: list
  elements: str
not_measured:
  description: One line for each record that measured nothing.
  returned: with O(state=verified)
  type: list
  elements: str
"""

import socket
import time
from dataclasses import replace
from typing import Any, Mapping

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._nvidia_agree import agree, lines
from ansible_collections.baremetal.dgx.plugins.module_utils._nvidia_host import (
    Places,
    load,
    offered,
    refresh,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._nvidia_packages import (
    Wish,
    headers_package,
    select,
    wants_fabric_manager,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._nvidia_stack import (
    Consent,
    Seen,
    absent_packages,
    cuda_of,
    next_step,
    obstacles,
    pin,
    plan,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    FAIL,
    NOT_MEASURED,
    Tally,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    CommandRunner,
    ModuleRunner,
    ToolError,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["plan", "offered", "verified"], "required": True},
    "node": {"type": "str", "default": ""},
    "driver": {
        "type": "dict",
        "default": {},
        "apply_defaults": True,
        "options": {
            "source": {
                "type": "str",
                "choices": ["preinstalled", "distribution", "nvidia_repository", "directory"],
                "default": "preinstalled",
            },
            "branch": {"type": "str", "default": ""},
            "version": {"type": "str", "default": ""},
            "kernel_modules": {
                "type": "str",
                "choices": ["auto", "open", "proprietary"],
                "default": "auto",
            },
            "gpu": {"type": "str", "default": ""},
            "nvswitches": {"type": "int", "default": 0},
            "packages": {"type": "list", "elements": "str", "default": []},
            "extra": {"type": "list", "elements": "str", "default": []},
        },
    },
    "gpudirect": {"type": "str", "choices": ["", "dmabuf", "peermem"], "default": ""},
    "reload_allowed": {"type": "bool", "default": False},
    "reboot_allowed": {"type": "bool", "default": False},
    "sources_file": {"type": "str", "default": ""},
    "fail": {"type": "bool", "default": True},
    "sysfs": {"type": "path", "default": "/sys"},
    "proc": {"type": "path", "default": "/proc"},
    "root": {"type": "path", "default": "/"},
    "libraries": {
        "type": "list",
        "elements": "path",
        "default": [
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib/aarch64-linux-gnu",
            "/usr/lib/x86_64-linux-gnu/nvidia/current",
            "/usr/lib64",
            "/usr/lib",
            "/usr/local/lib",
        ],
    },
}


def planned(
    run: CommandRunner, seen: Seen, wish: Wish, params: Mapping[str, Any], ask: bool
) -> dict[str, Any]:
    """Return the packages and what stands in their way; with ask the sources are asked as well."""
    selection = select(seen.system, wish, seen.kernel)
    work = plan(seen, wish, selection, params["driver"]["extra"])
    consent = Consent(params["reload_allowed"], params["reboot_allowed"])
    findings = obstacles(seen, wish, selection, work, consent)
    if ask and not findings and work.missing:
        refresh(run, seen.system, params["sources_file"])
        wanted = [entry for entry in work.present if entry.split("=")[0] in work.missing]
        names = [entry.split("=")[0] for entry in wanted]
        headers = headers_package(seen.system, seen.kernel)
        findings = absent_packages(wanted, offered(run, seen.system, names), headers)
    return {
        "present": list(work.present),
        "held": list(work.held),
        "removals": list(work.removals),
        "missing": list(work.missing),
        "stream": selection.stream,
        "pin": pin(seen, wish, selection),
        "findings": findings,
    }


def verified(seen: Seen, wish: Wish, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the records of the node."""
    node = params["node"] or socket.gethostname().split(".")[0]
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    records = [replace(r, at=at) for r in agree(seen, wish, node, params["gpudirect"])]
    return {
        "records": [record.as_data() for record in records],
        "verdict": Tally.of(records).verdict,
        "findings": lines(records, FAIL),
        "not_measured": lines(records, NOT_MEASURED),
    }


def main() -> None:
    """Load, plan or judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    run = ModuleRunner(module)
    driver = params["driver"]
    wish = Wish(
        source=driver["source"],
        branch=driver["branch"],
        version=driver["version"],
        modules=driver["kernel_modules"],
        gpu=driver["gpu"],
        nvswitches=driver["nvswitches"],
        packages=tuple(driver["packages"]),
    )
    places = Places(params["sysfs"], params["proc"], params["root"], tuple(params["libraries"]))
    result: dict[str, Any] = {"changed": False, "findings": []}
    try:
        seen = load(run, places)
        if params["state"] == "verified":
            result.update(verified(seen, wish, params))
        elif driver["source"] != "preinstalled":
            ask = params["state"] == "offered" and not module.check_mode
            result.update(planned(run, seen, wish, params, ask))
    except ToolError as error:
        module.fail_json(msg=str(error), **{**result, **error.details})
    result.update(
        fabric_manager=wants_fabric_manager(driver["gpu"].lower(), driver["nvswitches"]),
        next_step=next_step(seen),
        steps=list(seen.steps),
        loaded=seen.loaded,
        cuda=cuda_of(seen.loaded or seen.on_disk or "") or 0,
        system=seen.system,
    )
    judged = params["state"] == "verified"
    if result["findings"] and (not judged or (params["fail"] and not module.check_mode)):
        module.fail_json(msg="\n".join(result["findings"]), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
