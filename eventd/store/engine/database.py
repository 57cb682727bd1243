"""Opening the database and running plain functions over it. Callers need not know which database it is.

A storage function takes an open `Connection` and commits nothing. `Database.write` runs one on the single
writer thread inside one transaction; `Database.read` runs one on a reader thread over one snapshot. A caller that
knows that a transaction is short may run it in its own thread while the writer thread has nothing to do. Durability
is the database's strictest by default: an answer given after `write` returned survives a power cut.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from eventd.errors import DatabaseUnavailable
from eventd.runtime.chance import SYSTEM, Chance
from eventd.runtime.threads import THREADS, ThreadFactory, in_loop_runner
from eventd.store.engine.address import SqliteUrl, parse_url
from eventd.store.engine.attached import take_attached
from eventd.store.engine.boot import read_boot_id
from eventd.store.engine.changes import ChangeSource, FileChanges, Notifications
from eventd.store.engine.claim import DatabaseClaim, read_claims
from eventd.store.engine.connection import DatabaseConnection, Kind, ProcessFacts
from eventd.store.engine.engines import KEPT_BY_WRITER, Engine, SqliteEngine, open_engine
from eventd.store.engine.failed_sync import FailedSync, RewriteFile, rewrite_file
from eventd.store.engine.fence import ClaimCheck, session_name
from eventd.store.engine.file_guard import FileGuard
from eventd.store.engine.head_file import HeadFile
from eventd.store.engine.statements import BEGIN_WRITING, CHANNEL
from eventd.store.engine.thread_pool import ThreadConnections
from eventd.store.engine.translation import translated
from eventd.store.engine.writer_lock import WriterLock
from eventd.text.user_info import without_password

Connection = DatabaseConnection
"""An open transaction, as storage functions get it."""

P = ParamSpec("P")
T = TypeVar("T")

READERS = 3
"""Number of threads that read for requests; the same number reads for deliveries. Each has its own connection."""
LOCK_SECONDS = 5.0
"""Seconds that a transaction waits for a lock of another process."""


class Database:
    """An open database. Close it with `close()`; its thread pools end there.

    Raises `SettingsError` for an unusable URL, `MissingExtra` when the Postgres driver is absent, `DatabaseUnavailable`
    when it does not respond, and `DatabaseUnusable` when the file is not a database; the last two on first use.
    `shared`: other processes write to it constantly. `claim` names the claim of this node; unless it is held, new
    Postgres sessions are refused. `threads` creates the thread pools; `boot_id` identifies the boot of the machine
    (empty: it is read); `rewrite` writes a file again. A simulation passes its own. A node passes its `chance`;
    commands, and the many tests that need no seed, leave it out. `is_first`: the caller is the first process of a node,
    or replaces one, and rewrites the log in case a flush of an earlier process failed.
    """

    def __init__(
        self,
        url: str,
        *,
        shared: bool = False,
        claim: str = "",
        chance: Chance = SYSTEM,
        threads: ThreadFactory = THREADS,
        boot_id: str = "",
        rewrite: RewriteFile = rewrite_file,
        is_first: bool = False,
    ) -> None:
        self.url = parse_url(url)
        self.chance = chance
        self.threads = threads
        self.claim_name = claim
        self.restarts = 0
        """How often a restart of SQLite's write-ahead log was tried."""
        self.kind: Kind = "sqlite" if isinstance(self.url, SqliteUrl) else "postgresql"
        self.file_guard = FileGuard(self.path)
        self._failed_sync = FailedSync(self._log_path, rewrite, at_start=is_first)
        self._label = self.label()
        self._writer_lock = WriterLock(self.path, LOCK_SECONDS) if shared and self.path else None
        writing = self._open_engine(0, ProcessFacts(chance, boot_id or read_boot_id(chance)))
        self._writing = ThreadConnections(writing, KEPT_BY_WRITER.get(self.kind, ""))
        self._reading = ThreadConnections(self._open_engine(2 * READERS))
        self._writer = threads(1, "eventd-writer", self._writing.keep)
        self._run_in_loop = in_loop_runner(self._writer)
        self._unfinished: deque[Future[Any]] = deque()  # the writer thread's, in order
        self._checkpoints_apart = False
        self.is_checkpointing = False
        """Whether `checkpoint` is under way, during which flushes of the disk take longer."""
        self._is_closed = False
        self._readers = threads(READERS, "eventd-reader", self._reading.keep)
        self._delivering = threads(READERS, "eventd-delivery", self._reading.keep)
        self._head_file: HeadFile | None = None

    def _open_engine(self, readers: int, process: ProcessFacts | None = None) -> Engine:
        return open_engine(self.url, readers=readers, patience=LOCK_SECONDS, claim=self.claim_name, process=process)

    @property
    def path(self) -> Path | None:
        """Return the file of a SQLite database; None on Postgres."""
        return Path(self.url.database) if self.kind == "sqlite" and self.url.database else None

    @property
    def _log_path(self) -> Path | None:
        """The file of SQLite's write-ahead log, which lies beside the file that a link leads to; None on Postgres."""
        return Path(f"{os.path.realpath(self.path)}-wal") if self.path else None

    def open_head_file(self) -> HeadFile | None:
        """Return the file that records how far the log was acknowledged; it is opened once, and closed by `close`.

        None on Postgres. Raises `OSError`.
        """
        if self._head_file is None and self.path is not None:
            self._head_file = HeadFile(self.path)
        return self._head_file

    def label(self) -> str:
        """Return the URL of the database for messages, without its password."""
        return without_password(self.url.render_as_string(hide_password=True))

    @contextmanager
    def transaction(self, *, durable: bool = True, waits: bool = True) -> Iterator[Connection]:
        """Run the block as one write transaction in this thread, committed at its end.

        If it is not `durable`, the commit reaches the disk a little later, or with the next durable one. Unless it
        `waits`, it fails at once if another process holds a lock, or the log has to be written again (SQLite).
        """
        turn = nullcontext() if self._writer_lock is None else self._writer_lock.hold()
        with turn, translated(self._label), self._writing.use() as conn, self._failed_sync.noted():
            if self.kind == "sqlite":
                _configure(conn, durable, waits)
            with conn.begun(BEGIN_WRITING if self.kind == "sqlite" else ""):
                if self.kind != "sqlite" and not durable:
                    conn.driver.execute("SET LOCAL synchronous_commit = off")
                if self._failed_sync.is_due:
                    if not waits:  # a flush has failed in another thread just now
                        raise _WriterNeeded
                    self.file_guard.require()
                    self._failed_sync.rewrite_log(self._label)
                yield conn
                self.file_guard.require()  # otherwise it would be acknowledged without being stored

    def write_now(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` in one durable write transaction in this thread, committed when it returns; return its result."""
        with self.transaction() as conn:
            return fn(conn, *args, **kwargs)

    def read_now(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` on one snapshot in this thread; return its result."""
        begin = "BEGIN" if self.kind == "sqlite" else ""
        with translated(self._label), self._reading.use() as conn, conn.begun(begin):
            return fn(conn, *args, **kwargs)

    def start_write(self, fn: Callable[[Connection], T], *, durable: bool = True) -> Future[T]:
        """Queue `fn` for the writer thread, as a separate transaction; return a future of its result.

        Queued transactions run one after the other, in the order of the calls.
        """
        return self._submit(self._write, fn, durable)

    def _submit(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call for the writer thread. Called by one thread, the one of the loop."""
        while self._unfinished and self._unfinished[0].done():
            self._unfinished.popleft()
        self._unfinished.append(future := self._writer.submit(fn, *args, **kwargs))
        return future

    def _write(self, fn: Callable[[Connection], T], durable: bool, waits: bool = True) -> T:
        with self.transaction(durable=durable, waits=waits) as conn:
            return fn(conn)

    @property
    def may_write_in_loop(self) -> bool:
        """Return whether `write_in_loop` may be called: on SQLite, while the writer thread has nothing to do.

        Also, no checkpoint may be under way, in a transaction or beside it, no transaction may have to write the log
        again, and no other process of the node may write constantly: all of these take long.
        """
        while self._unfinished and self._unfinished[0].done():
            self._unfinished.popleft()
        return (
            not (self._unfinished or self._is_closed or self.is_checkpointing or self._failed_sync.is_due)
            and self._checkpoints_apart
            and self._writer_lock is None
            and self._writing.has_one_thread
        )

    def write_in_loop(self, fn: Callable[[Connection], T], *, durable: bool = True) -> Future[T] | None:
        """Run `fn` as `start_write` does, but in this thread, which is that of the loop; return its completed future.

        Danger: everything else in this thread waits for it, and for its flush. It waits for nothing else: returns
        None, and nothing is written, if another process has a lock, or the log has to be written again. Call it only
        while `may_write_in_loop`.
        """
        done: Future[T] = Future()

        def job() -> T:
            with self._writing.borrowed():
                return self._write(fn, durable, waits=False)

        try:
            done.set_result(self._run_in_loop(job))
        except BaseException as error:  # as in the writer thread: the future carries it
            if isinstance(error, _WriterNeeded) or _is_locked(error):
                return None
            done.set_exception(error)
        return done

    async def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `write_now` on the writer thread. The transaction also carries out what is attached to the operation."""
        attached = take_attached()
        if attached is None:
            return await asyncio.wrap_future(self._submit(partial(self.write_now, fn, *args, **kwargs)))
        with attached.carried():
            both = attached.around(lambda conn: fn(conn, *args, **kwargs))
            return await asyncio.wrap_future(self._submit(partial(self.write_now, both)))

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `read_now` on a reader thread."""
        return await asyncio.wrap_future(self._readers.submit(partial(self.read_now, fn, *args, **kwargs)))

    async def read_for_delivery(
        self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `read_now` on a thread reserved for consumers' short reads, so that long requests do not delay them."""
        return await asyncio.wrap_future(self._delivering.submit(partial(self.read_now, fn, *args, **kwargs)))

    def change_source(self, sleep: Callable[[float], Awaitable[None]]) -> ChangeSource:
        """Return a new source of signals that another connection, also of this process, may have committed.

        A lost signal costs a poll, never a record.
        """
        if isinstance(self._reading.engine, SqliteEngine):
            with translated(self._label):
                alone = self._reading.engine.open()
            return FileChanges(alone, self.file_guard, sleep, shared=self._writer_lock is not None)
        assert not isinstance(self.url, SqliteUrl)
        return Notifications(self.url, CHANNEL, session_name("eventd-listen", self.claim_name))

    def claim(self, group: str, who: str) -> DatabaseClaim | None:
        """Return the claim, not taken yet, that keeps a second node away; on `group` alone if it is not empty.

        None on SQLite, where a locked file does this.
        """
        if isinstance(self.url, SqliteUrl):
            return None
        return DatabaseClaim(self.url, self.label(), group, who, self.chance)

    def claim_check(self) -> ClaimCheck | None:
        """Return the check whether this node's claim on Postgres is held; None without a claim."""
        if isinstance(self.url, SqliteUrl) or not self.claim_name:
            return None
        return ClaimCheck(self.url, self.claim_name)

    def claims(self) -> list[str]:
        """Return each holder of a claim on this Postgres database, as its process and machine; empty on SQLite."""
        return [] if self.kind == "sqlite" else self.read_now(read_claims)

    async def take_over_checkpoints(self) -> None:
        """SQLite: stop checkpoints inside of commits; from now on the caller runs `checkpoint`."""
        if self.kind == "sqlite":
            with translated(self._label):
                await asyncio.wrap_future(self._submit(self._writing.configure, "PRAGMA wal_autocheckpoint=0"))
            self._checkpoints_apart = True

    async def checkpoint(self, *, patient_bytes: int = 8 << 20, urgent_bytes: int = 64 << 20) -> None:
        """Move SQLite's write-ahead log into the file, outside of appends, if it has more than `patient_bytes`.

        Postgres does this by itself. Each call flushes the head file: after a power loss it is behind by at most the
        time between two calls. Under constant writes a passive checkpoint never reaches the end, and the write-ahead
        log would grow without limit; beyond `urgent_bytes` the writer thread finishes the rest and restarts the log.
        The writer thread hardly waits for readers then, because appends wait for the writer thread, and a backup may
        read one snapshot for a long time.
        """
        self.is_checkpointing = True
        try:
            size = await asyncio.to_thread(self.wal_bytes)
            if size > patient_bytes:
                await asyncio.wrap_future(self._readers.submit(self._pragma, self._reading, "wal_checkpoint(PASSIVE)"))
            if size > urgent_bytes:
                self.restarts += 1
                await asyncio.wrap_future(self._submit(self._pragma, self._writing, "wal_checkpoint(RESTART)", 0.05))
            if self._head_file is not None:
                await asyncio.wrap_future(self._readers.submit(self._head_file.flush))
        finally:
            self.is_checkpointing = False

    def wal_bytes(self) -> int:
        """Return the size of SQLite's write-ahead log in bytes; 0 without one, as on Postgres."""
        try:
            return self._log_path.stat().st_size if self._log_path else 0
        except OSError:
            return 0

    def _pragma(self, kept: ThreadConnections, text: str, patience: float = LOCK_SECONDS) -> Any:
        turn = nullcontext() if self._writer_lock is None or kept is self._reading else self._writer_lock.hold()
        noted = self._failed_sync.noted()
        with turn, translated(self._label), kept.use() as conn, noted:  # a checkpoint cannot run in a transaction
            try:
                conn.driver.execute(f"PRAGMA busy_timeout={patience * 1000:.0f}")
                return conn.driver.execute(f"PRAGMA {text}").fetchone()
            finally:
                conn.driver.execute(f"PRAGMA busy_timeout={LOCK_SECONDS * 1000:.0f}")
                conn.info["waits"] = True

    def close(self) -> None:
        """Finish what is queued, then close every connection and thread."""
        self._is_closed = True
        for threads in (self._writer, self._readers, self._delivering):
            threads.shutdown(wait=True)
        self._reading.close()
        self._writing.close()
        if self._writer_lock is not None:
            self._writer_lock.close()
        if self._head_file is not None:
            self._head_file.close()


class _WriterNeeded(Exception):
    """A transaction has to run in the writer thread, because it will take long."""


def _configure(conn: Connection, durable: bool, waits: bool) -> None:
    """Set whether the next transactions of a connection to SQLite are flushed, and wait for locks; none is open."""
    if conn.info.get("durable", True) != durable:
        conn.driver.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        conn.info["durable"] = durable
    if conn.info.get("waits", True) != waits:
        conn.driver.execute(f"PRAGMA busy_timeout={LOCK_SECONDS * 1000 if waits else 0:.0f}")
        conn.info["waits"] = waits


def _is_locked(error: BaseException) -> bool:
    """Return whether a transaction failed because another process has a lock."""
    code = getattr(error.__cause__, "sqlite_errorcode", 0)
    return isinstance(error, DatabaseUnavailable) and code & 0xFF == sqlite3.SQLITE_BUSY
