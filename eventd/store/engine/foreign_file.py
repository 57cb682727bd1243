"""Recognises files of other programs before they are changed: even opening another program's database changes it.

Danger: a connection of the node sets the journal mode, which is stored in the file.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

from eventd.errors import DatabaseUnusable
from eventd.store.engine.head_file import SUFFIX, read_mark

OURS = frozenset({"alembic_version", "log_heads"})
"""Tables that exist in every revision of the schema; other programs use Alembic as well."""
UNFINISHED_COPY = "eventd_unfinished_copy"
"""The name of a table that marks an unfinished copy: it exists in a database while this is filled from another one,
until both were compared."""
NO_DATABASE = "file is not a database"
"""SQLite's message for a file that is no database."""


def refuse_foreign(path: Path | None) -> None:
    """Raise `DatabaseUnusable` if the file at `path` is not a node's database; change neither it nor its folder.

    An empty file is refused if the head file beside it is of a log that was in use: a new log would overwrite what the
    head file proves. Any other file without content or tables is accepted, and so is a missing or unreadable one,
    because opening it gives a better error. The path None (Postgres) is accepted: there, migrations need a command,
    and other programs may use the same database.
    """
    if path is None:
        return
    refuse_orphaned_log(path)
    refuse_unfinished_copy(path)
    if not path.is_file():
        return
    _refuse_truncated(path)
    try:
        tables = _tables(path)
    except sqlite3.DatabaseError as error:
        if NO_DATABASE not in str(error):
            return
        raise DatabaseUnusable(
            f"{path} is not a database of routerd-eventd: {NO_DATABASE}",
            hint="name another file or folder, or restore a backup",
        ) from None
    if tables and not tables >= OURS:
        shown = ", ".join(sorted(tables)[:3])
        raise DatabaseUnusable(
            f"{path} is not a database of routerd-eventd, but contains {shown}", hint="name another file or folder"
        )


def unfinished_copy(path: Path) -> Path:
    """Return the file that a copy to the database at `path` fills before it is renamed."""
    return Path(f"{path}.partial")


def is_unfinished_copy(partial: Path) -> bool:
    """Return whether a file is empty or was filled by a copy that did not finish; False for what is not a file."""
    if partial.is_symlink() or not partial.is_file():
        return False
    try:
        tables = _tables(partial)
    except sqlite3.DatabaseError:
        return False
    return UNFINISHED_COPY in tables or not tables


def refuse_unfinished_copy(path: Path) -> None:
    """Raise `DatabaseUnusable` if an unfinished copy to the file is beside it; if the file is missing, also for any
    other file of that name.

    Otherwise a node would begin a new, empty log in the place of the one that was being copied.
    """
    partial = unfinished_copy(path)
    with suppress(OSError):
        if partial.exists() and (not path.exists() or is_unfinished_copy(partial)):
            raise DatabaseUnusable(
                f"{path} was not opened: {partial.name} beside it is of a `routerctl db copy` that did not finish",
                hint=f"run the copy again; without {partial.name}, {path.name} is used as it is, or created",
            )


def refuse_orphaned_log(path: Path) -> None:
    """Raise `DatabaseUnusable` if the file is missing, but its write-ahead log is not.

    Danger: SQLite would delete this log when it creates a new database at the path, and the log may hold acknowledged
    data.
    """
    log = Path(f"{path}-wal")
    with suppress(OSError):
        if not path.exists() and log.stat().st_size:
            raise DatabaseUnusable(
                f"{path} is missing, but {log.name} beside it may hold acknowledged data: no new database was created",
                hint=f"move {path.name} back, or restore a backup; to begin a new database, move {log.name} away",
            )


def _refuse_truncated(path: Path) -> None:
    mark = read_mark(path)
    if path.stat().st_size or mark is None or not mark.last:
        return
    raise DatabaseUnusable(
        f"{path} is empty, but its log was acknowledged up to position {mark.last}: the database is lost",
        hint=f"restore a backup, or remove {path.name}{SUFFIX} to begin a new log",
    )


def connect_untouched(path: Path, *, seconds: float) -> sqlite3.Connection:
    """Open a connection that writes nothing to the file, which may be in a read-only folder.

    It also leaves nothing beside the file, except the index (`-shm`) of a write-ahead log without one. Waits `seconds`
    for locks.
    """
    beside = [Path(f"{path}{suffix}") for suffix in ("-wal", "-journal")]
    alone = not any(file.exists() and file.stat().st_size for file in beside)
    return connect_as(path, "immutable=1" if alone else "mode=ro", seconds)


def connect_as(path: Path, how: str, seconds: float) -> sqlite3.Connection:
    """Open a connection to an existing file; `how` is a parameter of SQLite's URI, such as `mode=ro`."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None, timeout=seconds)


def _tables(path: Path) -> set[str]:
    """Return the names of all tables. A file that another program locks or has to recover is read without its journal.

    Danger: SQLite creates an index (`-shm`) for a write-ahead log without one, as after a copy, even to read it, and
    leaves it there. Such a log is read only when the file has no tables yet, from a copy: both are small then.
    """
    if Path(f"{path}-shm").exists():
        try:
            with closing(connect_untouched(path, seconds=0)) as conn:
                return _names(conn)
        except sqlite3.OperationalError:
            pass
    with closing(connect_as(path, "immutable=1", 0)) as conn:
        tables = _names(conn)
    return tables or _logged_tables(path)


def _logged_tables(path: Path) -> set[str]:
    """Return the table names of the file together with its write-ahead log, from a copy of both; none without a log."""
    log = Path(f"{path}-wal")
    if not log.is_file():
        return set()
    with TemporaryDirectory(prefix="eventd-") as folder:
        copy = Path(folder) / "copy"
        for file, suffix in ((path, ""), (log, "-wal")):
            copyfile(file, f"{copy}{suffix}")
        with closing(connect_as(copy, "mode=ro", 0)) as conn:
            return _names(conn)


def _names(conn: sqlite3.Connection) -> set[str]:
    return {str(name) for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
