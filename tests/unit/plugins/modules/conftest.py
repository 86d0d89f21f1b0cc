# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a module in this process, as a target would, and returns what it answers."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils import basic

# models of tools, which the tests beside this file import by name


@pytest.fixture
def run_module(monkeypatch, capsys):
    """`run_module(main, params, check=False, diff=True)` → the module's answer as a dict."""

    def run(main, params, check=False, diff=True):
        arguments = {**params, "_ansible_check_mode": check, "_ansible_diff": diff}
        encoded = json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", encoded)
        # core 2.19 and later
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        # in this process AnsibleModule takes itself for the controller and displays its warnings
        warnings: list[str] = []
        monkeypatch.setattr(basic.AnsibleModule, "warn", lambda _self, text: warnings.append(text))
        capsys.readouterr()
        with pytest.raises(SystemExit):
            main()
        return {**json.loads(capsys.readouterr().out), "warnings": warnings}

    return run
