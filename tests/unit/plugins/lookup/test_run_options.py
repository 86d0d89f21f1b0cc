# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run hands on to another run."""

from __future__ import annotations

from typing import Any

import pytest
from ansible import context
from ansible.cli.adhoc import AdHocCLI
from ansible.cli.playbook import PlaybookCLI
from ansible.errors import AnsibleLookupError
from ansible.utils.context_objects import CLIArgs

from ansible_collections.baremetal.dgx.plugins.lookup.run_options import LookupModule


def handed_on(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    """What a run with these words hands on."""
    cli = PlaybookCLI(["ansible-playbook", *words, "site.yml"])
    cli.init_parser()
    given = cli.post_process_args(cli.parser.parse_args(cli.args[1:]))
    monkeypatch.setattr(context, "CLIARGS", CLIArgs.from_options(given))
    found: list[str] = LookupModule().run([])
    return found


def given_to(cli_of: Any, words: list[str]) -> dict[str, Any]:
    cli = cli_of(["ansible", *words, "all"])
    cli.init_parser()
    return vars(cli.post_process_args(cli.parser.parse_args(cli.args[1:])))


def test_another_run_has_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    words = (
        *("-i", "/srv/a b", "-i", "/srv/more.yml", "-e", "@/srv/vault.yml", "-e", "a=1 b='x y'"),
        *("-b", "--become-user", "root", "--become-password-file", "/srv/sudo", "-u", "admin"),
        *("--private-key", "/srv/key", "--ssh-extra-args=-J jump-01", "-f", "3"),
        *("--ssh-common-args=-o ProxyJump=jump-02", "--vault-id", "site@/srv/vault", "-T", "20"),
        *("--vault-password-file", "/srv/other", "-c", "ssh"),
    )
    words_on = handed_on(monkeypatch, *words)
    first = given_to(PlaybookCLI, [*words])
    for cli in (PlaybookCLI, AdHocCLI):
        again = given_to(cli, words_on)
        names = (first.keys() & again.keys()) - {"args"}
        assert {name for name in names if first[name] != again[name]} == set()


def test_what_is_its_own_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ("--limit", "dgx-01", "--tags", "x", "--check", "--diff", "--start-at-task", "y")
    assert handed_on(monkeypatch, *own) == handed_on(monkeypatch)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-K",), "--ask-become-pass: each step is another run, which cannot ask; write "),
        (("-k",), "--ask-pass: each step"),
        (("-J",), "--ask-vault-pass: each step"),
        (("--vault-id", "site@prompt"), "--vault-id site@prompt: each step is another run"),
    ],
)
def test_what_a_person_is_asked_is_refused(
    words: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AnsibleLookupError) as refused:
        handed_on(monkeypatch, *words)
    assert str(refused.value).startswith(says)
