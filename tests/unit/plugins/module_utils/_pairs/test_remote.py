# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command that reaches a node for the pair tests; ssh itself reads it."""

from __future__ import annotations

import subprocess

from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.remote import Ssh


def shown(words: list[str]) -> dict[str, str]:
    """What ssh would do."""
    done = subprocess.run([words[0], "-G", *words[1:]], capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def test_a_node_is_reached_by_its_words_or_by_its_address() -> None:
    target = ["ssh", "-o", 'User="ops"', "-o", "ProxyJump=gate", "--", "192.0.2.7"]
    ssh = Ssh({"dgx-01": target, "dgx-02": "root@192.0.2.8"}, options=("-p", "2222"))
    one, two, three = (shown(ssh.argv(node, "true")) for node in ("dgx-01", "dgx-02", "dgx-03"))
    assert (one["hostname"], one["user"], one["proxyjump"]) == ("192.0.2.7", "ops", "gate")
    assert (two["hostname"], two["user"], two["port"]) == ("192.0.2.8", "root", "2222")
    assert three["hostname"] == "dgx-03"
    for settings in (one, two, three):
        assert (settings["batchmode"], settings["serveraliveinterval"]) == ("yes", "5")
    assert ssh.argv("dgx-01", "a b")[-2:] == ["192.0.2.7", "exec sh -c 'a b'"]
