# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._host.runtime import (
    CAP_SYS_TIME,
    Absent,
    Change,
    compare,
    expand_manager,
    has_capability,
    normal,
    one_line,
    parse_properties,
    parse_size,
    selected,
    sysctl_path,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1"), (True, "1"), (False, "0"), ("4096\t87380\t 6291456 ", "4096 87380 6291456")],
)
def test_normal(value, text):
    assert normal(value) == text


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("vm.swappiness", "vm/swappiness"),
        ("net.ipv4.conf.all.arp_ignore", "net/ipv4/conf/all/arp_ignore"),
        # sysctl.d(5): two spellings of an interface with a dot in its name
        ("net/ipv4/conf/eth0.1/rp_filter", "net/ipv4/conf/eth0.1/rp_filter"),
        ("net.ipv4.conf.eth0/1.rp_filter", "net/ipv4/conf/eth0.1/rp_filter"),
    ],
)
def test_sysctl_path(key, path):
    assert sysctl_path(key) == f"/proc/sys/{path}"


@pytest.mark.parametrize(
    ("text", "value"),
    [("always [madvise] never", "madvise"), ("performance", "performance"), ("", "")],
)
def test_selected(text, value):
    assert selected(text) == value


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("infinity", "infinity"),
        ("18446744073709551615", "infinity"),
        ("8M", "8388608"),
        ("64K", "65536"),
        ("1024", "1024"),
        ("4d", "4d"),
    ],
)
def test_parse_size(text, size):
    assert parse_size(text) == size


def test_limits_are_two_properties():
    assert expand_manager({"DefaultLimitMEMLOCK": "infinity"}) == {
        "DefaultLimitMEMLOCK": "infinity",
        "DefaultLimitMEMLOCKSoft": "infinity",
    }
    assert expand_manager({"DefaultLimitNOFILE": "1024:1M"}) == {
        "DefaultLimitNOFILE": "1048576",
        "DefaultLimitNOFILESoft": "1024",
    }
    assert expand_manager({"DefaultTasksMax": 100}) == {"DefaultTasksMax": "100"}


def test_a_boolean_of_systemd_is_a_word():
    """`systemctl show` prints it so; a kernel parameter is 1 or 0."""
    settings = {"DefaultMemoryAccounting": True, "DefaultIOAccounting": False}
    wanted = expand_manager(settings)
    have = parse_properties("DefaultMemoryAccounting=yes\nDefaultIOAccounting=no\n")
    assert compare("manager", wanted, have) == ([], [])


def test_parse_properties():
    text = "DefaultLimitMEMLOCK=18446744073709551615\nDefaultTasksMax=15%\nEnvironment=A=B\nx\n"
    assert parse_properties(text) == {
        "DefaultLimitMEMLOCK": "infinity",
        "DefaultTasksMax": "15%",
        "Environment": "A=B",
    }


def test_compare():
    wanted = {"a": "1", "b": "2", "c": "3"}
    changes, absent = compare("sysctl", wanted, {"a": "1", "b": "5", "c": None})
    assert changes == [Change("sysctl", "b", "5", "2")]
    assert absent == [Absent("c", "this kernel does not have it")]
    assert one_line([*changes, Change("hostname", "host name", "", "x")]) == (
        "b is 5, wanted 2; host name is empty, wanted x"
    )


def test_capability():
    # a container without SYS_TIME, and one with everything
    assert not has_capability("Name:\tx\nCapBnd:\t000001fffcfcffff\n", CAP_SYS_TIME)
    assert has_capability("Name:\tx\nCapBnd:\t000001ffffffffff\n", CAP_SYS_TIME)
    assert not has_capability("", CAP_SYS_TIME)
