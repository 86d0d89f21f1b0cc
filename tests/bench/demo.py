# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long `make demo` takes: the first time from a fresh clone, and the second time.

Clones this checkout's last commit into its own folder, so that no tools are there yet (the
host's cache of packages in /var/cache stays), runs `make demo` twice with `make demo-down` between,
and prints minutes, with the phases that the demo itself names. The machine should do nothing else;
its load is printed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PHASE = re.compile(r"^  (\S.*?)\s+(\d+\.\d) s$", re.MULTILINE)


def demo(clone: Path) -> tuple[float, list[tuple[str, float]]]:
    """Run `make demo`; returns minutes, and the phases with theirs."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    started = time.monotonic()
    done = subprocess.run(
        ["make", "demo"],
        cwd=clone,
        env=keep,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    took = (time.monotonic() - started) / 60
    if done.returncode:
        sys.exit(f"make demo ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return took, [(name, float(seconds) / 60) for name, seconds in PHASE.findall(done.stdout)]


def main() -> None:
    """Measure and print."""
    print(f"{os.cpu_count()} cores, load before {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory(prefix="bench-demo-") as folder:
        clone = Path(folder) / "dgx"
        subprocess.run(["git", "clone", "-q", str(CHECKOUT), str(clone)], check=True)
        try:
            for title in ("from a fresh clone", "the second time"):
                minutes, phases = demo(clone)
                print(f"make demo, {title}: {minutes:.1f} min", flush=True)
                for name, part in phases:
                    print(f"  {name.ljust(40)} {part:5.1f} min")
                subprocess.run(["make", "-s", "demo-down"], cwd=clone, check=True)
        finally:
            subprocess.run(
                [clone / "virtual_pod" / "pod", "down", "--force"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
            )  # fmt: skip


if __name__ == "__main__":
    main()
