"""Keeps the answers to forms that were sent to a node over its API, so that a form that is sent again gets the same
answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from eventd.runtime.clock import Clock
from eventd.store.rows.actions import KEY_SECONDS

MOST_ANSWERS: Final = 256
"""Maximum number of answers that are kept."""
MOST_BYTES: Final = 64 << 10
"""Bytes of the largest answer that is kept."""


class _SentRequest(NamedTuple):
    """A request that was sent at a monotonic time. `answer`: its body; None if it has none that is kept."""

    at: float
    answer: asyncio.Future[bytes | None]


class SentAnswers:
    """The answers of one node by idempotency key, for as long as the node itself knows the key.

    The node executes a repeated request only once. But a form is checked before it is sent to the node, and this check
    may fail because the first submission has already removed its object.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent: dict[str, _SentRequest] = {}

    async def send(self, key: str, request: Callable[[], Awaitable[bytes]], *, is_secret: bool = False) -> bytes:
        """Return the answer to a request with this key, and keep it unless it is secret. Raises its errors."""
        self._forget_old()
        sent = _SentRequest(self._clock.monotonic(), asyncio.get_running_loop().create_future())
        self._sent.setdefault(key, sent)
        content = None
        try:
            content = await request()
        finally:
            is_kept = content is not None and not is_secret and len(content) <= MOST_BYTES
            sent.answer.set_result(content if is_kept else None)
            if not is_kept and self._sent.get(key) is sent:
                del self._sent[key]
        return content

    async def find(self, key: str) -> bytes | None:
        """Return the answer to the request that was sent with this key; None if there is none."""
        self._forget_old()
        sent = self._sent.get(key)
        return None if sent is None else await asyncio.shield(sent.answer)

    def _forget_old(self) -> None:
        since = self._clock.monotonic() - KEY_SECONDS
        known = [(key, sent) for key, sent in self._sent.items() if sent.at >= since]
        self._sent = dict(known[-MOST_ANSWERS:])
