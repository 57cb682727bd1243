"""Limits the messages of one WebSocket client: their memory until they are handled, and their time to arrive."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from eventd.api.bodies.bodies import BODY_SECONDS, LIGHT_BYTES, BodyMemory, BodyReservation, needs_room_error
from eventd.api.errors.codes import SlowBody
from eventd.errors import EventdError


class IncomingMessages:
    """Reserves memory in `bodies` for each message over `LIGHT_BYTES`, until it is handled.

    A frame's head reserves memory for the whole frame, as the head of a request does for its body. When no memory is
    left, when another key needs it, or when a message takes longer than `BODY_SECONDS` to arrive, the client is
    refused: none of its later bytes are read.
    """

    def __init__(self, bodies: BodyMemory, key: bytes, most: int) -> None:
        """`key`: the digest of the client's key; `most`: the size in bytes from which aiohttp refuses a message."""
        self.refusal: EventdError | None = None
        self._bodies = bodies
        self._key = key
        self._most = most
        self._on_refusal: Callable[[EventdError], None] | None = None
        self._size = 0  # bytes of the arriving message, by the heads of its frames
        self._is_arriving = False
        self._is_last = False  # the arriving frame
        self._held: BodyReservation | None = None  # by the arriving message
        self._deadline: asyncio.TimerHandle | None = None
        self._arrived = 0
        self._handled = 0
        self._waiting: deque[tuple[int, BodyReservation]] = deque()  # large messages that have arrived, by their number
        self._is_closed = False

    def attend(self, on_refusal: Callable[[EventdError], None]) -> None:
        """Call `on_refusal` once when the client is refused: now, if it already was."""
        self._on_refusal = on_refusal
        if self.refusal is not None:
            on_refusal(self.refusal)

    def begin_frame(self, size: int, *, last: bool) -> None:
        """Note the head of a data frame: `size` bytes follow, which end their message if `last`.

        Reserves memory if the message is large; without memory, the client is refused.
        """
        if self._is_closed:
            return
        self._end_if_last()
        self._is_arriving, self._is_last = True, last
        self._size += size
        if LIGHT_BYTES < self._size < self._most and self.refusal is None:
            self._hold()

    def begin_control(self) -> None:
        """Note the head of a control frame, which shows that the frame before it is complete."""
        self._end_if_last()

    def end_of_read(self, *, is_whole: bool) -> None:
        """Note that all bytes of one read from the connection were examined. `is_whole`: the last frame is complete.

        Starts the time limit of a message that is still arriving.
        """
        if self._is_closed:
            return
        if is_whole:
            self._end_if_last()
        if self._is_arriving and self._deadline is None:
            self._deadline = asyncio.get_running_loop().call_later(BODY_SECONDS, self._expire)

    def take(self) -> BodyReservation | None:
        """Return the reservation of the next message, to be freed by `release`; None for a small message.

        The message is handled now, so it no longer gives way.
        """
        number = self._handled + 1
        while self._waiting and self._waiting[0][0] <= number:
            arrived, held = self._waiting.popleft()
            if arrived == number:
                held.stop = None
                return held
            self.release(held)  # of a message that was handled before its end was noticed: it must not block later ones
        return None

    def allow_giving_way(self, held: BodyReservation | None) -> None:
        """Let the message give way to another key again: it only waits for its client to read the response."""
        if held is not None:
            held.stop = self._refuse_for_room

    def handled(self) -> None:
        """Note that a message was handled; if it is a publish, its write may still wait for the disk."""
        self._handled += 1

    def release(self, held: BodyReservation | None) -> None:
        """Free the reservation of a message; None has none."""
        if held is not None:
            self._bodies.give_back(held)

    def close(self) -> None:
        """Free the reservations of all messages that were not taken: the connection has ended.

        Frames that aiohttp reads while closing reserve no memory.
        """
        self._is_closed = True
        self._stop_clock()
        for _, held in self._waiting:
            self.release(held)
        self._waiting.clear()
        self.release(self._held)
        self._held, self._is_arriving, self._is_last = None, False, False

    def _hold(self) -> None:
        if self._held is None:
            self._held = BodyReservation(self._bodies, self._key)
            self._held.stop = self._refuse_for_room
        try:
            self._held.grow_to(self._size)
        except EventdError as error:
            self._refuse(error)

    def _end_if_last(self) -> None:
        """Note that the arriving frame is complete, and the message with it if the frame is its last."""
        if self._is_last:
            self._end_message()

    def _end_message(self) -> None:
        self._stop_clock()
        self._arrived += 1
        if self._held is not None:
            self._waiting.append((self._arrived, self._held))
        self._held, self._size = None, 0
        self._is_arriving = self._is_last = False

    def _expire(self) -> None:
        """Refuse a message that arrives too slowly.

        While an earlier one is handled, which delays the reading, its time begins again instead.
        """
        self._stop_clock()
        if self._handled < self._arrived:
            self.end_of_read(is_whole=False)
        else:
            self._refuse(SlowBody(f"the message did not arrive within {BODY_SECONDS:g} s"))

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse_for_room(self) -> None:
        self._refuse(needs_room_error())

    def _refuse(self, error: EventdError) -> None:
        if self.refusal is None:
            self.refusal = error
            self._stop_clock()
            if self._on_refusal is not None:
                self._on_refusal(error)
