"""Everything that is decided before a line is written, in the order in which one thing follows from the other."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from eventd.audit.generate.batches import batch_ids, id_of
from eventd.audit.generate.courses import Course
from eventd.audit.generate.faults import Planted, expire_some, plant
from eventd.audit.generate.mixing import Ints, random_of
from eventd.audit.generate.numbering import number_all
from eventd.audit.generate.routes import connect_all
from eventd.audit.generate.settings import Settings, check
from eventd.audit.generate.world import World
from eventd.audit.report.findings import Fact, Finding, group_findings
from eventd.errors import Invalid


def plan(settings: Settings) -> tuple[World, list[Planted]]:
    """The federation, and what is hidden in it. Raises Invalid for settings that cannot be."""
    world = World(check(settings))
    expire_some(world)
    connect_all(world)
    hidden = plant(world)
    shipping = [node for node in range(settings.nodes) if node not in world.silent]
    for node in random_of(settings.seed, "epochs").permutation(shipping)[: settings.epoch].tolist():
        world.turns[node] = _quiet_moment(world, node)
    number_all(world)
    return world, hidden


def findings_of(world: World, hidden: Iterable[Planted]) -> list[Finding]:
    """What an audit has to find of it."""
    return group_findings(_fact(world, planted) for planted in hidden)


def _fact(world: World, planted: Planted) -> Fact:
    history = world.histories[planted.source]
    parts = (world.groups[planted.group], world.names[history.node], world.names[planted.peer])
    if planted.number is None:
        name = str(batch_ids(world, planted.course)[planted.batch].tobytes(), "ascii")
        return Fact(planted.kind, *parts, 0, name, planted.detail)
    commit = history.commit_of(planted.number)
    seq = 0 if history.ghost else int(history.seq[commit] + planted.number - history.first[commit])
    return Fact(planted.kind, *parts, seq, id_of(world, planted.source, planted.number), planted.detail)


def _quiet_moment(world: World, node: int) -> int:
    """A true time when nothing of the node's was on its way: it was stopped, copied, and started from the copy."""
    settings = world.settings
    begun, done = [], []
    for course in world.courses:
        if node in (course.sender, course.peer):
            begun.append(_stated(world, course))
            done.append(course.acked)
    first = np.concatenate(begun)
    order = np.argsort(first, kind="stable")
    latest = np.maximum.accumulate(np.concatenate(done)[order])
    share = random_of(settings.seed, "turn", node).uniform(0.3, 0.7, 20_000)
    tried = settings.start + (share * settings.span).astype(np.int64)
    before = np.searchsorted(first[order], tried, "right") - 1
    free = tried[(before >= 0) & (latest[before] + 1_000 < tried)]
    if not len(free):
        raise Invalid("no node is ever idle, so none can be restored from a back-up", hint="give a longer --span")
    return int(free[0])


def _stated(world: World, course: Course) -> Ints:
    """When the first event of each batch was recorded by who sends it."""
    if course.feed is not None or not len(course.rows):
        return course.sent
    history = world.histories[course.source]
    first = course.rows[np.minimum(np.searchsorted(course.rows, course.edges[:-1]), len(course.rows) - 1)]
    return np.minimum(course.sent, history.at[np.searchsorted(history.first, first, "right") - 1])
