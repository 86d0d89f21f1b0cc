# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a module in this process, as a target would, and returns what it answers."""

from __future__ import annotations

import contextlib
import json

import pytest
from ansible.module_utils import basic
from redfish_server import PASSWORD, USER, certificate, serving

# models of tools, which the tests beside this file import by name


@pytest.fixture(scope="session")
def module_tmpdir(tmp_path_factory):
    """The folder that Ansible makes for a module and removes; a module's own would stay in /tmp."""
    return str(tmp_path_factory.mktemp("module"))


@pytest.fixture
def run_module(monkeypatch, capsys, module_tmpdir):
    """`run_module(main, params, check=False, diff=True)` → the module's answer as a dict."""

    def run(main, params, check=False, diff=True):
        arguments = {
            **params,
            "_ansible_check_mode": check,
            "_ansible_diff": diff,
            "_ansible_tmpdir": module_tmpdir,
        }
        # core 2.21 and later; older ones always send the options back
        if "inject_invocation" in basic.PASS_VARS:
            arguments["_ansible_inject_invocation"] = True
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


@pytest.fixture(scope="session")
def bmc_tls(tmp_path_factory):
    """The key and the certificate of simulated BMCs, and its fingerprint."""
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def ask_bmcs(run_module, bmc_tls):
    """`ask_bmcs(main, bmcs, each, check=False, **params)`: the BMCs are dgx-01, dgx-02, …

    A BMC is one of redfish_server, which is served meanwhile, or a port.
    """

    def ask(main, bmcs, each=None, check=False, **params):
        key, cert, pin = bmc_tls
        with contextlib.ExitStack() as stack:
            asked = [
                {
                    "node": f"dgx-{number:02d}",
                    "address": "127.0.0.1",
                    "port": bmc
                    if isinstance(bmc, int)
                    else stack.enter_context(serving(bmc, key, cert)),
                    "user": USER,
                    "password": PASSWORD,
                    "certificate": pin,
                    "profile": "dgx_h100",
                    "system": "DGX",
                    **(each or {}),
                }
                for number, bmc in enumerate(bmcs, start=1)
            ]
            return run_module(main, {"bmcs": asked, "fail_on": [], **params}, check)

    return ask
