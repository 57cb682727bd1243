"""What is explored of each model: small spaces in every test run, large ones and random walks by `make models`."""

from __future__ import annotations

from typing import NamedTuple

from tests.models.explorer import Exploration, Model, explore, walk
from tests.models.instances import InstancesModel
from tests.models.link import LinkModel
from tests.models.queue import QueueModel
from tests.models.wakeups import WakeupModel
from tests.models.writer import WriterModel


class Space(NamedTuple):
    """A model within bounds. `live`: also check that rest can be reached from every state.

    `most`: how many states are looked at; the run says whether these were all.
    """

    title: str
    model: Model
    live: bool = False
    most: int = 10**9

    def explore(self) -> Exploration:
        return explore(self.model, most=self.most, live=self.live)


class Walks(NamedTuple):
    """Random walks over a model that is too large to be explored as a whole."""

    title: str
    model: Model
    walks: int
    length: int

    def explore(self, seed: int) -> Exploration:
        return walk(self.model, seed, walks=self.walks, length=self.length)


SMALL = [
    Space(
        "a link: 2 events, a crash, a new epoch, the receiver restored, a late batch",
        LinkModel(twice=0),
    ),
    Space(
        "a link: 2 events, a crash, the sender restored, a batch twice, a late batch",
        LinkModel(restores_sender=1, restores_receiver=0, epochs=0),
        live=True,
    ),
    Space(
        "a link: 3 events, a crash, three batches under way",
        LinkModel(events=3, epochs=0, restores_receiver=0, twice=0),
        live=True,
    ),
    Space(
        "a link: 2 events, an eviction, the receiver restored",
        LinkModel(evictions=1, crashes=0, epochs=0, twice=0, late=0),
        live=True,
    ),
    Space(
        "a link: 2 events, a receiver that speaks v1 until it is upgraded",
        LinkModel(v1=True, epochs=0, restores_receiver=0, twice=0),
        live=True,
    ),
    Space("the writer: 3 units, a kill, a power loss", WriterModel(), live=True),
    Space(
        "the writer: 2 units, 3 steps of other processes, a power loss",
        WriterModel(units=2, others=3, kills=0),
        live=True,
    ),
    Space("wake-ups: 3 records, a poll of the file", WakeupModel(), live=True),
    Space("wake-ups: 3 records, signals that are lost", WakeupModel(signs_get_lost=True), live=True),
    Space("a queue: 2 clients, 4 claims, a power loss", QueueModel(), live=True),
    Space("two instances: 2 stops, 2 take-overs, a moved cursor", InstancesModel(), live=True),
]
WHOLE = [
    Space("the writer: 5 units, 2 kills, 2 power losses", WriterModel(units=5, kills=2, losses=2)),
    Space("wake-ups: 6 records, signals that are lost", WakeupModel(appends=6, signs_get_lost=True), live=True),
    Space("a queue: 2 clients, 8 claims, 3 power losses", QueueModel(times=12, claims=8, losses=3), live=True),
    Space(
        "two instances: 4 stops, 4 take-overs, 2 moved cursors",
        InstancesModel(records=3, stops=4, takeovers=4, moves=2),
        live=True,
    ),
    Space("a link: 2 events, 2 crashes, every fault once", LinkModel(crashes=2, restores_sender=1)),
    Space("a link: 3 events, 2 crashes, every fault once", LinkModel(events=3, crashes=2, restores_sender=1)),
    Space(
        "a link: 3 events, 2 crashes, the receiver restored, a late batch",
        LinkModel(events=3, crashes=2, epochs=0, twice=0),
    ),
    Space(
        "a link: 3 events, a crash, a new epoch, the receiver restored, a late batch",
        LinkModel(events=3, twice=0),
    ),
    Space(
        "a link: 3 events, a crash, the sender restored, a batch twice, a late batch",
        LinkModel(events=3, restores_sender=1, restores_receiver=0, epochs=0),
    ),
    Space(
        "a link: 3 events, 2 evictions, a crash, the receiver restored",
        LinkModel(events=3, evictions=2, epochs=0, twice=0, late=0),
    ),
    Space("a link: 2 events, a repair, a new epoch, the receiver restored", LinkModel(repairs=1, twice=0, late=0)),
]
WALKS = [
    Walks(
        "a link: 4 events, 2 crashes, every fault once",
        LinkModel(events=4, crashes=2, restores_sender=1),
        walks=20_000,
        length=60,
    ),
    Walks(
        "a link: 4 events, 2 evictions, a repair, 2 crashes, every fault once",
        LinkModel(events=4, crashes=2, restores_sender=1, evictions=2, repairs=1),
        walks=20_000,
        length=60,
    ),
]
