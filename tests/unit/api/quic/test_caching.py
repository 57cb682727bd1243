"""The requests of caches: each is answered in the dialect of its id."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from eventd.api.quic.cache import Caches, UnknownCache, ValueTooLarge
from eventd.api.quic.caching import Caching
from eventd.observe.stream_figures import StreamMetrics
from eventd.streams.messages import BadMessage, CacheGetRequest, CachePutRequest, read_message, write_message
from eventd.streams.names import CacheName
from eventd.testing import ManualClock

NAME = CacheName("t", "n", "c")


class Roomy(NamedTuple):
    """Limits that are not reached."""

    max_bytes: int = 1 << 30
    max_entries: int = 1000
    max_ttl_ms: int | None = None


class Cache:
    """One cache, asked with messages as they are on the wire."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.registry = CollectorRegistry()
        metrics = StreamMetrics(self.registry)
        caches = Caches(self.clock, 1 << 30, 1000, metrics.evicted)
        caches.declare({NAME: Roomy()})
        self.caching = Caching(caches, metrics, self.clock)

    def ask(self, members: str, name: CacheName = NAME) -> str:
        request = read_message(f'{{"tenant_id":"t","namespace":"n","cache":"c","key":"k",{members}}}'.encode())
        if isinstance(request, CachePutRequest):
            return write_message(self.caching.put(request, name)).decode()
        assert isinstance(request, CacheGetRequest)
        return write_message(self.caching.get(request, name)).decode()

    def figure(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"routerd_eventd_cache_{name}", labels)


PUT, GET = '"type":"cache_put"', '"type":"cache_get"'
VALUE = '{"type":"cache_value","tenant_id":"t","namespace":"n","cache":"c","key":"k","value":'


def test_a_number_as_id_is_answered_by_types_of_their_own() -> None:
    cache = Cache()
    assert cache.ask(f'{PUT},"value":"AP8=","request_id":7,"ttl_ms":null') == '{"type":"cache_ok","request_id":7}'
    assert cache.ask(f'{GET},"request_id":8') == f'{VALUE}"AP8=","request_id":8}}'


def test_a_text_as_id_is_answered_by_ok_and_the_value() -> None:
    cache = Cache()
    assert cache.ask(f'{PUT},"value":"AP8=","request_id":"a"') == '{"type":"ok","request_id":"a"}'
    assert cache.ask(f'{GET},"request_id":"b"') == f'{VALUE}"AP8=","request_id":"b"}}'


def test_without_an_id_none_is_answered() -> None:
    cache = Cache()
    assert cache.ask(f'{PUT},"value":"","ttl_ms":null') == '{"type":"ok"}'
    assert cache.ask(GET) == f'{VALUE}""}}'


def test_what_is_missing_or_has_expired_is_null() -> None:
    cache = Cache()
    assert cache.ask(f'{GET},"request_id":1') == f'{VALUE}null,"request_id":1}}'
    cache.ask(f'{PUT},"value":"YQ==","request_id":2,"ttl_ms":1000')
    cache.clock.advance(1)
    assert cache.ask(f'{GET},"request_id":3') == f'{VALUE}null,"request_id":3}}'
    cache.ask(f'{PUT},"value":"YQ==","request_id":4,"ttl_ms":0')
    assert cache.ask(f'{GET},"request_id":5') == f'{VALUE}null,"request_id":5}}'


def test_a_refused_request_changes_nothing() -> None:
    cache = Cache()
    cache.ask(f'{PUT},"value":"YQ==","request_id":1,"ttl_ms":null')
    for value in ('"YQ"', '"Y Q="', '"YR=="'):
        with pytest.raises(BadMessage):
            cache.ask(f'{PUT},"value":{value},"request_id":2,"ttl_ms":null')
    with pytest.raises(ValueTooLarge):
        cache.ask(f'{PUT},"value":"{"AAAA" * 400_000}","request_id":2,"ttl_ms":null')
    with pytest.raises(UnknownCache, match="cache scope not found: t/n/other"):
        cache.ask(f'{PUT},"value":"YQ==","request_id":2,"ttl_ms":null', NAME._replace(cache="other"))
    assert msgspec.json.decode(cache.ask(GET))["value"] == "YQ=="


def test_reads_and_writes_are_counted() -> None:
    cache = Cache()
    cache.ask(f'{PUT},"value":"YQ==","ttl_ms":1000')
    cache.ask(GET)
    assert (cache.figure("entries"), cache.figure("bytes")) == (1, 130)
    cache.clock.advance(1)
    cache.ask(GET)
    assert [cache.figure("gets_total", result=result) for result in ("hit", "miss")] == [1, 1]
    assert (cache.figure("puts_total"), cache.figure("evicted_total", reason="expired")) == (1, 1)
    assert (cache.figure("entries"), cache.figure("bytes")) == (0, 0)
