"""A real Prometheus with the configuration and rules that operators install scrapes a real node and raises alerts."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml

from tests.support.alert_rules import RULES, SCRAPE, rules
from tests.support.grafana.boards import BOARDS, expressions
from tests.support.processes import Processes
from tests.support.prometheus import PrometheusServer, promtool
from tests.support.running import NodeProcess
from tests.support.waiting import wait_for

pytestmark = pytest.mark.prometheus

KEY = "k" * 32
ADMIN = "a" * 32


@pytest.fixture
def node(processes: Processes) -> NodeProcess:
    """Return a node with API keys, one of them for Prometheus."""
    node = NodeProcess(processes, "a", EVENTD_API_KEYS=f"{KEY}:look,{ADMIN}")
    node.headers["Authorization"] = f"Bearer {ADMIN}"
    return node


def scraped(node: NodeProcess, path: str) -> bytes:
    request = Request(f"{node.process.url}{path}", headers={"Authorization": f"Bearer {KEY}"})
    with urlopen(request, timeout=20) as answer:
        body: bytes = answer.read()
    return body


def configuration(node: NodeProcess, directory: Path) -> dict[str, Any]:
    """Return the example in deploy/prometheus for this node, with short intervals, and alerts that fire at once."""
    key, hurried = directory / "key", directory / "hurried.rules.yml"
    key.write_text(f"{KEY}\n")
    text = yaml.safe_load(RULES.read_text())
    for group in text["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    hurried.write_text(yaml.safe_dump(text, sort_keys=False))
    found: dict[str, Any] = yaml.safe_load(SCRAPE.read_text())
    found["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    found["rule_files"] = [str(hurried)]
    for job in found["scrape_configs"]:
        job["authorization"]["credentials_file"] = str(key)
        job["static_configs"] = [{"targets": [node.process.url.removeprefix("http://")]}]
    return found


def test_an_alert_fires_when_a_link_is_cut(processes: Processes, node: NodeProcess, tmp_path: Path) -> None:
    peer = NodeProcess(processes, "b")
    peer.join()
    node.join(peer)
    node.emit("one")
    peer.wait_holds({"one"})
    with PrometheusServer(tmp_path, configuration(node, tmp_path)) as prometheus:
        assert prometheus.firing("EventdLinkDown") == []
        peer.kill9()
        node.emit("two")
        (alert,) = wait_for(lambda: prometheus.firing("EventdLinkDown"), "the alert")
        assert alert["labels"]["peer"] == "b"
        assert alert["annotations"]["summary"].startswith("b does not answer 127.0.0.1:")
        for job in ("routerd-eventd", "routerd-eventd-topics"):
            assert prometheus.value(f'up{{job="{job}"}}') == 1
        evaluated = wait_for(
            lambda: (found := prometheus.rules()) and all(rule["health"] != "unknown" for rule in found) and found,
            "all rules to be evaluated",
        )
        assert [(rule["name"], rule["lastError"]) for rule in evaluated if rule["health"] != "ok"] == []
        for board in BOARDS:
            for expression in expressions(board):
                prometheus.ask("query", query=expression)  # fails if it cannot be evaluated
        assert sorted(rule["name"] for rule in evaluated) == sorted(
            one.get("alert") or one["record"] for one in rules()
        )


def test_promtool_finds_no_fault_in_the_metrics_of_a_node(node: NodeProcess, processes: Processes) -> None:
    peer = NodeProcess(processes, "b")
    peer.join()
    node.join(peer)
    node.emit("one")
    peer.wait_holds({"one"})
    promtool("check", "metrics", stdin=scraped(node, "/metrics"))
