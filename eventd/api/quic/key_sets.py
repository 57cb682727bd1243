"""Key sets in files and at URLs.

They are read when they are declared, read again when they change, and fetched again for an unknown key. If a source
cannot be read, or no longer holds a key set, its known keys stay in use.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from eventd.api.quic.key_sources import LARGEST, FileMark, KeyContent, KeySourceReader, KeySourceUnreadable
from eventd.resources.stream_configuration import KeySourceConfig
from eventd.runtime.clock import Clock

WATCH_SECONDS: Final = 0.5
"""Seconds between two checks of the files."""
FRESH_SECONDS: Final = 3600.0
"""Seconds after which a URL is fetched again."""
RETRY_SECONDS: Final = 60.0
"""Seconds after which a URL or a file that could not be read is read again, although no token needs it."""
AGAIN_SECONDS: Final = 10.0
"""Seconds for which a URL is not fetched again for an unknown key."""

logger = logging.getLogger("eventd.streams")


class IdentifiedKey(Protocol):
    """A key of a set."""

    @property
    def id(self) -> str: ...


K = TypeVar("K", bound=IdentifiedKey)
K_co = TypeVar("K_co", bound=IdentifiedKey, covariant=True)


class ParsedKeys(Protocol[K_co]):
    """The usable keys of a set, and what is wrong with each of the others."""

    @property
    def keys(self) -> Sequence[K_co]: ...
    @property
    def problems(self) -> Sequence[str]: ...


class KeySetState(NamedTuple):
    """The state of a source. `age`: seconds since it was last read, None if it never was.

    `problem`: why the last read failed; `skipped`: what is wrong with keys of it that are not used.
    """

    source: KeySourceConfig
    keys: int
    age: float | None
    problem: str
    skipped: tuple[str, ...]


class _KnownSet(Generic[K]):
    """One source: its keys and state. `tried_at` and `read_at`: monotonic times of the last read and success."""

    def __init__(self, source: KeySourceConfig) -> None:
        self.source = source
        self.lock = asyncio.Lock()
        self.keys: tuple[K, ...] = ()
        self.skipped: tuple[str, ...] = ()
        self.problem = ""
        self.mark: FileMark = ()
        self.reads = 0
        self.tried_at: float | None = None
        self.read_at: float | None = None

    def knows(self, key_id: str) -> bool:
        return any(key.id == key_id for key in self.keys)


class KeySets(Generic[K]):
    """The key sets of one kind of key. `parse` reads a set; it raises ValueError, whose text follows the source's name.

    `generation` changes whenever keys may have been added or removed.
    """

    def __init__(
        self, what: str, parse: Callable[[KeyContent], ParsedKeys[K]], reader: KeySourceReader, clock: Clock
    ) -> None:
        self.generation = 0
        self._what = what
        self._parse = parse
        self._reader = reader
        self._clock = clock
        self._sets: dict[KeySourceConfig, _KnownSet[K]] = {}

    def declare(self, sources: Iterable[KeySourceConfig]) -> None:
        """Follow these sources, and drop all earlier ones that are not among them."""
        wanted = dict.fromkeys(sources)
        self._sets = {source: self._sets.get(source) or _KnownSet(source) for source in wanted}
        self.generation += 1

    def known(self, source: KeySourceConfig) -> tuple[K, ...] | None:
        """Return the known keys of a declared source; None if it has not been read yet."""
        found = self._sets.get(source)
        return None if found is None or found.tried_at is None else found.keys

    async def find(self, source: KeySourceConfig, key_id: str = "") -> tuple[K, ...]:
        """Return the keys of a declared source. It is read if it has not been read yet, or for an unknown `key_id`.

        For an empty `key_id`, the source is not read again.
        """
        found = self._sets.get(source)
        if found is None:
            return ()
        if found.tried_at is None or (source.url and self._is_wanted(found, key_id)):
            await self._read(found)
        return found.keys

    def _is_wanted(self, found: _KnownSet[K], key_id: str) -> bool:
        is_unknown = found.read_at is None or (key_id != "" and not found.knows(key_id))
        return is_unknown and self._seconds_since(found.tried_at) >= AGAIN_SECONDS

    async def watch(self) -> None:
        """Check once: read the files that have changed, and the sources that have not been read yet."""
        files = [found for found in self._sets.values() if found.source.file]
        marks = await self._reader.marks([found.source for found in files]) if files else []
        for found, mark in zip(files, marks, strict=True):
            is_due = bool(found.problem) and self._seconds_since(found.tried_at) >= RETRY_SECONDS
            if found.tried_at is None or is_due or (mark is not None and mark != found.mark):
                found.mark = mark or ()
                await self._read(found)

    async def refresh(self) -> None:
        """Check once: fetch the URLs that are due."""
        for found in list(self._sets.values()):
            longest = RETRY_SECONDS if found.problem else FRESH_SECONDS
            if found.source.url and self._seconds_since(found.tried_at) >= longest:
                await self._read(found)

    async def reload(self) -> None:
        """Read all files again; URLs are due for the next `refresh`."""
        for found in list(self._sets.values()):
            if found.source.file:
                await self._read(found)
            else:
                found.tried_at = None if found.read_at is None else self._clock.monotonic() - FRESH_SECONDS

    def states(self) -> list[KeySetState]:
        """Return the state of each source."""
        return [
            KeySetState(
                found.source,
                len(found.keys),
                None if found.read_at is None else self._seconds_since(found.read_at),
                found.problem,
                found.skipped,
            )
            for found in self._sets.values()
        ]

    def _seconds_since(self, moment: float | None) -> float:
        return float("inf") if moment is None else self._clock.monotonic() - moment

    async def _read(self, found: _KnownSet[K]) -> None:
        """Read a source; callers that come meanwhile wait for the same read."""
        before = found.reads
        async with found.lock:
            if found.reads != before:
                return
            try:
                got = await self._reader.read(found.source)
                if len(got.content) > LARGEST:
                    raise KeySourceUnreadable(f"it is larger than {LARGEST >> 20} MiB")
                parsed = self._parse(got)
            except (KeySourceUnreadable, ValueError) as error:
                self._note_failure(found, str(error))
            else:
                self._take(found, parsed, got.mark)
            found.tried_at = self._clock.monotonic()
            found.reads += 1

    def _take(self, found: _KnownSet[K], parsed: ParsedKeys[K], mark: FileMark) -> None:
        keys, skipped = tuple(parsed.keys), tuple(parsed.problems)
        if skipped != found.skipped:
            for problem in skipped:
                logger.warning("key not used", extra={"source": self._name(found), "error": problem})
        if found.problem:
            logger.info("key set readable again", extra={"source": self._name(found)})
        found.keys, found.skipped, found.problem, found.mark = keys, skipped, "", mark
        found.read_at = self._clock.monotonic()
        self.generation += 1

    def _note_failure(self, found: _KnownSet[K], problem: str) -> None:
        if problem != found.problem:
            logger.warning(
                "key set not readable",
                extra={"source": self._name(found), "error": problem, "known_keys": len(found.keys)},
            )
        found.problem = problem
        if found.tried_at is None:
            self.generation += 1

    def _name(self, found: _KnownSet[K]) -> str:
        return f"{self._what} {found.source.name}"
