# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archive that nodes run: whole, the same for the same files, and able to play roles."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core import lock
from ansible_collections.baremetal.dgx.plugins.module_utils._local.apply import answer
from ansible_collections.baremetal.dgx.plugins.plugin_utils._apply import runtime as made
from ansible_collections.baremetal.dgx.plugins.plugin_utils._apply.runtime import Runtime, runtime
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import (
    collection_root,
)

VALUES = """\
{"all": {"hosts": {"dgx-01": {
"__apply_roles": [],
"__storage_users": [],
"text": !unsafe "{{ 1 + 1 }}",
"ansible_connection": "local",
"ansible_python_interpreter": "{{ ansible_playbook_python }}"
}}}}
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    return runtime(collection_root(), str(tmp_path_factory.mktemp("state")))


def test_it_has_the_roles_and_nothing_compiled(whole: Runtime) -> None:
    with zipfile.ZipFile(io.BytesIO(whole.data)) as archive:
        names = set(archive.namelist())
        about = json.loads(archive.read("manifest.json"))
    inside = "ansible_collections/baremetal/dgx/"
    assert f"{inside}roles/slurm_compute/tasks/main.yml" in names
    assert f"{inside}roles/slurm_compute/files/baremetal_dgx_slurm.cil" in names
    assert f"{inside}playbooks/here/apply.yml" in names
    assert "ansible/cli/playbook.py" in names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]
    assert not [name for name in names if name.startswith((f"{inside}.", f"{inside}tests"))]
    assert about["python"] >= [3, 10]


def test_every_file_of_a_role_is_in_it(whole: Runtime) -> None:
    """A kind of file that is left out would be missed on a node, and there alone."""
    with zipfile.ZipFile(io.BytesIO(whole.data)) as archive:
        names = set(archive.namelist())
    root = Path(collection_root())
    files = {path for path in (root / "roles").rglob("*") if path.is_file()}
    wanted = {
        f"ansible_collections/baremetal/dgx/{path.relative_to(root)}"
        for path in files
        if "tests" not in path.parts and path.suffix != ".md"
    }
    assert wanted - names == set()


def test_it_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "collection"
    (root / "roles/one").mkdir(parents=True)
    (root / "roles/one/main.yml").write_text("[]\n")
    monkeypatch.setattr(made, "_LIBRARIES", {})
    first = runtime(str(root), str(tmp_path / "state"))
    monkeypatch.setattr(made, "archive", lambda *_arguments: pytest.fail("it was made again"))
    assert runtime(str(root), str(tmp_path / "state")) == first
    monkeypatch.undo()
    monkeypatch.setattr(made, "_LIBRARIES", {})
    (root / "roles/one/main.yml").write_text("[x]\n")
    assert runtime(str(root), str(tmp_path / "state")).digest != first.digest
    assert len(list((tmp_path / "state/apply").iterdir())) == 1


def test_a_node_plays_with_it(
    whole: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the Python of this machine, and none of its libraries."""
    monkeypatch.setattr(lock, "_folder", lambda: str(tmp_path))
    values = json.dumps({"inventory": VALUES, "files": {}}).encode()
    parts = {"runtime": whole.data, "values": values}
    head = {
        "digests": {name: hashlib.sha256(data).hexdigest() for name, data in parts.items()},
        "sizes": {name: len(data) for name, data in parts.items()},
        "check": True,
        "limit_s": 300.0,
        "wait_s": 0.0,
    }
    for name in [name for name in os.environ if name.startswith("ANSIBLE_")]:
        monkeypatch.delenv(name)
    stream = io.BytesIO(json.dumps(head).encode() + b"\n" + b"".join(parts.values()))
    reported = answer(stream, str(tmp_path / "apply"))
    assert reported == {"ran": {"ok": 0, "changed": 0, "skipped": 2, "changes": [], "failed": []}}
    # What looks like a template and is none stays as it is.
    folder = next((tmp_path / "apply").glob("runtime-*"))
    play = [
        {
            "hosts": "all",
            "gather_facts": False,
            "tasks": [
                {"ansible.builtin.fail": {"msg": "found {{ text }}"}},
            ],
        }
    ]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    (tmp_path / "inventory.yml").write_text(VALUES)
    done = subprocess.run(
        [sys.executable, "-IS", str(folder), "-i", str(tmp_path / "inventory.yml"),
         str(tmp_path / "play.yml")],
        env={"ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "LC_ALL": "C.UTF-8",
             "ANSIBLE_COLLECTIONS_PATH": str(folder), "HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    reported = json.loads(done.stdout.splitlines()[-1])
    assert reported["failed"][0]["msg"] == "found {{ 1 + 1 }}", done.stderr
