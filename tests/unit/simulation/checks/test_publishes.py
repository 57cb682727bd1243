"""The check of publishing connections names messages that were stored in another order, and only these."""

from __future__ import annotations

import pytest

from eventd.simulation.checks.publishes import PublishReference
from eventd.simulation.load.publishes import PATH
from eventd.simulation.world.journal import Asked, Journal, Restore


def message(connection: int, *ids: str, result: str = "new") -> Asked:
    """Return the entry of a message that was answered."""
    answer = {"results": [{"id": each, "result": result, "event": {}} for each in ids]}
    return Asked("emit", "a", 1.0, 2.0, 200, {"events": []}, answer, path=f"{PATH} {connection}")


def listing(*ids: str) -> Asked:
    return Asked("listing", "a", 5.0, 6.0, 200, None, [{"id": each} for each in ids])


def found(*asked: Asked, restores: tuple[Restore, ...] = ()) -> set[str]:
    journal = Journal([*asked], restores=[*restores])
    return {each.invariant for each in PublishReference(journal, "a", 0.0).violations()}


@pytest.mark.parametrize("order", ["1 2 3", "3 1 2"])
def test_the_messages_of_a_connection_are_in_their_order_and_others_may_be_anywhere(order: str) -> None:
    assert found(message(1, "1"), message(1, "2"), message(2, "3"), listing(*order.split())) == set()


def test_a_message_before_an_earlier_one_of_its_connection_is_named() -> None:
    assert found(message(1, "1"), message(1, "2"), listing("2", "1")) == {"V6"}


def test_a_message_that_was_stored_before_says_nothing_about_the_order() -> None:
    assert found(message(1, "1"), message(1, "2", result="duplicate"), listing("2", "1")) == set()


def test_after_a_restore_the_order_is_not_checked() -> None:
    asked = message(1, "1"), message(1, "2"), listing("2", "1")
    assert found(*asked, restores=(Restore("a", 0.5, 3.0),)) == set()
