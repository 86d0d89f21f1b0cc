# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replaces the get-pip script that ansible-test would download.

It is all that ansible-test takes from outside PyPI; Python's own ensurepip does the same offline.
"""

from __future__ import annotations

import subprocess
import sys

# The two that only the real script knows.
ARGUMENTS = [word for word in sys.argv[1:] if word not in ("--no-setuptools", "--no-wheel")]

subprocess.check_call([sys.executable, "-m", "ensurepip", "--default-pip"])
subprocess.check_call([sys.executable, "-m", "pip", "install", *ARGUMENTS])
