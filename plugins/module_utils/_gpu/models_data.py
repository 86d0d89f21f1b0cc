# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What GPU models are able to. Literals only; by None, which is not known, nothing is measured.

Type, memory (MiB, 0 for all), SM clock, memory clock, one NVLink (MB/s), PCIe (GT/s), whether the
NVSwitches are on PCIe, source. Of one type with several rows the last one is the usual part.

The links of NVLink 5 are written as 53125 MB/s (NVIDIA Health Validation, GB200 and GB300), and a
B200 reports 50000: the smaller one is asked of all. PCIe is asked of every link up to the root, and
above a GB300 of generation 6 is a root of another generation.
"""

from __future__ import annotations

MODELS: tuple[
    tuple[str, int, int | None, int | None, int | None, float | None, bool | None, str], ...
] = (
    ("a100", 40960, 1410, 1215, 25000, 16.0, True, "sichek, A100-SXM4-40GB"),
    ("a100", 81920, 1410, 1593, 25000, 16.0, True, "sichek, A100-SXM4-80GB"),
    ("h100", 0, 1980, 2619, 26562, 32.0, True, "sichek, H100 SXM5; NVIDIA Health Validation"),
    ("h200", 0, 1980, 3201, 26562, 32.0, True, "sichek, H200 SXM5; NVIDIA Health Validation"),
    ("b200", 0, 1965, 3996, 50000, 32.0, False, "sichek, B200; OCI"),
    ("b300", 0, None, None, 50000, None, False, "NVLink 5 as B200; no public figure of clocks"),
    ("gb200", 0, 2062, 3996, 50000, None, False, "NVIDIA infra-controller; telemetry of others"),
    ("gb300", 0, 2070, 3996, 50000, None, False, "nvidia-smi -q -x of a tray, k8s-test-infra"),
)

# Words that make a type another part: cards for a PCIe slot, and boards of two.
OTHER_PARTS: frozenset[str] = frozenset({"pcie", "nvl", "nvl2", "nvl4"})
