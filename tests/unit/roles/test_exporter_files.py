# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the exporters' roles write: units that listen where configured, collectors that start."""

from __future__ import annotations

import base64
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_tools import tool
from role_render import by_path, lines, render_many
from role_rules import Role

from ansible_collections.baremetal.dgx.plugins.module_utils._exporters import fabric, slurm
from ansible_collections.baremetal.dgx.plugins.module_utils._exporters.fabric import (
    settings_from_data as fabric_settings,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._exporters.slurm import (
    settings_from_data as slurm_settings,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health import main
from ansible_collections.baremetal.dgx.plugins.plugin_utils._programs import program

ROOT = Path(__file__).resolve().parents[3]
HASH = "$2y$10$abcdefghijklmnopqrstuv"
NODE_UNIT = "/etc/systemd/system/prometheus-node-exporter.service"
GPU_UNIT = "/etc/systemd/system/nvidia-dcgm-exporter.service"
REFUSALS = "__%s_refusals | selectattr('when') | map(attribute='say') | list"


# openssl req -x509 -newkey ed25519 -nodes -days 3650 -subj /CN=mon-01, of 27 November 2026
CERTIFICATE = """-----BEGIN CERTIFICATE-----
MIIBNjCB6aADAgECAhQsxxzzf5DAo6Wy64Rykp4DEhf4VzAFBgMrZXAwETEPMA0G
A1UEAwwGbW9uLTAxMB4XDTI2MTEyNzIzNDYyN1oXDTM2MTEyNDIzNDYyN1owETEP
MA0GA1UEAwwGbW9uLTAxMCowBQYDK2VwAyEAvrhbxRqFfYzWcGPKa9ag+YdcUbBm
NQenB1XnGAQZd/ijUzBRMB0GA1UdDgQWBBT+9J12w70yHGkMkHt1rlnYxgIp3TAf
BgNVHSMEGDAWgBT+9J12w70yHGkMkHt1rlnYxgIp3TAPBgNVHRMBAf8EBTADAQH/
MAUGAytlcANBAGTpgy+fKhab5XOaZeOJbxjPDAW6dmZ6p/88+kskVkk2U4iVFYQ3
b4jg+g93W8ByydRodWK7qR/PRxa93Or10gg=
-----END CERTIFICATE-----"""
ENDS = 2111183187

SERVICE = {
    "unit_files": "_service_unit_files",
    "files": "__service_files",
    "leftovers": "__service_leftovers",
    "service": "_service_unit",
    "probes": "__service_probes",
    "refusals": "__service_bad | map(attribute='say') | list",
}
SHOWN: dict[str, Any] = {
    "node_exporter": SERVICE,
    "dcgm_exporter": SERVICE,
    "slurm_exporter": "program_files files leftovers validations stopped_units probes",
    "fabric_exporter": "program_files files leftovers validations stopped_units probes",
}
IMAGE = "registry.example.org/dcgm-exporter@sha256:" + "a" * 64
# Case -> inputs, rendered in one run for each role, since each run takes seconds.
CASES: dict[str, dict[str, dict[str, Any]]] = {
    "node_exporter": {
        "plain": {},
        "told": {"address": "10.0.0.5", "skip_mounts": ["/dev", "/var/lib/a.b"]},
        "six": {"address": "fd00::5"},
        "every": {"address": "0.0.0.0"},
        "secret": {
            "tls": {"certificate": "CERT", "key": "KEY", "client_ca": "CA"},
            "users": {"prom": HASH},
        },
        "certificates": {"certificates": {"slurm_rest": "CERT", "grafana": CERTIFICATE}},
        "archive": {
            "source": "archive",
            "archive": {"url": "file:///srv/node_exporter.tar.gz", "sha256": "ab" * 32},
        },
    },
    "dcgm_exporter": {
        "plain": {},
        "told": {"address": "10.0.0.5", "host_engine": "127.0.0.1:5556"},
        "counters": {
            "counters": [
                {"field": "DCGM_FI_DEV_FAN_SPEED", "type": "gauge", "help": "Fan in percent"}
            ],
            "skip_counters": ["DCGM_FI_DEV_MEM_CLOCK"],
        },
        "old": {"dcgm_release": 3, "profiling": False},
        "container": {"source": "container", "container": {"image": IMAGE}},
        "unmapped": {"job_mapping": False},
    },
    "slurm_exporter": {"told": {"native": True, "accounting": False}},
    "fabric_exporter": {
        "told": {
            "plan_file": "/etc/hostname",
            "subnet_managers": ["head-01"],
            "environment": {"LD_PRELOAD": "x"},
            "options": ["-C", "mlx5_0"],
        },
    },
}
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "node_exporter": [
        ({"port": 0}, "not a port"),
        ({"address": "head-01"}, "is not an address"),
        ({"source": "directory"}, "path or sha256"),
        ({"source": "archive", "archive": {"url": "http://x", "sha256": "1"}}, "sha256"),
        ({"tls": {"certificate": "x"}}, "private key"),
        ({"users": {"a": "secret"}}, "bcrypt"),
        ({"collectors": ["cpu --web"]}, "collectors"),
        ({"textfile_dir": "a"}, "absolute"),
    ],
    "dcgm_exporter": [
        ({"port": 70000}, "port"),
        ({"address": "::x"}, "is not an address"),
        ({"host_engine": "localhost"}, "host_engine"),
        ({"interval_s": 0}, "interval"),
        ({"source": "binary"}, "where the program lies"),
        ({"source": "container", "container": {"image": "a:latest"}}, "digest"),
        ({"source": "directory"}, "path or sha256"),
        ({"dcgm_release": 5}, "3 or 4"),
        ({"tls": {"certificate": "x"}}, "private key"),
        ({"users": {"a": "secret"}}, "bcrypt"),
        ({"counters": [{"field": "FAN", "type": "gauge", "help": "x"}]}, "no fields"),
        ({"counters": [{"field": "DCGM_FI_A", "type": "gauge", "help": "a, b"}]}, "commas or"),
    ],
    "slurm_exporter": [
        ({"interval_s": 5}, "interval_s"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"metrics_file": "/tmp/x"}, "prom"),
    ],
    "fabric_exporter": [
        ({"plan_file": "/nonexistent"}, "check_inventory"),
        ({"interval_s": 5, "plan_file": "/etc/passwd"}, "interval_s"),
        ({"timeout_s": 0, "plan_file": "/etc/passwd"}, "timeout_s"),
        ({"metrics_file": "x.prom", "plan_file": "/etc/passwd"}, "prom"),
    ],
}


def rendered(
    folder: Path, role: str, cases: dict[str, dict[str, Any]], distribution: str, version: str
) -> dict[str, Any]:
    """Case -> what the role makes of it."""
    expressions = SHOWN[role]
    if isinstance(expressions, str):
        expressions = {name: f"__{role}_{name}" for name in expressions.split()}
        expressions["refusals"] = REFUSALS % role
    given = {
        case: {f"{role}_{key}": value for key, value in inputs.items()}
        for case, inputs in cases.items()
    }
    facts = {"distribution_version": version}
    found = render_many(folder, role, distribution, given, expressions, facts)
    return {
        case: {
            name: by_path(value) if name.endswith("files") or name == "leftovers" else value
            for name, value in values.items()
        }
        for case, values in found.items()
    }


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Role -> case -> what it makes of it, and what it refuses, as refused0, refused1 ..."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANSIBLE_COLLECTIONS_PATH", str(ROOT / ".cache/collections"))
        return {
            role: rendered(
                tmp_path_factory.mktemp(role), role,
                {**cases, **{f"refused{i}": one for i, (one, _says) in enumerate(REFUSED[role])}},
                "Debian", "13",
            )
            for role, cases in CASES.items()
        }  # fmt: skip


def command(unit: str) -> list[str]:
    """The words that systemd would start: its own quotes, then doubled signs as one."""
    joined = re.sub(r"\\\n\s*", "", unit)
    (line,) = (line for line in joined.splitlines() if line.startswith("ExecStart="))
    return [w.replace("$$", "$").replace("%%", "%") for w in shlex.split(line.partition("=")[2])]


def test_node_exporter_listens_where_it_is_told(roles: Any) -> None:
    found = roles["node_exporter"]["told"]
    words = command(found["unit_files"][NODE_UNIT]["content"])
    assert words[0] == "/usr/bin/prometheus-node-exporter"
    assert "--web.listen-address=10.0.0.5:9100" in words
    assert "--collector.disable-defaults" in words
    assert {
        "--collector.infiniband",
        "--collector.nvme",
        "--collector.mdadm",
        "--collector.textfile",
    } <= set(words)
    assert not [word for word in words if word.startswith("--web.config")]
    (mounts,) = (w.partition("=")[2] for w in words if "mount-points-exclude" in w)
    assert re.search(mounts, "/var/lib/a.b/c")
    assert not re.search(mounts, "/var/lib/axb")
    assert not re.search(mounts, "/devices")
    (types,) = (w.partition("=")[2] for w in words if "fs-types-exclude" in w)
    assert all(re.search(types, name) for name in ("nfs4", "ceph", "fuse.ceph", "cgroup", "lustre"))
    assert not any(re.search(types, name) for name in ("ext4", "xfs", "overlay", "zfs"))
    (probe,) = found["probes"]
    assert re.search(probe["expect"], "LISTEN 0 4096 10.0.0.5:9100 0.0.0.0:*")
    for wide in (
        "LISTEN 0 4096 *:9100 *:*",
        "LISTEN 0 1 0.0.0.0:9100 0.0.0.0:*",
        "LISTEN 0 1 [::]:9100 [::]:*",
    ):
        assert re.search(probe["reject"], wide)
    assert not re.search(probe["reject"], "LISTEN 0 4096 10.0.0.5:9100 0.0.0.0:*")


def test_node_exporter_of_six_and_for_all(roles: Any) -> None:
    words = command(roles["node_exporter"]["six"]["unit_files"][NODE_UNIT]["content"])
    assert "--web.listen-address=[fd00::5]:9100" in words
    found = roles["node_exporter"]["every"]
    assert found["probes"] == []


def test_node_exporter_with_tls_and_passwords(roles: Any) -> None:
    found = roles["node_exporter"]["secret"]
    folder = "/etc/baremetal-dgx/node-exporter"
    web = yaml.safe_load(found["files"][f"{folder}/web.yml"]["secret_content"])
    assert web == {
        "tls_server_config": {
            "cert_file": f"{folder}/certificate.pem",
            "key_file": f"{folder}/key.pem",
            "client_auth_type": "RequireAndVerifyClientCert",
            "client_ca_file": f"{folder}/client-ca.pem",
        },
        "basic_auth_users": {"prom": HASH},
    }
    assert found["files"][f"{folder}/key.pem"]["mode"] == "0640"
    words = command(found["unit_files"][NODE_UNIT]["content"])
    assert f"--web.config.file={folder}/web.yml" in words
    plain = roles["node_exporter"]["plain"]
    assert {
        path: plain["files"][path]["state"]
        for path in plain["files"]
        if ".pem" in path or "web" in path
    } == {
        f"{folder}/{name}": "absent"
        for name in ("certificate.pem", "key.pem", "client-ca.pem", "web.yml")
    }
    assert {entry["state"] for entry in found["leftovers"].values()} == {"absent"}
    assert NODE_UNIT in found["leftovers"]


def test_the_end_of_each_certificate_is_published(roles: Any) -> None:
    path = "/var/lib/prometheus/node-exporter/baremetal_dgx_certificates.prom"
    found = roles["node_exporter"]["certificates"]["files"][path]
    assert (found["state"], found["mode"]) == ("file", "0644")
    name = "baremetal_dgx_certificate_end_timestamp_seconds"
    written = [line for line in found["content"].splitlines() if not line.startswith("# HELP")]
    assert written[-3:] == [
        f"# TYPE {name} gauge",
        f'{name}{{certificate="grafana"}} {ENDS}',
        f'{name}{{certificate="slurm_rest"}} 0',
    ]
    checked = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=found["content"], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stderr
    assert roles["node_exporter"]["plain"]["files"][path]["state"] == "absent"


def test_an_old_release_calls_the_option_otherwise(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(ROOT / ".cache/collections"))
    cases = {"a": {"users": {"a": HASH}}}
    found = rendered(tmp_path, "node_exporter", cases, "Ubuntu", "22.04")["a"]
    assert "--web.config=/etc/baremetal-dgx/node-exporter/web.yml" in command(
        found["unit_files"][NODE_UNIT]["content"]
    )


def test_node_exporter_of_the_maintainers(roles: Any) -> None:
    found = roles["node_exporter"]["archive"]
    assert command(found["unit_files"][NODE_UNIT]["content"])[0] == (
        "/opt/baremetal-dgx/node_exporter/abababababab/node_exporter"
    )


def test_dcgm_exporter_asks_the_one_host_engine(roles: Any) -> None:
    found = roles["dcgm_exporter"]["told"]
    unit = found["unit_files"][GPU_UNIT]["content"]
    words = command(unit)
    counters = "/etc/baremetal-dgx/dcgm-exporter/counters.csv"
    pairs = dict(zip(words[1::2], words[2::2], strict=True))
    assert words[0] == "/usr/bin/dcgm-exporter"
    assert pairs == {
        "-f": counters, "-a": "10.0.0.5:9400", "-c": "15000", "-r": "127.0.0.1:5556",
        "--hpc-job-mapping-dir": "/run/baremetal-dgx/gpu-jobs",
    }  # fmt: skip
    assert "\nCapabilityBoundingSet=\n" in unit
    (probe,) = found["probes"]
    assert re.search(probe["reject"], "LISTEN 0 4096 *:9400 *:*")
    assert re.search(probe["reject"], "LISTEN 0 4096 [::]:9400 [::]:*")
    assert re.search(probe["reject"], "LISTEN 0 4096 0.0.0.0:9400 0.0.0.0:*")
    assert not re.search(probe["reject"], "LISTEN 0 4096 10.0.0.5:9400 0.0.0.0:*")


def test_counters_have_what_the_packages_file_leaves_out(roles: Any) -> None:
    path = "/etc/baremetal-dgx/dcgm-exporter/counters.csv"
    found = roles["dcgm_exporter"]["counters"]
    rows = [[cell.strip() for cell in line.split(",")] for line in lines(found["files"][path])]
    assert {len(row) for row in rows} == {3}
    fields = [row[0] for row in rows]
    assert len(fields) == len(set(fields))
    assert {
        "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "DCGM_FI_DEV_THERMAL_VIOLATION",
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_ROW_REMAP_PENDING",
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_FAN_SPEED",
    } <= set(fields)  # fmt: skip
    assert "DCGM_FI_DEV_MEM_CLOCK" not in fields
    old = roles["dcgm_exporter"]["old"]
    text = old["files"][path]["content"]
    assert "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS" in text
    assert "CLOCKS_EVENT_REASONS" not in text
    assert "PROF" not in text


def test_every_metric_of_the_role_is_in_the_docs(roles: Any) -> None:
    text = (ROOT / "docs/metrics.md").read_text()
    path = "/etc/baremetal-dgx/dcgm-exporter/counters.csv"
    for line in lines(roles["dcgm_exporter"]["plain"]["files"][path]):
        assert f"`{line.split(',')[0]}`" in text


def test_dcgm_exporter_in_a_container(roles: Any) -> None:
    found = roles["dcgm_exporter"]["container"]
    unit = found["unit_files"][GPU_UNIT]["content"]
    words = command(unit)
    assert words[:3] == ["/usr/bin/env", "podman", "run"]
    assert {"--pull=never", "--network=host", "--cap-drop=all", IMAGE} <= set(words)
    assert words.index(IMAGE) < words.index("-r")
    assert found["service"]["restart_on"] == ["/etc/baremetal-dgx/dcgm-exporter/counters.csv"]


def test_prolog_and_epilog_tell_who_has_which_gpu(roles: Any, tmp_path: Path) -> None:
    files = roles["dcgm_exporter"]["plain"]["files"]
    scripts = {}
    for when in ("prolog", "epilog"):
        scripts[when] = tmp_path / when
        scripts[when].write_text(files[f"/etc/slurm/{when}.d/60-gpu-jobs"]["content"])
    jobs = tmp_path / "jobs"

    def run(when: str, job: str, gpus: str, folder: Path = jobs) -> None:
        given = {
            "PROC": str(tmp_path / "proc"),
            "SLURM_JOB_ID": job,
            "SLURM_JOB_GPUS": gpus,
            "GPU_JOBS": str(folder),
            "PATH": "/usr/bin:/bin",
        }
        done = subprocess.run(
            ["sh", str(scripts[when])], env=given, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def have() -> dict[str, str]:
        return {path.name: path.read_text() for path in jobs.iterdir()}

    run("prolog", "7", "0,3")
    run("prolog", "8", "1")
    assert have() == {"0": "7\n", "3": "7\n", "1": "8\n"}
    run("prolog", "9", "3")
    run("prolog", "9", "3")
    assert have()["3"] == "7\n9\n"
    run("epilog", "7", "")
    assert have() == {"3": "9\n", "1": "8\n"}
    run("epilog", "99", "")
    run("prolog", "10", "")
    run("prolog", "10", "../x,N/A,*")
    assert have() == {"3": "9\n", "1": "8\n"}
    # Slurm counts device files, the exporter in the order of PCI addresses.
    for address, device in (("07:00.0", 2), ("47:00.0", 0), ("b7:00.0", 1)):
        about = tmp_path / f"proc/driver/nvidia/gpus/0000:{address}/information"
        about.parent.mkdir(parents=True)
        about.write_text(f"Model: \t\t NVIDIA A100\nDevice Minor: \t {device}\n")
    run("prolog", "12", "0,2")
    assert have() == {"3": "9\n", "0": "12\n", "1": "12\n8\n"}
    run("epilog", "12", "0,2")
    assert have() == {"3": "9\n", "1": "8\n"}
    # What cannot be written is not a reason to take a node out.
    file = tmp_path / "file"
    file.write_text("")
    run("prolog", "11", "0", file)
    run("epilog", "11", "0", file)
    gone = roles["dcgm_exporter"]["unmapped"]["files"]
    assert gone["/etc/slurm/prolog.d/60-gpu-jobs"]["state"] == "absent"
    assert gone["/etc/slurm/epilog.d/60-gpu-jobs"]["state"] == "absent"
    assert "/etc/slurm" not in gone


@pytest.mark.parametrize("when", ["prolog", "epilog"])
def test_jobs_that_share_a_gpu_may_begin_and_end_together(
    roles: Any, tmp_path: Path, when: str
) -> None:
    script = tmp_path / when
    found = roles["dcgm_exporter"]["plain"]["files"]
    script.write_text(found[f"/etc/slurm/{when}.d/60-gpu-jobs"]["content"])
    given = {"PROC": str(tmp_path), "SLURM_JOB_GPUS": "0", "PATH": "/usr/bin:/bin"}
    for turn in range(40):
        jobs = tmp_path / f"jobs-{turn}"
        jobs.mkdir()
        if when == "epilog":
            (jobs / "0").write_text("7\n8\n")
        running = [
            subprocess.Popen(["sh", script], env={**given, "GPU_JOBS": jobs, "SLURM_JOB_ID": job})
            for job in ("7", "8")
        ]
        assert [one.wait() for one in running] == [0, 0]
        left = {path.name: path.read_text() for path in jobs.iterdir()}
        assert left == ({} if when == "epilog" else {"0": "7\n8\n"})


def test_the_slurm_collector_understands_what_the_role_writes(roles: Any) -> None:
    found = roles["slurm_exporter"]["told"]
    written = found["program_files"]["/etc/baremetal-dgx/slurm-metrics.json"]["content"]
    settings = slurm_settings(json.loads(written))
    assert (settings.host, settings.native, settings.accounting) == ("told", True, False)
    made = found["program_files"]["/usr/local/libexec/baremetal-dgx/slurm-metrics"]["content"]
    assert base64.b64decode(made) == program("slurm-metrics")
    folder = "/etc/systemd/system/baremetal-dgx-slurm-metrics"
    service = lines(found["files"][f"{folder}.service"])
    assert "TimeoutStartSec=110" in service
    assert "ReadWritePaths=/var/lib/prometheus/node-exporter" in service
    assert "OnUnitInactiveSec=60" in lines(found["files"][f"{folder}.timer"])
    assert "/var/lib/prometheus/node-exporter/baremetal_dgx_slurm.prom" in found["leftovers"]
    assert "/var/lib/prometheus/node-exporter" not in found["leftovers"]


def test_the_fabric_collector_understands_what_the_role_writes(roles: Any) -> None:
    found = roles["fabric_exporter"]["told"]
    files = found["program_files"]
    settings = fabric_settings(
        json.loads(files["/etc/baremetal-dgx/fabric-metrics.json"]["content"])
    )
    assert (settings.subnet_managers, settings.environment) == (["head-01"], {"LD_PRELOAD": "x"})
    assert files[settings.plan_file]["content"] == Path("/etc/hostname").read_text()
    made = files["/usr/local/libexec/baremetal-dgx/fabric-metrics"]["content"]
    assert base64.b64decode(made) == program("fabric-metrics")
    service = lines(found["files"]["/etc/systemd/system/baremetal-dgx-fabric-metrics.service"])
    # Below it everything else is read-only, and a simulated fabric writes where it is started.
    assert {"WorkingDirectory=/tmp", "PrivateTmp=true"} <= set(service)
    (check,) = found["validations"]
    assert "--plan %(stage)s/fabric-cables.json" in check["command"]


@pytest.mark.parametrize(("part", "oldest_s"), [("slurm", "290"), ("fabric", "2160")])
def test_metrics_of_any_age_are_not_good(roles: Any, part: str, oldest_s: str) -> None:
    (probe,) = roles[f"{part}_exporter"]["told"]["probes"]
    its_program = f"/usr/local/libexec/baremetal-dgx/{part}-metrics"
    assert [str(word) for word in probe["command"]] == [its_program, "--check-metrics", oldest_s]
    assert f"systemctl list-timers baremetal-dgx-{part}-metrics.timer" in probe["remedy"]


@pytest.mark.parametrize("part", ["slurm", "fabric"])
def test_what_was_true_before_a_boot_is_removed_by_it_alone(roles: Any, part: str) -> None:
    files = roles[f"{part}_exporter"]["told"]["files"]
    tmpfiles = lines(files[f"/etc/tmpfiles.d/baremetal-dgx-{part}-metrics.conf"])
    metrics = f"/var/lib/prometheus/node-exporter/baremetal_dgx_{part}.prom"
    assert [line for line in tmpfiles if metrics in line] == [f"r! {metrics}"]


@pytest.mark.parametrize(
    ("role", "index"),
    [(role, index) for role, cases in REFUSED.items() for index in range(len(cases))],
)
def test_what_cannot_succeed_is_refused(roles: Any, role: str, index: int) -> None:
    (message,) = roles[role][f"refused{index}"]["refusals"]
    assert REFUSED[role][index][1] in message


@pytest.mark.parametrize(("role", "case"), [(role, case) for role in CASES for case in CASES[role]])
def test_nothing_else_is_refused(roles: Any, role: str, case: str) -> None:
    assert roles[role][case]["refusals"] == []


@pytest.mark.parametrize(
    ("role", "its_program"),
    [("fabric_exporter", fabric), ("slurm_exporter", slurm), ("node_health", main)],
)
def test_a_program_reads_its_configuration_where_its_role_writes_it(role, its_program):
    values = Role(ROOT / "roles" / role).values
    assert values[f"__{role}_config"] == its_program.CONFIG
