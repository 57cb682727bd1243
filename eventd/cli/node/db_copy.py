"""routerctl db copy: moves a node to another database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eventd.cli.gateway.options import LOCAL, SHOW, variant
from eventd.cli.gateway.session import Session, offline
from eventd.cli.terminal.output import Column, note, text
from eventd.errors import Conflict, Invalid, NotFound
from eventd.text.plural import counted

if TYPE_CHECKING:
    from eventd.store.engine.database import Database

TABLES = (
    Column("TABLE", text("table")),
    Column("ROWS", lambda row: f"{row['rows']:,}"),
    Column("DIGEST", lambda row: row["digest"][:12], uncut=text("digest")),
)
_MOST_URL = 8192


@offline(*LOCAL, *SHOW, server=variant("server", hidden=True))
def copy(
    session: Session,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URL",
            help="New or empty database: sqlite:////ABSOLUTE/PATH or postgresql://USER@HOST/NAME.",
        ),
    ] = "",
    to_file: Annotated[
        Path | None,
        typer.Option(
            "--to-file", metavar="FILE", help="File with this URL, which keeps a password off the command line."
        ),
    ] = None,
) -> None:
    """Copy the node's database into an empty one, SQLite or Postgres, and compare both. The node must be down.

    Give either --to or --to-file. Serve only one of the two afterwards. If the copy is interrupted, repeat it: until
    then, the new database is refused.
    """
    from eventd.runtime.clock import SystemClock
    from eventd.settings.loading import load
    from eventd.store.backup.moving import copy_database, copy_to_file

    if session.is_remote:
        raise Invalid(
            "db copy does not work through the API", hint="run it on the node's machine, with --data-dir PATH"
        )
    if bool(to) == bool(to_file):
        raise typer.BadParameter("name the database to copy to: --to URL, or --to-file FILE")
    with (
        _opened(load(session.node.flags()).database_url) as source,
        _opened(to or _read_url(to_file)) as target,
    ):
        if source.label() == target.label():
            raise Conflict(f"{target.label()} is the database itself", hint="name another one")
        if source.path is not None and not source.path.exists():
            raise NotFound(f"the database {source.path} does not exist", hint="name the node with --data-dir")
        if target.path is not None and not target.path.parent.is_dir():
            raise NotFound(f"the folder {target.path.parent} does not exist", hint="create it first")
        with ExitStack() as held:
            for database in (source, target):
                held.enter_context(_held(database))
            now, report = SystemClock().now(), lambda _table, _rows: None
            if target.path is None:
                copied = copy_database(source, target, now=now, report=report)
            else:
                copied = copy_to_file(source, target.path, now=now, report=report)
        rows = [{"table": one.table, "rows": one.rows, "digest": one.digest} for one in copied]
        session.out.rows(TABLES, rows, name=lambda row: str(row["table"]))
        total = sum(one.rows for one in copied)
        note(f"{counted(total, 'row')} copied from {source.label()} to {target.label()}, and found equal there")
        if target.path is not None and os.geteuid() == 0:
            note(f"note: {target.path} belongs to {target.path.owner()}: the node must run as this user")
        note("note: serve only one of the two from now on: as two nodes, both would send under the same name")


@contextmanager
def _opened(url: str) -> Iterator[Database]:
    from eventd.store.engine.database import Database

    database = Database(url)
    try:
        yield database
    finally:
        database.close()


@contextmanager
def _held(database: Database) -> Iterator[None]:
    """Keep nodes from serving a database meanwhile. Raises `Conflict` if one does."""
    from eventd.cli.gateway.lock import claimed, serving_lock

    with serving_lock(database), claimed(database, ""):
        yield


def _read_url(file: Path | None) -> str:
    """Return the URL in a file, which messages never show."""
    assert file is not None
    try:
        written = file.read_text(encoding="utf-8")[: _MOST_URL + 1].strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise Invalid(f"{file}: {why}", hint="the file must contain only the URL") from None
    if not written or len(written) > _MOST_URL or "\n" in written:
        raise Invalid(f"{file} does not contain only a URL", hint="write for example postgresql://eventd@db/eventd")
    return written
