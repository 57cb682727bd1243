"""The sessions of simulated nodes on a real Postgres server: what is done over them, and how they fail.

A statement is one blocking call within a step of the loop. That is deterministic, because a database has the sessions
of one node alone, whose jobs are atomic: no statement ever waits for another one.
"""

from __future__ import annotations

import contextvars
import logging
import os
import socket
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, cast

import psycopg
from psycopg import pq

from eventd.simulation.world.journal import HeadCommit
from eventd.simulation.world.life import Life, life_in, present_life
from eventd.simulation.world.loop import VirtualLoop
from eventd.simulation.world.session_failures import NODE_URL, SessionFailure
from eventd.simulation.world.streams import Stream
from eventd.store.engine.address import SqliteUrl, parse_url
from eventd.store.engine.sessions import connect_options

NOTICE_SECONDS: Final = 0.001
"""The mean time of a notification between the commit and the session that listens."""
_REAL_SECONDS: Final = 60.0
"""How long the server may really take for a notification."""
_MOVES_HEAD: Final = "UPDATE log_heads SET next_position"
_CHANGES_HEAD: Final = "UPDATE log_heads"
_NOTIFIES: Final = "NOTIFY "
_LISTENS: Final = "LISTEN "
_IS_DURABLE: Final = "SELECT current_setting('synchronous_commit') = 'on' AND current_setting('fsync') = 'on'"
_RAISE: Final = "DO $$ BEGIN RAISE EXCEPTION '{}' USING ERRCODE = '{}'; END $$"


_UNANSWERED: Final = (SessionFailure.UNANSWERED, SessionFailure.UNANSWERED_COMMIT)
_ERRORS: Final = {
    SessionFailure.SERIALIZATION: ("could not serialize access due to concurrent update", "40001"),
    SessionFailure.LOCK: ("canceling statement due to lock timeout", "55P03"),
}


class NodeSessions:
    """The sessions of the node `name`, whose database is behind `target`, a URL.

    `judges` are asked before each statement and commit, with whether it is a commit that changes the log: the first
    one that does not return None decides what happens to it. `end_sessions` ends sessions of the server by the numbers
    of their processes.
    """

    def __init__(
        self, loop: VirtualLoop, stream: Stream, name: str, target: str, end_sessions: Callable[[Collection[int]], None]
    ) -> None:
        self.url = f"{NODE_URL}{name}"
        """The URL that the node is given; it leads nowhere."""
        self.outages = 0
        """How many faults keep the server from taking new connections."""
        self.judges: list[Callable[[bool], SessionFailure | None]] = []
        self.kill: Callable[[], None] = _nothing
        """Ends the process whose statement is executed."""
        self.commits: list[HeadCommit] = []
        self.lost_transactions = 0
        """How many connections a fault has broken in the middle of a transaction."""
        self.unanswered_commits = 0
        """How many it has broken between a commit that changed the log and its answer."""
        parsed = parse_url(target)
        assert not isinstance(parsed, SqliteUrl), "a file has no sessions"
        self._target = connect_options(parsed)
        self._loop = loop
        self._stream = stream
        self._end_sessions = end_sessions
        self._open: dict[SimulatedSession, None] = {}
        self._next_position = 1
        self._of_process: list[
            tuple[SimulatedSession, int]
        ] = []  # also those that have ended, with the server's process

    def connect(self, life: Life, *args: Any, **options: Any) -> SimulatedSession:
        """Open a session of a process, wherever it would lead. Raises `psycopg.OperationalError`."""
        if life.is_dead or self.outages:
            raise psycopg.OperationalError("connection to server failed: Connection refused")
        session = SimulatedSession.connect(*args, **options | self._target, cursor_factory=_SimulatedCursor)
        session.life = life
        session.sessions = self
        session.inode = _inode_of(session.fileno())
        self._open[session] = None
        self._of_process.append((session, session.pgconn.backend_pid))
        return session

    def watch(self, inode: int, readable: Callable[[], None]) -> None:
        """Call `readable` whenever the session over this socket has got something."""
        for session in self._open:
            if session.inode == inode and not session.closed:
                session.readable = readable

    def end_life(self) -> None:
        """Close all sessions, as the end of their process does, and wait until the server knows it."""
        self._open.clear()
        for session, _ in self._of_process:
            session.close()
            session.sessions = None  # a pool that has it may outlive the run
            session.readable = None
        self._end_sessions([pid for _, pid in self._of_process])
        self._of_process.clear()

    def break_all(self) -> None:
        """Break every connection, as the end of the server does; the processes find out when they use one."""
        for session in [*self._open]:
            self.break_session(session)

    def break_session(self, session: SimulatedSession) -> None:
        """Break a connection: the server undoes its open transaction."""
        if session not in self._open or session.closed:
            return
        del self._open[session]
        self.lost_transactions += session.pgconn.transaction_status == pq.TransactionStatus.INTRANS
        with socket.socket(fileno=os.dup(session.fileno())) as own, suppress(OSError):
            own.shutdown(socket.SHUT_RDWR)
        self._end_sessions([session.pgconn.backend_pid])
        session.tell()

    def is_open(self, session: SimulatedSession) -> bool:
        """Return whether nothing has broken the connection."""
        return session in self._open

    # --- called by sessions ------------------------------------------------------------------------------------------

    def before(self, session: SimulatedSession, *, commits: bool = False) -> SessionFailure | None:
        """Do what happens to a session before a statement; return what will happen to it after that.

        `commits`: it is a commit that changes the log.
        """
        if session not in self._open or session.life.is_dead:
            return None
        fault = next(filter(None, (judge(commits) for judge in list(self.judges))), None)
        match fault:
            case SessionFailure.LOST:
                self.break_session(session)
            case SessionFailure.KILL:
                self.kill()
        return fault

    def after(self, session: SimulatedSession, fault: SessionFailure | None) -> None:
        """Do what happens to a session after a statement. Raises `psycopg.OperationalError`."""
        if fault in _UNANSWERED:
            self.break_session(session)
            raise psycopg.OperationalError("consuming input failed: server closed the connection unexpectedly")

    def committed(self, is_durable: bool, next_position: int | None) -> None:
        """Note a commit that changed the head, and, unless it is None, its next position."""
        self._next_position = self._next_position if next_position is None else next_position
        self.commits.append(HeadCommit(self._loop.time(), is_durable, self._next_position))

    def notify(self) -> None:
        """Let every session that listens get a notification."""
        for session in self._open:
            if session.listens and not session.closed:
                session.unread_notifications += 1
                seconds = self._stream.expovariate(1.0) * NOTICE_SECONDS
                self._loop.call_later(seconds, session.tell, context=session.life.context())


class SimulatedSession(psycopg.Connection[Any]):
    """A session of a simulated process."""

    life: Life
    sessions: NodeSessions | None = None
    """None once its process has ended."""
    inode: int
    readable: Callable[[], None] | None = None
    listens = False
    unread_notifications = 0
    """How many notifications the server sends, or has sent, that were not read."""
    head: int | None = None
    """The next position that the open transaction gives to the head; None if it moves no head."""
    changes_head = False
    notifies_others = False

    __hash__ = object.__hash__

    def tell(self) -> None:
        """Call what waits for the socket, because there is something to read, or the end."""
        if self.readable is not None:
            self.readable()

    def notifies(self, *, timeout: float | None = None, stop_after: int | None = None) -> Generator[psycopg.Notify]:
        """Yield the notifications of all commits so far. Raises `psycopg.OperationalError`, also for a missing one.

        It waits until the server has sent them, and after a break it never finds one that had come before: when they
        really come is no part of the run.
        """
        if self.sessions is not None and not self.sessions.is_open(self):
            raise psycopg.OperationalError("consuming input failed: server closed the connection unexpectedly")
        expected, self.unread_notifications = self.unread_notifications, 0
        if not expected:
            return
        for notification in super().notifies(timeout=_REAL_SECONDS, stop_after=expected):
            expected -= 1
            yield notification
        if expected > 0:
            raise psycopg.OperationalError(f"the server has not sent {expected} of its notifications")

    def note(self, sql: str, params: Any) -> None:
        """Note what a statement means for the commit."""
        if sql.startswith(_CHANGES_HEAD):
            self.changes_head = True
            if sql.startswith(_MOVES_HEAD):
                self.head = int(params[0])
        elif sql.startswith(_NOTIFIES):
            self.notifies_others = True
        elif sql.startswith(_LISTENS):
            self.listens = True

    def fail(self, fault: SessionFailure) -> None:
        """Let the server fail the statement. Raises the error of the server."""
        message, code = _ERRORS[fault]
        psycopg.Cursor(self).execute(_RAISE.format(message, code))

    def commit(self) -> None:
        sessions = self.sessions
        if sessions is None or self.pgconn.transaction_status != pq.TransactionStatus.INTRANS:
            super().commit()
            return
        fault = sessions.before(self, commits=self.changes_head)
        if fault in _ERRORS:
            self.fail(fault)
        changes, head, notifies = self.changes_head, self.head, self.notifies_others
        self._forget()
        is_durable = changes and psycopg.Cursor(self).execute(_IS_DURABLE).fetchone() == (True,)
        super().commit()
        if changes:
            sessions.committed(is_durable, head)
        if notifies:
            sessions.notify()
        if fault in _UNANSWERED:
            sessions.unanswered_commits += changes
        sessions.after(self, fault)

    def rollback(self) -> None:
        self._forget()
        super().rollback()

    def _forget(self) -> None:
        self.changes_head, self.head, self.notifies_others = False, None, False


class _SimulatedCursor(psycopg.Cursor[Any]):
    """Executes the statements of a simulated session."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        with self._judged() as session:
            done = super().execute(query, params, **options)
            session.note(str(query), params)
        return done

    def executemany(self, query: Any, params_seq: Any, **options: Any) -> None:
        with self._judged():
            super().executemany(query, params_seq, **options)

    @contextmanager
    def copy(self, statement: Any, params: Any = None, **options: Any) -> Iterator[Any]:
        with self._judged(), super().copy(statement, params, **options) as copy:
            yield copy

    @contextmanager
    def _judged(self) -> Iterator[SimulatedSession]:
        """Do what happens to the session before a statement, and after the block that executes it."""
        session = cast(SimulatedSession, self.connection)
        sessions = session.sessions
        fault = None if sessions is None else sessions.before(session)
        if fault in _ERRORS:
            session.fail(fault)
        yield session
        if sessions is not None:
            sessions.after(session, fault)


class PostgresConnector:
    """Opens every connection to Postgres of a simulated process, and watches the sockets of those that listen.

    `find` returns the sessions of a machine by its name.
    """

    def __init__(self, loop: VirtualLoop, find: Callable[[str], NodeSessions]) -> None:
        self._loop = loop
        self._find = find
        self._watched: dict[int, _Watched] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Be what psycopg connects by, for the block. What belongs to no simulated process connects as usual."""
        connect = psycopg.connect
        log = logging.getLogger("psycopg")
        level = log.level
        log.setLevel(logging.CRITICAL)  # it warns of every connection that is broken
        psycopg.connect = partial(self._connect, connect)
        self._loop.descriptors = self
        try:
            yield
        finally:
            psycopg.connect = connect
            log.setLevel(level)
            self._loop.descriptors = None

    def _connect(self, connect: Callable[..., Any], *args: Any, **options: Any) -> Any:
        life = present_life()
        if life is None:
            return connect(*args, **options)
        return self._find(life.host).connect(life, *args, **options)

    def watch(self, descriptor: int, callback: Callable[[], object]) -> None:
        context = contextvars.copy_context()
        life = life_in(context)
        assert life is not None, "the simulation itself watches no descriptor"
        watched = self._watched[descriptor] = _Watched(callback)
        step = partial(self._loop.call_soon, watched.tell, context=context)
        self._find(life.host).watch(_inode_of(descriptor), step)

    def forget(self, descriptor: int) -> bool:
        watched = self._watched.pop(descriptor, None)
        if watched is not None:
            watched.callback = _nothing
        return watched is not None


class _Watched:
    """What is called when a descriptor is readable."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback

    def tell(self) -> None:
        """Call it."""
        self.callback()


def _inode_of(descriptor: int) -> int:
    """Return what identifies a socket, also by a duplicate of its descriptor."""
    return os.fstat(descriptor).st_ino


def _nothing() -> None:
    """Do nothing."""
