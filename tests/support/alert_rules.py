"""The alert rules that operators install, and the cases under which each of them fires or is silent."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.source import ROOT

RULES = ROOT / "deploy" / "prometheus" / "routerd-eventd.rules.yml"
SCRAPE = ROOT / "deploy" / "prometheus" / "scrape.yml"
CASES = ROOT / "tests" / "integration" / "observe" / "alert_cases.yml"
RUNBOOK = "docs/operations/alerts.md"
_NODE = {"job": "routerd-eventd", "instance": "a:8780"}


@cache
def rules() -> list[dict[str, Any]]:
    """Return all rules in the order of the file."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """Return the alerts by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


@cache
def cases() -> dict[str, dict[str, Any]]:
    """Return the cases by the name of their alert."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(CASES.read_text())
    return found


def write_promtool_tests(folder: Path) -> list[Path]:
    """Write the cases in the form of `promtool test rules`, a file for each alert; return these files.

    Each has one test that fires, and one that does not, of this alert and all recordings: with all other rules, which
    the cases of an alert do not look at, Prometheus would evaluate each rule in the cases of each other.
    """
    files = []
    for name, case in cases().items():
        chosen = [rule for rule in rules() if rule.get("alert", name) == name]
        own = folder / f"{name}.rules.yml"
        own.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": chosen}]}, sort_keys=False))
        tests = {"rule_files": [str(own)], "evaluation_interval": "1m", "tests": _tests_of(name, case)}
        files.append(folder / f"{name}.test.yml")
        files[-1].write_text(yaml.safe_dump(tests, sort_keys=False))
    return files


def _tests_of(name: str, case: dict[str, Any]) -> list[dict[str, Any]]:
    rule = alerts()[name]
    labels = {**_NODE, "severity": rule["labels"]["severity"], **case.get("labels", {})}
    expected = {
        "exp_labels": {label: value for label, value in labels.items() if value is not None},
        "exp_annotations": {
            "summary": case["summary"],
            "description": case["description"],
            "runbook_url": rule["annotations"]["runbook_url"],
        },
    }
    waits = {case["pending"]: list[Any]()} if "pending" in case else {}
    return [
        {
            "interval": "1m",
            "name": f"{name} {kind}",
            "input_series": [{"series": _whole(one), "values": values} for one, values in case[kind].items()],
            "alert_rule_test": [
                {"eval_time": at, "alertname": name, "exp_alerts": firing} for at, firing in expected_at.items()
            ],
        }
        for kind, expected_at in (("firing", {**waits, case["at"]: [expected]}), ("silent", {case["at"]: []}))
    ]


def _whole(series: str) -> str:
    return series.replace("NODE", ",".join(f'{label}="{value}"' for label, value in _NODE.items()))
