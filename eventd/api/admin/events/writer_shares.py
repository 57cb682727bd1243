"""Shares the writer among publishing clients: the events that they have handed to it are bounded, by key and together.

What the writer has been given is written in its order, also before the single event of another key that comes later.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import Final

KEY_EVENTS: Final = 20_000
"""Maximum number of events that all connections of one key have at the writer: about half a second of its work."""
PROCESS_EVENTS: Final = 2 * KEY_EVENTS
"""Maximum number of events that all connections of this process have at the writer."""


class WriterTurn:
    """The place of a message in the line of its key. `future` is done when it has its share, or gives up."""

    def __init__(self, events: int) -> None:
        self.events = events
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_granted = False


class WriterShares:
    """The events at the writer, by key. Messages of a key get their share in their order, and keys take turns.

    `key_events` and `process_events` are at least the events of the largest message.
    """

    def __init__(self, key_events: int = KEY_EVENTS, process_events: int = PROCESS_EVENTS) -> None:
        self._key_events = key_events
        self._process_events = process_events
        self._by_key: Counter[bytes] = Counter()
        self._lines: dict[bytes, deque[WriterTurn]] = {}  # the next key first
        self.held = 0

    def ask(self, key: bytes, events: int) -> WriterTurn:
        """Ask for the share of a message, which the caller gives back. It is granted at once if it fits."""
        turn = WriterTurn(events)
        self._lines.setdefault(key, deque()).append(turn)
        self._grant()
        return turn

    def give_back(self, key: bytes, events: int) -> None:
        """Note that the writer is done with the events of a message; those that wait may follow."""
        self.held -= events
        self._by_key[key] -= events
        if not self._by_key[key]:
            del self._by_key[key]
        self._grant()

    def withdraw(self) -> None:
        """Note that a turn was given up, by its `future`; those behind it may follow."""
        self._grant()

    def _grant(self) -> None:
        passed = 0
        while passed < len(self._lines):
            key, line = next(iter(self._lines.items()))
            while line and line[0].future.done():  # its connection has ended
                line.popleft()
            if not line:
                del self._lines[key]
                continue
            events = line[0].events
            if self._by_key[key] + events <= self._key_events:
                if self.held + events > self._process_events:
                    return  # it stays first: with smaller messages of others before it, it might wait for ever
                self._give_share(key, line.popleft())
                passed = 0
            else:
                passed += 1
            self._lines[key] = self._lines.pop(key)

    def _give_share(self, key: bytes, turn: WriterTurn) -> None:
        self.held += turn.events
        self._by_key[key] += turn.events
        turn.is_granted = True
        turn.future.set_result(None)
