"""The alert rules are one file: the pages repeat it, and it names only metrics, labels and pages that exist."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml

from tests.support.alert_rules import RULES, RUNBOOK, SCRAPE, alerts, rules
from tests.support.promql import faults, known_metrics, read_expression
from tests.support.source import ROOT

SECTIONS = {
    name: (yaml.safe_load(block), text)
    for name, block, text in re.findall(
        r"^### (\w+)\n\n```yaml\n(.*?)```\n(.*?)(?=^###? |\Z)", (ROOT / RUNBOOK).read_text(), re.MULTILINE | re.DOTALL
    )
}
RECORDED = {rule["record"]: frozenset(rule["record"].split(":")[0].split("_")) for rule in rules() if "record" in rule}


def watched(rule: dict[str, Any]) -> list[str]:
    """The metrics of an alert, in their order; for a recorded series, those that it is computed from."""
    recorded = {one["record"]: one["expr"] for one in rules() if "record" in one}
    found = list[str]()
    for selector in read_expression(rule["expr"]).selectors:
        inner = read_expression(recorded[selector.metric]).selectors if selector.metric in recorded else [selector]
        found += [re.sub(r"_(bucket|count|sum)$", "", one.metric) for one in inner]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("name", alerts())
def test_an_alert_has_all_that_its_reader_needs(name: str) -> None:
    rule = alerts()[name]
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"{RUNBOOK}#{name.lower()}"


def test_the_runbook_has_a_section_with_the_rule_of_each_alert() -> None:
    told = ("alert", "expr", "for", "labels")
    assert list(SECTIONS) == list(alerts())
    for name, rule in alerts().items():
        shown, text = SECTIONS[name]
        assert {**shown, "expr": shown["expr"].strip()} == {
            part: rule[part].strip() if part == "expr" else rule[part] for part in told if part in rule
        }
        assert len(text.strip().split("\n\n")) >= 2, f"{name}: what it means, and what to do"


@pytest.mark.parametrize("page", ["alerts.md", "logs.md", "monitoring.md"])
def test_what_the_pages_link_to_exists(page: str) -> None:
    folder = ROOT / "docs" / "operations"
    missing = []
    for target in re.findall(r"\]\(([^)\s]+)\)", (folder / page).read_text()):
        name, _, anchor = target.partition("#")
        file = folder / name if name else folder / page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            missing.append(target)
    assert missing == []


def anchors(page: str) -> set[str]:
    """The anchors of the headings of a page, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_reference_of_metrics_lists_each_alert_with_its_metrics() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(
        r"^\| \[(\w+)\]\(\.\./operations/alerts\.md#(\w+)\) \| (\w+) \| ([^|]+) \| ([^|]+) \|$", page, re.M
    )
    expected = [
        (
            name,
            name.lower(),
            rule["labels"]["severity"],
            rule.get("for", "at once"),
            ", ".join(f"`{metric}`" for metric in watched(rule)),
        )
        for name, rule in alerts().items()
    ]
    assert rows == expected


def test_no_other_page_has_alerts_of_its_own() -> None:
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "- alert:" in page.read_text()]
    assert pages == []


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_names_only_metrics_and_labels_that_a_node_has(rule: dict[str, Any]) -> None:
    assert faults(rule["expr"], RECORDED) == []


def test_a_wrong_name_in_an_expression_is_found() -> None:
    assert faults("routerd_eventd_link_lag") == ["no metric routerd_eventd_link_lag"]
    assert faults('routerd_eventd_link_state{node="b"}') == ["routerd_eventd_link_state has no label node"]
    assert faults('routerd_eventd_link_state{state="down"}') == ["routerd_eventd_link_state has no state down"]
    assert faults("sum by (callback) (routerd_eventd_link_state)") == ["no label callback"]
    with pytest.raises(ValueError, match="unclosed"):
        faults("sum(routerd_eventd_link_state")
    assert {"up", "topics_topic_queue_ready", "process_open_fds"} <= known_metrics().keys()


def operator_jobs() -> dict[str, str]:
    """The jobs of the Prometheus Operator, each with its path: named after the Service unless they are relabelled."""
    text = (ROOT / "deploy" / "kubernetes" / "components" / "monitoring" / "service-monitor.yaml").read_text()
    endpoints = yaml.safe_load(text)["spec"]["endpoints"]
    names = [
        [one["replacement"] for one in each.get("relabelings", ()) if one["targetLabel"] == "job"] for each in endpoints
    ]
    return {(*name, "routerd-eventd")[0]: each["path"] for name, each in zip(names, endpoints, strict=True)}


def test_the_page_makes_a_resource_of_the_prometheus_operator_of_the_rules() -> None:
    page = (ROOT / "docs" / "operations" / "monitoring.md").read_text()
    (command,) = re.findall(r"^\$ (\(printf .*?\)) \| kubectl", page, re.MULTILINE | re.DOTALL)
    made = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    resource = yaml.safe_load(made)
    assert (resource["kind"], resource["spec"]) == ("PrometheusRule", yaml.safe_load(RULES.read_text()))


def test_the_example_scrapes_the_jobs_that_the_rules_name() -> None:
    jobs = {job["job_name"]: job for job in yaml.safe_load(SCRAPE.read_text())["scrape_configs"]}
    assert {name: job.get("metrics_path", "/metrics") for name, job in jobs.items()} == {
        "routerd-eventd": "/metrics",
        "routerd-eventd-topics": "/v0/metrics",
    }
    assert all(job["authorization"].keys() == {"credentials_file"} for job in jobs.values())
    assert {name: job.get("metrics_path", "/metrics") for name, job in jobs.items()} == operator_jobs()
    named = {
        value for rule in rules() for one in read_expression(rule["expr"]).selectors for label, value in one.matchers
        if label == "job"
    }  # fmt: skip
    assert all(any(re.fullmatch(pattern, job) for job in jobs) for pattern in named)
