#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: service_sync
short_description: Keep systemd units running with what is on disk
description:
  - Takes the place of handlers. A handler is lost when a run is killed between the change and the
    end of the play, and then a daemon runs with an old configuration forever. This module
    compares what a unit was started with to what is on disk, every time.
  - What a unit runs with is written down in a stamp, C(/var/lib/baremetal-dgx/applied/UNIT.json),
    which holds digests of the watched files and of the unit's definition, and the unit's
    InvocationID.
  - A running unit is restarted when its definition, a file in O(restart_on) or O(restart_key)
    differs from what it was started with, reloaded when only a file in O(reload_on) does, and
    left alone otherwise.
  - A stamp proves what a unit runs with for as long as nothing has touched the files since. Every
    later start or reload, by any process, has read the same.
  - When a file was written, changed in mode or replaced since, even if its content is what it was,
    another content may have been read in between. Then only a start after the last change is a
    proof, or that the process is still the one that was stamped and nothing has reloaded it.
    Otherwise it is restarted, or reloaded when the file is in O(reload_on).
  - A unit that systemd had to start again within the last minute, or that was found dead with the
    same files, must stay up for a minute. A crash loop therefore fails every run, not only the
    first.
  - C(systemctl daemon-reload) is run when systemd says that a unit's definition on disk is newer
    than what it has loaded.
notes:
  - Before a start or restart the stamp is written as an announcement, after it (and the time in
    O(settle_s)) it is confirmed. A run killed in between is understood by the next one from the
    InvocationID. If it is still the announced one, the restart did not happen and is done; if
    not, it did, and is not repeated.
  - A run killed before the announcement leaves the old stamp, which differs from the disk. Before
    a reload the stamp forgets what the reload reads, so one killed after it reloads once more,
    which does no harm.
  - A file in O(reload_on) that was absent, then present for a reload that systemd did not see (a
    signal to the process), and is absent again, is not noticed.
version_added: 1.0.0
author: [The baremetal.dgx authors (@baremetal-dgx)]
extends_documentation_fragment: [baremetal.dgx.attributes]
attributes:
  check_mode:
    support: full
    details:
      - A unit that does not exist yet is reported as one that would be started.
      - A change of a file that an earlier task only pretended in check mode cannot be seen.
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  name:
    description: The unit; without suffix it is a C(.service). Either O(name) or O(units) is
      required.
    type: str
  enabled:
    description: Whether it comes up at boot. Left alone when not given.
    type: bool
  state:
    description:
      - V(started) runs, with what is on disk.
      - V(stopped) does not run.
    type: str
    choices: [started, stopped]
    default: started
  missing_ok:
    description:
      - Whether there need be no such unit where O(state=stopped).
      - What runs on although its file is gone is stopped, and with O(enabled=false) links to it are
        removed.
    type: bool
    default: false
  restart_on:
    description: Files, directories (all files below) and patterns whose content the unit reads only
      when it starts.
    type: list
    elements: path
    default: []
  reload_on:
    description: The same for content that a reload applies. Where the unit cannot be reloaded, it
      is restarted.
    type: list
    elements: path
    default: []
  reload_command:
    description: Command that applies O(reload_on), instead of C(systemctl reload UNIT).
    type: list
    elements: str
    default: []
  restart_key:
    description:
      - Any text, such as a package's version, that means a restart when it changes.
      - With a key, a unit that another hand has started since, and whose files in O(reload_on) have
        changed after that, is restarted instead of reloaded. It may have been started under another
        key.
    type: str
    default: ""
  restart_blocked_by:
    description:
      - Why a unit that runs must not be restarted now, such as jobs of the node; empty if it may.
      - A restart that is due is then announced in the stamp, so that M(baremetal.dgx.service_check)
        fails until a later call, or another hand, has restarted the unit. One that does not run is
        started all the same.
    type: str
    default: ""
  settle_s:
    description:
      - Seconds after a start, restart or reload for which the unit must stay up, with the same
        process.
        The wait is shared by all units of one call. After a crash it is a minute.
    type: float
    default: 2
  timeout_s:
    description: Seconds a start, stop or reload may take.
    type: float
    default: 90
  package:
    description: The package that ships the unit, named in the error when there is no such unit.
    type: str
    default: ""
  units:
    description: Several units, handled in this order. The options are those of the module.
    type: list
    elements: dict
    suboptions:
      name:
        description: See O(name).
        type: str
        required: true
      enabled:
        description: See O(enabled).
        type: bool
      state:
        description: See O(state).
        type: str
        choices: [started, stopped]
        default: started
      missing_ok:
        description: See O(missing_ok).
        type: bool
        default: false
      restart_on:
        description: See O(restart_on).
        type: list
        elements: path
        default: []
      reload_on:
        description: See O(reload_on).
        type: list
        elements: path
        default: []
      reload_command:
        description: See O(reload_command).
        type: list
        elements: str
        default: []
      restart_key:
        description: See O(restart_key).
        type: str
        default: ""
      restart_blocked_by:
        description: See O(restart_blocked_by).
        type: str
        default: ""
      settle_s:
        description: See O(settle_s).
        type: float
        default: 2
      timeout_s:
        description: See O(timeout_s).
        type: float
        default: 90
      package:
        description: See O(package).
        type: str
        default: ""
seealso:
  - module: baremetal.dgx.managed_files
  - module: baremetal.dgx.service_check
"""

EXAMPLES = r"""
- name: Run slurmctld with its configuration, without a restart where a reconfigure will do
  baremetal.dgx.service_sync:
    name: slurmctld.service
    enabled: true
    restart_on: [/etc/munge/munge.key, /etc/default/slurmctld]
    reload_on: [/etc/slurm/slurm.conf, /etc/slurm/gres.conf]
    reload_command: [scontrol, reconfigure]

- name: Run munge before slurmd, and restart both when the key changes
  baremetal.dgx.service_sync:
    units:
      - {name: munge.service, enabled: true, restart_on: [/etc/munge/munge.key]}
      - {name: slurmd.service, enabled: true, restart_on: [/etc/munge/munge.key]}
"""

RETURN = r"""
actions:
  description:
    - What was done, or would be in check mode, in order.
    - On failure, what was planned.
  returned: when a plan could be made
  type: list
  elements: str
  sample: ["enable slurmd.service", "restart slurmd.service"]
reasons:
  description: Why, for each unit that something was done to.
  returned: when a plan could be made
  type: dict
  sample: {"slurmd.service": ["/etc/munge/munge.key changed"]}
deferred:
  description: Why, for each unit whose restart is due and was blocked.
  returned: success
  type: dict
  sample: {"nvidia-fabricmanager.service": ["its unit definition changed"]}
units:
  description: The state of each unit at the end (in check mode, the present state).
  returned: success
  type: dict
  sample:
    slurmd.service:
      active_state: active
      sub_state: running
      main_pid: 812
      invocation_id: 5b1f7a6e2c1d4a64b1f3a7f2f7d2f0aa
"""

import contextlib
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.lock import host_lock
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units.apply import (
    desired,
    synchronise,
    warnings_of,
)

UNIT_SPEC: dict[str, Any] = {
    "enabled": {"type": "bool"},
    "state": {"choices": ["started", "stopped"], "default": "started"},
    "missing_ok": {"type": "bool", "default": False},
    "restart_on": {"type": "list", "elements": "path", "default": []},
    "reload_on": {"type": "list", "elements": "path", "default": []},
    "reload_command": {"type": "list", "elements": "str", "default": []},
    # "key" is a word that Ansible takes for a secret; a version is none
    "restart_key": {"type": "str", "default": "", "no_log": False},
    "restart_blocked_by": {"type": "str", "default": ""},
    "settle_s": {"type": "float", "default": 2},
    "timeout_s": {"type": "float", "default": 90},
    "package": {"type": "str", "default": ""},
}
ARGUMENT_SPEC: dict[str, Any] = {
    "name": {"type": "str"},
    **UNIT_SPEC,
    "units": {
        "type": "list",
        "elements": "dict",
        "options": {"name": {"type": "str", "required": True}, **UNIT_SPEC},
    },
}


def main() -> None:
    """Synchronise and report."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        mutually_exclusive=[("name", "units")],
        required_one_of=[("name", "units")],
    )
    check = module.check_mode
    with reported(module):
        wanted = desired(module.params)
        # as long as a run that was killed can still be busy with these units
        wait_s = sum(want.timeout_s for want in wanted) + 30
        with contextlib.nullcontext() if check else host_lock("units", wait_s):
            outcome = synchronise(ModuleRunner(module), wanted, check)
    module.exit_json(**outcome.as_result(module._diff), warnings=warnings_of(wanted, outcome))


if __name__ == "__main__":
    main()
