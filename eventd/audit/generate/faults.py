"""What is hidden in the books: each fault as the audit means it, at events that have no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from eventd.audit.generate.courses import Course, without
from eventd.audit.generate.history import make_ghost
from eventd.audit.generate.mixing import Ints, Mask, random_of
from eventd.audit.generate.routes import always_wanted
from eventd.audit.generate.settings import MINUTE
from eventd.audit.generate.world import Link, World
from eventd.audit.report.findings import (
    NO_BATCH,
    NO_ORIGIN,
    NOT_HELD,
    NOT_SENT,
    OTHER_RECEIPT,
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


class Planted(NamedTuple):
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


class Spot(NamedTuple):
    """An event on its way, and the batch it is in."""

    course: Course
    number: int
    batch: int


def expire_some(world: World) -> None:
    """Have events expire before anybody can have them. To be done before anything is sent."""
    settings = world.settings
    random = random_of(settings.seed, "expiring")
    share = random.multinomial(settings.expire, np.full(settings.nodes, 1 / settings.nodes))
    for history, count in zip(world.histories, share, strict=True):
        sent = int(history.first[np.searchsorted(history.at, settings.end)])
        wanted = np.flatnonzero(history.types_of(np.arange(sent)) == 0)  # the type that every peer selects
        if count > len(wanted):
            raise Invalid("too many events are to expire", hint="raise --events, or lower --expire")
        history.soon = np.sort(random.choice(wanted, count, replace=False))


def plant(world: World) -> list[Planted]:
    """Hide everything that is to be hidden in what goes the ordinary way."""
    return list(_Planter(world).plant())


class _Planter:
    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random_of(world.settings.seed, "faults")
        self._used: set[tuple[int, int]] = set()
        self._unsent: dict[int, set[int]] = {}
        self._unheld: dict[int, set[int]] = {}
        self._refused: dict[int, set[int]] = {}
        self._wanted: dict[int, Mask] = {}
        free = _free_nodes(world)
        self._links = {(link.sender, link.peer, link.group): link for link in world.links}
        ordinary = [one for one in world.courses if one.sender in free and not (one.feed or one.repair)]
        self._courses = [one for one in ordinary if one.peer in free]
        self._sent = [one for one in ordinary if one.peer in free or one.peer in world.silent]
        self._by_link = {(c.sender, c.peer, c.group): c for c in self._courses}

    def plant(self) -> Iterator[Planted]:
        settings = self._world.settings
        kinds: tuple[tuple[int, Callable[[int], Iterator[Planted]]], ...] = (
            (settings.lose, self._lose),
            (settings.duplicate, self._duplicate),
            (settings.forge, self._forge),
            (settings.loop, self._loop),
            (settings.disagree, self._disagree),
        )
        for count, make in kinds:
            yield from islice(make(count), count)
        for _ in range(settings.dead_letter):
            spot = self._pick()
            self._refused.setdefault(spot.course.uid, set()).add(spot.number)
            self._unheld.setdefault(spot.course.uid, set()).add(spot.number)
        self._apply()

    def _apply(self) -> None:
        for course in self._sent:
            course.rows = without(course.rows, self._unsent.get(course.uid, ()))
            course.held = without(course.held, self._unheld.get(course.uid, ()))
            course.refused = np.array(sorted(self._refused.get(course.uid, ())), np.int64)

    # --- each kind ------------------------------------------------------------------------------------------------

    def _lose(self, count: int) -> Iterator[Planted]:
        """Neighbours, mostly: a fault that swallows one event tends to swallow the next."""
        left = count
        while left:
            spot = self._pick(among=self._sent)
            for number in self._run(spot, min(left, int(self._random.integers(1, _TOGETHER + 1)))):
                self._unsent.setdefault(spot.course.uid, set()).add(number)
                self._unheld.setdefault(spot.course.uid, set()).add(number)
                yield _event(Kind.MISSING, spot.course, number, "")
                left -= 1

    def _run(self, spot: Spot, most: int) -> Iterator[int]:
        """An event and those right after it, as long as they are in the same batch and free."""
        rows = spot.course.rows
        at = int(np.searchsorted(rows, spot.number))
        yield spot.number
        for number in range(spot.number + 1, spot.number + most):
            at += 1
            if number not in rows[at : at + 1] or not self._free(spot, number):
                return
            self._used.add((spot.course.source, number))
            yield number

    def _duplicate(self, count: int) -> Iterator[Planted]:
        """Asked for by an operator, or sent again after all."""
        for at in range(count):
            spot = self._pick(among=self._sent)
            self._send_again(spot.course, spot.course, spot, int(spot.course.acked[spot.batch]), repair=at % 2 == 0)
            yield _event(Kind.DUPLICATE, spot.course, spot.number, "")

    def _forge(self, count: int) -> Iterator[Planted]:
        for at in range(count):
            spot = self._pick()
            yield self._forge_receipt(spot) if at % 2 else self._forge_event(spot)

    def _forge_event(self, spot: Spot) -> Planted:
        """Somebody speaks for the source: the peer took it, the source never said it."""
        world, course = self._world, spot.course
        at = np.array([self._later(int(course.acked[spot.batch]))])
        serial = len(world.histories)
        world.histories.append(make_ghost(world.settings, world.histories[course.source], serial, at, course.group))
        only = np.zeros(1, np.int64)
        forged = self._alone(course, at + 20_000, source=serial, held=only, number=0, kept=False, repair=True)
        nodes = (course.sender, course.peer)
        return Planted(Kind.FORGED, course.group, serial, course.peer, 0, NO_ORIGIN, nodes, forged)

    def _forge_receipt(self, spot: Spot) -> Planted:
        """The sender shows a receipt that the peer never gave."""
        at = np.array([self._later(int(spot.course.acked[spot.batch]))])
        batch = self._alone(spot.course, at, number=spot.number, given=False, probe=True)
        nodes = (batch.sender, batch.peer)
        return Planted(Kind.FORGED, batch.group, batch.source, batch.peer, None, NO_BATCH, nodes, batch)

    def _loop(self, count: int) -> Iterator[Planted]:
        kinds = [kind for kind, ways in ((TO_SOURCE, self._ways_back()), (TWO_SENDERS, self._ways_on())) if any(ways)]
        if count and not kinds:
            raise Invalid("no event can go in a circle here", hint="add nodes or raise --peers-per-node")
        for at in range(count):
            kind = kinds[at % len(kinds)]
            spot, over = self._pick_loop(kind)
            begun = int(spot.course.recorded[spot.batch])
            if kind == TWO_SENDERS:
                direct = self._by_link[spot.course.sender, over.peer, spot.course.group]
                begun = max(begun, int(direct.acked[direct.batch_of(spot.number)]))
            self._send_again(over, spot.course, spot, begun, repair=False)
            nodes = (spot.course.source, over.sender, over.peer)
            yield Planted(Kind.LOOP, over.group, spot.course.source, over.peer, spot.number, kind, nodes, over)

    def _ways_back(self) -> Iterator[bool]:
        """Whether a peer of a node sends to that node, for each link."""
        yield from ((peer, sender, group) in self._by_link for sender, peer, group in self._by_link)

    def _ways_on(self) -> Iterator[bool]:
        """Whether a peer of a node sends to another of its peers, for each link and each of these."""
        for sender, peer, group in self._by_link:
            yield from ((sender, one.peer, group) in self._by_link for one in self._sent_by(peer, group))

    def _sent_by(self, node: int, group: int) -> list[Course]:
        return [one for (sender, _, within), one in self._by_link.items() if (sender, within) == (node, group)]

    def _pick_loop(self, kind: str) -> tuple[Spot, Course]:
        """An event at a peer, and a link from there to its source, or to another peer of the source that gets it."""
        for _ in range(_TRIES):
            spot = self._pick(claim=False)
            course = spot.course
            onward = self._sent_by(course.peer, course.group)
            if kind == TO_SOURCE:
                ways = [one for one in onward if one.peer == course.sender]
            else:
                ways = [one for one in onward if self._carries(course, one.peer, spot.number)]
            if ways:
                self._used.add((course.source, spot.number))
                return spot, ways[int(self._random.integers(len(ways)))]
        raise Invalid("there are too few events to hide so much in", hint="raise --events, or --nodes")

    def _carries(self, course: Course, peer: int, number: int) -> bool:
        """Whether the source sends an event to another peer, too."""
        direct = self._by_link.get((course.sender, peer, course.group))
        return direct is not None and number in direct.rows[np.searchsorted(direct.rows, number) :][:1]

    def _disagree(self, count: int) -> Iterator[Planted]:
        for at in range(count):
            spot = self._pick()
            if at % 3 == 2:
                yield self._alter(spot)
                continue
            told, detail = ((self._unheld, NOT_HELD), (self._unsent, NOT_SENT))[at % 3]
            told.setdefault(spot.course.uid, set()).add(spot.number)
            yield _event(Kind.DISAGREEMENT, spot.course, spot.number, detail)

    def _alter(self, spot: Spot) -> Planted:
        """The sender shows another receipt than the peer gave."""
        course, batch = spot.course, spot.batch
        course.altered |= {batch}
        low, high = np.searchsorted(course.rows, course.edges[batch : batch + 2])
        self._used |= {(course.source, number) for number in course.rows[low:high].tolist()}
        nodes = (course.sender, course.peer)
        detail = OTHER_RECEIPT
        return Planted(Kind.DISAGREEMENT, course.group, course.source, course.peer, None, detail, nodes, course, batch)

    # --- where, and when ------------------------------------------------------------------------------------------

    def _pick(self, *, among: Sequence[Course] = (), claim: bool = True) -> Spot:
        """Any event that has no fault yet."""
        courses = among or self._courses
        for _ in range(_TRIES if courses else 0):
            course = courses[int(self._random.integers(len(courses)))]
            number = int(course.rows[int(self._random.integers(len(course.rows)))])
            spot = Spot(course, number, course.batch_of(number))
            if self._free(spot, number):
                if claim:
                    self._used.add((course.source, number))
                return spot
        raise Invalid("there are too few events to hide so much in", hint="raise --events, or --nodes")

    def _free(self, spot: Spot, number: int) -> bool:
        """Whether an event has no fault, does not expire, and was always meant for the peer."""
        course = spot.course
        history = self._world.histories[course.source]
        at = np.searchsorted(history.soon, number)
        if (course.source, number) in self._used or number in history.soon[at : at + 1]:
            return False
        if course.uid not in self._wanted:
            link = self._links[course.sender, course.peer, course.group]
            self._wanted[course.uid] = always_wanted(self._world, link)
        kind = int(history.types_of(np.array([number]))[0])
        return bool(self._wanted[course.uid][kind]) and course.batch_of(number) == spot.batch

    def _later(self, at: int) -> int:
        return at + int(self._random.integers(SECOND, MINUTE))

    def _send_again(self, back: Course, feed: Course, spot: Spot, begun: int, *, repair: bool) -> None:
        """One event alone over a link whose peer has it."""
        only = np.array([spot.number])
        again = None if feed is back else feed
        at = np.array([self._later(begun)])
        self._alone(back, at, source=feed.source, rows=only, number=spot.number, feed=again, known=1, repair=repair)

    def _alone(self, like: Course, at: Ints, *, number: int, source: int | None = None, **parts: object) -> Course:
        none = np.zeros(0, np.int64)
        link: Link = self._links[like.sender, like.peer, like.group]
        facts = {"rows": none, "held": none} | parts
        return self._world.add(
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


def _free_nodes(world: World) -> set[int]:
    """Nodes between which faults are hidden.

    Where one passes on what another stated, a loss would be two; and of those that tell nothing, nothing is found.
    """
    nodes = range(1, world.settings.nodes - 1) if world.settings.in_path else range(world.settings.nodes)
    return set(nodes) - world.silent


def _event(kind: Kind, course: Course, number: int, detail: str) -> Planted:
    nodes = (course.sender, course.peer)
    return Planted(kind, course.group, course.source, course.peer, number, detail, nodes, course)
