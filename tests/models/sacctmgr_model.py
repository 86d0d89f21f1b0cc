# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model of slurmdbd behind sacctmgr, with the rules that were seen with 22.05 and 24.11."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.baremetal.dgx.plugins.module_utils._accounting import (
    parse as accounting,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._accounting import qos, values
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ENDED, CommandResult

_FIELDS = {
    "qos": {item.keyword: item for item in qos.FIELDS},
    "assoc": {item.keyword: item for item in accounting.FIELDS},
}


# As `sacctmgr show config` prints it, shortened.
CONFIG = """\
Configuration data as of 2026-11-29T07:00:00
AccountingStorageHost  = head-01
AccountingStorageType  = accounting_storage/slurmdbd
SLURM_VERSION          = 24.11.5

SlurmDBD configuration:
MessageTimeout         = 10 secs
Parameters             = {parameters}
PidFile                = /run/slurmdbd/slurmdbd.pid
"""


class RefusedError(Exception):
    """What sacctmgr says when it does nothing."""


class Sacctmgr:
    """Runs `sacctmgr` and `squeue` words against a database of one cluster."""

    def __init__(
        self, cluster: str = "dgx", drops_records: bool = True, parameters: str = "(null)"
    ) -> None:
        self.cluster, self.parameters = cluster, parameters
        # 24.11 drops a user's record with the last association, 22.05 keeps it
        self.drops_records = drops_records
        self.clusters: set[str] = set()
        self.qos: dict[str, dict[str, Any]] = {"normal": self._blank(qos.FIELDS)}
        self.accounts: dict[str, tuple[str, str]] = {"root": ("default root account", "root")}
        self.users: dict[str, str] = {"root": "Administrator"}
        self.defaults: dict[str, str] = {}
        # (account, user or "") → settings; the parent of an account is kept apart
        self.assocs: dict[tuple[str, str], dict[str, Any]] = {}
        self.parents: dict[str, str] = {}
        self.queue: list[str] = []
        self.log: list[str] = []

    @staticmethod
    def _blank(fields):
        return {item.option: values.empty(item) for item in fields}

    def __call__(self, argv, timeout_s=30, env=None):
        words = list(argv)
        try:
            if words[0] == "squeue":
                out = "\n".join(self.queue)
            elif words[:2] == ["scontrol", "show"]:
                out = ""
            elif words[1:] == ["show", "config"]:
                out = CONFIG.format(parameters=self.parameters)
            elif words[1] == "-nP":
                out = self._show(words[3], words[4:])
            else:
                self.log.append(" ".join(words[2:]))
                out = self._change(words[2:])
        except RefusedError as error:
            return CommandResult(tuple(words), ENDED, 1, "", f" {error}")
        return CommandResult(tuple(words), ENDED, 0, out)

    def _show(self, entity, words):
        columns = words[-1].split("=", 1)[1].split(",")
        rows = getattr(self, f"_rows_{entity}")()
        return "\n".join("|".join(row.get(column, "") for column in columns) for row in rows)

    def _rows_cluster(self):
        return [{"cluster": name} for name in sorted(self.clusters)]

    def _rows_account(self):
        return [
            {"account": name, "descr": texts[0], "org": texts[1]}
            for name, texts in self.accounts.items()
        ]

    def _rows_user(self):
        return [
            {"user": name, "adminlevel": level, "defaultaccount": self.defaults.get(name, "")}
            for name, level in self.users.items()
        ]

    def _rows_qos(self):
        return [
            {"name": name, **self._cells(qos.FIELDS, settings)}
            for name, settings in self.qos.items()
        ]

    def _rows_assoc(self):
        return [
            {
                "cluster": self.cluster,
                "account": account,
                "user": user,
                "parentname": "" if user else self.parents.get(account, ""),
                **self._cells(accounting.FIELDS, settings),
            }
            for (account, user), settings in self.assocs.items()
        ]

    @staticmethod
    def _cells(fields, settings):
        cells = {}
        for item in fields:
            value = settings[item.option]
            text = "" if value is None else values.format_value(item, value)
            cells[item.column] = text
        return cells

    def _change(self, words):
        verb, entity, *rest = words
        conditions = dict(
            w.split("=", 1) for w in rest if "=" in w and not self._after_set(rest, w)
        )
        assigned = [w.split("=", 1) for w in rest if "=" in w and self._after_set(rest, w)]
        method = getattr(self, f"_{verb}_{entity}")
        if entity == "user" and "preservecaseuser" not in self.parameters.lower():
            # By sacctmgr itself, as slurmdbd has it do.
            conditions["name"] = conditions["name"].lower()
        if verb == "add":
            names = conditions.pop("name", None) or rest[0]
            method(names.split(","), conditions)
        elif verb == "modify":
            method(conditions, assigned)
        else:
            method(conditions)
        return " Done"

    @staticmethod
    def _after_set(words, word):
        return "set" in words and words.index(word) > words.index("set")

    def _assign(self, kind, settings, pairs):
        for keyword, text in pairs:
            item = _FIELDS[kind][keyword]
            if item.kind == values.TRES:
                given = dict(part.split("=", 1) for part in text.split(","))
                merged = {**settings[item.option], **given}
                settings[item.option] = values.canonical_tres(merged)
            elif text == item.clear:
                settings[item.option] = values.empty(item)
            else:
                settings[item.option] = values.parse_cell(item, text)

    def _add_cluster(self, names, _conditions):
        self.clusters |= set(names)
        blank = self._blank(accounting.FIELDS)
        self.assocs[("root", "")] = {**blank, "qos": frozenset(["normal"])}
        self.assocs[("root", "root")] = dict(blank)
        self.defaults["root"] = "root"

    def _add_qos(self, names, conditions):
        for name in names:
            if name in self.qos:
                raise RefusedError("Nothing new added.")
            self.qos[name] = {**self._blank(qos.FIELDS), "description": name}
            self._assign("qos", self.qos[name], conditions.items())

    def _modify_qos(self, conditions, pairs):
        if conditions["name"] not in self.qos:
            raise RefusedError("Nothing modified")
        self._assign("qos", self.qos[conditions["name"]], pairs)
        for name, settings in self.qos.items():
            if any(name in self.qos[other]["preempt"] for other in settings["preempt"]):
                raise RefusedError("QOS Preemption loop detected")

    def _delete_qos(self, conditions):
        del self.qos[conditions["name"]]
        for settings in self.qos.values():
            settings["preempt"] -= {conditions["name"]}

    def _add_account(self, names, conditions):
        texts = [conditions.pop("description", None), conditions.pop("organization", None)]
        parent = conditions.pop("parent")
        assert conditions.pop("cluster") == self.cluster
        if (parent, "") not in self.assocs:
            raise RefusedError(f"Parent account {parent} does not exist")
        for name in names:
            if (name, "") in self.assocs:
                raise RefusedError("Nothing new added.")
            self.accounts.setdefault(name, (texts[0] or name, texts[1] or parent))
            self.assocs[(name, "")] = self._blank(accounting.FIELDS)
            self.parents[name] = parent
            self._assign("assoc", self.assocs[(name, "")], conditions.items())

    def _modify_account(self, conditions, pairs):
        name = conditions["name"]
        for keyword, text in list(pairs):
            if keyword == "parent":
                way = text
                while way in self.parents:
                    assert way != name, "an account was moved below itself"
                    way = self.parents[way]
                self.parents[name] = text
            elif keyword in ("description", "organization"):
                texts = list(self.accounts[name])
                texts[keyword == "organization"] = text
                self.accounts[name] = tuple(texts)
            else:
                self._assign("assoc", self.assocs[(name, "")], [(keyword, text)])

    def _add_user(self, names, conditions):
        account = conditions.pop("account")
        assert conditions.pop("cluster") == self.cluster
        for name in names:
            if (account, "") not in self.assocs or (account, name) in self.assocs:
                raise RefusedError("Nothing new added.")
            self.users.setdefault(name, "None")
            self.assocs[(account, name)] = self._blank(accounting.FIELDS)
            self.defaults.setdefault(name, account)
            self._assign("assoc", self.assocs[(account, name)], conditions.items())

    def _modify_user(self, conditions, pairs):
        for name in conditions["name"].split(","):
            self._modify_one_user(name, conditions, pairs)

    def _modify_one_user(self, name, conditions, pairs):
        if name not in self.users:
            raise RefusedError("Nothing modified")
        for keyword, text in pairs:
            if keyword == "adminlevel":
                self.users[name] = text.capitalize()
            elif keyword == "defaultaccount":
                if (text, name) not in self.assocs:
                    raise RefusedError("no association with that account")
                self.defaults[name] = text
            else:
                self._assign("assoc", self.assocs[(conditions["account"], name)], [(keyword, text)])

    def _delete_user(self, conditions):
        for name in conditions["name"].split(","):
            self._delete_one_user(name, conditions)

    def _delete_one_user(self, name, conditions):
        if name not in self.users:
            raise RefusedError("Nothing deleted")
        if "account" in conditions:
            others = [a for a, user in self.assocs if user == name and a != conditions["account"]]
            if others and self.defaults[name] == conditions["account"]:
                raise RefusedError("You can not remove the default account of a user")
            del self.assocs[(conditions["account"], name)]
            if others or not self.drops_records:
                if not others:
                    del self.defaults[name]
                return
        for key in [key for key in self.assocs if key[1] == name]:
            del self.assocs[key]
        self.defaults.pop(name, None)
        del self.users[name]

    def _delete_account(self, conditions):
        name = conditions["name"]
        # 24.11 does it, and then slurmdbd loops forever
        assert name not in self.parents.values(), f"{name} was removed before what is below it"
        assert not [key for key in self.assocs if key[0] == name and key[1]], "users were left"
        self.assocs.pop((name, ""), None)
        self.parents.pop(name, None)
        if "cluster" not in conditions:
            del self.accounts[name]

    def tree(self):
        """Account → parent, and account → sorted members."""
        members: dict[str, list[str]] = {}
        for account, user in self.assocs:
            members.setdefault(account, [])
            if user:
                members[account].append(user)
        return dict(self.parents), {name: sorted(users) for name, users in members.items()}

    def commands(self, pattern):
        """The commands run so far that match."""
        return [line for line in self.log if re.search(pattern, line)]
