"""A segment of receipts with a selection that cannot be read is corrupt, and no error of the program."""

from __future__ import annotations

import pytest

from eventd.audit.segments.ledger_summaries import summarize
from eventd.lake.schema import Ledger
from eventd.lake.segment_file import BadSegment
from tests.support.ledger_rows import columns_of


@pytest.mark.parametrize("selection", ["{", '{"types": "x"}', '{"types": [1]}', "[" * 200_000])
def test_a_malformed_selection_makes_its_segment_bad(selection: str) -> None:
    rows = columns_of(Ledger.RECEIPTS, [{"number": 1, "group": "g", "peer": "b", "selection": selection}])
    with pytest.raises(BadSegment, match="its rows have a selection that is not valid: "):
        summarize(Ledger.RECEIPTS, rows, limit=1)


@pytest.mark.parametrize(("selection", "kept"), [("", ()), ('{"relay":true}', ('{"relay":true}',))])
def test_the_text_of_a_known_selection_is_kept(selection: str, kept: tuple[str, ...]) -> None:
    rows = columns_of(Ledger.RECEIPTS, [{"number": 1, "group": "g", "peer": "b", "selection": selection}])
    (progress,) = summarize(Ledger.RECEIPTS, rows, limit=1).progress
    assert progress.selections == {0: kept}
