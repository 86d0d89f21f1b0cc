# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role roce would write, and its script with both tools that set priorities."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from role_render import ROLES, by_path, lines, render

SHOWN = {
    "files": "__roce_files",
    "packages": "__roce_packages",
    "runs": "__roce_runs_settings",
    "refusals": "__roce_refusals | selectattr('when') | map(attribute='say') | list",
}
SCRIPT = ROLES / "roce/files/baremetal-dgx-roce-settings"


@pytest.mark.parametrize(
    ("distribution", "package"), [("Debian", "iproute2"), ("Rocky", "iproute")]
)
def test_files(tmp_path: Path, distribution: str, package: str) -> None:
    inputs = {"roce_rails": [0, 1], "roce_nccl_settings": {"NCCL_CROSS_NIC": "", "NCCL_DEBUG": 1}}
    result = render(tmp_path, "roce", distribution, inputs, SHOWN)
    files = by_path(result["files"])
    assert result["refusals"] == []
    assert result["packages"][0] == package
    assert result["runs"] is True
    assert lines(files["/etc/nccl.conf"]) == [
        "NCCL_DEBUG=1", "NCCL_IB_GID_INDEX=3", "NCCL_IB_HCA==mlx5_rail0:1,mlx5_rail1:1",
        # DSCP 26 and the bit that ECN is known
        "NCCL_IB_TC=106",
    ]  # fmt: skip
    assert lines(files["/etc/baremetal-dgx/roce-settings.env"]) == [
        'RAILS="0 1"', "PRIORITY=3", "DSCP=26", 'ACCELERATION=""',
    ]  # fmt: skip
    assert lines(files["/etc/lldpd.d/baremetal-dgx.conf"]) == [
        "configure lldp portidsubtype ifname"
    ]
    assert files["/usr/local/sbin/baremetal-dgx-roce-settings"]["content"] == SCRIPT.read_text()


def test_a_pod_and_refusals(tmp_path: Path) -> None:
    inputs = {
        "roce_hardware": False,
        "roce_rails": [0, 0, -1],
        "roce_dscp": 64,
        "roce_nccl_settings": {"x": 1},
        "roce_acceleration": {"adaptive_routing_forced_en": True, "a b": 1},
    }
    result = render(tmp_path, "roce", "Debian", inputs, SHOWN)
    assert result["runs"] is False
    expected = [
        "roce_dscp: 64 is", "roce_rails: a rail is", "roce_rails: a negative",
        "roce_acceleration: no fields and numbers of ROCE_ACCL: a b, True;", "roce_nccl",
    ]  # fmt: skip
    for line, start in zip(result["refusals"], expected, strict=True):
        assert line.startswith(start)


# They keep what they are reported in files of $STATE, and print it as the real ones do.
DCB = """\
#!/bin/sh
test "$1" = -N && shift
case "$1 $2" in
"app replace") echo "$6" > "$STATE/$4.app" ;;
"pfc set") echo "$*" > "$STATE/$4.pfc" ;;
"app show") echo "dscp-prio $(cat "$STATE/$4.app" 2> /dev/null)" ;;
"pfc show") printf 'pfc-cap 8 macsec-bypass off delay 0\\nprio-pfc '
    for at in 0 1 2 3 4 5 6 7; do
      grep -q " $at:on" "$STATE/$4.pfc" 2> /dev/null && printf '%s:on ' $at || printf '%s:off ' $at
    done; echo ;;
*) exit 9 ;;
esac
"""
# Options and output are those of python/mlnx_qos in mlnx-tools: no map without trust in DSCP.
MLNX_QOS = """\
#!/bin/sh
dev=$2
touch "$STATE/$dev.qos" "$STATE/$dev.map"
case " $* " in
*" --trust "*" --dscp2prio "*) exit 1 ;;
*" --dscp2prio set,"*) echo "${4#set,}" >> "$STATE/$dev.map"; exit ;;
*" --trust "*) echo "$*" > "$STATE/$dev.qos"; exit ;;
esac
grep -q -- '--trust dscp' "$STATE/$dev.qos" && trust=dscp || trust=pcp
pfc=$(sed -n 's/.*--pfc //p' "$STATE/$dev.qos" | tr , '\\t')
printf 'DCBX mode: OS controlled\\nPriority trust state: %s\\n' $trust
test $trust = pcp || awk -F , '
BEGIN { print "dscp2prio mapping:"; for (dscp = 0; dscp < 64; dscp++) prio[dscp] = int(dscp / 8) }
{ prio[$1] = $2 }
END {
    for (at = 0; at < 8; at++) {
        shown = 0
        for (dscp = 63; dscp >= 0; dscp--) if (prio[dscp] == at) {
            if (shown % 8 == 0) printf "%s\\tprio:%d dscp:", shown ? "\\n" : "", at
            printf "%02d,", dscp
            shown++
        }
        if (shown) print ""
    }
}' "$STATE/$dev.map"
printf 'PFC configuration:\\n\\tpriority    0   1   2   3   4   5   6   7\\n'
printf '\\tenabled     %s\\n\\tbuffer      0   0   0   1   0   0   0   0\\n' "$pfc"
"""
TOOLS = {"dcb": DCB, "mlnx_qos": MLNX_QOS}
# The form of docs.nvidia.com, Adaptive Retransmission: Parameters Control.
MSTREG = """\
#!/bin/sh
test "$1 $3 $4 $5" = "-d --yes --reg_name ROCE_ACCL" || exit 8
file=$STATE/$2.register
case "$6" in
--set) echo "$7" | tr , '\\n' >> "$file" ;;
--get)
    echo "Sending access register..."
    echo "Field Name                        | Data"
    echo "================================================"
    for field in roce_tx_window_en adaptive_routing_forced_en; do
        value=$(sed -n "s/^$field=//p" "$file" 2> /dev/null | tail -n 1)
        printf '%-33s | 0x%08x\\n' "$field" "${value:-0}"
    done ;;
*) exit 9 ;;
esac
"""


@pytest.fixture(params=["dcb", "mlnx_qos"])
def script(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """`script("apply")` -> (rc, text), with one of the two tools; its sysfs is script.sys."""
    sys = tmp_path / "sys"
    for rail in (0, 1):
        for folder in (
            f"class/net/rail{rail}/ecn/roce_np/enable",
            f"class/net/rail{rail}/ecn/roce_rp/enable",
            f"class/infiniband/mlx5_rail{rail}/tc/1",
            f"kernel/config/rdma_cm/mlx5_rail{rail}/ports/1",
        ):
            (sys / folder).mkdir(parents=True)
        for side in ("np", "rp"):
            (sys / f"class/net/rail{rail}/ecn/roce_{side}/enable/3").write_text("0\n")
        (sys / f"class/infiniband/mlx5_rail{rail}/tc/1/traffic_class").write_text("0\n")
        (sys / f"class/net/rail{rail}/device").symlink_to(f"../../../0000:1{8 + rail}:00.0")
    (tmp_path / "uptime").write_text("86400.25 1000.50\n")
    (tmp_path / "bin").mkdir()
    for name, text in {request.param: TOOLS[request.param], "modprobe": "#!/bin/sh\n"}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)

    def run(word: str, **changes: str) -> tuple[int, str]:
        environment = {
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "SYSFS": str(sys),
            "STATE": str(tmp_path),
            "RAILS": "0 1",
            "PRIORITY": "3",
            "DSCP": "26",
            "UPTIME": str(tmp_path / "uptime"),
            **changes,
        }
        done = subprocess.run(
            ["sh", str(SCRIPT), word], env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    run.sys, run.state, run.tool = sys, tmp_path, request.param  # type: ignore[attr-defined]
    return run


def test_what_was_applied_is_read_back(script: Any) -> None:
    code, text = script("check")
    assert code == 1
    assert "rail0" in text
    assert "rail1" in text
    assert script("apply") == (0, "")
    assert script("check") == (0, "all rails are as declared\n")
    port = script.sys / "kernel/config/rdma_cm/mlx5_rail1/ports/1"
    assert (port / "default_roce_tos").read_text() == "106\n"
    assert (port / "default_roce_mode").read_text() == "RoCE v2\n"
    ecn = script.sys / "class/net/rail0/ecn/roce_np/enable/3"
    assert ecn.read_text() == "1\n"


def test_fields_of_the_register_are_set_and_read_back(script: Any) -> None:
    wanted = {"ACCELERATION": "adaptive_routing_forced_en=1 roce_tx_window_en=1"}
    code, text = script("apply", **wanted)
    assert code == 1
    assert "mlxreg and mstreg are not installed" in text
    assert "rail1 does not take adaptive_routing_forced_en=1 roce_tx_window_en=1" in text
    tool = script.state / "bin" / "mstreg"
    tool.write_text(MSTREG)
    tool.chmod(0o755)
    code, text = script("check", **wanted)
    assert code == 1
    assert "rail0 has adaptive_routing_forced_en 0 instead of 1" in text
    assert script("apply", **wanted) == (0, "")
    assert script("check", **wanted) == (0, "all rails are as declared\n")
    # Each rail by the PCI address of the adapter.
    assert {path.name for path in script.state.glob("*.register")} == {
        "0000:18:00.0.register",
        "0000:19:00.0.register",
    }
    assert "rail0 has no field x in ROCE_ACCL" in script("check", ACCELERATION="x=1")[1]


def test_other_values_are_a_difference(script: Any) -> None:
    script("apply")
    assert script("check", PRIORITY="4")[0] == 1
    assert script("check", DSCP="46")[0] == 1
    (script.sys / "class/net/rail1/ecn/roce_rp/enable/3").write_text("0\n")
    assert script("check")[0] == 1


@pytest.mark.parametrize(("dscp", "priority"), [("26", "5"), ("8", "6"), ("0", "1")])
def test_the_dscp_leads_to_the_priority(script: Any, dscp: str, priority: str) -> None:
    wanted = {"PRIORITY": priority, "DSCP": dscp}
    words = f"rail0 does not lead DSCP {dscp} to priority {priority}\n"
    assert words in script("check", **wanted)[1]
    for _again in range(2):
        assert script("apply", **wanted) == (0, "")
        assert script("check", **wanted) == (0, "all rails are as declared\n")
    # As the adapter had it, with trust and PFC as they are to be.
    if script.tool == "dcb":
        (script.state / "rail0.app").write_text(f"{dscp}:{int(dscp) // 8}\n")
    else:
        (script.state / "rail0.map").write_text("")
    assert script("check", **wanted) == (1, words)


def test_a_driver_without_ecn_files_leaves_ecn_to_the_firmware(script: Any) -> None:
    for path in [*script.sys.rglob("enable/3"), *script.sys.rglob("traffic_class")]:
        path.unlink()
    assert script("apply")[0] == 0
    assert script("check")[0] == 0


def test_an_absent_interface_does_not_keep_the_others_back(script: Any) -> None:
    code, text = script("apply", RAILS="0 7 1")
    assert code == 1
    assert "there is no interface rail7" in text
    assert script("check") == (0, "all rails are as declared\n")


@pytest.mark.parametrize("late", ["class/net/rail1", "class/infiniband/mlx5_rail1"])
def test_a_rail_that_is_named_late_is_waited_for(script: Any, late: str) -> None:
    """At a boot adapters are found and named while the unit already runs."""
    hidden = script.state / "hidden"
    (script.sys / late).rename(hidden)
    timer = threading.Timer(1.0, hidden.rename, [script.sys / late])
    timer.start()
    (script.state / "uptime").write_text("299.99 100.00\n")
    assert script("apply", WAIT_S="30") == (0, "")
    timer.join()
    assert script("check") == (0, "all rails are as declared\n")


def test_long_after_a_boot_a_dead_rail_is_not_waited_for(script: Any) -> None:
    """A start of slurmd would wait, too."""
    (script.sys / "class/net/rail1").rename(script.state / "hidden")
    (script.state / "uptime").write_text("300.00 100.00\n")
    started = time.monotonic()
    code, text = script("apply", WAIT_S="20")
    assert (code, text) == (1, "there is no interface rail1\n")
    assert time.monotonic() - started < 10


def test_a_unit_that_failed_is_started_again(tmp_path: Path) -> None:
    files = by_path(render(tmp_path, "roce", "Debian", {"roce_rails": [0]}, SHOWN)["files"])
    unit = lines(files["/etc/systemd/system/baremetal-dgx-roce-settings.service"])
    assert {"Restart=on-failure", "RestartSec=30", "StartLimitBurst=10"} <= set(unit)


def test_a_second_lossless_priority_is_a_difference(script: Any) -> None:
    script("apply")
    if script.tool == "dcb":
        path = script.state / "rail0.pfc"
        path.write_text(path.read_text().replace("3:on", "3:on 5:on"))
    else:
        path = script.state / "rail0.qos"
        path.write_text(path.read_text().replace("0,0,0,1,0,0", "0,0,0,1,0,1"))
    code, text = script("check")
    assert code == 1
    assert "PFC on priority 3 alone" in text
