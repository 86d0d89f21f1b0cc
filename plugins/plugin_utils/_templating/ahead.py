# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The plugins that nearly every task needs, loaded once instead of once a task and host.

Ansible forks a process for every task and host. What that process imports is gone with it, but what
the process above has imported is there in all of them.
"""

from __future__ import annotations

import functools
import multiprocessing

from ansible.plugins.loader import action_loader, filter_loader, lookup_loader, test_loader

# One name is enough of filters and tests: Ansible loads all of a collection's together.
_FILTERS = ("ansible.builtin.bool", "baremetal.dgx.for_each")
_TESTS = ("ansible.builtin.match",)


@functools.cache
def load_ahead() -> None:
    """Load them, in the process that forks; in a fork it would be too late to help."""
    if multiprocessing.parent_process() is not None:
        return
    for name in _FILTERS:
        filter_loader.get(name)
    for name in _TESTS:
        test_loader.get(name)
    # What runs the modules that have no action plugin, and what every connection is made with.
    action_loader.get("ansible.builtin.normal", class_only=True)
    lookup_loader.get("baremetal.dgx.ssh_arguments", class_only=True)
