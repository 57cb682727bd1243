"""Keeps the effective configuration of a node current: merges again when something changes or ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eventd.dynamic.merge import Effective, merge
from eventd.dynamic.prepared import Entry, PreparedPart, Startup, prepare, prepare_startup
from eventd.errors import EventdError
from eventd.log.core.head import lock_head, read_head
from eventd.log.core.values import Head
from eventd.resources.plugin_configuration import PolicyRule, policies
from eventd.runtime.clock import SECOND, Clock
from eventd.store.engine.database import Connection, Database
from eventd.store.parts.claims import ResourceKey
from eventd.store.parts.reading import read_parts, read_revisions
from eventd.store.rows.generations import Generation, note, read_noted
from eventd.store.rows.registry import StoredResource, read_resources

logger = logging.getLogger("eventd.dynamic")

LONGEST_WAIT = 60.0
"""Seconds after which the time is read again, because the wall clock that decides about ends may have been set."""
BROKEN_SECONDS = 1.0
"""Seconds after which a failed merge is tried again."""
REST = 4.0
"""The pause after a merge as a multiple of its duration."""
LONGEST_REST = 1.0
"""The longest pause in seconds."""


class Versions(NamedTuple):
    """The log's epoch, and the versions of the declared resources and of the parts, that a merge used."""

    epoch: str
    registry: int
    parts: int

    @classmethod
    def of(cls, head: Head) -> Versions:
        return cls(head.epoch, head.registry_version, head.parts_version)


class Change(NamedTuple):
    """The resources added, changed and removed from one configuration to a later one; of removed ones only the keys."""

    added: list[Entry]
    changed: list[Entry]
    removed: list[ResourceKey]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A configuration that is or was in effect, beginning at `changed_at` (microseconds)."""

    generation: int
    etag: str
    changed_at: int
    effective: Effective
    made_of: Versions
    _changes: dict[int, Change] = field(default_factory=dict, compare=False, repr=False)

    @property
    def state(self) -> str:
        """A value that changes with everything in the snapshot, even where the resources stay the same."""
        _, registry, parts = self.made_of
        return f"{self.id}.{registry}.{parts}.{self.effective.next_change or 0}"

    @property
    def id(self) -> str:
        """The id of this content: generation and etag, because a restored database may repeat a generation."""
        return f"{self.generation}-{self.etag[:16]}"

    def since(self, earlier: Snapshot) -> Change:
        """Return what changed from an earlier snapshot to this one; it is computed once for all readers."""
        if earlier.generation not in self._changes:
            self._changes[earlier.generation] = _compare(earlier.effective, self.effective)
        return self._changes[earlier.generation]


def _compare(earlier: Effective, later: Effective) -> Change:
    before = {entry.key: entry.content for entry in earlier.entries}
    after = {entry.key for entry in later.entries}
    return Change(
        [entry for entry in later.entries if entry.key not in before],
        [entry for entry in later.entries if before.get(entry.key, entry.content) != entry.content],
        [entry.key for entry in earlier.entries if entry.key not in after],
    )


class MergeResult(NamedTuple):
    """The outcome of a merge, its etag, the versions it used, and the last stored generation (None: none yet)."""

    effective: Effective
    etag: str
    versions: Versions
    noted: Generation | None


class _DeclaredResources(NamedTuple):
    """The declared resources, prepared for merging, with the override policies, epoch and version."""

    epoch: str
    version: int
    startup: Startup
    policies: tuple[PolicyRule, ...]


class ConfigMerger:
    """Merges what the database holds; while few parts change, only these are read and prepared again.

    It may run on several threads: each cache is replaced as a whole, and compared before it is used.
    """

    def __init__(self) -> None:
        self._declared = _DeclaredResources("", 0, prepare_startup([]), ())
        self._parts: tuple[str, dict[int, tuple[int, PreparedPart]]] = ("", {})

    def merge(self, conn: Connection, now: int) -> MergeResult:
        """Merge what the open transaction sees, as of `now`.

        Raises Invalid for an unreadable policy.
        """
        versions = Versions.of(read_head(conn))
        declared = self._read_declared(conn, versions)
        effective = merge(declared.startup, self._read_parts(conn, versions), declared.policies, now)
        return MergeResult(effective, effective.etag(), versions, read_noted(conn))

    def merge_with(self, conn: Connection, stored: Sequence[StoredResource], now: int) -> Effective:
        """Return the configuration that would be in effect if these resources were declared, not the stored ones."""
        parts = self._read_parts(conn, Versions.of(read_head(conn)))
        return merge(prepare_startup(stored), parts, policies(stored), now)

    def _read_declared(self, conn: Connection, versions: Versions) -> _DeclaredResources:
        known = self._declared
        if (known.epoch, known.version) == (versions.epoch, versions.registry):
            return known
        stored = read_resources(conn)
        self._declared = _DeclaredResources(
            versions.epoch, versions.registry, prepare_startup(stored), policies(stored)
        )
        return self._declared

    def _read_parts(self, conn: Connection, versions: Versions) -> list[PreparedPart]:
        epoch, known = self._parts
        known = known if epoch == versions.epoch else {}
        revisions = read_revisions(conn)
        stale = [id for id, revision in revisions.items() if id not in known or known[id][0] != revision]
        # A few are read by id; reading all is cheaper than reading most of them by id.
        fresh = read_parts(conn, ids=stale if 2 * len(stale) < len(revisions) else None) if stale else []
        parts = {id: known[id] for id in revisions if id in known}
        parts |= {part.id: (part.revision, prepare(part)) for part in fresh}
        self._parts = (versions.epoch, parts)
        return [part for _, part in parts.values()]

    def merge_unless(self, conn: Connection, now: int, made_of: Versions) -> MergeResult | None:
        """Like `merge`, but return None if the database is still at the versions `made_of`."""
        return None if Versions.of(read_head(conn)) == made_of else self.merge(conn, now)


class Following:
    """The effective configuration of a database; in a running node, the task `run_for_ever` keeps it current.

    Without `counts`, as in a command, nothing is written: content that no node has stored as a generation
    gets the number that it would get next.
    """

    def __init__(self, database: Database, clock: Clock, *, counts: bool = True) -> None:
        self._database = database
        self._clock = clock
        self._counts = counts
        self._merging = ConfigMerger()
        self._snapshot: Snapshot | None = None
        self._merged_at = 0
        self._refreshing = asyncio.Lock()
        self._looks = 0  # the number of merges that were started
        self._seen = 0  # the last of them that had a result
        self._signs = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._sign: asyncio.Future[None] | None = None

    def changed(self) -> None:
        """Have `run_for_ever` merge soon: this or another process may have written parts or declared resources."""
        self._signs += 1
        if self._sign is not None and not self._sign.done():
            self._sign.set_result(None)

    def look(self, head: Head) -> None:
        """Like `changed`, unless the last merge used the versions in this head."""
        if self._snapshot is None or self._snapshot.made_of != Versions.of(head):
            self.changed()

    async def current(self) -> Snapshot:
        """Return the configuration in effect now, merging if necessary; concurrent callers share one merge.

        With `counts`, new content is stored as a generation. Raises `EventdError` if the database or a policy cannot be
        read.
        """
        asked = self._looks
        async with self._refreshing:
            if self._snapshot is not None and self._seen > asked:
                return self._snapshot
            while True:
                self._looks += 1
                now = self._clock.now()
                merged = await self._merge(now)
                if merged is None and self._snapshot is not None:
                    self._seen = self._looks
                    return self._snapshot
                noted = await self._note(merged, now) if merged else None
                if merged and noted:
                    self._seen, self._merged_at = self._looks, now
                    return self._take(merged, noted)

    async def _merge(self, now: int) -> MergeResult | None:
        """Return the result of a merge; None if nothing has changed or ended since the last one.

        If the clock was set back since then, a part that seemed to have expired may not have.
        """
        known = self._snapshot
        next_change = None if known is None else known.effective.next_change
        if known is None or now < self._merged_at or (next_change is not None and now >= next_change):
            return await self._database.read(self._merging.merge, now)
        return await self._database.read(self._merging.merge_unless, now, known.made_of)

    async def _note(self, merged: MergeResult, now: int) -> Generation | None:
        """Return the generation of the merged content; with `counts`, it is stored if new.

        None if the merge is outdated: a generation of newer data is stored, or the log has another epoch.
        """
        if not self._counts or (merged.noted is not None and merged.noted.etag == merged.etag):
            return _as_if_noted(merged, now)
        return await self._database.write(note_content, merged.versions, merged.etag, now)

    async def with_startup(self, stored: Sequence[StoredResource]) -> Effective:
        """Return the configuration that would be in effect if these resources were declared, not the stored ones.

        Raises Invalid for an unreadable policy.
        """
        return await self._database.read(self._merging.merge_with, stored, self._clock.now())

    def _take(self, merged: MergeResult, noted: Generation) -> Snapshot:
        self._snapshot = Snapshot(*noted, merged.effective, merged.versions)
        waiting, self._waiting = self._waiting, []
        for generation, future in waiting:
            if not future.done() and noted.generation != generation:
                future.set_result(None)
            elif not future.done():
                self._waiting.append((generation, future))
        return self._snapshot

    @property
    def latest(self) -> Snapshot | None:
        """Return the configuration of the last merge, which may be outdated; None before the first."""
        return self._snapshot

    def other_than(self, generation: int) -> asyncio.Future[None]:
        """Return a future that is done when a generation other than this is in effect. The caller may cancel it."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._snapshot is not None and self._snapshot.generation != generation:
            future.set_result(None)
        else:
            self._waiting = [(number, other) for number, other in self._waiting if not other.done()]
            self._waiting.append((generation, future))
        return future

    async def run_for_ever(self) -> None:
        """Merge after each change, and when something in the configuration ends, until cancelled.

        A merge that raises `EventdError` is retried; the error is logged unless it is that of the attempt before.
        """
        trouble = ""
        while True:
            signs, begun = self._signs, self._clock.monotonic()
            try:
                snapshot = await self.current()
                trouble, end = "", snapshot.effective.next_change
            except EventdError as error:
                if trouble != str(error):
                    logger.error("effective configuration failed", extra={"error": str(error)})
                trouble, end = str(error), None
            # A caller that needs it now merges at once; under constant change, merging here must not take all the time.
            if rest := min(LONGEST_REST, REST * (self._clock.monotonic() - begun)):
                await self._clock.sleep(rest)
            if signs == self._signs:
                await self._wait(BROKEN_SECONDS if trouble else self._seconds_to(end))

    def _seconds_to(self, end: int | None) -> float:
        if end is None:
            return LONGEST_WAIT
        return min(LONGEST_WAIT, max(0.0, (end - self._clock.now()) / SECOND))

    async def _wait(self, seconds: float) -> None:
        timer = self._clock.timer(seconds)
        self._sign = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait({timer, self._sign}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            self._sign.cancel()


def note_content(conn: Connection, versions: Versions, etag: str, now: int) -> Generation | None:
    """Return the generation of the content with this etag, stored in the open transaction if it is new.

    None if a generation of newer data is stored, or the log has another epoch.
    """
    if lock_head(conn).epoch != versions.epoch:
        return None
    return note(conn, etag, registry_version=versions.registry, parts_version=versions.parts, now=now)


def _as_if_noted(merged: MergeResult, now: int) -> Generation:
    """Return the generation that is stored for the merged content, or the one that it would get next."""
    before = merged.noted or Generation(0, "", 0)
    return before if before.etag == merged.etag else Generation(before.generation + 1, merged.etag, now)
