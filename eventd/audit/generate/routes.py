"""Everything that goes the ordinary way: what each node states, to each of its peers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from eventd.audit.generate.courses import DELIVERED, IN_PATH, Load, Traffic, at_once, last_of, without
from eventd.audit.generate.mixing import Ints, Mask, random_of
from eventd.audit.generate.world import Link, Terms, World
from eventd.runtime.clock import SECOND
from federation.selector import Selector

SOME: Final = {"types": ["routerd.bgp.*", "routerd.client.*"]}
"""What a peer selects that does not get everything. The commonest type is among it."""
EVERYTHING: Final[dict[str, Any]] = {}
RELAYED: Final = {"relay": True}
_BACKFILL: Final = 1_000
"""Events of one batch of a backfill."""


def connect_all(world: World) -> None:
    """Link the nodes, and let everything go that goes the ordinary way."""
    settings = world.settings
    for group in range(settings.groups):
        for sender, peer in world.pairs:
            link = Link(group, sender, peer, _terms(world, sender, peer, group))
            world.links.append(link)
            if len(world.numbers(sender, group)):
                _send_own(world, link)
        if settings.in_path:
            _relay(world, group)


def always_wanted(world: World, link: Link) -> Mask:
    """For each type, whether a link selected it all the time."""
    wanted: Mask = np.logical_and.reduce([_takes(world, terms.selection) for terms in link.terms])
    return wanted


def _terms(world: World, sender: int, peer: int, group: int) -> tuple[Terms, ...]:
    settings = world.settings
    through = settings.in_path and settings.nodes - 1 in (sender, peer)
    if settings.in_path and (sender, peer) == (0, settings.nodes - 1):
        return (Terms(settings.start, RELAYED),)
    begun = Terms(settings.start, EVERYTHING)
    if not settings.selectors or through:
        return (begun,)
    middle = settings.start + settings.span // 2
    less = Terms(settings.start, SOME)
    kinds = ((begun,), (less,), (begun, Terms(middle, SOME)), (less, Terms(middle, EVERYTHING)))
    return kinds[(sender + 2 * peer + group) % 4]


def _send_own(world: World, link: Link) -> None:
    numbers = world.numbers(link.sender, link.group)
    random = random_of(world.settings.seed, "link", link.sender, link.peer, link.group)
    load = _load(world, link, numbers)
    _delay(world, link, load, numbers, random)
    rows, late = _selected(world, link, load, numbers)
    load.leave_out_empty(rows)
    carry = Traffic(random, base=float(random.lognormal(np.log(15_000), 0.6)))
    version = np.searchsorted([terms.since for terms in link.terms], load.ready, "right")
    if len(rows):
        _carry(world, link, rows, load, carry, version)
    if len(late):
        steps = np.append(late[::_BACKFILL], late[-1] + 1)
        ready = link.terms[-1].since + 10 * SECOND + 50_000 * np.arange(len(steps) - 1)
        backfill = Load(ready, steps, np.ones_like(ready))
        _carry(world, link, late, backfill, carry, np.full_like(ready, 2), repair=True)


def _carry(
    world: World, link: Link, rows: Ints, load: Load, carry: Traffic, version: Ints, *, repair: bool = False
) -> None:
    sent, recorded, acked = carry.carry(load.ready)
    world.add(
        group=link.group,
        sender=link.sender,
        source=link.sender,
        peer=link.peer,
        rows=rows,
        held=without(rows, world.histories[link.sender].soon),
        edges=load.edges,
        last=last_of(rows, load.edges),
        sent=sent,
        recorded=recorded,
        acked=acked,
        attempts=load.attempts,
        version=version,
        repair=repair,
    )


def _load(world: World, link: Link, numbers: Ints) -> Load:
    """What was committed together is sent together."""
    history = world.histories[link.sender]
    commits = np.flatnonzero((history.group == link.group) & (history.at < world.settings.end))
    edges = np.append(history.first[commits], numbers[-1] + 1)
    return Load(history.at[commits], edges, np.ones_like(commits))


def _delay(world: World, link: Link, load: Load, numbers: Ints, random: np.random.Generator) -> None:
    for begin, end in reversed(world.outages[link.peer]):
        load.hold_back(numbers, begin, end)
    share, rest = divmod(world.settings.retry, len(world.pairs) * world.settings.groups)
    share += len(world.links) <= rest
    if share:
        chosen = random.choice(len(load.ready), min(share, len(load.ready)), replace=False)
        load.stumble(np.sort(chosen), random.integers(1, 4, len(chosen)))
    load.ready = np.maximum.accumulate(load.ready)


def _selected(world: World, link: Link, load: Load, numbers: Ints) -> tuple[Ints, Ints]:
    """The events that the link's terms select, and those that only its latest terms do, which are sent after all."""
    none = numbers[:0]
    if len(link.terms) == 1 and not link.terms[0].selection:
        return numbers, none
    history = world.histories[link.sender]
    types = history.types_of(numbers)
    wanted = [_takes(world, terms.selection)[types] for terms in link.terms]
    if len(link.terms) == 1:
        return numbers[wanted[0]], none
    begun = numbers < load.edges[np.searchsorted(load.ready, link.terms[1].since)]
    late = numbers[begun & ~wanted[0] & wanted[1]]
    return numbers[np.where(begun, *wanted)], late[history.alive(late, link.terms[1].since)]


def _takes(world: World, selection: dict[str, Any]) -> Mask:
    selector = Selector.of(types=selection.get("types", ()))
    return np.array([selector.takes_type(name) for name in world.types])


def _relay(world: World, group: int) -> None:
    """The first node passes everything on to the last one, and so meets what the last one stated itself."""
    leaf = world.settings.nodes - 1
    shared = [course for course in world.courses if (course.sender, course.peer, course.group) == (0, leaf, group)]
    for feed in [course for course in world.courses if course.peer == 0 and course.group == group]:
        full = np.diff(np.searchsorted(feed.held, feed.edges)) > 0
        if not full.any():
            continue
        edges = np.append(feed.edges[:-1][full], feed.edges[-1])
        back = feed.source == leaf
        course = world.add(
            group=group,
            sender=0,
            source=feed.source,
            peer=leaf,
            rows=feed.held,
            held=feed.held[:0] if back else feed.held,
            edges=edges,
            last=last_of(feed.held, edges),
            sent=feed.recorded[full],
            recorded=feed.recorded[full],
            acked=feed.recorded[full],
            attempts=np.ones_like(feed.attempts[full]),
            version=np.ones_like(feed.version[full]),
            feed=feed,
            outcome=IN_PATH if back else DELIVERED,
        )
        shared.append(course)
    at_once(shared, Traffic(random_of(world.settings.seed, "relay", group)))
