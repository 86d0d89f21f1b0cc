# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the burn-in's check finds, in figures: single flipped bits, and false alarms.

    python tests/bench/burn_detection.py [--tiles 10000] [--flips 10000] [--n 64] [--seed 1]

Compiles burn_detection.c, which includes the element functions of the shipped kernels, and prints
the lines of docs/gpu.md. Ends with 1 where a flip is missed or misplaced, or a clean tile is
refused.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "burn_detection.c"


def run(tiles: int, flips: int, n: int, seed: int) -> dict[str, dict[str, int]]:
    """Return the counts of each form: tiles, false_alarms, flips, found, located, bits."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "burn_detection"
        # -ffp-contract=off and no fast maths: sums in one order, as the comparison of bits needs.
        subprocess.run(
            ["gcc", "-std=gnu11", "-O3", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror",
             "-Wno-unused-function", "-o", program, SOURCE, "-lm"],
            check=True,
        )  # fmt: skip
        words = [str(program), *map(str, (seed, tiles, flips, n))]
        made = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    counts = {}
    for line in made.stdout.splitlines():
        form, _space, rest = line.partition(" ")
        counts[form] = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", rest)}
    return counts


def healthy(counts: dict[str, int]) -> bool:
    """Return whether everything was found where it was, and nothing else."""
    flips = counts["flips"]
    return counts["found"] == counts["located"] == flips and not counts["false_alarms"]


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("tiles", 10000), ("flips", 10000), ("n", 64), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    began = time.monotonic()
    counts = run(args.tiles, args.flips, args.n, args.seed)
    for form, one in counts.items():
        print(
            f"{form}: {one['found']}/{one['flips']} flips found, {one['located']} located exactly, "
            f"in all {one['bits']} bit positions; {one['false_alarms']} false alarms in "
            f"{one['tiles']} clean tiles of {args.n} x {args.n}"
        )
    print(f"seed {args.seed}, {time.monotonic() - began:.0f} s")
    return 0 if counts and all(map(healthy, counts.values())) else 1


if __name__ == "__main__":
    sys.exit(main())
