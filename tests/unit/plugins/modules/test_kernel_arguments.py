# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""kernel_arguments with boot loaders that are made up but read the files it writes."""

from __future__ import annotations

import os
import subprocess

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host import kernel_arguments as _kernel
from ansible_collections.baremetal.dgx.plugins.modules import kernel_arguments


@pytest.fixture
def node(monkeypatch, tmp_path):
    """A node whose kernel was booted with `ro quiet`; paths are below tmp_path."""
    (tmp_path / "cmdline").write_text("BOOT_IMAGE=/vmlinuz ro quiet\n")
    (tmp_path / "grub.cfg").write_text("linux /vmlinuz ro quiet\n")
    for name, path in {
        "_DROP_IN": f"grub.d/{os.path.basename(_kernel._DROP_IN)}",
        "_OLD_DROP_IN": "grub.d/99-baremetal-dgx.cfg",
        "_GRUB_CONFIG": "grub.cfg",
        "_RECORD": "lib/kernel_arguments",
        "_MARKER": "run/reboot-required",
    }.items():
        monkeypatch.setattr(_kernel, name, str(tmp_path / path))
    really = _kernel.text_if_there
    monkeypatch.setattr(
        _kernel,
        "text_if_there",
        lambda path: really(str(tmp_path / "cmdline") if path == "/proc/cmdline" else path),
    )
    monkeypatch.setattr(kernel_arguments.steps, "titles", lambda: ["slurmstepd: [7.batch]"])
    return tmp_path


@pytest.fixture
def tools(monkeypatch, node):
    """Programs of the node: name → function of its words that returns rc and output."""
    found = {}
    log = []

    def run(argv, timeout_s=30, env=None):
        if argv[0] not in found:
            return CommandResult(tuple(argv), MISSING)
        log.append(list(argv))
        rc, out = found[argv[0]](list(argv[1:]))
        return CommandResult(tuple(argv), ENDED, rc, out)

    monkeypatch.setattr(kernel_arguments, "ModuleRunner", lambda module: run)
    monkeypatch.setattr(
        kernel_arguments.AnsibleModule,
        "get_bin_path",
        lambda self, name, **_o: name if name in found else None,
    )
    found["log"] = log
    return found


@pytest.fixture
def grub(tools, node):
    def update(words):
        # As grub-mkconfig does: the files in the order of their names, each read into one shell.
        script = (
            "set -e; GRUB_CMDLINE_LINUX=ro; GRUB_CMDLINE_LINUX_DEFAULT=quiet\n"
            f'for file in "{node}"/grub.d/*.cfg; do if [ -e "$file" ]; then . "$file"; fi; done\n'
            'echo "linux /vmlinuz $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"'
        )
        out = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
        (node / "grub.cfg").write_text(out.stdout)
        return 0, ""

    tools["update-grub"] = update
    return tools["log"]


@pytest.fixture
def bring(run_module):
    def run(check=False, **params):
        return run_module(kernel_arguments.main, params, check=check)

    return run


def test_check_then_real_then_again(grub, bring, node):
    params = {"arguments": ["iommu=pt"], "removed": ["quiet"]}
    predicted = bring(check=True, **params)
    assert grub == []
    assert not (node / "grub.d").exists()
    done = bring(**params)
    assert predicted["actions"] == done["actions"]
    assert done["actions"][-1] == "update-grub"
    assert (node / "grub.cfg").read_text().split() == ["linux", "/vmlinuz", "ro", "iommu=pt"]
    again = bring(**params)
    assert again["changed"] is False
    assert again["missing"] == ["iommu=pt"]
    assert again["unwanted"] == ["quiet"]
    assert again["reboot_needed"] is True
    assert again["running_steps"] == ["7.batch"]
    assert (node / "run" / "reboot-required").read_text() == (
        "missing kernel argument iommu=pt\nunwanted kernel argument quiet\n"
    )


@pytest.mark.parametrize(
    ("state", "why"),
    [("IDLE", "dgx-01 is in service in Slurm (IDLE)"), ("IDLE+DRAIN", ""),
     ("MIXED+DRAIN", "dgx-01 is in service in Slurm (MIXED+DRAIN)"), ("", "Slurm does not say")],
)  # fmt: skip
def test_whether_a_job_may_start_is_asked_where_a_reboot_is_needed(
    grub, tools, bring, node, monkeypatch, state, why
):
    monkeypatch.setattr(kernel_arguments, "short_name", lambda: "dgx-01")
    nodes = (0, f"NodeName=dgx-01 State={state} Partitions=all\n") if state else (1, "timed out")
    tools["scontrol"] = lambda words: nodes if words[1] == "node" else (0, "")
    tools["squeue"] = lambda words: (0, "")
    found = bring(check=True, arguments=["iommu=pt"])["in_service"]
    assert found.startswith(why)
    assert bool(found) == bool(why)
    grub.clear()
    (node / "cmdline").write_text("ro quiet iommu=pt\n")
    assert bring(check=True, arguments=["iommu=pt"])["in_service"] == ""
    assert grub == []


def test_after_the_reboot_the_marker_goes(grub, bring, node):
    bring(arguments=["iommu=pt"])
    (node / "cmdline").write_text("ro quiet iommu=pt\n")
    done = bring(arguments=["iommu=pt"])
    assert done["changed"] is False
    assert done["reboot_needed"] is False
    assert done["running_steps"] == []
    assert not (node / "run" / "reboot-required").exists()


def test_what_is_no_longer_declared_goes(grub, bring, node):
    bring(arguments=["iommu=pt"])
    assert bring()["actions"][-1] == "update-grub"
    assert (node / "grub.cfg").read_text() == "linux /vmlinuz ro quiet\n"
    assert bring()["changed"] is False


def test_killed_between_file_and_boot_loader(grub, bring, node, tools, monkeypatch):
    def killed(words):
        raise KeyboardInterrupt

    bring(arguments=["iommu=pt"])
    really = tools["update-grub"]
    tools["update-grub"] = killed
    with pytest.raises(KeyboardInterrupt):
        _kernel.Grub(
            kernel_arguments.ModuleRunner(None), [], []
        ).apply(["write", "update-grub"])  # fmt: skip
    # an empty list leaves no word that could be missed; only the age of the files tells
    now = os.stat(_kernel._DROP_IN).st_mtime
    os.utime(node / "grub.cfg", (now - 10, now - 10))
    tools["update-grub"] = really
    assert bring()["actions"] == ["update-grub"]
    assert "iommu=pt" not in (node / "grub.cfg").read_text()


def test_a_clock_that_was_ahead_costs_one_more_run(grub, bring, node):
    bring(arguments=["iommu=pt"])
    ahead = os.stat(node / "grub.cfg").st_mtime + 7200
    os.utime(_kernel._DROP_IN, (ahead, ahead))
    assert bring(arguments=["iommu=pt"])["actions"] == ["update-grub"]
    assert bring(arguments=["iommu=pt"])["changed"] is False


def test_nothing_declared_nothing_done(grub, bring, node):
    answer = bring()
    assert answer["changed"] is False
    assert grub == []
    assert not (node / "grub.d").exists()


def test_a_later_file_that_wins_is_an_error(tools, bring, node):
    tools["update-grub"] = lambda words: (0, "")
    answer = bring(arguments=["iommu=pt"])
    assert answer["failed"] is True
    assert "update-grub did not take what is declared: iommu=pt is not in" in answer["msg"]


KDUMP = 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=512M-:192M"\n'


def test_kdump_tools_neither_overrides_what_is_declared_nor_brings_back_what_is_removed(
    grub, bring, node
):
    (node / "grub.d").mkdir()
    (node / "grub.d/kdump-tools.cfg").write_text(KDUMP)
    for params, line in (
        ({"arguments": ["crashkernel=1G"]}, "ro quiet crashkernel=512M-:192M crashkernel=1G"),
        ({"removed": ["crashkernel=*"]}, "ro quiet"),
        ({"arguments": ["crashkernel=512M-:192M"]}, "ro quiet crashkernel=512M-:192M"),
    ):
        assert bring(**params)["changed"] is True
        assert (node / "grub.cfg").read_text() == f"linux /vmlinuz {line}\n"
        assert bring(**params)["changed"] is False
        (node / "cmdline").write_text(line)
        assert bring(**params)["reboot_needed"] is False


def test_the_file_of_an_earlier_release_goes(grub, bring, node):
    old = node / "grub.d/99-baremetal-dgx.cfg"
    old.parent.mkdir()
    old.write_text('GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT iommu=off"\n')
    done = bring()
    assert (done["changed"], old.exists()) == (True, False)
    assert f"remove {old}" in done["actions"]
    assert (node / "grub.cfg").read_text() == "linux /vmlinuz ro quiet\n"
    assert bring()["changed"] is False


def test_a_word_of_the_running_kernel_that_a_later_one_overrides_is_missing(grub, bring, node):
    bring(arguments=["crashkernel=1G"])
    (node / "cmdline").write_text("ro crashkernel=1G crashkernel=192M\n")
    again = bring(arguments=["crashkernel=1G"])
    assert (again["missing"], again["reboot_needed"]) == (["crashkernel=1G"], True)


def test_an_overridden_word_of_grub_cfg_is_an_error(tools, bring, node):
    (node / "grub.cfg").write_text("linux /vmlinuz a=1 a=2\n")
    tools["update-grub"] = lambda words: (0, "")
    assert "a=1 is not the last of its name in " in bring(arguments=["a=1"])["msg"]


def test_no_boot_loader(tools, bring):
    assert bring()["changed"] is False
    assert "neither update-grub nor grubby" in bring(arguments=["a=1"])["msg"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"arguments": ["a b"]}, "not a kernel argument of one plain word: 'a b'"),
        ({"arguments": ["a"], "removed": ["a"]}, "declared and removed at once: a"),
    ],
)
def test_refusals(grub, bring, params, message):
    assert message in bring(**params)["msg"]
    assert grub == []


@pytest.fixture
def grubby(tools):
    kernels = [["ro", "quiet"], ["ro", "quiet"]]

    def tool(words):
        if words == ["--info=ALL"]:
            return 0, "".join(f'index={i}\nargs="{" ".join(k)}"\n' for i, k in enumerate(kernels))
        assert words[0] == "--update-kernel=ALL"
        given = dict(word.split("=", 1) for word in words[1:])
        added = given.get("--args", "").split()
        names = {word.partition("=")[0] for word in added}
        for kernel in kernels:
            for word in given.get("--remove-args", "").split():
                if word in kernel:
                    kernel.remove(word)
            kernel[:] = [one for one in kernel if one.partition("=")[0] not in names] + added
        return 0, ""

    tools["grubby"] = tool
    return kernels


def test_grubby_check_then_real_then_again(grubby, tools, bring, node):
    params = {"arguments": ["iommu=pt"], "removed": ["quiet"]}
    assert bring(check=True, **params)["actions"] == ["add iommu=pt", "remove quiet"]
    assert grubby == [["ro", "quiet"]] * 2
    assert bring(**params)["changed"] is True
    assert grubby == [["ro", "iommu=pt"]] * 2
    assert bring(**params)["changed"] is False
    # what this module has set and is no longer declared goes away
    assert bring()["actions"] == ["remove iommu=pt"]
    assert grubby == [["ro"]] * 2
    tools["log"].clear()
    assert bring()["changed"] is False
    assert tools["log"] == []


HUGE = ["hugepagesz=1G", "hugepages=8", "hugepagesz=2M", "hugepages=8"]


def test_a_name_that_occurs_twice_is_set_in_its_order(grub, bring, node):
    bring(arguments=["hugepagesz=1G", "hugepages=8"])
    done = bring(arguments=HUGE)
    assert done["actions"][-1] == "update-grub"
    assert (node / "grub.cfg").read_text().split()[4:] == HUGE
    # The running kernel gives the second size no pages.
    (node / "cmdline").write_text(f"ro quiet {' '.join(HUGE[:3])}\n")
    again = bring(arguments=HUGE)
    assert (again["changed"], again["missing"]) == (False, HUGE)
    (node / "cmdline").write_text(f"ro quiet {' '.join(HUGE)}\n")
    assert bring(arguments=HUGE)["missing"] == []
    assert bring(arguments=HUGE[2:])["changed"] is True
    assert (node / "grub.cfg").read_text().split()[4:] == HUGE[2:]


@pytest.mark.parametrize("later", [[], HUGE[:2], HUGE[2:], [*HUGE[2:], *HUGE[:2]], HUGE[:3]])
def test_grubby_sets_a_name_that_occurs_twice_as_a_whole(grubby, bring, node, later):
    bring(arguments=HUGE)
    assert grubby == [["ro", "quiet", *HUGE]] * 2
    assert bring(arguments=HUGE)["changed"] is False
    # One entry of the boot loader has it in part.
    grubby[1].remove("hugepages=8")
    assert bring(arguments=HUGE)["changed"] is True
    assert grubby == [["ro", "quiet", *HUGE]] * 2
    assert bring(check=True, arguments=later)["actions"] == bring(arguments=later)["actions"] != []
    assert grubby == [["ro", "quiet", *later]] * 2
    assert bring(arguments=later)["changed"] is False


def test_grubby_killed_before_its_record_is_trimmed(grubby, bring, node):
    bring(arguments=["iommu=pt"])
    (node / "lib" / "kernel_arguments").write_text("a=1\niommu=pt\n")
    grubby[0].append("a=1")
    assert bring(arguments=["iommu=pt"])["actions"] == ["remove a=1"]
    assert (node / "lib" / "kernel_arguments").read_text() == "iommu=pt\n"
