"""The HTTP server of a listener: aiohttp's, but requests that aiohttp refuses are answered in the listener's form."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, InvalidURLError, LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import _ErrInfo

from eventd.api.errors import problems
from eventd.api.errors.codes import internal
from eventd.api.listener.masking import MaskedFrames
from eventd.api.listener.messages import IncomingMessages
from eventd.api.listener.unread_answers import UnreadAnswers
from eventd.errors import EventdError, Invalid
from eventd.runtime.chance import Chance

Answer = Callable[[EventdError], web.Response]
"""Returns the response to a request that failed with an error, in the form of a surface."""
MESSAGES = web.RequestKey("messages", IncomingMessages)
"""The limits on the messages of a WebSocket, set on its request before the connection is upgraded."""
FEW_CHUNKS = 16
"""Maximum number of pieces of a body that wait to be read one by one; more are joined."""
logger = logging.getLogger("eventd.api")


class Runner(web.AppRunner):
    """Runs an application. Requests that do not reach it are answered by `answer`.

    Neither the response nor the log repeats the bytes of such a request: a header may contain a key.
    """

    __slots__ = ("_answer", "chance")

    def __init__(self, app: web.Application, chance: Chance, answer: Answer = problems.answer, **options: Any) -> None:
        super().__init__(app, access_log=None, handle_signals=False, **options)
        self._answer = answer
        self.chance = chance

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _Server(self._answer, self.chance, made)


class _Server(web.Server):
    def __init__(self, answer: Answer, chance: Chance, made: web.Server) -> None:
        super().__init__(
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            loop=asyncio.get_running_loop(),
            **made._kwargs,
        )
        self._answer = answer
        self._chance = chance
        self._untaken = UnreadAnswers()

    def __call__(self) -> web.RequestHandler:
        return _Protocol(self._answer, self._chance, self._untaken, self, loop=self._loop, **self._kwargs)


class _Protocol(web.RequestHandler):
    """One connection: aiohttp's protocol, with limits, and with refusals in the listener's form."""

    __slots__ = ("_answer", "_body", "_chance", "_discarded", "_discards", "_is_held", "_unreadable", "_untaken")

    def __init__(
        self, answer: Answer, chance: Chance, untaken: UnreadAnswers, server: web.Server, **options: Any
    ) -> None:
        super().__init__(server, **options)
        self._answer = answer
        self._chance = chance
        self._untaken = untaken
        self._unreadable = False
        self._discards = 0  # how many bytes may be discarded before the client counts as gone
        self._discarded: asyncio.Future[None] | None = None  # done when it is gone, or has sent that many
        self._is_held = False
        self._body: StreamReader = EMPTY_PAYLOAD  # of the newest request

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to an unreadable request, or to one that failed outside the application's middleware.

        Raises `ConnectionError` if none can be sent.
        """
        if isinstance(exc, ConnectionError):
            raise exc  # the client disconnected: no response can be sent, and the node is not at fault
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        response = self._answer(_error_of(exc, self._chance))
        response.force_close()
        return response

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """Make the connection a WebSocket: `parser` reads only masked frames within the limits."""
        messages = self._current_request.get(MESSAGES) if self._current_request is not None else None
        super().set_parser(cast(Any, MaskedFrames(parser, messages)), data_received_cb)

    def data_received(self, data: bytes) -> None:
        """Pass bytes of the client to aiohttp; after unreadable ones, drop all others: the refusal ends the connection.

        The system delivers megabytes before the refusal is sent, and aiohttp would parse each piece again.
        """
        if self._discarded is not None:
            self._discards -= len(data)
            if self._discards <= 0:
                self._end_discarding()
            return
        if self._unreadable:
            return
        super().data_received(data)
        if self._messages:
            newest, self._body = self._messages[-1]
            if isinstance(newest, _ErrInfo):
                self._unreadable = True
                newest.exc.__traceback__ = None  # it refers to a frame with the bytes, which refers to it
        _join_chunks(self._body)

    def discard(self, most: int) -> asyncio.Future[None]:
        """Discard all that the client still sends.

        Return a future that is done when the client has closed the connection, or has sent `most` bytes.
        """
        self._discards = most
        self._discarded = asyncio.get_running_loop().create_future()
        self._is_held = False
        self._resume_transport_reading()
        return self._discarded

    def _end_discarding(self) -> None:
        if self._discarded is not None and not self._discarded.done():
            self._discarded.set_result(None)

    def hold_reading(self) -> None:
        """Stop reading from the connection until `release_reading`, even if aiohttp resumes it."""
        self._is_held = True
        self._pause_transport_reading()

    def release_reading(self) -> None:
        """Read again, unless aiohttp has paused the connection itself."""
        self._is_held = False
        if not (self._reading_paused or self._buffer_paused):
            self._resume_transport_reading()

    def _resume_transport_reading(self) -> None:
        if not self._is_held:
            super()._resume_transport_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._end_discarding()
        between_requests = self._task_handler if self._current_request is None else None
        super().connection_lost(exc)
        if between_requests is not None:  # aiohttp would continue to wait for the rest of a body
            between_requests.cancel()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response as aiohttp does, within the memory for unread responses.

        aiohttp's own refusals, such as of an `Expect` header, first get the listener's form.
        """
        if isinstance(resp, problems.FrameworkRefusal):
            path, method = request.path, request.method
            refused = self._answer(problems.of_framework(resp, path, method)[0])
            refused.force_close()
            resp = refused
        body = resp.body if isinstance(resp, web.Response) else None
        with self._untaken.hold(request.transport, len(body) if isinstance(body, bytes | bytearray) else 0):
            finished = await super().finish_response(request, resp, start_time)
        if isinstance(resp, web.Response) and (request.transport is None or request.transport.is_closing()):
            resp.body = None  # not read to its end, and the connection refers to it until garbage collection
        return finished


def _join_chunks(body: StreamReader) -> None:
    """Join the unread pieces of a body if there are more than `FEW_CHUNKS`: aiohttp parses again for each one read."""
    if type(body) is StreamReader and len(body._buffer) > FEW_CHUNKS and not body._buffer_offset:
        joined = b"".join(body._buffer)
        body._buffer.clear()
        body._buffer.append(joined)
        if body._http_chunk_splits is not None:
            body._http_chunk_splits.clear()


def _error_of(problem: BaseException | None, chance: Chance) -> EventdError:
    match problem:
        case LineTooLong():
            limit = problem.args[1]
            return Invalid(f"the request line or a header is longer than {limit} bytes: shorten it")
        case InvalidURLError():
            return Invalid("the request cannot be read: its target is not a valid URL")
        case HttpProcessingError():
            why = problem.message.partition("\n")[0].rstrip(":")  # the bytes themselves follow
            return Invalid(f"the request cannot be read as HTTP: {why}")
    incident = chance.token(4).hex()
    logger.error("request failed", exc_info=problem, extra={"incident": incident})
    return internal(incident)
