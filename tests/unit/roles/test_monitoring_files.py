# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles prometheus, alertmanager and grafana would write, and whether it is accepted."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import panels
import pytest
import yaml
from prometheus_tools import ROOT, RULES, tool
from role_render import by_path, render, render_many

from ansible_collections.baremetal.dgx.plugins.plugin_utils._monitoring.alert_rules import (
    seconds_of,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._monitoring.dashboards import (
    dashboards,
    queries_of,
)

HASH = "$2y$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy"
REFUSALS = "__service_bad | map(attribute='say') | list"


def shown(**more: str) -> dict[str, str]:
    return {"files": "__service_files", "refusals": REFUSALS, **more}


def write(folder: Path, files: list[dict[str, Any]]) -> Path:
    """All files in one folder, as managed_files stages them for promtool and amtool."""
    stage = folder / "stage"
    stage.mkdir()
    for file in files:
        text = file.get("content") or file.get("secret_content") or ""
        (stage / Path(file["path"]).name).write_text(text)
    return stage


def accepted(program: str, *arguments: str) -> str:
    done = subprocess.run([tool(program), *arguments], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("certificate")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
        f"-keyout {folder}/key.pem -out {folder}/cert.pem"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    return {
        "certificate": (folder / "cert.pem").read_text(),
        "key": (folder / "key.pem").read_text(),
    }


# Prometheus


def test_prometheus_as_it_ships(tmp_path: Path) -> None:
    found = render(
        tmp_path, "prometheus", "Debian", {},
        shown(unit="_service_unit_files", packages="_service_packages", service="_service_unit"),
    )  # fmt: skip
    assert found["refusals"] == []
    assert found["packages"] == ["prometheus"]
    unit = found["unit"][0]["content"]
    assert "--web.listen-address=127.0.0.1:9090 \\\n" in unit
    assert "ConditionPathExists=/etc/baremetal-dgx/prometheus/prometheus.yml" in unit
    stage = write(tmp_path, found["files"])
    assert accepted("promtool", "check", "config", str(stage / "prometheus.yml")) == ""
    assert accepted("promtool", "check", "web-config", str(stage / "web.yml")) == ""
    rules = {path.stem for path in RULES.glob("*.yml")}
    assert {path.name for path in stage.glob("rules-*.yml")} == {f"rules-{x}.yml" for x in rules}


def test_prometheus_with_everything(tmp_path: Path, certificate: dict[str, str]) -> None:
    secret = "do not tell"
    job = {
        "name": "node", "username": "prom", "password": secret, "ca": certificate["certificate"],
        "targets": [{"address": "10.0.0.1:9100", "labels": {"instance": "dgx-01"}}],
        "drop": ["go_.*"], "interval_s": 5,
    }  # fmt: skip
    found = render(
        tmp_path, "prometheus", "Rocky",
        {
            "prometheus_jobs": [job], "prometheus_tls": certificate,
            "prometheus_users": {"ann": HASH}, "prometheus_rules": ["gpu", "recording"],
            "prometheus_alertmanagers": {"targets": ["a:9093", "https://c:9093"], "username": "x",
                                         "password": "y", "ca": certificate["certificate"],
                                         "open_targets": ["b:9093"]},
            "prometheus_rules_changes": {"GpuHot": {"for": "1h"}, "GpuXidJob": {"enabled": False}},
            "prometheus_rules_extra": [{"name": "ours", "rules": [{"record": "a:b", "expr": "1"}]}],
            "prometheus_collectors": [{"instance": "head-01", "collector": "slurm"}],
            "prometheus_retention_size": "", "prometheus_address": "::1",
        },
        shown(unit="_service_unit_files", url="__service_url"),
    )  # fmt: skip
    assert found["refusals"] == []
    assert found["url"] == "https://[::1]:9090"
    assert "retention.size" not in found["unit"][0]["content"]
    stage = write(tmp_path, found["files"])
    assert accepted("promtool", "check", "config", str(stage / "prometheus.yml")) == ""
    assert accepted("promtool", "check", "web-config", str(stage / "web.yml")) == ""
    config = yaml.safe_load((stage / "prometheus.yml").read_text())
    assert config["rule_files"] == ["rules-gpu.yml", "rules-recording.yml", "rules-site.yml"]
    receivers = config["alerting"]["alertmanagers"]
    of = {one["static_configs"][0]["targets"][0]: one for one in receivers}
    assert {name: (one["scheme"], "basic_auth" in one, "tls_config" in one)
            for name, one in of.items()} == {
        "a:9093": ("http", True, False),
        "b:9093": ("http", False, False),
        "c:9093": ("https", True, True),
    }  # fmt: skip
    ours, planned = yaml.safe_load((stage / "rules-site.yml").read_text())["groups"]
    assert ours["name"] == "ours"
    (expected,) = planned["rules"]
    meta = yaml.safe_load((RULES / "meta.yml").read_text())
    assert f"{expected['record']} unless" in str(meta), "what CollectorVanished asks for"
    assert expected["labels"] == {"instance": "head-01", "collector": "slurm"}
    (scrape,) = config["scrape_configs"]
    assert (scrape["scrape_interval"], scrape["scrape_timeout"]) == ("5s", "5s")
    files = by_path(found["files"])
    open_files = [file for file in files.values() if "content" in file]
    assert not [file for file in open_files if secret in file["content"]]
    assert files["/etc/baremetal-dgx/prometheus/password-node"]["mode"] == "0640"


def test_what_prometheus_refuses(tmp_path: Path) -> None:
    target = {"address": "dgx-01"}
    found = render(
        tmp_path, "prometheus", "Debian",
        {
            "prometheus_source": "archive", "prometheus_users": {"ann": "secret"},
            "prometheus_jobs": [{"name": "a b", "targets": [target], "username": "u"}] * 2,
            "prometheus_rules": ["gpus"], "prometheus_retention_time": "a month",
            "prometheus_scrape_interval_s": 0, "prometheus_port": 0,
        },
        {"refusals": REFUSALS},
    )  # fmt: skip
    message = "\n".join(found["refusals"])
    for word in (
        "prometheus_archive",
        "bcrypt",
        "written twice",
        "names of jobs",
        "dgx-01:9100",
        "without a password",
        "no such rules: gpus",
        "is not a time",
        "is below 1",
        "not a port",
    ):
        assert word in message  # fmt: skip


# Alertmanager

RECEIVERS = [
    {"name": "pager", "webhook_configs": [{"url": "https://example.org/hook?key=s3cret"}]},
    {"name": "heart", "webhook_configs": [{"url": "https://example.org/beat"}]},
]


def alertmanager(
    folder: Path, facts: dict[str, str] | None = None, **inputs: Any
) -> dict[str, Any]:
    given = {f"alertmanager_{key}": value for key, value in inputs.items()}
    asked = shown(unit="_service_unit_files")
    found = render(folder, "alertmanager", "Debian", given, asked, facts=facts)
    files = by_path(found["files"])
    text = files["/etc/baremetal-dgx/alertmanager/alertmanager.yml"]["secret_content"]
    return {**found, "config": yaml.safe_load(text)}


def test_alertmanager_as_it_ships(tmp_path: Path) -> None:
    found = alertmanager(tmp_path)
    assert found["refusals"] == []
    assert found["config"]["route"]["receiver"] == "none"
    unit = found["unit"][0]["content"]
    assert re.search(r"--cluster\.listen-address=( \\)?$", unit, re.MULTILINE)
    stage = write(tmp_path, found["files"])
    assert accepted("amtool", "check-config", str(stage / "alertmanager.yml")) == ""


def test_alertmanager_routes(tmp_path: Path) -> None:
    routes = [
        {"matchers": ['component="storage"'], "receiver": "none"},
        {"matchers": ['alertname="SiteDeadMan"'], "receiver": "heart"},
    ]
    found = alertmanager(
        tmp_path, receivers=RECEIVERS, routes=routes, heartbeat_receiver="heart",
        templates={"short": '{% raw %}{{ define "x" }}{{ .Status }}{{ end }}{% endraw %}'},
    )  # fmt: skip
    assert found["refusals"] == []
    assert all("content" not in file or "s3cret" not in file["content"] for file in found["files"])
    stage = write(tmp_path, found["files"])
    config = str(stage / "alertmanager.yml")
    assert accepted("amtool", "check-config", config) == ""
    for labels, receiver in (
        ("alertname=Watchdog", "heart"),
        ("alertname=GpuHot component=gpu", "pager"),
        ("alertname=CephError component=storage", "none"),
        ("alertname=NodeAway severity=none", "none"),
        ("alertname=SiteDeadMan severity=none", "heart"),
    ):
        wanted = f"--verify.receivers={receiver}"
        test = ["config", "routes", "test", f"--config.file={config}", wanted, *labels.split()]
        assert accepted("amtool", *test) == ""


@pytest.mark.parametrize(
    ("version", "source", "key", "refused"),
    [
        ("22.04", "distribution", "mute_time_intervals", True),
        ("22.04", "preinstalled", "mute_time_intervals", False),
        ("22.04", "archive", "time_intervals", False),
        ("24.04", "distribution", "time_intervals", False),
    ],
)
def test_time_intervals_as_the_release_knows_them(
    tmp_path: Path, version: str, source: str, key: str, refused: bool
) -> None:
    night = {"name": "night", "time_intervals": [{"times": [{"start_time": "00:00"}]}]}
    found = alertmanager(
        tmp_path, {"distribution_version": version}, source=source, time_intervals=[night],
        archive={"url": "https://m/a.tar.gz", "sha256": "0" * 64},
        routes=[{"receiver": "none", "routes": [{"active_time_intervals": ["night"]}]}],
    )  # fmt: skip
    assert found["config"][key] == [night]
    assert {"mute_time_intervals", "time_intervals"} - {key} - set(found["config"])
    lines = [line for line in found["refusals"] if "active_time_intervals" in line]
    assert bool(lines) is refused
    assert all(line.startswith("alertmanager_routes: ") for line in lines)


def test_no_beat_is_left_out(tmp_path: Path) -> None:
    beat, *_others = alertmanager(tmp_path)["config"]["route"]["routes"]
    assert beat["matchers"] == ['alertname="Watchdog"']
    # A group that is looked at a moment before a repetition is due waits for the next time.
    assert seconds_of(beat["group_interval"]) * 4 <= seconds_of(beat["repeat_interval"])


def test_what_alertmanager_refuses(tmp_path: Path) -> None:
    found = alertmanager(
        tmp_path, receivers=[RECEIVERS[0], RECEIVERS[0]], default_receiver="mail",
        routes=[{"receiver": "chat"}], peers=["b:9094"], tls={"certificate": "x"}, port=70000,
    )  # fmt: skip
    message = "\n".join(found["refusals"])
    for word in ("written twice", "chat, mail", "cluster_address", "tls.key", "not a port"):
        assert word in message


def test_enterprise_linux_has_no_alertmanager(tmp_path: Path) -> None:
    for source, count in (("distribution", 1), ("preinstalled", 0)):
        given = {"alertmanager_source": source}
        found = render(tmp_path, "alertmanager", "Rocky", given, {"refusals": REFUSALS})["refusals"]
        assert len(found) == count
        assert all(line.startswith("alertmanager_source: distribution, which") for line in found)


def test_inhibition_names_alerts_that_exist(tmp_path: Path) -> None:
    known = {
        rule["alert"]
        for path in RULES.glob("*.yml")
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    for pair in alertmanager(tmp_path)["config"]["inhibit_rules"]:
        for matcher in pair["source_matchers"] + pair["target_matchers"]:
            found = re.match(r'alertname[!=~]+"([^"]*)"', matcher)
            if found:
                assert set(found.group(1).split("|")) <= known


def test_a_rail_that_is_down_is_reported_beside_a_fabric_that_is_split(tmp_path: Path) -> None:
    rules = alertmanager(tmp_path)["config"]["inhibit_rules"]
    (pair,) = [one for one in rules if one["source_matchers"] == ['alertname="FabricSplit"']]
    muted = [re.compile(one.split('"')[1]) for one in pair["target_matchers"]]
    assert all(one.fullmatch("RailPortDown") for one in muted)
    assert not any(one.fullmatch("RailDown") for one in muted)


def matches(matchers: list[str], labels: dict[str, str]) -> bool:
    """Whether labels meet all matchers of Alertmanager."""
    for matcher in matchers:
        name, sign, value = re.fullmatch(r'(\w+)(=~|!~|!=|=)"(.*)"', matcher).groups()  # type: ignore[union-attr]
        found = re.fullmatch(value if "~" in sign else re.escape(value), labels.get(name, ""))
        if bool(found) == sign.startswith("!"):
            return False
    return True


def test_an_alert_is_silent_only_where_its_cause_is_reported(tmp_path: Path) -> None:
    rules = alertmanager(tmp_path)["config"]["inhibit_rules"]
    for source, muted, alert, more in (
        ("GateHasFilled", True, "NodeDrained", {"owner": "dgx-gate"}),
        ("GateHasFilled", True, "NodeDrained", {"owner": "node-health"}),
        ("GateHasFilled", False, "NodeDrained", {"owner": "slurm"}),
        ("GateHasFilled", False, "NodeOutOfSlurm", {"owner": "slurm"}),
        ("GateHasFilled", False, "NodeNotResponding", {}),
        ("SlurmManyNodesOut", True, "NodeOutOfSlurm", {"owner": "slurm"}),
        ("SlurmManyNodesOut", True, "NodeNotResponding", {}),
        # The mount may be of NFS or Lustre, and scrub errors of Ceph hang no client.
        ("CephError", False, "MountHung", {"subject": "mount:/scratch"}),
        ("CephError", True, "CephOsdDown", {}),
        ("NodeAway", True, "FabricCableDown", {"instance": "dgx-01"}),
        ("NodeAway", True, "ExporterDown", {"instance": "dgx-01"}),
        ("NodeAway", False, "NodeNotBack", {"instance": "dgx-01"}),
        ("NodeAway", False, "RunLeftNode", {"instance": "dgx-01"}),
    ):
        pairs = [
            one
            for one in rules
            if matches(one["source_matchers"], {"alertname": source})
            and matches(one["target_matchers"], {"alertname": alert, **more})
        ]
        assert bool(pairs) is muted, (source, alert, more)


# Grafana

SPEC = yaml.safe_load((ROOT / "roles/grafana/files/dashboards.yml").read_text())


def test_grafana_from_a_directory(tmp_path: Path, certificate: dict[str, str]) -> None:
    secret = "do not tell"
    found = render(
        tmp_path, "grafana", "Debian",
        {
            "grafana_source": "directory", "grafana_directory": {"path": "/p", "sha256": "0"},
            "grafana_admin_password": secret, "grafana_tls": certificate,
            "grafana_anonymous": True, "grafana_settings": {"smtp": {"enabled": True}},
            "grafana_prometheus": {"url": "https://m:9090", "username": "g", "password": secret},
        },
        {
            "secret": "__grafana_secret_files", "files": "__grafana_files", "refusals": REFUSALS,
            "dashboards": "__grafana_dashboard_files",
        },
    )  # fmt: skip
    assert found["refusals"] == []
    ini = configparser.ConfigParser(interpolation=None)
    ini.read_string(
        by_path(found["secret"])["/etc/baremetal-dgx/grafana/grafana.ini"]["secret_content"]
    )
    assert ini["server"]["protocol"] == "https"
    assert ini["auth.anonymous"]["enabled"] == "true"
    assert ini["smtp"]["enabled"] == "true"
    assert ini["security"]["admin_password"] == "$__file{/etc/baremetal-dgx/grafana/admin_password}"
    files = by_path(found["files"])
    source = files["/etc/baremetal-dgx/grafana/provisioning/datasources/prometheus.yml"]["content"]
    (data_source,) = yaml.safe_load(source)["datasources"]
    assert data_source["secureJsonData"]["basicAuthPassword"].startswith("$__file{")
    assert secret not in json.dumps(
        [found["files"], {s: ini.items(s) for s in ini.sections()}, found["dashboards"]]
    )
    assert all(file["mode"] == "0640" for file in found["secret"])
    for file in found["dashboards"]:
        board = json.loads(file["content"])
        uses = {panel["datasource"]["uid"] for panel in board["panels"] if "datasource" in panel}
        assert uses == {data_source["uid"]}


def test_a_dashboard_that_is_removed_leaves_grafana(tmp_path: Path) -> None:
    found = render(tmp_path, "grafana", "Debian", {}, {"files": "__grafana_files"})
    provisioning = "/etc/baremetal-dgx/grafana/provisioning/dashboards/baremetal-dgx.yml"
    content = by_path(found["files"])[provisioning]["content"]
    (provider,) = yaml.safe_load(content)["providers"]
    assert provider["disableDeletion"] is False


def test_a_grafana_of_others_is_not_switched_off(tmp_path: Path) -> None:
    """What has left monitoring_nodes may have had dashboards alone, for a Grafana of the site."""
    key, stop = (
        yaml.safe_load((ROOT / f"roles/grafana/tasks/{file}.yml").read_text())[place]["when"]
        for file, place in (("install", 1), ("service", 0))
    )
    signed = {"grafana_source": "repository", "grafana_repository": {"signed_by": "a\nb"}}
    hosts: dict[str, dict[str, Any]] = {
        name: {
            "grafana_enabled": on,
            **(signed if on or there else {}),
            "__grafana_found": {
                "paths": {"/etc/baremetal-dgx/grafana/grafana.ini": {"exists": there}}
            },
        }
        for name, on, there in (
            ("on", True, False),
            ("others", False, False),
            ("left", False, True),
        )
    }
    hosts["not-asked"] = {"grafana_enabled": False}
    shown = {"stop": f"({stop}) | bool", "key": f"({key}) | bool"}
    found = render_many(tmp_path, "grafana", "Debian", hosts, shown)
    assert {name: (one["stop"], one["key"]) for name, one in found.items()} == {
        "on": (True, True), "others": (False, False), "left": (True, False),
        "not-asked": (True, False),
    }  # fmt: skip


def test_what_grafana_refuses(tmp_path: Path) -> None:
    found = render(
        tmp_path, "grafana", "Rocky",
        {"grafana_source": "repository", "grafana_version": "latest", "grafana_port": -1},
        {"refusals": REFUSALS},
    )  # fmt: skip
    message = "\n".join(found["refusals"])
    for word in ("admin and admin", "rpm.grafana.com/gpg.key", "not a version", "not a port"):
        assert word in message


# Dashboards


def test_a_reading_without_an_error_is_not_shown_as_an_xid() -> None:
    shown = [one["expr"] for _board, panel in panels.panels_of(SPEC) for one in queries_of(panel)]
    xids = [expression for expression in shown if "DCGM_EXP_XID_ERRORS_COUNT" in expression]
    assert xids
    assert all('xid!="0"' in expression for expression in xids)


def test_panels_do_not_overlap() -> None:
    for board in dashboards(SPEC, "x").values():
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(at["x"], at["x"] + at["w"])
                for y in range(at["y"], at["y"] + at["h"])
            }
            assert not cells & taken
            taken |= cells
        assert max(x for x, _y in taken) == 23


def test_every_query_is_one_for_prometheus(tmp_path: Path) -> None:
    texts = [
        panels.executable(target["expr"])
        for board in dashboards(SPEC, "x").values()
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(texts)]
    path = tmp_path / "panels.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert len(rules) > 80
    assert accepted("promtool", "check", "rules", str(path)) == ""


def panel_expr(title: str) -> str:
    """The one query of the last panel with this title."""
    found = [panel for _board, panel in panels.panels_of(SPEC) if panel["title"] == title]
    (query,) = queries_of(found[-1])
    return panels.executable(query["expr"])


def shows(
    folder: Path, expr: str, at: str, series: dict[str, str], wanted: dict[str, float]
) -> str:
    """The complaints of promtool, minute by minute; a label's set of a sample -> its value."""
    samples = [{"labels": labels, "value": value} for labels, value in wanted.items()]
    asked = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": expr, "eval_time": at, "exp_samples": samples}],
    }
    path = folder / "panel.yml"
    path.write_text(yaml.safe_dump({"tests": [asked]}))
    return accepted("promtool", "test", "rules", str(path))


def test_the_first_errors_of_a_port_are_shown(tmp_path: Path) -> None:
    """Counters of 0 are not published: the series of a port begins with its first burst."""

    def port(device: str, instance: str = "head-01") -> str:
        return (
            f'baremetal_dgx_fabric_port_errors_total{{instance="{instance}",device="{device}",'
            'port="1",counter="SymbolErrorCounter"}'
        )

    stamp = "baremetal_dgx_fabric_run_timestamp_seconds"
    series = {
        f'{stamp}{{instance="head-01"}}': "0+60x90",
        f'{stamp}{{instance="head-02"}}': "_x70 0+60x20",
        port("first"): "_x70 7x20",
        port("again"): "5x70 9x20",
        port("quiet"): "5x90",
        port("unswept", "head-02"): "_x70 5x20",
    }
    expr = f"count by (device) ({panel_expr('Errors of ports in an hour')})"
    shown = {'{device="first"}': 1, '{device="again"}': 1}
    assert shows(tmp_path, expr, "85m", series, shown) == ""
    expr = f"max by (device) ({panel_expr('Errors of ports in an hour')}) == 7"
    assert shows(tmp_path, expr, "85m", series, {'{device="first"}': 7}) == ""


def test_each_node_is_in_one_state(tmp_path: Path) -> None:
    def state(node: str, name: str) -> str:
        return f'baremetal_dgx_slurm_node_state{{node="{node}",state="{name}"}}'

    def unfit(node: str, name: str) -> str:
        return (
            f'baremetal_dgx_slurm_node_unfit{{node="{node}",state="{name}",owner="slurm",'
            'reason="x"}'
        )

    series = dict.fromkeys(
        [
            state("a", "idle"), state("b", "idle"), state("b", "maintenance"),
            state("c", "mixed"), state("c", "completing"),
            state("d", "idle"), state("d", "drain"), unfit("d", "drained"),
            state("e", "allocated"), state("e", "drain"), unfit("e", "draining"),
            state("f", "down"), state("f", "drain"), unfit("f", "down"),
        ],
        "1x10",
    )  # fmt: skip
    wanted = {"idle": 2, "mixed": 1, "drained": 1, "draining": 1, "down": 1}
    shown = {f'{{state="{name}"}}': count for name, count in wanted.items()}
    assert shows(tmp_path, panel_expr("Nodes"), "5m", series, shown) == ""


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\b(?:DCGM_FI|DCGM_EXP|slurm|baremetal_dgx)_[A-Za-z0-9_]+", text))


@pytest.mark.parametrize("source", ["dashboards", "rules"])
def test_metrics_are_those_of_the_page(source: str) -> None:
    """docs/metrics.md is what exporters promise; a name that is not there shows nothing."""
    page = (ROOT / "docs/metrics.md").read_text()
    known = names_in(page)
    for line in page.splitlines():  # `slurm_nodes_alloc`, `_idle`: the rest of a name
        for whole, rest in re.findall(r"`((?:slurm|baremetal_dgx)_\w+)`((?:, `_\w+`)+)", line):
            for end in re.findall(r"`(_\w+)`", rest):
                known |= {whole[: place.start()] + end for place in re.finditer("_", whole)}
    if source == "rules":
        text = "\n".join(path.read_text() for path in RULES.glob("*.yml"))
        text = re.sub(r"plugins/\S+|/etc/\S+", "", text)
    else:
        text = json.dumps(SPEC)
    assert names_in(text) - known == set()


def test_a_pod_has_no_excuses_that_nothing_needs() -> None:
    queries = panels.load()
    for name in panels.NOT_IN_POD:
        assert [one for one in queries if name in one.expr], f"no panel asks for {name}"
    for one in queries:
        assert not (one.quiet and one.missing_in_pod), f"{one.panel}: one excuse is enough"
