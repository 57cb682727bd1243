"""One stream of a QUIC connection."""

from __future__ import annotations

from typing import Final, Protocol

MARK: Final = 256 << 10


class StreamEvents(Protocol):
    """Interface: the user of one stream. A callback must not block, and may write."""

    def received(self, data: bytes, *, ended: bool) -> None:
        """Take bytes in their order. `ended`: the peer has finished its side; then `data` may be empty."""
        ...

    def was_reset(self, code: int) -> None:
        """Note that the peer gave up its sending side: bytes may be missing."""
        ...

    def was_stopped(self, code: int) -> None:
        """Note that the peer no longer reads the bytes that this end sends; unsent ones are dropped."""
        ...

    def has_room(self) -> None:
        """Note that `QuicStream.unsent` has fallen to half of `mark`, after it had reached it."""
        ...

    def lost(self) -> None:
        """Note that the connection has ended; nothing more comes."""
        ...


class StreamHome(Protocol):
    """Interface: the connection of a stream, as the stream uses it."""

    def unsent_of(self, number: int) -> int: ...

    def send(self, stream: QuicStream, data: bytes, *, end: bool) -> None: ...

    def stop(self, stream: QuicStream, code: int) -> None: ...

    def reset(self, stream: QuicStream, code: int) -> None: ...


class QuicStream:
    """A stream in one or both directions.

    `write` never blocks: its caller waits for `StreamEvents.has_room` when `unsent` has reached `mark`.
    """

    __slots__ = (
        "events",
        "has_ended",
        "id",
        "is_dropping",
        "is_over",
        "is_unidirectional",
        "link",
        "mark",
    )

    def __init__(self, link: StreamHome, number: int, *, is_unidirectional: bool, is_ours: bool) -> None:
        self.id = number
        self.link = link
        self.events: StreamEvents
        self.is_unidirectional = is_unidirectional
        self.mark = MARK
        self.has_ended = is_unidirectional and not is_ours
        """Whether this end has finished sending."""
        self.is_over = is_unidirectional and is_ours
        """Whether the peer has finished sending."""
        self.is_dropping = False
        """Whether bytes from the peer are dropped."""

    @property
    def unsent(self) -> int:
        """Return the bytes that were written and not sent for the first time yet."""
        return self.link.unsent_of(self.id)

    def write(self, data: bytes, *, end: bool = False) -> None:
        """Send bytes; with `end` they are the last ones.

        Without effect after the end or `reset`, once the peer has stopped reading, and after the connection has ended.
        """
        if not self.has_ended:
            self.has_ended = end
            self.link.send(self, data, end=end)

    def stop_receiving(self, code: int = 0) -> None:
        """Ask the peer to send nothing more, and drop what still comes: `received` is not called any more."""
        if not self.is_over and not self.is_dropping:
            self.is_dropping = True
            self.link.stop(self, code)

    def reset(self, code: int = 0) -> None:
        """Give up the sending side; what was not sent yet is dropped. Without effect after the end."""
        if not self.has_ended:
            self.has_ended = True
            self.link.reset(self, code)
