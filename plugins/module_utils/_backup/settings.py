# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the role backup tells its program. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

CONTROLLER, DATABASE, CONTROL, METRICS = "controller", "database", "control", "metrics"
KINDS = (CONTROLLER, DATABASE, CONTROL, METRICS)
_KEEP = ("last", "hourly", "daily", "weekly", "monthly")


@dataclass(frozen=True)
class Database:
    """Where slurmdbd's records are: over a socket as root, or on a host by name and password."""

    name: str
    socket: str = ""
    host: str = ""
    port: int = 3306
    user: str = ""
    password_file: str = ""


@dataclass(frozen=True)
class Settings:
    """`kinds` are what this host copies by itself; `secrets` and `state_dir` belong to it.

    No job gets a number below `first_job`. `blocks_dir` is the folder of Prometheus' time series,
    and `keep_metrics` is `keep` for them.
    """

    cluster: str
    kinds: Sequence[str]
    repository: str
    password_file: str
    metrics_file: str
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    keep: Mapping[str, int] = field(default_factory=dict)
    keep_metrics: Mapping[str, int] = field(default_factory=dict)
    tidies: bool = False
    same_disk_ok: bool = False
    state_dir: str = ""
    data_dir: str = ""
    blocks_dir: str = ""
    secrets: Sequence[str] = ()
    database: Database | None = None
    first_job: int = 0
    work_dir: str = "/var/lib/baremetal-dgx/backup"
    limit_s: float = 3600.0
    state_limit_s: float = 60.0


_OF_DATABASE: Mapping[str, Any] = {
    "name": str, "socket": str, "host": str, "port": int, "user": str, "password_file": str,
}  # fmt: skip
_OF_SETTINGS: Mapping[str, Any] = {
    "cluster": str, "kinds": list, "repository": str, "password_file": str, "metrics_file": str,
    "environment": dict, "options": list, "keep": dict, "keep_metrics": dict,
    "tidies": bool, "same_disk_ok": bool,
    "state_dir": str, "data_dir": str, "blocks_dir": str, "secrets": list, "database": dict,
    "first_job": int, "work_dir": str,
    "limit_s": (int, float), "state_limit_s": (int, float),
}  # fmt: skip


def _checked(data: Any, kinds: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError(f"{where}must be a mapping")
    for name, value in data.items():
        if name not in kinds:
            raise ValueError(f"{where}{name}: there is no such setting")
        if not isinstance(value, kinds[name]):
            raise ValueError(f"{where}{name}: {type(value).__name__} is the wrong kind")
    return dict(data)


def settings_from_data(data: Any) -> Settings:
    """Return the settings of a configuration; ValueError, which shows no value, for others."""
    if not isinstance(data, Mapping) or data.get("version") != 1:
        raise ValueError("version: must be 1")
    given = _checked({k: v for k, v in data.items() if k != "version"}, _OF_SETTINGS, "")
    try:
        if "database" in given:
            database = _checked(given["database"], _OF_DATABASE, "database.")
            given["database"] = Database(**database)
        settings = Settings(**given)
    except TypeError as error:
        raise ValueError(str(error)) from error
    kept = {*settings.keep, *settings.keep_metrics}
    wrong = sorted(set(settings.kinds) - set(KINDS)) or sorted(kept - set(_KEEP))
    if wrong:
        raise ValueError(f"{wrong[0]}: is none of {', '.join((*KINDS, *_KEEP))}")
    if CONTROLLER in settings.kinds and not settings.state_dir:
        raise ValueError("state_dir: empty, and the controller's state is to be copied")
    if DATABASE in settings.kinds and settings.database is None:
        raise ValueError("database: empty, and it is to be copied")
    if METRICS in settings.kinds and not settings.blocks_dir:
        raise ValueError("blocks_dir: empty, and the time series are to be copied")
    if settings.metrics_file and not settings.metrics_file.endswith(".prom"):
        raise ValueError("metrics_file: must end with .prom, or node_exporter does not read it")
    if not re.match(r"[A-Za-z][A-Za-z0-9_-]*\Z", settings.cluster):
        raise ValueError("cluster: not a name")
    return settings
