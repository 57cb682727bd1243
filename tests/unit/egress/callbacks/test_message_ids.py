"""Ids of messages: equal for every attempt at a message, and different for different messages."""

from __future__ import annotations

from eventd.egress.callbacks.formats import BATCH, RECORDS, STANDARD, CallbackItem, gap_id, message_id
from eventd.log.core.losses import CAP, TTL, Loss


def items(*positions: int) -> list[CallbackItem]:
    return [CallbackItem(at, at, 0, f"e{at}", f"m{at}", "{}") for at in positions]


def test_a_message_of_one_event_has_the_id_of_the_event_at_every_callback() -> None:
    assert {message_id(items(3), STANDARD, epoch, name) for epoch in ("x", "y") for name in ("a", "b")} == {"m3"}


def test_a_batch_has_an_id_of_its_own_at_each_callback() -> None:
    first = (items(1, 3), BATCH, "epoch", "a")
    others = [
        (items(1, 2, 3), BATCH, "epoch", "a"),
        (items(1), BATCH, "epoch", "a"),
        (items(1, 3), RECORDS, "epoch", "a"),
        (items(1, 3), BATCH, "other", "a"),
        (items(1, 3), BATCH, "epoch", "b"),
    ]
    assert message_id(*first) == message_id(*first)
    assert len({message_id(*first), *(message_id(*other) for other in others)}) == 1 + len(others)


def test_a_report_of_losses_has_an_id_of_its_own_at_each_callback() -> None:
    first = ([Loss(1, 3, CAP), Loss(5, 6, TTL)], "epoch", "a")
    others = [
        ([Loss(1, 4, CAP), Loss(5, 6, TTL)], "epoch", "a"),
        ([Loss(1, 3, CAP), Loss(5, 7, TTL)], "epoch", "a"),
        ([Loss(2, 3, CAP), Loss(5, 6, TTL)], "epoch", "a"),
        ([Loss(1, 3, CAP), Loss(5, 6, TTL)], "other", "a"),
        ([Loss(1, 3, CAP), Loss(5, 6, TTL)], "epoch", "b"),
    ]
    assert gap_id(*first) == gap_id(*first)
    assert len({gap_id(*first), *(gap_id(*other) for other in others)}) == 1 + len(others)
