# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What starts the program of a node; ssh itself reads the options."""

from __future__ import annotations

import shlex
import subprocess

from ansible_collections.baremetal.dgx.plugins.plugin_utils._apply.start import start
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.way import Way


def test_the_python_of_the_node_is_started_as_root() -> None:
    words = start(Way(("ssh",), "192.0.2.7", ("sudo", "-n", "--"), "/usr/bin/python3.12"))
    assert words[:3] == ["ssh", "--", "192.0.2.7"]
    assert shlex.split(words[-1])[:5] == ["sudo", "-n", "--", "/usr/bin/python3.12", "-IS"]


def test_only_a_question_takes_the_cheaper_key_exchange() -> None:
    way = Way(("ssh", "-oBatchMode=yes"), "dgx-01", ())
    assert not any("Kex" in word for word in start(way))
    words = start(way, question=True)
    shown = subprocess.run(["ssh", "-G", *words[1:]], capture_output=True, text=True, check=True)
    (offered,) = [line for line in shown.stdout.splitlines() if line.startswith("kexalgorithms ")]
    assert "sntrup" not in offered
    # Nothing is offered that ssh would not offer by itself, as in FIPS mode.
    named = [word for word in words if "Kex" in word]
    assert named
    assert all(word.startswith("KexAlgorithms=-") for word in named)


def test_the_sites_own_key_exchange_comes_first() -> None:
    words = start(Way(("ssh", "-oKexAlgorithms=x"), "dgx-01", ()), question=True)
    assert words.index("-oKexAlgorithms=x") < words.index("KexAlgorithms=-sntrup761*")
