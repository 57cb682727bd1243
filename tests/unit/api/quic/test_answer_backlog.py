"""Answers that a client does not read are counted over all streams of its connection."""

from __future__ import annotations

from eventd.api.quic.answer_backlog import AnswerBacklog
from tests.support.stream_channels import MemoryChannel, MemoryLink


def channels(*sizes: int) -> list[MemoryChannel]:
    """Return streams on which so many bytes are unsent."""
    found = []
    for size in sizes:
        channel = MemoryChannel(MemoryLink())
        channel.unsent = size
        found.append(channel)
    return found


def test_those_of_all_streams_count_until_they_are_sent() -> None:
    unread = AnswerBacklog(1 << 20)
    first, second = channels(700_000, 400_000)
    unread.note(first)
    assert not unread.is_over
    unread.note(second)
    assert unread.is_over
    second.unsent = 300_000
    unread.check()
    assert not unread.is_over


def test_a_stream_that_waits_is_woken_once_there_is_room() -> None:
    unread = AnswerBacklog(1 << 20)
    woken: list[str] = []
    (channel,) = channels(2 << 20)
    unread.note(channel)
    wakes = [lambda: woken.append("a"), lambda: woken.append("b")]
    for wake in wakes:
        unread.wait(wake)
    unread.leave(wakes[1])
    unread.check()
    assert woken == []
    channel.unsent = 0
    unread.check()
    unread.check()
    assert woken == ["a"]
