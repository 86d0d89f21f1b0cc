# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._ib import addresses
from ansible_collections.baremetal.dgx.plugins.modules import rail_addresses

# -j -N, then what is asked
IP = """\
#!/bin/sh
case "$3" in
address) exec cat "$(dirname "$0")/address.json" ;;
-4) exec cat "$(dirname "$0")/rule.json" ;;
route) exec cat "$(dirname "$0")/route.json" ;;
*) exit 9 ;;
esac
"""
APPLY = 'echo "$@" >> "$LOG"; cp "$FILES" "$(dirname "$LOG")/address.json"'
RAIL1 = {
    "port": "rail1",
    "address": "172.17.0.1/31",
    "mtu": 4092,
    "source": "172.17.0.1",
    "gateway": "172.17.0.0",
    "table": 1001,
    "routes": [{"to": "172.17.0.0/16", "via": "172.17.0.0"}],
}


@pytest.fixture
def host(run_module, tmp_path, monkeypatch):
    """Runs the module against an `ip` that prints what real ones do; MTU 1500 until applied."""
    sound = (FIXTURES / "ip/address-6.1.json").read_text()
    (tmp_path / "sound.json").write_text(sound)
    (tmp_path / "address.json").write_text(sound.replace('"mtu":4092', '"mtu":1500'))
    for name in ("rule", "route"):
        (tmp_path / f"{name}.json").write_text((FIXTURES / f"ip/{name}.json").read_text())
    (tmp_path / "ip").write_text(IP)
    (tmp_path / "ip").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("FILES", str(tmp_path / "sound.json"))

    def run(check=False, script=APPLY, **params):
        given = {"addresses": [RAIL1], "node": "n", "manager": "networkd", **params}
        if script:
            given["apply"] = ["sh", "-c", script, "sh"]
        return run_module(rail_addresses.main, given, check)

    return run


def log(tmp_path):
    return (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""


def test_what_lacks_is_applied_once(host, tmp_path):
    planned = host(check=True)
    assert (planned["changed"], planned["applied"], log(tmp_path)) == (True, ["rail1"], "")
    answer = host()
    assert (answer["changed"], answer["applied"], log(tmp_path)) == (True, ["rail1"], "rail1\n")
    assert (answer["verdict"], answer["counts"]["pass"]) == ("pass", 5)
    again = host()
    assert (again["changed"], again["applied"], log(tmp_path)) == (False, [], "rail1\n")


def test_without_apply_it_is_a_check(host, tmp_path):
    answer = host(script="")
    assert (answer["failed"], answer["changed"], answer["applied"]) == (True, False, [])
    assert answer["msg"] == (
        "hca:n/rail1 ib.mtu is 1500 bytes (must be == 4092): MTU of rail1; threshold: declared in "
        "the inventory; do: ask networkd; IPoIB has at most the MTU of its multicast group"
    )
    assert "failed" not in host(script="", check=True)
    assert "failed" not in host(script="", fail_on=[])
    assert log(tmp_path) == ""


def test_what_still_lacks_is_left_to_fail_on(host):
    script = 'echo "$@" >> "$LOG"'
    answer = host(script=script, fail_on=[])
    assert (answer["changed"], answer["applied"], len(answer["findings"])) == (True, ["rail1"], 1)
    assert host(script=script)["failed"]


def test_an_ip_that_fails_or_hangs_is_an_error_and_in_a_check_not_measured(
    host, tmp_path, monkeypatch
):
    monkeypatch.setattr(addresses, "_READ_S", 0.3)
    for script, says in (("exec sleep 30", "did not end within"), ("exit 2", "ended with 2")):
        (tmp_path / "ip").write_text(f"#!/bin/sh\n{script}\n")
        answer = host(fail_on=[])
        assert answer["failed"]
        assert says in answer["msg"]
        assert "records" not in answer
        answer = host(script="")
        assert (answer["verdict"], answer["findings"]) == ("not_measured", [])
        assert says in answer["not_measured"][0]
    assert log(tmp_path) == ""


def test_an_apply_that_fails_is_an_error(host):
    answer = host(script="echo no; exit 3", fail_on=[])
    assert (answer["failed"], answer["changed"]) == (True, True)
    assert answer["msg"].endswith("ended with 3: no")


def test_a_table_has_a_source_and_a_gateway(host):
    entry = {"port": "rail1", "address": "172.17.0.1/31", "table": 1001}
    assert "source, gateway" in host(addresses=[entry])["msg"]
