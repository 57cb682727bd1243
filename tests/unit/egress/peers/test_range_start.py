"""A range reports a loss before it, and a page that does not reach the end of the loss reports none."""

from __future__ import annotations

from eventd.egress.peers.range_start import RangeStart
from eventd.log.core.values import Gap, Head
from eventd.log.core.wire_page import WirePage
from federation.peers import BATCH_TYPE

HEAD = Head(9, "e", 0, 0, 0, 0, "")


def test_a_page_that_there_is_no_memory_for_claims_no_loss() -> None:
    page = WirePage(b"6\t\t{}\n", BATCH_TYPE, 1, 1, [(7, "expired")], [Gap(1, 2, 5, 5)], 8, False, HEAD, 5)
    unread = page.unread(2)
    assert (unread.count, unread.exceptions, unread.gaps, unread.lost_position) == (0, (), (), 0)
    assert (unread.upto, unread.full) == (2, True), "and is read again"


def test_a_loss_is_reported_by_a_page_that_reaches_its_end() -> None:
    for start, lost in ((RangeStart(), 5), (RangeStart(gone_until=5), 0)):
        assert start.must_report(0, 2, lost, 5)
        assert start.begin(2, 0, lost) == (5, 2)
        assert not start.must_report(0, 2, lost, 4), "the range would end before it begins"
        assert not start.must_report(0, 5, lost, 8), "it is reported once"


def test_a_peer_without_a_mark_gets_a_range_after_the_gap() -> None:
    assert RangeStart(fresh=True).must_report(5, 2, 0, 8)
    assert RangeStart(fresh=True).begin(2, 5, 4) == (5, None)
