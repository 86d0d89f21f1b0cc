# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""How Ansible reaches a host over SSH, for what starts a program on many hosts without Ansible.

Ansible's own definitions of its plugins ssh and sudo say which variables, words of the command
line, environment variables and lines of ansible.cfg there are, and which of them wins.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible import constants, context
from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.loader import become_loader, connection_loader

from .collect import plain
from .templates import templar

_SSH, _SUDO = ("connection", "ssh"), ("become", "sudo")
_OPTIONS = (
    "host",
    "host_key_checking",
    "password",
    "port",
    "private_key",
    "private_key_file",
    "remote_user",
    "ssh_args",
    "ssh_common_args",
    "ssh_executable",
    "ssh_extra_args",
    "timeout",
)
# ssh asks no question that a program cannot answer, and keeps no connection.
_FIRST = ("-T", "-o", "BatchMode=yes", "-o", "ControlMaster=no", "-o", "ControlPath=none")
# As playbooks/vars/cluster.yml has it: a node that freezes answers TCP and nothing else.
_LAST = ("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4")
# Ansible's 10 are for some connections at a time.
_CONNECT_S = 15
_KEY_ONLY = (
    "KbdInteractiveAuthentication=no",
    "PreferredAuthentications=gssapi-with-mic,gssapi-keyex,hostbased,publickey",
    "PasswordAuthentication=no",
)
# Keywords of plays, which the command line sets for all of them.
_KEYWORDS = ("remote_user", "become_user")


class WayError(Exception):
    """A way that ssh alone cannot go; `str` is one line."""


@dataclass(frozen=True)
class Way:
    """The words of ssh, without the address for the control machine itself, and of sudo."""

    ssh: tuple[str, ...]
    address: str
    root: tuple[str, ...]
    python: str = "python3"
    # As whom ssh logs in there; empty where ssh itself chooses.
    user: str = ""

    def command(self, words: Sequence[str], options: Iterable[str] = ()) -> list[str]:
        """Return what runs the words there as root; the site's options of ssh win over these."""
        there = [*self.root, *words]
        return [*self.ssh, *options, "--", self.address, shlex.join(there)] if self.ssh else there

    def script(self, parameter: str) -> str:
        """Return the line of a shell that runs there, as root, what a parameter of it holds."""
        words = [*self.ssh, "--", self.address] if self.ssh else ["sh", "-c"]
        before = shlex.join([*self.root, ""])[:-2] if self.root else ""
        return f'exec {shlex.join(words)} {shlex.quote(before)}"${parameter}"\n'


class Ways:
    """Finds the way to one host after the other; by_key leaves passwords and sudo aside."""

    def __init__(self, loader: Any, *, by_key: bool = False) -> None:
        self._by_key = by_key
        connection_loader.get("ssh", class_only=True)
        become_loader.get("sudo", class_only=True)
        self._templar = templar(loader)
        self._variables = {
            "ansible_connection",
            "ansible_become",
            "ansible_become_method",
            "ansible_python_interpreter",
            *constants.config.get_plugin_vars(*_SSH),
            *constants.config.get_plugin_vars(*_SUDO),
        }
        given = {name: context.CLIARGS.get(name) for name in _KEYWORDS}
        self._keywords = {name: value for name, value in given.items() if value is not None}

    def to(self, host: str, variables: Mapping[str, Any]) -> Way:
        """Return the way to a host with these variables of the inventory. WayError."""
        self._templar.available_variables = {"inventory_hostname": host, **variables}
        try:
            values = {
                name: plain(self._templar.template(value), open_vault=True)
                for name, value in self._templar.available_variables.items()
                if name in self._variables
            }
            return self._way(host, values)
        except AnsibleError as error:
            raise WayError(f"{host}: {' '.join(str(error).split())[:200]}") from error

    def _way(self, host: str, values: Mapping[str, Any]) -> Way:
        connection = values.get("ansible_connection") or context.CLIARGS.get("connection")
        connection = _short(connection or constants.config.get_config_value("DEFAULT_TRANSPORT"))
        python = constants.config.get_config_value("INTERPRETER_PYTHON", variables=dict(values))
        python = python if python.startswith("/") else "python3"
        if connection == "local":
            return Way((), "", self._root(host, values, ""), python)
        if connection not in ("ssh", "smart"):
            raise WayError(f"{host}: is reached by {connection}, and this engine knows ssh alone")
        known = constants.config.get_configuration_definitions(*_SSH)
        ssh = {name: self._option(_SSH, name, values) for name in _OPTIONS if name in known}
        user = ssh["remote_user"] or ""
        asked = context.CLIARGS.get("ask_pass") or context.CLIARGS.get("connection_password_file")
        if (ssh["password"] or asked) and not self._by_key:
            raise WayError(f"{host}: has a password for SSH, and this engine logs in by key")
        if ssh.get("private_key"):
            raise WayError(
                f"{host}: has its key as a text, and this engine takes ansible_private_key_file"
            )
        words = [*_FIRST, *shlex.split(ssh["ssh_args"] or "")]
        options = [] if ssh["host_key_checking"] else ["StrictHostKeyChecking=no"]
        options += [f"Port={ssh['port']}"] if ssh["port"] else []
        if ssh["private_key_file"]:
            options.append(f'IdentityFile="{os.path.expanduser(ssh["private_key_file"])}"')
        options += _KEY_ONLY
        options += [f'User="{user}"'] if user else []
        options.append(f"ConnectTimeout={max(ssh['timeout'], _CONNECT_S)}")
        # In Ansible's order: ssh takes the first value that it is given.
        words += [word for option in options for word in ("-o", option)]
        for name in ("ssh_common_args", "ssh_extra_args"):
            words += shlex.split(ssh[name] or "")
        return Way(
            (os.path.expanduser(ssh["ssh_executable"]), *words, *_LAST),
            ssh["host"],
            self._root(host, values, user),
            python,
            user,
        )

    def _option(self, plugin: tuple[str, str], name: str, values: Mapping[str, Any]) -> Any:
        """Return the value of an option. Ansible's own ssh_args are for connections it keeps."""
        kind, of = plugin
        value, origin = constants.config.get_config_value_and_origin(
            name, plugin_type=kind, plugin_name=of, keys=self._keywords, variables=dict(values)
        )
        return "" if (name, origin) == ("ssh_args", "default") else value

    def _root(self, host: str, values: Mapping[str, Any], user: str) -> tuple[str, ...]:
        """Return the words that make a command root's; none where the user is root already."""
        become = values.get("ansible_become", context.CLIARGS.get("become"))
        if become is None:
            become = constants.config.get_config_value("DEFAULT_BECOME")
        if self._by_key or not become or not boolean(become, strict=False):
            return ()
        method = values.get("ansible_become_method") or context.CLIARGS.get("become_method")
        method = _short(method or constants.config.get_config_value("DEFAULT_BECOME_METHOD"))
        if method != "sudo":
            raise WayError(f"{host}: becomes root by {method}, and this engine knows sudo alone")
        sudo = {
            name: self._option(_SUDO, name, values)
            for name in ("become_user", "become_exe", "become_flags", "become_pass")
        }
        asked = context.CLIARGS.get("become_ask_pass") or context.CLIARGS.get(
            "become_password_file"
        )
        if sudo["become_pass"] or asked:
            raise WayError(f"{host}: sudo asks for a password, and this engine gives none")
        if sudo["become_user"] == user and not constants.config.get_config_value(
            "BECOME_ALLOW_SAME_USER"
        ):
            return ()
        flags = shlex.split(sudo["become_flags"] or "")
        # Without -n it would read the program as a password.
        flags += [] if "-n" in flags else ["-n"]
        return (sudo["become_exe"] or "sudo", *flags, "-u", sudo["become_user"] or "root", "--")


def _short(name: str) -> str:
    return str(name).rpartition(".")[2]
