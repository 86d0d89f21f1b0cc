#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cephfs_authorize
short_description: Let clients into CephFS, with what they may do and no more
description:
  - A client that the cluster does not know is made with C(ceph fs authorize). One whose
    capabilities differ gets them with C(ceph auth caps), since C(fs authorize) refuses to change
    paths of a client that is there. Its key stays.
  - Clients that are not declared are never touched.
  - No key is ever part of a command line. The keys that the cluster has given are returned, so use
    C(no_log) on the task.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: The key of a client that would be made is not there yet.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  clients:
    description: The clients.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name without C(client.).
        type: str
        required: true
      grants:
        description: What it may do.
        type: list
        elements: dict
        required: true
        suboptions:
          fs:
            description: The file system.
            type: str
            required: true
          path:
            description: Folder in it that the grant is for.
            type: str
            default: /
          perms:
            description: V(r) or V(rw), then C(p) for quotas and layouts, then C(s) for snapshots.
            type: str
            default: rw
          root_squash:
            description: Whether root may change nothing.
            type: bool
            default: false
  admin:
    description: Name of the client that may do this.
    type: str
    default: admin
  timeout_s:
    description: Seconds one question to the cluster may take.
    type: float
    default: 30
"""

EXAMPLES = r"""
- name: Let the nodes in
  baremetal.dgx.cephfs_authorize:
    clients:
      - name: node
        grants:
          - {fs: cephfs, path: /home, perms: rw}
          - {fs: cephfs, path: /images, perms: r}
  no_log: true
"""

RETURN = r"""
client_keys:
  description: The key of each client.
  returned: always
  type: dict
steps:
  description: What was done, one line each, without keys.
  returned: always
  type: list
  elements: str
"""

import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._cephfs import (
    perms_problem,
    same_caps,
    wanted_caps,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    CommandResult,
    ModuleRunner,
    ToolError,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "clients": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "grants": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "fs": {"type": "str", "required": True},
                    "path": {"type": "str", "default": "/"},
                    "perms": {"type": "str", "default": "rw"},
                    "root_squash": {"type": "bool", "default": False},
                },
            },
        },
    },
    "admin": {"type": "str", "default": "admin"},
    "timeout_s": {"type": "float", "default": 30},
}
# ceph's exit status for "there is no such client"
_ENOENT = 2


class Cluster:
    """Asks the cluster as its administrator; every question has a time limit."""

    def __init__(self, module: AnsibleModule) -> None:
        self._run = ModuleRunner(module)
        self._name = f"client.{module.params['admin']}"
        self._limit_s = module.params["timeout_s"]

    def ask(self, *words: str) -> CommandResult:
        """Run ceph; ToolError when it hangs or is missing."""
        limit = str(max(1, int(self._limit_s) - 2))
        argv = ["ceph", "--name", self._name, "--connect-timeout", limit, *words]
        done = self._run(argv, timeout_s=self._limit_s)
        if done.outcome != "ended":
            raise ToolError(f"the cluster was not asked: {done.describe(2)}")
        return done

    def client(self, name: str) -> tuple[str, dict[str, str]] | None:
        """Return key and capabilities of a client, None when the cluster does not know it."""
        done = self.ask("auth", "get", f"client.{name}", "--format", "json")
        if done.rc == _ENOENT:
            return None
        try:
            data = json.loads(done.out)[0]
            return str(data["key"]), {str(k): str(v) for k, v in data["caps"].items()}
        except (ValueError, LookupError, TypeError) as error:
            # Not with its output, in which a key may stand.
            raise ToolError(f"`ceph auth get client.{name}` ended with {done.rc}: "
                            f"{done.err.strip()[-300:]}") from error  # fmt: skip


def main() -> None:
    """Look, make or change, look again."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    wrong = [
        f"{client['name']}: {problem}"
        for client in module.params["clients"]
        for grant in client["grants"]
        for problem in [perms_problem(grant["perms"])]
        if problem
    ]
    if wrong:
        module.fail_json(msg="\n".join(wrong))
    cluster = Cluster(module)
    keys: dict[str, str] = {}
    steps: list[str] = []
    before: list[str] = []
    after: list[str] = []
    try:
        for client in module.params["clients"]:
            name, wanted = client["name"], wanted_caps(client["grants"])
            found = cluster.client(name)
            if found is not None and same_caps(found[1], wanted):
                keys[name] = found[0]
                continue
            steps.append(f"{'make' if found is None else 'change'} client.{name}")
            before += [f"client.{name}: {found[1] if found else 'unknown'}"]
            after += [f"client.{name}: {wanted}"]
            if module.check_mode:
                keys[name] = found[0] if found else ""
                continue
            keys[name] = settle(cluster, client, found is None, wanted)
    except ToolError as error:
        module.fail_json(msg=str(error), steps=steps, client_keys=keys)
    module.exit_json(
        changed=bool(steps),
        client_keys=keys,
        steps=steps,
        diff={"before": "\n".join(before) + "\n", "after": "\n".join(after) + "\n"},
    )


def settle(cluster: Cluster, client: dict[str, Any], new: bool, wanted: dict[str, str]) -> str:
    """Make or change a client, and return its key; ToolError when it is not as wanted after."""
    name = client["name"]
    if new:
        grant = client["grants"][0]
        words = [grant["path"], grant["perms"]] + (["root_squash"] if grant["root_squash"] else [])
        done = cluster.ask("fs", "authorize", grant["fs"], f"client.{name}", *words)
        if not done.ok:
            raise ToolError(f"client.{name} was not made: {done.err.strip()[-300:]}")
    found = cluster.client(name)
    if found is not None and not same_caps(found[1], wanted):
        words = [word for kind, text in sorted(wanted.items()) for word in (kind, text)]
        done = cluster.ask("auth", "caps", f"client.{name}", *words)
        if not done.ok:
            raise ToolError(f"client.{name} was not changed: {done.err.strip()[-300:]}")
        found = cluster.client(name)
    if found is None or not same_caps(found[1], wanted):
        raise ToolError(f"client.{name} is not as it was made: {found[1] if found else 'unknown'}")
    return found[0]


if __name__ == "__main__":
    main()
