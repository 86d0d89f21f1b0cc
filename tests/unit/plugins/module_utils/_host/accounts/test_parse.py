# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._host.accounts.parse import (
    KEYS_HEADER,
    GroupEntry,
    UserEntry,
    count_keys,
    key_identity,
    merge_keys,
    parse_group,
    parse_passwd,
    parse_shadow,
)

# Random bytes in the form of a key; there is no other half.
BODY_A = "AAAAC3NzaC1lZDI1NTE5AAAAIE/wwyhpHlXOwCL0FJc6Vap9x15wHpJmqNXVxMOMv8kJ"
BODY_B = "AAAAC3NzaC1lZDI1NTE5AAAAIDRNHqD//7uK6zEJnWmzwM4pWLFTD2J4vDR3ltkM/gFh"
A = f"ssh-ed25519 {BODY_A} alice"
B = f"ssh-ed25519 {BODY_B} bob"


def test_parse_passwd():
    text = "root:x:0:0:root:/root:/bin/bash\n# note\nbroken:x:1\n"
    text += "alice:x:2001:2001:A,,:/home/a:/bin/sh\n"
    assert parse_passwd(text) == {
        "root": UserEntry("root", 0, 0, "root", "/root", "/bin/bash"),
        "alice": UserEntry("alice", 2001, 2001, "A,,", "/home/a", "/bin/sh"),
    }


def test_parse_passwd_keeps_the_first_of_a_name_as_libc_does():
    text = "a:x:1:1::/:/x\na:x:2:2::/:/x\n"
    assert parse_passwd(text)["a"].uid == 1


def test_parse_group():
    text = "wheel:x:10:bob,alice\nempty:x:11:\n+::::\n"
    assert parse_group(text) == {
        "wheel": GroupEntry("wheel", 10, ("alice", "bob")),
        "empty": GroupEntry("empty", 11, ()),
    }


def test_parse_shadow():
    assert parse_shadow("alice:$6$a$b:1:0:\nbob:!:1\n\n") == {"alice": "$6$a$b", "bob": "!"}


@pytest.mark.parametrize(
    ("line", "body"),
    [
        (A, BODY_A),
        (f"  {A}", BODY_A),
        (f'from="10.0.0.0/8",command="echo a b" {A}', BODY_A),
        (f"# {A}", None),
        ("", None),
        ("ssh-ed25519", None),
        ("ssh-ed25519 !!!notbase64 x", None),
        # the body of another type of key
        (f"ssh-rsa {BODY_A} alice", None),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", None),
        ("ssh-ed25519 AAAA", None),
    ],
)
def test_key_identity(line, body):
    assert key_identity(line) == body


def test_merge_keys_appends_and_keeps_the_rest():
    assert merge_keys(f"# mine\n{B}\n", [A], False) == f"# mine\n{B}\n{A}\n"


def test_merge_keys_changes_nothing_that_is_there():
    for text in (f"{A}\n", A, f"# x\n{A}\n{B}\n"):
        assert merge_keys(text, [A], False) is text


def test_merge_keys_replaces_the_same_key_with_other_options():
    old = f"no-pty ssh-ed25519 {BODY_A} old"
    assert merge_keys(f"{old}\n{B}\n", [A], False) == f"{A}\n{B}\n"


def test_merge_keys_drops_a_second_copy():
    assert merge_keys(f"{A}\n{B}\nssh-ed25519 {BODY_A} again\n", [A], False) == f"{A}\n{B}\n"


def test_merge_keys_exclusive_is_the_whole_file():
    text = merge_keys(f"{B}\n", [A], True)
    assert text == f"{KEYS_HEADER}\n{A}\n"
    assert merge_keys(text, [A], True) == text


def test_count_keys():
    assert count_keys(f"# {A}\n{A}\n\n{B}\nnonsense\n") == 2


# str.splitlines ends a line there as well; passwd(5) and sshd end one with a line feed alone.
ENDS = ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\r"]


@pytest.mark.parametrize("end", ENDS)
def test_what_a_user_writes_ends_no_line(end):
    """The GECOS field is the user's to write, with chfn(1)."""
    text = f"alice:x:2001:2001:A,{end},,:/home/alice:/bin/sh\nbob:x:2002:2002::/home/bob:/bin/sh\n"
    assert parse_passwd(text)["alice"].comment == f"A,{end},,"
    assert set(parse_passwd(text)) == {"alice", "bob"}
    assert parse_group(f"a{end}b:x:10:alice\n") == {
        f"a{end}b": GroupEntry(f"a{end}b", 10, ("alice",))
    }
    assert parse_shadow(f"alice:$6$a${end}root:!:1\n") == {"alice": f"$6$a${end}root"}


@pytest.mark.parametrize("end", ENDS)
def test_a_comment_holds_no_key(end):
    text = f"# old{end}{A}\n{B}\n"
    assert count_keys(text) == 1
    assert merge_keys(text, [B], False) is text
    assert merge_keys(text, [A], False) == f"{text}{A}\n"
    assert merge_keys(text[:-1], [A], False) == f"{text}{A}\n"
    assert merge_keys("", [A], False) == f"{A}\n"
