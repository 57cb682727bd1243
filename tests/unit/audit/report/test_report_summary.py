"""The report on a terminal: the verdict first, ids that can be copied, and no name that controls the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from eventd.audit.report.report import Report
from eventd.audit.report.summary import summary
from tests.support.audit_cases import MADE
from tests.support.audit_reports import event_id


def shown(name: str, *, width: int = 80) -> str:
    return drawn(MADE[name](), width=width)


def drawn(report: Report, *, width: int) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, force_terminal=True, color_system=None)
    console.print(summary(report))
    return out.getvalue()


def test_the_verdict_is_the_first_line_and_ids_stand_alone() -> None:
    lines = [line.strip() for line in shown("three missing").splitlines()]
    assert lines[0].startswith("✕ 9,999,997 of 10,000,000 delivered; 3 missing")
    assert all(event_id(seq) in lines for seq in (48_211, 48_212, 310_077))
    assert any("amsterdam → cork" in line and "seqs 48,211-48,212 · 2 events" in line for line in lines)
    assert "(99.99997 %)" in " ".join(lines)


def test_the_numbers_of_a_ledger_that_was_rolled_back_are_rows_of_the_ledger() -> None:
    (line,) = (one for one in shown("everything broken", width=200).splitlines() if "rolled_back" in one)
    assert line.rstrip().endswith("ledger rows 70,001-71,000 · 1 node")


def test_the_first_line_says_how_many_deliveries_are_claims() -> None:
    assert shown("callbacks", width=200).startswith(
        "✓ 20,000 of 20,000 delivered, 10,000 of them by the sender's claim alone."
    )


def test_a_share_beside_pending_deliveries_is_that_of_those_due() -> None:
    report = MADE["clean"]()
    for pending, share in ((0, "(100 %)"), (2, "(100 % of those due)")):
        report.totals.pending = pending
        assert f" delivered {share}" in drawn(report, width=200)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    assert max(map(len, shown(name, width=width).splitlines())) <= width


def test_a_name_changes_neither_colour_nor_line() -> None:
    text = shown("hostile names", width=200)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\x00" not in text
    assert "[/b]" in text


def test_few_nodes_have_figures_and_many_have_signs() -> None:
    assert "✕ 99.99" in shown("three missing")
    lines = [line.split() for line in shown("twenty nodes", width=100).splitlines()]
    row = next(line for line in lines if line[:2] == ["site-1", "1"])
    assert row[2:] == ["·", *"✓✓✓✓✓✕✓?✓✓✓○✓✓✓✓✓✓✓"]


def test_what_cannot_be_proven_is_said_with_its_reason() -> None:
    text = shown("unproven")
    assert text.startswith("? 8,800 of 10,000")
    assert "1 h 48 min before those" in " ".join(text.split())
    assert "✓ 100" not in shown("empty lake")


def test_many_reasons_and_findings_are_counted() -> None:
    assert "site-1 → site-9 and 6 more: the ledgers of the peer end" in " ".join(shown("twenty nodes").split())
    assert "and 50,998 more" in shown("everything broken")


def test_a_callback_has_a_column_and_no_row() -> None:
    lines = [line.strip() for line in shown("callbacks", width=100).splitlines()]
    assert any("left" in line and "left/callback:hook" in line and "right" in line for line in lines)
    assert not any(line.startswith("left/callback:hook") for line in lines)
    assert sum(line.startswith(("left ", "right ")) for line in lines) == 2


def test_a_finding_shows_what_is_known_of_it() -> None:
    lines = [line.strip() for line in shown("known findings", width=100).splitlines()]
    assert any(line.endswith("seqs 48,211-48,212 · 2 events · 1 new · 1 acknowledged") for line in lines)
    assert any(line.endswith("seq 310,077 · 1 event · acknowledged") for line in lines)
