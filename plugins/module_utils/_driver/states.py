# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Answers of nvidia_driver_plan: the packages of a driver, or how a node agrees with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping

from .._core.check_module import result_of
from .._core.names import short_name
from .._core.run import CommandRunner, ToolError
from .._slurm import service
from .judge import agree, gpudirect_way
from .packages import Request, headers_package, select, wants_fabric_manager
from .plan import (
    Consent,
    Seen,
    absent_packages,
    cuda_of,
    exact_version,
    newest_of_all,
    next_step,
    obstacles,
    pin,
    plan,
)
from .read import Places, load, offered, refresh


def in_service(run: CommandRunner) -> str:
    """Return why a job may start on this node, or that it is not known; empty if none can."""
    return service.in_service(run, short_name())


def planned(
    run: CommandRunner, seen: Seen, request: Request, params: Mapping[str, Any], ask: bool
) -> dict[str, Any]:
    """Return the packages and what blocks them; with ask the sources are asked as well."""
    selection = select(seen.system, request, seen.kernel)
    work = plan(seen, request, selection, params["driver"]["extra"])
    consent = Consent(params["reload_allowed"], params["reboot_allowed"])
    if work.changes_driver and seen.loaded:
        seen = replace(seen, in_service=in_service(run))
    findings = obstacles(seen, request, selection, work, consent)
    if ask and not findings and work.missing:
        refresh(run, seen.system, params["sources_file"])
        names = [entry.split("=")[0] for entry in work.present]
        on_offer = offered(run, seen.system, names)
        if not exact_version(seen, request, selection):
            # The next run finds a version installed, and must write the same pin.
            request = replace(request, newest=newest_of_all(request, selection, on_offer))
            work = plan(seen, request, selection, params["driver"]["extra"])
        wanted = [entry for entry in work.present if entry.split("=")[0] in work.missing]
        headers = headers_package(seen.system, seen.kernel)
        findings = obstacles(seen, request, selection, work, consent)
        findings += absent_packages(wanted, on_offer, headers)
    return {
        "present": list(work.present),
        "held": list(work.held),
        "removals": list(work.removals),
        "missing": list(work.missing),
        "stream": selection.stream,
        "pin": pin(seen, request, selection),
        "findings": findings,
    }


def request_of(driver: Mapping[str, Any]) -> Request:
    """Return the driver of the module's option."""
    return Request(
        source=driver["source"],
        branch=driver["branch"],
        version=driver["version"],
        modules=driver["kernel_modules"],
        gpu=driver["gpu"],
        nvswitches=driver["nvswitches"],
        packages=tuple(driver["packages"]),
        parameters=driver["module_options"],
    )


def answer(
    run: CommandRunner, node: str, params: Mapping[str, Any], check_mode: bool
) -> dict[str, Any]:
    """Load, plan or judge; return what the module returns. ToolError for what is in the way."""
    driver, request = params["driver"], request_of(params["driver"])
    result: dict[str, Any] = {"changed": False, "findings": []}
    seen = load(
        run,
        Places(params["sysfs"], params["proc"], params["root"], tuple(params["libraries"])),
    )
    judged = params["state"] == "verified"
    step = next_step(seen)
    if judged:
        records = agree(seen, request, node, params["gpudirect"], params["dcgm"])
        result = result_of(records)
    elif driver["source"] != "preinstalled":
        ask = params["state"] == "offered" and not check_mode
        result.update(planned(run, seen, request, params, ask))
    result.update(
        fabric_manager=wants_fabric_manager(driver["gpu"].lower(), driver["nvswitches"]),
        next_step=step,
        steps=list(seen.steps),
        in_service=in_service(run) if step in ("reload", "reboot") else "",
        loaded=seen.loaded,
        gpudirect=gpudirect_way(seen, params["gpudirect"]),
        cuda=cuda_of(seen.loaded or seen.on_disk or "") or 0,
        system=seen.system,
    )
    if result["findings"] and not judged:
        raise ToolError("\n".join(result["findings"]), **result)
    return result
