# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The folder of the plan that a run makes and reads: the inventory's, or one for its -e values.

A plan that -e has changed must not be read by another run. So .dgx/plan/ is always that of the
inventory's files, and a run with such values has .dgx/extra_plans/DIGEST/, which the same values
lead to again, after it was killed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible.utils.vars import load_extra_vars

from .collect import plain
from .hosts import concerned
from .role_specs import collection_root

# It says where the plans are, and nothing of what is in them.
_PLACE = "cluster_state_dir"
_KEEP_S = 30 * 86400


def _digest(extra: Mapping[str, Any]) -> str:
    """Return a short name for the values; vaulted ones are closed, since no plan has them."""
    values = sorted((name, plain(value, open_vault=False)) for name, value in extra.items())
    text = json.dumps(values, default=lambda _vaulted: "vaulted")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def planned_by(
    extra: Mapping[str, Any], roles: Iterable[str], names: Collection[str] = ()
) -> list[str]:
    """Return the extra variables that change a plan, sorted.

    roles are the names of the collection's roles, names what the inventory's templates refer to.
    """
    return sorted(
        name for name in extra if name != _PLACE and (name in names or concerned(name, roles))
    )


def shared_folder(state_dir: str) -> str:
    """Return the folder of the plan that the inventory's files lead to."""
    return os.path.join(state_dir, "plan")


def state_of(plan_dir: str) -> str:
    """Return the folder of the cluster's state, for the folder of a plan in it."""
    above = os.path.dirname(plan_dir)
    return os.path.dirname(above) if os.path.basename(above) == "extra_plans" else above


def own_folder(state_dir: str, extra: Mapping[str, Any]) -> str:
    """Return the folder of the plan that these extra variables lead to."""
    values = {name: value for name, value in extra.items() if name != _PLACE}
    return os.path.join(state_dir, "extra_plans", _digest(values))


def _remove_unused(folder: str) -> None:
    # Another run may remove it at the same time.
    with contextlib.suppress(FileNotFoundError):
        if os.stat(folder).st_mtime < time.time() - _KEEP_S:
            shutil.rmtree(folder, ignore_errors=True)


def folder_to_write(
    state_dir: str, extra: Mapping[str, Any], roles: Iterable[str], names: Collection[str]
) -> str:
    """Return the folder that the plan goes to; OSError. What has not been used for long goes."""
    own = own_folder(state_dir, extra)
    if not planned_by(extra, roles, names):
        # The inventory referred to one of the values once, and does no longer.
        shutil.rmtree(own, ignore_errors=True)
        return shared_folder(state_dir)
    # A folder's name is made of values, and one of them may be a password.
    os.makedirs(os.path.dirname(own), mode=0o700, exist_ok=True)
    os.makedirs(own, exist_ok=True)
    os.utime(own)
    for name in os.listdir(os.path.dirname(own)):
        _remove_unused(os.path.join(os.path.dirname(own), name))
    return own


def folder_to_read(state_dir: str, extra: Mapping[str, Any], roles: Iterable[str]) -> str:
    """Return the folder that the plan is read from, whether it has been made or not."""
    own = own_folder(state_dir, extra)
    if planned_by(extra, roles) or os.path.isdir(own):
        return own
    return shared_folder(state_dir)


@functools.cache
def _roles() -> tuple[str, ...]:
    return tuple(os.listdir(os.path.join(collection_root(), "roles")))


def folder_of_run(state_dir: str, loader: Any) -> str:
    """Return the folder that the running process reads its plan from."""
    extra = load_extra_vars(loader)
    return folder_to_read(state_dir, extra, _roles()) if extra else shared_folder(state_dir)
