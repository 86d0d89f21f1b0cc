#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: repair_publish
short_description: Tell others of incidents, by tickets, files and metrics
description:
  - Sends a ticket when an incident opens, waits for a person, is about a part that is to be
    returned, and ends. Each is sent until it is taken, with a key and a text that stay the same, so
    that a receiver that knows the key has it once.
  - Writes C(incidents.json) and C(fleet.json), with the fields that NVIDIA asks of operators, and
    for each part to be returned C(rma.txt) beside the evidence.
  - Secrets are taken out of all texts, and passed in no argument and no environment variable.
  - Runs on the control machine.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Shows the tickets that wait, sends none, and writes nothing.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  state_folder:
    description: The folder C(.dgx) beside the inventory.
    type: path
    required: true
  plan:
    description: The folder of the plan.
    type: path
    required: true
  cluster:
    description: The name of the cluster.
    type: str
    default: ""
  nodes:
    description: What C(scontrol show node -o) prints, with the environment C(TZ=UTC) and
      C(SLURM_TIME_FORMAT=standard).
    type: str
    required: true
  verdicts:
    description: Verdicts as the lookup P(baremetal.dgx.node_verdicts#lookup) gives them.
    type: list
    elements: dict
    default: []
  keep_days:
    description: Days after its end for which an incident is listed.
    type: int
    default: 365
  secret_values:
    description: Texts that must not appear.
    type: list
    elements: str
    default: []
  hooks:
    description: Whom tickets go to. A new hook gets none of incidents that ended before.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Its name.
        type: str
        required: true
      kind:
        description: A V(webhook) gets JSON by POST, with C(Idempotency-Key) and
          C(X-Baremetal-Dgx-Signature), the HMAC (SHA-256) of the body; a redirection is not
          followed. A V(mail) has the key as its C(Message-ID). A V(command) has the path of
          the JSON in C(TICKET_FILE), the key in C(TICKET_KEY), and takes a ticket by ending with 0.
        type: str
        required: true
        choices: [webhook, mail, command]
      timeout_s:
        description: Seconds that a ticket may take. After the first that is not taken, the hook
          gets no other in this run.
        type: int
        required: true
      url:
        description: Of a webhook, where to.
        type: str
        default: ""
      secret_file:
        description: File with the key of the signature, or the password of the mail account. Its
          owner alone may read it.
        type: path
        default: ""
      ca_file:
        description: Authorities that the receiver's certificate is checked with; without it
          those of the system.
        type: path
        default: ""
      server:
        description: The mail server.
        type: str
        default: ""
      port:
        description: Its port; V(0) is 25, and 465 with O(hooks[].tls=tls).
        type: int
        default: 0
      tls:
        description: How the connection to the mail server is encrypted.
        type: str
        choices: [starttls, tls, none]
        default: starttls
      user:
        description: Account on the mail server.
        type: str
        default: ""
      sender:
        description: Address that mails come from.
        type: str
        default: ""
      recipients:
        description: Addresses that mails go to.
        type: list
        elements: str
        default: []
      command:
        description: Program and arguments.
        type: list
        elements: str
        default: []
seealso:
  - module: baremetal.dgx.repair_step
"""

EXAMPLES = r"""
- name: Publish the incidents
  baremetal.dgx.repair_publish:
    state_folder: /srv/cluster/.dgx
    plan: /srv/cluster/.dgx/plan
    cluster: alpha
    nodes: "{{ shown.stdout }}"
    hooks:
      - name: tracker
        kind: webhook
        timeout_s: 10
        url: https://tickets.example.com/dgx
        secret_file: /etc/dgx/tracker.key
  delegate_to: localhost
"""

RETURN = r"""
tickets:
  description: By hook, the keys that were C(sent) now and are C(waiting), and C(why) if it, or one
    recipient of a mail, did not take one.
  returned: success
  type: dict
files:
  description: The files that are written.
  returned: success
  type: list
  elements: str
metrics:
  description: The incidents in the text format of Prometheus.
  returned: success
  type: str
problems:
  description: A line for each hook that did not take a ticket.
  returned: success
  type: list
  elements: str
unread:
  description: Lines of the book that could not be read.
  returned: success
  type: int
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.publish import bring_about

HOOK_SPEC: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "kind": {"type": "str", "required": True, "choices": ["webhook", "mail", "command"]},
    "timeout_s": {"type": "int", "required": True},
    "url": {"type": "str", "default": ""},
    "secret_file": {"type": "path", "default": "", "no_log": False},
    "ca_file": {"type": "path", "default": ""},
    "server": {"type": "str", "default": ""},
    "port": {"type": "int", "default": 0},
    "tls": {"type": "str", "choices": ["starttls", "tls", "none"], "default": "starttls"},
    "user": {"type": "str", "default": ""},
    "sender": {"type": "str", "default": ""},
    "recipients": {"type": "list", "elements": "str", "default": []},
    "command": {"type": "list", "elements": "str", "default": []},
}
ARGUMENT_SPEC: dict[str, Any] = {
    "state_folder": {"type": "path", "required": True},
    "plan": {"type": "path", "required": True},
    "cluster": {"type": "str", "default": ""},
    "nodes": {"type": "str", "required": True},
    "verdicts": {"type": "list", "elements": "dict", "default": []},
    "keep_days": {"type": "int", "default": 365},
    "secret_values": {"type": "list", "elements": "str", "default": [], "no_log": True},
    "hooks": {"type": "list", "elements": "dict", "default": [], "options": HOOK_SPEC},
}


def main() -> None:
    """Tell, write, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    with reported(module, None, ValueError):
        result = bring_about(module.params, module.check_mode)
    sent = any(one["sent"] for one in result["tickets"].values())
    module.exit_json(changed=sent, **result)


if __name__ == "__main__":
    main()
