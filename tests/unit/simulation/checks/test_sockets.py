"""The checks of WebSockets name a lost, repeated, changed or misplaced record, and only that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from eventd.simulation.checks.sockets import SocketReference
from eventd.simulation.load.sockets import PUBLISH, PUBLISHED, SOCKET, published_record
from eventd.simulation.world.journal import Asked, Journal, Restore
from eventd.simulation.world.web_socket import SocketMessage


def ack(first: int, seq: int) -> dict[str, Any]:
    return {"op": "ack", "request_id": first, "first_seq": seq, "count": 1, "deduped": False}


def records(*numbers: int, after: int = 0) -> dict[str, Any]:
    """Return a message with these records, from the seq after `after` on."""
    sent = [{"$seq": seq, "data": published_record(number)} for seq, number in enumerate(numbers, after + 1)]
    return {"op": "record", "from_seq": after, "to_seq": after + len(numbers), "records": sent}


EPOCH = "e-1"
CAUGHT_UP = {"op": "caught_up", "head_seq": 2}


def connection(
    *messages: dict[str, Any], at: float = 2.0, looks: bool = False, epoch: str | None = None, seconds: float = 0.5
) -> list[Asked]:
    """Return the entries of a connection on which batches 0 and 1 were sent; `epoch`: the one that the client names."""
    subscribed = {"op": "subscribed", "topics": {PUBLISHED: {"epoch": EPOCH}}}
    answer = [SocketMessage(at + 0.1, message) for message in (subscribed, *messages)]
    question = {"after": 0, "epoch": epoch, "sent": [0, 1], "looks": looks}
    acks = [each for each in messages if each["op"] == "ack"]
    published = [Asked(PUBLISH, "a", at, at + 0.1, 200, each["request_id"], each) for each in acks]
    return [*published, Asked(SOCKET, "a", at, at + seconds, 200, question, answer)]


def found(*connections: list[Asked], restores: Sequence[Restore] = ()) -> set[str]:
    changes = [(each.restored_at, "restore", each.host) for each in restores]
    journal = Journal([asked for each in connections for asked in each], changes, [*restores])
    return {each.invariant for each in SocketReference(journal, "a", 0.0).violations()}


WRITTEN = connection(ack(0, 1), ack(1, 2))


def look(*messages: dict[str, Any]) -> list[Asked]:
    return connection(*messages, at=5.0, looks=True)


def tombstone(epoch: str = EPOCH) -> dict[str, Any]:
    return {"op": "tombstone", "earliest_seq": 1, "epoch": epoch}


def test_what_was_published_and_is_there_once_violates_nothing() -> None:
    assert found(WRITTEN, look(records(0, 1), CAUGHT_UP)) == set()


@pytest.mark.parametrize(
    ("messages", "violation"),
    [
        ([records(0), {"op": "caught_up", "head_seq": 1}], "V3"),
        ([records(0, 0), CAUGHT_UP], "V5"),
        ([records(1, 0), CAUGHT_UP], "V7"),
        ([records(0, 1) | {"records": [{"$seq": 1, "data": {"number": 0}}, records(0, 1)["records"][1]]}], "V7"),
        ([records(0, 1, after=1), CAUGHT_UP], "V14"),
        ([records(0), CAUGHT_UP], "V14"),
        ([tombstone(), records(0, 1), CAUGHT_UP], "V10"),
    ],
)
def test_a_wrong_topic_is_named(messages: list[dict[str, Any]], violation: str) -> None:
    assert violation in found(WRITTEN, look(*messages))


def test_acknowledgements_out_of_order_are_named() -> None:
    assert found(connection(ack(1, 1), ack(0, 2))) == {"V6"}
    assert found(connection(ack(0, 2), ack(1, 1))) == {"V6"}


@pytest.mark.parametrize(
    ("messages", "violations"),
    [
        ([tombstone(), records(0, 1), CAUGHT_UP], set()),
        ([records(0, 1), CAUGHT_UP], {"V10"}),
        ([CAUGHT_UP | {"head_seq": 0}], {"V10"}),
        ([tombstone("e-0"), records(0, 1), CAUGHT_UP], {"V10"}),
    ],
)
def test_a_client_of_another_epoch_is_told_so_first(messages: list[dict[str, Any]], violations: set[str]) -> None:
    assert found(connection(*messages, epoch="e-0")) == violations


@pytest.mark.parametrize(("copied", "violations"), [(1.5, set()), (2.5, {"V3"})])
def test_a_restore_takes_what_the_copy_may_not_have(copied: float, violations: set[str]) -> None:
    nothing = look(CAUGHT_UP | {"head_seq": 0})
    assert found(WRITTEN, nothing, restores=[Restore("a", copied, 3.0)]) == violations


@pytest.mark.parametrize(
    ("messages", "seconds", "violations"),
    [
        ([records(0, 1), CAUGHT_UP], 9.0, set()),
        ([records(0), CAUGHT_UP | {"head_seq": 1}], 9.0, {"V14"}),
        ([records(0), CAUGHT_UP | {"head_seq": 1}], 3.0, set()),
        ([records(0)], 9.0, set()),
    ],
)
def test_what_is_acknowledged_and_not_sent_soon_is_named(
    messages: list[dict[str, Any]], seconds: float, violations: set[str]
) -> None:
    follower = connection(*messages, at=1.5, seconds=seconds)
    assert found(WRITTEN, follower) == violations
