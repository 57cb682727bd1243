"""The caches: what they keep, for how long, and what they remove when they are full."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.api.quic.cache import (
    MAX_VALUE,
    OVERHEAD,
    SLICE,
    SWEEP_SECONDS,
    Caches,
    Eviction,
    UnknownCache,
    ValueTooLarge,
)
from eventd.runtime.supervisor import Supervisor
from eventd.streams.names import CacheName
from eventd.testing import ManualClock, give_turns

A, B = CacheName("t", "n", "a"), CacheName("t", "n", "b")


class Limits(NamedTuple):
    """Limits of a cache."""

    max_bytes: int = 1 << 30
    max_entries: int = 1 << 30
    max_ttl_ms: int | None = None


PLENTY = Limits()


class Cached:
    """Two caches, the clock that they look at, and how many entries they have evicted, by reason."""

    def __init__(self, a: Limits = PLENTY, b: Limits = PLENTY, *, size: int = 1 << 30, entries: int = 1000) -> None:
        self.clock = ManualClock()
        self.evicted: Counter[str] = Counter()
        self.caches = Caches(self.clock, size, entries, self._count)
        self.caches.declare({A: a, B: b})

    def _count(self, reason: Eviction, entries: int) -> None:
        self.evicted[reason] += entries

    def put(self, key: str, value: bytes = b"v", ttl_ms: int | None = None, name: CacheName = A) -> None:
        self.caches.put(name, key, value, ttl_ms)

    def get(self, key: str, name: CacheName = A) -> bytes | None:
        return self.caches.get(name, key)

    def held(self, *keys: str, name: CacheName = A) -> str:
        """Return those of the keys that are found; this uses them."""
        return "".join(key for key in keys if self.get(key, name) is not None)


def test_a_value_is_found_under_its_key_in_its_cache_alone() -> None:
    cached = Cached()
    cached.put("k", b"in a")
    cached.put("k", b"", name=B)
    assert (cached.get("k"), cached.get("k", B), cached.get("other")) == (b"in a", b"", None)


def test_a_put_replaces_the_value_and_the_time_to_live() -> None:
    cached = Cached()
    cached.put("k", b"short", 1000)
    cached.put("k", b"for ever")
    cached.clock.advance(10)
    assert cached.get("k") == b"for ever"
    cached.put("k", b"short again", 1000)
    cached.clock.advance(10)
    assert cached.get("k") is None
    assert (cached.caches.entries, cached.caches.size) == (0, 0)


def test_a_value_expires_exactly_at_its_end_whatever_the_wall_clock_says() -> None:
    cached = Cached()
    cached.put("k", ttl_ms=1500)
    cached.clock.set_wall(0)
    cached.clock.advance(1.25)
    assert cached.get("k") == b"v"
    cached.clock.advance(0.25)
    assert cached.get("k") is None


def test_a_read_does_not_prolong_the_time_to_live() -> None:
    cached = Cached()
    cached.put("k", ttl_ms=1000)
    cached.clock.advance(0.75)
    assert cached.get("k") == b"v"
    cached.clock.advance(0.25)
    assert cached.get("k") is None


def test_a_time_to_live_of_0_removes_the_former_value_and_stores_none() -> None:
    cached = Cached()
    cached.put("k")
    cached.put("k", b"new", 0)
    assert cached.get("k") is None
    assert cached.caches.entries == 0


def test_the_time_to_live_is_at_most_that_of_the_cache() -> None:
    cached = Cached(Limits(max_ttl_ms=2000))
    cached.put("for ever")
    cached.put("long", ttl_ms=2**64 - 1)
    cached.put("short", ttl_ms=1000)
    cached.clock.advance(1)
    assert (cached.get("for ever"), cached.get("long"), cached.get("short")) == (b"v", b"v", None)
    cached.clock.advance(1)
    assert (cached.get("for ever"), cached.get("long")) == (None, None)


def test_an_undeclared_cache_is_refused_by_its_name() -> None:
    cached = Cached()
    with pytest.raises(UnknownCache) as refused:
        cached.get("k", CacheName("t", "n", "other"))
    assert str(refused.value) == "cache scope not found: t/n/other"
    with pytest.raises(UnknownCache):
        cached.put("k", name=CacheName("t", "x", "a"))


def test_a_full_cache_removes_expired_values_before_those_that_were_not_used() -> None:
    cached = Cached(Limits(max_entries=3))
    cached.put("a")
    cached.put("b", ttl_ms=1000)
    cached.put("c")
    cached.clock.advance(1)
    cached.put("d")
    assert cached.held("a", "b", "c", "d") == "acd"
    cached.get("a")
    cached.put("e")
    assert cached.held("a", "b", "c", "d", "e") == "ade"
    assert cached.evicted == {"expired": 1, "full": 1}


def test_a_full_cache_takes_nothing_from_another_one() -> None:
    cached = Cached(Limits(max_entries=1))
    cached.put("old", name=B)
    for key in "abc":
        cached.put(key)
    assert cached.get("old", B) == b"v"
    assert cached.held("a", "b", "c") == "c"


def test_what_all_caches_may_hold_together_is_shared() -> None:
    cached = Cached(entries=2)
    cached.put("old", name=B)
    cached.put("a")
    cached.put("b")
    assert cached.get("old", B) is None
    assert cached.held("a", "b") == "ab"
    cached.clock.advance(1)
    cached.put("short", ttl_ms=1000, name=B)
    cached.clock.advance(1)
    cached.put("c")
    assert cached.held("a", "b", "c") == "bc"


def test_bytes_count_key_value_and_overhead() -> None:
    cached = Cached(Limits(max_bytes=2 * (OVERHEAD + 10)))
    cached.put("é", b"12345678")
    cached.put("12345", b"12345")
    assert cached.caches.size == 2 * (OVERHEAD + 10)
    cached.put("é", b"123456789")
    assert cached.held("é", "12345") == "é"


def test_a_value_over_1_mib_is_refused_and_the_former_value_stays() -> None:
    cached = Cached(b=Limits(max_bytes=1000))
    cached.put("k", bytes(MAX_VALUE))
    with pytest.raises(ValueTooLarge, match="value too large"):
        cached.put("k", bytes(MAX_VALUE + 1))
    assert cached.get("k") == bytes(MAX_VALUE)
    with pytest.raises(ValueTooLarge, match="value too large"):
        cached.put("é" * (MAX_VALUE // 2 + 1))
    with pytest.raises(ValueTooLarge, match="the cache has 1000 bytes"):
        cached.put("k", bytes(1000), name=B)


def test_a_cache_that_is_declared_again_keeps_its_values_up_to_its_new_limits() -> None:
    cached = Cached()
    for key in "abcd":
        cached.put(key)
    cached.caches.declare({A: Limits(max_entries=2)})
    assert not cached.caches.sweep(SLICE)
    assert cached.held("a", "b", "c", "d") == "cd"
    with pytest.raises(UnknownCache):
        cached.get("k", B)


def test_the_values_of_an_undeclared_cache_are_removed_in_slices_and_do_not_return() -> None:
    cached = Cached()
    for key in "abcd":
        cached.put(key)
    cached.caches.declare({})
    cached.caches.declare({A: Limits()})
    cached.put("a", b"new")
    assert cached.held("a", "b", "c", "d") == "a"
    assert cached.caches.sweep(3)
    assert not cached.caches.sweep(3)
    assert (cached.caches.entries, cached.get("a")) == (1, b"new")


async def test_the_sweep_removes_what_expired_within_a_minute_in_slices() -> None:
    cached = Cached(entries=10 * SLICE)
    supervisor = Supervisor(cached.clock)
    for number in range(2 * SLICE + 1):
        cached.put(str(number), ttl_ms=1000)
    cached.put("stays")
    sweeping = supervisor.keep(cached.caches.sweep_for_ever, "sweep")
    await give_turns()
    cached.clock.advance(SWEEP_SECONDS)
    seen = []
    while cached.caches.entries > 1:
        await give_turns()
        seen.append(cached.caches.entries)
        cached.clock.advance(1)
    assert seen == [SLICE + 2, 2, 1]
    assert cached.evicted == {"expired": 2 * SLICE + 1}
    assert cached.get("stays") == b"v"
    sweeping.cancel()
    await supervisor.stop()


def test_replacing_a_key_again_and_again_leaves_nothing_behind() -> None:
    cached = Cached()
    for number in range(20_000):
        cached.put("k", ttl_ms=1000 + number)
    pool = cached.caches._all
    assert (cached.caches.entries, len(pool.used)) == (1, 1)
    assert sum(map(len, pool.ends._heaps)) < 64 * 70


# --- against a model --------------------------------------------------------------------------------------------------


@dataclass
class ModelEntry:
    value: bytes
    ends: float
    used: int


@dataclass
class Model:
    """The same as `Caches`, as slow and plain as can be."""

    limits: dict[CacheName, Limits]
    size: int
    entries: int
    now: float = 0.0
    uses: int = 0
    held: dict[tuple[CacheName, str], ModelEntry] = field(default_factory=dict)

    def get(self, name: CacheName, key: str) -> bytes | None:
        found = self.held.get((name, key))
        if found is None:
            return None
        if found.ends <= self.now:
            del self.held[name, key]
            return None
        self.uses += 1
        found.used = self.uses
        return found.value

    def put(self, name: CacheName, key: str, value: bytes, ttl_ms: int | None) -> None:
        limits = self.limits[name]
        size = len(key.encode()) + len(value) + OVERHEAD
        if size > min(limits.max_bytes, self.size):
            raise ValueTooLarge
        self.held.pop((name, key), None)
        ends = self.now + min(
            math.inf if ttl_ms is None else ttl_ms / 1000,
            math.inf if limits.max_ttl_ms is None else limits.max_ttl_ms / 1000,
        )
        if ends <= self.now:
            return
        self._make_room([name], limits.max_bytes - size, limits.max_entries - 1)
        self._make_room([A, B], self.size - size, self.entries - 1)
        self.uses += 1
        self.held[name, key] = ModelEntry(value, ends, self.uses)

    def _make_room(self, names: list[CacheName], size: int, entries: int) -> None:
        while True:
            mine = {place: each for place, each in self.held.items() if place[0] in names}
            if len(mine) <= entries and self.sized(mine) <= size:
                return
            gone = {place for place, each in mine.items() if each.ends <= self.now}
            del self.held[min(gone or mine, key=lambda place: mine[place].used)]

    @staticmethod
    def sized(held: dict[tuple[CacheName, str], ModelEntry]) -> int:
        return sum(len(key.encode()) + len(each.value) + OVERHEAD for (_, key), each in held.items())

    def alive(self) -> dict[tuple[CacheName, str], bytes]:
        return {place: each.value for place, each in self.held.items() if each.ends > self.now}


KEYS = st.sampled_from(["a", "b", "c", "d", "e", "f", "é"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from([A, B]), KEYS, st.integers(0, 300), st.none() | st.integers(0, 9)),
        st.tuples(st.just("get"), st.sampled_from([A, B]), KEYS),
        st.tuples(st.just("advance"), st.sampled_from([0.25, 1.0, 4.0])),
        st.tuples(st.just("sweep"), st.integers(1, 5)),
    ),
    max_size=60,
)
LIMITS = st.builds(Limits, st.integers(200, 1500), st.integers(1, 5), st.none() | st.sampled_from([1000, 3000]))


@given(LIMITS, LIMITS, st.integers(200, 2000), st.integers(1, 8), STEPS)
def test_the_caches_do_what_the_model_does(a: Limits, b: Limits, size: int, entries: int, steps: list[tuple]) -> None:  # type: ignore[type-arg]
    cached = Cached(a, b, size=size, entries=entries)
    model = Model({A: a, B: b}, size, entries)
    for kind, *step in steps:
        match kind, step:
            case "put", [name, key, length, ttl]:
                ttl_ms = None if ttl is None else ttl * 1000
                refused = []
                for target in (cached.caches, model):
                    try:
                        target.put(name, key, bytes(length), ttl_ms)
                    except ValueTooLarge:
                        refused.append(target)
                assert len(refused) in (0, 2)
            case "get", [name, key]:
                assert cached.caches.get(name, key) == model.get(name, key)
            case "advance", [seconds]:
                cached.clock.advance(seconds)
                model.now += seconds
            case "sweep", [most]:
                cached.caches.sweep(most)
        held = {
            (name, entry.key): entry.value
            for name, cache in cached.caches._caches.items()
            for entry in cache.used
            if entry.ends > cached.clock.monotonic()
        }
        assert held == model.alive()
        assert cached.caches.size <= size
        assert cached.caches.entries <= entries
        for name, limits in ((A, a), (B, b)):
            cache = cached.caches._caches[name]
            assert cache.bytes == sum(entry.size for entry in cache.used) <= limits.max_bytes
            assert len(cache.used) == len(cache.entries) <= limits.max_entries
