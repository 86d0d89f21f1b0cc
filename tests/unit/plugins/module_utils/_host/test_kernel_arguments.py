# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._host.kernel_arguments import (
    bad_arguments,
    grub_drop_in,
    grub_words,
    grubby_words,
    missing,
    split_line,
    unwanted,
)


def grub_line(drop_in, linux="ro", default="quiet splash"):
    """Read the drop-in as grub-mkconfig does, and return the two variables."""
    script = (
        f'set -e\nGRUB_CMDLINE_LINUX="{linux}"\nGRUB_CMDLINE_LINUX_DEFAULT="{default}"\n'
        f'{drop_in}\nprintf "%s\\n%s\\n" "$GRUB_CMDLINE_LINUX" "$GRUB_CMDLINE_LINUX_DEFAULT"\n'
    )
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_drop_in_adds_what_is_missing():
    text = grub_drop_in(["iommu=pt", "pci=realloc=off", "crashkernel=1G-:2048M"], [])
    assert grub_line(text) == ["ro", "quiet splash iommu=pt pci=realloc=off crashkernel=1G-:2048M"]


def test_drop_in_does_not_set_twice_what_a_dgx_package_has_set():
    text = grub_drop_in(["iommu=pt", "init_on_alloc=0"], [])
    assert grub_line(text, linux="ro iommu=pt") == ["ro iommu=pt", "quiet splash init_on_alloc=0"]


def test_drop_in_takes_words_out_of_both_variables():
    text = grub_drop_in(["a=1"], ["quiet", "mitigations=*"])
    lines = grub_line(text, linux="quiet ro mitigations=off", default="splash quiet mitigations=x")
    assert lines == ["ro", "splash a=1"]


def test_drop_in_takes_words_literally():
    text = grub_drop_in([], ["a.c"])
    assert grub_line(text, linux="abc * a.c", default="")[0] == "abc *"


def test_drop_in_without_anything_has_no_effect():
    assert grub_line(grub_drop_in([], [])) == ["ro", "quiet splash"]


@pytest.mark.parametrize(
    "bad",
    [
        "", "a b", "a'b", 'a"b', "a$b", "a`b`", "a\\b", "a\nb", "-x", "a;b c", "a\n",
        # GRUB ends a word there, and would give the kernel what is before it.
        "pci=disable_acs_redir=0000:00:01.0;0000:00:02.0", "a=<b", "a>b",
    ],
)  # fmt: skip
def test_bad_arguments(bad):
    assert bad_arguments([bad]) == [bad]


@pytest.mark.parametrize(
    "good",
    ["iommu=pt", "quiet", "console=ttyS0,115200n8", "crashkernel=1G-:2048M", "mitigations=*"],
)
def test_good_arguments(good):
    assert bad_arguments([good]) == []


def test_split_line():
    assert split_line('ro dyndbg="file x +p" quiet') == ["ro", "dyndbg=file x +p", "quiet"]
    assert split_line('ro broken="') == ["ro", 'broken="']


def test_missing_and_unwanted():
    words = ["ro", "iommu=pt", "mitigations=off", "mitigations=auto", "quiet"]
    assert missing(words, ["iommu=pt", "mitigations", "a=1"]) == ["mitigations", "a=1"]
    assert unwanted(words, ["mitigations=*", "quiet", "splash", "iommu"]) == [
        "mitigations=off", "mitigations=auto", "quiet",
    ]  # fmt: skip


# The kernel, dracut and systemd take each word of these.
ADDED = (
    "cgroup_disable", "cgroup_enable", "iommu", "intel_iommu", "amd_iommu", "initcall_blacklist",
    "acpi_osi", "ip", "systemd.setenv", "systemd.wants",
)  # fmt: skip


@pytest.mark.parametrize(
    ("line", "argument", "good"),
    [
        ("a=1 b=2", "a=1", True), ("a=1 a=2", "a=1", False), ("a=2 a=1", "a=1", True),
        ("nosmt nosmt=force", "nosmt", False), ("ab=1 a=1", "a=1", True), ("a=1 ab=2", "a=1", True),
        ("console=ttyS0 console=tty0", "console=ttyS0", True), ("console=tty0", "console=x", False),
        ("pci=realloc=off pci=noaer", "pci=realloc=off", True),
        ("rd.lvm.lv=a rd.lvm.lv=b", "rd.lvm.lv=a", True),
        ("hugepages=4 hugepagesz=1G hugepages=8", "hugepages=4", True),
        ("nvidia.a=1 nvidia.a=0", "nvidia.a=1", False), ("a.b=1 axb=2", "a.b=1", True),
        *((f"{name}=a {name}=b", f"{name}=a", True) for name in ADDED),
        ("crashkernel=1G crashkernel=9M,high", "crashkernel=1G", True),
        ("crashkernel=1G crashkernel=9M", "crashkernel=1G", False),
        ("crashkernel=1G,high crashkernel=9M,low", "crashkernel=1G,high", True),
    ],
)  # fmt: skip
def test_the_last_word_of_a_name_is_in_force(line, argument, good):
    assert (missing(line.split(), [argument]) == []) is good
    # The file of GRUB sets what is not, and nothing twice.
    after = grub_line(grub_drop_in([argument], []), linux="", default=line)[1]
    assert after == (line if good else f"{line} {argument}")
    assert missing(after.split(), [argument]) == []


def test_a_name_that_occurs_twice_counts_by_its_order():
    huge = ["hugepagesz=1G", "hugepages=8", "hugepagesz=2M", "hugepages=8"]
    assert missing(["ro", *huge[:2], "quiet", *huge[2:]], huge) == []
    assert missing(huge[:3], huge) == huge
    assert missing([*huge[2:], *huge[:2]], huge) == huge
    # The last word of another name counts all the same.
    more = [*huge, "a=1"]
    assert missing([*more, "b=1"], more) == []
    assert missing([*more, "a=2"], more) == more
    assert grub_line(grub_drop_in(huge, []), default="hugepages=8") == [
        "ro", "hugepages=8 " + " ".join(huge),
    ]  # fmt: skip


GRUB = """\
menuentry 'Debian' {
        linux   /boot/vmlinuz-6.12 root=UUID=x ro  quiet iommu=pt
        initrd  /boot/initrd.img
}
menuentry 'recovery' {
        linux   /boot/vmlinuz-6.12 root=UUID=x ro single
}
"""


def test_grub_words_are_those_of_the_first_entry():
    assert grub_words(GRUB) == ["root=UUID=x", "ro", "quiet", "iommu=pt"]
    assert grub_words("linux /vmlinuz\ninitrd /x\n") == []
    assert grub_words("") is None


def test_grubby_words():
    text = 'index=0\nkernel="/boot/a"\nargs="ro iommu=pt"\nindex=1\nargs="ro $tuned_params"\n'
    assert grubby_words(text) == [["ro", "iommu=pt"], ["ro", "$tuned_params"]]
