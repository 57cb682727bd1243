"""The checks of callbacks name an event that was not accepted, a changed message, a wrong order and a lost callback."""

from __future__ import annotations

import json
from collections.abc import Sequence

from eventd.simulation.checks.callbacks import CallbackReference
from eventd.simulation.load.callbacks import CALLBACK_LETTERS, MESSAGE, REFUSALS
from eventd.simulation.world.journal import Asked, Journal, Restore
from eventd.simulation.world.receiver import ReceivedMessage

DECLARED = Asked("callback", "a", 0.1, 0.2, 200, {"text": '{"inFlight":1}'}, None)


def message(name: str, *, status: int = 200, at: float = 1.0, of: str = "", text: str = "") -> Asked:
    """Return a message with one event, whose id is `of` or its event's."""
    body = json.dumps({"id": name, "type": "door.open", "data": {"text": text}}).encode()
    return Asked(MESSAGE, "a", at, at, status, ReceivedMessage(at, {"webhook-id": of or name}, body), None)


def found(
    *asked: Asked, letters: tuple[str, ...] = (), letters_status: int = 200, restores: Sequence[Restore] = ()
) -> list[str]:
    """Return the invariants that are violated at a node with the events x and y."""
    events = [{"id": name, "type": "door.open"} for name in "xy"]
    shown = {"deadLetters": [{"eventId": name} for name in letters]}
    ends = [
        Asked(CALLBACK_LETTERS, "a", 5.0, 5.1, letters_status, None, shown),
        Asked("listing", "a", 5.0, 5.1, 200, None, events),
    ]
    emitted = {"events": [event | {"payload": {"text": ""}} for event in events]}
    emit = Asked("emit", "a", 0.3, 0.4, 200, emitted, {"results": []})
    return [
        each.invariant
        for each in CallbackReference(Journal([emit, *asked, *ends], restores=[*restores]), "a", 0.0).violations()
    ]


def test_events_that_are_accepted_in_order_violate_nothing() -> None:
    assert found(DECLARED, message("x"), message("x"), message("y")) == []


def test_an_event_that_was_refused_often_enough_may_be_a_dead_letter() -> None:
    refused = [message("x", status=422)] * REFUSALS
    assert found(DECLARED, *refused, message("y"), letters=("x",)) == []
    assert found(DECLARED, *refused[1:], message("y"), letters=("x",)) == ["V11"]


def test_an_event_that_was_not_accepted_is_named() -> None:
    assert found(DECLARED, message("x"), message("y", status=503)) == ["V11"]


def test_a_message_that_changes_is_named() -> None:
    assert found(DECLARED, message("x"), message("x", text="other"), message("y")) == ["V11", "V7"]
    assert found(DECLARED, message("x"), message("x", of="another"), message("y")) == ["V11"]


def test_a_gap_without_a_loss_is_named() -> None:
    assert found(DECLARED, message("x"), message("y"), message("gap_1")) == ["V11"]


def test_a_later_event_that_was_accepted_first_is_named() -> None:
    assert found(DECLARED, message("y"), message("x")) == ["V11"]


def test_a_callback_that_was_refused_or_lost_is_named() -> None:
    assert found(Asked("callback", "a", 0.1, 0.2, 422, {}, None)) == ["V11"]
    assert "V3" in found(DECLARED, message("x"), message("y"), letters_status=404)


def test_a_message_that_says_something_else_than_was_emitted_is_named() -> None:
    assert found(DECLARED, message("x", text="other"), message("y")) == ["V7"]


def test_events_that_a_restore_took_may_be_sent_again_at_other_places() -> None:
    lost = [message("y", at=0.5), message("x", at=2.0), message("y", at=2.1)]
    assert found(DECLARED, *lost, restores=[Restore("a", 0.3, 1.0)]) == []
    assert found(DECLARED, *lost, restores=[Restore("a", 0.3, 0.4)]) == ["V11"]
    assert found(DECLARED, message("y", at=2.0), message("x", at=2.1), restores=[Restore("a", 0.3, 1.0)]) == ["V11"]


def test_a_callback_that_a_restore_may_have_taken_is_declared_again() -> None:
    renewed = Asked("callback", "a", 3.0, 3.1, 200, {"text": '{"inFlight":1}'}, None)
    unknown = Asked(CALLBACK_LETTERS, "a", 2.0, 2.1, 404, None, None)
    sent = message("x", at=3.5), message("y", at=3.6)
    assert found(DECLARED, unknown, renewed, *sent, restores=[Restore("a", 0.15, 1.0)]) == []
    assert "V3" in found(DECLARED, unknown, renewed, *sent, restores=[Restore("a", 0.25, 1.0)])
