"""The reference of the report lists exactly its fields."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from eventd.audit.assembly import tables
from eventd.audit.report import findings, marks, report

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "audit-report.md").read_text(encoding="utf-8")
SECTIONS = {
    "report.json": report.Report,
    "lake": report.Lake,
    "period": report.Period,
    "settings": report.Settings,
    "figures": report.Figures,
    "totals": report.Totals,
    "findings": findings.Finding,
    "evidence": findings.EventEvidence,
    "pairs": report.Pair,
    "oldest_open_gap": report.OpenGap,
    "attempts": report.Attempts,
    "latencies": report.Latencies,
    "a leg": report.Latency,
    "skew": report.Skew,
    "slo": report.Slo,
    "hours": report.Hour,
    "nodes": report.NodeReport,
    "trees": report.TreeReport,
    "gaps": report.LostSpan,
    "keys": report.KeyUse,
    "refusals": report.RefusedByReason,
    "receipts": report.Receipts,
    "receipt_check": report.ReceiptCheck,
    "notices": report.Notice,
    "baseline": marks.Baseline,
    "acknowledgements": marks.AcknowledgementUse,
    "troubles": report.Limitation,
    "work": report.Work,
}


def rows(section: str) -> list[str]:
    text = PAGE.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    return [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_field_is_in_the_reference(section: str) -> None:
    kind: type[msgspec.Struct] = SECTIONS[section]
    shared = set(report.Figures.__struct_fields__) if kind is not report.Figures else set()
    own = [name for name in kind.__struct_fields__ if not (issubclass(kind, report.Figures) and name in shared)]
    assert rows(section) == own


def test_every_struct_of_the_report_has_a_section() -> None:
    declared = {kind for kind in vars(report).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)}
    assert declared - {msgspec.Struct, report.Bin} <= set(SECTIONS.values())


def test_every_table_is_in_the_reference_with_its_columns() -> None:
    for name, schema in tables.schemas().items():
        assert f"| `{name}` |" in PAGE
        assert ", ".join(f"`{column}`" for column in schema.names) in PAGE
