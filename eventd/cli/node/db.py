"""routerctl db: backup, restore."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.gateway.options import LOCAL, SHOW, variant
from eventd.cli.gateway.session import Session, offline
from eventd.cli.terminal.confirm import confirm
from eventd.cli.terminal.output import Column, text
from eventd.errors import Conflict, Invalid, NotFound
from eventd.text.plural import counted

if TYPE_CHECKING:
    from eventd.store.backup.backup import BackupCopy
    from eventd.store.engine.database import Database

BACKUP = (
    Column("FILE", text("file")),
    Column("SIZE", text("size")),
    Column("EVENTS", lambda row: str(row["events"])),
    Column("EPOCH", text("epoch")),
    Column("DATABASE", text("database"), wide=True),
)


@offline(*LOCAL, *SHOW, server=variant("server", hidden=True))
def backup(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to create.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Back up a SQLite database to a file, node up or down. The copy is consistent, checked and durable."""
    with _sqlite(session, "pg_dump") as (database, place):
        from eventd.store.backup.backup import back_up

        if not place.exists():
            raise NotFound(f"the database {place} does not exist", hint="name the node with --data-dir or --state-file")
        copy = back_up(database, file, force=force)
    row = {"file": str(copy.path), "size": copy.size, "events": copy.events, "epoch": copy.epoch}
    session.out.one(BACKUP, {**row, "database": str(place)}, name=lambda row: str(row["file"]))


@offline(*LOCAL, "output", server=variant("server", hidden=True))
def restore(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Replace a SQLite database with a backup and start a new epoch of the log. The node must be down."""
    if not yes and not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask on: add --yes to replace the database")
    with _sqlite(session, "pg_restore") as (database, place):
        from eventd.cli.gateway.lock import serving_lock
        from eventd.store.backup.backup import examine

        if file.exists() and place.exists() and file.samefile(place):
            raise Conflict(f"{file} is the database itself", hint="name a backup")
        found = examine(file.absolute())
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with serving_lock(database):
            if not yes:
                _ask(found, place)
            done = _replace(found, place)
    _show_done(session, done)


@contextmanager
def _sqlite(session: Session, instead: str) -> Iterator[tuple[Database, Path]]:
    """Yield the database of the settings and its file. Raises `Invalid` for --server, and for Postgres.

    `instead`: the tool of Postgres that the message names.
    """
    from eventd.settings.loading import load
    from eventd.store.engine.database import Database

    if session.is_remote:
        raise Invalid(
            "backups need the database: they do not work through the API",
            hint="run it on the node's machine, with --data-dir PATH",
        )
    database = Database(load(session.node.flags()).database_url)
    try:
        if database.path is None:
            raise Invalid(
                f"{database.label()} is on Postgres: use {instead} or your server's own backup tool",
                hint="after a restore run `routerd-eventd migrate --new-epoch`, before the node starts",
            )
        yield database, database.path.resolve()
    finally:
        database.close()


def _ask(found: BackupCopy, place: Path) -> None:
    """Ask for confirmation. Raises `EventdError` unless the answer is yes."""
    question = f"{found.path} holds {counted(found.events, 'event')} of the epoch {found.epoch}"
    verb = "replace" if place.exists() else "create"
    confirm(f"{question}\n{verb} {place} with it?")


def _replace(found: BackupCopy, place: Path) -> dict[str, Any]:
    """Replace the database with the backup, keeping the previous one under another name; returns the row to show.

    All work is done on a file beside the database, so that the replacement is a single step.
    """
    from eventd.runtime.clock import SystemClock
    from eventd.store.backup.backup import copy_file, part_of, put_in_place
    from federation.event import from_micros

    now = SystemClock().now()
    with part_of(place) as part:
        copy_file(found.path, part.path)
        applied, epoch = _begin_history(part.path, now)
        kept = put_in_place(part, place, f"{from_micros(now):%Y%m%dT%H%M%SZ}")
    return {
        "file": str(found.path),
        "database": str(place),
        "kept": str(kept) if kept else None,
        "events": found.events,
        "applied": applied,
        "epoch": epoch,
        "previousEpoch": found.epoch,
    }


def _begin_history(part: Path, now: int) -> tuple[list[str], str]:
    """Migrate the copy and begin a new epoch of its log. Returns the applied migrations, and the new epoch."""
    from eventd.log.core.head import renew_epoch
    from eventd.store.engine.database import Database
    from eventd.store.schema import migrations

    database = Database(f"sqlite:///{part}")
    try:
        with database.transaction() as conn:
            return migrations.upgrade(conn, now=now), renew_epoch(conn)
    finally:
        database.close()


def _show_done(session: Session, done: Mapping[str, Any]) -> None:
    lines = [f"restored {done['database']} from {done['file']}: {counted(done['events'], 'event')}"]
    if done["kept"]:
        lines.append(f"the previous database is kept: {done['kept']}")
    lines += [f"applied {name}" for name in done["applied"]]
    lines.append(f"the log has the new epoch {done['epoch']}; the previous one was {done['previousEpoch']}")
    session.out.outcome(done, *lines, name=lambda row: str(row["database"]))
