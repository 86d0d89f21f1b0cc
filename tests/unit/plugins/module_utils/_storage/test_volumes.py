# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Volumes of local disks: built where nothing is, refused where anything is that is not ours."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._storage import volumes as _volumes
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.volumes import Volume

NAMES = ("/dev/disk/by-id/nvme-a", "/dev/disk/by-id/nvme-b")
PATHS = {NAMES[0]: "/dev/nvme0n1", NAMES[1]: "/dev/nvme1n1"}
MD = Volume("scratch", "md", NAMES, "/scratch", "dgx-scratch")
PLAIN = Volume("scratch", "plain", NAMES[:1], "/scratch", "dgx-scratch")
LVM = Volume("scratch", "lvm", NAMES, "/scratch", "dgx-scratch")
EXPORT = """\
MD_LEVEL=raid0
MD_DEVICES=2
MD_METADATA=1.2
MD_UUID=aaaa:bbbb:cccc:dddd
MD_NAME=any:scratch
MD_DEVICE_dev_nvme1n1_ROLE=1
MD_DEVICE_dev_nvme1n1_DEV=/dev/nvme1n1
MD_DEVICE_dev_nvme0n1_ROLE=0
MD_DEVICE_dev_nvme0n1_DEV=/dev/nvme0n1
"""


def disk(name, **more):
    """A disk as lsblk --json tells it."""
    data = {
        "name": name,
        "type": "disk",
        "size": 3840755982336,
        "ro": False,
        "model": "DISK 3840   ",
        "serial": "S" + name[-3],
        "mountpoints": [None],
    }
    return {**data, **more}


def member(name, child=None, **more):
    return disk(
        name,
        fstype="linux_raid_member",
        label="any:scratch",
        uuid="md-uuid",
        children=[child] if child else [],
        **more,
    )


def md(**more):
    return disk("/dev/md127", **{"type": "raid0", **more})


def planned(volume, disks, written=(), consent=False, arrays=None, paths=None, groups=None):
    found = _volumes.devices({"blockdevices": disks})
    chosen = PATHS if paths is None else paths
    return _volumes.plan(volume, chosen, found, arrays or {}, written, consent, groups or {})


def commands(outcome):
    return [step.argv[0] for step in outcome.steps]


BLANK = [disk("/dev/nvme0n1"), disk("/dev/nvme1n1")]
ARRAYS = {"/dev/md127": _volumes.array(EXPORT)}


def test_blank_disks_become_an_array_with_a_file_system():
    outcome = planned(MD, BLANK)
    assert commands(outcome) == ["blkdiscard", "blkdiscard", "mdadm", "mkfs.xfs"]
    assert outcome.steps[2].argv[-2:] == ("/dev/nvme0n1", "/dev/nvme1n1")
    assert outcome.steps[3].argv == ("mkfs.xfs", "-L", "dgx-scratch", "/dev/md/scratch")


def test_blank_disks_become_a_striped_volume():
    names = commands(planned(LVM, BLANK))
    assert names == ["blkdiscard", "blkdiscard", "vgcreate", "lvcreate", "mkfs.xfs"]


def test_a_blank_disk_becomes_a_file_system():
    outcome = planned(PLAIN, BLANK)
    assert commands(outcome) == ["mkfs.xfs"]
    assert outcome.device == "/dev/nvme0n1"


def test_what_is_as_declared_is_left_alone_whatever_the_notes_say():
    array = md(fstype="xfs", label="dgx-scratch", uuid="fs", mountpoints=["/scratch"])
    disks = [member("/dev/nvme0n1", array), member("/dev/nvme1n1", array)]
    for written, consent in itertools.product(((), ("fs", "md-uuid")), (False, True)):
        outcome = planned(MD, disks, written, consent, ARRAYS)
        assert (outcome.steps, outcome.refused) == ((), ())
        assert outcome.device == "/dev/md127"


def test_an_array_that_a_killed_run_left_unformatted_is_formatted():
    disks = [member("/dev/nvme0n1", md()), member("/dev/nvme1n1", md())]
    outcome = planned(MD, disks, arrays=ARRAYS)
    assert commands(outcome) == ["mkfs.xfs"]
    assert "-f" not in outcome.steps[0].argv


FOREIGN = [
    {"fstype": "xfs", "uuid": "x", "label": "data"},
    {"fstype": "linux_raid_member", "uuid": "other", "label": "dgx:1"},
    {"fstype": "LVM2_member", "uuid": "pv"},
    {"fstype": "crypto_LUKS", "uuid": "luks"},
    {"fstype": "swap", "uuid": "s"},
    {"fstype": "zfs_member"},
    {"pttype": "gpt"},
    {"pttype": "dos"},
    {"mountpoints": ["/"]},
    {"ro": True},
    {"children": [disk("/dev/nvme0n1p1", type="part", fstype="ext4", uuid="root")]},
    {"children": [disk("/dev/nvme0n1p1", type="part", mountpoints=["/boot"])]},
]


@pytest.mark.parametrize("volume", [MD, PLAIN, LVM], ids=lambda one: one.kind)
@pytest.mark.parametrize("consent", [False, True])
@pytest.mark.parametrize("what", FOREIGN, ids=str)
def test_a_disk_with_anything_foreign_is_never_written_to(volume, what, consent):
    disks = [disk("/dev/nvme0n1", **what), disk("/dev/nvme1n1")]
    outcome = planned(volume, disks, ("ours",), consent)
    assert outcome.refused
    assert not outcome.steps
    assert "/dev/nvme0n1" in outcome.refused[0]


def test_own_leftovers_need_consent():
    disks = [member("/dev/nvme0n1"), disk("/dev/nvme1n1")]
    refused = planned(MD, disks, ("md-uuid",))
    assert "local_storage_wipe: true" in refused.refused[0]
    outcome = planned(MD, disks, ("md-uuid",), consent=True)
    assert commands(outcome) == ["wipefs", "blkdiscard", "blkdiscard", "mdadm", "mkfs.xfs"]
    assert outcome.steps[0].argv[-1] == "/dev/nvme0n1"


class Stack:
    """Disks whose old file system shows as soon as a volume begins where the old one did."""

    def __init__(self, volume):
        self.kind = "linux_raid_member" if volume.kind == "md" else "LVM2_member"
        self.volume, self.built, self.fs = volume, False, None
        # The second disk is a new one.
        self.member = {"/dev/nvme0n1": "old", "/dev/nvme1n1": ""}
        self.old = {"/dev/nvme0n1"}

    def plan(self, consent):
        top = md() if self.volume.kind == "md" else disk(
            "/dev/mapper/dgx--scratch-scratch", type="lvm"
        )  # fmt: skip
        top |= {"fstype": "xfs", "label": "dgx-scratch", "uuid": self.fs} if self.fs else {}
        disks = [
            disk(name, children=[top] if self.built else [],
                 **({"fstype": self.kind, "uuid": uuid} if uuid else {}))
            for name, uuid in self.member.items()
        ]  # fmt: skip
        return planned(self.volume, disks, ("old", "new"), consent, ARRAYS)

    def do(self, step):
        if step.argv[0] == "wipefs":
            self.member[step.argv[-1]] = ""
        elif step.argv[0] == "blkdiscard":
            assert step.argv[1:4] == ("--zeroout", "--length", "1GiB")
            self.old.discard(step.argv[-1])
        elif step.argv[0] in ("mdadm", "lvcreate"):
            self.member = dict.fromkeys(self.member, "new")
            self.built, self.fs = True, "half" if self.old else None
        elif step.argv[0] == "mkfs.xfs":
            assert not self.fs, "mkfs refuses what is there"
            self.fs = "fresh"


@pytest.mark.parametrize("volume", [MD, LVM], ids=lambda one: one.kind)
@pytest.mark.parametrize("killed", range(7))
def test_a_volume_with_a_new_disk_never_gets_its_old_file_system_back(volume, killed):
    """Nor where a run was killed, or the disks were wiped by hand."""
    world = Stack(volume)
    for step in world.plan(True).steps[:killed]:
        if step.argv[0] == "vgcreate":
            break
        world.do(step)
    for step in world.plan(True).steps:
        world.do(step)
    assert world.fs == "fresh"
    assert not world.plan(False).steps


@pytest.mark.parametrize("empty", [False, True], ids=["active", "lost a member"])
def test_what_is_built_of_several_disks_is_taken_apart_once_and_first(empty):
    """An array that lacks a member has no size and no level, and holds the others."""
    wrong = Volume("other", "md", NAMES, "/scratch", "dgx-other")
    array = md(type="md", size=0) if empty else md(fstype="xfs", uuid="fs")
    disks = [member("/dev/nvme0n1", array), member("/dev/nvme1n1", array)]
    outcome = planned(wrong, disks, ("md-uuid", "fs"), True, {} if empty else ARRAYS)
    assert commands(outcome)[:4] == ["mdadm", "wipefs", "wipefs", "blkdiscard"]
    assert outcome.steps[0].argv == ("mdadm", "--stop", "/dev/md127")
    striped = disk("/dev/mapper/dgx--o-o", type="lvm")
    disks = [member(name, striped) for name in ("/dev/nvme0n1", "/dev/nvme1n1")]
    outcome = planned(wrong, disks, ("md-uuid",), True)
    assert commands(outcome)[:4] == ["lvremove", "wipefs", "wipefs", "blkdiscard"]
    assert "--all" in _volumes.LSBLK, "else lsblk hides what has no size"


PVS = """  {
      "report": [
          {
              "pv": [
                  {"pv_name":"/dev/nvme0n1", "vg_name":"dgx-scratch", "lv_count":"0"},
                  {"pv_name":"/dev/nvme1n1", "vg_name":"dgx-scratch", "lv_count":"0"},
                  {"pv_name":"/dev/sda3", "vg_name":"system", "lv_count":"2"},
                  {"pv_name":"/dev/sdb", "vg_name":"", "lv_count":""}
              ]
          }
      ]
  }
"""


def test_a_group_that_a_killed_run_left_empty_gets_its_volume():
    groups = _volumes.empty_groups(PVS)
    assert groups == {"dgx-scratch": ("/dev/nvme0n1", "/dev/nvme1n1")}
    pvs = [disk(name, fstype="LVM2_member", uuid="pv") for name in groups["dgx-scratch"]]
    # Whether or not the killed run has noted them.
    for known in ((), ("pv",)):
        outcome = planned(LVM, pvs, known, groups=groups)
        assert commands(outcome) == ["lvcreate", "mkfs.xfs"]
        assert outcome.device == "/dev/dgx-scratch/scratch"
    # Any other group, of other disks, or with more on them, stays what it is.
    for other in (
        {},
        {"dgx-data": groups["dgx-scratch"]},
        {"dgx-scratch": ("/dev/nvme0n1",)},
        {"dgx-scratch": (*groups["dgx-scratch"], "[unknown]")},
    ):
        assert planned(LVM, pvs, groups=other).refused
    for more in ({"pttype": "gpt"}, {"fstype": "ext4"}, {"children": [disk("/dev/md9")]}):
        assert planned(LVM, [pvs[0], {**pvs[1], **more}], groups=groups).refused
    assert planned(MD, pvs, groups=groups).refused
    for broken in ("{", "{}", '{"report": []}', '{"report": [{}]}'):
        with pytest.raises((ValueError, LookupError)):
            _volumes.empty_groups(broken)


def test_an_old_array_is_taken_apart_before_its_disks_are_wiped():
    wrong = Volume("other", "md", NAMES, "/scratch", "dgx-other")
    array = md(fstype="xfs", label="dgx-scratch", uuid="fs")
    disks = [member("/dev/nvme0n1", array), member("/dev/nvme1n1", array)]
    outcome = planned(wrong, disks, ("md-uuid", "fs"), True, ARRAYS)
    assert commands(outcome)[0] == "mdadm"
    assert outcome.steps[0].argv[1] == "--stop"
    # Without the note on the file system the same is foreign.
    assert planned(wrong, disks, ("md-uuid",), True, ARRAYS).refused


def test_another_file_system_on_our_array_needs_its_note_and_consent():
    array = md(fstype="ext4", label="old", uuid="fs")
    disks = [member("/dev/nvme0n1", array), member("/dev/nvme1n1", array)]
    assert "not written" in planned(MD, disks, (), True, ARRAYS).refused[0]
    assert "local_storage_wipe" in planned(MD, disks, ("fs",), False, ARRAYS).refused[0]
    outcome = planned(MD, disks, ("fs",), True, ARRAYS)
    assert outcome.steps[0].argv[:2] == ("mkfs.xfs", "-f")
    array["mountpoints"] = ["/somewhere"]
    assert "mounted on /somewhere" in planned(MD, disks, ("fs",), True, ARRAYS).refused[0]


def test_only_a_probe_can_call_a_disk_blank():
    (blank,) = _volumes.devices({"blockdevices": BLANK[:1]})
    text = """{"signatures": [
      {"device": "nvme0n1", "offset": "0x438", "type": "ext4", "uuid": "u1", "label": "data"},
      {"device": "nvme0n1", "offset": "0x0", "type": "xfs", "uuid": "ours", "label": null}]}"""
    found = {blank.name: _volumes.signatures(text)}
    seen = _volumes.probed(blank, found, ["ours"])
    assert (seen.fstype, seen.uuid, seen.label) == ("ext4", "u1", "data")
    both = _volumes.probed(blank, found, ["ours", "u1"])
    assert both.uuid in ("ours", "u1")
    table = {blank.name: _volumes.signatures('{"signatures": [{"type": "gpt"}]}')}
    assert _volumes.probed(blank, table, []).table == "gpt"
    assert _volumes.probed(blank, {blank.name: _volumes.signatures("")}, []) == blank
    with pytest.raises(KeyError):
        _volumes.probed(blank, {}, [])
    for broken in ('{"signatures": 1}', "{"):
        with pytest.raises(ValueError, match=r"signatures|Expecting"):
            _volumes.signatures(broken)


def test_a_missing_disk_stops_everything_and_is_named():
    outcome = planned(MD, BLANK[:1], paths={NAMES[0]: "/dev/nvme0n1"}, consent=True)
    assert NAMES[1] in outcome.refused[0]
    assert not outcome.steps


def test_two_names_of_one_disk_are_refused():
    outcome = planned(MD, BLANK, paths=dict.fromkeys(NAMES, "/dev/nvme0n1"))
    assert "the same disk" in outcome.refused[0]


def test_declarations_are_judged_by_themselves():
    bad = [
        Volume("Bad Name", "md", (), "/a", "x"),
        Volume("b", "plain", NAMES, "/a", "y" * 13),
        Volume("c", "md", ("/dev/sda", NAMES[0]), "/c", "x"),
    ]
    message = "\n".join(_volumes.refusals(bad))
    for part in (
        "write a name",
        "no disks are declared",
        "one disk",
        "more than 12",
        "/dev/sda: write names of disks below",
        f"the disk {NAMES[0]} is declared twice",
        "mount point /a is declared twice",
        "label x is declared twice",
    ):
        assert part in message
    assert not _volumes.refusals([MD])


def test_an_array_is_read_from_mdadm():
    array = _volumes.array(EXPORT)
    assert (array.name, array.level) == ("scratch", "raid0")
    assert array.members == ("/dev/nvme0n1", "/dev/nvme1n1")
    assert _volumes.array("") is None
    assert _volumes.array("mdadm: /dev/md9 does not appear to be active") is None


@pytest.mark.parametrize("data", [{}, {"blockdevices": None}])
def test_an_answer_without_devices_is_refused(data):
    with pytest.raises(ValueError, match="no devices"):
        _volumes.devices(data)


def test_older_lsblk_is_understood():
    (old,) = _volumes.devices(
        {"blockdevices": [{"name": "/dev/sda", "ro": "1", "mountpoint": "/x", "size": "5"}]}
    )
    assert (old.read_only, old.mounts, old.size) == (True, ("/x",), 5)


def test_what_is_noted_are_the_uuids_of_the_whole_stack():
    array = md(fstype="xfs", uuid="fs")
    disks = [
        member("/dev/nvme0n1", array),
        member("/dev/nvme1n1", array),
        disk("/dev/sda", uuid="z"),
    ]
    found = _volumes.devices({"blockdevices": disks})
    assert _volumes.uuids("/dev/md127", found) == ["fs", "md-uuid"]


@pytest.mark.parametrize("name", ["util-linux-2.32", "util-linux-2.36", "util-linux-2.38"])
def test_lsblk_of_several_releases(name):
    """Numbers and flags were texts once, and a device had one mount point up to 2.36."""
    text = (FIXTURES / f"lsblk/{name}.json").read_text()
    first, second, blank = _volumes.devices(json.loads(text))
    assert [one.name for one in (first, second, blank)] == [f"/dev/nvme{n}n1" for n in range(3)]
    assert {one.size for one in (first, second, blank)} == {3840755982336}
    assert not any(one.read_only for one in (first, second, blank))
    assert first.fstype == "linux_raid_member"
    assert first.children == second.children
    (array,) = first.children
    assert (array.name, array.kind, array.fstype, array.mounts) == (
        "/dev/md0", "raid0", "ext4", ("/raid",),
    )  # fmt: skip
    assert (blank.fstype, blank.table, blank.mounts, blank.children) == ("", "", (), ())


@pytest.mark.parametrize(
    ("name", "is_stable"),
    [
        ("/dev/disk/by-id/nvme-eui.0025385b21404321", True),
        ("/dev/disk/by-id/nvme-SAMSUNG_MZWLO3T8_S795NA0W501234", True),
        ("/dev/disk/by-path/pci-0000:ab:00.0-nvme-1", True),
        ("/dev/disk/by-id/nvme-eui.0025385b21404321-part1", False),
        ("/dev/disk/by-uuid/0f2ad38e-6f3c-4d3f-9d65-b7cf4a2a9a10", False),
        ("/dev/disk/by-id/", False),
        ("/dev/nvme0n1", False),
    ],
)
def test_names_of_whole_disks_that_stay(name, is_stable):
    result = _volumes.refusals([replace(PLAIN, disks=(name,))])
    assert ("others change from boot to boot" in "".join(result)) is not is_stable
