# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a sysfs tree of RDMA devices, below PCIe switches and root ports as a DGX has them."""

from __future__ import annotations

from pathlib import Path

RAILS = ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc")
COUNTERS = {
    "symbol_error": 0,
    "link_error_recovery": 0,
    "link_downed": 0,
    "port_rcv_errors": 14,
    "excessive_buffer_overrun_errors": 15,
    "port_xmit_data": 230442669431839,
}


def config_space(port_type: int, read_request: int = 512, acs: int | None = None) -> bytes:
    """4096 bytes with a PCI Express capability at 0x60 and, if asked for, ACS at 0x148."""
    config = bytearray(4096)
    config[0x06] = 0x10
    # a power management capability comes first, as on the real card
    config[0x34] = 0x40
    config[0x40:0x42] = bytes([0x01, 0x60])
    config[0x60:0x62] = bytes([0x10, 0x00])
    config[0x62:0x64] = (port_type << 4 | 2).to_bytes(2, "little")
    size = {128: 0, 256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}[read_request]
    config[0x68:0x6A] = (size << 12 | 0x936).to_bytes(2, "little")
    config[0x100:0x104] = (0x148 << 20 | 1 << 16 | 0x0001).to_bytes(4, "little")
    if acs is not None:
        config[0x148:0x14C] = (1 << 16 | 0x000D).to_bytes(4, "little")
        config[0x14E:0x150] = acs.to_bytes(2, "little")
    return bytes(config)


def _files(folder: Path, files: dict[str, object]) -> None:
    for name, value in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(value, bytes):
            path.write_bytes(value)
        else:
            path.write_text(f"{value}\n")


def _link(now: str, able: str, width: int = 16, able_width: int = 16) -> dict[str, object]:
    return {
        "current_link_speed": now,
        "max_link_speed": able,
        "current_link_width": width,
        "max_link_width": able_width,
    }


GEN5 = "32.0 GT/s PCIe"


def add_hca(
    sys: Path,
    device: str,
    bus: str,
    *,
    vendor: str = "0x15b3",
    number: int = 0,
    vital: bytes = b"\x82\x00\x00 MCX ...",
    rate: str = "400 Gb/sec (4X NDR)",
    state: str = "4: ACTIVE",
    physical: str = "5: LinkUp",
    layer: str = "InfiniBand",
    speed: str = GEN5,
    switch_width: int = 16,
    read_request: int = 4096,
    acs: int = 0,
    counters: dict[str, int] | None = None,
    pkeys: tuple[str, ...] = ("0xffff", "0x0000"),
    firmware: str = "28.39.1002",
    psid: str = "MT_0000000838",
    description: str | None = None,
) -> None:
    """Add a device below root port, upstream port and downstream port of a switch."""
    domain = f"pci0000:{bus[0]}0"
    root = sys / "devices" / domain / f"0000:{bus[0]}0:01.0"
    upstream = root / f"0000:{bus[0]}1:00.0"
    downstream = upstream / f"0000:{bus[0]}2:{number:02x}.0"
    function = downstream / f"0000:{bus}:00.0"
    # the root port and the port above it are one link, of the switch
    _files(root, {**_link(GEN5, GEN5, switch_width), "config": config_space(4, acs=acs)})
    _files(upstream, {**_link(GEN5, GEN5, switch_width), "config": config_space(5)})
    _files(downstream, {**_link(speed, GEN5), "config": config_space(6, acs=acs)})
    _files(
        function,
        {
            **_link(speed, GEN5),
            "vendor": vendor,
            "numa_node": 0,
            "vpd": vital,
            "config": config_space(0, read_request),
            "net/" + f"ib{device}/mtu": 2044,
        },
    )
    guid = f"946d:ae03:0000:{int(bus, 16):04x}"
    base = sys / "devices-infiniband" / device
    _files(
        base,
        {
            "board_id": psid,
            "fw_ver": firmware,
            "hca_type": "MT4129",
            "node_guid": guid,
            "node_desc": f"dgx-01 {device}" if description is None else description,
            "ports/1/link_layer": layer,
            "ports/1/state": state,
            "ports/1/phys_state": physical,
            "ports/1/rate": rate,
            "ports/1/lid": "0x12",
            "ports/1/sm_lid": "0x1",
            "ports/1/gids/0": f"fe80:0000:0000:0000:{guid}",
        },
    )
    _files(base / "ports/1/pkeys", {str(at): value for at, value in enumerate(pkeys)})
    _files(base / "ports/1/counters", {**COUNTERS, **(counters or {})})
    (base / "device").symlink_to(function)
    entry = sys / "class/infiniband" / device
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.symlink_to(base)


def dgx(sys: Path, **changes: dict[str, object]) -> Path:
    """Write the tree of a DGX with named rails; `changes` by device name."""
    for rail, bus in enumerate(RAILS):
        device = f"mlx5_rail{rail}"
        add_hca(sys, device, bus, number=rail, **changes.get(device, {}))  # type: ignore[arg-type]
    return sys
