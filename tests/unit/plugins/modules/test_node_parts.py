# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""node_parts: what validation adds to the file of a node, and a replacement takes away."""

from __future__ import annotations

import json

import pytest

from ansible_collections.baremetal.dgx.plugins.modules import node_parts

WHO = "PCI 0000:61:00.0, UUID GPU-51a7ed00-{0}, serial 165000000000{0}"


@pytest.fixture
def parts(run_module, tmp_path):
    path, records = tmp_path / "identities/dgx-07.json", tmp_path / "records.json"

    def run(check=False, seen=None, **params):
        if seen:
            found = [
                {
                    "check": "gpu.identity",
                    "status": "pass",
                    "subject": f"gpu:dgx-07/{slot}",
                    "evidence": [WHO.format(serial)],
                }
                for slot, serial in seen.items()
            ]
            records.write_text(json.dumps({"records": found}))
            params["records_file"] = str(records)
        answer = run_module(node_parts.main, {"path": str(path), **params}, check=check)
        kept = dict(json.loads(path.read_text())) if path.exists() else {}
        return answer, {subject: int(one["serial"][-1]) for subject, one in kept.items()}

    run.path = path
    return run


def test_the_first_in_a_slot_stays_until_it_is_replaced(parts):
    answer, kept = parts(seen={3: 1, 4: 2})
    assert (answer["changed"], kept) == (True, {"gpu:dgx-07/3": 1, "gpu:dgx-07/4": 2})
    answer, kept = parts(seen={3: 9, 4: 2})
    assert (answer["changed"], kept["gpu:dgx-07/3"]) == (False, 1)
    answer, kept = parts(node="dgx-07", replaced=["gpu:3"])
    assert (answer["changed"], kept) == (True, {"gpu:dgx-07/4": 2})
    assert answer["removed"]["gpu:dgx-07/3"]["serial"].endswith("1")
    answer, kept = parts(node="dgx-07", replaced=["gpu:3"])
    assert (answer["changed"], answer["removed"]) == (False, {})
    _answer, kept = parts(seen={3: 9})
    assert kept["gpu:dgx-07/3"] == 9


def test_check_mode_says_what_would_go_and_writes_nothing(parts):
    parts(seen={3: 1})
    answer, kept = parts(check=True, node="dgx-07", replaced=["node"])
    assert (list(answer["removed"]), kept) == (["gpu:dgx-07/3"], {"gpu:dgx-07/3": 1})


def test_without_a_file_there_is_nothing_to_forget(parts):
    answer, _kept = parts(node="dgx-07", replaced=["node"])
    assert (answer["changed"], answer["removed"]) == (False, {})
    assert not parts.path.exists()


def test_what_is_wrong_is_named_and_nothing_is_written(parts, tmp_path):
    parts(seen={3: 1})
    answer, kept = parts(node="dgx-07", replaced=["fan:1"])
    assert "'fan:1' is not a part; write gpu:3" in answer["msg"]
    assert kept == {"gpu:dgx-07/3": 1}
    assert parts(records_file=str(tmp_path / "none.json"))[0]["failed"]
    parts.path.write_text("[]")
    answer, _kept = parts(node="dgx-07", replaced=["gpu:3"])
    assert "is not a mapping" in answer["msg"]
