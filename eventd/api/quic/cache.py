"""The caches of a node: values in memory by key, bounded in bytes and entries, for each cache and for all together.

A full cache removes expired entries first, then those that were used longest ago. No operation takes
longer than O(log n) per entry that it removes, so the event loop calls them directly.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, Literal, Protocol

from eventd.runtime.clock import Clock
from eventd.streams.limits import MAX_VALUE
from eventd.streams.names import CacheName, cut_name

OVERHEAD: Final = 128
"""Bytes that an entry counts besides its key and its value."""
_TOO_LARGE: Final = f"value too large: a key and a value have at most {MAX_VALUE} bytes each"
SWEEP_SECONDS: Final = 10.0
"""The pause between two sweeps; each removes everything that has expired, in slices."""
SLICE: Final = 1000
"""Maximum number of entries that a sweep removes before the event loop turns to other work."""
SLICE_SECONDS: Final = 0.005
"""The pause between two slices of a sweep."""
EVICTED_AT_ONCE: Final = 20_000
"""Maximum number of entries that one put evicts: more than the largest value needs. It has to be bounded because a
cache may be declared anew, much smaller; then the sweep removes the rest."""
_PARTS: Final = 64
"""The number of heaps in which the expiries of entries are kept: several, because removing stale items rebuilds a
whole heap."""
_FEW: Final = 64
"""Up to this number of stale items, a heap is not rebuilt."""

Eviction = Literal["expired", "full"]


class CacheLimits(Protocol):
    """The declared limits of a cache."""

    @property
    def max_bytes(self) -> int: ...
    @property
    def max_entries(self) -> int: ...
    @property
    def max_ttl_ms(self) -> int | None: ...


class UnknownCache(LookupError):
    """No such cache is declared; the message is for the client."""

    def __init__(self, name: CacheName) -> None:
        super().__init__("cache scope not found: " + "/".join(map(cut_name, name)))


class ValueTooLarge(ValueError):
    """A key or a value is over `MAX_VALUE`, or larger than its cache; the message is for the client."""


class CacheEntry:
    """A value; `ends` is when it expires, on the monotonic clock."""

    __slots__ = ("cache", "ends", "is_held", "key", "number", "size", "value")

    def __init__(self, cache: _Cache, key: str, value: bytes, ends: float, number: int) -> None:
        self.cache = cache
        self.key = key
        self.value = value
        self.size = size_of(key, value)
        self.ends = ends
        self.number = number
        self.is_held = True


def size_of(key: str, value: bytes) -> int:
    """Return the bytes that an entry counts."""
    return _bytes(key) + len(value) + OVERHEAD


def _require_key(key: str) -> None:
    if len(key) > MAX_VALUE or _bytes(key) > MAX_VALUE:
        raise ValueTooLarge(_TOO_LARGE)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


class _Ends:
    """When entries expire. Items of entries that are not held any more stay until they come up, or are too many."""

    def __init__(self) -> None:
        self._heaps: list[list[tuple[float, int, CacheEntry]]] = [[] for _ in range(_PARTS)]
        self._stale = [0] * _PARTS
        self._next = math.inf  # no entry expires before

    def add(self, item: tuple[float, int, CacheEntry]) -> None:
        heappush(self._heaps[item[1] % _PARTS], item)
        self._next = min(self._next, item[0])

    def forget(self, entry: CacheEntry) -> None:
        """Count the item of an entry that is not held any more as stale."""
        part = entry.number % _PARTS
        heap = self._heaps[part]
        self._stale[part] += 1
        if self._stale[part] > _FEW and 2 * self._stale[part] > len(heap):
            heap[:] = [item for item in heap if item[2].is_held]
            heapify(heap)
            self._stale[part] = 0

    def find_expired(self, now: float) -> CacheEntry | None:
        """Return an entry that has expired; None if none has."""
        if now < self._next:
            return None
        soonest = math.inf
        for part, heap in enumerate(self._heaps):
            while heap and not heap[0][2].is_held:
                heappop(heap)
                self._stale[part] -= 1
            if heap and heap[0][0] <= now:
                return heap[0][2]
            if heap:
                soonest = min(soonest, heap[0][0])
        self._next = soonest
        return None


class _Pool:
    """Entries that share limits, in the order of their last use: those of one cache, or of all."""

    def __init__(self, most_bytes: int, most_entries: int) -> None:
        self.most_bytes = most_bytes
        self.most_entries = most_entries
        self.bytes = 0
        self.used: OrderedDict[CacheEntry, None] = OrderedDict()
        self.ends = _Ends()

    def is_over(self, entries: int = 0, size: int = 0) -> bool:
        """Return whether the limits would be exceeded with this many more entries and bytes."""
        return self.bytes + size > self.most_bytes or len(self.used) + entries > self.most_entries

    def add(self, entry: CacheEntry, item: tuple[float, int, CacheEntry]) -> None:
        self.used[entry] = None
        self.bytes += entry.size
        if entry.ends < math.inf:
            self.ends.add(item)

    def remove(self, entry: CacheEntry) -> None:
        del self.used[entry]
        self.bytes -= entry.size
        if entry.ends < math.inf:
            self.ends.forget(entry)


class _Cache(_Pool):
    """One cache; `max_ttl` in seconds."""

    def __init__(self, limits: CacheLimits) -> None:
        super().__init__(0, 0)
        self.entries: dict[str, CacheEntry] = {}
        self.declare(limits)

    def declare(self, limits: CacheLimits) -> None:
        self.most_bytes, self.most_entries = limits.max_bytes, limits.max_entries
        self.max_ttl = math.inf if limits.max_ttl_ms is None else limits.max_ttl_ms / 1000


class Caches:
    """All caches of a node, which share `most_bytes` and `most_entries`.

    `evicted` is called with the reason of each removal, and the number of entries. Entries do not outlive the process.
    """

    def __init__(
        self,
        clock: Clock,
        most_bytes: int,
        most_entries: int,
        evicted: Callable[[Eviction, int], None] = lambda reason, entries: None,
    ) -> None:
        self._evicted = evicted
        self._clock = clock
        self._all = _Pool(most_bytes, most_entries)
        self._caches: dict[CacheName, _Cache] = {}
        self._leaving: dict[_Cache, None] = {}  # not declared any more: their entries are removed in slices
        self._number = 0

    @property
    def entries(self) -> int:
        """Return the number of entries, including expired ones that are still stored."""
        return len(self._all.used)

    @property
    def size(self) -> int:
        """Return the bytes of all entries."""
        return self._all.bytes

    def declare(self, limits: Mapping[CacheName, CacheLimits]) -> None:
        """Set which caches there are, and their limits. The entries of the others are no longer served.

        A cache keeps its entries; those beyond a lower limit are removed by the next puts and sweeps.
        """
        for name in [name for name in self._caches if name not in limits]:
            self._leaving[self._caches.pop(name)] = None
        for name, each in limits.items():
            if name in self._caches:
                self._caches[name].declare(each)
            else:
                self._caches[name] = _Cache(each)

    def get(self, name: CacheName, key: str) -> bytes | None:
        """Return the value of a key; None if there is none, or it has expired.

        Raises `UnknownCache`, and `ValueTooLarge` for a key that no value can have.
        """
        cache = self._find(name)
        _require_key(key)
        entry = cache.entries.get(key)
        if entry is None:
            return None
        if entry.ends <= self._clock.monotonic():
            self._evict(entry, "expired")
            return None
        cache.used.move_to_end(entry)
        self._all.used.move_to_end(entry)
        return entry.value

    def put(self, name: CacheName, key: str, value: bytes, ttl_ms: int | None) -> None:
        """Store a value for this number of milliseconds; None: as long as the cache allows.

        It replaces the key's former value. Raises `UnknownCache`, and `ValueTooLarge`; the former value is then kept.
        """
        cache = self._find(name)
        _require_key(key)
        if len(value) > MAX_VALUE:
            raise ValueTooLarge(_TOO_LARGE)
        size = size_of(key, value)
        if size > min(cache.most_bytes, self._all.most_bytes):
            raise ValueTooLarge(f"value too large: the cache has {min(cache.most_bytes, self._all.most_bytes)} bytes")
        if (former := cache.entries.get(key)) is not None:
            self._remove(former)
        ttl = min(cache.max_ttl, math.inf if ttl_ms is None else ttl_ms / 1000)
        if ttl <= 0:
            return
        self._make_room(cache, size)
        self._number += 1
        entry = CacheEntry(cache, key, value, self._clock.monotonic() + ttl, self._number)
        item = (entry.ends, entry.number, entry)
        cache.entries[key] = entry
        cache.add(entry, item)
        self._all.add(entry, item)

    def _find(self, name: CacheName) -> _Cache:
        cache = self._caches.get(name)
        if cache is None:
            raise UnknownCache(name)
        return cache

    def _make_room(self, cache: _Cache, size: int) -> None:
        """Evict until an entry of this size fits into the cache, and into all caches together."""
        now, left = self._clock.monotonic(), EVICTED_AT_ONCE
        for pool in (cache, self._all):
            while left and pool.used and pool.is_over(1, size):
                self._evict_one(pool, now)
                left -= 1

    def _evict_one(self, pool: _Pool, now: float) -> None:
        entry = pool.ends.find_expired(now)
        if entry is not None:
            self._evict(entry, "expired")
        else:
            self._evict(next(iter(pool.used)), "full")

    def _evict(self, entry: CacheEntry, reason: Eviction) -> None:
        self._remove(entry)
        self._evicted(reason, 1)

    def _remove(self, entry: CacheEntry) -> None:
        entry.is_held = False
        del entry.cache.entries[entry.key]
        entry.cache.remove(entry)
        self._all.remove(entry)

    # --- sweeping -----------------------------------------------------------------------------------------------------

    async def sweep_for_ever(self) -> None:
        """Remove again and again what has expired, was undeclared, or is over a lowered limit, in slices."""
        while True:
            more = self.sweep(SLICE)
            await self._clock.sleep(SLICE_SECONDS if more else SWEEP_SECONDS)

    def sweep(self, most: int) -> bool:
        """Remove up to `most` entries that have expired, were undeclared, or are over a limit.

        Return whether more are.
        """
        now = self._clock.monotonic()
        while most and (entry := self._all.ends.find_expired(now)) is not None:
            self._evict(entry, "expired")
            most -= 1
        while most and self._leaving:
            cache = next(iter(self._leaving))
            if cache.used:
                self._remove(next(iter(cache.used)))
                most -= 1
            else:
                del self._leaving[cache]
        for cache in self._caches.values():
            while most and cache.is_over():
                self._evict_one(cache, now)
                most -= 1
        return not most
