# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages of Slurm are asked for, on new hosts and when the release changes."""

from __future__ import annotations

import base64
import fnmatch
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from role_render import ROLES, by_path, lines, played, render, render_many
from role_rules import read_yaml

from ansible_collections.community.mysql.plugins.modules import mysql_db

SHOWN = {
    "wanted": "__slurm_base_wanted",
    "offered": "__slurm_base_offered",
    "upgrades": "__slurm_base_upgrades",
}
# apt-cache policy with the pin of an earlier run, and the next release in another archive
PINNED = """slurm-wlm-basic-plugins:
  Installed: 24.11.5-4
  Candidate: 24.11.5-4
  Version table:
     26.05.5-1 -1
        500 http://archive.example.org testing/main amd64 Packages
 *** 24.11.5-4 1001
        500 http://archive.example.org trixie/main amd64 Packages
        100 /var/lib/dpkg/status
"""
NEW = PINNED.replace("Installed: 24.11.5-4", "Installed: (none)").replace(" ***", "    ")
NOTHING = "slurm-wlm-basic-plugins:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n"


def host(message: str, version: str, component: str) -> dict[str, Any]:
    return {
        "__slurm_base_policy": {"stdout": message},
        "__slurm_base_component": component,
        "slurm_base_version": version,
        "slurm_base_source": "distribution",
    }


CASES = {
    "new": host(NEW, "24.11", "compute"),
    "virgin": host(NOTHING, "24.11", "compute"),
    "same": host(PINNED, "24.11", "compute"),
    "next": host(PINNED, "26.05", "compute"),
    "database": host(PINNED, "26.05", "database"),
    "base": host(PINNED, "26.05", "base"),
    "no_pmix": {**host(NEW, "24.11", "login"), "slurm_base_pmix": False},
    "login": host(NEW, "24.11", "login"),
}
# The accounting stays where it was.
NOT_MOVED = {"slurm_database_cluster_name": "demo", "__slurm_database_tables": {"skipped": True}}
COMPUTE = ["slurmd", "slurm-client", "libpam-slurm-adopt", "libpmix-dev"]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return render_many(tmp_path_factory.mktemp("slurm"), "slurm_base", "Debian", CASES, SHOWN)


def test_the_release_is_named_only_where_another_is_installed(rendered):
    for case in ("new", "virgin", "same"):
        assert rendered[case]["wanted"] == COMPUTE
        assert rendered[case]["upgrades"] is False
    assert rendered["next"]["wanted"] == [f"{name}=26.05*" for name in COMPUTE[:3]] + COMPUTE[3:]


def test_only_packages_of_slurm_have_its_release(rendered):
    assert rendered["database"]["wanted"] == [
        "slurmdbd=26.05*", "slurm-client=26.05*", "mariadb-server", "python3-pymysql"
    ]  # fmt: skip


def test_what_all_hosts_have_waits_for_the_turn_of_the_daemon(rendered):
    assert rendered["base"]["wanted"] == ["munge", "slurm-wlm-basic-plugins"]


def test_both_sides_of_srun_have_the_library_of_pmix(rendered):
    """The controller and the database run no step."""
    assert rendered["login"]["wanted"] == ["slurm-client", "libpmix-dev"]
    assert rendered["no_pmix"]["wanted"] == ["slurm-client"]
    assert "libpmix-dev" not in rendered["database"]["wanted"]


def test_the_cache_of_the_database_is_at_most_half_of_the_memory(tmp_path):
    """4,096 MiB on a virtual machine of 4 GiB would end the database's life by the OOM killer."""
    asked = read_yaml(ROLES / "slurm_database/tasks/preflight.yml")[2]["vars"]
    cases = {
        str(kib): {
            **asked,
            "__slurm_database_meminfo": {
                "content": base64.b64encode(f"MemTotal:  {kib} kB\n".encode()).decode()
            },
            "slurm_database_hosts": ["db"],
            "slurm_database_password": "x" * 16,
            **NOT_MOVED,
        }
        for kib in (8 << 20, (8 << 20) - 1)
    }
    shown = {"refusals": "__slurm_database_refusals"}
    found = render_many(tmp_path, "slurm_database", "Debian", cases, shown)
    result = {
        name: [one["say"] for one in values["refusals"] if one["when"]]
        for name, values in found.items()
    }
    assert [text for text in result[str(8 << 20)] if "buffer_pool" in text] == []
    (text,) = [text for text in result[str((8 << 20) - 1)] if "buffer_pool" in text]
    assert text.startswith("slurm_database_buffer_pool_mib: 4096, but ")
    assert text.endswith("has 8191 MiB of memory; write at most half, 4095")


def test_refusals_of_the_database(tmp_path):
    """What check_inventory says, too; a part of the storage may be left out."""
    asked = read_yaml(ROLES / "slurm_database/tasks/preflight.yml")[2]["vars"]
    shared = {
        **asked,
        **NOT_MOVED,
        "__slurm_database_memory_mib": 65536,
        "slurm_database_password": "x" * 16,
        "slurm_database_storage": {"port": 3307},
    }
    given: dict[str, dict[str, Any]] = {
        "well": {},
        "elsewhere": {
            "slurm_database_manage_server": False,
            "slurm_database_storage": {"host": "accounting"},
        },
        "other": {"slurm_database_storage": {"host": "accounting"}},
        "backup": {"slurm_database_options": {"StorageBackupHost": "db-02"}},
        "small": {"slurm_database_options": {"storagebackuphost": "db-02"}},
    }
    cases = {name: {**shared, "slurm_database_hosts": [name], **one} for name, one in given.items()}
    shown = {"refusals": "__slurm_database_refusals"}
    found = render_many(tmp_path, "slurm_database", "Debian", cases, shown)
    says = {
        name: [item["say"] for item in one["refusals"] if item["when"]]
        for name, one in found.items()
    }
    assert says["well"] == says["elsewhere"] == []
    (say,) = says["other"]
    assert "since it is to use accounting; write false" in say
    assert says["small"] == says["backup"]
    (say,) = says["backup"]
    assert say.startswith("slurm_database_options: StorageBackupHost finds no records while")


@pytest.mark.parametrize(
    ("prints", "says"),
    [
        ("echo demo_job_table", ""),
        ("true", "(no table of it)"),
        ("echo 'ERROR 2002: no server' >&2; exit 1", "(ERROR 2002: no server)"),
        (None, "mariadb: not found)"),
    ],
)
def test_another_database_has_the_accounting_of_the_former_one(tmp_path, prints, says):
    """An empty one hides users and limits, and a newer slurmctld ends over its ClusterID."""
    _memory, ask, judge = read_yaml(ROLES / "slurm_database/tasks/preflight.yml")
    shared = {
        "__slurm_database_memory_mib": 65536,
        "slurm_database_password": "x" * 16,
        "slurm_database_cluster_name": "demo",
        "asked": ask["ansible.builtin.command"]["argv"],
    }
    given: dict[str, dict[str, Any]] = {
        "db-02": {},
        "db-01": {},
        "first": {"slurm_database_former_host": ""},
        "allowed": {"slurm_database_loss_allowed": True},
        "outside": {
            "slurm_database_manage_server": False,
            "slurm_database_storage": {"host": "accounting"},
        },
    }
    cases = {
        name: {
            "slurm_database_former_host": "db-01", **shared, "slurm_database_hosts": [name], **one
        }
        for name, one in given.items()
    }  # fmt: skip
    cases["beside"] = {**cases["outside"], "slurm_database_hosts": ["db-02", "beside"]}
    shown = {
        "argv": "asked",
        "asks": " and ".join(f"({text})" for text in ask["when"]),
    }
    found = render_many(tmp_path, "slurm_database", "Debian", cases, shown)
    assert [name for name, one in found.items() if one["asks"]] == ["db-02"]
    tools = tmp_path / "bin"
    tools.mkdir()
    if prints:
        (tools / "mysql").write_text(
            f'#!/bin/sh\ntest "$1 $4" = "--batch $SQL" || exit 9\n{prints}\n'
        )
        (tools / "mysql").chmod(0o755)
    sh, *words = found["db-02"]["argv"]
    sql = (
        "SELECT table_name FROM information_schema.tables WHERE table_schema='slurm_acct_db' "
        "AND table_name='demo_job_table'"
    )
    env = {"PATH": str(tools), "SQL": sql}
    done = subprocess.run(
        [shutil.which(sh), *words], check=False, env=env, capture_output=True, text=True
    )
    answer = {"stdout": done.stdout.strip(), "stderr_lines": done.stderr.splitlines()}
    judged = {
        "db-02": {**judge["vars"], **cases["db-02"], "__slurm_database_tables": answer},
        "db-01": {**judge["vars"], **cases["db-01"], "__slurm_database_tables": {"skipped": True}},
    }
    shown = {"refusals": "__slurm_database_refusals"}
    found = render_many(tmp_path, "slurm_database", "Debian", judged, shown)
    refusals = {
        name: [item["say"] for item in one["refusals"] if item["when"]]
        for name, one in found.items()
    }
    assert refusals["db-01"] == []
    assert len(refusals["db-02"]) == bool(says)
    for say in refusals["db-02"]:
        assert say.startswith("slurm_database_hosts: db-02 has no accounting of demo (")
        assert f"{says}, and db-01 has; run restore_cluster" in say


def test_a_copy_is_loaded_into_a_database_that_has_no_tables_yet():
    """Another host is refused without them."""
    plays = read_yaml(ROLES.parent / "playbooks/restore_cluster.yml")
    (play,) = [play for play in plays if play["name"] == "Restore the accounting"]
    tasks = play["tasks"][0]["block"]
    (start,) = [task for task in tasks if task["name"] == "Start the database"]
    assert start["vars"] == {"slurm_database_loss_allowed": True}


def test_a_standby_of_slurmdbd_starts_when_the_primary_has_made_the_tables(tmp_path):
    """A stand-by that finds other tables than its own ends: at the first run, and when upgraded."""
    tasks = read_yaml(ROLES / "slurm_database/tasks/service.yml")[1:]
    asked = {
        "slurm_database_hosts": ["db-01", "db-02"],
        "slurm_database_cluster_name": "demo",
        "slurm_base_auth": "munge",
        "ansible_check_mode": False,
    }
    template = ROLES / "slurm_database/templates/etc/slurm/slurmdbd-probe.conf.j2"
    shown = {task["name"]: task["when"] for task in tasks} | {
        "probe": f"lookup('ansible.builtin.template', '{template}')"
    }
    cases = {"db-01": asked, "db-02": asked, "alone": {**asked, "slurm_database_hosts": ["alone"]}}
    found = render_many(tmp_path, "slurm_database", "Debian", cases, shown)
    names = [name.partition(" | ")[2] for name in shown]
    do = {host: [bool(one[name]) for name in shown] for host, one in found.items()}
    assert names[:3] == [
        "Start slurmdbd",
        "Wait until slurmdbd has its tables",
        "Start the stand-by of slurmdbd",
    ]
    assert do["db-01"][:3] == [True, True, False]
    assert do["db-02"][:3] == [False, False, True]
    assert do["alone"][:3] == [True, True, False]
    backup = "AccountingStorageBackupHost=db-02"
    assert backup not in found["db-01"]["probe"], "a stand-by of the old release would answer"
    assert backup in found["db-02"]["probe"]


def test_slurmdbd_is_asked_at_its_port(tmp_path):
    """By the probe, which would wait for ten minutes, and by slurmctld; Slurm takes any case."""
    template = ROLES / "slurm_database/templates/etc/slurm/slurmdbd-probe.conf.j2"
    cases = {
        name: {
            "slurm_database_hosts": [name],
            "slurm_database_cluster_name": "demo",
            "slurm_base_auth": "munge",
            "slurm_database_options": options,
        }
        for name, options in {"other": {"dbdport": 7031}, "own": {"DebugLevel": "verbose"}}.items()
    }
    shown = {"probe": f"lookup('ansible.builtin.template', '{template}')"}
    found = render_many(tmp_path, "slurm_database", "Debian", cases, shown)
    assert "AccountingStoragePort=7031" in found["other"]["probe"].splitlines()
    assert "Port" not in found["own"]["probe"]
    cases = {
        "own": {"slurm_controller_options": {"SlurmctldDebug": "verbose"}},
        "other": {"slurm_controller_database_port": 7031},
        "site": {
            "slurm_controller_database_port": 7031,
            "slurm_controller_options": {"accountingstorageport": 7032},
        },
    }
    shown = {"port": "__slurm_controller_database"}
    found = render_many(tmp_path, "slurm_controller", "Debian", cases, shown)
    assert {name: one["port"] for name, one in found.items()} == {
        "other": {"AccountingStoragePort": 7031}, "own": {}, "site": {},
    }  # fmt: skip
    (task, *_others) = read_yaml(ROLES / "slurm_controller/tasks/configure.yml")
    assert "__slurm_controller_database" in task["baremetal.dgx.slurm_config"]["options"]


def test_the_conversion_by_a_new_release_has_its_time(tmp_path):
    """With one slurmdbd, too. A run that ends before it says that it must not be interrupted."""
    wait = read_yaml(ROLES / "slurm_database/tasks/service.yml")[2]
    shown = {"waits": wait["when"], "remedy": "__slurm_database_probe.remedy"}
    alone = {"db-01": {"slurm_database_hosts": ["db-01"]}}
    found = render_many(tmp_path, "slurm_database", "Debian", alone, shown)["db-01"]
    assert found["waits"]
    assert wait["baremetal.dgx.service_check"]["wait_s"] == 600
    assert "converts its tables after an upgrade, do not stop it" in found["remedy"]


# What the commands of a host print: its processes of slurm, whether slurmd is active, and slurm.
NUMBERED = {
    "controller": ("/proc/77", 3, "995:994"),
    "node": ("", 0, "995:994"),
    "packages": ("", 3, "995:994"),
    "virgin": ("", 3, ""),
    "same": ("/proc/77", 0, "64030:64030"),
    "group": ("/proc/77", 0, "64030:994"),
}
COMMANDS = {
    "find": "case $* in *'-user slurm') echo $PROCESSES ;; esac",
    "systemctl": 'exit "$RC"',
    "getent": 'test "$NUMBERS" && echo "slurm:x:$NUMBERS:Slurm:/nonexistent:/usr/sbin/nologin"',
}


def numbered(folder: Path, family: str, source: str, *options: str) -> str:
    """Run what reads and compares the numbers of slurm; return what Ansible prints."""
    read, check = read_yaml(ROLES / "slurm_base/tasks/preflight.yml")[:2]
    assert check.pop("any_errors_fatal") is True, "others would go on"
    for name, text in COMMANDS.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    read["environment"] = {"PROCESSES": "{{ p }}", "RC": "{{ rc }}", "NUMBERS": "{{ numbers }}"}
    hosts = {
        name: dict(zip(("p", "rc", "numbers"), values, strict=True))
        for name, values in NUMBERED.items()
    }
    known = {
        "__slurm_base_policy_command": ["echo", "  Installed: 24.11.5"],
        "ansible_facts": {"os_family": family},
        "slurm_base_source": source,
        "slurm_base_uid": 64030,
        "slurm_base_gid": 64030,
    }
    play = {"hosts": "all", "gather_facts": False, "vars": known, "tasks": [read, check]}
    path = f"{folder}:{os.environ['PATH']}"
    return played(folder, hosts, play, *options, PATH=path).stdout


@pytest.mark.parametrize("options", [(), ("--check",)])
def test_a_slurm_that_runs_is_not_renumbered(tmp_path: Path, options: tuple[str, ...]) -> None:
    """usermod does so on a node, and fails on the controller, where slurm has processes."""
    output = numbered(tmp_path, "RedHat", "distribution", *options)
    failed = set(re.findall(r"^(\S+) +: .*failed=1", output, re.MULTILINE))
    assert failed == {"controller", "node", "group"}, output
    line = (
        "slurm_base_uid: 64030 (slurm_base_gid: 64030), but slurm is 995 (994) here, and Slurm "
        "runs; write slurm_base_uid: 995 and slurm_base_gid: 994; or, if the other hosts have "
        "64030, stop slurmd (slurmctld, slurmdbd) on this one"
    )
    assert line in " ".join(output.split())


def test_numbers_of_slurm_are_the_packages_where_the_role_makes_none(tmp_path: Path) -> None:
    assert "failed=1" not in numbered(tmp_path, "Debian", "distribution")
    assert "failed=1" in numbered(tmp_path, "Debian", "repository")


def test_logs_of_slurm_have_one_file_that_rotates_them(tmp_path):
    """Packages of distributions bring theirs; those of a site may bring one, or none."""
    (_find, task) = read_yaml(ROLES / "slurm_base/tasks/logs.yml")
    written = task["baremetal.dgx.managed_files"]["files"]
    cases = {
        "schedmd": {"__slurm_base_rotations": {"files": []}, "written": written},
        "site": {"__slurm_base_rotations": {"files": [{"path": "slurmd"}]}, "written": written},
        "debian": {"slurm_base_source": "distribution", "written": []},
    }
    shown = {"files": "written", "left": "__slurm_base_left_files"}
    for values in cases.values():
        values.setdefault("slurm_base_source", "repository")
    rendered = render_many(tmp_path, "slurm_base", "Debian", cases, shown)
    assert rendered["debian"]["left"] == [{"path": written[0]["path"], "state": "absent"}]
    assert [rendered[name]["left"] for name in ("schedmd", "site")] == [[], []]
    (entry,) = rendered["schedmd"]["files"]
    (other,) = rendered["site"]["files"]
    assert (entry["state"], other["state"]) == ("file", "absent")
    text = lines(entry)
    assert text[0].split()[:-1] == [
        f"/var/log/slurm/{daemon}.log" for daemon in ("slurmctld", "slurmd", "slurmdbd")
    ]
    script = text[text.index("  postrotate") + 1 : text.index("  endscript")]
    subprocess.run(["sh", "-n"], input="\n".join(script), text=True, check=True)


def test_another_file_that_rotates_slurm_is_found(tmp_path):
    """By the task as it is, but for its folder."""
    (task, _write) = read_yaml(ROLES / "slurm_base/tasks/logs.yml")
    arguments = task["ansible.builtin.find"]
    arguments.update(paths=str(tmp_path / "etc"), excludes="baremetal-dgx-slurm")
    (tmp_path / "etc").mkdir()
    for name, text in {
        "slurmd": "/var/log/slurm-llnl/slurmd.log /var/log/slurm/slurmd.log {\n  weekly\n}\n",
        "slurm": "/var/log/slurm/* {\n    missingok\n}\n",
        "baremetal-dgx-slurm": "/var/log/slurm/slurmctld.log {\n}\n",
        "rsyslog": "# not /var/log/slurm/slurmd.log\n/var/log/syslog {\n}\n",
    }.items():
        (tmp_path / "etc" / name).write_text(text)
    program = str(Path(sys.executable).with_name("ansible"))
    command = [program, "localhost", "-m", "ansible.builtin.find", "-a", json.dumps(arguments)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "ANSIBLE_HOME": str(tmp_path), "ANSIBLE_NOCOLOR": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout.partition("=> ")[2])
    assert sorted(Path(one["path"]).name for one in answer["files"]) == ["slurm", "slurmd"]


# Name, epoch, version, release and architecture, as libdnf reads them (hawkey, NEVRA form).
NEVRA = re.compile(r"([^:(/=<> ]+)-(?:(\d+):)([^-:(/=<> ]+)-([^-:(/=<> ]+)\.([^-:.(/=<> ]+)")


@pytest.mark.parametrize(("hold", "state"), [(True, "present"), (False, "absent")])
def test_the_release_is_held_on_enterprise_linux(tmp_path: Path, hold: bool, state: str) -> None:
    (task,) = [
        one["ansible.builtin.lineinfile"]
        for one in read_yaml(ROLES / "slurm_base/tasks/install.yml")
        if "ansible.builtin.lineinfile" in one
    ]
    inputs = {"slurm_base_version": "24.11", "slurm_base_hold": hold, "task": task}
    entry = render(tmp_path, "slurm_base", "Rocky", inputs, {"task": "task"})["task"]
    assert (entry["state"], entry["create"]) == (state, hold)
    parts = NEVRA.fullmatch(entry["line"])
    assert parts is not None

    def locks(package: str) -> bool:
        return all(map(fnmatch.fnmatchcase, NEVRA.fullmatch(package).groups(), parts.groups()))

    assert locks("slurm-0:24.11.5-1.el9.x86_64")
    assert locks("slurm-slurmd-0:24.11.6-2.el9.x86_64")
    assert not locks("slurm-slurmd-0:25.05.1-1.el9.x86_64")
    assert not locks("munge-0:0.5.13-13.el9.x86_64")
    assert re.match(entry["regexp"], "slurm*-0:23.11.*-*.*"), "the entry of a release before"
    assert not re.match(entry["regexp"], "slurm-web-0:3.0-1.el9.*"), "a lock of the site's"


def test_a_pin_hides_no_release(rendered):
    assert rendered["same"]["offered"] == ["26.05", "24.11"]
    assert rendered["virgin"]["offered"] == []


def test_the_release_is_read_in_a_host_of_another_language(tmp_path: Path) -> None:
    """LANGUAGE makes apt-cache say "Installiert:", and no release was found."""
    command = read_yaml(ROLES / "slurm_base/vars/Debian.yml")["__slurm_base_policy_command"]
    tool = tmp_path / "apt-cache"
    tool.write_text('#!/bin/sh\necho "$LC_ALL $*"\n')
    tool.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de"}
    shown = subprocess.run(
        [*command[:-1], "x"], env=env, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "C policy x\n"


def test_the_release_is_read_where_apt_reads_no_sources(tmp_path: Path) -> None:
    """As where a release before has written a key that apt does not take: the role corrects it."""
    command = read_yaml(ROLES / "slurm_base/vars/Debian.yml")["__slurm_base_policy_command"]
    tool = tmp_path / "apt-cache"
    fails = "E: The list of sources could not be read."
    tool.write_text(f"""#!/bin/sh
case $* in *sourceparts=/dev/null*) ;; *) echo {fails} >&2; exit 100 ;; esac
cat <<'END'
{PINNED}END
""")
    tool.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([*command[:-1], "x"], env=env, capture_output=True, text=True, check=True)
    # Of what is offered nothing is known.
    assert done.stdout == "  Installed: 24.11.5-4\n"


# The smallest policy that secilc takes, with what the module speaks of.
POLICY = """
(mls false) (sensitivity s0) (sensitivityorder (s0)) (category c0) (categoryorder (c0))
(class dir (getattr open read search)) (class file (getattr open read write))
(class lnk_file (getattr read)) (class sock_file (getattr write))
(class unix_stream_socket (connectto))
(classorder (dir file lnk_file sock_file unix_stream_socket))
(sid kernel) (sidorder (kernel))
(user u) (role r) (userrole u r) (userlevel u (s0)) (userrange u ((s0) (s0)))
(sidcontext kernel (u r sshd_t ((s0) (s0))))
"""
RULES = {
    "sshd_t var_spool_t (dir (search))",
    "sshd_t var_spool_t (sock_file (write))",
    "sshd_t unconfined_service_t (unix_stream_socket (connectto))",
    "sshd_t var_run_t (sock_file (write))",
}
NO_RULES = {"sshd_t var_spool_t (file (write))", "sshd_t var_run_t (file (read))"}


@pytest.mark.skipif(not shutil.which("secilc"), reason="there is no secilc")
@pytest.mark.parametrize("missing", ["", "unconfined_service_t"])
def test_the_policy_module_lets_sshd_ask_slurmstepd(tmp_path: Path, missing: str) -> None:
    """With the real compiler; a neverallow rule is refused where the module has the rule."""
    module = ROLES / "slurm_compute/files/baremetal_dgx_slurm.cil"
    types = {"sshd_t", "var_spool_t", "var_run_t", "unconfined_t", "unconfined_service_t"}
    declared = " ".join(f"(type {name}) (roletype r {name})" for name in sorted(types - {missing}))

    def compiles(rule: str = "") -> bool:
        base = tmp_path / "base.cil"
        base.write_text(POLICY + declared + (f"(neverallow {rule})" if rule else ""))
        argv = ["secilc", "-o", tmp_path / "policy", "-f", tmp_path / "contexts", base, module]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or "neverallow check failed" in done.stderr, done.stderr
        return done.returncode == 0

    assert compiles()
    for rule in RULES:
        if not missing or missing not in rule:
            assert not compiles(rule), rule
    for rule in NO_RULES:
        assert compiles(rule), rule


def test_the_policy_module_is_installed_once_where_selinux_is(tmp_path: Path) -> None:
    (task,) = [
        task
        for task in read_yaml(ROLES / "slurm_compute/tasks/selinux.yml")
        if "__slurm_compute_modules" in str(task.get("when"))
    ]
    text = (ROLES / "slurm_compute/files/baremetal_dgx_slurm.cil").read_bytes()
    kept = f"400 baremetal_dgx_slurm cil  sha256:{hashlib.sha256(text).hexdigest()}"
    cases = {
        "new": "100 base  pp  sha256:00",
        "kept": f"100 base  pp  sha256:00\n{kept}",
        "off": "skipped, since /sys/fs/selinux/enforce does not exist",
    }
    inputs = {
        name: {"__slurm_compute_modules": {"stdout": message}, "ansible_check_mode": False}
        for name, message in cases.items()
    }
    shown = {"due": task["when"], "has": "__slurm_compute_has_policy"}
    found = render_many(tmp_path, "slurm_compute", "RedHat", inputs, shown)
    assert {name: values["due"] for name, values in found.items()} == {
        "new": True, "kept": False, "off": False,
    }  # fmt: skip
    assert all(values["has"] for values in found.values())


@pytest.mark.parametrize(("family", "count"), [("RedHat", 1), ("Debian", 0)])
def test_only_enterprise_linux_has_the_policy_module(
    tmp_path: Path, family: str, count: int
) -> None:
    shown = {"files": "__slurm_compute_policy_files"}
    files = render(tmp_path, "slurm_compute", family, {}, shown)["files"]
    assert [one["path"] for one in files] == ["/etc/slurm/baremetal_dgx_slurm.cil"] * count


@pytest.mark.parametrize("family", ["RedHat", "Debian"])
def test_no_account_rule_of_the_host_ends_the_stack_before_pam_slurm_adopt(
    tmp_path: Path, family: str
) -> None:
    """A rule that is `sufficient` ends what it is included in; only a substack contains that."""
    inputs = {"slurm_compute_pam_adopt": True}
    shown = {"files": "__slurm_compute_pam_files"}
    files = by_path(render(tmp_path, "slurm_compute", family, inputs, shown)["files"])
    lines = [line.split() for line in files["/etc/pam.d/sshd"]["content"].splitlines()]
    # @include reads rules of every type; Debian's common-auth has those of `auth` alone.
    account = [line for line in lines if line[0] == "account" or line[0] == "@include"]
    account = [line for line in account if line[-1] not in ("common-auth", "common-password")]
    last = next(index for index, line in enumerate(account) if "pam_slurm_adopt.so" in line)
    before = account[:last]
    assert [line[1:3] for line in before if line[1] not in ("required", "substack")] == [
        ["sufficient", "pam_access.so"]
    ]
    assert account[last][1] == "required"


@pytest.mark.parametrize("family", ["RedHat", "Debian"])
def test_a_name_lets_in_whom_it_names_alone(tmp_path: Path, family: str) -> None:
    """A group may have a space, and the members of a group with the name of a user have no job."""
    inputs = {"slurm_compute_ssh_users": ["alice"], "slurm_compute_ssh_groups": ["domain users"]}
    shown = {"files": "__slurm_compute_pam_files"}
    files = by_path(render(tmp_path, "slurm_compute", family, inputs, shown)["files"])
    rules = "/etc/security/access-baremetal-dgx.conf"
    (line,) = (one for one in lines(files["/etc/pam.d/sshd"]) if "pam_access.so" in one)
    assert line.split()[2:] == ["pam_access.so", f"accessfile={rules}", "nodefgroup", "listsep=,"]
    assert lines(files[rules]) == ["+:root:ALL", "+:alice:ALL", "+:(domain users):ALL", "-:ALL:ALL"]


def test_a_standby_of_slurmdbd_that_ignores_the_signal_is_soon_killed(tmp_path):
    """Once in control and out of it again, it ends by SIGKILL alone (24.11.5)."""
    files = read_yaml(ROLES / "slurm_database/tasks/configure.yml")[0]["vars"]
    shared = {
        "slurm_database_hosts": ["db-01", "db-02"],
        "slurm_database_cluster_name": "demo",
        "slurm_database_password": "x" * 16,
        "slurm_base_auth": "munge",
        "__slurm_base_jwt_conf": {},
        **files,
    }
    cases = {host: {**shared, "inventory_hostname": host} for host in ("db-01", "db-02")}
    shown = {"files": "__slurm_database_files"}
    found = render_many(tmp_path, "slurm_database", "Debian", cases, shown)
    states = {
        host: [
            one["state"]
            for one in values["files"]
            if "slurmdbd.service.d" in one["path"] and one.get("when", True)
        ]
        for host, values in found.items()
    }
    # An empty folder was made again by each run.
    assert states == {"db-01": ["absent"], "db-02": ["directory", "file"]}


def test_a_database_server_that_lost_its_power_is_given_up(tmp_path):
    """Linux by itself waits 15 minutes for an answer to what was sent, and two hours for others."""
    files, settings = read_yaml(ROLES / "slurm_database/tasks/configure.yml")
    shared = {
        "slurm_database_cluster_name": "demo",
        "slurm_database_password": "x" * 16,
        "slurm_base_auth": "munge",
        "__slurm_base_jwt_conf": {},
        **files["vars"],
    }
    elsewhere = {"slurm_database_storage": {"host": "accounting"}}
    cases: dict[str, dict[str, Any]] = {
        "here": {**shared, "slurm_database_storage": {"host": "127.0.0.1"}},
        "elsewhere": {**shared, **elsewhere},
        "left_alone": {**shared, **elsewhere, "slurm_database_sysctl": {}},
    }
    template = ROLES / "slurm_database/templates/etc/sysctl.d/60-baremetal-dgx-slurmdbd.conf.j2"
    shown = {
        "files": "__slurm_database_files",
        "when": settings["when"],
        "values": settings["baremetal.dgx.runtime_settings"]["sysctl"].strip("{} "),
        "text": f"lookup('ansible.builtin.template', '{template}')",
    }
    found = render_many(tmp_path, "slurm_database", "Debian", cases, shown)
    states = {
        name: [one["state"] for one in values["files"] if "sysctl.d" in one["path"]]
        for name, values in found.items()
    }
    assert states == {"here": ["absent"], "elsewhere": ["file"], "left_alone": ["absent"]}
    assert (found["here"]["when"], found["elsewhere"]["when"]) == (False, True)
    values = found["elsewhere"]["values"]
    # R2 of RFC 1122 is at least 100 s: retransmissions 0.2 s apart, then twice as far each time.
    assert sum(0.2 * 2**tried for tried in range(values["net.ipv4.tcp_retries2"] + 1)) > 100
    probes = values["net.ipv4.tcp_keepalive_intvl"] * values["net.ipv4.tcp_keepalive_probes"]
    assert values["net.ipv4.tcp_keepalive_time"] + probes == 100
    lines = found["elsewhere"]["text"].splitlines()
    assert "net.ipv4.tcp_retries2 = 8" in lines


SCONTROL = """#!/bin/sh
echo "$*" >> "$LOG"
case $* in
    ping) printf '%s\\n' "$PING"; exit "$PING_RC" ;;
    reconfigure) exit 0 ;;
esac
test -n "$USERS" || exit 1
printf 'Current Association Manager state\\n\\nUser Records\\n\\n%b' "$USERS"
"""
RECORD = "UserName={}({}) DefAccount=hpc DefWckey= AdminLevel=None\\n"
CAROL = RECORD.format("root", 0) + RECORD.format("carol", 4294967294)
PRIMARY = "Slurmctld(primary) at head-01 is UP"


@pytest.fixture
def looks_for_people(tmp_path: Path) -> Any:
    """Return a function that runs the program, and returns its code and Slurm's commands."""
    tools = {
        "scontrol": SCONTROL,
        # It knows carol, by name and by number.
        "getent": "#!/bin/sh\ncase $2 in carol | 1000) echo carol:x:1000 ;; *) exit 2 ;; esac\n",
        "find": "#!/bin/sh\nprintf '%s' \"$WRITTEN\"\n",
    }
    (tmp_path / "bin").mkdir()
    for name, text in tools.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)

    def run(users: str, ping: str = PRIMARY, ping_rc: int = 0, written: str = "") -> Any:
        log = tmp_path / "log"
        log.write_text("")
        done = subprocess.run(
            ["sh", str(ROLES / "slurm_controller/files/slurm-people")],
            env={
                "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
                "RUNTIME_DIRECTORY": str(tmp_path),
                "CONTROLLER": "head-01",
                "LOG": str(log),
                "PING": ping,
                "PING_RC": str(ping_rc),
                "USERS": users,
                "WRITTEN": written,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, log.read_text().splitlines()[1:]

    return run


ASKS = "--oneliner show assoc_mgr flags=users"


def test_slurmctld_looks_again_for_people_whom_the_directory_knows_now(looks_for_people):
    assert looks_for_people(CAROL) == (0, [ASKS, "reconfigure"])
    # It did not help: not once more.
    assert looks_for_people(CAROL) == (0, [ASKS])
    assert looks_for_people(CAROL.replace("4294967294", "1000")) == (0, [ASKS])
    # slurmctld has started once more without its directory
    assert looks_for_people(CAROL) == (0, [ASKS, "reconfigure"])


def test_slurmctld_is_left_alone_where_the_directory_knows_none_of_them(looks_for_people):
    gone = RECORD.format("dave", 4294967294) + RECORD.format("1000", 4294967294)
    assert looks_for_people(gone + RECORD.format("*", 4294967294)) == (0, [ASKS])


def test_only_the_controller_in_charge_looks_for_people(looks_for_people):
    backup = "Slurmctld(backup) at head-02 is UP"
    assert looks_for_people(CAROL, f"{PRIMARY}\n{backup}") == (0, [ASKS, "reconfigure"])
    assert looks_for_people(CAROL, backup.replace("02", "03") + f"\n{PRIMARY}") == (0, [])
    down = PRIMARY.replace("UP", "DOWN")
    assert looks_for_people(CAROL, down, 1) == (0, [])
    # `scontrol ping` fails as soon as one of them is down.
    first = down.replace("head-01", "head-02")
    mine = "Slurmctld(backup) at head-01 is UP"
    assert looks_for_people(CAROL, f"{first}\n{mine}", 1) == (0, [ASKS])


def test_people_are_looked_for_when_a_new_slurm_conf_has_been_read(looks_for_people):
    assert looks_for_people(CAROL, written="/etc/slurm/slurm.conf") == (0, [ASKS])
    assert looks_for_people(CAROL) == (0, [ASKS, "reconfigure"])


def test_a_slurmctld_that_does_not_say_whom_it_knows_is_a_failed_unit(looks_for_people):
    assert looks_for_people("")[0] != 0


# host → inputs, and the lines that its refusal must have; empty: it is let in
LOGINS: dict[str, tuple[dict[str, Any], str]] = {
    "not_listed": ({}, "would lock out daemon, as whom Ansible logs in"),
    "another_group": ({"slurm_compute_ssh_groups": ["bin"]}, "would lock out daemon"),
    "another_user": ({"ansible_user": "bin"}, "would lock out bin"),
    "user": ({"slurm_compute_ssh_users": ["daemon"]}, ""),
    "group": ({"slurm_compute_ssh_groups": ["bin", "daemon"]}, ""),
    "declared_root": ({"ansible_user": "root"}, ""),
    "off": ({"slurm_compute_pam_adopt": False}, ""),
}


@pytest.mark.parametrize(("login", "check"), [("daemon", False), ("daemon", True), ("root", False)])
def test_who_logs_in_by_another_name_than_the_inventorys_is_not_locked_out(
    tmp_path: Path, login: str, check: bool
) -> None:
    """The name may be in the configuration of ssh alone: the node knows who has logged in."""
    shared = {"slurm_compute_controllers": ["head-01"]}
    hosts = {name: {**shared, **inputs} for name, (inputs, _text) in LOGINS.items()}
    preflight = {"name": "baremetal.dgx.slurm_compute", "tasks_from": "preflight"}
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"import_role": preflight}]}
    done = played(tmp_path, hosts, play, *(["--check"] if check else []), SUDO_USER=login)
    counts = dict(re.findall(r"^(\S+)\s+: .*changed=0 .*failed=(\d)", done.stdout, re.MULTILINE))
    assert set(counts) == set(LOGINS), done.stdout + done.stderr
    refused = {host: text for host, (_inputs, text) in LOGINS.items() if text}
    if login == "root":
        refused = {"another_user": refused["another_user"]}
    assert {host for host, count in counts.items() if count != "0"} == set(refused), done.stdout
    for host, text in refused.items():
        (line,) = re.findall(rf"^fatal: \[{host}\].*\n(?: .*\n)*", done.stdout, re.MULTILINE)
        assert text in line


def test_a_group_with_a_space_is_one_group(tmp_path: Path) -> None:
    tool = tmp_path / "id"
    tool.write_text("""#!/bin/sh
case $* in *--zero*) printf 'domain users\\0staff\\0' ;; *) echo domain users staff ;; esac
""")
    tool.chmod(0o755)
    shared = {"slurm_compute_controllers": ["head-01"], "ansible_user": "alice"}
    groups = {"whole": "domain users", "half": "users", "other": "staff"}
    hosts = {name: {**shared, "slurm_compute_ssh_groups": [one]} for name, one in groups.items()}
    preflight = {"name": "baremetal.dgx.slurm_compute", "tasks_from": "preflight"}
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"import_role": preflight}]}
    done = played(tmp_path, hosts, play, PATH=f"{tmp_path}:{os.environ['PATH']}")
    counts = dict(re.findall(r"^(\S+)\s+: .*failed=(\d)", done.stdout, re.MULTILINE))
    assert counts == {"whole": "0", "half": "1", "other": "0"}, done.stdout
    assert "would lock out alice" in done.stdout


def test_a_node_outside_a_run_gets_slurms_files_alone(tmp_path: Path) -> None:
    """slurmd reads them at once; one of another release is left to its turn."""
    source = tmp_path / "plan"
    source.mkdir()
    for name in ("slurm.conf", "cgroup.conf", "gres.conf", "plugstack.conf"):
        (source / name).write_text("one\n")
    running = {
        "same": ("slurm 24.11.5", "active"),
        "distribution": ("slurm-wlm 24.11.5", "active"),
        "stopped": ("slurm 24.11.5", "inactive"),
        "old": ("slurm 23.11", "active"),
        "new": ("", "inactive"),
    }
    hosts = {name: {"slurm_base_version": "24.11"} for name in running}
    for name, (release, state) in running.items():
        (tmp_path / name).mkdir()
        tools = {"systemctl": f"echo ActiveState={state}"}
        if release:
            tools["slurmd"] = f"echo {release}"
        for tool, does in tools.items():
            (tmp_path / name / tool).write_text(f"#!/bin/sh\n{does}\n")
            (tmp_path / name / tool).chmod(0o755)
    load, *tasks = read_yaml(ROLES / "slurm_compute/tasks/files.yml")
    (*_written, service) = tasks[-1]["block"]
    for task, started in ((load, "set_vars.yml"), (service, "service.yml")):
        assert task.pop("ansible.builtin.import_tasks") == started
    service["ansible.builtin.debug"] = {"msg": "slurmd of {{ inventory_hostname }} reads"}
    role = {"name": "baremetal.dgx.slurm_compute", "tasks_from": "set_vars"}
    held = f"{tmp_path}/{{{{ inventory_hostname }}}}/{{}}"
    given = {
        "slurm_compute_config_dir": str(source),
        "__slurm_base_config_file": {"path": held, "source": f"{source}/{{}}", "mode": "0644"},
        "__slurm_base_topology_names": [],
        "__slurm_base_config_validate": [],
    }
    play = {
        "hosts": "all",
        "environment": {"PATH": f"{tmp_path}/{{{{ inventory_hostname }}}}:{os.environ['PATH']}"},
        "tasks": [{"import_role": role}, *tasks],
    }
    done = played(tmp_path, hosts, play, "-e", json.dumps(given))
    assert done.returncode == 0, done.stdout + done.stderr
    wrote = {path.parent.name for path in tmp_path.glob("*/slurm.conf")} - {"plan"}
    assert wrote == {"same", "distribution", "stopped"}
    assert set(re.findall(r"slurmd of (\w+) reads", done.stdout)) == {"same", "distribution"}


class Shell:
    """What the module of the collection community.mysql asks of its AnsibleModule to dump."""

    def get_bin_path(self, name: str, _required: bool) -> str:
        found = shutil.which(name)
        assert found
        return found

    def run_command(
        self, command: str, use_unsafe_shell: bool, executable: str = "sh"
    ) -> tuple[int, str, str]:
        assert use_unsafe_shell
        argv = [executable, "-c", command]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("rc", [0, 2])
def test_half_a_copy_of_the_database_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rc: int
) -> None:
    """slurmdbd converts the tables after it, and there is no other way back."""
    program = tmp_path / "mariadb-dump"
    program.write_text(f"#!/bin/sh\necho CREATE TABLE\nexit {rc}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    block = read_yaml(ROLES / "slurm_database/tasks/install.yml")[0]["block"]
    (dump,) = [task["community.mysql.mysql_db"] for task in block if "mysql_db" in str(task)]
    target = str(tmp_path / dump["target"].rpartition("/")[2])
    given = {"single_transaction": dump["single_transaction"], "pipefail": dump.get("pipefail")}
    database = ("localhost", None, None, ["slurm_acct_db"], target, False, 3306, None)
    answer = mysql_db.db_dump(Shell(), *database, "mariadb", "10.11.6", **given)
    assert answer[0] == rc
    assert gzip.decompress(Path(target).read_bytes()) == b"CREATE TABLE\n"
    # What is whole gets the name that it is found by.
    move = block[-1]["ansible.builtin.command"]["argv"]
    assert move[-2] == dump["target"]
    assert move[-1].endswith(".sql.gz")
    assert not dump["target"].endswith(".sql.gz")
