# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The operating systems that a mirror can be made for: their facts, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Platform:
    """A distribution as it is installed: what Ansible would say of it, and its own sources."""

    name: str
    facts: dict[str, str]
    # The file in which its sources are, and the text; empty for Enterprise Linux.
    sources: tuple[str, str] = ("", "")
    # As os-release has them, by which the tables of drivers know it.
    release: tuple[str, str] = ("", "")

    @property
    def has_apt(self) -> bool:
        """Whether its packages are fetched with apt-get."""
        return bool(self.sources[0])


def _deb822(uri: str, suites: str, components: str, key: str) -> str:
    return (
        f"Types: deb\nURIs: {uri}\nSuites: {suites}\nComponents: {components}\n"
        f"Signed-By: /usr/share/keyrings/{key}\n"
    )


def _facts(family: str, name: str, version: str, release: str, manager: str) -> dict[str, str]:
    return {
        "os_family": family,
        "distribution": name,
        "distribution_version": version,
        "distribution_major_version": version.split(".")[0],
        "distribution_release": release,
        "architecture": "x86_64",
        "pkg_mgr": manager,
        "python_version": "3.11",
    }


def _debian(version: str, release: str) -> Platform:
    # The security archive has another host; both are redirected to the nearest copy.
    main, key = "http://deb.debian.org/debian", "debian-archive-keyring.gpg"
    text = "\n".join(
        (
            _deb822(main, f"{release} {release}-updates", "main", key),
            _deb822(f"{main}-security", f"{release}-security", "main", key),
        )
    )
    return Platform(
        f"debian-{version}",
        _facts("Debian", "Debian", version, release, "apt"),
        ("/etc/apt/sources.list.d/debian.sources", text),
        ("debian", version),
    )


def _ubuntu(version: str, release: str) -> Platform:
    key, parts = "ubuntu-archive-keyring.gpg", "main restricted universe multiverse"
    text = "\n".join(
        (
            _deb822("http://archive.ubuntu.com/ubuntu", f"{release} {release}-updates", parts, key),
            _deb822("http://security.ubuntu.com/ubuntu", f"{release}-security", parts, key),
        )
    )
    return Platform(
        f"ubuntu-{version}",
        _facts("Debian", "Ubuntu", version, release, "apt"),
        ("/etc/apt/sources.list.d/ubuntu.sources", text),
        ("ubuntu", version),
    )


def _el(name: str, distribution: str, version: str) -> Platform:
    return Platform(
        f"{name}-{version}",
        _facts("RedHat", distribution, version, "", "dnf"),
        release=("rhel", version),
    )


PLATFORMS: dict[str, Platform] = {
    one.name: one
    for one in (
        _debian("12", "bookworm"),
        _debian("13", "trixie"),
        _ubuntu("22.04", "jammy"),
        _ubuntu("24.04", "noble"),
        _el("almalinux", "AlmaLinux", "9"),
        _el("rhel", "RedHat", "9"),
        _el("rocky", "Rocky", "9"),
    )
}
