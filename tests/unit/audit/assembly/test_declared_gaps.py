"""The report names both ends of a declared gap."""

from __future__ import annotations

from eventd.audit.assembly.assemble import StageResults
from eventd.audit.assembly.report_details import make_gaps
from eventd.audit.coverage.coverage import Coverage
from eventd.audit.segments.ledger_summaries import DeclaredGap, LedgerSummary
from eventd.audit.segments.plan import LakePlan, NodeEpoch
from eventd.lake.manifest import LakeHead
from eventd.lake.reader import Survey


def test_a_declared_gap_leads_from_the_node_that_lost_the_events_to_the_peer_that_should_have_them() -> None:
    evicted = DeclaredGap("g", "b", "e", 0, 4, "deliveries_lost", 0)  # a evicted events before it shipped deliveries
    reported = DeclaredGap("g", "b", "e", 0, 4, "lost", 0)  # b reported to a that it had lost events for it
    own = DeclaredGap("g", "", "e", 0, 4, "events_lost", 0)
    plan = LakePlan()
    results = StageResults(
        survey=Survey(LakeHead(id="l", made_at=0), [], [], []),
        plan=plan,
        coverage=Coverage(plan),
        summaries={NodeEpoch("a", "e"): [LedgerSummary(gaps=[evicted, reported, own])]},
        figures={},
        hours=[],
        waiting={},
        senders={},
    )
    ends = {(gap.source, gap.peer, gap.reason) for gap in make_gaps(results)}
    assert ends == {("a", "b", "deliveries_lost"), ("b", "a", "lost"), ("a", "", "events_lost")}
