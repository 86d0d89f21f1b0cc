# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host is reached as Ansible reaches it: ssh reads both commands, and says what it would do."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible import constants, context
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import become_loader, connection_loader
from ansible.utils.context_objects import CLIArgs

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.templates import trusted
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.way import (
    Way,
    WayError,
    Ways,
)

ROOT = Path(__file__).resolve().parents[5]
# Ansible keeps connections, and waits for less; see there.
OURS = (
    "batchmode",
    "numberofpasswordprompts",
    "control",
    "connecttimeout",
    "serveralive",
    "compression",
    "requesttty",
)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the ansible.cfg and the command line of the tests themselves."""
    settings = tmp_path / "ansible.cfg"
    settings.write_text("")
    monkeypatch.setattr(constants.config, "_config_file", str(settings))
    monkeypatch.setattr(constants.config, "_parsers", {})
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({}))


def found(given_values: dict[str, Any], host: str = "dgx-01") -> Way:
    return Ways(DataLoader()).to(host, given_values)


def _shown(words: list[str]) -> dict[str, list[str]]:
    """Return what ssh would do."""
    done = subprocess.run(["ssh", "-G", *words], capture_output=True, text=True, check=True)
    settings: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name, _space, value = line.partition(" ")
        settings.setdefault(name, []).append(value)
    return settings


def ours(given_values: dict[str, Any]) -> dict[str, list[str]]:
    way = found(given_values)
    return _shown([*way.ssh[1:], "--", way.address])


def ansibles(given_values: dict[str, Any]) -> dict[str, list[str]]:
    """Return what Ansible's own connection would do."""
    connection = connection_loader.get("ssh", PlayContext(), "/dev/null")
    keys = {"remote_user": context.CLIARGS.get("remote_user")}
    known = {"inventory_hostname": "dgx-01", **given_values}
    connection.set_options(task_keys=keys, var_options=known)
    words = connection._build_command("ssh", "ssh", connection.get_option("host"))
    return _shown([word.decode() for word in words[1:]])


def both(given_values: dict[str, Any]) -> dict[str, list[str]]:
    mine, its = ours(given_values), ansibles(given_values)
    for name in its.keys() | mine.keys():
        if not name.startswith(OURS):
            assert mine.get(name) == its.get(name), name
    return mine


VARIABLES = [
    ({"ansible_host": "192.0.2.7"}, "hostname", "192.0.2.7"),
    ({"ansible_ssh_host": "192.0.2.8"}, "hostname", "192.0.2.8"),
    ({}, "hostname", "dgx-01"),
    ({"ansible_port": "2222"}, "port", "2222"),
    ({"ansible_ssh_port": 2223}, "port", "2223"),
    ({"ansible_user": "ops"}, "user", "ops"),
    ({"ansible_ssh_user": "ops"}, "user", "ops"),
    ({"ansible_user": "one", "ansible_ssh_user": "two"}, "user", "two"),
    ({"ansible_private_key_file": "/keys/a key"}, "identityfile", "/keys/a key"),
    ({"ansible_ssh_private_key_file": "/keys/b"}, "identityfile", "/keys/b"),
    ({"ansible_ssh_args": "-J gate"}, "proxyjump", "gate"),
    ({"ansible_ssh_common_args": "-J gate"}, "proxyjump", "gate"),
    ({"ansible_ssh_extra_args": "-o 'ProxyCommand nc %h %p'"}, "proxycommand", "nc %h %p"),
    ({"ansible_ssh_args": "-oUser=one", "ansible_ssh_common_args": "-oUser=two"}, "user", "one"),
    ({"ansible_ssh_args": "-oUser=one", "ansible_user": "two"}, "user", "one"),
    ({"ansible_ssh_common_args": "-oPort=1", "ansible_ssh_extra_args": "-oPort=2"}, "port", "1"),
    ({"ansible_port": 22, "ansible_ssh_common_args": "-p 99"}, "port", "22"),
    ({"ansible_ssh_args": "-4 -q"}, "addressfamily", "inet"),
    ({"ansible_host_key_checking": False}, "stricthostkeychecking", "false"),
    ({"ansible_ssh_host_key_checking": "no"}, "stricthostkeychecking", "false"),
    ({"ansible_host_key_checking": True}, "stricthostkeychecking", "ask"),
]
SETTINGS = [
    ("ANSIBLE_REMOTE_PORT", "defaults", "remote_port", "2222", "port", "2222"),
    ("ANSIBLE_REMOTE_USER", "defaults", "remote_user", "ops", "user", "ops"),
    ("ANSIBLE_PRIVATE_KEY_FILE", "defaults", "private_key_file", "/k", "identityfile", "/k"),
    ("ANSIBLE_SSH_ARGS", "ssh_connection", "ssh_args", "-J g", "proxyjump", "g"),
    ("ANSIBLE_SSH_COMMON_ARGS", "ssh_connection", "ssh_common_args", "-J g", "proxyjump", "g"),
    ("ANSIBLE_SSH_EXTRA_ARGS", "ssh_connection", "ssh_extra_args", "-J g", "proxyjump", "g"),
    ("ANSIBLE_HOST_KEY_CHECKING", "defaults", "host_key_checking", "no",
     "stricthostkeychecking", "false"),
    ("ANSIBLE_SSH_HOST_KEY_CHECKING", "ssh_connection", "host_key_checking", "no",
     "stricthostkeychecking", "false"),
]  # fmt: skip
WORDS = [
    ({"remote_user": "ops"}, "user", "ops"),
    ({"private_key_file": "/k"}, "identityfile", "/k"),
    ({"ssh_common_args": "-J gate"}, "proxyjump", "gate"),
    ({"ssh_extra_args": "-J gate"}, "proxyjump", "gate"),
]


@pytest.mark.parametrize(("given_values", "name", "value"), VARIABLES)
def test_each_variable_of_the_inventory(
    given_values: dict[str, Any], name: str, value: str
) -> None:
    assert both(given_values)[name] == [value]


def test_templates_are_filled_in() -> None:
    given_values = {"gate": "g", "ansible_ssh_common_args": trusted("-J {{ gate }}")}
    assert ours(given_values)["proxyjump"] == ["g"]
    assert (
        found({"ansible_host": trusted("{{ inventory_hostname }}.ipmi")}).address == "dgx-01.ipmi"
    )


@pytest.mark.parametrize(("variable", "_section", "_key", "set_to", "name", "value"), SETTINGS)
def test_each_variable_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    _section: str,
    _key: str,
    set_to: str,
    name: str,
    value: str,
) -> None:
    monkeypatch.setenv(variable, set_to)
    assert both({})[name] == [value]


@pytest.mark.parametrize(("_variable", "section", "key", "set_to", "name", "value"), SETTINGS)
def test_each_line_of_the_settings(
    tmp_path: Path, _variable: str, section: str, key: str, set_to: str, name: str, value: str
) -> None:
    (tmp_path / "ansible.cfg").write_text(f"[{section}]\n{key} = {set_to}\n")
    assert both({})[name] == [value]


@pytest.mark.parametrize(("given", "name", "value"), WORDS)
def test_each_word_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], name: str, value: str
) -> None:
    monkeypatch.setattr(context, "CLIARGS", CLIArgs(given))
    assert both({})[name] == [value]


def test_the_inventory_wins_over_the_command_line_and_that_over_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANSIBLE_REMOTE_USER", "three")
    assert both({})["user"] == ["three"]
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({"remote_user": "two"}))
    assert both({})["user"] == ["two"]
    assert both({"ansible_user": "one"})["user"] == ["one"]


def test_ssh_asks_nothing_keeps_nothing_and_gives_up_a_host_that_freezes() -> None:
    own = ours({"ansible_ssh_args": "-o ControlMaster=auto -o ControlPersist=60s"})
    assert own["batchmode"] == ["yes"]
    assert own["controlmaster"] == ["false"]
    assert "controlpath" not in own
    limits = dict(word.split("=") for word in found({}).ssh if word.startswith("ServerAlive"))
    common = (ROOT / "playbooks" / "vars" / "cluster.yml").read_text()
    for name, seconds in limits.items():
        assert own[name.lower()] == [seconds]
        assert f"-o {name}={seconds}" in common, "as in a play"


def test_a_site_waits_as_long_as_it_says_for_a_connection_and_for_answers() -> None:
    given_values = {
        "ansible_ssh_timeout": 40,
        "ansible_ssh_common_args": "-o ServerAliveInterval=7",
    }
    assert ours(given_values)["connecttimeout"] == ["40"]
    assert ours(given_values)["serveraliveinterval"] == ["7"]
    assert ours({})["connecttimeout"] == ["15"]


def test_another_ssh_is_used() -> None:
    assert found({"ansible_ssh_executable": "/opt/ssh"}).ssh[0] == "/opt/ssh"


@pytest.mark.parametrize(
    "given_values",
    [
        {"ansible_become_user": "ops"},
        {"ansible_become_exe": "/opt/sudo"},
        {"ansible_become_flags": "-H -n"},
        {"ansible_sudo_flags": "-H -n"},
        {"ansible_user": "ops"},
        {},
    ],
)
def test_sudo_is_called_as_by_ansible(given_values: dict[str, Any]) -> None:
    sudo = become_loader.get("sudo")
    sudo.set_options(var_options=given_values)
    words = shlex.split(sudo.build_become_command("true", None))
    root = found({"ansible_become": True, **given_values}).root
    assert list(root[:-1]) == words[: len(root) - 1]
    assert root[-1] == "--"


def test_become_comes_from_the_inventory_or_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A template's result may be a text."""
    (tmp_path / "ansible.cfg").write_text("[privilege_escalation]\nbecome = true\n")
    assert found({}).root[0] == "sudo"
    for value in (False, "False", "no", ""):
        assert found({"ansible_become": value}).root == ()
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({"become": False}))
    assert found({}).root == ()
    assert found({"ansible_become": "true"}).root[0] == "sudo"
    words = {"become": True, "become_user": "ops"}
    monkeypatch.setattr(context, "CLIARGS", CLIArgs(words))
    assert found({}).root[-3:] == ("-u", "ops", "--")


def test_root_does_not_become_root(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found({"ansible_become": True, "ansible_user": "root"}).root == ()
    monkeypatch.setenv("ANSIBLE_BECOME_ALLOW_SAME_USER", "true")
    assert found({"ansible_become": True, "ansible_user": "root"}).root[0] == "sudo"


def test_sudo_never_reads_the_program_as_a_password() -> None:
    assert "-n" in found({"ansible_become": True, "ansible_become_flags": "-H -S"}).root


def test_the_python_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found({}).python == found({"ansible_python_interpreter": "auto"}).python == "python3"
    assert found({"ansible_python_interpreter": "/opt/python"}).python == "/opt/python"
    monkeypatch.setenv("ANSIBLE_PYTHON_INTERPRETER", "/env/python")
    assert found({}).python == "/env/python"


PASSWORD = "has a password for SSH"
ASKS = "sudo asks for a password"


@pytest.mark.parametrize(
    ("given_values", "why"),
    [
        ({"ansible_become": True, "ansible_become_password": "x"}, ASKS),
        ({"ansible_become": True, "ansible_become_pass": "x"}, ASKS),
        ({"ansible_become": True, "ansible_become_method": "su"}, "becomes root by su"),
        ({"ansible_password": "x"}, PASSWORD),
        ({"ansible_ssh_pass": "x"}, PASSWORD),
        ({"ansible_ssh_private_key": "x"}, "has its key as a text"),
        ({"ansible_connection": "community.docker.docker"}, "is reached by docker"),
        ({"ansible_host": trusted("{{ unknown }}")}, ".*unknown"),
    ],
)
def test_what_ssh_alone_cannot_do_is_refused_by_name(
    given_values: dict[str, Any], why: str
) -> None:
    if "ansible_ssh_private_key" in given_values and "ansible_private_key" not in (
        constants.config.get_plugin_vars("connection", "ssh")
    ):
        given_values, why = (
            {"ansible_password": "x"},
            PASSWORD,
        )  # up to ansible-core 2.18 there is none
    with pytest.raises(WayError, match=f"^dgx-01: {why}"):
        found(given_values)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"ask_pass": True}, PASSWORD),
        ({"connection_password_file": "/p"}, PASSWORD),
        ({"become": True, "become_ask_pass": True}, ASKS),
        ({"become": True, "become_password_file": "/p"}, ASKS),
        ({"connection": "paramiko"}, "is reached by paramiko"),
        ({"become": True, "become_method": "doas"}, "becomes root by doas"),
    ],
)
def test_so_are_words_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch, words: dict[str, Any], why: str
) -> None:
    monkeypatch.setattr(context, "CLIARGS", CLIArgs(words))
    with pytest.raises(WayError, match=f"^dgx-01: {why}"):
        found({})


def test_a_command_is_run_there_with_all_its_words() -> None:
    way = Way(("ssh", "-x"), "192.0.2.7", ("sudo", "-n", "--"))
    assert way.command(["a b", "c"], ["-y"]) == [
        "ssh", "-x", "-y", "--", "192.0.2.7", "sudo -n -- 'a b' c",
    ]  # fmt: skip
    here = found({"ansible_connection": "local"})
    assert here.command(["a b"]) == ["a b"]


def test_a_script_runs_its_parameter_there(tmp_path: Path) -> None:
    """The stand-in for ssh is a shell, as on the other side."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nprintf "%s\\n" "$1" "$2" "$3"; exec sh -c "$4"\n')
    ssh.chmod(0o700)
    for way, given_values in (
        (Way((str(ssh), "a b"), "host", ("env", "X=1 2")), "a b\n--\nhost\n1 2\n"),
        (Way((), "", ("env", "X=1 2")), "1 2\n"),
        (Way((), "", ()), "\n"),
    ):
        script = tmp_path / "way.sh"
        script.write_text(way.script("2"))
        given = ["sh", str(script), "node", "sh -c 'echo \"$X\"'"]
        done = subprocess.run(given, capture_output=True, text=True, check=True)
        assert done.stdout == given_values
