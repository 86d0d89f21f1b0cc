# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""system_packages with apt-get, dpkg and dnf replaced by a model that keeps records as they do."""

from __future__ import annotations

import os

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.packages import managers
from ansible_collections.baremetal.dgx.plugins.modules import system_packages


class AptModel:
    """What apt-get, apt-mark and dpkg would do to a small archive."""

    def __init__(self):
        self.archive = {"chrony": "4.6", "jq": "1.7", "ntp": "1"}
        self.unlisted = {}
        self.status = {"base": ["i", "i", "1"], "timesyncd": ["i", "i", "257"]}
        self.replaces = {"chrony": ["timesyncd"]}
        self.needs = {"base": ["ui"]}
        # What dpkg cannot configure: without that version of another package, or at all.
        self.waits = {}
        self.failing = set()
        self.log = []
        self.answers = []

    def __call__(self, argv, timeout_s=30, env=None):
        words = tuple(argv)
        self.log.append(words)
        if self.answers:
            planned = self.answers.pop(0)
            if planned is not None:
                return CommandResult(words, ENDED, *planned)
        rc, out, err = getattr(self, words[0].replace("-", "_"))(list(words[1:]))
        return CommandResult(words, ENDED, rc, out, err)

    def tools(self):
        return [words[0] + (" sim" if "--simulate" in words else "") for words in self.log]

    def dpkg_query(self, words):
        lines = [f"{w}{s} \t{n}\t{v}\n" for n, (w, s, v) in self.status.items()]
        return 0, "".join(lines), ""

    def dpkg(self, words):
        errors = ""
        for name, entry in self.status.items():
            other, version = self.waits.get(name, ("", ""))
            if entry[1] == "i":
                continue
            if name in self.failing:
                errors += (
                    f"dpkg: error processing package {name} (--configure):\n installed {name} "
                    "package post-installation script subprocess returned error exit status 1\n"
                )
            elif other and self.status[other][2] != version:
                errors += f"dpkg: dependency problems prevent configuration of {name}:\n"
            else:
                entry[1] = "i"
        return int(bool(errors)), "", errors

    def unfinished(self, words):
        """What apt-get does about packages that are not configured."""
        open_ones = [name for name, entry in self.status.items() if entry[1] != "i"]
        if "--reinstall" in words:
            out = "".join(
                f"Reinstallation of {name} is not possible, it cannot be downloaded.\n"
                for name in open_ones
            )
            return 0, out + "".join(f"Conf {name} (1)\n" for name in open_ones), ""
        pulled = [self.waits[name] for name in open_ones if name in self.waits]
        held = [name for name, _version in pulled if self.status[name][0] == "h"]
        if held and "--allow-change-held-packages" not in words:
            return 100, "", (
                "E: Held packages were changed and -y was used without "
                "--allow-change-held-packages.\n"
            )  # fmt: skip
        out = "".join(f"Inst {name} [1] ({version})\n" for name, version in pulled)
        out += "".join(f"Conf {name} (1)\n" for name in open_ones)
        if "--simulate" not in words:
            for name, version in pulled:
                self.status[name][2] = version
            self.dpkg(words)
        return 0, out, ""

    def apt_mark(self, words):
        for name in words[1:]:
            self.status[name][0] = "h" if words[0] == "hold" else "i"
        return 0, "", ""

    def apt_get(self, words):
        if "update" in words:
            self.archive.update(self.unlisted)
            return 0, "", ""
        if "--fix-broken" in words or "--reinstall" in words:
            return self.unfinished(words)
        names = [w for w in words if not w.startswith("-") and "::" not in w and "=" not in w]
        names += [w.split("=")[0] for w in words if "=" in w and "::" not in w]
        verb = "remove" if "remove" in names else "install"
        names = [name for name in names if name != verb]
        if verb == "install":
            gone = [name[:-1] for name in names if name.endswith("-")]
            names = [name for name in names if not name.endswith("-")]
            unknown = [name for name in names if name not in self.archive]
            if unknown:
                return 100, "", f"E: Unable to locate package {unknown[0]}"
            held = [name for name in gone if self.status[name][0] == "h"]
            if held and "--allow-change-held-packages" not in words:
                return 100, "", "E: Held packages were changed and -y was used without .."
            gone += [
                x
                for n in names
                for x in self.replaces.get(n, ())
                if x in self.status and x not in gone
            ]
        else:
            gone = names + [x for n in names for x in self.needs.get(n, ())]
            names = []
        names = [n for n in names if n not in self.status]
        out = "".join(f"Remv {n} [1]\n" for n in gone) + "".join(f"Inst {n} (1)\n" for n in names)
        if "--simulate" not in words:
            for name in gone:
                self.status.pop(name, None)
            for name in names:
                self.status[name] = ["i", "i", self.archive[name]]
        return 0, out, ""


@pytest.fixture
def apt(monkeypatch, tmp_path):
    model = AptModel()
    monkeypatch.setattr(system_packages, "ModuleRunner", lambda module: model)
    monkeypatch.setattr(
        system_packages.AnsibleModule, "get_bin_path", lambda self, name, **_o: f"/usr/bin/{name}"
    )
    monkeypatch.setattr(managers, "_APT_STAMPS", (str(tmp_path / "lib" / "stamp"),))
    monkeypatch.setattr(managers, "_APT_SOURCES", (str(tmp_path / "sources"),))
    monkeypatch.setattr(managers, "_DPKG_JOURNAL", str(tmp_path / "updates"))
    monkeypatch.setattr(managers, "_POLL_S", 0.01)
    return model


@pytest.fixture
def bring(run_module):
    def run(check=False, **params):
        return run_module(system_packages.main, params, check=check)

    return run


def test_check_then_real_then_again(apt, bring):
    params = {
        "present": ["chrony", "jq"],
        "held": ["jq"],
        "removals_allowed": ["timesyncd"],
        "absent": ["ntp"],
    }
    predicted = bring(check=True, **params)
    assert apt.tools() == ["dpkg-query"]
    done = bring(**params)
    assert predicted["actions"] == done["actions"] == ["install chrony", "install jq", "hold jq"]
    assert done["lists_updated"] is True
    assert apt.status["jq"][0] == "h"
    apt.log.clear()
    again = bring(**params)
    assert again["changed"] is False
    assert again["actions"] == []
    # a converged node costs one query
    assert apt.tools() == ["dpkg-query"]


def test_fresh_lists_are_not_read_again(apt, bring):
    bring(present=["jq"])
    apt.log.clear()
    assert bring(present=["ntp"])["lists_updated"] is False
    assert apt.tools() == ["dpkg-query", "apt-get sim", "apt-get"]


def test_sources_that_are_newer_than_the_lists_count(apt, bring, tmp_path):
    bring(present=["jq"])
    (tmp_path / "sources").write_text("deb x")
    os.utime(tmp_path / "sources", (2e9, 2e9))
    assert bring(present=["ntp"])["lists_updated"] is True


def test_an_unknown_package_reads_the_lists_once_more(apt, bring):
    bring(present=["jq"])
    apt.unlisted = {"new": "1"}
    answer = bring(present=["new"])
    assert answer["lists_updated"] is True
    assert answer["changed"] is True
    answer = bring(present=["does-not-exist"])
    assert answer["failed"] is True
    assert "Unable to locate package does-not-exist" in answer["msg"]


def test_an_install_that_would_remove_others_is_refused(apt, bring):
    answer = bring(present=["chrony"])
    assert answer["failed"] is True
    assert answer["surplus_removals"] == ["timesyncd"]
    assert "timesyncd" in apt.status
    assert "chrony" not in apt.status


def test_a_removal_that_would_remove_others_is_refused(apt, bring):
    apt.status["ui"] = ["i", "i", "1"]
    answer = bring(absent=["base"])
    assert answer["surplus_removals"] == ["ui"]
    assert "base" in apt.status
    assert bring(absent=["base", "ui"])["changed"] is True
    assert set(apt.status) == {"timesyncd"}


def test_what_takes_a_place_is_to_be_had_before_that_is_empty(apt, bring):
    """DCGM 3 makes room for DCGM 4, and a source without that would leave the node with none."""
    apt.status["dcgm3"] = ["h", "i", "3.3.9"]
    apt.replaces["dcgm4"] = ["dcgm3"]
    params = {"present": ["dcgm4"], "absent": ["dcgm3"]}
    answer = bring(**params)
    assert "Unable to locate package dcgm4" in answer["msg"]
    assert apt.status["dcgm3"] == ["h", "i", "3.3.9"]
    apt.archive["dcgm4"] = "4.6.0"
    # What conflicts is not installed beside the other, not even in the rehearsal.
    assert bring(**params)["actions"] == ["release dcgm3", "remove dcgm3", "install dcgm4"]
    assert "dcgm3" not in apt.status
    assert apt.status["dcgm4"] == ["i", "i", "4.6.0"]
    apt.log.clear()
    assert bring(**params)["changed"] is False
    assert apt.tools() == ["dpkg-query"]


def test_what_a_killed_run_left_is_finished(apt, bring):
    apt.status["base"][1] = "F"
    assert bring(check=True)["actions"] == ["finish base"]
    assert apt.status["base"][1] == "F"
    assert bring()["actions"] == ["finish base"]
    assert ("dpkg", "--configure", "-a", "--force-confdef", "--force-confold") in apt.log
    assert bring()["changed"] is False


def test_an_upgrade_of_held_packages_that_was_killed_is_finished(apt, bring):
    """The first was unpacked; it needs the library of its version, which is held as well."""
    apt.status["jq"] = ["h", "U", "1.7"]
    apt.status["libjq"] = ["h", "i", "1.6"]
    apt.archive.update(jq="1.7", libjq="1.7")
    apt.waits = {"jq": ("libjq", "1.7")}
    names = ["jq", "libjq"]
    params = {"present": ["jq=1.7*", "libjq=1.7*"], "held": names}
    assert bring(**params)["changed"] is True
    assert [apt.status[name] for name in names] == [["h", "i", "1.7"]] * 2
    assert bring(**params)["changed"] is False
    # Without a version nothing says that what is held may change.
    apt.status["jq"], apt.status["libjq"] = ["h", "U", "1.7"], ["h", "i", "1.6"]
    assert "Held packages were changed" in bring(present=names, held=names)["msg"]


def test_what_cannot_be_finished_is_an_error(apt, bring):
    apt.status["base"][1] = "F"
    apt.failing = {"base"}
    answer = bring()
    assert answer["failed"] is True
    assert answer["msg"].startswith("base: not finished; `dpkg --configure -a")
    assert "post-installation script subprocess returned error exit status 1" in answer["msg"]


def test_an_interrupted_dpkg_is_finished(apt, bring, tmp_path):
    (tmp_path / "updates").mkdir()
    (tmp_path / "updates" / "0001").write_text("x")
    assert bring()["actions"] == ["finish an interrupted run of dpkg"]
    (tmp_path / "updates" / "0001").rename(tmp_path / "updates" / "tmp.i")
    assert bring()["changed"] is False


def test_locks_are_waited_for(apt, bring):
    locked = (100, "", "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7")
    apt.answers = [None, locked, locked]
    assert bring(present=["jq"])["changed"] is True
    assert len([words for words in apt.log if "update" in words]) == 3


def test_a_lock_that_stays_is_named(apt, bring):
    locked = (100, "", "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7")
    apt.answers = [None] + [locked] * 1000
    answer = bring(present=["jq"], lock_timeout_s=0)
    assert answer["failed"] is True
    assert "held by process 7" in answer["msg"]


def test_a_declared_version_replaces_what_is_held(apt, bring):
    apt.status["jq"] = ["h", "i", "1.6"]
    apt.archive["jq"] = "1.7"
    apt.answers = [None, None, (0, "Inst jq (1.7)\n", ""), (0, "", "")]
    bring(present=["jq=1.7*"], held=["jq"])
    assert any("--allow-change-held-packages" in words for words in apt.log)


def test_a_release_lets_go(apt, bring):
    apt.status["base"][0] = "h"
    assert bring(unheld=["base"])["actions"] == ["release base"]
    assert apt.status["base"][0] == "i"


def test_only_what_the_record_has_is_released(apt, bring, tmp_path):
    record = tmp_path / "held" / "enroot"
    apt.status["timesyncd"][0] = "h"
    params = {"present": ["jq=1.7*", "base"], "held": ["jq", "base"], "holds_file": str(record)}
    apt.status["jq"] = ["i", "i", "1.7"]
    actions = ["hold jq", "hold base", f"record in {record} what is held"]
    assert bring(check=True, **params)["actions"] == actions
    assert not record.exists()
    assert bring(**params)["actions"] == actions
    assert record.read_text() == "jq\nbase\n"
    assert bring(**params)["changed"] is False
    fewer = {**params, "held": ["base"]}
    assert bring(**fewer)["actions"] == ["release jq", f"record in {record} what is held"]
    assert {name: entry[0] for name, entry in apt.status.items()} == {
        "jq": "i", "base": "h", "timesyncd": "h",
    }  # fmt: skip
    assert bring(**fewer)["changed"] is False


def test_without_a_record_no_hold_is_released(apt, bring, tmp_path):
    """It may be the site's; what nothing holds gets no record."""
    apt.status["base"][0] = "h"
    assert bring(present=["base"], holds_file=str(tmp_path / "held"))["changed"] is False
    assert bring(present=["base"])["changed"] is False
    assert apt.status["base"][0] == "h"
    assert not (tmp_path / "held").exists()


def test_a_provided_package_changes_nothing(apt, bring):
    """A name that only another package provides is asked for again, and changes nothing."""
    apt.archive["virtual"] = "1"
    apt.answers = [None, None, (0, "", "")]
    answer = bring(present=["virtual"])
    assert answer["changed"] is False
    assert answer["actions"] == []


def test_contradictions_are_refused(apt, bring):
    answer = bring(present=["jq"], absent=["jq"])
    assert answer["failed"] is True
    assert len(apt.log) == 1


class DnfModel:
    """rpm and dnf as far as the module asks them."""

    def __init__(self):
        self.installed = {"tzdata": "2025-1.el9"}
        # Further packages, as rpm -qa has them: name, version and architecture.
        self.beside = []
        self.installonly = {"kernel-core"}
        self.stuck = False
        self.provides = {"webserver"}
        self.log = []
        self.limits = []
        self.needed_by = {}

    def __call__(self, argv, timeout_s=30, env=None):
        words = list(argv)
        self.log.append(tuple(words))
        self.limits.append(timeout_s)
        rc, out = 0, ""
        if words[0] == "rpm" and words[1] == "-qa":
            lines = [f"{name}\t{version}\tx86_64" for name, version in self.installed.items()]
            lines += ["\t".join(one) for one in self.beside]
            form = words[3].replace("\\t", "\t").replace("\\n", "\n")
            assert form == "%{NAME}\t%{VERSION}-%{RELEASE}\t%{ARCH}\n"
            out = "".join(f"{line}\n" for line in lines)
        elif "repoquery" in words:
            names = [name for name, _version, _arch in self.beside]
            out = "".join(f"{name}\n" for name in names if name not in self.installonly)
        elif words[-2:] == ["remove", "--duplicates"]:
            self.beside = self.beside if self.stuck else []
        elif words[:3] == ["rpm", "-q", "--whatprovides"]:
            rc = 0 if words[3] in self.provides else 1
        elif words[:2] == ["rpm", "-q"]:
            full = list(self.installed)
            full += [f"{name}-{version}.x86_64" for name, version in self.installed.items()]
            rc = 0 if words[2] in full else 1
        elif words[:3] == ["rpm", "-e", "--test"]:
            users = [u for n in words[3:] for u in self.needed_by.get(n, ()) if u not in words]
            rc, out = (1, f"error: {words[3]} is needed by {users[0]}") if users else (0, "")
        elif "--downloadonly" in words:
            # As the solver of dnf, which may erase what conflicts with this option alone.
            beside = "dcgm3" in self.installed and "--allowerasing" not in words
            if beside or not self.archive.issuperset(words[words.index("--allowerasing") + 1 :]):
                rc, out = 1, "Error: Unable to find a match, or conflicts with dcgm3"
        elif "install" in words:
            assert "dcgm3" not in self.installed
            self.installed.update(dict.fromkeys(words[words.index("install") + 1 :], "1-1"))
        elif "remove" in words:
            for name in words[words.index("--noautoremove") + 1 :]:
                del self.installed[name]
        elif "versionlock" in words:
            rc, out = self.versionlock
        return CommandResult(tuple(words), ENDED, rc, out)

    versionlock = (0, "")
    archive = frozenset(["tzdata"])


@pytest.fixture
def dnf(monkeypatch, tmp_path):
    model = DnfModel()
    monkeypatch.setattr(system_packages, "ModuleRunner", lambda module: model)
    monkeypatch.setattr(
        system_packages.AnsibleModule,
        "get_bin_path",
        lambda self, name, **_o: None if name == "dpkg-query" else name,
    )
    monkeypatch.setattr(managers, "_VERSION_LOCKS", str(tmp_path / "locks"))
    return model


def test_dnf_check_then_real_then_again(dnf, bring, tmp_path):
    params = {"present": ["chrony", "webserver"], "absent": ["ntp"], "held": ["chrony"]}
    assert bring(check=True, **params)["actions"] == ["install chrony", "hold chrony"]
    assert "chrony" not in dnf.installed
    assert bring(**params)["changed"] is True
    assert ("dnf", "-q", "versionlock", "add", "chrony") in dnf.log
    (tmp_path / "locks").write_text("chrony-0:1-1.*\n")
    assert bring(**params)["changed"] is False


def test_dnf_removal_that_breaks_others_is_refused(dnf, bring):
    dnf.installed["ui"] = "1-1"
    dnf.needed_by = {"tzdata": ["ui"]}
    answer = bring(absent=["tzdata"])
    assert answer["failed"] is True
    assert "is needed by ui" in answer["msg"]
    assert bring(absent=["tzdata", "ui"])["changed"] is True
    assert dnf.installed == {}


def test_dnf_has_what_takes_a_place_before_that_is_empty(dnf, bring):
    dnf.installed["dcgm3"] = "3.3.9-1"
    params = {"present": ["dcgm4"], "absent": ["dcgm3"]}
    assert "Unable to find a match" in bring(**params)["msg"]
    assert "dcgm3" in dnf.installed
    dnf.archive = frozenset(["dcgm4"])
    assert bring(**params)["actions"] == ["remove dcgm3", "install dcgm4"]
    assert sorted(dnf.installed) == ["dcgm4", "tzdata"]
    assert bring(**params)["changed"] is False


def test_dnf_finds_a_name_with_its_version(dnf, bring):
    """`kernel-devel-$(uname -r)`: rpm -q knows it, and nothing provides it."""
    dnf.installed["kernel-devel"] = "5.14.0-570.el9_6"
    assert bring(present=["kernel-devel-5.14.0-570.el9_6.x86_64"])["actions"] == []
    other = "kernel-devel-5.14.0-611.el9_7.x86_64"
    assert bring(check=True, present=[other])["actions"] == [f"install {other}"]


def test_dnf_finishes_an_upgrade_that_was_killed(dnf, bring):
    """The new version is there, and the old one was not removed any more."""
    dnf.beside = [("tzdata", "2024-1.el9", "x86_64")]
    assert bring(check=True)["actions"] == ["finish tzdata"]
    assert dnf.beside
    assert bring()["actions"] == ["finish tzdata"]
    assert dnf.beside == []
    assert bring()["changed"] is False
    assert [words[0] for words in dnf.log][-1:] == ["rpm"], "dnf is asked about duplicates alone"


def test_dnf_says_what_it_could_not_finish(dnf, bring):
    dnf.beside, dnf.stuck = [("tzdata", "2024-1.el9", "x86_64")], True
    answer = bring()
    assert answer["failed"] is True
    assert answer["msg"].startswith("tzdata: not finished; two versions")


@pytest.mark.parametrize(
    ("other", "asks"),
    [
        (("tzdata", "2025-1.el9", "i686"), False),
        (("kernel-core", "5.14.0-611.el9_7", "x86_64"), False),
        (("gpg-pubkey", "8483c65d-5ccc5b19", "(none)"), False),
        # What a site has in installonlypkgs, dnf alone knows.
        (("kmod-site", "2-1.el9", "x86_64"), True),
    ],
)
def test_dnf_keeps_what_is_installed_side_by_side(dnf, bring, other, asks):
    dnf.installed["kernel-core"] = "5.14.0-570.el9_6"
    dnf.installed["kmod-site"] = "1-1.el9"
    dnf.installonly.add("kmod-site")
    dnf.beside = [other]
    if other[2] == "(none)":
        dnf.beside.append(("gpg-pubkey", "fd431d51-4ae0493b", "(none)"))
    answer = bring()
    assert (answer["changed"], answer["actions"]) == (False, [])
    assert any("repoquery" in words for words in dnf.log) is asks


@pytest.mark.parametrize("params", [{"held": ["tzdata"]}, {"unheld": ["tzdata"]}])
def test_dnf_holds_and_releases_or_says_why_not(dnf, bring, tmp_path, params):
    if "unheld" in params:
        (tmp_path / "locks").write_text("tzdata-0:2025-1.el9.*\n")
    dnf.versionlock = (1, "Error: Failed to download metadata for repo 'baseos'")
    answer = bring(timeout_s=700, **params)
    assert answer["failed"] is True
    assert "Failed to download metadata for repo 'baseos'" in answer["msg"]
    # The plugin reads the sources first.
    assert dnf.limits[-1] == 700


def test_dnf_without_versionlock_says_what_to_install(dnf, bring):
    dnf.versionlock = (1, "No such command: versionlock. Please use /usr/bin/dnf --help")
    assert "python3-dnf-plugin-versionlock" in bring(held=["tzdata"])["msg"]


def test_no_package_database_at_all(dnf, bring, monkeypatch):
    monkeypatch.setattr(
        system_packages,
        "ModuleRunner",
        lambda module: lambda argv, **_o: CommandResult(argv, MISSING),
    )
    answer = bring(present=["jq"])
    assert "rpm is not installed" in answer["msg"]
