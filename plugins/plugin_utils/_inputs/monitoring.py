# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Inputs of the exporters, and of Prometheus, Alertmanager and Grafana that ask them. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .fabric import environment, subnet_manager_provider
from .host import PLAN, Host
from .slurm import slurmctld_port

_ACCESS = "monitoring_access"
_ANYWHERE = ("0.0.0.0", "::", "")

# The default address of what has no address of the plan.
_LOCAL = ("prometheus", "alertmanager")
# Role, and the group whose hosts have it; "" is all.
_JOBS = {
    "node": ("node_exporter", ""),
    "dcgm": ("dcgm_exporter", "gpu_nodes"),
    "prometheus": ("prometheus", "monitoring_nodes"),
    "alertmanager": ("alertmanager", "monitoring_nodes"),
}
# The same of those that may have a certificate.
_CERTIFIED = {
    **dict(_JOBS.values()),
    "grafana": "monitoring_nodes",
    "slurm_rest": "slurm_controllers",
}
_LISTENING = ("node_exporter", "dcgm_exporter", "slurm_exporter_controller")
_NATIVE = ("jobs", "nodes", "partitions", "scheduler")
_SLURMCTLD_PORT = 6817
_PUBLISHED = "slurm_exporter_controller_port"


@dataclass(frozen=True)
class Exporter:
    """One that is asked: its job, its host, and whether it speaks TLS and asks for a name."""

    job: str
    host: str
    address: str
    tls: bool
    users: bool

    @property
    def target(self) -> dict[str, Any]:
        """The target as Prometheus takes it. One job may be two in its configuration."""
        labels = {"instance": self.host, "job": self.job}
        if self.tls:
            labels["__scheme__"] = "https"
        return {"address": self.address, "labels": labels}


def switched_on(host: Host, role: str) -> bool:
    """Return whether the inventory asks for the role; its default counts for nothing."""
    return host.says(f"{role}_enabled") and bool(host.value(f"{role}_enabled"))


def asks_slurm(host: Host) -> bool:
    """Return whether the host asks its controller of Slurm for metrics."""
    return "slurm_controllers" in host.groups and switched_on(host, "slurm_exporter")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _before_port(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def exporters(asking: Host) -> Iterator[Exporter]:
    """Yield each exporter of each host that the inventory asks for, as this host reaches it."""
    for host in asking.site.present:
        own = str(host.address)
        for job, (role, group) in _JOBS.items():
            if not switched_on(host, role) or (group and group not in host.groups):
                continue
            here = host.says(f"{role}_address") or role in _LOCAL
            address = str(host.value(f"{role}_address")) if here else own
            if _is_loopback(address) and host is not asking:
                continue
            address = own if address in _ANYWHERE else address
            yield Exporter(
                job,
                host.name,
                "{}:{}".format(_before_port(address), host.value(f"{role}_port")),
                bool((host.outline(f"{role}_tls") or {}).get("certificate")),
                host.gives(f"{role}_users"),
            )


def _published_port(host: Host) -> int:
    """Return the port where slurmctld of the host publishes its metrics."""
    if host.says(_PUBLISHED):
        return int(host.value(_PUBLISHED))
    return slurmctld_port(host) or _SLURMCTLD_PORT


def _access(host: Host, name: str, *keys: str) -> dict[str, Any]:
    """Return keys of monitoring_access, referred to, where the first one says something."""
    given = host.outline(_ACCESS) or {}
    if not given.get(name):
        return {}
    return {
        key: host.refer(_ACCESS, key) if key == name or key in given else ""
        for key in (name, *keys)
    }


def _named(host: Host) -> dict[str, Any]:
    return _access(host, "username", "password")


def _jobs(host: Host, found: list[Exporter]) -> list[Any]:
    """Return the jobs of Prometheus. A password is only in a job whose members all ask for one."""
    jobs: list[Any] = []
    for job, users in sorted({(one.job, one.users) for one in found}):
        members = [one for one in found if (one.job, one.users) == (job, users)]
        secured = any(one.tls for one in members)
        beside = users and any(one.job == job and not one.users for one in found)
        jobs.append(
            {
                "name": f"{job}-users" if beside else job,
                "targets": [one.target for one in members],
                **(_named(host) if users else {}),
                **(_access(host, "ca") if secured else {}),
                **(_access(host, "certificate", "key") if secured else {}),
            }
        )
    slurm = [
        {
            "address": f"{_before_port(str(one.address))}:{_published_port(one)}",
            "labels": {"instance": one.name},
        }
        for one in host.site.present
        if asks_slurm(one) and one.value("slurm_exporter_native")
    ]
    for path in _NATIVE if slurm else ():
        jobs.append(
            {
                "name": f"slurm-{path}",
                "path": f"/metrics/{path}",
                "interval_s": 60,
                "targets": slurm,
            }
        )
    ceph = host.value("monitoring_ceph")
    if ceph:
        targets = [
            {"address": address, "labels": {"instance": re.sub(r":[0-9]+$", "", address)}}
            for address in ceph
        ]
        jobs.append({"name": "ceph", "honor_labels": True, "targets": targets})
    own = host.outline("monitoring_jobs") or []
    return jobs + [host.refer("monitoring_jobs", index) for index in range(len(own))]


def _alertmanagers(host: Host, found: list[Exporter]) -> dict[str, Any]:
    """Return who receives alerts. The password is for those alone that ask for one."""
    members = [one for one in found if one.job == "alertmanager"]
    secured, users = (any(getattr(one, name) for one in members) for name in ("tls", "users"))
    targets = {
        one: f"http://{one.address}" if secured and not one.tls else one.address for one in members
    }
    without = [target for one, target in targets.items() if one.users != users]
    return {
        "targets": [target for one, target in targets.items() if one.users == users],
        **({"open_targets": without} if without else {}),
        **({"scheme": "https"} if secured else {}),
        **(_named(host) if users else {}),
        **(_access(host, "ca") if secured else {}),
    }


def _data_source(host: Host, found: list[Exporter]) -> dict[str, Any]:
    """Return the Prometheus of the same host as Grafana takes it; {} where there is none."""
    for one in found:
        if one.job == "prometheus" and one.host == host.name:
            return {
                "url": ("https://" if one.tls else "http://") + one.address,
                "interval_s": host.value("prometheus_scrape_interval_s"),
                **(_named(host) if one.users else {}),
                **(_access(host, "ca") if one.tls else {}),
            }
    return {}


def monitoring_inputs(host: Host) -> dict[str, Any]:
    """Return the inputs of a host that collects the metrics of the others."""
    if "monitoring_nodes" not in host.groups:
        return {f"{role}_enabled": False for role in asked_monitoring(host)}
    found = list(exporters(host))
    return {
        "prometheus_jobs": _jobs(host, found),
        "prometheus_alertmanagers": _alertmanagers(host, found),
        "prometheus_external_labels": {"cluster": host.site.plan["cluster"]["name"]},
        "grafana_prometheus": _data_source(host, found),
    }


def asked_exporters(host: Host) -> list[str]:
    """Return the exporters of which the inventory says something.

    node_exporter publishes what the collectors write, and goes with them. Collectors that a host
    may have had are switched off there, but for compute nodes, of which there are thousands.
    """
    fits = {
        "node_exporter": True,
        "dcgm_exporter": "gpu_nodes" in host.groups,
        "slurm_exporter": "slurm_controllers" in host.groups
        or _is_switched_off(host, "slurm_exporter"),
        "fabric_exporter": "subnet_managers" in host.groups
        or host.name == host.site.fabric_host
        or _is_switched_off(host, "fabric_exporter"),
    }
    return [role for role, fit in fits.items() if fit and host.says(f"{role}_enabled")]


def asked_monitoring(host: Host) -> list[str]:
    """Return the roles of monitoring_nodes of which the inventory says something.

    What another host may have had is switched off there.
    """
    here = "monitoring_nodes" in host.groups
    roles = ("prometheus", "alertmanager", "grafana")
    return [
        role
        for role in roles
        if host.says(f"{role}_enabled") and (here or _is_switched_off(host, role))
    ]


def _is_switched_off(host: Host, role: str) -> bool:
    """Return whether a host outside the group of the role gets false for it.

    A switch of the command line would be true there all the same.
    """
    return not host.runs_jobs and not host.is_extra(f"{role}_enabled")


def sweeps(host: Host) -> bool:
    """Return whether the host is the one that sweeps the fabric for its metrics."""
    return (
        switched_on(host, "fabric_exporter")
        and host.name == host.site.fabric_host
        and host.site.fabric_kind == "infiniband"
    )


def exporter_inputs(host: Host) -> dict[str, Any]:
    """Return the inputs of a host that publishes its metrics."""
    site = host.site
    # They listen on the address that the plan gives the host, and nowhere else.
    at = {} if host.address is None else {"address": host.address}
    release = str(host.value("dcgm_version") or site.defaults["dcgm_exporter_dcgm_release"])
    given: dict[str, Any] = {
        **{f"{role}_address": address for address in at.values() for role in _LISTENING},
        "dcgm_exporter_host_engine": "{}:{}".format(
            host.value("dcgm_address"), host.value("dcgm_port")
        ),
        "dcgm_exporter_dcgm_release": int(release.split(".", maxsplit=1)[0]),
        "slurm_exporter_accounting": bool(site.groups["slurm_databases"]),
        "fabric_exporter_plan_file": PLAN + "/fabric/cables.json",
        "fabric_exporter_subnet_managers": site.present_groups["subnet_managers"],
        "fabric_exporter_subnet_manager_provider": subnet_manager_provider(host),
        "fabric_exporter_subnet_manager_guids": site.fabric.get("subnet_manager_guids") or [],
        "fabric_exporter_switch_health": site.fabric["switch_health"],
        "fabric_exporter_other_hosts": site.present_groups["subnet_managers"],
        "fabric_exporter_environment": environment(host),
    }
    certificates = {
        role: host.refer(f"{role}_tls", "certificate")
        for role, group in _CERTIFIED.items()
        if (not group or group in host.groups)
        and switched_on(host, role)
        and (host.outline(f"{role}_tls") or {}).get("certificate")
    }
    if certificates:
        given["node_exporter_certificates"] = certificates
    if asks_slurm(host):
        given[_PUBLISHED] = _published_port(host)
    if host.node["mig"]:
        # Slurm numbers the instances, and the exporter the GPUs: a job's name would be at another.
        given["dcgm_exporter_job_mapping"] = False
    if "slurm_exporter" in asked_exporters(host) and "slurm_controllers" not in host.groups:
        given["slurm_exporter_enabled"] = False
    if host.says("fabric_exporter_enabled"):
        # One host sweeps. Where it was another one once, or there is no subnet any more, the
        # collector goes.
        given["fabric_exporter_enabled"] = sweeps(host)
    return given
