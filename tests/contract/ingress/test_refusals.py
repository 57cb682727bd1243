"""The refusal counter: an attack costs a row a minute of each kind, and all counts are written at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventd.errors import EventdError
from eventd.ingress import refusal_counter as counting
from eventd.ingress.claimed_sender import NO_SENDER, ClaimedSender, claimed_sender_in
from eventd.ingress.refusal_counter import LOOK_SECONDS, ROW_SECONDS, RefusalCounter
from eventd.log.core.eventlog import EventLog
from eventd.store.engine.statements import fetch
from eventd.testing import NOW, ManualClock
from federation.keys import Key, KeyRing
from federation.peers import FROM_HEADER
from federation.signing import Head

SQL = "SELECT group_name, peer, key_id, reason, count, first_at, last_at FROM refusals ORDER BY id"
SECOND = 1_000_000


@pytest.fixture
def tally(clock: ManualClock) -> RefusalCounter:
    return RefusalCounter(clock)


async def test_a_kind_is_written_soon_and_then_once_a_minute(
    log: EventLog, clock: ManualClock, tally: RefusalCounter
) -> None:
    for _ in range(3):
        tally.note("g", "bad_signature", ClaimedSender("b", "k"))
    clock.advance(LOOK_SECONDS)
    await tally.write(log)
    first = ("g", "b", "k", "bad_signature", 3, NOW, NOW)
    assert await log.database.read(fetch, SQL) == [first]

    for _ in range(11):
        clock.advance(LOOK_SECONDS)
        tally.note("g", "bad_signature", ClaimedSender("b", "k"))
        await tally.write(log)
        assert len(await log.database.read(fetch, SQL)) == 1, "less than a minute after the first"
    clock.advance(LOOK_SECONDS)
    await tally.write(log)
    second = ("g", "b", "k", "bad_signature", 11, NOW + 10 * SECOND, NOW + 60 * SECOND)
    assert await log.database.read(fetch, SQL) == [first, second]


async def test_kinds_are_told_apart(log: EventLog, tally: RefusalCounter) -> None:
    tally.note("g", "x", NO_SENDER)
    tally.note("g", "y", NO_SENDER, 4)
    tally.note("h", "x", NO_SENDER)
    tally.note("g", "x", ClaimedSender("b"))
    await tally.write(log)
    found = [(group, peer, reason, times) for group, peer, _, reason, times, *_ in await log.database.read(fetch, SQL)]
    assert found == [("g", "", "x", 1), ("g", "", "y", 4), ("h", "", "x", 1), ("g", "b", "x", 1)]


async def test_at_the_end_all_is_written(log: EventLog, tally: RefusalCounter) -> None:
    tally.note("g", "x", NO_SENDER)
    await tally.write(log)
    tally.note("g", "x", NO_SENDER)
    await tally.write(log)
    assert len(await log.database.read(fetch, SQL)) == 1
    await tally.write(log, ends=True)
    assert [row[4] for row in await log.database.read(fetch, SQL)] == [1, 1]
    await tally.write(log, ends=True)
    assert len(await log.database.read(fetch, SQL)) == 2, "nothing more was refused"


async def test_what_could_not_be_written_is_written_later(
    log: EventLog, clock: ManualClock, tally: RefusalCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Down:
        async def submit(self, _unit: object) -> None:
            tally.note("g", "x", NO_SENDER)  # while it is tried
            raise EventdError("the database is away")

    tally.note("g", "x", NO_SENDER)
    await tally.write(Down())  # type: ignore[arg-type]
    clock.advance(1)
    await tally.write(log)
    assert await log.database.read(fetch, SQL) == [("g", "", "", "x", 2, NOW, NOW)]


async def test_a_full_disk_is_logged_once_a_minute_however_often_the_counts_are_tried(
    log: EventLog, clock: ManualClock, tally: RefusalCounter, caplog: pytest.LogCaptureFixture
) -> None:
    class Full:
        async def submit(self, _unit: object) -> None:
            raise EventdError("the disk is full")

    tally.note("g", "x", NO_SENDER)
    for _ in range(2 * round(ROW_SECONDS / LOOK_SECONDS)):
        await tally.write(Full())  # type: ignore[arg-type]
        clock.advance(LOOK_SECONDS)
    assert caplog.messages == ["storing refusals failed"] * 2
    await tally.write(log)
    assert [row[4] for row in await log.database.read(fetch, SQL)] == [1]


async def test_who_is_named_makes_no_kind_when_there_are_too_many(
    log: EventLog, clock: ManualClock, tally: RefusalCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in memory nor, minute by minute, in the table."""
    monkeypatch.setattr(counting, "MOST_KINDS", 3)
    for number in range(5):
        tally.note("g", "x", ClaimedSender(f"b{number}", "k"))
    await tally.write(log)
    for number in range(5, 9):
        tally.note("g", "x", ClaimedSender(f"b{number}", "k"))
    clock.advance(ROW_SECONDS)
    await tally.write(log)
    found = [(row[1], row[2], row[4]) for row in await log.database.read(fetch, SQL)]
    assert found == [("b0", "k", 1), ("b1", "k", 1), ("b2", "k", 1), ("?", "", 2), ("?", "", 4)]


# --- who it claims to be ---------------------------------------------------------------------------------------


@pytest.fixture
def ring() -> KeyRing:
    return KeyRing([Key.hmac("known", "0123456789abcdef0123456789abcdef")])


def _head(**headers: str) -> Head:
    return Head("POST", "/", {name.replace("_", "-"): value for name, value in headers.items()})


def test_only_names_that_are_known_are_taken_from_a_request(ring: KeyRing) -> None:
    def claim(node: str, key_id: str) -> ClaimedSender:
        head = Head("POST", "/", {FROM_HEADER: node, "signature-input": f'eventd=();created=1;keyid="{key_id}"'})
        return claimed_sender_in(head, {"b"}, lambda: ring)

    assert claim("b", "known") == ("b", "known")
    assert claim("invented", "guessed") == ("?", "")
    assert claimed_sender_in(_head(), {"b"}, lambda: ring) == NO_SENDER


def test_headers_may_be_pairs_and_keys_unreadable() -> None:
    def unreadable() -> KeyRing:
        raise EventdError("no such file")

    def pairs() -> Iterator[tuple[str, str]]:
        yield FROM_HEADER.upper(), "b"
        yield "Signature-Input", 'eventd=();keyid="known"'

    assert claimed_sender_in(Head("POST", "/", pairs()), {"b"}, unreadable) == ("b", "")
