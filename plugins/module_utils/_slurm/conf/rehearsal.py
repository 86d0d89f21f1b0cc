# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A rehearsal of slurmctld: what it is given, how it is run, and what its log means.

Slurm has no option to test a configuration, and only slurmctld itself reads all of it: nodes,
partitions, topology, plug-ins. So the real slurmctld is started on a copy, in its own network
with every node's name pointing to itself. It can reach neither nodes nor slurmdbd, knows no jobs,
and is killed as soon as it says that it has taken everything (0.1 s; tried with 22.05.8, 23.11.4,
24.11.5, 25.11.2 and 26.05.5).
"""

from __future__ import annotations

import os
import pwd
import re
import socket
from dataclasses import dataclass
from typing import Iterable, Iterator, Mapping

from ..._core.files import (
    copy_file,
    give_tree,
    make_folder,
    open_folder,
    temporary_folder,
    text_if_there,
    write_atomic,
)
from ..._core.names import short_name
from ..._core.nodeset import expand
from ..._core.run import MISSING, CommandRunner, ToolError, find

_USER = "slurm"
# Secrets are not copied. auth/slurm wants its key beside slurm.conf, where a link will do.
_SECRET = ("slurmdbd.conf", ".key", ".jwks", ".pem")
_LINKED = ("slurm.key", "slurm.jwks")
_UNRESOLVED_SHOWN = 10
ACCEPTED = "Running as primary controller"
# Documentation address (RFC 5737): no host has it, and only one that is not loopback makes
# getaddrinfo answer (AI_ADDRCONFIG).
ADDRESS = "192.0.2.1"

# What a lone slurmctld cannot have: a database, other hosts' paths, the state of the real one.
_ALONE = re.compile(
    r"\s*(Accounting(Storage|Store)\w*|BackupAddr|BackupController|ControlAddr|ControlMachine|"
    r"DebugFlags|FederationParameters|JobComp\w+|MailProg|Priority\w+|SlurmSchedLog\w+|"
    r"Slurmctld(Addr|Debug|Host|LogFile|PidFile|Primary\w+|SyslogDebug)|StateSaveLocation)\s*=",
    re.IGNORECASE,
)
_PARTITION = re.compile(r"\s*PartitionName\s*=", re.IGNORECASE)
# Known to slurmdbd only.
_FROM_DATABASE = re.compile(r"\s(QOS|AllowQos|DenyQos|TRESBillingWeights)=\S*", re.IGNORECASE)
_HOSTS_OF_LINE = re.compile(
    r"^\s*(?:NodeName|SlurmctldHost)\s*=\s*([^\s()]+)", re.IGNORECASE | re.MULTILINE
)
_OTHER_NAME = re.compile(r"\s(?:NodeHostname|NodeAddr)=(\S+)", re.IGNORECASE)
_ADDRESS = re.compile(r"[0-9.]+|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*")

_STAMP = re.compile(r"^(\[[^\]]*\] )?(slurm\w+: |scontrol: )?")
_TOLD = re.compile(r"\b(error|fatal): ")
# Logged for a configuration that slurmctld takes nevertheless.
_MISTAKES = re.compile(
    r"lookup failure for node|switches lack access|Invalid hostnames in switch|"
    r"Pars(e|ing) error|unrecognized key|is defunct|Invalid node name|Could not find configured",
)
# Logged in every rehearsal: it has no state, no jobs, no database, and nothing to talk to.
_NOISE = re.compile(
    r"state file|state save file|No last|mpi/pmix|MPI: Cannot|accounting information|"
    r"agent_fini|_flush_agent_queue|pidfile|MailProg|_shutdown_bu_thread|NOTE: Trying"
)

# Arguments: the folder with conf/, state/, hosts and log; the limit in tenths of a second.
SCRIPT = """
set -e
folder=$1 limit=$2 user=$3 daemon=$4
ip link set lo up
ip address add @ADDRESS@/32 dev lo
mount --bind "$folder/hosts" /etc/hosts
mkdir "$folder/run"
mount -t tmpfs tmpfs "$folder/run"
mkdir "$folder/run/munge" "$folder/run/slurm" "$folder/run/slurmctld"
chown "$user" "$folder/run/slurm" "$folder/run/slurmctld"
if [ -d /run/munge ]; then mount --bind /run/munge "$folder/run/munge"; fi
mount --rbind "$folder/run" /run
{ "$daemon" -D -f "$folder/conf/slurm.conf" || true; echo ENDED; } > "$folder/log" 2>&1 &
while [ "$limit" -gt 0 ]; do
  ended=$(tail -n 1 "$folder/log")
  if grep -q "@ACCEPTED@" "$folder/log" || [ "$ended" = ENDED ]; then break; fi
  sleep 0.1
  limit=$((limit - 1))
done
""".replace("@ADDRESS@", ADDRESS).replace("@ACCEPTED@", ACCEPTED)

_SHOWN = 'cat "$folder/log"\n'


@dataclass(frozen=True)
class Verdict:
    """What a rehearsal showed: what must be corrected, and what else the daemon logged."""

    findings: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def alone(slurm_conf: str, host: str, state: str) -> str:
    """Return the configuration for a slurmctld that is all by itself on this host."""
    lines = []
    for line in slurm_conf.splitlines():
        if _ALONE.match(line):
            continue
        lines.append(_FROM_DATABASE.sub("", line) if _PARTITION.match(line) else line)
    lines += [
        f"SlurmctldHost={host}({ADDRESS})",
        f"StateSaveLocation={state}",
        f"SlurmctldPidFile={state}/slurmctld.pid",
        "MailProg=/bin/true",
    ]
    return "\n".join(lines) + "\n"


def host_names(slurm_conf: str) -> list[str]:
    """Return all names of hosts that the configuration wants resolved; ValueError if unreadable."""
    found: dict[str, None] = {}
    lines = [line for line in slurm_conf.splitlines() if not line.lstrip().startswith("#")]
    text = "\n".join(lines)
    for expression in [*_HOSTS_OF_LINE.findall(text), *_other_names(lines)]:
        found.update(dict.fromkeys(expand(expression)))
    return [name for name in found if not _ADDRESS.fullmatch(name) and name.lower() != "default"]


def _other_names(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if line.lower().lstrip().startswith("nodename"):
            yield from _OTHER_NAME.findall(line)


def hosts_file(names: list[str], host: str) -> str:
    """Return an /etc/hosts that makes every name this host."""
    lines = ["127.0.0.1 localhost", *(f"{ADDRESS} {name}" for name in [host, *names])]
    return "\n".join(lines) + "\n"


def judge(log: str) -> Verdict:
    """Return what the log of a rehearsal means."""
    reported = []
    for line in log.splitlines():
        plain = _STAMP.sub("", line).strip()
        if _TOLD.search(plain) and not _NOISE.search(plain):
            reported.append(plain)
    reported = list(dict.fromkeys(reported))
    if ACCEPTED not in log:
        return Verdict(tuple(reported or ["slurmctld ended, or hung, without a reason"]))
    findings = [line for line in reported if _MISTAKES.search(line)]
    return Verdict(tuple(findings), tuple(line for line in reported if line not in findings))


def compact(lines: list[str], most: int = 20) -> list[str]:
    """Return at most so many lines, and how many more there are."""
    return lines if len(lines) <= most else [*lines[:most], f"and {len(lines) - most} more"]


def lay(folder: str, files: Mapping[str, str], installed: str) -> None:
    """Write the files into the folder, with what is next to the installed ones."""
    make_folder(folder)
    for name in os.listdir(installed) if os.path.isdir(installed) else ():
        source = os.path.join(installed, name)
        if name not in files and os.path.isfile(source) and not name.endswith(_SECRET):
            copy_file(source, os.path.join(folder, name))
    with open_folder(folder) as own:
        for name, text in files.items():
            own.write(name, text, sync=False)
        for name in _LINKED:
            if os.path.exists(os.path.join(installed, name)):
                own.link(name, os.path.join(installed, name))


def unresolved(names: Iterable[str]) -> list[str]:
    """Return what this host cannot resolve; gives up after a few, since each takes its time."""
    local = (text_if_there("/etc/hosts") or "").split()
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


def play(run: CommandRunner, folder: str, slurm_conf: str, timeout_s: int, asks: str = "") -> str:
    """Have slurmctld read everything and return its log; ToolError when it could not be started.

    asks is a script that is run while it runs, and whose output comes before the log.
    """
    host = short_name()
    state = os.path.join(folder, "state")
    owner = pwd.getpwnam(_USER)
    make_folder(state, 0o700)
    give_tree(state, owner.pw_uid, owner.pw_gid, 0o700)
    for path, text in (
        (os.path.join(folder, "conf", "slurm.conf"), alone(slurm_conf, host, state)),
        (os.path.join(folder, "hosts"), hosts_file(host_names(slurm_conf), host)),
        (os.path.join(folder, "log"), ""),
    ):
        write_atomic(path, text, sync=False)
    daemon = find("slurmctld")
    if daemon is None:
        raise ToolError("slurmctld is not installed")
    spaces = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    arguments = [folder, str(timeout_s * 10), _USER, daemon]
    script = SCRIPT + asks + _SHOWN
    command = ["unshare", *spaces, "sh", "-c", script, "rehearsal", *arguments]
    result = run(command, timeout_s=timeout_s + 10)
    if not result.ok:
        raise ToolError(f"no rehearsal was possible: {result.describe()}")
    return result.out


def rehearse(
    run: CommandRunner, files: Mapping[str, str], installed: str, timeout_s: int
) -> Verdict:
    """Return what scontrol and slurmctld say to these files."""
    with temporary_folder("slurm-rehearsal-", mode=0o755) as folder:
        lay(os.path.join(folder, "conf"), files, installed)
        wrong = parse(run, os.path.join(folder, "conf"))
        if wrong:
            return Verdict(tuple(wrong))
        return judge(play(run, folder, files["slurm.conf"], timeout_s))


def installed_already(files: Mapping[str, str], folder: str) -> bool:
    """Return whether all files are in the folder as they are."""
    found = ((text_if_there(os.path.join(folder, name), "surrogateescape"), text)
             for name, text in files.items())  # fmt: skip
    return all(before == text for before, text in found)
