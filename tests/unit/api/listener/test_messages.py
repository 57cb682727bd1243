"""Messages of WebSocket clients hold memory from their first byte until they are handled, and have to arrive
in time."""

from __future__ import annotations

import pytest

from eventd.api.bodies.bodies import BodyMemory
from eventd.api.errors.codes import SlowBody
from eventd.api.listener import messages as under_test
from eventd.api.listener.masking import MaskedFrames
from eventd.api.listener.messages import IncomingMessages
from eventd.errors import EventdError
from eventd.log.topics.errors import Throttled
from eventd.testing import until

KIB, MIB = 1 << 10, 1 << 20


class Reader:
    """Counts what it is given."""

    def __init__(self) -> None:
        self.size = 0

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.size += len(data)
        return False, b""

    def feed_eof(self) -> None: ...


class Client:
    """A WebSocket client of one key, as far as its bytes have arrived."""

    def __init__(self, bodies: BodyMemory, key: bytes = b"one") -> None:
        self.messages = IncomingMessages(bodies, key, 4 * MIB)
        self.reader = Reader()
        self.refusals: list[EventdError] = []
        self.messages.attend(self.refusals.append)
        self._frames = MaskedFrames(self.reader, self.messages)

    def send(self, size: int, *, opcode: int = 1, last: bool = True, of: int = 0) -> None:
        """A frame with so many bytes, which promises `of` of them."""
        head = bytes([opcode | (0x80 if last else 0), 0xFF]) + (of or size).to_bytes(8, "big") + bytes(4)
        self.feed(head + bytes(size))

    def feed(self, data: bytes) -> None:
        self._frames.feed_data(data)


@pytest.fixture
def bodies() -> BodyMemory:
    bodies = BodyMemory(64 * MIB)
    bodies.most = 4 * MIB
    return bodies


async def test_a_frame_that_never_ends_holds_its_room_until_its_connection_ends(bodies: BodyMemory) -> None:
    client = Client(bodies)
    client.send(10, of=3 * MIB)
    assert bodies.held == 3 * MIB
    other = Client(bodies)
    other.send(100 * KIB, of=2 * MIB)
    assert isinstance(other.refusals[0], Throttled)
    taken = other.reader.size
    other.feed(bytes(MIB))
    assert (other.reader.size, len(other.refusals)) == (taken, 1), "nothing more is read of it"
    client.messages.close()
    other.messages.close()
    assert bodies.held == 0


async def test_fragments_of_one_message_count_together(bodies: BodyMemory) -> None:
    client = Client(bodies)
    client.send(60 * KIB, last=False)
    assert bodies.held == 0, "small ones count nothing"
    for number in range(1, 51):
        client.send(60 * KIB, opcode=0, last=False)
        client.send(100, opcode=9)  # a ping between fragments is no part of the message
        assert bodies.held == 60 * KIB * (number + 1)
    client.messages.close()
    assert bodies.held == 0


@pytest.mark.parametrize("piece", [1, 100_000, 1 << 30])
async def test_a_message_holds_its_room_until_it_is_handled(bodies: BodyMemory, piece: int) -> None:
    client = Client(bodies)
    large = bytes([0x81, 0xFF]) + (100_000).to_bytes(8, "big") + bytes(4 + 100_000)
    small = bytes([0x81, 0x85]) + bytes(4 + 5)
    stream = small + large + small + large
    for at in range(0, len(stream), piece):
        client.feed(stream[at : at + piece])
    assert bodies.held == 200_000
    held = []
    for _ in range(4):
        held.append(client.messages.take())
        client.messages.handled()
    assert [each is not None for each in held] == [False, True, False, True]
    assert bodies.held == 200_000
    client.messages.release(held[1])
    assert bodies.held == 100_000
    client.messages.release(held[3])
    assert bodies.held == 0


def split_ping(size: int = 10) -> tuple[bytes, bytes]:
    """A ping as it arrives in two reads."""
    ping = bytes([0x89, 0x80 | size]) + bytes(4 + size)
    return ping[:8], ping[8:]


async def test_a_split_control_frame_does_not_hide_the_end_of_the_message_before_it(bodies: BodyMemory) -> None:
    """The library delivers the message before the rest of the control frame arrives."""
    client = Client(bodies)
    large = bytes([0x81, 0xFF]) + MIB.to_bytes(8, "big") + bytes(4 + MIB)
    begin, rest = split_ping()
    for _ in range(3):
        client.feed(large + begin)
        held = client.messages.take()
        assert held is not None
        client.messages.handled()
        client.messages.release(held)
        client.feed(rest)
        assert bodies.held == 0
    client.messages.close()


async def test_a_split_control_frame_between_fragments_does_not_end_their_message(bodies: BodyMemory) -> None:
    client = Client(bodies)
    begin, rest = split_ping()
    client.send(MIB, last=False)
    client.feed(begin)
    assert client.messages.take() is None
    client.feed(rest)
    client.send(MIB, opcode=0)
    assert bodies.held == 2 * MIB
    client.messages.release(client.messages.take())
    assert bodies.held == 0


async def test_a_message_that_was_missed_does_not_keep_later_ones_from_being_released(bodies: BodyMemory) -> None:
    client = Client(bodies)
    client.messages.handled()  # before its end is seen
    client.send(MIB)
    client.send(2 * MIB)
    held = client.messages.take()
    assert (bodies.held, held and held.bytes) == (2 * MIB, 2 * MIB)
    client.messages.release(held)
    assert bodies.held == 0


async def test_a_connection_that_has_ended_takes_no_room(bodies: BodyMemory) -> None:
    """The library reads on while it waits for the client to close."""
    client = Client(bodies)
    client.send(MIB)
    client.send(10, of=MIB)
    client.messages.close()
    assert bodies.held == 0
    client.feed(bytes(MIB - 10))
    client.feed(b"".join(split_ping()))
    client.send(10, of=3 * MIB)
    assert (bodies.held, client.messages._deadline) == (0, None)
    client.messages.close()
    assert (bodies.held, client.refusals) == (0, [])


async def test_a_message_that_waits_for_its_client_to_read_the_answer_gives_way_again(bodies: BodyMemory) -> None:
    client = Client(bodies)
    client.send(3 * MIB)
    taken = client.messages.take()
    with bodies.hold(b"two") as held:
        with pytest.raises(Throttled):
            held.grow_to(2 * MIB)
        client.messages.allow_giving_way(taken)
        held.grow_to(2 * MIB)
        assert (bodies.held, len(client.refusals)) == (2 * MIB, 1)
        client.messages.release(taken)
        assert bodies.held == 2 * MIB, "it is released once"


@pytest.mark.parametrize("size", [10, 3 * MIB], ids=["arriving", "waiting"])
async def test_a_message_gives_way_to_another_key_until_it_is_handled(bodies: BodyMemory, size: int) -> None:
    client, handled = Client(bodies), Client(bodies)
    handled.send(MIB)
    taken = handled.messages.take()
    client.send(size, of=3 * MIB)
    with bodies.hold(b"two") as held:
        held.grow_to(MIB)
        assert [str(error) for error in client.refusals] == [
            "the memory for this body is needed by another key: retry later"
        ]
        assert (bodies.held, handled.refusals) == (2 * MIB, [])
        with pytest.raises(Throttled, match="are in use"):
            held.grow_to(4 * MIB)
    handled.messages.release(taken)
    for each in (client, handled):
        each.messages.close()
    assert bodies.held == 0


@pytest.mark.parametrize("last", [True, False], ids=["within a frame", "between fragments"])
async def test_a_message_that_does_not_end_is_refused(
    bodies: BodyMemory, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    monkeypatch.setattr(under_test, "BODY_SECONDS", 0.05)
    idle, client, busy = Client(bodies), Client(bodies), Client(bodies)
    idle.send(10)
    idle.messages.take()
    idle.messages.handled()
    busy.send(10)
    busy.send(10, of=20)
    client.send(10, last=last, of=20 if last else 10)
    await until(lambda: bool(client.refusals), "the unfinished message to be refused")
    assert isinstance(client.refusals[0], SlowBody)
    assert not idle.refusals, "a client that has begun nothing may rest"
    assert not busy.refusals, "while an earlier message is handled, the node itself may not read"
    busy.messages.take()
    busy.messages.handled()
    await until(lambda: bool(busy.refusals), "it to be refused as well")
    for each in (idle, client, busy):
        each.messages.close()
