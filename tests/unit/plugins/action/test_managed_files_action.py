# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""managed_files as a role runs it: what the action plugin renders and reads, the module writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TEMPLATE = """\
{{ ansible_managed | comment }}
# {{ role_word }} {{ own_word | default('none') }}
{% for one in [1, 2] %}
line {{ one }}
{% endfor %}
{{ '\\\\1 \\\\n' }} [x] {"a": true}

"""


def play(folder: Path, files: list[dict[str, Any]], *arguments: str) -> tuple[int, str]:
    """Run a role whose one task has these files; returns the code and what was printed."""
    role = folder / "roles/one"
    (role / "templates/etc").mkdir(parents=True, exist_ok=True)
    (role / "files").mkdir(exist_ok=True)
    (role / "tasks").mkdir(exist_ok=True)
    (role / "templates/etc/a.conf.j2").write_text(TEMPLATE)
    (role / "templates/etc/json.j2").write_text('{"a": {{ [1, 2] | to_json }}}\n')
    (role / "templates/etc/key.j2").write_text("the {{ role_word }} key\n")
    (role / "templates/etc/bad.j2").write_text("{{ unknown_one }}\n")
    (role / "templates/etc/part.j2").write_text("{% include 'etc/json.j2' %}\n")
    (role / "files/script").write_text("#!/bin/sh\necho '{{ raw }}'\n")
    task = {"name": "Write", "baremetal.dgx.managed_files": {"files": files}, "register": "made"}
    compare = {
        "name": "Compare",
        "ansible.builtin.copy": {
            "content": "{{ lookup('ansible.builtin.template', 'etc/a.conf.j2',"
            " template_vars={'own_word': 'mine'}) }}",
            "dest": f"{folder}/by-lookup",
            "mode": "0600",
        },
        "check_mode": False,
    }
    show = {
        "name": "Show",
        "ansible.builtin.copy": {
            "content": "{{ made | to_json }}",
            "dest": f"{folder}/made.json",
            "mode": "0600",
        },
        "check_mode": False,
    }
    (role / "tasks/main.yml").write_text(json.dumps([task, compare, show]))
    (folder / "play.yml").write_text(
        json.dumps(
            [
                {
                    "hosts": "all",
                    "gather_facts": False,
                    "vars": {"role_word": "theirs", "no": False},
                    "roles": ["one"],
                }
            ]
        )
    )
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            "--inventory=here,",
            "--connection=local",
            f"--extra-vars=ansible_python_interpreter={sys.executable}",
            *arguments,
            str(folder / "play.yml"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_NOCOLOR": "1"},
        cwd=folder,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def result(folder: Path) -> dict[str, Any]:
    """What the task returned."""
    found: dict[str, Any] = json.loads((folder / "made.json").read_text())
    return found


def test_entries_are_rendered_read_and_written(tmp_path: Path) -> None:
    files = [
        {
            "path": f"{tmp_path}/a.conf",
            "template": "etc/a.conf.j2",
            "vars": {"own_word": "mine"},
            "mode": "0640",
        },
        {"path": f"{tmp_path}/json", "template": "etc/json.j2"},
        {"path": f"{tmp_path}/part", "template": "etc/part.j2"},
        {"path": f"{tmp_path}/script", "source": "script", "mode": "0755"},
        {"path": f"{tmp_path}/plain", "content": "as ever\n"},
        {"path": f"{tmp_path}/left-out", "template": "etc/no.j2", "when": "{{ no }}"},
        {"path": f"{tmp_path}/gone", "template": "etc/bad.j2", "state": "absent"},
        {"path": f"{tmp_path}/key", "template": "etc/key.j2", "secret": True},
    ]
    # In check mode first: nothing is written, and the diff has all but the secret.
    code, text = play(tmp_path, files, "--check", "--diff")
    assert code == 0, text
    assert not (tmp_path / "a.conf").exists()
    assert "+# theirs mine" in text
    assert text.count('+{"a": [1, 2]}') == 2
    assert "the theirs key" not in text
    code, text = play(tmp_path, files, "-vvv")
    assert code == 0, text
    assert "the theirs key" not in text
    assert (tmp_path / "a.conf").read_bytes() == (tmp_path / "by-lookup").read_bytes()
    assert "\n\\1 \\n [x] " in (tmp_path / "a.conf").read_text()
    assert (tmp_path / "a.conf").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "json").read_text() == '{"a": [1, 2]}\n'
    assert (tmp_path / "part").read_text() == '{"a": [1, 2]}\n'
    assert (tmp_path / "script").read_text() == "#!/bin/sh\necho '{{ raw }}'\n"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert result(tmp_path)["changed_paths"] == [
        f"{tmp_path}/{name}" for name in ("a.conf", "json", "part", "script", "plain", "key")
    ]
    assert play(tmp_path, files)[0] == 0
    assert result(tmp_path)["changed"] is False


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (
            {"template": "etc/no.conf.j2"},
            "/x: there is no file {0}/roles/one/templates/etc/no.conf.j2",
        ),
        ({"source": "no"}, "/x: there is no file {0}/roles/one/files/no"),
        ({"template": "etc/a.conf.j2", "content": "b"}, "/x: has template and content; give one"),
        ({"template": "etc/bad.j2"}, "'unknown_one' is undefined"),
        ({"template": "etc/a.conf.j2", "when": "perhaps"}, "/x: when is 'perhaps'; write true or"),
        ({"state": "nothing"}, "value of state must be one of: file, directory, absent, link"),
        ("a word", "dictionary requested"),
    ],
)
def test_a_mistake_is_one_line_with_the_path(tmp_path: Path, entry: Any, says: str) -> None:
    files = [{"path": "/x", **entry} if isinstance(entry, dict) else entry]
    code, text = play(tmp_path, files, "--check")
    assert code == 2, text
    assert says.format(tmp_path) in text, text
