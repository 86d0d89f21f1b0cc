# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plugstack.conf is judged by what it would do to jobs, as measured on real ones."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.containers.plugstack import (
    fingerprint,
    header_version,
    is_source,
    judge_help,
    judge_stack,
    own_lines,
    parse_stack,
    same_release,
    slurm_version,
    staged_conf,
)

PATH = "/usr/local/lib/slurm/spank_pyxis-0123456789ab.so"
OLD = "/usr/local/lib/slurm/spank_pyxis-ba9876543210.so"
LINE = f"required {PATH} runtime_path=/run/pyxis container_scope=job"
CONF = "/etc/slurm/plugstack.conf"


def judge(text: str, readable: tuple[str, ...] = (PATH,), runs_jobs: bool = True) -> list[str]:
    return judge_stack(parse_stack(text), LINE, readable, CONF, runs_jobs)


def test_the_right_line_is_right() -> None:
    text = f"# Managed\n\noptional /usr/lib/slurm/other.so  # a comment\n{LINE}\n"
    assert judge(text) == []
    assert judge(text, runs_jobs=False) == []


def test_compute_node_without_the_line() -> None:
    (output,) = judge("# nothing\n")
    assert "would run on the bare host, with return code 0" in output


def test_client_without_the_line() -> None:
    (output,) = judge("", runs_jobs=False)
    assert "would not know --container-image" in output


def test_missing_plugin_on_a_client_breaks_every_srun() -> None:
    (output,) = judge(LINE, readable=(), runs_jobs=False)
    assert output.startswith(f"{PATH} is missing")
    assert "every srun, sbatch and salloc from here fails" in output


def test_missing_plugin_on_a_compute_node_drains_it() -> None:
    (output,) = judge(LINE, readable=())
    assert "no job starts here, and srun may return 0" in output


def test_missing_optional_plugin_is_silent_for_slurm_and_not_for_us() -> None:
    (output,) = judge(LINE.replace("required", "optional"), readable=())
    assert "bare host" in output


def test_broken_required_line_on_a_compute_node() -> None:
    (output,) = judge(f"{LINE} no_such_option=1")
    assert "no job would start here, and srun may return 0" in output


@pytest.mark.parametrize(
    "text", [LINE.replace("required", "optional"), LINE.replace(PATH, OLD), f"{LINE} importer=/x"]
)
def test_another_line_than_the_others_have(text: str) -> None:
    (output,) = judge(text, readable=(PATH, OLD), runs_jobs=False)
    assert "all hosts must have the same line" in output


def test_the_line_twice() -> None:
    assert any("2 times" in message for message in judge(f"{LINE}\n{LINE}\n"))


def test_parsing() -> None:
    text = "include /etc/slurm/plugstack.conf.d/*.conf\nREQUIRED x.so a=b\nnonsense\n"
    assert [str(line) for line in parse_stack(text)] == ["required x.so a=b"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("slurm-wlm 24.11.5\n", "24.11.5"),
        ("slurm 25.05.2-0rc1\n", "25.05.2-0rc1"),
        ("srun: error: x\nslurm 22.05.8", "22.05.8"),
        ("command not found", ""),
    ],
)
def test_version_of_srun(text: str, version: str) -> None:
    assert slurm_version(text) == version


def test_version_of_headers() -> None:
    assert header_version("/* */\n#define SLURM_VERSION_NUMBER 0x180b05\n") == "24.11.5"
    assert header_version("#define SLURM_VERSION_NUMBER 0x160508") == "22.05.8"
    assert header_version("#define SLURM_OTHER 1") == ""
    assert same_release("24.11.5", "24.11.5-2")
    assert not same_release("24.11.5", "24.11.6")


def test_fingerprint_follows_what_a_build_depends_on() -> None:
    base = fingerprint("24.11.5", "x86_64", {"a.c": "1", "b.c": "2"})
    assert base == fingerprint("24.11.5", "x86_64", {"b.c": "2", "a.c": "1"})
    assert len(base) == 12
    others = [
        fingerprint("24.11.6", "x86_64", {"a.c": "1", "b.c": "2"}),
        fingerprint("24.11.5", "aarch64", {"a.c": "1", "b.c": "2"}),
        fingerprint("24.11.5", "x86_64", {"a.c": "1", "b.c": "3"}),
        fingerprint("24.11.5", "x86_64", {"a.c": "1", "c.c": "2"}),
    ]
    assert len({base, *others}) == 5


def test_what_counts_as_source() -> None:
    assert [is_source(name) for name in ("Makefile", "src/a.c", "a.o", "x.so", ".git/HEAD")] == [
        True, True, False, False, False
    ]  # fmt: skip


def test_staged_conf_uses_its_own_stack() -> None:
    text = staged_conf("ClusterName=x\nplugstackconfig=/old\nSlurmctldHost=h\n", "/tmp/s")
    assert text == "ClusterName=x\nSlurmctldHost=h\nPlugStackConfig=/tmp/s\n"


HELP = "Usage: srun [OPTIONS]\n\nOptions provided by plugins:\n      --container-image=PATH  x\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HELP, ""),
        ("Usage: srun [OPTIONS]\n", "does not list --container-image"),
        (
            "srun: error: Incompatible Slurm plugin /x.so version (22.05.8)\nsrun: error: failed\n",
            "Incompatible Slurm plugin",
        ),
        # an optional plug-in that fails: srun goes on, and reports it
        ("srun: error: spank: /x.so: Plugin file not found\n" + HELP, "Plugin file not found"),
    ],
)
def test_help_text(text: str, words: str) -> None:
    result = judge_help(text, "--container-image")
    assert (result == "") == (words == "")
    assert words in result


def test_own_lines() -> None:
    lines = [LINE, LINE.replace(PATH, OLD), "required /x/other.so", "# nothing"]
    assert own_lines(lines, PATH) == lines[:2]
