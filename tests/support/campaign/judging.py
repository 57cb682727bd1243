"""Compares an audit's report with the truth: all that is wrong, nothing else, and never more than is proven."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from eventd.audit.report.findings import Finding
from eventd.audit.report.report import Report
from tests.support.campaign.damage import Damage
from tests.support.campaign.ledgers import Ledgers

ANY_ID = "*"


class Fact(NamedTuple):
    """One finding about one id: its kind, a node that is among its parties, and the id or a range of seqs."""

    kind: str
    node: str
    id: str


def facts_of(findings: Iterable[Finding]) -> Iterator[frozenset[Fact]]:
    """Yield for each id of each finding the same fact, once for each of its parties."""
    for finding in findings:
        nodes = {finding.source, finding.peer} - {""}
        for id in finding.ids or (f"{finding.first}-{finding.last}",):
            yield frozenset(Fact(finding.kind, node, id) for node in nodes)


def _query(ledgers: Ledgers, text: str) -> set[Fact]:
    return {Fact(*row) for row in ledgers.ask(text)} if text else set()


def _meets(found: frozenset[Fact], facts: set[Fact]) -> bool:
    return any(fact in facts or fact._replace(id=ANY_ID) in facts for fact in found)


def complaints(damage: Damage, report: Report, ledgers: Ledgers) -> list[str]:
    """Return what is wrong with the report on a damaged lake; empty if it says what it has to."""
    wanted, allowed = _query(ledgers, damage.wanted), _query(ledgers, damage.allowed)
    assert wanted or not damage.wanted, "the damage has done nothing: its truth is empty"
    found = [*facts_of(report.findings)]
    named = {fact for facts in found for fact in facts}
    missed = sorted(f for f in wanted if f not in named and not (f.id == ANY_ID and _any(f, named)))
    false = sorted(map(sorted, (facts for facts in found if not _meets(facts, wanted | allowed))))
    told = [f"not found: {fact}" for fact in missed] + [f"false: {fact}" for fact in false]
    if report.verdict != ("complete" if damage.blind else "incomplete" if wanted else "unproven"):
        told.append(f"the verdict is {report.verdict}")
    if report.totals.completeness == 100.0 and damage.unproven:
        told.append("it says 100 %")
    return told + ([*_reasons(damage, report, ledgers)] if damage.unproven else [])


def _any(wanted: Fact, named: set[Fact]) -> bool:
    return any((one.kind, one.node) == (wanted.kind, wanted.node) for one in named)


def _reasons(damage: Damage, report: Report, ledgers: Ledgers) -> Iterator[str]:
    texts = [note for pair in report.pairs for note in pair.notes] + [one.message for one in report.troubles]
    if not any(re.search(damage.unproven, text) for text in texts):
        yield f"no reason like {damage.unproven!r} in {texts}"
    if damage.named and (others := {one.where for one in report.troubles} - damage.named):
        yield f"limitations also name {sorted(others)}"
    if not damage.shrinks and (expected := expected_events(ledgers)) > report.totals.expected:
        yield f"it expects {report.totals.expected} deliveries, and {expected} were due before the damage"


def expected_events(ledgers: Ledgers) -> int:
    """Return how many events were due at a peer before the damage: each has a delivery, of whatever outcome."""
    query = 'SELECT count(*) FROM (SELECT DISTINCT "group", peer, id FROM before.deliveries)'
    return int(ledgers.column(query)[0])
