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


def _apt(distribution: str, version: str, release: str, parts: str, *hosts: str) -> Platform:
    """`hosts` serve the release and its security updates; Debian redirects to the nearest copy."""
    name = distribution.lower()
    suites = (f"{release} {release}-updates", f"{release}-security")
    key = f"{name}-archive-keyring.gpg"
    blocks = (_deb822(*one, parts, key) for one in zip(hosts, suites, strict=True))
    return Platform(
        f"{name}-{version}",
        _facts("Debian", distribution, version, release, "apt"),
        (f"/etc/apt/sources.list.d/{name}.sources", "\n".join(blocks)),
        (name, version),
    )


def _debian(version: str, release: str) -> Platform:
    main = "http://deb.debian.org/debian"
    return _apt("Debian", version, release, "main", main, f"{main}-security")


def _ubuntu(version: str, release: str) -> Platform:
    hosts = (f"http://{name}.ubuntu.com/ubuntu" for name in ("archive", "security"))
    return _apt("Ubuntu", version, release, "main restricted universe multiverse", *hosts)


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
