"""Epochs in lists of a topic: a new one has a reason."""

from __future__ import annotations

from eventd.simulation.checks.topics import TopicReference
from eventd.simulation.load.topic_list import LISTING
from eventd.simulation.world.journal import Asked, Journal, Restore

PATH = "memory-records"


def found(*epochs: str, restores: int = 0, changes: tuple[tuple[float, str, str], ...] = ()) -> list[str]:
    """Return which invariants are violated by lists of a topic, one a second, of these epochs; restores precede all."""
    asked = [
        Asked(LISTING, "a", at, at + 0.1, 200, None, {"epoch": f"{epoch}:1", "records": [], "head_seq": 0}, path=PATH)
        for at, epoch in enumerate(epochs, 1)
    ]
    journal = Journal(asked, [*changes])
    journal.restores.extend([Restore("a", 0.0, 0.5)] * restores)
    return [each.invariant for each in TopicReference(journal, "a", 0.0).violations()]


def test_a_new_epoch_needs_a_reason() -> None:
    assert found("one", "one") == []
    assert found("one", "two") == ["V16"]
    assert found("one", "two", changes=((1.5, "power", "a"),)) == []
    assert found("one", "two", changes=((1.5, "epoch", "a"),)) == []
    assert found("one", "two", changes=((1.5, "epoch", "b"),)) == ["V16"]


def test_a_restore_may_be_noticed_later_and_once() -> None:
    assert found("one", "two", restores=1) == []
    assert found("one", "two", "three", restores=1) == ["V16"]
    assert found("one", "two", "three", restores=2) == []
