# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What Slurm's modules would refuse of partitions, QOS, accounts and options. Pure.

The modules' own checks are asked, so that a value is refused before any host is touched and in the
words of the module. Names that one variable takes from another are compared here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...module_utils._accounting import parse as _accounts
from ...module_utils._accounting import qos as _qos
from ...module_utils._core.schema import Problem, closest, words
from ...module_utils._slurm.conf.check import check
from .._inventory.values import Value, is_hidden

# What slurm_config takes, and the variable that the role takes it from.
SETTINGS = {
    "version": "slurm_base_version",
    "auth": "slurm_base_auth",
    # How the plan's topology is used.
    "topology": "slurm_controller_topology_plugin",
    **{
        name: "slurm_controller_" + name
        for name in (
            "accounting_enforce",
            "block_sizes",
            "cgroup",
            "configless",
            "default_cpus_per_gpu",
            "default_mem_per_cpu_mb",
            "default_mem_per_gpu_mb",
            "epilog",
            "gres_autodetect",
            "health_check",
            "mpi_default",
            "node_sets",
            "options",
            "partitions",
            "plugstack",
            "pretended_hardware",
            "prolog",
            "reboot_program",
            "resume_timeout_s",
            "state_save_location",
            "topology_format",
            "topology_plugin",
        )
    },
}
_QOS, _ACCOUNTS = "slurm_controller_qos", "slurm_controller_accounts"
_DATABASE = "slurm_database_options"
_LINE = re.compile(r"(?P<name>[a-z_]+)(?P<rest>[^ :]*):? (?P<wrong>.*?)(?:; (?P<remedy>.*))?")
# Slurm's own, and what a partition may say instead of names.
_BUILT_IN = {_QOS: "normal", _ACCOUNTS: "root"}
_ALL = "ALL"

Values = Mapping[str, Value]


def _path(values: Values, name: str) -> str:
    return values[name].path if name in values else f"slurm_controllers.{name}"


def _item(name: str) -> dict[str, Any]:
    """Return a node without known hardware: its profile has been refused."""
    cores = {"cpus": 1, "sockets": 1, "cores_per_socket": 1, "threads_per_core": 1}
    return {"name": name, **cores, "real_memory_mb": 1}


def check_conf(
    values: Values, described: Mapping[str, Any], nodes: Sequence[str], found: Iterable[Problem]
) -> Iterator[Problem]:
    """Yield what slurm_config refuses, where no other problem is known.

    values are the primary's valid variables, described is what the plan gives, nodes are the names
    of all nodes in Slurm.
    """
    if not nodes or "slurm_base_version" not in values:
        return
    hardware = {node["name"]: node for node in described["nodes"]}
    given = {
        setting: values[name].value
        for setting, name in SETTINGS.items()
        if name in values and not is_hidden(values[name].value)
    }
    everywhere = [{"name": "batch", "nodes": [_ALL]}]
    full = {
        "partitions": everywhere,
        **given,
        **described,
        "nodes": [hardware.get(name) or _item(name) for name in nodes],
    }
    known = {problem.path.lower() for problem in found}
    for line in check(full):
        parts = _LINE.fullmatch(line)
        if parts is None or parts["name"] not in SETTINGS:
            # The plan made it, from what has been checked.
            continue
        where = _path(values, SETTINGS[parts["name"]]) + parts["rest"]
        place = where.lower()
        if not any(path == place or path.startswith((place + ".", place + "[")) for path in known):
            # One line for a place; Slurm's keys are the same in other letters.
            known.add(place)
            yield Problem(where, parts["wrong"], parts["remedy"])


def check_ipv6(values: Values, network: str) -> Iterator[Problem]:
    """Yield that Slurm would not use the only addresses that there are.

    It takes IPv4 alone by default (slurm.conf man page, CommunicationParameters).
    """
    name = "slurm_controller_options"
    options = values[name].value if name in values else {}
    if "enableipv6" not in str(options).lower():
        wrong = f"has no EnableIPv6, and the network {network} of Slurm is IPv6"
        remedy = "write CommunicationParameters: [EnableIPv6] in it"
        yield Problem(_path(values, name), wrong, remedy)


def check_pmix(values: Values, hosts: Iterable[Values]) -> Iterator[Problem]:
    """Yield that srun takes PMIx, but its library is kept off a host that starts or runs jobs."""
    name, library = "slurm_controller_mpi_default", "slurm_base_pmix"
    mpi = str(values[name].value) if name in values else ""
    if not mpi.startswith("pmix"):
        return
    paths = {host[library].path for host in hosts if library in host and not host[library].value}
    for path in sorted(paths):
        wrong = f"false, and every srun would fail, since {values[name].path} is {mpi}"
        yield Problem(path, wrong, f"leave it out, or write another {name}")


def check_entries(values: Values, databases: Sequence[Values]) -> Iterator[Problem]:
    """Yield what slurm_qos and slurm_account refuse of their entries.

    databases are the variables of each host with slurmdbd.
    """
    options = [one[_DATABASE].value for one in databases if _DATABASE in one]
    known = databases and not is_hidden(options)
    any_case = not known or "preservecaseuser" in str(options).lower()
    for name, word, parse in (
        (_QOS, "qos", _qos.parse_declared),
        (_ACCOUNTS, "accounts", functools.partial(_accounts.parse_declared, any_case=any_case)),
    ):
        if name not in values or is_hidden(values[name].value):
            continue
        path, entries = values[name].path, values[name].value
        places = {f"{word}.{item['name']}": index for index, item in enumerate(entries)}
        seen: set[str] = set()
        for line in parse(entries)[-1]:
            where, _colon, rest = line.partition(": ")
            owner = max((one for one in places if _begins(where, one)), key=len, default="")
            wrong, _semicolon, remedy = rest.partition("; ")
            wrong = wrong if owner else f"{where} {wrong}"
            where = f"{path}[{places[owner]}]{where[len(owner) :]}" if owner else path
            if where not in seen:
                seen.add(where)
                yield Problem(where, wrong, remedy)


def _begins(where: str, owner: str) -> bool:
    return where == owner or where.startswith(owner + ".")


def check_names(
    values: Values, users: Sequence[str] | None, unsound: Collection[str] = ()
) -> Iterator[Problem]:
    """Yield QOS, accounts and users that are named and that the inventory does not declare.

    users are those of the nodes; None where a directory may have others. unsound are variables that
    are written and wrong.
    """
    for where, name, text in _named(values):
        known = _declared(values, name)
        unknown = name in unsound or _is_unknown(values, name)
        if text != _ALL and text not in known and not unknown:
            kind = "QOS" if name == _QOS else "account"
            near = closest(text, known)
            remedy = f"write {near}" if near else f"write {words(known)}, or declare it in {name}"
            yield Problem(where, f"no {kind} is called '{text}'", remedy)
    if users is None or _is_unknown(values, _ACCOUNTS) or _ACCOUNTS not in values:
        return
    for index, account in enumerate(values[_ACCOUNTS].value):
        for place, item in enumerate(account.get("users") or ()):
            user = item.get("name") if isinstance(item, Mapping) else item
            gone = isinstance(item, Mapping) and item.get("state") == "absent"
            if isinstance(user, str) and not gone and user not in (*users, "root"):
                near = closest(user, users)
                where = f"{values[_ACCOUNTS].path}[{index}].users[{place}]"
                remedy = (
                    f"write {near}"
                    if near
                    else "add it there, or write cluster_user_directory: true where a directory "
                    "has it"
                )
                yield Problem(where, f"no user of node_base_users is called '{user}'", remedy)


def _is_unknown(values: Values, name: str) -> bool:
    return name in values and is_hidden(values[name].value)


def _declared(values: Values, name: str) -> list[str]:
    entries = values[name].value if name in values else ()
    present = [str(item["name"]) for item in entries if item.get("state") != "absent"]
    return list(dict.fromkeys([*present, _BUILT_IN[name]]))


def _named(values: Values) -> Iterator[tuple[str, str, str]]:
    """Yield each place that names a QOS or an account: its path, where it is declared, the name."""
    lists = {"allow_qos": _QOS, "allow_accounts": _ACCOUNTS, "preempt": _QOS}
    single = {"default_qos": _QOS, "parent": _ACCOUNTS}
    for variable in ("slurm_controller_partitions", _ACCOUNTS, _QOS):
        entries = values[variable].value if variable in values else ()
        for index, entry in enumerate(entries):
            path = f"{_path(values, variable)}[{index}]"
            if entry.get("state") == "absent":
                continue
            # A partition has one QOS, an account may use several.
            for key, name in {**lists, **single, "qos": _QOS}.items():
                value = entry.get(key)
                if isinstance(value, str) and value:
                    yield f"{path}.{key}", name, value
                for place, text in enumerate(value if isinstance(value, list) else ()):
                    if isinstance(text, str):
                        yield f"{path}.{key}[{place}]", name, text
