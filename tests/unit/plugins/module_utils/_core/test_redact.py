# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is taken out of texts, and what stays."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.redact import Redactor


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("[client.images] key = AQBk1F5nAAAAABAAsecretsecretsecretsec1Q==", "AQBk1F5n"),
        ("key: AQBk1F5nAAAAABAAsecretsecretsecretsec1Q==", "AQBk1F5n"),
        ("StoragePass=hunter2", "hunter2"),
        ("AccountingStoragePass = 'hunter 2'", "hunter 2"),
        ("DB_PASS=hunter2", "hunter2"),
        ("munge key: Zm9vYmFyYmF6cXV4MTIzNDU2", "Zm9vYmFy"),
        ("passwd hunter2", "hunter2"),
        ("munge_key=deadbeef0123456789abcdef", "deadbeef"),
        ("machine nvcr.io login $oauthtoken password nvapi-Abc,1", "nvapi-Abc"),
        ("machine h\n  login me\n  account a\n  password a,hunter2", "hunter2"),
        ("curl --password hunter2 x", "hunter2"),
        ("docker login --registry-token 'hunter 2'", "hunter 2"),
        ("Command '['x', '--api-key', 'hunter2']' failed", "hunter2"),
        ("x --secret to-hunter2", "hunter2"),
        ("redis://:hunter2@h/0", "hunter2"),
        ("https://u:p@hunter2@h/x", "hunter2"),
        ("https://me@example.com:hunter2@h/x", "hunter2"),
    ],
)
def test_whatever_calls_itself_a_secret_is_taken_out(text, secret):
    hidden = Redactor().text(text)
    assert secret not in hidden
    assert "[hidden]" in hidden


def test_of_an_address_the_host_stays():
    hidden = "https://u:[hidden]@h/x@y http://h:80/ http://me@h:80/"
    assert Redactor().text("https://u:p@ss@h/x@y http://h:80/ http://me@h:80/") == hidden


def test_words_that_only_look_like_secrets_stay():
    redactor = Redactor()
    for words in (
        "1980 tokens per second",
        "gpu.power_limit",
        "PKey 0x7fff: full member",
        "key: cable",
        "key=dgx-01/rail3--leaf-01/17",
        "Result=pass, bypass: on",
        "/etc/passwd is owned by root",
        "the token is missing, and no password was given",
        "--token is missing",
        "--ask-password --verbose",
        "--token-file /etc/x --tokens 5",
        "login with password is off",
        "the login was refused: no password",
    ):
        assert redactor.text(words) == words


def test_names_are_taken_out_as_whole_words():
    redactor = Redactor(names=["dgx-01", "dgx-01.example.com", "alice", "al"])
    text = redactor.text("dgx-01 dgx-01.example.com: /home/alice/al, malice, dgx-011, mlx5_0")
    assert text == "[name] [name]: /home/[name]/al, malice, dgx-011, mlx5_0"
