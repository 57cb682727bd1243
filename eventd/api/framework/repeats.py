"""Requests that may be repeated: a request with an Idempotency-Key is executed once, and a repetition gets the first
answer.

The key is stored in the transaction of the action itself, so this holds for all workers of a node and after a crash.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from eventd.api.errors.codes import API_FORM
from eventd.api.framework.action_callers import ActionCaller
from eventd.errors import Conflict, EventdError, Invalid
from eventd.runtime.clock import SECOND, Clock
from eventd.store.engine.database import Connection, Database
from eventd.store.rows.actions import KEY_SECONDS, FirstAnswer, RepeatedRequest, keep_answer, read_first

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotent-Replayed"
"""The header that marks an answer as the repeated answer of the first request."""
MOST_KEY: Final = 64
MOST_ANSWER: Final = 16 << 10
"""Maximum bytes of a kept answer, compressed."""
WAIT_SECONDS: Final = 10.0
"""How long a repetition waits for the end of the first request."""
_LOOK_SECONDS: Final = 0.1

logger = logging.getLogger("eventd.actions")


class KeyReused(Conflict):
    """The Idempotency-Key belongs to another request."""

    code = "idempotency_key_reused"


class InProgress(Conflict):
    """The first request with this Idempotency-Key has no answer yet."""

    code = "request_in_progress"


class AnswerNotKept(Conflict):
    """The first request with this Idempotency-Key was executed, but its answer was not kept."""

    code = "answer_not_kept"


class AlreadyDone(EventdError):
    """A request with the same key took effect in the meantime; its answer must be returned."""


class KeptAnswer(NamedTuple):
    """The answer that is kept for repetitions of a request: its HTTP status and body, and whether it is repeated."""

    status: int
    body: bytes
    is_replayed: bool


def read_key(text: str) -> str:
    """Return the value of the header. Raises `Invalid`."""
    if 1 <= len(text) <= MOST_KEY and text.isascii() and text.isprintable():
        return text
    raise Invalid(
        f"{HEADER} is not valid", hint=f"send 1 to {MOST_KEY} printable ASCII characters, such as a random UUID"
    )


def repeated_request(caller: ActionCaller, key: str, operation: str, describe: Callable[[], str]) -> RepeatedRequest:
    """Return the description of a request by which repetitions are recognized.

    `describe` returns its parameters as text. Large parameters take long, so do not call it on the event loop.
    """
    content = f"{operation}\n{describe()}".encode(errors="surrogatepass")
    return RepeatedRequest(caller.mark, key, hashlib.sha256(content).hexdigest())


def describe_call(names: Mapping[str, str], query: Any, body: Any) -> str:
    """Return the parameters of a request to /v0 as text: the names in its path, its query and its body."""
    return f"{sorted(names.items())} {msgspec.json.encode([query, body])!r}"


def _kept(first: FirstAnswer | None) -> KeptAnswer:
    if first is None or first.answer is None:
        raise AnswerNotKept(
            "this request was done before, and its answer was not kept",
            hint="answers with a secret, or of more than 16 kB, are given once: look at the result of the action",
        )
    return KeptAnswer(first.status, zlib.decompress(first.answer), is_replayed=True)


def require_first(conn: Connection, request: RepeatedRequest, steady: int) -> None:
    """Raise `AlreadyDone` if a request with the same caller and key is stored. The head must be locked."""
    if read_first(conn, request, steady - KEY_SECONDS * SECOND) is not None:
        raise AlreadyDone("a request with the same key was done")


class Repeats:
    """Answers requests that may be repeated."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def find(self, request: RepeatedRequest) -> KeptAnswer | None:
        """Return the answer of the first request, after waiting for it; None if there was none. Raises `Conflict`."""
        first = await self._wait_for_first(request)
        return None if first is None else _kept(first)

    async def answer(
        self, request: RepeatedRequest, perform: Callable[[], Awaitable[bytes]], *, is_secret: bool
    ) -> KeptAnswer:
        """Return the answer of the first request; if there was none, the answer of `perform`.

        Raises the errors of `perform`, and `Conflict`. An action that had no effect is executed again, because its key
        was not stored. With `is_secret`, a successful answer is not kept.
        """
        first = await self._wait_for_first(request)
        if first is None:
            try:
                body = await perform()
            except AlreadyDone:
                first = await self._wait_for_first(request)
            except EventdError as error:
                body = msgspec.json.encode(API_FORM.body(error)) + API_FORM.line_end
                await self._keep(request, API_FORM.status(error), body)
                raise
            else:
                await self._keep(request, 200, None if is_secret else body)
                return KeptAnswer(200, body, is_replayed=False)
        return _kept(first)

    async def _wait_for_first(self, request: RepeatedRequest) -> FirstAnswer | None:
        until = self._clock.monotonic() + WAIT_SECONDS
        while True:
            after = self._clock.steady() - KEY_SECONDS * SECOND
            first = await self._database.read(read_first, request, after)
            if first is None:
                return None
            if first.fingerprint != request.fingerprint:
                raise KeyReused(
                    f"the {HEADER} {request.key!r} belongs to another request",
                    hint="send a new key with each new request",
                )
            if first.status:
                return first
            if self._clock.monotonic() >= until:
                raise InProgress(
                    f"the first request with the {HEADER} {request.key!r} has not been answered",
                    hint="it is being done, or the node ended before its answer: see the record of actions",
                )
            await self._clock.sleep(_LOOK_SECONDS)

    async def _keep(self, request: RepeatedRequest, status: int, body: bytes | None) -> None:
        kept: Any = None if body is None else zlib.compress(body)
        if kept is not None and len(kept) > MOST_ANSWER:
            kept = None
        try:
            await self._database.write(keep_answer, request, status, kept)
        except EventdError as error:  # the action was done: its own answer matters more
            logger.warning("keeping an answer failed", extra={"error": str(error)})
