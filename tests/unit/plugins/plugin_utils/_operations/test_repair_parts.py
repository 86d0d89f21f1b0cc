# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts as repair knows them: names, histories over hosts, and who is kept out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleLookupError

from ansible_collections.baremetal.dgx.plugins.lookup import incident_table, repair_parts
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import utc_text
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.store import Store
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.book import Book
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.incident import (
    KEPT,
    OPENED,
    Event,
)

GPU = "gpu-01234567-89ab"
SUBJECT = "gpu:dgx-02/3"
FIRST = {"check": "gpu.xid", "subject": SUBJECT, "text": "Xid 79"}
VERDICTS = [{"node": "dgx-02", "verdict": "fail", "first_failing": FIRST}]


def look(home: Path, name: str = "repair_parts", **more: Any) -> Any:
    plugin = (incident_table if name == "incident_table" else repair_parts).LookupModule()
    given = {"verdicts": [], **more}
    plugin.set_options = lambda **_more: None
    plugin.get_option = given.__getitem__
    return plugin.run([str(home)] if name == "incident_table" else ["dgx-01", "dgx-02"], {})


def fail_in(store: Store, node: str) -> None:
    """Let the GPU fail in a host."""
    at = utc_text()
    record = {
        "check": "gpu.xid", "subject": f"gpu:{node}/3", "status": "fail", "text": "Xid 79",
        "at": at, "evidence": ["UUID GPU-01234567-89AB"],
    }  # fmt: skip
    store.add(store.begin("validate_nodes", at), node, "gpu_health", [record], at)


def test_a_part_that_moved_takes_its_history_along(tmp_path):
    store = Store(str(tmp_path / "evidence"))
    fail_in(store, "dgx-02")
    (tmp_path / "identities").mkdir()
    slot = {SUBJECT: {"pci": "1b:00.0", "uuid": GPU, "serial": "1650123"}}
    (tmp_path / "identities/dgx-02.json").write_text(json.dumps(slot))
    (found,) = look(tmp_path, folder=str(tmp_path), verdicts=VERDICTS)
    assert found == {
        "names": {SUBJECT: GPU}, "serials": {SUBJECT: "1650123"}, "offenders": {}, "kept": [],
        "repaired": {},
    }  # fmt: skip
    fail_in(store, "dgx-01")
    (found,) = look(tmp_path, folder=str(tmp_path), verdicts=VERDICTS)
    assert list(found["offenders"]) == [GPU]
    assert "failed 2 times, in dgx-0" in found["offenders"][GPU]


def test_every_host_with_a_part_that_is_to_be_returned_is_kept_out(tmp_path):
    fail_in(Store(str(tmp_path / "evidence")), "dgx-02")
    (tmp_path / "incidents").mkdir()
    Book(str(tmp_path / "incidents")).add([
        Event(1.0, "i-1", "dgx-01", OPENED, check="gpu.xid", subject="gpu:dgx-01/3", part=GPU),
        Event(2.0, "i-1", "dgx-01", KEPT, text="return it", part=GPU),
    ])  # fmt: skip
    (found,) = look(tmp_path, folder=str(tmp_path))
    assert found["kept"] == [{"node": "dgx-02", "part": GPU, "why": "return it"}]
    assert look(tmp_path, "incident_table")[1:] == [
        ["1970-01-01T00:00:01Z", "dgx-01", "gpu.xid", GPU,
         "the operator: return the part, or consent", "", "return it"]
    ]  # fmt: skip


def test_without_a_book_nothing_is_kept_and_a_broken_file_is_named(tmp_path):
    (found,) = look(tmp_path, folder=str(tmp_path))
    assert found == {"names": {}, "serials": {}, "offenders": {}, "kept": [], "repaired": {}}
    assert look(tmp_path, "incident_table") == []
    (tmp_path / "evidence/parts").mkdir(parents=True)
    (tmp_path / "evidence/parts/dgx-02.json").write_text("{")
    with pytest.raises(AnsibleLookupError, match="parts of a node"):
        look(tmp_path, folder=str(tmp_path), verdicts=VERDICTS)
