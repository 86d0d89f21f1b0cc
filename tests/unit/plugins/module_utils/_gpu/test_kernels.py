# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The PTX that is shipped is what the source gives, and what every supported driver can load."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys

import pytest
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu import kernels

SOURCE = ROOT / "plugins" / "module_utils" / "_gpu" / "kernels.cu"


def test_made_from_this_source():
    """Needs no compiler: a source that was changed without making the text again is found."""
    assert hashlib.sha256(SOURCE.read_bytes()).hexdigest() == kernels.SOURCE_SHA256
    assert SOURCE.with_suffix(".ptx").read_text() == kernels.PTX


def test_every_kernel_is_there():
    wanted = set(re.findall(r"^KERNEL (\w+)\(", SOURCE.read_text(), re.MULTILINE))
    assert wanted == set(re.findall(r"\.visible \.entry (\w+)\(", kernels.PTX))
    assert len(wanted) == 12


def test_old_drivers_take_it():
    """PTX 8.0 came with driver 525; compute_80 is the oldest GPU with bf16."""
    assert kernels.PTX.startswith(".version 8.0\n.target sm_80\n")


def test_the_pinned_compiler_gives_the_same():
    made = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "burn_kernels.py"), "--check"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if made.returncode == 77:
        pytest.skip(made.stdout.strip())
    assert made.returncode == 0, made.stdout
