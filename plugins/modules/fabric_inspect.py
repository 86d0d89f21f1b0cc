#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_inspect
short_description: Judge an InfiniBand fabric that has no plan
description:
  - Looks at the subnet once, as M(baremetal.dgx.fabric_verify) does, from a host that is attached
    to it. What most of the fabric has in common is taken for its plan, and what breaks this pattern
    is reported with what it rests on.
  - What may as well be meant to be so is a guess, C(not_measured), and never a failure. A fabric
    without a pattern has no finding of cables.
  - Nothing is changed, in the fabric or on its devices. Counters are not cleared.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.fabric
  - baremetal.dgx.fabric.sweep
  - baremetal.dgx.check
  - baremetal.dgx.check.timeout
seealso:
  - module: baremetal.dgx.fabric_verify
"""

EXAMPLES = r"""
- name: Judge a fabric of others
  baremetal.dgx.fabric_inspect:
    output: /tmp/fabric
    fail_on: []

- name: Judge what ibnetdiscover printed elsewhere
  baremetal.dgx.fabric_inspect:
    sweep_files:
      ibnetdiscover: raw/ibnetdiscover.txt
    fail_on: [fail]
  delegate_to: localhost
"""

RETURN = r"""
records:
  description:
    - One record for each question; C(verdict) folds them into one, C(counts) has how many there are
      of each status, C(findings) and C(not_measured) a line for each that did not pass.
      C(docs/records.md) describes them all.
  returned: always
  type: list
  elements: dict
causes:
  description: One for each thing that has to be done, in the form of
    RV(baremetal.dgx.fabric_verify#module:causes). The last line of C(evidence) is what it rests on,
    with its confidence.
  returned: when the fabric was judged
  type: list
  elements: dict
doubts:
  description: Guesses, and what could not be judged, in the form of RV(causes).
  returned: when the fabric was judged
  type: list
  elements: dict
complaints:
  description: What makes it doubtful whether everything was seen, and what could not be read, as
    error counters and subnet managers, or not be judged, as all counters with O(interval_s=0)
    unless O(sweep_files) is given. A guess is not among them.
  returned: when the fabric was judged
  type: list
  elements: str
information:
  description: Subnet managers, and counters that are not a fault of a link.
  returned: when the fabric was judged
  type: list
  elements: str
bandwidth:
  description: What the fabric can carry in Gb/s, as planned and as found. C(of) is C(bisection),
    half of what all leaves together can pass on, or a rail. Empty where the sweep is doubtful.
  returned: when the fabric was judged
  type: list
  elements: dict
summary:
  description: The verdict in one line, and numbers of cables by status.
  returned: when the fabric was judged
  type: dict
text:
  description: The whole of C(findings.txt).
  returned: when the fabric was judged
  type: str
files:
  description: The files that were written.
  returned: always
  type: list
  elements: str
"""

import gc
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import look_in_time
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.ask import REPORT, SWEEP
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.report import COUNTED
from ansible_collections.baremetal.dgx.plugins.module_utils._inspection.report import (
    inspect_fabric,
)

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options(timeout_s=120),
    **REPORT,
    **SWEEP,
}


def main() -> None:
    """Observe, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    saved = [str(path) for path in (module.params["sweep_files"] or {}).values()]
    look_in_time(module, [module.params["output"], *saved])
    # A large fabric is many small objects that all stay: to look for garbage among them, again and
    # again, would be most of the work.
    gc.disable()
    with reported(module, {"files": []}):
        records, result = inspect_fabric(ModuleRunner(module), module.params, module.check_mode)
    # The interval of one reading is what was asked for, and no shortcoming.
    judged = [record for record in records if record.check != "fabric.interval"]
    finish(module, judged, msg=result["text"], at="", counted=COUNTED, all_records=False, **result)


if __name__ == "__main__":
    main()
