"""The faults of the ledgers: each as the audit defines it, at events that have no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from eventd.audit.generate.courses import Course, without
from eventd.audit.generate.history import make_ghost
from eventd.audit.generate.mixing import Ints, random_of
from eventd.audit.generate.settings import MINUTE
from eventd.audit.generate.world import Link, World
from eventd.audit.report.findings import (
    NO_BATCH,
    NO_ORIGIN,
    TO_SOURCE,
    TWO_SENDERS,
    Kind,
)
from eventd.errors import Invalid
from eventd.runtime.clock import SECOND

_TRIES = 10_000
"""How often an event is drawn that has no fault yet."""
_TOGETHER = 3
"""Most neighbouring events that are lost at once."""


class Fault(NamedTuple):
    """A fault. `source` is a history. `number` is the event's, None where it is about the batch `batch` of `course`.

    `nodes` are all whose books say something about it.
    """

    kind: Kind
    group: int
    source: int
    peer: int
    number: int | None
    detail: str
    nodes: tuple[int, ...]
    course: Course
    batch: int = 0


class Target(NamedTuple):
    """An event on its way, and the batch it is in."""

    course: Course
    number: int
    batch: int


class Planter:
    """Plants faults in events that are delivered in the ordinary way."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = random_of(world.settings.seed, "faults")
        self.used: set[tuple[int, int]] = set()
        self.unsent: dict[int, set[int]] = {}
        self.unheld: dict[int, set[int]] = {}
        self.links = {(link.sender, link.peer, link.group): link for link in world.links}
        nodes = self.nodes()
        ordinary = [one for one in world.courses if one.sender in nodes and not (one.feed or one.repair)]
        self.courses = [one for one in ordinary if one.peer in nodes]
        self.sent = [one for one in ordinary if one.peer in nodes or one.peer in world.silent]
        self.by_link = {(c.sender, c.peer, c.group): c for c in self.courses}

    def nodes(self) -> set[int]:
        """Nodes between which faults are planted."""
        return set(range(self.world.settings.nodes))

    def kinds(self) -> list[tuple[int, Callable[[int], Iterator[Fault]]]]:
        """How many faults of each kind, and the function that makes them."""
        settings = self.world.settings
        return [
            (settings.lose, self._lose),
            (settings.duplicate, self._duplicate),
            (settings.forge, self._forge),
            (settings.loop, self._loop),
        ]

    def plant(self) -> list[Fault]:
        """Plant all faults. Raises Invalid where there are too few events."""
        faults = [fault for count, make in self.kinds() for fault in islice(make(count), count)]
        for course in self.sent:
            course.rows = without(course.rows, self.unsent.get(course.uid, ()))
            course.held = without(course.held, self.unheld.get(course.uid, ()))
        return faults

    # --- each kind ------------------------------------------------------------------------------------------------

    def _lose(self, count: int) -> Iterator[Fault]:
        """Neighbours, mostly: a fault that swallows one event tends to swallow the next."""
        left = count
        while left:
            target = self.pick(among=self.sent)
            for number in self._run(target, min(left, int(self.random.integers(1, _TOGETHER + 1)))):
                self.unsent.setdefault(target.course.uid, set()).add(number)
                self.unheld.setdefault(target.course.uid, set()).add(number)
                yield event_fault(Kind.MISSING, target.course, number, "")
                left -= 1

    def _run(self, target: Target, most: int) -> Iterator[int]:
        """An event and those right after it, as long as they are in the same batch and free."""
        rows = target.course.rows
        at = int(np.searchsorted(rows, target.number))
        yield target.number
        for number in range(target.number + 1, target.number + most):
            at += 1
            if number not in rows[at : at + 1] or not self.free(target, number):
                return
            self.used.add((target.course.source, number))
            yield number

    def _duplicate(self, count: int) -> Iterator[Fault]:
        """Asked for by an operator, or sent again after all."""
        for at in range(count):
            target = self.pick(among=self.sent)
            self._send_again(
                target.course, target.course, target, int(target.course.acked[target.batch]), repair=at % 2 == 0
            )
            yield event_fault(Kind.DUPLICATE, target.course, target.number, "")

    def _forge(self, count: int) -> Iterator[Fault]:
        for at in range(count):
            target = self.pick()
            yield self._forge_receipt(target) if at % 2 else self._forge_event(target)

    def _forge_event(self, target: Target) -> Fault:
        """Somebody speaks for the source: the peer took it, the source never said it."""
        world, course = self.world, target.course
        at = np.array([self.later(int(course.acked[target.batch]))])
        serial = len(world.histories)
        world.histories.append(make_ghost(world.settings, world.histories[course.source], serial, at, course.group))
        only = np.zeros(1, np.int64)
        forged = self._alone(course, at + 20_000, source=serial, held=only, number=0, kept=False, repair=True)
        nodes = (course.sender, course.peer)
        return Fault(Kind.FORGED, course.group, serial, course.peer, 0, NO_ORIGIN, nodes, forged)

    def _forge_receipt(self, target: Target) -> Fault:
        """The sender shows a receipt that the peer never gave."""
        at = np.array([self.later(int(target.course.acked[target.batch]))])
        batch = self._alone(target.course, at, number=target.number, given=False, probe=True)
        nodes = (batch.sender, batch.peer)
        return Fault(Kind.FORGED, batch.group, batch.source, batch.peer, None, NO_BATCH, nodes, batch)

    def _loop(self, count: int) -> Iterator[Fault]:
        kinds = [kind for kind, ways in ((TO_SOURCE, self._ways_back()), (TWO_SENDERS, self._ways_on())) if any(ways)]
        if count and not kinds:
            raise Invalid("no event can loop between these nodes", hint="add nodes")
        for at in range(count):
            kind = kinds[at % len(kinds)]
            target, over = self._pick_loop(kind)
            begun = int(target.course.recorded[target.batch])
            if kind == TWO_SENDERS:
                direct = self.by_link[target.course.sender, over.peer, target.course.group]
                begun = max(begun, int(direct.acked[direct.batch_of(target.number)]))
            self._send_again(over, target.course, target, begun, repair=False)
            nodes = (target.course.source, over.sender, over.peer)
            yield Fault(Kind.LOOP, over.group, target.course.source, over.peer, target.number, kind, nodes, over)

    def _ways_back(self) -> Iterator[bool]:
        """Whether a peer of a node sends to that node, for each link."""
        yield from ((peer, sender, group) in self.by_link for sender, peer, group in self.by_link)

    def _ways_on(self) -> Iterator[bool]:
        """Whether a peer of a node sends to another of its peers, for each link and each of these."""
        for sender, peer, group in self.by_link:
            yield from ((sender, one.peer, group) in self.by_link for one in self._sent_by(peer, group))

    def _sent_by(self, node: int, group: int) -> list[Course]:
        return [one for (sender, _, within), one in self.by_link.items() if (sender, within) == (node, group)]

    def _pick_loop(self, kind: str) -> tuple[Target, Course]:
        """An event at a peer, and a link from there to its source, or to another peer of the source that gets it."""
        for _ in range(_TRIES):
            target = self.pick(claim=False)
            course = target.course
            onward = self._sent_by(course.peer, course.group)
            if kind == TO_SOURCE:
                ways = [one for one in onward if one.peer == course.sender]
            else:
                ways = [one for one in onward if self._carries(course, one.peer, target.number)]
            if ways:
                self.used.add((course.source, target.number))
                return target, ways[int(self.random.integers(len(ways)))]
        raise Invalid("there are too few events for so many faults", hint="raise --events or --nodes")

    def _carries(self, course: Course, peer: int, number: int) -> bool:
        """Whether the source sends an event to another peer, too."""
        direct = self.by_link.get((course.sender, peer, course.group))
        return direct is not None and number in direct.rows[np.searchsorted(direct.rows, number) :][:1]

    # --- where, and when ------------------------------------------------------------------------------------------

    def pick(self, *, among: Sequence[Course] = (), claim: bool = True) -> Target:
        """Any event that has no fault yet."""
        courses = among or self.courses
        for _ in range(_TRIES if courses else 0):
            course = courses[int(self.random.integers(len(courses)))]
            number = int(course.rows[int(self.random.integers(len(course.rows)))])
            target = Target(course, number, course.batch_of(number))
            if self.free(target, number):
                if claim:
                    self.used.add((course.source, number))
                return target
        raise Invalid("there are too few events for so many faults", hint="raise --events or --nodes")

    def free(self, target: Target, number: int) -> bool:
        """Whether an event of a target's batch has no fault."""
        return (target.course.source, number) not in self.used and target.course.batch_of(number) == target.batch

    def later(self, at: int) -> int:
        return at + int(self.random.integers(SECOND, MINUTE))

    def _send_again(self, back: Course, feed: Course, target: Target, begun: int, *, repair: bool) -> None:
        """One event alone over a link whose peer has it."""
        only = np.array([target.number])
        again = None if feed is back else feed
        at = np.array([self.later(begun)])
        self._alone(back, at, source=feed.source, rows=only, number=target.number, feed=again, known=1, repair=repair)

    def _alone(self, like: Course, at: Ints, *, number: int, source: int | None = None, **parts: object) -> Course:
        none = np.zeros(0, np.int64)
        link: Link = self.links[like.sender, like.peer, like.group]
        facts = {"rows": none, "held": none} | parts
        return self.world.add(
            group=like.group,
            sender=like.sender,
            source=like.source if source is None else source,
            peer=like.peer,
            edges=np.array([number, number + 1]),
            last=np.array([number]),
            sent=at,
            recorded=at + 20_000,
            acked=at + 31_000,
            attempts=np.ones(1, np.int64),
            version=np.array([link.version_at(int(at[0]))]),
            alone=True,
            **facts,
        )


def event_fault(kind: Kind, course: Course, number: int, detail: str) -> Fault:
    nodes = (course.sender, course.peer)
    return Fault(kind, course.group, course.source, course.peer, number, detail, nodes, course)
