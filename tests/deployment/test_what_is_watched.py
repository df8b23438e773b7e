"""Alerts and boards ask only for figures that exist, of roles that can be reached, and each alert says what to do."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from fanout.model.states import Outcome, State
from fanout.telemetry.metrics import FIGURES

from .compose import ROOT, environment_of, services

PROMETHEUS = ROOT / "config" / "prometheus"
BOARDS = ROOT / "config" / "grafana" / "boards"
TARGET_LABELS = {"job", "instance", "role", "region"}
VALUES = {"outcome": {each.value for each in Outcome}, "state": {each.value for each in State}}

_SELECTOR = re.compile(r"\b(fanout_\w+|up)\b(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_BY = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")


def exposed() -> dict[str, set[str]]:
    """Every name as it is written out, with its labels."""
    names = {f"{name}_total" if each.kind == "counter" else name: set(each.labels) for name, each in FIGURES.items()}
    return names | {"up": set()}


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    for rule in alerts():
        yield rule["alert"], rule["expr"]
    for board in BOARDS.glob("*.json"):
        for panel in json.loads(board.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{board.name}: {panel['title']}", target["expr"]


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_it_asks_only_for_what_there_is(where: str, expression: str):
    asked = list(_SELECTOR.finditer(expression))
    assert asked, where
    for match in asked:
        name, matchers = match.groups()
        assert name in exposed(), f"{where}: there is no figure {name}"
        for label, how, text in _MATCHER.findall(matchers or ""):
            assert label in exposed()[name] | TARGET_LABELS, f"{where}: {name} has no label {label}"
            if label in VALUES and how in ("=", "=~"):
                assert set(text.split("|")) <= VALUES[label], f"{where}: {label} is never {text}"
    known = TARGET_LABELS.union(*(exposed()[match[1]] for match in asked))
    for labels in _BY.findall(expression):
        assert {label.strip() for label in labels.split(",")} <= known, where


def test_each_alert_has_its_paragraph_in_the_operators_manual():
    manual = (ROOT / "docs" / "operating.md").read_text()
    for rule in alerts():
        assert f"**{rule['alert']}**" in manual, rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]
    named = set(re.findall(r"^- \*\*(\w+)\*\*", manual, re.MULTILINE))
    assert named == {rule["alert"] for rule in alerts()}


def test_every_role_is_scraped_where_it_listens():
    scraped = set()
    for job in yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]:
        for found in job.get("dns_sd_configs", []):
            (name,) = found["names"]
            told = environment_of(services()[name])
            assert str(found["port"]) == told["FANOUT_HTTP_PORT"]
            assert told["FANOUT_HTTP_HOST"] == "0.0.0.0"
            assert set(services()[name]["networks"]) & set(services()["api"]["networks"])
            relabelled = {each["target_label"]: each["replacement"] for each in job["relabel_configs"]}
            assert [relabelled["role"], *filter(None, [relabelled.get("region")])] == services()[name]["command"]
            scraped.add(name)
        for static in job.get("static_configs", []):
            for target in static["targets"]:
                host = target.partition(":")[0]
                scraped.add("api" if target == "127.0.0.1:8080" else host)
                assert host == "127.0.0.1" or host in services()
    roles = {"api", "publisher", "scheduler-eu", "scheduler-us", "consumer-eu", "consumer-us"}
    assert scraped == roles | {"rabbitmq-eu", "rabbitmq-us"}
    assert services()["prometheus"]["network_mode"] == "service:api", "it asks the api at its loopback address"


def test_the_board_finds_its_source():
    source = yaml.safe_load((ROOT / "config/grafana/provisioning/datasources/prometheus.yaml").read_text())
    (prometheus,) = source["datasources"]
    for board in BOARDS.glob("*.json"):
        document = json.loads(board.read_text())
        assert {panel["datasource"]["uid"] for panel in document["panels"]} == {prometheus["uid"]}
        assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])
    provider = yaml.safe_load((ROOT / "config/grafana/provisioning/dashboards/fanout.yaml").read_text())["providers"][0]
    assert f"./config/grafana/boards:{provider['options']['path']}:ro" in services()["grafana"]["volumes"]


def test_the_collector_takes_what_our_roles_send():
    collector = yaml.safe_load((ROOT / "config" / "otel-collector.yaml").read_text())
    assert collector["receivers"]["otlp"]["protocols"]["http"] == {"endpoint": "0.0.0.0:4318"}
    pipeline = collector["service"]["pipelines"]["traces"]
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) <= collector[kind].keys()


def test_prometheus_itself_accepts_the_rules_and_they_fire_when_they_should():
    """Where its tool is installed."""
    promtool = os.environ.get("FANOUT_TEST_PROMTOOL") or shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool (on Debian: `apt-get install prometheus`), or name one in FANOUT_TEST_PROMTOOL")
    scenarios = ROOT / "tests" / "deployment" / "alerts.yml"
    for command in (["check", "config", PROMETHEUS / "prometheus.yml"], ["test", "rules", scenarios]):
        done = subprocess.run([promtool, *map(str, command)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
