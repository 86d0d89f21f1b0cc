#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_rehearsal
short_description: Have slurmctld itself read a configuration before it replaces the one in use
description:
  - Slurm has no option to test a configuration, and before 23.11 a wrong one ends a running
    slurmctld at C(scontrol reconfigure).
  - This module first has C(scontrol) read C(slurm.conf). Then it starts the real slurmctld on a
    copy, in namespaces of its own, where it can reach neither nodes nor database nor the state of
    the real one, and kills it as soon as it has taken everything. It never changes anything.
  - Found are, beyond what C(scontrol) finds, unknown nodes in partitions and node sets, duplicate
    nodes and partitions, unknown plug-ins, and mistakes in the topology. What only slurmd reads
    (C(gres.conf)) is not; M(baremetal.dgx.slurm_config) checks that.
  - Runs as root on a host with slurmctld, with munged running or C(slurm.key) in place.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: In check mode a host without slurmctld measures nothing, and the task stays green.
  diff_mode:
    support: none
    details: Nothing is ever changed.
  idempotent:
    support: full
options:
  files:
    description:
      - File name and text, as M(baremetal.dgx.slurm_config) returns them. C(slurm.conf) must be
        among them.
    type: dict
    required: true
  installed:
    description:
      - The directory where the files will lie. Files that are the same as there have been rehearsed
        before, and nothing is done.
      - Scripts and includes that lie there and are not among O(files) take part in the rehearsal.
    type: path
    default: /etc/slurm
  names_resolve:
    description: Whether a name of a node or controller that does not resolve here is a mistake.
    type: bool
    default: true
  timeout_s:
    description: Seconds slurmctld may take to read everything.
    type: int
    default: 30
seealso:
  - module: baremetal.dgx.slurm_config
"""

EXAMPLES = r"""
- name: Have slurmctld read the new configuration
  baremetal.dgx.slurm_rehearsal:
    files: "{{ rendered.files }}"
"""

RETURN = r"""
rehearsed:
  description: Whether slurmctld has read the files.
  returned: always
  type: bool
reason:
  description: Why it has not; empty when it has.
  returned: always
  type: str
findings:
  description: What must be mended, in Slurm's words.
  returned: always
  type: list
  elements: str
  sample: ["fatal: Invalid node names in partition batch"]
remarks:
  description: What else slurmctld said that is not said in every rehearsal.
  returned: always
  type: list
  elements: str
"""

import os
import pwd
import shutil
import socket
import tempfile
from typing import Any, Iterable, Mapping

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    MISSING,
    CommandRunner,
    ModuleRunner,
    ToolError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_conf_rehearsal import (
    SCRIPT,
    Verdict,
    alone,
    compact,
    host_names,
    hosts_file,
    judge,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "files": {"type": "dict", "required": True},
    "installed": {"type": "path", "default": "/etc/slurm"},
    "names_resolve": {"type": "bool", "default": True},
    "timeout_s": {"type": "int", "default": 30},
}

_USER = "slurm"
# Secrets are not copied. auth/slurm wants its key beside slurm.conf, where a link will do.
_SECRET = ("slurmdbd.conf", ".key", ".jwks", ".pem")
_LINKED = ("slurm.key", "slurm.jwks")
_UNRESOLVED_SHOWN = 10


def read(path: str) -> str | None:
    """Return the text of a file, None when there is none."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as handle:
            return handle.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def lay(folder: str, files: Mapping[str, str], installed: str) -> None:
    """Write the files into the folder, with what lies beside the installed ones."""
    os.mkdir(folder, 0o755)
    for name in os.listdir(installed) if os.path.isdir(installed) else ():
        source = os.path.join(installed, name)
        if name not in files and os.path.isfile(source) and not name.endswith(_SECRET):
            shutil.copy(source, folder)
    for name, text in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as handle:
            handle.write(text)
    for name in os.listdir(folder):
        os.chmod(os.path.join(folder, name), 0o644)
    for name in _LINKED:
        if os.path.exists(os.path.join(installed, name)):
            os.symlink(os.path.join(installed, name), os.path.join(folder, name))


def unresolved(names: Iterable[str]) -> list[str]:
    """Return what this host cannot resolve; gives up after a few, since each takes its time."""
    local = (read("/etc/hosts") or "").split()
    missing: list[str] = []
    for name in names:
        if name in local:
            continue
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            missing.append(f"{name} does not resolve on this host; add it to /etc/hosts or the DNS")
        if len(missing) == _UNRESOLVED_SHOWN:
            break
    return missing


def parse(run: CommandRunner, folder: str) -> list[str]:
    """Have scontrol read slurm.conf: no daemon, no network, all of it before it does anything."""
    environment = {"SLURM_CONF": os.path.join(folder, "slurm.conf")}
    result = run(["scontrol", "show", "hostnames", "probe"], timeout_s=10, env=environment)
    if result.outcome == MISSING:
        raise ToolError("scontrol is not installed")
    if result.ok:
        return []
    return list(judge(result.text).findings) if result.text else [result.describe()]


def play(run: CommandRunner, folder: str, slurm_conf: str, timeout_s: int) -> Verdict:
    """Have slurmctld read everything; raises ToolError when it could not be started."""
    host = socket.gethostname().split(".")[0]
    state = os.path.join(folder, "state")
    os.mkdir(state, 0o700)
    owner = pwd.getpwnam(_USER)
    os.chown(state, owner.pw_uid, owner.pw_gid)
    for path, text in (
        (os.path.join(folder, "conf", "slurm.conf"), alone(slurm_conf, host, state)),
        (os.path.join(folder, "hosts"), hosts_file(host_names(slurm_conf), host)),
        (os.path.join(folder, "log"), ""),
    ):
        with open(path, "w", encoding="utf-8") as handle:
            handle.write(text)
    daemon = shutil.which("slurmctld", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if daemon is None:
        raise ToolError("slurmctld is not installed")
    spaces = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    arguments = [folder, str(timeout_s * 10), _USER, daemon]
    command = ["unshare", *spaces, "sh", "-c", SCRIPT, "rehearsal", *arguments]
    result = run(command, timeout_s=timeout_s + 10)
    if not result.ok:
        raise ToolError(f"no rehearsal was possible: {result.describe()}")
    return judge(result.out)


def rehearse(
    run: CommandRunner, files: Mapping[str, str], installed: str, timeout_s: int
) -> Verdict:
    """Return what scontrol and slurmctld say to these files."""
    folder = tempfile.mkdtemp(prefix="slurm-rehearsal-")
    try:
        os.chmod(folder, 0o755)
        lay(os.path.join(folder, "conf"), files, installed)
        wrong = parse(run, os.path.join(folder, "conf"))
        return Verdict(tuple(wrong)) if wrong else play(run, folder, files["slurm.conf"], timeout_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Compare, rehearse, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    files, installed = module.params["files"], module.params["installed"]
    answer: dict[str, Any] = {"changed": False, "rehearsed": False, "findings": [], "remarks": []}
    if "slurm.conf" not in files:
        module.fail_json(msg="files: slurm.conf is missing", reason="", **answer)
    if all(read(os.path.join(installed, name)) == text for name, text in files.items()):
        module.exit_json(reason=f"the files are those in {installed}", **answer)
    try:
        verdict = rehearse(ModuleRunner(module), files, installed, module.params["timeout_s"])
    except (ToolError, KeyError, ValueError) as error:
        reason = str(error)
        if module.check_mode:
            module.exit_json(reason=f"not measured: {reason}", **answer)
        module.fail_json(msg=f"slurm.conf was not rehearsed: {reason}", reason=reason, **answer)
    missing = unresolved(host_names(files["slurm.conf"])) if module.params["names_resolve"] else []
    findings = compact([*verdict.findings, *(missing if not module.check_mode else [])])
    answer.update(rehearsed=True, reason="", findings=findings, remarks=list(verdict.remarks))
    if findings:
        lines = "\n".join(findings)
        module.fail_json(msg=f"slurmctld would not take this configuration:\n{lines}", **answer)
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
