# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role would fetch is read from its own tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader

from ansible_collections.baremetal.dgx.plugins.plugin_utils._mirror.fetched import (
    Download,
    Reader,
    Wanted,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._mirror.platforms import PLATFORMS

DEBIAN = "/etc/apt/sources.list.d/debian.sources"
Read = Callable[..., Wanted]


@pytest.fixture(name="read")
def _read(tmp_path: Path) -> Read:
    def read(
        files: Mapping[str, str],
        variables: Mapping[str, Any] | None = None,
        roles: tuple[str, ...] = ("one",),
        platform: str = "debian-13",
    ) -> Wanted:
        for name, text in files.items():
            path = tmp_path / "roles" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        reader = Reader(DataLoader(), str(tmp_path), {"one_packages": ["a"]})
        return reader.wanted(roles, variables or {}, {}, PLATFORMS[platform])

    return read


INSTALL = """
- name: Install
  baremetal.dgx.system_packages:
    present: "{{ one_packages + __one_packages + __more }}"
  when: one_enabled | default(true)
  vars: {__more: [c]}
"""
BASE = {
    "one/tasks/install.yml": INSTALL,
    "one/vars/Debian.yml": "__one_packages: ['b={{ ansible_facts.distribution_release }}']\n",
    "one/vars/RedHat.yml": "__one_packages: [rpm]\n",
}


def test_packages_are_those_of_the_task_on_that_system(read: Read) -> None:
    assert read(BASE).packages == {"a": {"one"}, "b=trixie": {"one"}, "c": {"one"}}
    assert set(read(BASE, platform="rocky-9").packages) == {"a", "rpm", "c"}
    assert set(read(BASE, {"one_packages": ["x"]}).packages) == {"x", "b=trixie", "c"}
    assert read(BASE, {"one_enabled": False}).packages == {}
    assert read(BASE, roles=("cephfs_admin",)).packages == {}


def test_a_condition_that_the_node_decides_counts_as_true(read: Read) -> None:
    text = INSTALL.replace("one_enabled | default(true)", "__seen.rc != 0")
    assert "a" in read({**BASE, "one/tasks/install.yml": text}).packages


def test_packages_that_the_node_decides_are_a_problem(read: Read) -> None:
    text = INSTALL.replace("[c]", '"{{ __seen.stdout_lines }}"')
    (line,) = read({**BASE, "one/tasks/install.yml": text}).problems
    assert line.startswith("one: 'Install' fetches what is not known: ")


def test_tasks_of_other_files_and_roles_are_read_with_their_variables(read: Read) -> None:
    wanted = read(
        {
            "one/tasks/install.yml": """
- block:
    - ansible.builtin.include_tasks: more.yml
      when: true
    - ansible.builtin.import_role: {name: baremetal.dgx.shared, tasks_from: install}
      vars: {_shared_packages: "{{ __one_own }}"}
  when: one_on
""",
            "one/tasks/more.yml": "- ansible.builtin.apt: {name: [more]}\n",
            "one/vars/main.yml": "__one_own: [mine]\n",
            "shared/vars/main.yml": "_shared_packages: [shared]\n",
            "shared/tasks/install.yml": (
                "- baremetal.dgx.system_packages: {present: '{{ _shared_packages }}'}\n"
            ),
        },
        {"one_on": True},
    )
    assert wanted.packages == {"more": {"one"}, "mine": {"one"}}


def test_files_behind_urls_have_checksums_and_places(read: Read) -> None:
    text = """
- ansible.builtin.get_url:
    url: "{{ __file.url }}"
    dest: "/opt/{{ __file.url | basename }}"
    checksum: "sha256:{{ __file.sha256 }}"
  loop: "{{ one_urls }}"
  loop_control: {loop_var: __file}
"""
    urls = [{"url": "https://example.org/a.tar", "sha256": "12"}]
    wanted = read({"one/tasks/install.yml": text}, {"one_urls": urls})
    assert wanted.downloads == {Download("https://example.org/a.tar", "12", "/opt/a.tar", "one")}
    key = Download("https://example.org/k", "1", "/usr/share/keyrings/k.asc", "one")
    assert key.is_key
    assert not Download("https://example.org/k", "1", "/opt/k.asc", "one").is_key


def test_sources_are_rendered_and_those_that_a_role_removes_are_gone(read: Read) -> None:
    files = {
        "one/tasks/install.yml": """
- baremetal.dgx.managed_files:
    files: "{{ __files }}"
  vars:
    __files:
      - {path: /etc/apt/sources.list.d/debian.sources, state: absent}
      - {path: /etc/apt/sources.list.d/one.sources, template: one.sources.j2}
      - {path: /etc/apt/preferences.d/one, content: "Pin: x\\n"}
      - {path: /etc/apt/apt.conf.d/90own, content: "the proxy of nodes"}
""",
        "one/tasks/configure.yml": """
- baremetal.dgx.managed_files:
    files: [{path: /etc/apt/sources.list.d/secret, content: "{{ a_secret_that_is_made }}"}]
""",
        "one/templates/one.sources.j2": "URIs: {{ one_uri }}\n",
    }
    wanted = read(files, {"one_uri": "https://example.org"})
    assert wanted.problems == set()
    assert wanted.files == {
        "/etc/apt/sources.list.d/one.sources": "URIs: https://example.org\n",
        "/etc/apt/preferences.d/one": "Pin: x\n",
    }
    assert set(read({"one/tasks/install.yml": "[]"}).files) == {DEBIAN}


def test_folders_and_images_of_the_site_are_named(read: Read) -> None:
    wanted = read(
        {
            "one/tasks/install.yml": """
- baremetal.dgx.local_repository: {path: /mnt/p, sha256: ab, destination: /var/lib/x}
- baremetal.dgx.local_repository:
    {path: /var/lib/baremetal-dgx/packages/fetched, sha256: ab, destination: /var/lib/y}
- ansible.builtin.command: {argv: [podman, pull, "example.org/i@sha256:1"]}
- ansible.builtin.command: {argv: [uname, -r]}
- ansible.builtin.command: uname -r
""",
            "one/tasks/service.yml": (
                "- baremetal.dgx.enroot_images: {images: [{name: a, uri: 'docker://a'}]}\n"
            ),
        }
    )
    fetched = "/var/lib/baremetal-dgx/packages/fetched"
    assert wanted.folders == {
        place: {"path": path, "sha256": "ab", "manifest": "", "role": "one"}
        for place, path in (("/var/lib/x", "/mnt/p"), ("/var/lib/y", fetched))
    }
    assert wanted.images == {"docker://example.org/i@sha256:1": {"one"}, "docker://a": {"one"}}
