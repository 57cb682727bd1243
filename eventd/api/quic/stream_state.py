"""The state of one stream of a client, which its handlers share."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from eventd.api.quic.answers import AnswerQueue, json_frame
from eventd.api.quic.context import ConnectionContext
from eventd.api.quic.interfaces import Channel, ClientGrant
from eventd.streams.frames import ASSUMED
from eventd.streams.messages import Message

HANDLED: Final = True
MUST_WAIT: Final = False
"""The results of a handler of frames: the frame is handled, or must be handled again when there is room."""


class StreamPhase(Enum):
    """The phases of a stream."""

    FRESH = auto()  # not authenticated
    AUTHENTICATING = auto()
    READY = auto()
    CLOSING = auto()  # takes no frames; answers are still written
    OVER = auto()


class StreamState:
    """One stream. `resume` is called after an answer is known, so that it is written and waiting frames are taken."""

    def __init__(self, connection: ConnectionContext, channel: Channel, resume: Callable[[], None]) -> None:
        self.connection = connection
        self.channel = channel
        self.resume = resume
        self.phase = StreamPhase.FRESH
        self.is_silent = channel.is_unidirectional
        """Whether the stream gets no answers."""
        self.answers = AnswerQueue(channel, self.finish)
        self.flags = int(ASSUMED)
        self.extensions: frozenset[str] = frozenset()
        self.session = ""
        self.held = 0
        """The stream's bytes in the budget of the connection."""
        self.unhandled = 0
        """How many of the stream's bytes in the budget belong to frames that were not handled yet."""
        self._grant: ClientGrant | None = None
        self._finished: Callable[[], None] | None = None

    @property
    def grant(self) -> ClientGrant:
        """Return the permissions of the stream, which must be authenticated."""
        assert self._grant is not None
        return self._grant

    @property
    def may_read(self) -> bool:
        """Return whether the phase of the stream allows further frames to be read."""
        return self.phase in (StreamPhase.FRESH, StreamPhase.READY)

    def when_finished(self, call: Callable[[], None]) -> None:
        """Call a function once when the stream is over."""
        self._finished = call

    def grant_access(self, grant: ClientGrant) -> None:
        """Note that the stream is authenticated."""
        self._grant = grant
        self.phase = StreamPhase.READY

    def find_end(self, now: int) -> str:
        """Return why the grant is not valid any more; empty while it is, or if there is none. `now`: wall time."""
        return "" if self._grant is None else self._grant.ended(now)

    # --- memory

    def take(self, size: int) -> None:
        """Count bytes."""
        self.held += size
        self.connection.budget.take(size)

    def give(self, size: int) -> None:
        """Count bytes as done."""
        self.held -= size
        self.connection.budget.give(size)

    def find_refusal(self) -> str:
        """Return why no publish is accepted now; empty if there is room.

        Bytes that the stream itself has sent after the publish do not count, because they must be read in any case.
        """
        return self.connection.budget.find_refusal(self.unhandled)

    # --- answers

    def answer(self, message: Message) -> None:
        """Append an answer; a stream without answers ends instead."""
        if self.is_silent:
            self.finish()
        elif self.phase is not StreamPhase.OVER:
            self.connection.server.metrics.frame("out", "json")
            self.answers.add(json_frame(message))

    def end(self, message: Message | None = None) -> None:
        """Take no further frame; end the stream after its last answer, which is `message`, if there is one."""
        if self.phase in (StreamPhase.CLOSING, StreamPhase.OVER):
            return
        if self.is_silent:
            self.finish()
            return
        self.phase = StreamPhase.CLOSING
        if message is not None:
            self.connection.server.metrics.frame("out", "json")
        self.answers.add(b"" if message is None else json_frame(message), ends=True)

    def finish(self) -> None:
        """Note that nothing is written any more, and ask the client to send nothing more."""
        if self.phase is not StreamPhase.OVER:
            self.phase = StreamPhase.OVER
            self.channel.stop_receiving()
            if self._finished is not None:
                self._finished()
