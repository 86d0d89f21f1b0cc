#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_verify
short_description: Compare the InfiniBand fabric with the plan, cable by cable
description:
  - Looks at the subnet once, from a host that is attached to it, and compares every cable with the
    plan. Missing, exchanged, moved and unexpected cables, absent and mute devices, slow links,
    growing error counters and missing subnet managers are found; each is told once, with both ends
    and what to do.
  - One discovery is made (C(ibnetdiscover)); states, where cables are missing, and counters are
    read with its cache (C(iblinkinfo), C(ibqueryerrors)). With O(interval_s) the counters are read
    twice, so that rates are judged and not totals.
  - Nothing is changed, in the fabric or on its devices. Counters are not cleared.
  - Return codes of these tools say little, and are not trusted. What they complain of, an answer
    that is cut short, and a tool that hangs, crashes or is not installed leave C(not_measured),
    never a pass, and never condemn a cable.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: In check mode the fabric is judged, findings do not fail the task, and nothing is
      written.
  diff_mode:
    support: none
    details: Nothing is ever changed.
  idempotent:
    support: full
options:
  plan:
    description: The cable plan, as C(cluster_plan) writes it to C(.dgx/plan/fabric/cables.json).
    type: dict
  plan_file:
    description: Path of such a file on the host that runs the module.
    type: path
  interval_s:
    description:
      - Seconds between the two readings of the error counters. V(0) reads them once, and then no
        counter is judged.
      - Twelve minutes (V(720)) suffice for the limit of a 400 Gb/s link.
      - With O(sweep_files) it is the time between the two saved readings.
    type: float
    default: 60
  subnet_managers:
    description: Nodes or switches that run a subnet manager. When not given, only the number of
      masters is judged.
    type: list
    elements: str
    default: []
  other_hosts:
    description: Hosts outside the plan that may be attached to the fabric, such as login nodes.
    type: list
    elements: str
    default: []
  adapters:
    description:
      - For each node that was asked, the GUIDs, PCI addresses or names of the adapters that it sees
        itself (M(baremetal.dgx.ib_info)).
      - Tells an adapter that is gone from a cable that is.
    type: dict
    default: {}
  oversubscription_max:
    description: Rate from below over the rate upward that a leaf may have at most. When not given
      the plan's own is right.
    type: float
  places:
    description: Where machines stand, by name, each with C(rack) and C(rack_unit); for the text.
    type: dict
    default: {}
  node_names:
    description: Names of switches by GUID, for switches without a system of their own.
    type: dict
    default: {}
  cluster_name:
    description: What the picture is called.
    type: str
    default: ""
  least_share:
    description: Share of the devices found that must be in the plan. Below it the sweep is of
      another cluster, which is an error.
    type: float
    default: 0.25
  sweep_files:
    description:
      - Judge saved answers instead of asking the fabric. Paths by name of the answer,
        C(ibnetdiscover) (needed), C(ibnetdiscover.stderr), C(iblinkinfo), C(ibqueryerrors),
        C(ibqueryerrors-2), C(sminfo), C(saquery) and C(sminfo-LID), as the module saves them in
        C(raw/).
    type: dict
  output:
    description:
      - Folder for C(records.json), C(findings.txt), C(fabric.svg) and the tools' own words in
        C(raw/). It is made where it does not exist. Nothing is written when not given.
    type: path
  learn:
    description:
      - Path of a list of cables (CSV) to make of this sweep, for C(cluster_fabric.cabling) with
        C(source=learned). The fabric is then not compared with the plan's cables, only with its
        devices.
    type: path
  timeout_s:
    description: Seconds that one command may take.
    type: float
    default: 120
  outstanding:
    description:
      - Packets of the discovery that are under way at once. V(0) leaves it to the tool.
      - More is faster, but on a real fabric switches drop packets when there are too many.
    type: int
    default: 0
  tool_options:
    description: Options for every command, for example C(-C) and the device to look from.
    type: list
    elements: str
    default: []
  tool_environment:
    description: Environment variables for the commands, and for nothing else.
    type: dict
    default: {}
  findings_ok:
    description: Whether findings leave the task green.
    type: bool
    default: false
  not_measured_ok:
    description: Whether the task stays green where something was not measured.
    type: bool
    default: false
seealso:
  - module: baremetal.dgx.cluster_plan
  - module: baremetal.dgx.ib_health
"""

EXAMPLES = r"""
- name: Prove every cable
  baremetal.dgx.fabric_verify:
    plan: "{{ lookup('ansible.builtin.file', cluster_state_dir ~ '/plan/fabric/cables.json')
      | from_json }}"
    subnet_managers: "{{ groups['subnet_managers'] }}"
    interval_s: 720
    output: /var/lib/baremetal-dgx/fabric

- name: Judge answers that were saved elsewhere
  baremetal.dgx.fabric_verify:
    plan_file: cables.json
    sweep_files:
      ibnetdiscover: raw/ibnetdiscover.txt
      iblinkinfo: raw/iblinkinfo.txt
    output: judged
  delegate_to: localhost
"""

RETURN = r"""
findings:
  description: One for each thing that somebody has to do.
  returned: when the fabric was judged
  type: list
  elements: dict
  contains:
    kind:
      description: What it is, such as V(swapped) or V(node_absent); docs/fabric.md lists all.
      type: str
    subject:
      description: What it is about, such as V(cable:dgx-01/rail3--leaf-04/1).
      type: str
    status:
      description: V(fail).
      type: str
    text:
      description: What was found, with both ends.
      type: str
    where:
      description: Rack and unit of the machines, where O(places) has them.
      type: str
    remedy:
      description: What to do.
      type: str
    cables:
      description: The planned cables that it explains.
      type: list
      elements: str
    measured:
      description: C(value) and C(unit), where something was measured.
      type: dict
    threshold:
      description: C(op), C(value), C(unit) and C(source) of what it was compared with.
      type: dict
    evidence:
      description: What the tools said.
      type: list
      elements: str
not_measured:
  description: What could not be judged, in the form of findings.
  returned: when the fabric was judged
  type: list
  elements: dict
complaints:
  description: What makes it doubtful whether everything was seen.
  returned: when the fabric was judged
  type: list
  elements: str
information:
  description: Subnet managers, uplinks that are left, counters that are no fault of a link.
  returned: when the fabric was judged
  type: list
  elements: str
summary:
  description: The verdict in one line, and numbers of cables by status.
  returned: when the fabric was judged
  type: dict
text:
  description: The whole of C(findings.txt).
  returned: when the fabric was judged
  type: str
records:
  description: The records that are not a pass; C(records.json) has all.
  returned: when the fabric was judged
  type: list
  elements: dict
verdict:
  description: V(pass), V(fail) or V(not_measured).
  returned: when the fabric was judged
  type: str
files:
  description: The files that were written.
  returned: always
  type: list
  elements: str
"""

import gc
import json
import os
import time
from dataclasses import replace
from typing import Any, Callable

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._cable_labels import Place
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_collect import (
    DISCOVERY,
    Answers,
    Ask,
    ask_fabric,
    read_files,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_judge import (
    EmptyPlanError,
    Expectation,
    FirstLook,
    OtherClusterError,
    Verdict,
    first_look,
    judge_fabric,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_model import (
    CablePlan,
    Sweep,
    plan_from_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_report import (
    fabric_records,
    learned_csv,
    report_files,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_text import (
    finding_data,
    findings_text,
    summary,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Tally,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import ModuleRunner, ToolError

ARGUMENT_SPEC: dict[str, Any] = {
    "plan": {"type": "dict"},
    "plan_file": {"type": "path"},
    "interval_s": {"type": "float", "default": 60},
    "subnet_managers": {"type": "list", "elements": "str", "default": []},
    "other_hosts": {"type": "list", "elements": "str", "default": []},
    "adapters": {"type": "dict", "default": {}},
    "oversubscription_max": {"type": "float"},
    "places": {"type": "dict", "default": {}},
    "node_names": {"type": "dict", "default": {}},
    "cluster_name": {"type": "str", "default": ""},
    "least_share": {"type": "float", "default": 0.25},
    "sweep_files": {"type": "dict"},
    "output": {"type": "path"},
    "learn": {"type": "path"},
    "timeout_s": {"type": "float", "default": 120},
    "outstanding": {"type": "int", "default": 0},
    "tool_options": {"type": "list", "elements": "str", "default": []},
    "tool_environment": {"type": "dict", "default": {}},
    "findings_ok": {"type": "bool", "default": False},
    "not_measured_ok": {"type": "bool", "default": False},
}


def read_text(path: str, what: str) -> str:
    """The text of a file; raises ToolError that names the option."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as handle:
            return handle.read()
    except OSError as error:
        raise ToolError(f"{what}: {path} cannot be read: {error.strerror}") from error


def load_plan(params: dict[str, Any]) -> CablePlan:
    """The cable plan; raises ToolError where it is none."""
    where, data = "plan", params["plan"]
    if params["plan_file"]:
        where = f"plan_file: {params['plan_file']}"
        try:
            data = json.loads(read_text(params["plan_file"], "plan_file"))
        except ValueError as error:
            raise ToolError(f"{where} is no JSON: {error}; give cables.json of the plan") from error
    try:
        return plan_from_data(data)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ToolError(
            f"{where} is no cable plan ({type(error).__name__}: {error}); give cables.json, which "
            "check_inventory writes"
        ) from error


def load_places(data: dict[str, Any]) -> dict[str, Place]:
    """Racks by machine; raises ToolError for anything else."""
    places = {}
    for name, place in data.items():
        if not isinstance(place, dict) or not set(place) <= {"rack", "rack_unit"}:
            raise ToolError(f"places.{name}: is {place!r}; write rack and rack_unit")
        places[name] = Place(place.get("rack"), place.get("rack_unit"))
    return places


def expectation(params: dict[str, Any]) -> Expectation:
    """What is wanted beside the cables."""
    names = {
        str(guid).lower().replace("0x", "").zfill(16): str(name)
        for guid, name in params["node_names"].items()
    }
    return Expectation(
        subnet_managers=tuple(params["subnet_managers"]),
        other_hosts=tuple(params["other_hosts"]),
        oversubscription_max=params["oversubscription_max"],
        node_names=names,
        least_share=params["least_share"],
    )


def observe(module: AnsibleModule, states_matter: Callable[[Sweep], bool]) -> Answers:
    """The fabric, or what was saved of it; raises ToolError where nothing can be read."""
    params = module.params
    files = params["sweep_files"]
    if files is None:
        ask = Ask(
            timeout_s=params["timeout_s"],
            interval_s=params["interval_s"],
            outstanding=params["outstanding"],
            environment={str(k): str(v) for k, v in params["tool_environment"].items()},
            options=tuple(params["tool_options"]),
        )
        return ask_fabric(ModuleRunner(module), ask, states_matter=states_matter)
    if DISCOVERY not in files:
        raise ToolError(f"sweep_files: {DISCOVERY} is missing; give what ibnetdiscover printed")
    texts = {name: read_text(str(path), f"sweep_files.{name}") for name, path in files.items()}
    answers = read_files(texts, params["interval_s"])
    if not answers.observation.sweep.devices:
        raise ToolError(f"sweep_files.{DISCOVERY}: {files[DISCOVERY]} holds no device of a fabric")
    # A saved answer that is not whole is a bad copy, and says nothing of the fabric.
    if answers.cut and not params["not_measured_ok"]:
        raise ToolError(
            f"sweep_files.{DISCOVERY}: {files[DISCOVERY]}: {answers.cut[0]}; save it again, or "
            "judge what there is with not_measured_ok"
        )
    return answers


def write_files(folder: str, files: dict[str, str]) -> list[str]:
    """Write all files into a folder, each atomically; raises ToolError."""
    written = []
    try:
        for name, text in files.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            fresh = f"{path}.new-{os.getpid()}"
            with open(fresh, "w", encoding="utf-8", errors="replace") as handle:
                handle.write(text)
            os.replace(fresh, path)
            written.append(path)
    except OSError as error:
        raise ToolError(f"{folder} cannot be written: {error}") from error
    return written


def report(
    module: AnsibleModule, plan: CablePlan, answers: Answers, verdict: Verdict, at: str
) -> None:
    """Write the files and end the module; `at` is when it began to look, empty of saved answers."""
    params = module.params
    places = load_places(params["places"])
    records = fabric_records(plan, verdict, answers, params["interval_s"])
    records = [replace(record, at=at) for record in records] if at else records
    files: list[str] = []
    if params["output"] and not module.check_mode:
        texts = report_files(verdict, records, answers.raw, places, params["cluster_name"])
        files = write_files(params["output"], texts)
    # The interval of one reading is what was asked for, and no shortcoming.
    tally = Tally.of(record for record in records if record.check != "fabric.interval")
    result: dict[str, Any] = {
        "changed": False,
        "verdict": tally.verdict,
        "findings": [finding_data(finding, places) for finding in verdict.findings],
        "not_measured": [finding_data(finding, places) for finding in verdict.doubts],
        "complaints": [*verdict.complaints, *(f"{tool}: {why}" for tool, why in answers.lost)],
        "information": verdict.information,
        "summary": {"text": summary(verdict), "cables": verdict.counts()},
        "text": findings_text(verdict, places),
        "records": [record.as_data() for record in records if record.status != PASS],
        "files": files,
    }
    red = []
    if verdict.findings and not params["findings_ok"]:
        red.append(result["text"])
    elif tally.counts[NOT_MEASURED] and not params["not_measured_ok"] and not tally.counts[FAIL]:
        red.append(result["text"])
    if red and not module.check_mode:
        module.fail_json(msg=red[0], **result)
    module.exit_json(msg=result["summary"]["text"], **result)


def main() -> None:
    """Observe, judge, report."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        mutually_exclusive=[("plan", "plan_file")],
        required_one_of=[("plan", "plan_file")],
    )
    # A large fabric is many small objects that all stay: to look for garbage among them, again and
    # again, would be most of the work.
    gc.disable()
    try:
        plan = load_plan(module.params)
        load_places(module.params["places"])
        learn = module.params["learn"]
        if not plan.cables and not learn:
            raise EmptyPlanError("the plan has no cables: nothing can be compared with it")
        wanted = expectation(module.params)
        looks: list[FirstLook] = []

        def states_matter(sweep: Sweep) -> bool:
            looks.append(first_look(plan, sweep, wanted.node_names))
            return not looks[-1].wiring.whole

        # Of saved answers nobody knows here how old they are.
        saved = module.params["sweep_files"] is not None
        at = "" if saved else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        answers = observe(module, states_matter)
        if learn:
            text, notes = learned_csv(plan, answers, load_places(module.params["places"]))
            files = []
            if not module.check_mode:
                files = write_files(os.path.dirname(learn) or ".", {os.path.basename(learn): text})
            module.exit_json(changed=bool(files), files=files, information=notes, msg=notes[0])
        look = looks[-1] if looks else None
        verdict = judge_fabric(plan, answers.observation, wanted, look)
        report(module, plan, answers, verdict, at)
    except (ToolError, EmptyPlanError, OtherClusterError) as error:
        module.fail_json(msg=str(error), files=[])


if __name__ == "__main__":
    main()
