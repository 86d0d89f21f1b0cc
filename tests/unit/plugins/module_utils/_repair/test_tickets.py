# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tickets at a real HTTP receiver, a mail server and a command: each at least once, none twice."""

from __future__ import annotations

import json
import socketserver
import ssl
import sys
import threading
import time
from pathlib import Path

import pytest
from ticket_receiver import kill_many, story
from ticket_server import KEY, Receiver
from ufm_server import as_python_3_13, plain_authority

from ansible_collections.baremetal.dgx.plugins.module_utils._core.redact import Redactor
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.fleet import (
    incidents_data,
    rma_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.incident import (
    CLOSED,
    Event,
    fold,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.send import send_all
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.tickets import tickets_of

STATES = ["opened", "person", "return", "closed"]


def sent(folder: Path, hook: dict, events: list[Event], known: bool = True) -> dict:
    """Send to a hook that was there before the incidents, unless `known` is false."""
    if known:
        send_all(str(folder), [hook], [], "alpha", Redactor())
    return send_all(str(folder), [hook], events, "alpha", Redactor())["tracker"]


def lines(number: int = 1) -> list[Event]:
    return story(number, time.time() + 60)


def test_each_state_is_one_ticket_with_a_signature(tmp_path):
    with Receiver(tmp_path) as receiver:
        reported = sent(tmp_path, receiver.hook(), lines())
        again = sent(tmp_path, receiver.hook(), lines())
    assert reported["sent"] == [f"dgx-01-story/{state}" for state in STATES]
    assert (reported["waiting"], reported["why"], again["sent"]) == ([], "", [])
    assert [key for key, _body in receiver.requests] == reported["sent"]
    ticket = json.loads(receiver.tickets["dgx-01-story/return"])
    assert (ticket["node"], ticket["slot"], ticket["category"]) == ("dgx-01", "3", "GPU")
    assert [(one["step"], one["outcome"]) for one in ticket["tried"]] == [
        ("reboot", "done"), ("power_cycle", "not_measured")
    ]  # fmt: skip
    assert "Return of a part: GPU in slot 3\nNode: dgx-01\n" in ticket["rma"]
    assert KEY not in (tmp_path / "tickets.jsonl").read_text()


def test_a_ticket_has_the_history_of_its_part_over_hosts():
    events = [*lines(1), *lines(4)]
    last = [one for one in tickets_of(events) if one.state == "return"][-1]
    assert [(one.node, one.how) for one in last.earlier] == [("dgx-01", "the node left Slurm")]
    # What happens later changes no ticket that was sent.
    whole = {one.key: one for one in tickets_of(events)}
    for count in range(len(events)):
        assert all(whole[one.key] == one for one in tickets_of(events[:count]))


def test_of_a_part_that_fails_a_thousand_times_the_latest_incidents_count():
    events = [line for number in range(0, 3000, 3) for line in story(number, 0.0)]
    last = tickets_of(events)[-1]
    wanted = [f"dgx-{number:02}" for number in range(2937, 2997, 3)]
    assert [one.node for one in last.earlier] == wanted
    data = incidents_data(fold(events), 9000.0, 1e9, "alpha")
    assert max(len(one["history"]) for one in data["incidents"]) == len(wanted)
    assert [one["node"] for one in data["incidents"][-1]["history"]] == wanted
    open_ones = fold([line for line in events if line.what != CLOSED])
    assert rma_of(open_ones)["dgx-2997-story"].count("gpu.xid: Xid 79") == len(wanted)


def test_a_state_that_comes_again_has_a_key_of_its_own():
    events = lines()
    keys = [one.key for one in tickets_of([*events[:5], events[3], *events[5:]])]
    assert keys[1:3] == ["dgx-01-story/person", "dgx-01-story/person-2"]


def test_what_is_not_taken_waits_and_nothing_overtakes_it(tmp_path):
    with Receiver(tmp_path) as receiver:
        receiver.answer = 500
        reported = sent(tmp_path, receiver.hook(), lines())
        assert (reported["sent"], reported["why"]) == ([], "it answers with 500")
        assert len(receiver.requests) == 1
        receiver.answer = 200
        assert sent(tmp_path, receiver.hook(), lines())["waiting"] == []
    assert list(receiver.tickets) == [f"dgx-01-story/{state}" for state in STATES]


def test_a_ticket_that_is_refused_for_good_is_named_and_holds_up_no_other(tmp_path):
    with Receiver(tmp_path) as receiver:
        receiver.answer_to = {"opened": 413}
        for taken in (["person", "return", "closed"], []):
            reported = sent(tmp_path, receiver.hook(), lines())
            assert reported["sent"] == [f"dgx-01-story/{state}" for state in taken]
            assert reported["waiting"] == ["dgx-01-story/opened"]
            assert reported["why"] == "dgx-01-story/opened: it answers with 413"
        receiver.answer_to = {}
        assert sent(tmp_path, receiver.hook(), lines())["waiting"] == []


@pytest.mark.parametrize("answer", [408, 429])
def test_what_is_refused_for_now_is_overtaken_by_nothing(tmp_path, answer):
    with Receiver(tmp_path) as receiver:
        receiver.answer_to = {"opened": answer}
        assert sent(tmp_path, receiver.hook(), lines())["sent"] == []


def test_a_receiver_that_refuses_all_slowly_costs_about_its_timeout(tmp_path):
    with Receiver(tmp_path) as receiver:
        receiver.answer, receiver.wait_s = 403, 0.8
        assert len(sent(tmp_path, receiver.hook(timeout_s=1.5), lines())["waiting"]) == 4
        assert len(receiver.requests) < 4


@pytest.mark.parametrize(
    ("answer", "why"),
    [(409, ""), (302, "it answers with 302"), (403, "dgx-01-story/opened: it answers with 403")],
)
def test_what_the_receiver_knows_is_sent_and_a_redirection_is_not_followed(tmp_path, answer, why):
    with Receiver(tmp_path) as receiver:
        receiver.answer = answer
        assert sent(tmp_path, receiver.hook(), lines())["why"] == why


def test_a_receiver_that_hangs_costs_its_timeout_once(tmp_path):
    with Receiver(tmp_path) as receiver:
        receiver.wait_s = 30
        began = time.monotonic()
        reported = sent(tmp_path, receiver.hook(timeout_s=0.3), lines())
    assert "timed out" in reported["why"]
    assert len(reported["waiting"]) == 4
    assert time.monotonic() - began < 10


def test_no_receiver_and_a_key_that_others_read(tmp_path):
    with Receiver(tmp_path) as receiver:
        hook = receiver.hook()
        receiver.secret.chmod(0o644)
        assert "others may read it; chmod 600 it" in sent(tmp_path, hook, lines())["why"]
        receiver.secret.chmod(0o600)
    assert "refused" in sent(tmp_path, hook, lines())["why"]


@pytest.mark.parametrize(("named", "is_sent"), [(True, True), (False, False)])
def test_an_authority_that_the_site_names_counts_in_each_python(tmp_path, named, is_sent):
    key, cert, authority = plain_authority(tmp_path)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(cert, key)
    with Receiver(tmp_path) as receiver:
        receiver.server.socket = served.wrap_socket(
            receiver.server.socket, server_side=True, do_handshake_on_connect=False
        )
        url = receiver.url.replace("http://127.0.0.1", "https://localhost")
        hook = receiver.hook(url=url, ca_file=str(authority) if named else "")
        with as_python_3_13():
            reported = sent(tmp_path, hook, lines())
    assert bool(reported["sent"]) is is_sent
    assert ("certificate verify failed" in reported["why"]) is not is_sent


def test_a_new_hook_is_told_nothing_of_what_is_over(tmp_path):
    old = story(1, 1_700_000_000.0)
    with Receiver(tmp_path) as receiver:
        reported = sent(
            tmp_path, receiver.hook(), [*old, *story(2, 1_700_000_000.0)[:4]], known=False
        )
    assert reported["sent"] == ["dgx-02-story/opened", "dgx-02-story/person"]


def test_a_hook_that_a_clock_ahead_has_begun_gets_what_ends(tmp_path, monkeypatch):
    with Receiver(tmp_path) as receiver:
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: 2_500_000_000.0)
            send_all(str(tmp_path), [receiver.hook()], [], "alpha", Redactor())
        assert sent(tmp_path, receiver.hook(), lines())["sent"] == [
            f"dgx-01-story/{state}" for state in STATES
        ]


def test_a_command_gets_a_file_and_secrets_are_taken_out(tmp_path):
    program = tmp_path / "tell"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        f"open({str(tmp_path / 'told')!r}, 'a').write(open(os.environ['TICKET_FILE']).read())\n"
        "sys.exit(os.environ['TICKET_KEY'].endswith('person'))\n"
    )
    program.chmod(0o755)
    with Receiver(tmp_path) as receiver:
        hook = receiver.hook(kind="command", secret_file="", command=[str(program), "x"])
    send_all(str(tmp_path), [hook], [], "alpha", Redactor())
    reported = send_all(str(tmp_path), [hook], lines(), "alpha", Redactor(["Xid 79"]))["tracker"]
    assert reported["sent"] == ["dgx-01-story/opened"]
    assert "ended with 1" in reported["why"]
    assert '"text": "[hidden]"' in (tmp_path / "told").read_text()


def mailed(
    tmp_path: Path,
    taken: list[str],
    refused: str = "no state",
    answers: dict[str, str] | None = None,
) -> dict:
    """Send to a mail server, which refuses the text of tickets with this state.

    `answers` has its replies to commands, by how these begin.
    """

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            data = False
            for raw in self.rfile:
                line = raw.decode().rstrip("\r\n")
                answer = next((text for word, text in given.items() if line.startswith(word)), "")
                if data:
                    taken.append(line)
                    data = line != "."
                    if not data:
                        about = next(one for one in reversed(taken) if one.startswith("Subject: "))
                        good = not about.endswith(refused)
                        self.wfile.write(b"250 taken\r\n" if good else b"554 spam\r\n")
                elif answer:
                    self.wfile.write(f"{answer}\r\n".encode())
                elif line.upper() == "DATA":
                    data = True
                    self.wfile.write(b"354 go on\r\n")
                else:
                    self.wfile.write(b"221 bye\r\n" if line.upper() == "QUIT" else b"250 ok\r\n")

    given = answers or {}
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with Receiver(tmp_path) as receiver:
            hook = receiver.hook(
                kind="mail", secret_file="", server="127.0.0.1", port=server.server_address[1],
                tls="none", sender="dgx@example.com",
                recipients=["ops@example.com", "chief@example.com"],
            )  # fmt: skip
        reported = sent(tmp_path, hook, lines()[:4])
        server.shutdown()
    return reported


def test_a_mail_that_is_refused_for_good_holds_up_no_other(tmp_path):
    reported = mailed(tmp_path, [], refused="opened")
    assert reported["sent"] == ["dgx-01-story/person"]
    assert reported["why"].startswith("dgx-01-story/opened: (554, ")


OPS, CHIEF = "rcpt TO:<ops@", "rcpt TO:<chief@"
GONE, FULL = "550 5.1.1 no such user", "452 4.2.2 mailbox full"


@pytest.mark.parametrize("answer", [GONE, FULL])
def test_a_mail_that_one_recipient_refuses_is_sent_once(tmp_path, answer):
    taken: list[str] = []
    reported = mailed(tmp_path, taken, answers={CHIEF: answer})
    assert reported["sent"] == ["dgx-01-story/opened", "dgx-01-story/person"]
    assert reported["why"] == (
        "dgx-01-story/opened: it refuses chief@example.com; the others have it"
    )
    again = mailed(tmp_path, taken, answers={CHIEF: answer})
    assert (again["sent"], again["why"]) == ([], "")
    assert taken.count(".") == 2


def test_of_a_recipient_and_a_ticket_that_are_refused_the_ticket_is_named(tmp_path):
    reported = mailed(tmp_path, [], refused="person", answers={CHIEF: GONE})
    assert (reported["sent"], reported["waiting"]) == (
        ["dgx-01-story/opened"], ["dgx-01-story/person"]
    )  # fmt: skip
    assert reported["why"].startswith("dgx-01-story/person: (554, ")


@pytest.mark.parametrize(
    ("answers", "for_good"),
    [
        ({OPS: GONE, CHIEF: GONE}, True),
        ({OPS: GONE, CHIEF: FULL}, False),
        ({"mail FROM": "553 5.7.1 not a sender of ours"}, True),
        ({"mail FROM": "451 4.7.1 later"}, False),
    ],
)
def test_a_mail_without_a_taker_is_refused_for_good_or_for_now(tmp_path, answers, for_good):
    """For good: each ticket is tried. For now: the first alone, since nothing overtakes it."""
    for _number in range(2):
        reported = mailed(tmp_path, [], answers=answers)
        assert reported["sent"] == []
        assert reported["waiting"] == ["dgx-01-story/opened", "dgx-01-story/person"]
        assert reported["why"].startswith("dgx-01-story/opened: ") == for_good


def test_a_mail_has_the_key_as_its_name(tmp_path):
    taken: list[str] = []
    reported = mailed(tmp_path, taken)
    assert reported["why"] == ""
    assert reported["sent"] == ["dgx-01-story/opened", "dgx-01-story/person"]
    names = [line for line in taken if line.startswith("Message-ID: ")]
    assert len(set(names)) == 2
    assert all(name.endswith("@example.com>") for name in names)
    assert "Subject: alpha: dgx-01: gpu.xid: person" in taken


def test_runs_that_are_killed_lose_no_ticket_and_make_none_twice(tmp_path):
    """A thousand kills are in soak."""
    receiver, killed = kill_many(tmp_path, 60)
    assert killed >= 60
    assert len(receiver.tickets) == 5 * 4
