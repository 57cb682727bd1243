"""A batch replaces the mark of another epoch only if it was judged by that mark, whatever is stored in between."""

from __future__ import annotations

import pytest

from eventd.ingress.batch import StoreBatch, VerifiedBatch
from eventd.ingress.mark_queries import LinkForgotten
from eventd.log.core.eventlog import EventLog
from eventd.log.core.values import NOTHING
from eventd.store.rows.links import read_mark
from federation.ranges import Range
from federation.wire import BatchHeader


def batch(number: int, epoch: str, after: int = 0) -> VerifiedBatch:
    covered = Range(epoch=epoch, incarnation=1, after=after, upto=after + 1)
    batch_id = f"01a0c450-7341-7537-abfb-62cadb9f3f{number:02}"
    header = BatchHeader(from_node="a", to_node="b", group="g", batch_id=batch_id, range=covered)
    return VerifiedBatch(header, "digest", "key", f"nonce {number}", 10**18, (), NOTHING, ())


async def test_a_late_batch_does_not_replace_the_mark_of_an_epoch_that_began_after_it_was_judged(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.submit(StoreBatch(topic, batch(1, "old"), None, judged=None))
    begun = log.submit(StoreBatch(topic, batch(2, "new"), None, judged="old"))
    late = log.submit(StoreBatch(topic, batch(3, "old", after=1), None, judged="old"))
    await begun
    with pytest.raises(LinkForgotten, match="epoch old"):
        await late
    mark = await log.database.read(read_mark, topic, "a")
    assert mark is not None
    assert mark.epoch == "new"


async def test_a_batch_does_not_continue_a_mark_that_was_deleted_after_it_was_judged(log: EventLog) -> None:
    topic = await log.topic("group:g")
    with pytest.raises(LinkForgotten):
        await log.submit(StoreBatch(topic, batch(1, "old", after=1), None, judged="old"))
    await log.submit(StoreBatch(topic, batch(2, "old"), None, judged=None))
