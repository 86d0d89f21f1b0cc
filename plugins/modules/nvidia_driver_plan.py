#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_plan
short_description: Plan a node's GPU driver, and see that all of its parts agree
description:
  - Loaded kernel module, module on disk, libraries, fabric manager and NSCQ of a driver must have
    one version, or no CUDA program starts on the node. DCGM, CUDA libraries and NCCL must fit its
    CUDA release.
  - With O(state=plan) it tells which packages the declared driver is on this operating system and
    for this GPU, and fails with one line for each obstacle, before anything is
    changed.
  - With O(state=offered) it fails when the package sources lack a package or version of the plan.
  - Packages of another version or flavour than the loaded driver's are not planned without consent.
    With a branch alone, of which no package is there, they may be of another version.
  - With O(state=verified) it compares the versions, one record each.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
  - baremetal.dgx.check.node
attributes:
  check_mode:
    details:
      - Findings of O(state=verified) do not fail the task in check mode, since earlier tasks have
        only pretended.
      - The package lists are not read again in check mode, and O(state=offered) asks nothing.
  diff_mode:
    details: Nothing is changed but the package lists.
options:
  fail_on:
    description: It counts for O(state=verified) only; what is planned fails with any finding.
  state:
    description: What to do; see the description.
    type: str
    choices: [plan, offered, verified]
    required: true
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
        description: Other packages that come along; C(NAME) or C(NAME=VERSION), which is held.
        type: list
        elements: str
        default: []
      module_options:
        description: Parameters of the module by name. Those that are numbers are compared with what
          the loaded module shows; one that it does not show is not measured.
        type: dict
        default: {}
  gpudirect:
    description: How adapters reach GPU memory, to be verified. Empty asks nothing.
    type: str
    choices: ["", auto, dmabuf, peermem]
    default: ""
  dcgm:
    description: Whether DCGM is verified, too. The role that installs the driver runs before that
      which replaces DCGM.
    type: bool
    default: true
  reload_allowed:
    description: Whether the driver may be unloaded and loaded again.
    type: bool
    default: false
  reboot_allowed:
    description: Whether the node may be rebooted.
    type: bool
    default: false
  sources_file:
    description: The APT source whose list is read again for O(state=offered); all of them when
      empty.
    type: str
    default: ""
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
- name: Find what blocks a driver
  baremetal.dgx.nvidia_driver_plan:
    state: plan
    driver: {source: nvidia_repository, version: 580.126.20, gpu: h100, nvswitches: 4}

- name: See that all parts have one version
  baremetal.dgx.nvidia_driver_plan:
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
in_service:
  description: Why a job may start on the node although a reload or a reboot is next, or that Slurm
    does not answer although slurmd runs; empty otherwise.
  returned: success
  type: str
loaded:
  description: Version of the loaded kernel module; empty for none.
  returned: success
  type: str
gpudirect:
  description: V(dmabuf) or V(peermem), for V(auto) by what the loaded driver and kernel can; empty
    when it is not asked, or no driver is loaded.
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

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    end,
    node_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._driver.read import LIBRARIES
from ansible_collections.baremetal.dgx.plugins.module_utils._driver.states import answer

ARGUMENT_SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["plan", "offered", "verified"], "required": True},
    **check_options("node"),
    "driver": {
        "type": "dict",
        "default": {},
        "apply_defaults": True,
        "options": {
            "source": {
                "choices": ["preinstalled", "distribution", "nvidia_repository", "directory"],
                "default": "preinstalled",
            },
            "branch": {"type": "str", "default": ""},
            "version": {"type": "str", "default": ""},
            "kernel_modules": {"choices": ["auto", "open", "proprietary"], "default": "auto"},
            "gpu": {"type": "str", "default": ""},
            "nvswitches": {"type": "int", "default": 0},
            "packages": {"type": "list", "elements": "str", "default": []},
            "extra": {"type": "list", "elements": "str", "default": []},
            "module_options": {"type": "dict", "default": {}},
        },
    },
    "gpudirect": {"type": "str", "choices": ["", "auto", "dmabuf", "peermem"], "default": ""},
    "dcgm": {"type": "bool", "default": True},
    **{key: {"type": "bool", "default": False} for key in ("reload_allowed", "reboot_allowed")},
    "sources_file": {"type": "str", "default": ""},
    "sysfs": {"type": "path", "default": "/sys"},
    "proc": {"type": "path", "default": "/proc"},
    "root": {"type": "path", "default": "/"},
    "libraries": {"type": "list", "elements": "path", "default": list(LIBRARIES)},
}


def main() -> None:
    """Plan or judge, and report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    with reported(module, {"changed": False, "findings": []}):
        result = answer(ModuleRunner(module), node_of(module), module.params, module.check_mode)
    if module.params["state"] == "verified":
        end(module, result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
