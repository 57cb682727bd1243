"""Messages of one WebSocket client: the memory they take until they are handled, and the time they take to arrive."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from eventd.api.bodies import BODY_SECONDS, LIGHT_BYTES, Bodies, Held, room_is_needed
from eventd.api.codes import SlowBody
from eventd.errors import EventdError


class IncomingMessages:
    """Gives each message over `LIGHT_BYTES` room in `bodies`, from the first frame's head until it is handled.

    A frame's head reserves the room for the whole frame, as the head of a request does for its body. When there is no
    room, when another key needs it, or when a message takes longer than `BODY_SECONDS` to arrive, the client is
    refused: nothing more of it is read.
    """

    def __init__(self, bodies: Bodies, key: bytes, most: int) -> None:
        """`key`: the digest of the client's key; `most`: the library refuses messages of so many bytes."""
        self.refusal: EventdError | None = None
        self._bodies = bodies
        self._key = key
        self._most = most
        self._on_refusal: Callable[[EventdError], None] | None = None
        self._size = 0  # bytes of the message that is arriving, by the heads of its frames
        self._is_arriving = False
        self._is_last = False  # the frame that is arriving
        self._held: Held | None = None  # by the message that is arriving
        self._deadline: asyncio.TimerHandle | None = None
        self._arrived = 0
        self._handled = 0
        self._waiting: deque[tuple[int, Held]] = deque()  # large messages that have arrived, by their number

    def attend(self, on_refusal: Callable[[EventdError], None]) -> None:
        """Call this once when the client is refused, which may be now."""
        self._on_refusal = on_refusal
        if self.refusal is not None:
            on_refusal(self.refusal)

    def begin_frame(self, size: int, *, last: bool) -> None:
        """The head of a frame with data has arrived: so many bytes follow, the last ones of their message or not."""
        if self._is_last:
            self._end_message()
        self._is_arriving, self._is_last = True, last
        self._size += size
        if LIGHT_BYTES < self._size < self._most and self.refusal is None:
            self._hold()

    def pause(self, *, is_whole: bool) -> None:
        """All bytes that arrived have been looked at, and the last frame `is_whole` with them."""
        if is_whole and self._is_last:
            self._end_message()
        if self._is_arriving and self._deadline is None:
            self._deadline = asyncio.get_running_loop().call_later(BODY_SECONDS, self._expire)

    def take(self) -> Held | None:
        """What the next message holds, which is handled now; None if it is small. Give it back with `release`."""
        number = self._handled + 1
        return self._waiting.popleft()[1] if self._waiting and self._waiting[0][0] == number else None

    def handled(self) -> None:
        """The message that was taken is handled, at least so far that the next one may be."""
        self._handled += 1

    def release(self, held: Held | None) -> None:
        """What a message held is free again."""
        if held is not None:
            self._bodies.give_back(held)

    def close(self) -> None:
        """The connection has ended."""
        self._stop_clock()
        for _, held in self._waiting:
            self.release(held)
        self.release(self._held)

    def _hold(self) -> None:
        if self._held is None:
            self._held = Held(self._bodies, self._key)
            self._held.stop = lambda: self._refuse(room_is_needed())
        try:
            self._held.grow_to(self._size)
        except EventdError as error:
            self._refuse(error)

    def _end_message(self) -> None:
        self._stop_clock()
        self._arrived += 1
        if self._held is not None:
            self._held.stop = None
            self._waiting.append((self._arrived, self._held))
        self._held, self._size = None, 0
        self._is_arriving = self._is_last = False

    def _expire(self) -> None:
        """Where an earlier message is being handled, the rest of this one may be waiting to be read."""
        self._stop_clock()
        if self._handled < self._arrived:
            self.pause(is_whole=False)
        else:
            self._refuse(SlowBody(f"the message did not arrive within {BODY_SECONDS:g} s"))

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, error: EventdError) -> None:
        if self.refusal is None:
            self.refusal = error
            self._stop_clock()
            if self._on_refusal is not None:
                self._on_refusal(error)
