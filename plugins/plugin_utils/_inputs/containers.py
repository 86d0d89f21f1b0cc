# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Inputs of enroot and pyxis. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .host import STATE, Host
from .slurm import is_of_slurm, login_is_configless


def _parts(host: Host) -> list[str]:
    """Return what the host is to pyxis."""
    return [
        *(["controller"] if "slurm_controllers" in host.groups else []),
        *(["compute"] if host.runs_jobs else []),
        *(["login"] if "login_nodes" in host.groups else []),
    ]


def asked_containers(host: Host) -> list[str]:
    """Return the roles that have something to do on this host: absent is to be removed."""
    where = {
        "enroot": host.runs_jobs or "login_nodes" in host.groups,
        "pyxis": bool(_parts(host)),
    }
    return [
        role
        for role, here in where.items()
        if here
        and (host.value(f"{role}_source") != "none" or host.value(f"{role}_state") == "absent")
    ]


def _importer(host: Host) -> str:
    """Return the first host with enroot that has the same images, "" without any."""
    site = host.site

    def images(name: str) -> Any:
        given = site.inventory.hosts[name].get("enroot_images")
        return given.value if given else None

    mine = images(host.name)
    if not mine:
        return ""
    for group in ("login_nodes", "gpu_nodes", "cpu_nodes"):
        for one in site.present_groups[group]:
            other = site.hosts[one]
            wanted = other.value("enroot_source") != "none"
            if wanted and other.value("enroot_state") == "present" and images(one) == mine:
                return one
    return ""


def _users(host: Host) -> Iterator[str]:
    """Yield users of the cluster, since root does not meet faults of permissions."""
    for account in host.site.primary.fields("slurm_controller_accounts", "users", "state"):
        for user in account.get("users", ()):
            one = user if isinstance(user, Mapping) else {"name": user}
            if "absent" not in (account.get("state"), one.get("state")):
                yield one["name"]
    yield "root"


def container_inputs(host: Host) -> dict[str, Any]:
    """Return the inputs of a host for containers."""
    site = host.site
    if not is_of_slurm(host):
        return {}
    primary = site.primary
    plugstack = "slurm_controller_plugstack"
    logins, controllers = site.present_groups["login_nodes"], site.groups["slurm_controllers"]
    configless = bool(primary.value("slurm_controller_configless"))
    return {
        "enroot_prolog": host.runs_jobs,
        "enroot_importer": _importer(host),
        "pyxis_parts": _parts(host),
        "pyxis_holds_files": (host.runs_jobs and not configless)
        or ("login_nodes" in host.groups and not login_is_configless(host)),
        "pyxis_nodes": site.slurm_names,
        "pyxis_configless_logins": [
            name for name in logins if login_is_configless(site.hosts[name])
        ],
        "pyxis_slurm_release": host.refer("slurm_base_version"),
        "pyxis_slurm_source": host.value("slurm_base_source"),
        "pyxis_other_lines": primary.refer(plugstack) if primary.says(plugstack) else [],
        "pyxis_state_dir": STATE + "/pyxis",
        "pyxis_builder": controllers[0],
        "pyxis_submit_host": [*logins, *controllers][0],
        "pyxis_trial_user": next(_users(host)),
    }
