"""The requests of one stream that are not publishes: subscriptions, and those of caches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from eventd.api.quic import answers
from eventd.api.quic.answers import AnswerSlot, json_frame
from eventd.api.quic.cache import UnknownCache, ValueTooLarge
from eventd.api.quic.interfaces import Subscriber
from eventd.api.quic.stream_state import StreamPhase, StreamState
from eventd.errors import EventdError
from eventd.streams.messages import (
    Answer,
    CacheGetRequest,
    CacheOk,
    CachePutRequest,
    Error,
    Message,
    Ok,
    Request,
    RequestId,
    SubscribeCursorError,
    Subscribed,
    SubscribeRequest,
    require_names,
)
from eventd.streams.names import CacheName, StreamName
from eventd.streams.permissions import StreamAction


class MessageRequests:
    """Serves the subscribes and the cache requests of one authenticated stream."""

    def __init__(self, state: StreamState) -> None:
        self._state = state
        self._server = state.connection.server
        self._task: asyncio.Task[None] | None = None

    def take(self, request: Request | Answer) -> None:
        """Handle a request. Raises `BadMessage`."""
        state = self._state
        if state.is_silent:
            state.end()
        elif isinstance(request, SubscribeRequest):
            require_names(request)
            self._subscribe(request)
        elif isinstance(request, CachePutRequest | CacheGetRequest):
            require_names(request)
            self._cache(request)
        else:
            self._server.metrics.bad_frame("type")
            state.end(Error(message=answers.UNEXPECTED_TYPE))

    def stop(self) -> None:
        """Do not begin a subscription that is asked for."""
        if self._task is not None:
            self._task.cancel()

    def _tenant_of(self, request: SubscribeRequest | CachePutRequest | CacheGetRequest) -> str:
        return self._state.grant.tenant if request.tenant_id is None else request.tenant_id

    def _refuse(self, text: str, id: RequestId | None) -> None:
        self._state.end(Error(message=text, request_id=id))

    def _find_refusal(self, tenant: str, action: StreamAction, resource: str) -> str:
        if tenant != self._state.grant.tenant:
            return answers.TENANT_MISMATCH
        return "" if self._state.grant.allows(action, resource) else answers.FORBIDDEN

    # --- subscriptions

    def _subscribe(self, request: SubscribeRequest) -> None:
        state = self._state
        name = StreamName(self._tenant_of(request), request.namespace or "", request.stream)
        refusal = self._find_refusal(name.tenant, StreamAction.SUBSCRIBE, name.resource)
        if not refusal and not name.is_possible:
            refusal = answers.stream_not_found(name)
        if refusal:
            self._refuse(refusal, request.request_id)
            return
        state.phase = StreamPhase.CLOSING
        begin = self._begin(request, name, state.answers.reserve())
        # If the database cannot be read, the client gets `server overloaded`, and readiness shows the cause.
        self._task = self._server.supervisor.spawn(begin, "start of a subscription", expects=EventdError)

    async def _begin(self, request: SubscribeRequest, name: StreamName, slot: AnswerSlot) -> None:
        state = self._state
        subscriber = Subscriber(
            state.connection.link, state.grant, state.connection.places, state.flags, state.extensions
        )
        start: Callable[[], None] | None = None
        answer: Message = Error(message=answers.OVERLOADED)
        try:
            answer, start = await self._server.subscribing.subscribe(subscriber, request, name)
        finally:
            self._task = None
            slot.then = start
            self._server.metrics.frame("out", "json")
            state.answers.fill(slot, json_frame(_in_dialect(answer, request.request_id)), ends=True)
            if state.phase is StreamPhase.OVER and start is not None:
                start()
            state.resume()

    # --- caches

    def _cache(self, request: CachePutRequest | CacheGetRequest) -> None:
        state, id = self._state, request.request_id
        name = CacheName(self._tenant_of(request), request.namespace or "", request.cache or "")
        is_put = isinstance(request, CachePutRequest)
        action = StreamAction.WRITE if is_put else StreamAction.READ
        if refusal := self._find_refusal(name.tenant, action, name.resource):
            self._refuse(refusal, id)
            return
        try:
            if isinstance(request, CachePutRequest):
                answer = self._server.caching.put(request, name)
            else:
                answer = self._server.caching.get(request, name)
        except (UnknownCache, ValueTooLarge) as error:
            answer = Error(message=str(error), request_id=id)
        answer = _in_dialect(answer, id)
        if id is None:
            state.end(answer)
        else:
            state.answer(answer)


def _in_dialect(answer: Message, id: RequestId | None) -> Message:
    """Return an answer as the client that chose the id expects it: with a text, only `ok`, values and `error`."""
    if isinstance(answer, Error):
        return Error(message=answer.message, request_id=id)
    if not isinstance(id, str):
        return answer
    if isinstance(answer, Subscribed):
        return Ok(request_id=id, offset=answer.offset, epoch=answer.epoch)
    if isinstance(answer, SubscribeCursorError):
        text = f"cursor {answer.reason}: requested {answer.requested}, available {answer.available}"
        return Error(message=text, request_id=id)
    return Ok(request_id=id) if isinstance(answer, CacheOk) else answer
