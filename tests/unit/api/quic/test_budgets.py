"""The memory of clients' frames is counted for each connection and for all."""

from __future__ import annotations

from collections.abc import Callable

from eventd.api.quic.budgets import CONNECTION_FULL, LISTENER_FULL, ListenerBudget
from eventd.api.quic.context import LinkPause


class Turns:
    """The end of a turn of the loop, as a test decides."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def end(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def budget(turns: Turns | None = None) -> ListenerBudget:
    """Return a budget of 100 bytes, with frames of 10."""
    return ListenerBudget(100, 10, (turns or Turns()).soon)


def test_a_publish_is_refused_while_other_bytes_are_over_the_limit() -> None:
    connection = budget().open(20)
    connection.take(25)
    assert connection.find_refusal(5) == ""
    assert connection.find_refusal(4) == CONNECTION_FULL
    connection.give(1)
    assert connection.find_refusal(4) == ""


def test_the_bytes_of_all_connections_are_limited_together() -> None:
    listener = budget()
    first, second = listener.open(80), listener.open(80)
    first.take(60)
    second.take(50)
    assert second.find_refusal(9) == LISTENER_FULL
    assert second.find_refusal(10) == ""
    first.give(60)
    assert second.find_refusal(0) == ""
    assert listener.used == 50


def test_one_frame_more_than_the_limit_is_too_much() -> None:
    listener = budget()
    connection = listener.open(20)
    connection.take(30)
    assert not connection.is_exceeded
    connection.take(1)
    assert connection.is_exceeded
    other = listener.open(100)
    other.take(79)
    assert not listener.is_exceeded
    other.take(1)
    assert listener.is_exceeded


def test_those_that_wait_are_woken_once_in_their_order() -> None:
    turns = Turns()
    listener = budget(turns)
    connection = listener.open(20)
    woken: list[str] = []
    wakes: dict[str, Callable[[], None]] = {
        name: lambda name=name: woken.append(name) for name in ("a", "b", "c")  # type: ignore[misc]
    }  # fmt: skip
    for wake in wakes.values():
        connection.wait(wake)
    connection.leave(wakes["b"])
    connection.take(2)
    assert turns.calls == []
    connection.give(1)
    connection.give(1)
    assert woken == []
    turns.end()
    assert woken == ["a", "c"]
    connection.give(0)
    turns.end()
    assert woken == ["a", "c"]


class Link:
    """A connection that can be paused."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")


def test_a_connection_is_paused_as_long_as_any_publish_waits() -> None:
    link, turns = Link(), Turns()
    pause = LinkPause(link, turns.soon)
    pause.begin()
    pause.begin()
    pause.end()
    turns.end()
    assert link.calls == ["pause"]
    pause.end()
    pause.begin()
    turns.end()
    assert link.calls == ["pause"], "it waits again in the same turn"
    pause.end()
    turns.end()
    assert link.calls == ["pause", "resume"]
