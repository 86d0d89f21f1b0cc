# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A BMC that answers Redfish over TLS, in the shape of a DGX H100. Simulated: values are made up.

The ids of systems, managers and chassis, and the number of firmware components (46) are those of
the machine. What is not asked by this collection is not there. As a program it is many of them at
once: each address of 127.0.0.0/8 is another BMC.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from urllib.parse import unquote, urlsplit

USER, PASSWORD = "dgx", "pass-word-1"
V1 = "/redfish/v1"
COMPONENTS = [
    *("HostBMC_0", "HostBIOS_0", "CPLDMB_0", "CPLDMID_0", "EROT_BMC_0", "EROT_BIOS_0"),
    *(f"PSU_{n}" for n in range(6)),
    *("PCIeSwitch_0", "PCIeSwitch_1", "HGX_FW_BMC_0", "HGX_FW_FPGA_0"),
    *(f"HGX_FW_GPU_SXM_{n}" for n in range(1, 9)),
    *(f"HGX_FW_ERoT_GPU_SXM_{n}" for n in range(1, 9)),
    *(f"HGX_FW_NVSwitch_{n}" for n in range(4)),
    *(f"HGX_FW_PCIeRetimer_{n}" for n in range(8)),
    *("HGX_FW_ERoT_BMC_0", "HGX_FW_ERoT_FPGA_0"),
]
OK = {"State": "Enabled", "Health": "OK"}


def machine(serial: str = "1660224000001", expand: bool = True) -> dict[str, Any]:
    """Return the resources by path; tests change them."""

    def at(path: str) -> dict[str, str]:
        return {"@odata.id": V1 + path}

    tree: dict[str, Any] = {
        "": {
            "Systems": at("/Systems"), "Chassis": at("/Chassis"), "Managers": at("/Managers"),
            "UpdateService": at("/UpdateService"), "SessionService": at("/SessionService"),
            "Links": {"Sessions": at("/SessionService/Sessions")},
            "ProtocolFeaturesSupported": {"ExpandQuery": {"NoLinks": expand, "Levels": expand}},
        },
        "/Systems": {"Members": [at("/Systems/DGX"), at("/Systems/HGX_Baseboard_0")]},
        "/Systems/DGX": {
            "Id": "DGX", "PowerState": "On", "SerialNumber": serial, "Model": "DGXH100",
            "Status": {"State": "Enabled", "Health": "OK", "HealthRollup": "OK"},
            "Links": {"Chassis": [at("/Chassis/DGX")]},
            "Actions": {"#ComputerSystem.Reset": {
                "target": f"{V1}/Systems/DGX/Actions/ComputerSystem.Reset",
                "ResetType@Redfish.AllowableValues": [
                    "On", "ForceOff", "GracefulShutdown", "ForceRestart", "PowerCycle",
                ],
            }},
        },
        "/Systems/HGX_Baseboard_0": {"Id": "HGX_Baseboard_0", "PowerState": "On", "Status": OK},
        "/Managers": {"Members": [at("/Managers/BMC"), at("/Managers/HGX_BMC_0")]},
        "/Chassis": {"Members": [at("/Chassis/DGX")]},
        "/Chassis/DGX": {
            "Id": "DGX", "Power": at("/Chassis/DGX/Power"), "Thermal": at("/Chassis/DGX/Thermal"),
            "Actions": {"Oem": {"#NvidiaChassis.AuxPowerReset": {
                "target": f"{V1}/Chassis/DGX/Actions/Oem/NvidiaChassis.AuxPowerReset",
                "ResetType@Redfish.AllowableValues": ["AuxPowerCycle"],
            }}},
        },
        "/Chassis/DGX/Power": {
            "PowerSupplies": [{"Name": f"PSU{n}", "Status": dict(OK)} for n in range(6)]
        },
        "/Chassis/DGX/Thermal": {
            "Fans": [{"Name": f"FAN{n}", "Status": dict(OK)} for n in range(12)],
            "Temperatures": [
                {"Name": f"TEMP_GPU{n}", "ReadingCelsius": 40 + n, "UpperThresholdCritical": 95}
                for n in range(8)
            ] + [{"Name": "TEMP_PCH", "ReadingCelsius": None, "UpperThresholdCritical": 90}],
        },
        "/UpdateService": {"FirmwareInventory": at("/UpdateService/FirmwareInventory")},
        "/UpdateService/FirmwareInventory": {
            "Members": [at(f"/UpdateService/FirmwareInventory/{one}") for one in COMPONENTS]
        },
    }  # fmt: skip
    for number, one in enumerate(COMPONENTS):
        path = f"/UpdateService/FirmwareInventory/{one}"
        tree[path] = {"Id": one, "Version": f"01.02.{number:02d}", "Status": OK}
    return {V1 + path: {"@odata.id": V1 + path, **data} for path, data in tree.items()}


class Bmc:
    """One BMC: its resources, its sessions, and what it was asked."""

    def __init__(self, tree: dict[str, Any] | None = None, delay_s: float = 0.0) -> None:
        self.tree = machine() if tree is None else tree
        self.delay_s = delay_s
        self.sessions: set[str] = set()
        self.opened = 0
        self.log: list[tuple[str, str]] = []
        # Paths that never answer, or lead elsewhere.
        self.silent: set[str] = set()
        self.moved: dict[str, str] = {}
        # Resets that were accepted; seconds until a change shows, and that an AC cycle takes.
        self.acts: list[str] = []
        self.change_s, self.away_s = 0.0, 0.2
        # An operating system that does not end; a BMC that takes an AC cycle and does none.
        self.hangs = self.feigns = False
        self.refuses: set[str] = set()
        self._away_until = 0.0
        self._pending: tuple[float, str] | None = None

    @property
    def is_away(self) -> bool:
        """Whether the BMC itself has no power, or is starting."""
        return time.monotonic() < self._away_until

    def post(self, path: str, body: Any) -> int:
        """Do an action; return its status."""
        kind = (body or {}).get("ResetType", "")
        if path == f"{V1}/Systems/DGX/Actions/ComputerSystem.Reset":
            if kind not in ("On", "ForceOff", "GracefulShutdown", "FullPowerCycle"):
                return 400
            if kind in self.refuses:
                return 400
            self.acts.append(kind)
            if kind == "FullPowerCycle":
                self.lose_power()
                return 204
            if not (kind == "GracefulShutdown" and self.hangs):
                self._pending = time.monotonic() + self.change_s, "On" if kind == "On" else "Off"
            return 204
        if path.endswith("/Oem/NvidiaChassis.AuxPowerReset"):
            self.acts.append(kind)
            if not self.feigns:
                self.lose_power()
            return 204
        return 404

    def lose_power(self) -> None:
        """AC power goes and comes: the BMC, too, and its sessions."""
        self._away_until = time.monotonic() + self.away_s
        self.sessions.clear()
        self._pending = 0.0, "On"

    def answer(self, path: str, query: str) -> dict[str, Any] | None:
        """Return a resource; members in full where that is asked."""
        if self._pending and time.monotonic() >= self._pending[0]:
            self.tree[f"{V1}/Systems/DGX"]["PowerState"] = self._pending[1]
            self._pending = None
        data = self.tree.get(path)
        if data is None or "$expand" not in unquote(query) or "Members" not in data:
            return data
        full = [self.tree.get(one["@odata.id"], one) for one in data["Members"]]
        return {**data, "Members": full}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 2048
    server_bind = TCPServer.server_bind  # HTTPServer's own asks DNS for the name of the host

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that refuse the certificate."""


def certificate(folder: Path) -> tuple[Path, Path, str]:
    """Make a key and a certificate for 127.0.0.1; return their paths and the fingerprint."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=bmc", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", key, "-out", cert],
        check=True,
        capture_output=True,
    )  # fmt: skip
    said = subprocess.run(
        ["openssl", "x509", "-in", cert, "-noout", "-fingerprint", "-sha256"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return key, cert, "sha256:" + said.stdout.partition("=")[2].strip().replace(":", "").lower()


def serve(bmc_of: Any, key: Path, cert: Path, host: str = "127.0.0.1") -> _Server:
    """Return a server, not yet started; `bmc_of` gives the BMC of an address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _do(self) -> None:
            bmc = bmc_of(self.connection.getsockname()[0])
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size) or b"null")
            url = urlsplit(self.path)
            path = url.path.rstrip("/")
            bmc.log.append((self.command, self.path))
            time.sleep(1e6 if path in bmc.silent else bmc.delay_s)
            sessions = f"{V1}/SessionService/Sessions"
            if bmc.is_away:
                self.close_connection = True
                return
            if path in bmc.moved:
                self._send(302, {}, {"Location": bmc.moved[path]})
            elif (self.command, path) == ("POST", sessions):
                if body != {"UserName": USER, "Password": PASSWORD}:
                    self._send(401, {})
                    return
                bmc.opened += 1
                token = f"token-{bmc.opened}"
                bmc.sessions.add(token)
                place = {"X-Auth-Token": token, "Location": f"{sessions}/{bmc.opened}"}
                self._send(201, {"Id": str(bmc.opened)}, place)
            elif path != V1 and self.headers.get("X-Auth-Token") not in bmc.sessions:
                self._send(401, {})
            elif self.command == "DELETE" and path.startswith(sessions):
                bmc.sessions.discard("token-" + path.rsplit("/", 1)[1])
                self._send(204)
            elif self.command == "POST":
                status = bmc.post(path, body)
                self._send(status, None if status == 204 else {})
            elif self.command == "GET" and (data := bmc.answer(path, url.query)) is not None:
                self._send(200, data)
            else:
                self._send(404, {})

        do_GET = do_POST = do_DELETE = _do  # noqa: N815 (names of http.server)

        def _send(
            self, status: int, data: Any = None, headers: dict[str, str] | None = None
        ) -> None:
            text = b"" if data is None else json.dumps(data).encode()
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": str(len(text))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server = _Server((host, 0), Handler)
    # The handshake is the thread's: a client that makes none must not hold the others up.
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    return server


@contextmanager
def serving(bmc: Bmc, key: Path, cert: Path, host: str = "127.0.0.1") -> Iterator[int]:
    """Serve one BMC; yields its port."""
    server = serve(lambda _address: bmc, key, cert, host)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    """FOLDER DELAY_S EXPAND: serve every address, and print the port."""
    folder, delay_s, expand = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "expand"
    known: dict[str, Bmc] = {}
    tree = machine(expand=expand)

    def bmc_of(address: str) -> Bmc:
        if address not in known:
            # All of them share what does not change.
            known[address] = Bmc(
                {**tree, f"{V1}/Systems/DGX": {**tree[f"{V1}/Systems/DGX"]}}, delay_s
            )
        return known[address]

    server = serve(bmc_of, folder / "key.pem", folder / "cert.pem", "0.0.0.0")
    print(server.server_address[1], flush=True)
    server.serve_forever(0.5)


if __name__ == "__main__":
    main()
