# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Package names by operating system, source, branch and GPU."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._driver.packages import (
    BRANCHES,
    ROWS,
    SYSTEMS,
    Request,
    flavour_of,
    headers_package,
    is_driver_package,
    kernel_flavour,
    select,
    system_of,
)

NOBLE = "6.8.0-60-generic"
H100 = {"gpu": "h100", "nvswitches": 4}
B200 = {"gpu": "b200", "nvswitches": 2}


def enterprise(meta, module):
    return (
        "nvidia-driver", "nvidia-driver-libs", "nvidia-driver-cuda", "nvidia-driver-cuda-libs",
        "nvidia-kmod-common", module, "nvidia-persistenced", meta,
    )  # fmt: skip


def enterprise_before_560(module):
    """What the streams 535 and 550 of NVIDIA's repository have."""
    return (
        "nvidia-driver", "nvidia-driver-libs", "nvidia-driver-cuda", "nvidia-driver-cuda-libs",
        "nvidia-driver-NVML", "nvidia-kmod-common", module, "nvidia-modprobe",
        "nvidia-persistenced",
    )  # fmt: skip


def selected(system, kernel=NOBLE, **asked):
    return select(system, Request(**asked), kernel)


@pytest.mark.parametrize(
    ("release", "dgx", "system"),
    [
        ({"ID": "ubuntu", "VERSION_ID": "22.04"}, {}, "ubuntu22.04"),
        ({"ID": "ubuntu", "VERSION_ID": "24.04"}, {}, "ubuntu24.04"),
        ({"ID": "ubuntu", "VERSION_ID": "22.04"}, {"DGX_NAME": "DGX Server"}, "dgxos6"),
        ({"ID": "ubuntu", "VERSION_ID": "24.04"}, {"DGX_NAME": "DGX Server"}, "dgxos7"),
        ({"ID": "debian", "VERSION_ID": "12"}, {}, "debian12"),
        ({"ID": "debian", "VERSION_ID": "13"}, {}, "debian13"),
        ({"ID": "rhel", "VERSION_ID": "9.6"}, {}, "rhel9"),
        ({"ID": "rocky", "VERSION_ID": "9.6", "ID_LIKE": "rhel centos fedora"}, {}, "rhel9"),
        ({"ID": "ubuntu", "VERSION_ID": "20.04"}, {}, ""),
        ({"ID": "ubuntu", "VERSION_ID": "20.04"}, {"DGX_NAME": "x"}, ""),
        ({"ID": "rhel", "VERSION_ID": "8.10"}, {}, ""),
        ({"ID": "sles", "VERSION_ID": "15.6"}, {}, ""),
        ({}, {}, ""),
    ],
)
def test_systems(release, dgx, system):
    assert system_of(release, dgx) == system


@pytest.mark.parametrize(
    ("system", "source", "branch", "driver", "manager", "nscq", "stream"),
    [
        (
            "ubuntu24.04", "nvidia_repository", "580",
            ("nvidia-driver-580-open", "nvidia-dkms-580-open"),
            "nvidia-fabricmanager", "libnvidia-nscq", "",
        ),
        (
            "ubuntu22.04", "nvidia_repository", "570",
            ("nvidia-driver-570-open", "nvidia-dkms-570-open"),
            "nvidia-fabricmanager-570", "libnvidia-nscq-570", "",
        ),
        (
            "ubuntu24.04", "directory", "590",
            ("nvidia-driver-open", "nvidia-dkms-open", "nvidia-persistenced"),
            "nvidia-fabricmanager", "libnvidia-nscq", "",
        ),
        (
            "ubuntu24.04", "distribution", "580",
            (
                "nvidia-headless-no-dkms-580-server-open",
                "linux-modules-nvidia-580-server-open-generic",
                "linux-modules-nvidia-580-server-open-6.8.0-60-generic",
                "nvidia-utils-580-server", "nvidia-compute-utils-580-server",
            ),
            "nvidia-fabricmanager-580", "libnvidia-nscq-580", "",
        ),
        (
            "debian13", "nvidia_repository", "580",
            ("nvidia-open", "nvidia-persistenced"), "nvidia-fabricmanager", "libnvidia-nscq", "",
        ),
        (
            "debian12", "directory", "550",
            ("cuda-drivers", "nvidia-kernel-open-dkms", "nvidia-persistenced"),
            "nvidia-fabricmanager-550", "libnvidia-nscq-550", "",
        ),
        (
            "debian12", "nvidia_repository", "570", ("nvidia-open", "nvidia-persistenced"),
            "nvidia-fabricmanager-570", "libnvidia-nscq-570", "",
        ),
        (
            "rhel9", "nvidia_repository", "535", enterprise_before_560("kmod-nvidia-open-dkms"),
            "nvidia-fabric-manager", "libnvidia-nscq-535", "535-open",
        ),
        (
            "rhel9", "nvidia_repository", "580",
            enterprise("nvidia-open", "kmod-nvidia-open-dkms"),
            "nvidia-fabricmanager", "libnvidia-nscq", "580-open",
        ),
        (
            "rhel9", "directory", "570",
            enterprise("nvidia-open", "kmod-nvidia-open-dkms"),
            "nvidia-fabric-manager", "libnvidia-nscq-570", "570-open",
        ),
        (
            "dgxos7", "distribution", "580",
            ("nvidia-driver-580-open",), "nvidia-fabricmanager", "libnvidia-nscq", "",
        ),
        (
            "dgxos6", "distribution", "550",
            ("nvidia-driver-550-server-open", "linux-modules-nvidia-550-server-open-nvidia"),
            "nvidia-fabricmanager-550", "libnvidia-nscq-550", "",
        ),
    ],
)  # fmt: skip
def test_names_on_a_node_with_nvswitches(system, source, branch, driver, manager, nscq, stream):
    found = selected(system, source=source, branch=branch, **H100)
    assert found.errors == ()
    assert found.driver == driver
    assert (found.fabric_manager, found.nscq, found.nvlink) == (manager, nscq, ())
    assert found.stream == stream
    assert found.locked == (*driver, manager, nscq)


def test_the_flavour_is_that_of_the_kernel_module_package():
    found = selected(
        "rhel9", source="nvidia_repository", branch="550", modules="proprietary", **H100
    )
    assert found.driver == enterprise_before_560("kmod-nvidia-latest-dkms")
    assert found.stream == "550-dkms"
    found = selected(
        "rhel9", source="nvidia_repository", branch="570", modules="proprietary", **H100
    )
    assert found.driver == enterprise("cuda-drivers", "kmod-nvidia-latest-dkms")
    assert found.stream == "570-dkms"


def test_without_nvswitches_there_is_no_fabric():
    found = selected("ubuntu24.04", source="nvidia_repository", branch="580", gpu="h100")
    assert (found.fabric_manager, found.nscq, found.nvlink) == ("", "", ())


def test_b200_needs_the_nvlink_subnet_manager_and_no_nscq():
    found = selected("ubuntu24.04", source="nvidia_repository", version="580.126.20", **B200)
    assert found.errors == ()
    assert found.nvlink == ("nvlsm", "libnvsdm")
    assert (found.fabric_manager, found.nscq) == ("nvidia-fabricmanager", "")
    found = selected("ubuntu24.04", source="distribution", branch="580", **B200)
    assert "no nvlsm" in found.errors[0]
    found = selected("rhel9", source="nvidia_repository", branch="580", gpu="gb200", nvswitches=9)
    assert (found.fabric_manager, found.nvlink) == ("", ())


@pytest.mark.parametrize(
    ("modules", "gpu", "flavour", "message"),
    [
        ("auto", "h100", "open", ""),
        ("auto", "v100", "proprietary", ""),
        ("auto", "", "open", ""),
        ("proprietary", "a100", "proprietary", ""),
        ("proprietary", "B200", "open", "open kernel modules only"),
        ("open", "v100", "proprietary", "no open kernel modules"),
    ],
)
def test_flavours(modules, gpu, flavour, message):
    found, problem = flavour_of(Request("directory", modules=modules, gpu=gpu))
    assert found == flavour
    assert message in problem
    assert bool(message) == bool(problem)


@pytest.mark.parametrize(
    ("system", "asked", "message"),
    [
        ("ubuntu24.04", {"source": "directory", "branch": "581"}, "branch 581 is not known"),
        ("ubuntu24.04", {"source": "directory"}, "branch (none) is not known"),
        (
            "ubuntu24.04",
            {"source": "directory", "branch": "570", "version": "580.126.20"},
            "580.126.20 is not of branch 570",
        ),
        ("dgxos7", {"source": "nvidia_repository", "branch": "580"}, "declare distribution"),
        ("", {"source": "directory", "branch": "580"}, "operating system is not known"),
        ("rhel9", {"source": "distribution", "branch": "580"}, "has no driver 580"),
        ("debian12", {"source": "distribution", "branch": "580"}, "it has 535"),
        ("debian13", {"source": "distribution", "branch": "550", **H100}, "no fabric manager"),
        (
            "ubuntu24.04",
            {"source": "directory", "branch": "580", "modules": "proprietary", **B200},
            "open kernel modules only",
        ),
    ],
)
def test_what_cannot_be_had_is_one_line(system, asked, message):
    errors = selected(system, **asked).errors
    assert len(errors) == 1
    assert message in errors[0]
    assert "\n" not in errors[0]


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("system", SYSTEMS)
def test_at_most_one_row_answers(system, branch):
    for source in ("distribution", "nvidia_repository"):
        for flavour in ("open", "proprietary"):
            fitting = [
                row
                for row in ROWS
                if system in row.systems
                and (row.source, row.flavour) == (source, flavour)
                and row.first <= int(branch) <= row.last
            ]
            assert len(fitting) <= 1
            for row in fitting:
                for name in (*row.driver, row.fabric_manager, row.nscq, *row.nvlink):
                    assert not name or is_driver_package(name) or name == "nvlsm", name


def test_every_branch_is_to_be_had_from_nvidia_where_it_has_repositories():
    for system in ("ubuntu22.04", "ubuntu24.04", "debian12", "debian13", "rhel9"):
        for branch in BRANCHES:
            for modules in ("open", "proprietary"):
                asked = {"source": "nvidia_repository", "branch": branch, "modules": modules}
                assert selected(system, **asked).errors == ()


def test_own_packages_take_the_place_of_the_tables():
    found = selected("rhel9", source="directory", branch="580", packages=("kmod-x", "y"))
    assert found.driver == ("kmod-x", "y")


@pytest.mark.parametrize(
    ("name", "yes"),
    [
        ("nvidia-driver-570-open", True),
        ("libnvidia-compute-580", True),
        ("libnvidia-nscq", True),
        ("linux-modules-nvidia-580-server-open-generic", True),
        ("cuda-drivers-570", True),
        ("nvidia-kmod-common", True),
        ("nvidia-fabric-manager", True),
        ("libcuda1:amd64", True),
        ("nvidia-container-toolkit", False),
        ("libnvidia-container1", False),
        ("nvidia-cuda-toolkit", False),
        ("cuda-libraries-13-0", False),
        ("datacenter-gpu-manager-4-core", False),
        ("linux-modules-6.8.0-60-generic", False),
    ],
)
def test_members_of_a_driver(name, yes):
    assert is_driver_package(name) is yes


@pytest.mark.parametrize(
    ("system", "kernel", "flavour"),
    [
        ("ubuntu24.04", "6.8.0-60-generic", "generic"),
        ("ubuntu24.04", "6.11.0-26-generic", "generic-hwe-24.04"),
        ("ubuntu22.04", "5.15.0-140-generic", "generic"),
        ("ubuntu22.04", "6.8.0-60-generic", "generic-hwe-22.04"),
        ("ubuntu24.04", "6.8.0-1028-nvidia", "nvidia"),
    ],
)
def test_flavour_of_a_kernel(system, kernel, flavour):
    assert kernel_flavour(system, kernel) == flavour


def test_headers():
    assert headers_package("debian12", "6.1.0-35-amd64") == ("linux-headers-6.1.0-35-amd64",)
    assert headers_package("rhel9", "5.14.0-570.el9.x86_64") == (
        "kernel-devel-5.14.0-570.el9.x86_64",
    )
