# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies that cannot be restored, or are old, raise their alerts, which clear again.

The whole way is real: restic, the units of the timers, node_exporter, Prometheus and its rules.
The pod's inventory shortens what an alert waits for (`prometheus_rules_wait_factor`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from .conftest import on, playbook
from .copies import HEAD, VALUES, ask, repository
from .test_monitoring import has, wait_for

STORE = "stor-01"
PASSWORD = "/etc/baremetal-dgx/backup/password"
STATUS = "/var/lib/baremetal-dgx/backup/status.json"
FLIP = """
import os, sys
path = sys.argv[1]
data = bytearray(open(path, "rb").read())
data[len(data) // 3] ^= 1
os.chmod(path, 0o600)
open(path, "wb").write(data)
"""
KEEP, REPAIR = "cp -a $COPIES/data /srv/whole", "rm -rf $COPIES/data; mv /srv/whole $COPIES/data"
PACKS = "find $COPIES/data -type f"
# Damage: what does it, what undoes it, and the host. $COPIES is the folder of the repository.
DAMAGES = {
    "flipped bit": (f"{KEEP}; {PACKS} -exec python3 -c '{FLIP}' {{}} ';'", REPAIR, STORE),
    "missing pack": (f"{KEEP}; {PACKS} -delete", REPAIR, STORE),
    "wrong passphrase": (
        f"cp -a {PASSWORD} /root/passphrase; echo another > {PASSWORD}",
        f"mv /root/passphrase {PASSWORD}",
        HEAD,
    ),
}


@pytest.fixture(scope="module", name="copies")
def the_copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Copies that were proved; the repository's folder."""
    with repository(STORE, tmp_path_factory.mktemp("backup")):
        values = yaml.safe_load(VALUES.read_text(encoding="utf-8"))
        for name in ("configure_backup", "back_up", "prove_backup"):
            done = playbook(name, seconds=900)
            assert done.rc == 0, done.why
        yield values["backup_repository"].rpartition(":")[2]


def proof() -> int:
    """Prove the copies as the timer does; return the code of its unit."""
    return on(HEAD, "systemctl start baremetal-dgx-backup-proof.service", 300).returncode


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_repository_raises_its_alert(copies: str, damage: str) -> None:
    does, undoes, host = DAMAGES[damage]
    wait_for(lambda: not has("BackupProofFailed"))
    ask(f"COPIES={copies}; {does}", host)
    try:
        assert proof() != 0
        for kind in ("controller", "database"):
            wait_for(lambda kind=kind: has("BackupProofFailed", kind=kind))
    finally:
        ask(f"COPIES={copies}; {undoes}", host)
    assert proof() == 0
    wait_for(lambda: not has("BackupProofFailed"))


@pytest.mark.usefixtures("copies")
def test_a_proof_of_eight_days_ago_raises_its_alert() -> None:
    wait_for(lambda: not has("BackupUnproven"))
    ask(
        f"python3 - <<'EOF'\nimport json\nwith open({STATUS!r}) as source:\n"
        "    data = json.load(source)\n"
        "for one in data['kinds'].values():\n"
        "    one['proof_timestamp_seconds'] -= 8.1 * 86400\n"
        f"with open({STATUS!r}, 'w') as target:\n    json.dump(data, target)\nEOF\n"
        "systemctl start baremetal-dgx-backup.service",
        seconds=300,
    )
    # Two hours, of which the pod takes the 50th part.
    wait_for(lambda: has("BackupUnproven", kind="database"), 240)
    assert proof() == 0
    wait_for(lambda: not has("BackupUnproven"))
