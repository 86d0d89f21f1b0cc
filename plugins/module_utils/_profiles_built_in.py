# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The built-in profiles, as a site would write them. Pure.

Marks of the figures: (c) confirmed by the vendor's documents, (f) seen in the field by others,
(d) derived from such figures, (?) not confirmed: check it on the hardware.
"""

from __future__ import annotations

from typing import Any


def _rails(
    numa: tuple[int, ...], addresses: str, numbers: str, cages: str = ""
) -> list[dict[str, Any]]:
    """Return rails 0, 1, … from PCI buses, mlx5 numbers and, where known, `cage:port` pairs."""
    places = [place.split(":") for place in cages.split()]
    devices = ["mlx5_" + number for number in numbers.split()]
    return [
        {
            "rail": rail,
            "hca_pci": bus + ":00.0",
            "numa": numa[rail],
            "device": devices[rail],
            **({"cage": places[rail][0], "port": int(places[rail][1])} if places else {}),
        }
        for rail, bus in enumerate(addresses.split())
    ]


def _pci(buses: str) -> list[str]:
    return [bus + ":00.0" for bus in buses.split()]


def _ports(slots: str, numbers: str, layers: tuple[str, str]) -> list[dict[str, Any]]:
    """Return two ports for each `bus:slot`, from mlx5 numbers and what each port is."""
    places = [(place.split(":"), port) for place in slots.split() for port in (1, 2)]
    return [
        {
            "pci": f"{bus}:00.{port - 1}",
            **({"slot": int(slot)} if slot else {}),
            "port": port,
            "link_layer": layers[port - 1],
            "device": "mlx5_" + number,
        }
        for ((bus, slot), port), number in zip(places, numbers.split())
    ]


_H100_BUSES = "18 40 4f 5e 9a c0 ce dc"
_H100_CAGES = "OSFP4:2 OSFP3:2 OSFP3:1 OSFP4:1 OSFP1:2 OSFP2:2 OSFP2:1 OSFP1:1"

# (d) A port of 400 Gb/s needs more than generation 4 carries on 16 lanes, which is 252 Gb/s; one of
# 200 Gb/s needs more than generation 3, 126 Gb/s.
_GENERATION_5 = {"generation": 5, "width": 16}
_GENERATION_4 = {"generation": 4, "width": 16}

_HALVES = (0, 0, 0, 0, 1, 1, 1, 1)

BUILT_IN: dict[str, dict[str, Any]] = {
    "dgx_h100": {
        # (c) DMI of the machine; NVIDIA's own automation accepts both spellings.
        "product_names": ["DGXH100", "DGX H100"],
        # (c) DGX H100/H200 user guide: 2 x Xeon Platinum 8480C, SMT on, a NUMA node a socket.
        "cpu": {"sockets": 2, "cores_per_socket": 56, "threads_per_core": 2, "numa_nodes": 2},
        # (f) An H100 server of 2 TB gives 2063205 with `slurmd -C`; sites write 1920000 to 2000000.
        # (?) The figure of a DGX itself. A node with less than is declared goes INVALID.
        "real_memory_mb": 2000000,
        "gpus": {
            "count": 8,  # (c)
            # (c) Must be a part of the detected name ("nvidia_h100_80gb_hbm3"), gres.conf man page.
            "type": "h100",
            "memory_mib": 81559,  # (f) as nvidia-smi prints it
            # (c) NVIDIA's bare-metal manager and field listings; equal on H100, H200 and B200.
            "pci": _pci("1b 43 52 61 9d c3 d1 df"),
            "numa": list(_HALVES),  # (c)
            # (d) Whole sockets: Slurm refuses an affinity to part of a socket (gres.conf, Cores).
            "cores": ["0-55"] * 4 + ["56-111"] * 4,
        },
        # (f) NCCL dumps of HGX H100: NV18 between any two GPUs, four NVSwitches.
        "nvlink": {"links_per_gpu": 18, "nvswitches": 4},
        # (c) DGX H100/H200 user guide, "Network Port Mapping". Cage numbers run against GPU
        # numbers, and each cage holds two rails that are no neighbours.
        "rails": _rails(_HALVES, _H100_BUSES, "0 3 4 5 6 9 10 11", _H100_CAGES),
        "link_rate_gbps": 400,  # (c) NDR
        "rail_pcie": _GENERATION_5,
        # (c) The same guide. As delivered, port 1 of each card is InfiniBand and port 2 Ethernet.
        "storage_ports": _ports("29:2 aa:1", "1 2 7 8", ("infiniband", "ethernet")),
        "nvme": {"os_disks": 2, "data_disks": 8},  # (c) 2 x 1.92 TB M.2, 8 x 3.84 TB U.2
        "rack_units": 8,  # (f)
        "power_w": 10200,  # (f) at most
    },
    "dgx_h200": {
        # (c) The same machine with other GPUs.
        "inherit": "dgx_h100",
        "product_names": ["DGXH200", "DGX H200"],
        "gpus": {"type": "h200", "memory_mib": 143771},  # (f)
    },
    "dgx_b200": {
        "inherit": "dgx_h100",
        "product_names": ["DGXB200", "DGX B200"],
        # (c) DGX B200 user guide: 2 x Xeon 8570 with 56 cores each, so the layout is that of the
        # H100; 2 TB as delivered. GPU PCI addresses (f).
        "gpus": {"type": "b200", "memory_mib": 183359},  # (f)
        "nvlink": {"links_per_gpu": 18, "nvswitches": 2},  # (c) fifth generation
        # (f) PCI addresses and mlx5 numbers. (?) Cages are taken to be those of the H100: NVIDIA's
        # own table was not at hand.
        "rails": _rails(_HALVES, _H100_BUSES, "4 7 8 9 10 13 14 15", _H100_CAGES),
        # (c) Two BlueField-3 with a port of each kind. (f) mlx5 numbers. (?) PCI addresses and
        # which port is which.
        "storage_ports": _ports("29:2 aa:1", "5 6 11 12", ("infiniband", "ethernet")),
        # (f) mlx5_0 to mlx5_3: ConnectX-7 functions on the GPU board through which Fabric Manager
        # reaches the NVSwitches. They are down, and no network's.
        "ignored_hcas": [
            {
                "reason": "bridge to the NVSwitches",
                "vpd": "SMDL=SW_MNG",
                "netdev": "ibs14f*",
                "count": 4,
            }
        ],
        "rack_units": 10,  # (c)
        "power_w": 14300,  # (c)
    },
    "dgx_a100": {
        "product_names": ["DGXA100", "DGX A100"],
        # (f) 2 x EPYC 7742 with NPS4: eight NUMA nodes.
        "cpu": {"sockets": 2, "cores_per_socket": 64, "threads_per_core": 2, "numa_nodes": 8},
        # (?) There are models with 1 TB (320 GB of GPU memory) and 2 TB (640 GB). This fits both; a
        # site with the larger one writes 1950000 or what its own `slurmd -C` supports.
        "real_memory_mb": 1000000,
        "gpus": {
            "count": 8,
            "type": "a100",
            # (f) 07; (?) the others.
            "pci": _pci("07 0f 47 4e 87 90 b7 bd"),
            "numa": [3, 3, 1, 1, 7, 7, 5, 5],  # (f)
            # (d) The sockets that hold NUMA nodes 0-3 and 4-7; one NUMA node is part of a socket.
            "cores": ["0-63"] * 4 + ["64-127"] * 4,
        },
        "nvlink": {"links_per_gpu": 12, "nvswitches": 6},  # (c)
        # (f) HCAs and their NUMA nodes. Two GPUs share a PCIe switch with two HCAs: which of the
        # two is whose is a choice, first to first.
        "rails": _rails((3, 3, 1, 1, 7, 7, 5, 5), "0c 12 4b 54 8d 94 ba cc", "0 1 2 3 6 7 8 9"),
        "link_rate_gbps": 200,  # (c) HDR
        "rail_pcie": _GENERATION_4,
        # (f) from the health check that NVIDIA's own automation sets up; sites change the layers.
        "storage_ports": _ports("61: e1:", "4 5 10 11", ("ethernet", "infiniband")),
        "nvme": {"os_disks": 2},  # (f) and 4 or 8 for data, by model
        "rack_units": 6,  # (?)
        "power_w": 6500,  # (?)
    },
    "hgx_h100": {
        # Boards of this kind sit in servers of many makers: CPUs, memory, PCI addresses and height
        # are the server's, and the site writes them.
        "gpus": {"count": 8, "type": "h100", "memory_mib": 81559},  # (f)
        "nvlink": {"links_per_gpu": 18, "nvswitches": 4},  # (f)
        "rails": [{"rail": rail} for rail in range(8)],
        "link_rate_gbps": 400,
        "rail_pcie": _GENERATION_5,
    },
}
