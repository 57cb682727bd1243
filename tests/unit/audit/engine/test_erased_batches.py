"""A batch that its receiver has erased is told from one that the sender has invented by the events of its time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

from eventd.audit.arrays.columns import Columns, Numbers
from eventd.audit.engine.lake_reader import LakeReader
from eventd.lake.schema import OWN_TIME, Ledger

AT = 1_767_571_200_000_000


class PeerLedgers(LakeReader):
    """A reader of a peer's ledgers in memory: `own` of each event, `accepted` of each batch, all recorded at `AT`."""

    def __init__(self, own: Sequence[bool], accepted: Sequence[int]) -> None:
        self.values = {Ledger.EVENTS: ("own", list(own)), Ledger.INBOUND: ("accepted", list(accepted))}

    def _rows_at(self, book: Ledger, node: str, times: Numbers, names: Sequence[str]) -> Iterator[Columns]:
        name, values = self.values[book]
        assert ([name], times.tolist(), node) == (names, [AT], "b")
        if values:
            group = pa.array(["edge"] * len(values)).dictionary_encode()
            time = pa.array(np.full(len(values), AT), pa.timestamp("us", "UTC"))
            yield Columns(pa.table({"group": group, OWN_TIME[book]: time, name: pa.array(values)}))


@pytest.mark.parametrize(
    ("own", "accepted", "is_erased"),
    [
        pytest.param([False], [], True, id="an event came with no batch"),
        pytest.param([False, False], [1], True, id="one of two batches that were stored together is left"),
        pytest.param([False, False], [1, 1], False, id="all events came with the batches that are left"),
        pytest.param([True], [], False, id="the event is the peer's own"),
        pytest.param([], [], False, id="there is no event of that time"),
    ],
)
def test_a_batch_is_erased_if_the_peer_holds_events_that_its_batches_did_not_bring(
    own: Sequence[bool], accepted: Sequence[int], is_erased: bool
) -> None:
    found = PeerLedgers(own, accepted)._erased_batches({"b": {("edge", AT)}})
    assert found == ({("b", "edge", AT)} if is_erased else set())
