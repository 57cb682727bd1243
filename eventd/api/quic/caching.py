"""The requests of caches, and their answers in the dialect of each request."""

from __future__ import annotations

from eventd.api.quic.cache import Caches
from eventd.observe.stream_figures import StreamMetrics
from eventd.runtime.clock import Clock
from eventd.streams.base64_text import write_bytes
from eventd.streams.messages import (
    CacheGetRequest,
    CacheOk,
    CachePutRequest,
    CacheValue,
    Message,
    Ok,
    read_payload,
)
from eventd.streams.names import CacheName


class Caching:
    """Serves the caches of a node. Each request is answered at once, so answers have the order of the requests.

    The methods raise `UnknownCache` and `ValueTooLarge`.
    """

    def __init__(self, caches: Caches, metrics: StreamMetrics, clock: Clock) -> None:
        self._caches = caches
        self._metrics = metrics
        self._clock = clock
        metrics.cache_sizes(lambda: caches.entries, lambda: caches.size)

    def put(self, request: CachePutRequest, name: CacheName) -> Message:
        """Store a value; return the answer. Raises `BadMessage` if it is not base64."""
        begun = self._clock.monotonic()
        ttl_ms = request.ttl_ms if isinstance(request.ttl_ms, int) else None
        self._caches.put(name, request.key, read_payload(request.value), ttl_ms)
        self._metrics.put(self._clock.monotonic() - begun)
        if isinstance(request.request_id, int):
            return CacheOk(request_id=request.request_id)
        return Ok(request_id=request.request_id)

    def get(self, request: CacheGetRequest, name: CacheName) -> Message:
        """Return the answer with the value of a key; it has none if the key is not found."""
        begun = self._clock.monotonic()
        value = self._caches.get(name, request.key)
        self._metrics.got("miss" if value is None else "hit", self._clock.monotonic() - begun)
        return CacheValue(
            tenant_id=name.tenant,
            namespace=name.namespace,
            cache=name.cache,
            key=request.key,
            value=None if value is None else write_bytes(value),
            request_id=request.request_id,
        )
