"""Answers of a stream leave in the order of their requests."""

from __future__ import annotations

from eventd.api.quic.answers import AnswerQueue
from tests.support.stream_channels import MemoryChannel, MemoryLink


class Queue(AnswerQueue):
    """A queue over a stream in memory, which notes its end."""

    def __init__(self) -> None:
        self.channel = MemoryChannel(MemoryLink())
        self.ends = 0
        super().__init__(self.channel, self._end)

    def _end(self) -> None:
        self.ends += 1

    @property
    def sent(self) -> bytes:
        return bytes(self.channel.sent)


def test_an_answer_waits_for_those_before_it() -> None:
    queue = Queue()
    first, second = queue.reserve(), queue.reserve()
    queue.fill(second, b"2")
    assert not queue.flush()
    assert queue.sent == b""
    queue.fill(first, b"1")
    assert queue.flush()
    assert queue.sent == b"12"
    assert len(queue) == 0


def test_answers_that_are_known_leave_up_to_the_first_that_is_not() -> None:
    queue = Queue()
    queue.add(b"1")
    waiting = queue.reserve()
    queue.add(b"3")
    assert queue.flush()
    assert (queue.sent, len(queue), queue.ready_bytes) == (b"1", 2, 1)
    queue.fill(waiting, b"2")
    queue.flush()
    assert (queue.sent, queue.ready_bytes) == (b"123", 0)


def test_nothing_follows_the_last_answer() -> None:
    queue = Queue()
    waiting = queue.reserve()
    queue.add(b"end", ends=True)
    late = queue.reserve()
    queue.fill(late, b"late")
    queue.flush()
    assert queue.ends == 0
    queue.fill(waiting, b"1")
    queue.flush()
    assert (queue.sent, queue.channel.has_ended, queue.ends) == (b"1end", True, 1)
    assert not queue.flush()


def test_a_stream_may_end_without_a_last_word() -> None:
    queue = Queue()
    queue.add(b"", ends=True)
    queue.flush()
    assert (queue.sent, queue.channel.has_ended, queue.ends) == (b"", True, 1)


def test_what_follows_an_answer_begins_once_it_is_written() -> None:
    queue = Queue()
    first, second = queue.reserve(), queue.reserve()
    seen: list[bytes] = []
    second.then = lambda: seen.append(queue.sent)
    queue.fill(second, b"2", ends=True)
    queue.flush()
    assert seen == []
    queue.fill(first, b"1")
    queue.flush()
    assert seen == [b"12"]
