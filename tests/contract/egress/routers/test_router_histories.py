"""Random trees and meshes of routers, writes, crashes and full destinations: each copy once, each source in order."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventd.egress.routers.projection import Guarantee
from eventd.log.core.eventlog import EventLog
from eventd.log.topics.topics import DeleteTopic
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.routed import RoutedTopics

TAGS = ("x", "y")
TOPICS = 5
names = (f"p{number}" for number in itertools.count())
numbers = itertools.count()


@pytest.fixture
async def routed(log: EventLog) -> AsyncIterator[RoutedTopics]:
    opened = RoutedTopics(log)
    await opened.start()
    yield opened
    await opened.stop()


@dataclass
class Edge:
    """A router from one topic to another, by their numbers."""

    source: int
    dest: int
    options: dict[str, Any] = field(default_factory=dict)

    def passes(self, tag: str) -> bool:
        chosen = self.options.get("filter")
        return chosen is None or chosen[2] == tag


@dataclass
class World:
    """Topics and routers as they are, and all that was seen in each topic, in order: number, tag."""

    routed: RoutedTopics
    prefix: str
    edges: list[Edge]
    full: frozenset[int]
    written: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    seen: dict[int, list[tuple[int, str]]] = field(default_factory=dict)

    def name(self, topic: int) -> str:
        return f"{self.prefix}-{topic}"

    async def build(self) -> None:
        for topic in range(TOPICS):
            config = {"cap_records": 2, "discard": "reject"} if topic in self.full else {}
            await self.routed.make(self.name(topic), **config)
        for edge in self.edges:
            await self.routed.route(f"{self.name(edge.source)}->{self.name(edge.dest)}", **edge.options)

    async def step(self, what: str, how: Any) -> None:
        if what == "write":
            topic, tags = how
            if topic not in self.full:
                await self.write(topic, tags)
        elif what == "die":
            steps, heard = how
            await self.routed.stop()
            await self.routed.start(steps=steps, heard=heard)
        elif what == "read":
            await self.routed.settled(self.name(how))
        else:
            await self.free()

    async def write(self, topic: int, tags: list[str]) -> None:
        batch = [(next(numbers), tag) for tag in tags]
        await self.routed.add(self.name(topic), [{"data": number, "tag": tag} for number, tag in batch])
        self.written.setdefault(topic, []).extend(batch)

    async def free(self) -> int:
        """Look at what is in the topics that may be full, and take it out; how much it was."""
        taken = 0
        for topic in self.full:
            records = await self.routed.records(self.name(topic))
            if records:
                self.seen.setdefault(topic, []).extend((record["data"], record["$tag"]) for record in records)
                await self.routed.delete(self.name(topic), before=records[-1]["$seq"] + 1)
                line = next(edge for edge in self.edges if edge.dest == topic)
                declared = await self.routed.line(f"{self.name(line.source)}->{self.name(line.dest)}")
                self.routed.log.wakeups.touch(declared.dest_id)
                taken += len(records)
        return taken

    async def end(self) -> None:
        """Let everything arrive that is on its way."""
        await self.routed.stop()
        await self.routed.start()
        while await self.free():
            pass
        for topic in set(range(TOPICS)) - self.full:
            records = await self.routed.records(self.name(topic))
            self.seen[topic] = [(record["data"], record["$tag"]) for record in records]
            assert [record["$seq"] for record in records] == [*range(1, len(records) + 1)]

    async def remove(self) -> None:
        for topic in range(TOPICS):
            await self.routed.log.submit(DeleteTopic(self.name(topic)))
        assert self.routed.routing is not None
        await self.routed.routing.load()

    def of(self, topic: int) -> list[tuple[int, str]]:
        return self.seen.get(topic, [])

    def reach(self, topic: int) -> set[int]:
        """The topics whose records get to a topic."""
        found, waiting = {topic}, [topic]
        while waiting:
            at = waiting.pop()
            more = {edge.source for edge in self.edges if edge.dest == at} - found
            found |= more
            waiting += more
        return found


options = st.fixed_dictionaries(
    {},
    optional={
        "filter": st.sampled_from([("tag", "Eq", tag) for tag in TAGS]),
        "guarantee": st.sampled_from([*Guarantee]),
        "preserve_node": st.booleans(),
    },
)
steps = st.one_of(
    st.tuples(
        st.just("write"), st.tuples(st.integers(0, TOPICS - 1), st.lists(st.sampled_from(TAGS), min_size=1, max_size=5))
    ),
    st.tuples(st.just("write"), st.tuples(st.just(0), st.lists(st.sampled_from(TAGS), min_size=1, max_size=5))),
    st.tuples(st.just("die"), st.tuples(st.integers(0, 4), st.booleans())),
    st.tuples(st.just("read"), st.integers(0, TOPICS - 1)),
    st.tuples(st.just("free"), st.none()),
)


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[Edge], frozenset[int]]:
    """Each topic but the first has one source; some of those without routers may be full."""
    edges = [Edge(draw(st.integers(0, dest - 1)), dest, draw(options)) for dest in range(1, TOPICS)]
    leaves = sorted({edge.dest for edge in edges} - {edge.source for edge in edges})
    return edges, frozenset(draw(st.sets(st.sampled_from(leaves))))


@st.composite
def meshes(draw: st.DrawFn) -> list[Edge]:
    """Any routers between any topics, all of which keep identities."""
    pairs = [(source, dest) for source in range(TOPICS) for dest in range(TOPICS) if source != dest]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, min_size=3, max_size=12))
    return [Edge(source, dest, {"fan_in": True}) for source, dest in chosen]


rounds = settings(
    max_examples=settings.default.max_examples // 2, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@BOTH_DATABASES
@rounds
@given(tree=trees(), history=st.lists(steps, min_size=4, max_size=14))
async def test_in_any_tree_each_copy_is_made_once_and_in_order(
    routed: RoutedTopics, tree: tuple[list[Edge], frozenset[int]], history: list[tuple[str, Any]]
) -> None:
    world = World(routed, next(names), *tree)
    await world.build()
    for what, how in history:
        await world.step(what, how)
    await world.end()
    for topic in range(TOPICS):
        source = next((edge for edge in world.edges if edge.dest == topic), None)
        own = world.written.get(topic, [])
        copied = [] if source is None else [each for each in world.of(source.source) if source.passes(each[1])]
        assert sorted(world.of(topic)) == sorted([*own, *copied])
        for line in (own, copied):
            among = set(line)
            assert [each for each in world.of(topic) if each in among] == line
    await world.remove()


@BOTH_DATABASES
@rounds
@given(edges=meshes(), history=st.lists(steps, min_size=4, max_size=14))
async def test_in_any_mesh_of_identities_each_topic_has_each_record_once_and_in_order(
    routed: RoutedTopics, edges: list[Edge], history: list[tuple[str, Any]]
) -> None:
    world = World(routed, next(names), edges, frozenset())
    await world.build()
    for what, how in history:
        await world.step(what, how)
    await world.end()
    for topic in range(TOPICS):
        writers = world.reach(topic)
        wanted = sorted(each for writer in writers for each in world.written.get(writer, []))
        assert sorted(world.of(topic)) == wanted
        for writer in writers:
            among = set(world.written.get(writer, []))
            assert [each for each in world.of(topic) if each in among] == world.written.get(writer, [])
    await world.remove()
