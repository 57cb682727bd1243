"""Up to which record the streams of a watch session have sent a topic, and of which epoch an event id of it is.

A session numbers the epochs of each topic as its streams meet them, from 0, the one in which it began. The id of an
event names the epoch by that number, so that a seq of one epoch is never taken for a seq of another.
"""

from __future__ import annotations

from eventd.api.topics.checkpoints import EventPlace
from eventd.api.topics.client_stream import WatchCursor
from eventd.api.topics.start import OTHER_EPOCH

KEPT_EPOCHS = 16
"""The number of newest epochs of a topic that a session keeps: a topic may be deleted and created without end."""
EPOCH_BYTES = 180
"""Estimated memory of each kept epoch of a topic besides the first."""


class TopicProgress:
    """The progress of a session in one topic. `begun`: where its last stream began, or its first will.

    What was sent to a stream beyond that may not have reached the client: only an id that it sends proves it.
    """

    __slots__ = ("_furthest", "_oldest", "_start", "begun")

    def __init__(self, start: WatchCursor) -> None:
        self.begun = start
        self._start = start.seq
        self._furthest = [start]  # the furthest of all streams in each kept epoch, in the order of their numbers
        self._oldest = 0  # the number of the first of them

    @property
    def start(self) -> EventPlace:
        """Return where the session began."""
        return EventPlace(0, self._start)

    @property
    def stream_start(self) -> EventPlace:
        """Return where its last stream began."""
        return EventPlace(self.number_of(self.begun.epoch), self.begun.seq)

    @property
    def further_epochs(self) -> int:
        """Return how many epochs it keeps besides the first."""
        return len(self._furthest) - 1

    def number_of(self, epoch: str) -> int:
        """Return the number of an epoch, which is a new one if the session does not know the epoch."""
        for index in range(len(self._furthest) - 1, -1, -1):
            if self._furthest[index].epoch == epoch:
                return self._oldest + index
        self._furthest.append(WatchCursor(0, epoch))
        if len(self._furthest) > KEPT_EPOCHS:
            del self._furthest[0]
            self._oldest += 1
        return self._oldest + len(self._furthest) - 1

    def note(self, cursor: WatchCursor) -> None:
        """Note the position that a stream has reached."""
        index = self.number_of(cursor.epoch) - self._oldest
        if cursor.seq > self._furthest[index].seq:
            self._furthest[index] = cursor

    def continue_after(self, place: EventPlace) -> None:
        """Have the next stream begin after the event that a client names, but not ahead of what was sent.

        In another epoch than the present one, the stream then begins with a tombstone.
        """
        index = place.epoch - self._oldest
        if index < 0:
            self.begun = WatchCursor(place.seq, OTHER_EPOCH)
        elif index < len(self._furthest):
            furthest = self._furthest[index]
            self.begun = furthest._replace(seq=min(furthest.seq, place.seq))
        # A larger number cannot come from an id of this session.
