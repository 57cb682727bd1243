"""The events that a link counts as lost: no more than its group can have lost, and once, when the gap is committed."""

from __future__ import annotations

import pytest

from eventd.egress.peers.budget import Budget
from eventd.egress.peers.outbound_batch import PeerBatch
from eventd.egress.peers.peer import PeerDependencies, PeerSink
from eventd.egress.transport.transport import Transport
from eventd.log.core.values import Gap, Head
from eventd.log.core.wire_page import WirePage
from eventd.log.cursors.cursors import Cursor
from eventd.observe.metrics import Metrics
from eventd.resources.group_configuration import effective
from eventd.testing import ManualClock
from federation.keys import KeyRing
from federation.peers import BATCH_TYPE
from tests.unit.resources.samples import GROUP, PEER, rows

LINK = "peer:edge/cloud"


class _Link:
    """A link over v1, which reports no loss, and so sends nothing for one."""

    def __init__(self) -> None:
        group = effective(rows(f"{GROUP}---\n{PEER}  protocol: v1\n"))["edge"]
        clock, self.metrics = ManualClock(), Metrics()
        budget, ring = Budget(1 << 30, lambda: 1, clock), KeyRing.shared("of this group only")
        dependencies = PeerDependencies(Transport(clock), budget, lambda: ring, clock, bytes, self.metrics)
        self.sink = PeerSink(group, group.peers["cloud"], LINK, Cursor(LINK, "peer", 1, 0), dependencies)

    def select(self, after: int, gap: Gap) -> PeerBatch:
        head = Head(gap.upto + 1, "e", 1, 1, 1, 1, "")
        page = WirePage(b"", BATCH_TYPE, 0, 0, (), [gap], gap.upto, False, head, gap.upto)
        outbound = self.sink.select(page, after, 1)
        assert outbound is not None
        return outbound

    @property
    def lost(self) -> float:
        labels = {"group": "edge", "peer": "cloud", "status": "lost"}
        return self.metrics.registry.get_sample_value("routerd_eventd_outbox_delivery_total", labels) or 0


@pytest.mark.parametrize(("after", "upto", "upto_seq", "evicted"), [(0, 902, 2, 2), (900, 902, 700, 2)])
def test_a_loss_has_no_more_events_than_retention_has_removed(
    after: int, upto: int, upto_seq: int, evicted: int
) -> None:
    """Records of other topics have positions in the gap."""
    outbound = _Link().select(after, Gap(1, after, upto, upto_seq))
    assert (outbound.lost, outbound.after, outbound.evicted) == (after, upto, evicted)


async def test_a_loss_is_counted_when_its_ledger_row_is_committed() -> None:
    link = _Link()
    gap = Gap(1, 0, 902, 2)
    ack = await link.sink.deliver(link.select(0, gap))
    assert ([(row.after, row.upto) for row in ack.batches], link.lost) == ([(0, 902)], 0)
    await link.sink.given_up()  # the commit failed: all is tried again
    link.sink.settled(await link.sink.deliver(link.select(0, gap)))
    assert link.lost == 2
