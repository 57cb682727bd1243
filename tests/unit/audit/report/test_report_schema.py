"""The published JSON Schema is that of the model, and every report matches it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventd.audit.report.json_schema import report_schema, schema_text
from eventd.audit.report.report import to_json
from tests.support.audit_cases import MADE
from tests.support.audit_reports import flaws_of
from tests.support.source import ROOT

PAGE = ROOT / "docs" / "reference" / "audit-report.schema.json"


def test_the_published_schema_is_that_of_the_model() -> None:
    command = f"routerctl audit schema > {PAGE.relative_to(ROOT)}"
    assert PAGE.read_text(encoding="utf-8") == f"{schema_text()}\n", f"write it again: {command}"


@pytest.mark.parametrize("name", MADE)
def test_every_report_matches_it(name: str) -> None:
    assert flaws_of(json.loads(to_json(MADE[name]()))) == []


def test_what_differs_from_the_model_does_not_match() -> None:
    report: dict[str, Any] = json.loads(to_json(MADE["three missing"]()))
    for name in report_schema()["$defs"]["Report"]["required"]:
        assert flaws_of({key: value for key, value in report.items() if key != name}) == [f"$ has no {name}"]
    changes: list[dict[str, Any]] = [
        {"schema": 2},
        {"verdict": "fine"},
        {"findings": {}},
        {"totals": {"expected": "1"}},
    ]
    for change in changes:
        assert len(flaws_of(report | change)) == 1
    for field in ("kind", "ids"):
        finding = {key: value for key, value in report["findings"][0].items() if key != field}
        assert flaws_of(report | {"findings": [finding]}) == [f"$.findings[0] has no {field}"]
    assert flaws_of(report | {"new_field": 1}) == []
