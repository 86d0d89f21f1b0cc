# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""slurmdbd's database as a dump: made without a lock, judged by itself, counted, loaded.

A dump that was cut between two statements loads without an error and with half of the rows, and
its last line is the only sign (tried with MariaDB 10.11). So a dump without it is none, and the
rows of each table are counted in the dump itself and compared after it was loaded.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
from typing import Iterable, Mapping, Sequence

from .._core.files import make_temporary, open_folder, remove_tree
from .._core.run import ENDED, CommandRunner, ToolError, last_lines
from . import work
from .repository import NO_ROOM, UnansweredError
from .settings import Database

DUMP = ("mariadb-dump", "mysqldump")
CLIENT = ("mariadb", "mysql")
# One transaction sees one moment, and locks nothing; slurmdbd makes its procedures itself.
_DUMP_WORDS = ("--single-transaction", "--skip-lock-tables", "--quick", "--hex-blob",
               "--no-tablespaces", "--default-character-set=utf8mb4")  # fmt: skip
_COMPLETE = re.compile(rb"-- Dump completed[^\n]*\s*\Z")
_INSERT = re.compile(rb"INSERT INTO `((?:[^`]|``)+)` (?:\([^)]*\) )?VALUES")
_TABLE = re.compile(rb"CREATE TABLE (?:IF NOT EXISTS )?`((?:[^`]|``)+)`")
_TEXT = re.compile(rb"'(?:[^'\\]|\\.)*'")
_END = 256
_NO_SERVER = 3
# Where Enterprise Linux has the server (mariadb.spec, INSTALL_SBINDIR=libexec).
_LIBEXEC = "/usr/libexec"
# Nothing on a host is its own.
_USER = "nobody"
_TIMED_OUT = (124, 137)
_ANSWER_S = 10
# In the name of a database's folder such a sign of ASCII is @ and the four digits of its number.
_CODED = re.compile(r"[^0-9A-Za-z_]")
# Tables and indexes take more than their text; MariaDB's log and an empty table space do (10.11).
_GROWS, _EMPTY_BYTES = 2, 130_000_000
# No memory, no room, or a server that was killed (errors of MariaDB). A text of 1064 has a part of
# the dump in it.
_NOT_THE_DUMP = re.compile(
    r"^ERROR (?:1021|1037|1041|1114|2002|2006|2013) "
    rf"|^(?:ERROR (?!1064 )\d+ |scratch: ).*(?:{NO_ROOM}|err(?:code|no|or):? 28\b)",
    re.IGNORECASE | re.MULTILINE,
)
# The program is the first of the names that is installed; the rest are its words.
_FIRST = 'for name in $1; do program=$(command -v "$name") && break; done; shift; '
_DUMPED = _FIRST + 'umask 077; into=$1; shift; exec "${program:?is not installed}" "$@" > "$into"'
_LOADED = _FIRST + 'from=$1; shift; exec "${program:?is not installed}" "$@" < "$from"'
_ASKED = _FIRST + 'exec "${program:?is not installed}" "$@"'
# An empty folder is all that it knows: no network, no users, no tables.
_SCRATCH = """
set -eu
folder=$1 user=$2 dump=$3 libexec=$4
first() { for name; do command -v "$name" && return; done; echo "$1 is not installed" >&2; exit 3; }
server=$(first mariadbd mysqld "$libexec/mariadbd" "$libexec/mysqld")
client=$(first mariadb mysql)
"$server" --no-defaults --user="$user" --datadir="$folder" --socket="$folder/socket" \\
  --skip-networking --skip-grant-tables --skip-log-bin --pid-file="$folder/pid" \\
  --innodb-buffer-pool-size=128M --innodb-flush-log-at-trx-commit=0 > "$folder.log" 2>&1 &
server=$!
trap 'kill "$server"; wait "$server" || echo "the scratch server ended with $?" >&2' EXIT
ask() { "$client" --no-defaults --socket="$folder/socket" --batch --skip-column-names "$@"; }
until ask -e "SELECT 1" > "$folder.out" 2>&1; do
  kill -0 "$server" 2>/dev/null || { tail -n 3 "$folder.log" >&2; trap - EXIT; exit 3; }
  sleep 0.2
done
ask -e "CREATE DATABASE restored"
ask restored < "$dump"
ask -e "SELECT CONCAT('SELECT ', QUOTE(table_name), ', COUNT(*) FROM \\`',
  REPLACE(table_name, '\\`', '\\`\\`'), '\\`;')
  FROM information_schema.tables
  WHERE table_schema = 'restored' AND table_type = 'BASE TABLE'" > "$folder.asks"
ask restored < "$folder.asks"
"""


def connection(database: Database) -> list[str]:
    """Return the words for a client. The password is in a file: an argument is seen by all."""
    if not database.host:
        return ["--no-defaults", f"--socket={database.socket}", "--user=root"]
    return [
        f"--defaults-extra-file={database.password_file}",
        f"--host={database.host}",
        f"--port={database.port}",
        f"--user={database.user}",
    ]


def answers(database: Database) -> bool:
    """Return whether a server listens on this host's socket. OSError where that is not known."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_ANSWER_S)
        try:
            asking.connect(database.socket)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            return False
    return True


def folder_name(name: str) -> str:
    """Return how MariaDB names the folder of a database. Pure."""
    return _CODED.sub(lambda sign: f"@{ord(sign[0]):04x}", name)


def _called(
    run: CommandRunner, script: str, names: Sequence[str], words: Sequence[str], limit_s: float
) -> str:
    done = run(["sh", "-c", script, names[0], " ".join(names), *words], timeout_s=limit_s)
    if not done.ok:
        raise ToolError(f"{names[0]}: {last_lines(done.err, 3) or done.describe(2)}")
    return done.out


def make(run: CommandRunner, database: Database, path: str, limit_s: float) -> None:
    """Write a whole dump, or raise ToolError."""
    words = [path, *connection(database), *_DUMP_WORDS, database.name]
    _called(run, _DUMPED, DUMP, words, limit_s)
    if not is_complete(path):
        raise ToolError(f"{path}: the dump ends before its last line")


def is_complete(path: str) -> bool:
    """Return whether the dump has the line that is written last."""
    with open(path, "rb") as handle:
        handle.seek(max(0, os.fstat(handle.fileno()).st_size - _END))
        return bool(_COMPLETE.search(handle.read()))


def count_rows(lines: Iterable[bytes]) -> dict[str, int]:
    """Return table -> rows of a dump, also of tables that have none. Pure.

    A statement is one line or has a line for each row. A dump has no line feed within a text, and
    no bracket outside of texts but those of rows.
    """
    counts: dict[str, int] = {}
    table = ""
    for line in lines:
        made = _TABLE.match(line)
        if made:
            counts.setdefault(_name(made[1]), 0)
            continue
        begun = _INSERT.match(line)
        if begun:
            table = _name(begun[1])
            line = line[begun.end() :]
        if table:
            plain = _TEXT.sub(b"", line)
            counts[table] = counts.get(table, 0) + plain.count(b"(")
            if plain.rstrip().endswith(b";"):
                table = ""
    return counts


def _name(quoted: bytes) -> str:
    return quoted.replace(b"``", b"`").decode("utf-8", "replace")


def count_dump(path: str) -> dict[str, int]:
    """Return the rows of each table of a dump. OSError."""
    with open(path, "rb") as handle:
        return count_rows(handle)


def ask(run: CommandRunner, database: Database, sql: str, limit_s: float = 60) -> list[list[str]]:
    """Return the rows of an answer of the live database. ToolError."""
    words = [*connection(database), "--batch", "--skip-column-names", "-e", sql]
    out = _called(run, _ASKED, CLIENT, words, limit_s)
    return [line.split("\t") for line in out.splitlines()]


def load(run: CommandRunner, database: Database, path: str, limit_s: float) -> None:
    """Load a dump into the live database, which is there. ToolError."""
    _called(run, _LOADED, CLIENT, [path, *connection(database), database.name], limit_s)


def load_scratch(run: CommandRunner, path: str, work_dir: str, limit_s: float) -> dict[str, int]:
    """Load a dump into a separate server, which ends; return the rows of each table.

    ToolError for a dump that does not load, UnansweredError where the server did not work or has
    no room. It is not root, has no network, and a separate folder.
    """
    owner = pwd.getpwnam(_USER)
    size = _GROWS * os.path.getsize(path) + _EMPTY_BYTES
    work.require_room(work_dir, size, "the scratch server")
    above = make_temporary(work.SCRATCH, work_dir, 0o711)
    folder = os.path.join(above, "data")
    try:
        with open_folder(folder, 0o700) as made:
            made.set_attributes(0o700, owner.pw_uid, owner.pw_gid)
        # `timeout` ends the server with the script.
        argv = ["timeout", "-k", "10", f"{limit_s:g}", "sh", "-c", _SCRATCH, "scratch", folder,
                _USER, path, _LIBEXEC]  # fmt: skip
        done = run(argv, timeout_s=limit_s + 20)
        is_answer = done.outcome == ENDED and done.rc not in (_NO_SERVER, *_TIMED_OUT)
        if not is_answer or _NOT_THE_DUMP.search(done.err):
            raise UnansweredError(
                f"the scratch server: {last_lines(done.err, 3) or done.describe()}"
            )
        if not done.ok:
            raise ToolError(f"the dump does not load: {last_lines(done.err, 3) or done.describe()}")
        return parse_counts(done.out)
    finally:
        remove_tree(above)


def parse_counts(text: str) -> dict[str, int]:
    """Return table -> rows of the scratch server's output; ToolError for another answer."""
    counts = {}
    for line in text.splitlines():
        table, tab, number = line.rpartition("\t")
        if not tab or not number.isdigit():
            raise ToolError(f"the scratch server printed {line!r}")
        counts[table] = int(number)
    return counts


def differing(wanted: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """Return a phrase for each table whose rows are not those of the manifest. Pure."""
    return [
        f"{table}: {found.get(table, 'no table')} of {wanted.get(table, 'no')} rows"
        for table in sorted({*wanted, *found})
        if wanted.get(table) != found.get(table)
    ]
