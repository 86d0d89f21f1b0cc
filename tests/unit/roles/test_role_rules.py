# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each rule is quiet about a good role and names what is wrong with a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest
from role_rules import FILES, PHASES, RULES, Role, roles_of

MAIN = "".join(
    f"- name: Phase\n  ansible.builtin.import_tasks: {phase}.yml\n  tags: [{tags}]\n"
    for phase, tags in {"set_vars": "always", **{p: f"demo, demo_{p}" for p in PHASES[1:]}}.items()
)
SPEC = """
argument_specs:
  main:
    short_description: It is there
    options:
      demo_ports:
        type: list
        elements: int
        default: [22]
        description: Ports, see V(any) | O(demo_name).
      demo_name:
        type: str
        required: true
        description: The name.
"""
README = """# demo

<!-- BEGIN VARIABLES -->

| Variable | Type | Default | Meaning |
| --- | --- | --- | --- |
| `demo_ports` | list of int | `[22]` | Ports, see `any` \\| `demo_name`. |
| `demo_name` | str | required | The name. |

<!-- END VARIABLES -->
"""
VERIFY = """
- name: verify | Ask
  ansible.builtin.command: id {{ demo_name }}
  register: __demo_id
  changed_when: false
"""
SPECS, DEFAULTS, VARS = "meta/argument_specs.yml", "defaults/main.yml", "vars/main.yml"
TASKS, INSTALL, CONF = "tasks/main.yml", "tasks/install.yml", "templates/demo.conf.j2"
GOOD = {
    **dict.fromkeys(FILES, "---\n"),
    "README.md": README,
    DEFAULTS: "# demo_name:\ndemo_ports: [22]\n",
    SPECS: SPEC,
    TASKS: MAIN,
    "tasks/verify.yml": VERIFY,
    CONF: "{{ ansible_managed | comment }}\n{{ demo_ports[0] | default(1) }}\n",
    "templates/demo.sh.j2": "#!/bin/sh\n# Managed by Ansible: baremetal.dgx. Local changes will be"
    " overwritten.\nexit 0\n",
    "templates/demo.key.j2": "{# Nothing but the key may stand here. #}\n{{ demo_name }}\n",
    VARS: "__demo_unit: demo.service\n"
    "__demo_state: \"{{ lookup('baremetal.dgx.json_file', '/a') }}\"\n",
}
# What an internal role beside the good one reads, a task that imports it, and its template.
SHARED = {
    "tasks/install.yml": "- debug: {msg: '{{ _shared_a }}', template: x.j2}\n",
    "templates/x.j2": "{{ _shared_b }} {{ __shared_c }}",
}
TIMER = """
- name: configure | Write the timer
  vars:
    __demo_state: "{{ 'file' if demo_name else 'absent' }}"
    __demo_files:
      - {path: /etc/systemd/system/x.timer, state: "{{ __demo_state }}"}
"""
REFUSE = "- assert: {{that: true}}\n  vars: {{__demo_refusals: {}}}\n"
CALL = "- import_role: {{name: baremetal.dgx._shared, tasks_from: install}}\n  vars: {{{}}}\n"

# rule -> (file, its text instead of the good one or None for no file, what the finding names)
BAD = {
    "files_are_there": [("tasks/verify.yml", None, "tasks/verify.yml is missing")],
    "main_only_imports": [
        (TASKS, MAIN + "\n" * 20, "more than 30 lines"),
        (TASKS, MAIN + "- name: X\n  ansible.builtin.ping:\n", "'X'"),
        (TASKS, MAIN.replace("[demo, demo_install]", "[demo]"), "demo_install"),
        (TASKS, MAIN.replace("always", "demo"), "always"),
        (TASKS, MAIN.replace("service.yml", "verify.yml"), "in order"),
    ],
    "defaults_equal_spec": [
        (DEFAULTS, "demo_ports: [23]\n", "[22]"),
        (DEFAULTS, "demo_ports: ['22']\n", "'22'"),
        (DEFAULTS, "{}\n", "lacks demo_ports"),
        (DEFAULTS, "demo_ports: [22]\ndemo_name: x\n", "demo_name"),
    ],
    "defaults_pass_the_spec": [(DEFAULTS, "demo_ports: [one]\n", "demo_ports")],
    "spec_is_complete": [
        (SPECS, SPEC.replace("elements: int", ""), "elements"),
        (SPECS, SPEC.replace("description: The name.", ""), "demo_name"),
        (SPECS, SPEC.replace("type: str", ""), "no type"),
        (SPECS, SPEC.replace("true", "true\n        default: x"), "yet with a default"),
    ],
    "inputs_carry_the_name": [(SPECS, SPEC.replace("demo_name:", "name:"), "input name")],
    "readme_is_generated": [
        ("README.md", README.replace("int", "str"), "make readmes"),
        ("README.md", "# demo\n", "BEGIN VARIABLES"),
    ],
    "no_forbidden_words": [
        (INSTALL, "- name: x\n  when: hostvars['a'].b\n", "install.yml:2"),
        (VARS, '__demo_first: "{{ groups.all[0] }}"\n', "main.yml:1"),
        (INSTALL, "- ignore_errors: '{{ yes }}'\n", "failed_when"),
        (INSTALL, "- failed_when: " + "false\n", "what a failure is"),
        (INSTALL, "- notify: x\n", "service_sync"),
        (INSTALL, "- command: sh -c 'squeue || true'\n", "a failure is not nothing found"),
        ("templates/a.sh.j2", "squeue || :\n", "a.sh.j2:1"),
        ("handlers/main.yml", "---\n", "service_sync"),
    ],
    "half_an_archive_is_not_final": [
        (INSTALL, "- ansible.builtin.unarchive: {src: a, creates: b/Makefile}\n", ".complete"),
    ],
    "no_task_waits_for_a_mount": [
        (SPECS, SPEC.replace("type: str", "type: path"), "forever if demo_name is on a mount"),
    ],
    "packages_restart_no_daemon": [
        (INSTALL, "- {name: x, apt: {name: a}, environment: {DEBIAN_FRONTEND: a}}\n", "'x'"),
        (INSTALL, "- {name: x, raw: apt-get -y install a}\n", "'x'"),
    ],
    "inputs_have_one_default": [
        (VARS, '__demo_x: "{{ demo_name | default(1) }}"\n', "main.yml:1"),
        ("templates/a.j2", "\n{{ demo_ports |default([]) }}", "a.j2:2"),
    ],
    "commands_say_changed": [(INSTALL, "- block:\n    - {name: x, command: id}\n", "'x'")],
    "templates_are_marked": [
        (CONF, "port = 1\n", "demo.conf.j2"),
        (CONF, "#!/bin/sh\nexit 0\n", "demo.conf.j2"),
    ],
    "vars_hold_no_program": [
        (VARS, '__demo_x: "{% for one in demo_ports %}{% endfor %}"\n', "main.yml:1"),
        (VARS, '__demo_x: "{{ __demo_x_json | from_json }}"\n', "for_each"),
        (VARS, '__demo_x: "{{ (__demo_x_json | from_json) + [] }}"\n', "for_each"),
        (VARS, "__demo_x: \"{{ lookup('file', '/a') | from_json }}\"\n", "json_file"),
        (VARS, "__demo_x:\n  - path: /a\n    content: |\n      a = 1\n", "main.yml:3"),
        (VARS, "__demo_x:\n  - path: /a\n    secret_content: >-\n      a\n", "main.yml:3"),
        (
            "vars/Debian.yml",
            "__demo_x: \"{{ lookup('ansible.builtin.template', 'a') }}\"\n",
            "entry",
        ),
    ],
    "private_names": [
        (VARS, "unit: demo.service\n", "unit"),
        (INSTALL, "- register: _x\n", "_x"),
        (INSTALL, "- loop_control: {loop_var: item}\n", "item"),
        (INSTALL, "- ansible.builtin.set_fact:\n    demo_name: x\n", "demo_name"),
        (INSTALL, "- vars: {x: 1}\n", "x does not"),
    ],
    "line_feeds_are_some": [
        (VARS, "__demo_x: |\n  {{ demo_ports | join('\\n') }}\n", "vars/main.yml"),
        (INSTALL, "- name: x\n  vars: {__demo_x: \"{{ '\\\\n' }}\"}\n", "tasks/install.yml"),
    ],
    "internal_roles_get_what_they_read": [
        (INSTALL, CALL.format("_shared_a: 1"), "does not give _shared_b"),
        (INSTALL, CALL.format("_shared_a: 1, _shared_b: 2, _shared_c: 3"), "gives _shared_c"),
    ],
    "refusals_are_asked_of_the_inventory": [
        (INSTALL, REFUSE.format('"{{ [1] }}"'), "not a list"),
        (
            INSTALL,
            REFUSE.format("[{when: true, say: 'demo_ports: 0 is not a port'}]"),
            "demo_ports: 0",
        ),
        (INSTALL, REFUSE.format("[{when: true, say: 'a port: is wrong; write 22'}]"), "a port"),
        (
            INSTALL,
            REFUSE.format("[{when: false, say: 'demo_name: {{ demo_name.x }} is no; write y'}]"),
            "demo_name.x may be left out",
        ),
        (
            INSTALL,
            "- {name: x, register: __demo_seen, when: demo_name}\n"
            + REFUSE.format(
                "[{when: false, say: 'demo_name: {{ __demo_seen.lines | last | default(1) }}; y'}]"
            ),
            "__demo_seen.lines may be left out",
        ),
    ],
    "timers_are_stopped_before_their_files_go": [
        (
            "tasks/configure.yml",
            TIMER,
            "x.timer is removed before",
        ),
    ],
    "tasks_carry_the_stem": [(INSTALL, "- name: Install it\n", "'install | '")],
}


def make_role(folder: Path, files: dict[str, str | None]) -> Role:
    for name, text in files.items():
        if text is not None:
            path = folder / "demo" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for name, text in SHARED.items():
        path = folder / "_shared" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Role(folder / "demo")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_good_role_passes(rule, tmp_path: Path) -> None:
    assert list(rule(make_role(tmp_path, GOOD))) == []


def test_an_internal_role_declares_what_it_reads(tmp_path: Path) -> None:
    make_role(tmp_path, {})
    role = Role(tmp_path / "_shared")
    rules = {rule.__name__: list(rule(role)) for rule in RULES}
    assert rules["internal_roles_get_what_they_read"] == [
        "_shared_a is not an input",
        "_shared_b is not an input",
    ]
    assert "README.md is missing" in rules["files_are_there"]
    assert "defaults/main.yml is missing" not in rules["files_are_there"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_bad_role_is_found(rule, tmp_path: Path) -> None:
    for number, (path, text, reported) in enumerate(BAD[rule.__name__]):
        findings = list(rule(make_role(tmp_path / str(number), {**GOOD, path: text})))
        assert any(reported in finding for finding in findings), (reported, findings)


def test_roles_are_found_through_imported_playbooks(tmp_path: Path) -> None:
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks/site.yml").write_text(
        "- import_playbook: nodes.yml\n"
        "- hosts: x\n  roles: [baremetal.dgx.a, {role: baremetal.dgx.b}]\n"
    )
    (tmp_path / "playbooks/nodes.yml").write_text(
        "- hosts: x\n  tasks:\n    - block:\n        - ansible.builtin.import_role: {name: c}\n"
        "    - ansible.builtin.include_role: {name: d, tasks_from: verify}\n"
    )
    converge = tmp_path / "converge.yml"
    converge.write_text("- ansible.builtin.import_playbook: baremetal.dgx.site\n")
    assert roles_of(converge, tmp_path) == {"a", "b", "c"}
