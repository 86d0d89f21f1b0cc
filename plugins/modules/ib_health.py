#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ib_health
short_description: Judge the fabric adapters of a node
description:
  - Compares each rail of a node with what its profile says, and gives one record for each question.
    What can be asked are presence at its PCI address, name, link layer, state, physical state,
    rate, width, subnet manager, firmware, PSID, PKeys, PCIe speed and width up to the root, largest
    read request, ACS, link-downed and symbol-error growth, bit errors and transceiver.
  - Counters are judged by their growth since an earlier reading, which is kept in O(state_file).
    A counter that is full, was cleared, or was never read before has measured nothing.
  - Transceivers are judged inside the alarm range that each module states for itself. The bit error
    ratio before correction is told in the evidence and never fails a port.
  - C(mlxlink) or C(mstlink) is asked where one is installed. A tool that is missing, hangs or
    answers with half a text gives C(not_measured).
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: The reading of this run is not kept.
  diff_mode:
    support: none
    details: Nothing on the node is changed.
  idempotent:
    support: full
options:
  node:
    description: Name of the node in the records; its host name when not given.
    type: str
    default: ""
  rails:
    description: What each rail must be.
    type: list
    elements: dict
    required: true
    suboptions:
      rail:
        description: Number of the rail.
        type: int
        required: true
      pci:
        description: PCI address of its adapter. Without it, the name alone says which one it is.
        type: str
      rate_gbps:
        description: Rate of its port.
        type: float
        required: true
      width:
        description: Width of its port.
        type: str
        default: 4x
      link_layer:
        description: What the port runs.
        type: str
        choices: [InfiniBand, Ethernet]
        default: InfiniBand
      pcie_generation:
        description: Generation that the PCIe links of its adapter must run at, up to the root.
        type: int
      pcie_width:
        description: Lanes that they must have.
        type: int
      devices:
        description: Names the device may have where it is not found by PCI address.
        type: list
        elements: str
        default: []
  firmware:
    description: Firmware that all rails must have. Empty asks only that they have the same.
    type: str
    default: ""
  psid:
    description: Board id that all rails must have. Empty asks only that they have the same.
    type: str
    default: ""
  names:
    description: Whether the RDMA devices must have the names that the role infiniband gives them.
    type: bool
    default: true
  max_read_request:
    description: Largest PCIe read request in bytes that each adapter must have; V(0) does not ask.
    type: int
    default: 0
  acs_off:
    description: Whether no bridge above an adapter may redirect traffic between peers.
    type: bool
    default: false
  optics:
    description: Whether transceivers and bit errors are asked for.
    type: bool
    default: true
  window_s:
    description:
      - Seconds from which on a window is long enough to prove that there are no symbol errors.
        Too many errors fail in any window.
      - A run within this time of the last kept reading does not replace it.
    type: float
    default: 720
  state_file:
    description: Where the last reading is kept.
    type: path
    default: /var/lib/baremetal-dgx/ib_health.json
  timeout_s:
    description: Seconds mlxlink may take for one adapter.
    type: float
    default: 20
  fail:
    description: Whether the task fails when a record does. With V(false) the caller decides.
    type: bool
    default: true
  sysfs:
    description: The tree to read.
    type: path
    default: /sys
seealso:
  - module: baremetal.dgx.ib_info
"""

EXAMPLES = r"""
- name: Judge the rails of a DGX H100
  baremetal.dgx.ib_health:
    rails:
      - {rail: 0, pci: "18:00.0", rate_gbps: 400}
      - {rail: 1, pci: "40:00.0", rate_gbps: 400}
    max_read_request: 4096
"""

RETURN = r"""
records:
  description: One record for each question.
  returned: always
  type: list
  elements: dict
  contains:
    check:
      description: The question, such as C(ib.rate).
      type: str
    subject:
      description: The rail as C(hca:NODE/railN), or the node.
      type: str
    status:
      description: V(pass), V(fail) or V(not_measured).
      type: str
    measured:
      description: C(value) and C(unit) of what was found.
      type: dict
    threshold:
      description: C(op), C(value), C(unit) and C(source) of what it was compared with.
      type: dict
    text:
      description: What was looked at.
      type: str
    evidence:
      description: What the tools said.
      type: list
      elements: str
    remedy:
      description: What to do; empty for a pass.
      type: str
verdict:
  description: The records folded into one; V(pass), V(fail) or V(not_measured).
  returned: always
  type: str
findings:
  description: One line for each record that failed.
  returned: always
  type: list
  elements: str
not_measured:
  description: One line for each record that measured nothing.
  returned: always
  type: list
  elements: str
"""

import socket
import time
from dataclasses import replace
from typing import Any, Iterable

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._ib_counters import baseline
from ansible_collections.baremetal.dgx.plugins.module_utils._ib_health import (
    Marks,
    find_rail,
    judge_node,
    wanted_from_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib_host import (
    ask_links,
    load_sample,
    sample_now,
    store_sample,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib_sysfs import load_hcas
from ansible_collections.baremetal.dgx.plugins.module_utils._pci_path import Tree
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    FAIL,
    NOT_MEASURED,
    Record,
    Tally,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import ModuleRunner

ARGUMENT_SPEC: dict[str, Any] = {
    "node": {"type": "str", "default": ""},
    "rails": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "rail": {"type": "int", "required": True},
            "pci": {"type": "str"},
            "rate_gbps": {"type": "float", "required": True},
            "width": {"type": "str", "default": "4x"},
            "link_layer": {
                "type": "str",
                "choices": ["InfiniBand", "Ethernet"],
                "default": "InfiniBand",
            },
            "pcie_generation": {"type": "int"},
            "pcie_width": {"type": "int"},
            "devices": {"type": "list", "elements": "str", "default": []},
        },
    },
    "firmware": {"type": "str", "default": ""},
    "psid": {"type": "str", "default": ""},
    "names": {"type": "bool", "default": True},
    "max_read_request": {"type": "int", "default": 0},
    "acs_off": {"type": "bool", "default": False},
    "optics": {"type": "bool", "default": True},
    "window_s": {"type": "float", "default": 720},
    "state_file": {"type": "path", "default": "/var/lib/baremetal-dgx/ib_health.json"},
    "timeout_s": {"type": "float", "default": 20},
    "fail": {"type": "bool", "default": True},
    "sysfs": {"type": "path", "default": "/sys"},
}
_BOOT = "/proc/sys/kernel/random/boot_id"


def lines(records: Iterable[Record], status: str) -> list[str]:
    """Return one line for each record of a status."""
    said = []
    for record in records:
        if record.status == status:
            mark, found = record.threshold, record.measured
            got = f" is {found['value']} {found['unit']}" if found else ""
            want = f" (must be {mark.op} {mark.value})" if mark and found else ""
            text = f": {record.text}" if record.text else ""
            remedy = f"; do: {record.remedy}" if record.remedy and status == FAIL else ""
            said.append(f"{record.subject} {record.check}{got}{want}{text}{remedy}")
    return said


def main() -> None:
    """Load, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    try:
        wanted = wanted_from_data(params["rails"])
    except ValueError as error:
        module.fail_json(msg=str(error))
    hcas = load_hcas(Tree(params["sysfs"]))
    node = params["node"] or socket.gethostname().split(".")[0]
    found = [(rail, find_rail(rail, [hca for hca in hcas if not hca.ignored])) for rail in wanted]
    rails = [hca for _rail, hca in found if hca is not None]
    keys = {hca.device: f"hca:{node}/rail{rail.rail}" for rail, hca in found if hca}
    before, now = load_sample(params["state_file"]), sample_now(rails, keys, _BOOT)
    marks = Marks(
        firmware=params["firmware"],
        psid=params["psid"],
        names=params["names"],
        max_read_request=params["max_read_request"],
        acs_off=params["acs_off"],
        optics=params["optics"],
        window_s=params["window_s"],
    )
    started = time.monotonic()
    asked = ask_links(ModuleRunner(module), rails, params["timeout_s"]) if params["optics"] else {}
    records = judge_node(node, hcas, wanted, marks, asked, before, now)
    at, took = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), time.monotonic() - started
    # By its GUID an adapter is followed when it is moved.
    guids = {keys[hca.device]: (f"GUID {hca.node_guid}",) for hca in rails if hca.node_guid}
    records = [
        replace(
            record,
            at=at,
            took_s=round(took, 3),
            evidence=(*record.evidence, *guids.get(record.subject, ())),
        )
        for record in records
    ]
    result: dict[str, Any] = {
        "changed": False,
        "records": [record.as_data() for record in records],
        "verdict": Tally.of(records).verdict,
        "findings": lines(records, FAIL),
        "not_measured": lines(records, NOT_MEASURED),
    }
    if not module.check_mode:
        try:
            store_sample(params["state_file"], baseline(before, now, params["window_s"]))
        except OSError as error:
            module.warn(f"the reading cannot be kept: {error}; the next run has no window")
    if result["findings"] and params["fail"] and not module.check_mode:
        module.fail_json(msg="\n".join(result["findings"]), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
