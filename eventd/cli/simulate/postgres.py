"""The databases of a command that simulates nodes on Postgres: created on a server of the user, dropped at the end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from eventd.cli.program.stopping import StopFlag
from eventd.errors import EventdError
from eventd.runtime.chance import SYSTEM
from eventd.text.plural import counted

if TYPE_CHECKING:
    from eventd.store.schema.scratch_databases import ScratchDatabases

PURPOSE: Final = "eventd_simulation"
"""How the names of the databases begin."""
_TERMINATED: Final = 128 + signal.SIGTERM


class ServerAccess(msgspec.Struct):
    """How a process reaches the server, and the token of the command's databases. The URL may contain a password."""

    url: str
    token: str

    def open(self) -> ScratchDatabases:
        """Connect to the server."""
        from eventd.store.schema.scratch_databases import ScratchDatabases

        return ScratchDatabases(self.url, PURPOSE, self.token)


class CampaignServer(NamedTuple):
    """The databases of this process, and how others reach them."""

    databases: ScratchDatabases
    access: ServerAccess


@contextmanager
def databases_on(url: str) -> Iterator[CampaignServer]:
    """Yield databases on a server, with a template, for the block; all of them are dropped when it ends.

    Those that cannot be dropped are named on the standard error, and so are those that another command has left.
    """
    access = ServerAccess(url, SYSTEM.token(4).hex())
    databases = access.open()
    try:
        if left := databases.left_by_others():
            _say(f"a killed simulation left {counted(len(left), 'database')}, which you may drop: {', '.join(left)}")
        with _ended_by_exception():
            try:
                databases.make_template()
                yield CampaignServer(databases, access)
            finally:
                _drop(databases)
    finally:
        databases.close()


def _drop(databases: ScratchDatabases) -> None:
    """Drop all databases; the first Ctrl-C meanwhile changes nothing: it may be an impatient second one."""
    try:
        with StopFlag():
            databases.drop_all()
    except EventdError as error:
        _say(f"databases {databases.left()} may be left: {error.message}")
    except KeyboardInterrupt:
        _say(f"databases {databases.left()} may be left: interrupted")
        raise


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def _ended_by_exception() -> Iterator[None]:
    """Let SIGTERM raise SystemExit within the block, as Ctrl-C raises KeyboardInterrupt; a handler is left alone."""
    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(_TERMINATED)
