"""A relay whose ledgers lack batches that a peer has leaves the pairs of the sources that it has events of unproven."""

from __future__ import annotations

from eventd.audit.assembly.assemble import StageResults
from eventd.audit.coverage.coverage import Coverage
from eventd.audit.coverage.receipt_links import LinkKey
from eventd.audit.segments.plan import LakePlan
from eventd.audit.segments.row_marks import PairKey
from eventd.audit.verdicts.pair_figures import PairFigures
from eventd.lake.manifest import LakeHead
from eventd.lake.reader import Survey


def test_pairs_of_sources_that_the_relay_has_events_of_lack_batches() -> None:
    coverage = Coverage(LakePlan(), unclaimed=frozenset({LinkKey("g", "hub", "b")}))
    figures = {PairKey("g", "a", "hub"): PairFigures(), PairKey("g", "a", "b"): PairFigures()}
    lake = Survey(LakeHead(id="l", made_at=0), [], [], [])
    found = StageResults(lake, LakePlan(), coverage, {}, figures, [], {}, {PairKey("g", "c", "b"): ("hub", "c")})
    assert found.unclaimed_senders(PairKey("g", "a", "b")) == ["hub"]
    assert found.unclaimed_senders(PairKey("g", "c", "b")) == ["hub"]
    assert found.unclaimed_senders(PairKey("g", "hub", "b")) == ["hub"]
    assert found.unclaimed_senders(PairKey("g", "d", "b")) == []
    assert found.unclaimed_senders(PairKey("h", "a", "b")) == []
