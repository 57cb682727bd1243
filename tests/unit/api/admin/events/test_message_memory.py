"""The memory of unanswered messages: the first step is free, the rest is reserved, and gives way if allowed."""

from __future__ import annotations

import pytest

from eventd.api.admin.events.message_memory import EVENT_BYTES, MessageMemory
from eventd.api.bodies.bodies import BodyMemory, BodyReservation
from eventd.log.topics.errors import Throttled

MIB = 1 << 20


@pytest.fixture
def bodies() -> BodyMemory:
    memory = BodyMemory(1)
    memory.most = 4 * MIB
    return memory


def test_tiny_events_reserve_memory_and_a_message_that_finds_none_is_short(bodies: BodyMemory) -> None:
    first, second = MessageMemory(bodies, b"a"), MessageMemory(bodies, b"a")
    tiny = 5_000 * EVENT_BYTES
    assert first.find_shortage(tiny) is None
    first.use(tiny)
    assert bodies.held == tiny
    assert isinstance(second.find_shortage(tiny), Throttled)
    assert second.find_shortage(100 * EVENT_BYTES) is None, "a few events need no reservation"
    first.free(tiny)
    assert bodies.held == 0
    assert second.find_shortage(tiny) is None


def test_what_a_client_does_not_read_gives_way_to_another_key(bodies: BodyMemory) -> None:
    ended: list[bool] = []
    memory = MessageMemory(bodies, b"a")
    assert memory.find_shortage(3 * MIB) is None
    memory.use(3 * MIB)
    with pytest.raises(Throttled):
        BodyReservation(bodies, b"b").grow_to(2 * MIB)
    memory.allow_giving_way(lambda: ended.append(True))
    BodyReservation(bodies, b"b").grow_to(2 * MIB)
    assert (ended, bodies.held) == ([True], 2 * MIB)
