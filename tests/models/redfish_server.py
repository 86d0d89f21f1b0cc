# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A BMC that answers Redfish over TLS, in the shape of a DGX H100. Simulated: values are made up.

The ids of systems, managers and chassis, and the number of firmware components (46) are those of
the machine. What is not asked by this collection is not there. As a program it is many of them at
once: each address of 127.0.0.0/8 is another BMC.
"""

from __future__ import annotations

import json
import re
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
            "UpdateService": at("/UpdateService"), "Tasks": at("/TaskService"),
            "SessionService": at("/SessionService"), "AccountService": at("/AccountService"),
            "EventService": at("/EventService"),
            "Links": {"Sessions": at("/SessionService/Sessions")},
            "ProtocolFeaturesSupported": {"ExpandQuery": {"NoLinks": expand, "Levels": expand}},
        },
        "/Systems": {"Members": [at("/Systems/DGX"), at("/Systems/HGX_Baseboard_0")]},
        "/Systems/DGX": {
            "Id": "DGX", "PowerState": "On", "SerialNumber": serial, "Model": "DGXH100",
            "Status": {"State": "Enabled", "Health": "OK", "HealthRollup": "OK"},
            "Links": {"Chassis": [at("/Chassis/DGX")], "ManagedBy": [at("/Managers/BMC")]},
            "Bios": at("/Systems/DGX/Bios"), "LogServices": at("/Systems/DGX/LogServices"),
            "Boot": {"BootOrder": ["Boot0001", "Boot0002", "Boot0003"],
                     "BootOptions": at("/Systems/DGX/BootOptions")},
            "@Redfish.Settings": {"SettingsObject": at("/Systems/DGX/SD")},
            "Actions": {"#ComputerSystem.Reset": {
                "target": f"{V1}/Systems/DGX/Actions/ComputerSystem.Reset",
                "ResetType@Redfish.AllowableValues": [
                    "On", "ForceOff", "GracefulShutdown", "ForceRestart", "PowerCycle",
                ],
            }},
        },
        "/Systems/DGX/SD": {"Boot": {}},
        "/Systems/DGX/LogServices": {
            "Members": [at("/Systems/DGX/LogServices/SEL"), at("/Systems/DGX/LogServices/Audit")]
        },
        "/Systems/DGX/LogServices/SEL": {
            "Id": "SEL", "Entries": at("/Systems/DGX/LogServices/SEL/Entries")
        },
        "/Systems/DGX/LogServices/Audit": {"Id": "Audit"},
        "/Systems/DGX/LogServices/SEL/Entries": {"Members": []},
        "/Systems/DGX/BootOptions": {
            "Members": [at(f"/Systems/DGX/BootOptions/{n}") for n in range(1, 4)]
        },
        **{
            f"/Systems/DGX/BootOptions/{n}": {
                "BootOptionReference": f"Boot000{n}", "DisplayName": name
            }
            for n, name in enumerate(("UEFI: PXE IPv4 Intel", "debian", "UEFI: USB"), start=1)
        },
        "/Systems/DGX/Bios": {
            "Attributes": {"SRIOV": "Enabled", "NPS": "NPS1", "Timeout": 5},
            "@Redfish.Settings": {"SettingsObject": at("/Systems/DGX/Bios/SD")},
        },
        "/Systems/DGX/Bios/SD": {"Attributes": {}},
        "/AccountService": {"Accounts": at("/AccountService/Accounts")},
        "/AccountService/Accounts": {"Members": [at("/AccountService/Accounts/1")]},
        "/AccountService/Accounts/1": {
            "Id": "1", "UserName": USER, "RoleId": "Administrator", "Enabled": True
        },
        "/EventService": {"Subscriptions": at("/EventService/Subscriptions")},
        "/EventService/Subscriptions": {"Members": []},
        "/Managers/BMC": {"Id": "BMC", "NetworkProtocol": at("/Managers/BMC/NetworkProtocol")},
        "/Managers/BMC/NetworkProtocol": {
            "NTP": {"ProtocolEnabled": False, "NTPServers": ["", ""]}
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
        "/UpdateService": {
            "FirmwareInventory": at("/UpdateService/FirmwareInventory"),
            "MultipartHttpPushUri": f"{V1}/UpdateService/upload",
        },
        "/TaskService": {"Tasks": at("/TaskService/Tasks")},
        "/TaskService/Tasks": {"Members": []},
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
        self.change_s, self.away_s = 0.0, 6.0
        # An operating system that does not end; a BMC that takes an AC cycle and does none.
        self.hangs = self.feigns = False
        self.refuses: set[str] = set()
        # Kinds of resets that are accepted and not done, and at which the BMC itself has an error.
        self.ignored: set[str] = set()
        self.breaks: set[str] = set()
        # Packages that were written, and what they bring by the kind of cycle; bad images.
        self.flashed: list[str] = []
        self.waiting: dict[str, dict[str, str]] = {}
        self.spoils = self.busy = False
        # The status of answers to a package in the form of AMI's BMCs, 0 for another form; looks at
        # a task until it has ended; resets that came before.
        self.ami, self.looks = 0, 0
        # The status that a task's monitor has in the end, where the BMC names no task; else 0.
        self.monitored = 0
        self.torn: list[str] = []
        # Accounts; who must change the password first; passwords of which the BMC keeps another one
        # than it is given; a BMC that refuses a new one and repeats it.
        self.passwords = {USER: PASSWORD}
        self.must_change: set[str] = set()
        self.mangles: set[str] = set()
        self.echoes = False
        # Attributes of the BIOS that it accepts and does not keep.
        self.ignores: set[str] = set()
        # Settings that a job applies, as on iDRAC: those that have one. None is a BMC without jobs.
        self.jobs: set[str] | None = None
        # A BMC with a fixed number of accounts, as iDRAC 9.
        self.has_slots = False
        self.is_dead = False
        self._away_until = 0.0
        self._pending: tuple[float, str] | None = None

    @property
    def is_away(self) -> bool:
        """Whether the BMC itself has no power, or is starting."""
        return self.is_dead or time.monotonic() < self._away_until

    def post(self, path: str, body: Any) -> int:
        """Do an action; return its status."""
        kind = (body or {}).get("ResetType", "")
        if kind and self.looks:
            self.torn.append(kind)
        if kind in self.breaks:
            return 500
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
                if kind not in self.ignored:
                    self.set_power("On" if kind == "On" else "Off", kind)
                if kind == "On":
                    self.activate("dc")
                    self.boot()
            return 204
        if path.endswith("/Oem/NvidiaChassis.AuxPowerReset"):
            self.acts.append(kind)
            if not self.feigns:
                self.lose_power()
            return 204
        return 404

    def happens(self, message: str, severity: str = "OK", created: str = "") -> None:
        """Add an entry to the event log. Numbers begin again when it was cleared."""
        members = self.tree[f"{V1}/Systems/DGX/LogServices/SEL/Entries"]["Members"]
        number = int(members[-1]["Id"]) + 1 if members else 1
        at = created or time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
        path = f"{V1}/Systems/DGX/LogServices/SEL/Entries/{number}"
        members.append({"@odata.id": path, "Id": str(number), "Created": at, "Severity": severity,
                        "Message": message})  # fmt: skip

    def set_power(self, state: str, _kind: str) -> None:
        """Bring the machine to a state, which shows after a while."""
        self._pending = time.monotonic() + self.change_s, state

    def login(self, body: Any) -> tuple[int, Any]:
        """Return the status of a login, and its answer."""
        user = body["UserName"]
        paths = [path for path, one in self.tree.items() if one.get("UserName") == user]
        if self.passwords.get(user) != body["Password"] or not self.tree[paths[0]]["Enabled"]:
            return 401, {}
        if user not in self.must_change:
            return 201, {}
        info = {"MessageId": "Base.1.8.PasswordChangeRequired", "MessageArgs": paths}
        return 201, {"@Message.ExtendedInfo": [info]}

    def make(self, path: str, body: Any) -> int:
        """Add a member to a collection that takes some; return the status."""
        if path not in (f"{V1}/AccountService/Accounts", f"{V1}/EventService/Subscriptions"):
            return 404
        members = self.tree[path]["Members"]
        place = f"{path}/{len(members) + 7}"
        members.append({"@odata.id": place})
        if "Password" in body:
            self.passwords[body["UserName"]] = body.pop("Password")
        self.tree[place] = {"@odata.id": place, **body}
        return 201

    def remove(self, path: str) -> int:
        """Remove a member; return the status."""
        if path not in self.tree:
            return 404
        self.passwords.pop(self.tree.pop(path).get("UserName"), None)
        collection = self.tree[path.rpartition("/")[0]]
        collection["Members"] = [one for one in collection["Members"] if one["@odata.id"] != path]
        return 204

    def wants_slots(self) -> None:
        """Be a BMC with 16 slots for accounts, of which the first is reserved."""
        self.has_slots = True
        path = f"{V1}/AccountService/Accounts"
        for number in range(1, 17):
            self.tree[f"{path}/{number}"] = {
                "@odata.id": f"{path}/{number}", "Id": str(number), "UserName": "",
                "RoleId": "None", "Enabled": False,
            }  # fmt: skip
        self.tree[f"{path}/2"].update(UserName=USER, RoleId="Administrator", Enabled=True)
        self.tree[path]["Members"] = [{"@odata.id": f"{path}/{n}"} for n in range(1, 17)]

    def wants_jobs(self) -> None:
        """Be a BMC that applies settings by jobs."""
        self.jobs = set()
        for path in [one.removesuffix("/SD") for one in self.tree if one.endswith("/SD")]:
            self.tree[path]["@Redfish.Settings"]["SupportedApplyTimes"] = [
                "Immediate", "OnReset", "AtMaintenanceWindowStart"
            ]  # fmt: skip

    def schedule(self, path: str, body: Any) -> tuple[int, Any, dict[str, str]]:
        """Change settings that a job applies; return status, answer and headers."""
        assert self.jobs is not None
        if path in self.jobs:
            # SYS011 of iDRAC.
            message = (
                "Pending configuration values are already committed, unable to perform another set "
                "operation."
            )
            return 400, {"error": {"@Message.ExtendedInfo": [{"Message": message}]}}, {}
        when = body.pop("@Redfish.SettingsApplyTime", {}).get("ApplyTime")
        headers = {}
        if when == "OnReset":
            self.jobs.add(path)
            headers["Location"] = f"{V1}/TaskService/TaskMonitors/JID_{len(self.jobs)}"
        status, answer = self.patch(path, body, "*")
        return status, answer, headers

    def patch(self, path: str, body: Any, match: str | None) -> tuple[int, Any]:
        """Change a resource; return the status and the answer."""
        if "@Redfish.SettingsApplyTime" in body:
            return 400, {}
        if path not in self.tree:
            return 404, {}
        if match is None:
            return 428, {}
        password = body.pop("Password", None)
        if password is not None:
            if self.echoes:
                message = f"The value {password} for the property Password is not acceptable"
                return 400, {"error": {"message": message}}
            user = body.get("UserName") or self.tree[path]["UserName"]
            self.passwords[user] = password[:6] if password in self.mangles else password
            self.must_change.discard(user)
        for name in self.ignores:
            body.get("Attributes", {}).pop(name, None)
        place = {**self.tree[path]}
        if self.has_slots and place.get("Id") == "1":
            return 400, {}
        if body.get("UserName") == "":
            self.passwords.pop(place["UserName"], None)
        for key, value in body.items():
            place[key] = {**place.get(key, {}), **value} if isinstance(value, dict) else value
        self.tree[path] = place
        return 200, place

    def act(
        self, command: str, path: str, query: str, body: Any, match: str | None
    ) -> tuple[int, Any] | tuple[int, Any, dict[str, str]]:
        """Return the status and the answer of all that is neither a login nor a file."""
        if command == "GET" and "/TaskMonitors/" in path:
            self.looks, status = max(0, self.looks - 1), 202 if self.looks else self.monitored
            return status, {"error": {"code": "Base.1.8.Success"}} if status == 200 else None
        if command == "GET":
            found = self.answer(path, query)
            return (404, {}) if found is None else (200, found)
        if command == "PATCH" and self.jobs is not None and path.endswith("/SD"):
            return self.schedule(path, body)
        if command == "PATCH":
            return self.patch(path, body, match)
        if command == "DELETE" and self.has_slots and "/Accounts/" in path:
            return 405, {}
        if command == "DELETE":
            return self.remove(path), None
        if self.has_slots and path == f"{V1}/AccountService/Accounts":
            return 405, {}
        if path in self.tree:
            return self.make(path, body), {}
        status = self.post(path, body)
        return status, None if status == 204 else {}

    def boot(self) -> None:
        """What waits for the next boot is in force."""
        for path, waiting in list(self.tree.items()):
            if path.endswith("/SD") and (self.jobs is None or path in self.jobs):
                now = self.tree[path.removesuffix("/SD")]
                for key in ("Boot", "Attributes"):
                    if key in waiting:
                        now[key] = {**now[key], **waiting[key]}
        if self.jobs:
            self.jobs.clear()

    def upload(self, body: bytes) -> str:
        """Take a package, whose content says what it brings and needs; return its task."""
        content = json.loads(re.search(rb"\r\n\r\n(\{\"brings.*?\})\r\n--", body, re.S)[1])  # type: ignore[index]
        self.flashed.append(content["name"])
        tasks = self.tree[f"{V1}/TaskService/Tasks"]["Members"]
        path = f"{V1}/TaskService/Tasks/{len(tasks) + 1}"
        tasks.append({"@odata.id": path})
        state = "Exception" if self.spoils else "Completed"
        message = "invalid image" if self.spoils else "AC power cycle to activate"
        self.tree[path] = {"@odata.id": path, "TaskState": state, "PercentComplete": 100,
                           "Messages": [{"Message": message}]}  # fmt: skip
        if not self.spoils:
            self.waiting[content["activation"]] = content["brings"]
            self.activate("none")
        return path

    def taken(self, task: str) -> tuple[int, Any, dict[str, str]]:
        """Return the answer to a package: status, body and headers."""
        if self.monitored:
            return 202, None, {"Location": task.replace("/Tasks/", "/TaskMonitors/")}
        if not self.ami:
            return 202, {"@odata.id": task}, {"Location": task}
        # The answer of a DGX H100 in NVIDIA's documentation of nvfwupd.
        messages = [
            {
                "@odata.type": "#Message.v1_0_8.Message",
                "Message": f"A new task {task} was created.", "MessageArgs": [task],
                "MessageId": "Task.1.0.New", "Resolution": "None", "Severity": "OK",
            },
            {
                "@odata.type": "#Message.v1_0_8.Message",
                "Message": "The action UpdateService.MultipartPush was submitted to do firmware "
                "update.",
                "MessageArgs": ["UpdateService.MultipartPush"],
                "MessageId": "UpdateService.1.0.StartFirmwareUpdate",
                "Resolution": "None", "Severity": "OK",
            },
        ]  # fmt: skip
        kind = "#UpdateService.v1_11_0.UpdateService"
        return self.ami, {"@odata.type": kind, "Messages": messages}, {}

    def activate(self, kind: str) -> None:
        """What waits for this kind of cycle runs."""
        for one in ("none", "dc", "ac")[: ("none", "dc", "ac").index(kind) + 1]:
            for component, version in self.waiting.pop(one, {}).items():
                path = f"{V1}/UpdateService/FirmwareInventory/{component}"
                self.tree[path] = {**self.tree[path], "Version": version}

    def lose_power(self) -> None:
        """AC power goes and comes: the BMC, too, and its sessions."""
        self.activate("ac")
        self._away_until = time.monotonic() + self.away_s
        self.sessions.clear()
        self._pending = 0.0, "On"

    def answer(self, path: str, query: str) -> dict[str, Any] | None:
        """Return a resource; members in full where that is asked."""
        if self._pending and time.monotonic() >= self._pending[0]:
            self.tree[f"{V1}/Systems/DGX"]["PowerState"] = self._pending[1]
            self._pending = None
        data = self.tree.get(path)
        if data and "TaskState" in data and (self.busy or self.looks):
            self.looks = max(0, self.looks - 1)
            return {**data, "TaskState": "Running", "PercentComplete": 39}
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
    result = subprocess.run(
        ["openssl", "x509", "-in", cert, "-noout", "-fingerprint", "-sha256"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return key, cert, "sha256:" + result.stdout.partition("=")[2].strip().replace(":", "").lower()


def serve(bmc_of: Any, key: Path, cert: Path, host: str = "127.0.0.1", port: int = 0) -> _Server:
    """Return a server, not yet started; `bmc_of` gives the BMC of an address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _do(self) -> None:
            bmc = bmc_of(self.connection.getsockname()[0])
            size = int(self.headers.get("Content-Length") or 0)
            data = self.rfile.read(size)
            is_file = self.headers.get("Content-Type", "").startswith("multipart/")
            body = None if is_file else json.loads(data or b"null")
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
                status, answer = bmc.login(body)
                if status != 201:
                    self._send(status, answer)
                    return
                bmc.opened += 1
                token = f"token-{bmc.opened}"
                bmc.sessions.add(token)
                place = {"X-Auth-Token": token, "Location": f"{sessions}/{bmc.opened}"}
                self._send(201, {"Id": str(bmc.opened), **answer}, place)
            elif path != V1 and self.headers.get("X-Auth-Token") not in bmc.sessions:
                self._send(401, {})
            elif self.command == "DELETE" and path.startswith(sessions):
                bmc.sessions.discard("token-" + path.rsplit("/", 1)[1])
                self._send(204)
            elif self.command == "POST" and path == f"{V1}/UpdateService/upload":
                self._send(*bmc.taken(bmc.upload(data)))
            else:
                match = self.headers.get("If-Match")
                self._send(*bmc.act(self.command, path, url.query, body, match))

        do_GET = do_POST = do_PATCH = do_DELETE = _do  # noqa: N815 (names of http.server)

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
    server = _Server((host, port), Handler)
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
