# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ufm_partitions against a model of UFM's REST interface, over TLS."""

from __future__ import annotations

import random
import socket

import pytest
from ufm_server import (
    PASSWORD,
    TOKEN,
    USER,
    UfmModel,
    as_python_3_13,
    certificate,
    plain_authority,
    serving,
)

from ansible_collections.baremetal.dgx.plugins.module_utils._ufm import apply
from ansible_collections.baremetal.dgx.plugins.modules import ufm_partitions

A, B, C = "0xa088c20300e4a1b0", "0xa088c20300e4a1b1", "a088:c203:00e4:a1b2"
WANTED = [{"name": "tenant", "pkey": "0x0010", "full": [A, B], "limited": [C]}]
MEMBERS = {"a088c20300e4a1b0": "full", "a088c20300e4a1b1": "full", "a088c20300e4a1b2": "limited"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def bring(run_module, files, monkeypatch):
    monkeypatch.setattr(apply, "_PAUSE_S", 0.01)

    def bring(model, check=False, **params):
        account = {} if "token" in params else {"username": USER, "password": PASSWORD}
        with serving(model, *files) as url:
            given = {"url": url, "ca_certificate": files[1].read_text(), "wait_s": 1}
            return run_module(ufm_partitions.main, {**given, **account, **params}, check)

    return bring


def test_check_then_real_then_again(bring):
    model = UfmModel()
    predicted = bring(model, check=True, partitions=WANTED)
    assert model.log == []
    done = bring(model, partitions=WANTED)
    assert predicted["requests"] == done["requests"]
    assert predicted["diff"] == done["diff"]
    assert done["changed"]
    assert done["release"] == "6.15.1-4"
    assert model.members("0x10") == MEMBERS
    assert model.partitions["0x10"]["ip_over_ib"] is False
    again = bring(model, partitions=WANTED)
    assert not again["changed"]
    assert again["requests"] == []
    assert again["diff"]["before"] == again["diff"]["after"]


def test_an_access_token_has_paths_of_its_own(bring):
    model = UfmModel()
    assert bring(model, token=TOKEN, partitions=WANTED)["changed"]
    assert model.members("0x10") == MEMBERS


def test_members_leave_with_consent_alone(bring):
    model = UfmModel()
    bring(model, partitions=WANTED)
    model.log.clear()
    fewer = [{"pkey": "0x10", "full": [A], "limited": [B]}]
    refused = bring(model, partitions=fewer)
    assert refused["failed"]
    assert model.log == []
    assert "remove a088c20300e4a1b2" in refused["msg"]
    assert "set a088c20300e4a1b1 limited" in refused["msg"], "a limited member loses the others"
    assert bring(model, partitions=fewer, removal_allowed=True)["changed"]
    assert model.members("0x10") == {"a088c20300e4a1b0": "full", "a088c20300e4a1b1": "limited"}
    assert [method for method, _path in model.log] == ["POST", "DELETE"], "none lost before"


def test_a_partition_goes_with_consent_alone(bring):
    model = UfmModel()
    bring(model, partitions=WANTED)
    gone = [{"pkey": "0x10", "state": "absent"}]
    assert "remove partition 0x10 with 3 members" in bring(model, partitions=gone)["msg"]
    assert bring(model, partitions=gone, removal_allowed=True)["changed"]
    assert set(model.partitions) == {"0x7fff"}
    assert not bring(model, partitions=gone, removal_allowed=True)["changed"]


def test_what_is_not_named_is_left_alone(bring):
    model = UfmModel()
    bring(model, partitions=WANTED)
    bring(model, partitions=[{"pkey": "0x11", "ipoib": True}])
    assert model.members("0x10") == MEMBERS
    assert model.partitions["0x11"]["ip_over_ib"] is True


def test_ipoib_of_a_partition_that_exists_is_refused(bring):
    model = UfmModel()
    bring(model, partitions=WANTED)
    model.log.clear()
    refused = bring(model, partitions=[{**WANTED[0], "ipoib": True}])
    assert "IPoIB off" in refused["msg"]
    assert model.log == []


def test_it_waits_until_ufm_has_it(bring):
    model = UfmModel()
    model.late = 3
    assert bring(model, partitions=WANTED)["changed"]


def test_what_ufm_does_not_take_is_an_error(bring):
    model = UfmModel()
    model.forgets = True
    result = bring(model, partitions=WANTED, wait_s=0)
    assert result["failed"]
    assert "0x10 is missing" in result["msg"]
    assert len(result["requests"]) == 2, "the result lists what was sent"


@pytest.mark.parametrize(
    ("partitions", "words"),
    [
        ([{"pkey": "0x7fff"}], "partitions[0].pkey: 0x7fff; write a PKey from 0x1 to 0x7ffe"),
        ([{"pkey": "tenant"}], "partitions[0].pkey: tenant; write a PKey"),
        # 0x0010 without quotes
        ([{"pkey": 16}], "partitions[0].pkey: 16; write a PKey from 0x1 to 0x7ffe, in quotes"),
        ([{"pkey": "0x10"}, {"pkey": "0x0010"}], "partitions[1].pkey: 0x0010 is written twice"),
        ([{"pkey": "0x10", "full": ["ALL"]}], "partitions[0].full[0]: ALL is not a GUID"),
        ([{"pkey": "0x10", "full": [A], "limited": [A]}], "limited[0]: " + A + " is written twice"),
    ],
)
def test_wrong_partitions(bring, partitions, words):
    model = UfmModel()
    result = bring(model, partitions=partitions)
    assert result["failed"]
    assert words in result["msg"]
    assert model.log == []


def test_all_mistakes_at_once(bring):
    result = bring(UfmModel(), partitions=[{"pkey": "0x0"}, {"pkey": "0x10", "full": ["x", "y"]}])
    assert len(result["msg"].splitlines()) == 3


def test_an_authority_that_python_3_13_refuses_is_named_with_its_remedy(run_module, tmp_path):
    key, cert, authority = plain_authority(tmp_path)
    with as_python_3_13(), serving(UfmModel(), key, cert) as url:
        given = {"url": url, "ca_certificate": authority.read_text(), "token": TOKEN}
        result = run_module(ufm_partitions.main, {**given, "partitions": WANTED})
    assert result["failed"]
    assert "key usage extension" in result["msg"]
    assert "-addext keyUsage=critical,keyCertSign,cRLSign" in result["msg"]


def test_a_wrong_account_is_one_line_without_it(bring):
    result = bring(UfmModel(), password="wrong-word", partitions=WANTED)
    assert result["failed"]
    assert ": 401 " in result["msg"]
    assert "\n" not in result["msg"]
    assert "wrong-word" not in str(result)


def test_an_unknown_authority_is_refused(bring, files, run_module):
    with serving(UfmModel(), *files) as url:
        given = {"url": url, "username": USER, "password": PASSWORD}
        result = run_module(ufm_partitions.main, given, False)
    assert result["failed"]
    assert "certificate" in result["msg"].lower()


@pytest.mark.parametrize(
    "given", [{"password": ""}, {"token": TOKEN, "username": USER, "password": "x"}]
)
def test_one_account_is_needed(bring, given):
    result = bring(UfmModel(), **given)
    assert result["msg"] == "token: no account, or two; write username and password, or token"


def test_clear_text_is_refused(bring):
    result = bring(UfmModel(), url="http://ufm")
    assert result["msg"] == "url: http://ufm; write https://, the account goes with it"


def test_no_ufm_answers(bring):
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    result = bring(UfmModel(), url=f"https://localhost:{port}")
    assert result["failed"]
    assert f"https://localhost:{port}" in result["msg"]


@pytest.mark.parametrize("text", ["<html>log in</html>", "[]", '{"0x10": {"guids": []}}', '"x"'])
def test_another_answer_is_an_error(bring, text):
    model = UfmModel()
    model.answer = text
    result = bring(model, partitions=WANTED)
    assert result["failed"]
    assert model.log == []
    assert "not JSON" in result["msg"] or "not as documented" in result["msg"]


def test_any_state_becomes_any_other(bring):
    """Random partitions before and after; the second run sends nothing."""
    dice = random.Random(16)
    guids = [f"{number:016x}" for number in range(1, 8)]

    def some():
        found = []
        for pkey in dice.sample(["0x2", "0x30", "0x400"], dice.randint(1, 3)):
            members = dice.sample(guids, dice.randint(0, len(guids)))
            cut = dice.randint(0, len(members))
            found.append({"pkey": pkey, "full": members[:cut], "limited": members[cut:]})
        return found

    model = UfmModel()
    for _round in range(12):
        wanted = some()
        bring(model, partitions=wanted, removal_allowed=True)
        for one in wanted:
            full = dict.fromkeys(one["full"], "full")
            assert model.members(one["pkey"]) == {
                **full,
                **dict.fromkeys(one["limited"], "limited"),
            }
        assert not bring(model, partitions=wanted, removal_allowed=True)["changed"]
