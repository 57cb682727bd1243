"""The answers of one connection that its client does not read."""

from __future__ import annotations

from collections.abc import Callable

from eventd.api.quic.interfaces import Channel


class AnswerBacklog:
    """Counts the unsent bytes of streams on which many answers wait.

    Each stream stops by itself when its client does not read its answers, but a client may have a thousand streams:
    above `most` bytes in all, none of them takes a further frame.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0
        self._sizes: dict[Channel, int] = {}
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_over(self) -> bool:
        """Return whether there are more unsent bytes than `most`."""
        return self._used >= self._most

    def note(self, channel: Channel) -> None:
        """Count the unsent bytes of a stream, which may have ended."""
        self._count(channel, channel.unsent)

    def wait(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, as soon as there is room again."""
        self._waiting[wake] = None

    def leave(self, wake: Callable[[], None]) -> None:
        """Cancel `wait`: do not call `wake`."""
        self._waiting.pop(wake, None)

    def check(self) -> None:
        """Count again, and wake the streams that wait if there is room."""
        for channel in list(self._sizes):
            size = channel.unsent
            self._count(channel, size if size >= channel.mark else 0)
        if self._waiting and not self.is_over:
            waiting, self._waiting = self._waiting, {}
            for wake in waiting:
                wake()

    def _count(self, channel: Channel, size: int) -> None:
        self._used += size - self._sizes.pop(channel, 0)
        if size:
            self._sizes[channel] = size
