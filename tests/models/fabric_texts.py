# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of the InfiniBand tools, as the files of tests/unit/fixtures have them.

Those of rdma-core 44 are of one fabric: two leaves and two nodes.
"""

from __future__ import annotations

import re
from collections import Counter

from checkout import FIXTURES


def fixture(name: str) -> str:
    """Return a text; one of a terminal's log with the ends of lines that a terminal writes."""
    text = (FIXTURES / name).read_text(encoding="utf-8")
    return text.replace("\n", "\r\n") if name.endswith("-terminal.txt") else text


DISCOVERY = fixture("ibnetdiscover/rdma-core-44.txt")
ROWS = fixture("ibnetdiscover/rdma-core-44-ports.txt")
DUPLICATE = fixture("ibnetdiscover/duplicate-guid.stderr")
SILENT = fixture("ibnetdiscover/silent-port.stderr")
STATES = fixture("iblinkinfo/rdma-core-44.txt")
ERRORS = fixture("ibqueryerrors/rdma-core-44.txt")
GREETING = fixture("ibqueryerrors/ibsim.stderr")
UNREAD = fixture("ibqueryerrors/unread-port.stderr")
SMINFO = fixture("sminfo/master.txt")
STANDBY = fixture("sminfo/standby.txt")
SAQUERY = fixture("saquery/rdma-core-44.txt")


def counted(svg: str) -> Counter[str]:
    """Return how many cells of each class a picture has; five are of the legend."""
    return Counter(re.findall(r'<rect class="([^"]*)"', svg))
