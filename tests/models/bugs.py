"""Seeded bugs: faults of the product that the models must notice, each with the invariant that names it."""

from __future__ import annotations

from typing import NamedTuple

from tests.models import instances, link, queue, writer
from tests.models.explorer import Exploration, Model, explore
from tests.models.instances import InstancesModel
from tests.models.link import LinkModel
from tests.models.queue import QueueModel
from tests.models.wakeups import WakeupModel
from tests.models.writer import WriterModel

REST = "rest can be reached from every state (V1)"
MOST_STATES = 200_000


class SeededBug(NamedTuple):
    """A model with a bug, and the invariant that must be found broken. `live`: only the search for rest finds it."""

    model: Model
    invariant: str
    live: bool = False

    @property
    def title(self) -> str:
        return f"{self.model.name}: {self.model.bug}"

    def explore(self) -> Exploration:
        return explore(self.model, most=MOST_STATES, live=self.live)


LINK = [
    SeededBug(
        LinkModel(
            events=3,
            crashes=0,
            epochs=0,
            restores_receiver=0,
            twice=0,
            late=0,
            bug="batches are settled as they are answered",
        ),
        link.CONTIGUOUS,
    ),
    SeededBug(LinkModel(bug="a time-out counts as an answer"), link.EVERYWHERE),
    SeededBug(
        LinkModel(
            events=3,
            crashes=0,
            epochs=0,
            restores_receiver=0,
            twice=0,
            bug="a batch beyond the mark is stored",
        ),
        link.COVERED,
    ),
    SeededBug(LinkModel(repairs=1, epochs=0, twice=0, late=0, bug="a repair moves the mark"), link.COVERED),
    SeededBug(LinkModel(bug="the mark moves in a transaction of its own"), link.COVERED),
    SeededBug(LinkModel(bug="known ids are not looked up"), link.ONCE),
    SeededBug(LinkModel(bug="the start of a peer is ignored"), link.EVERYWHERE),
    SeededBug(LinkModel(bug="the mark is not compared when the link is opened"), link.EVERYWHERE),
    SeededBug(LinkModel(epochs=0, twice=0, late=0, bug="a rewind keeps what was sent"), REST, live=True),
    SeededBug(LinkModel(bug="a confirmation counts only in the present epoch"), link.EVERYWHERE),
    SeededBug(
        LinkModel(
            events=3,
            crashes=0,
            epochs=0,
            restores_receiver=0,
            twice=0,
            late=0,
            evictions=2,
            bug="a loss is left out of the range",
        ),
        REST,
        live=True,
    ),
    SeededBug(LinkModel(restores_sender=1, restores_receiver=0, bug="a restored sender keeps its epoch"), link.COVERED),
    SeededBug(LinkModel(crashes=0, bug="a batch continues a link without a query for its mark"), link.ORDER),
    SeededBug(LinkModel(epochs=0, bug="a batch from before the query continues a link"), link.EVERYWHERE),
]
WRITER = [
    SeededBug(WriterModel(bug="a unit is answered before its commit"), writer.KEPT),
    SeededBug(WriterModel(bug="durable commits are not flushed"), writer.KEPT),
    SeededBug(WriterModel(bug="a flush writes the same value"), writer.KEPT),
    SeededBug(WriterModel(bug="a result does not wait for the flush"), writer.KEPT),
    SeededBug(WriterModel(bug="a check does not flush what it depends on"), writer.KEPT),
    SeededBug(WriterModel(bug=writer.UNMARKED), writer.TOLD),
    SeededBug(WriterModel(bug="the mark of unflushed commits is flushed after its commit"), writer.TOLD),
    SeededBug(WriterModel(units=2, others=2, kills=0, bug=writer.TRUSTED), writer.TOLD),
    SeededBug(WriterModel(bug="a start does not look for lost commits"), writer.TOLD),
    SeededBug(WriterModel(bug="every start begins a new epoch"), writer.CAUSE),
]
WAKEUPS = [
    SeededBug(WakeupModel(bug="a wait begins after the append that it waits for"), REST, live=True),
    SeededBug(WakeupModel(bug="another process's sign is taken after the look"), REST, live=True),
    SeededBug(WakeupModel(bug="own appends after those of others wake only their topics"), REST, live=True),
    SeededBug(WakeupModel(signs_get_lost=True, bug="a wait for signs never ends"), REST, live=True),
]
QUEUE = [
    SeededBug(QueueModel(bug="a claim does not look for a live lease"), queue.HELD),
    SeededBug(QueueModel(bug="a lease ends for the queue before it ends for its client"), queue.HELD),
    SeededBug(QueueModel(bug="leases are not flushed"), queue.HELD),
    SeededBug(QueueModel(bug="a late holder ends the lease"), queue.BY_HOLDER),
    SeededBug(QueueModel(bug="deliveries are not counted"), queue.LETTER),
    SeededBug(QueueModel(bug="a dead letter and the end of its job are two transactions"), queue.LETTER),
]
INSTANCES = [
    SeededBug(InstancesModel(bug="the fence is not checked"), instances.ONE),
    SeededBug(InstancesModel(bug="sessions of an instance without a claim are not ended"), instances.CLAIMED),
    SeededBug(InstancesModel(bug="a session is opened after its claim was checked"), instances.CLAIMED),
    SeededBug(InstancesModel(bug="a new session does not check the claim"), instances.CLAIMED),
]
ALL = [*LINK, *WRITER, *WAKEUPS, *QUEUE, *INSTANCES]
