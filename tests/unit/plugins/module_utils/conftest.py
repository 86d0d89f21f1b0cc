# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import sys
from pathlib import Path

# what several tests beside this file build on, and import by name
sys.path.insert(0, str(Path(__file__).parent))
