"""Backups of a SQLite database as single files: made while a node writes, inspected, and restored.

No incomplete file ever has the final name. A file is written beside it under a temporary name, made durable, and
renamed. The next command with the same target removes the temporary files of a killed one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from eventd.errors import Conflict, DatabaseUnavailable, DatabaseUnusable, Invalid, NotFound
from eventd.store.backup.part_file import PartFile
from eventd.store.engine.database import LOCK_SECONDS, Connection, Database
from eventd.store.engine.engines import reading_untouched
from eventd.store.engine.foreign_file import connect_as, refuse_foreign
from eventd.store.engine.head_file import SUFFIX as HEAD_SUFFIX
from eventd.store.engine.head_file import forget_head
from eventd.store.engine.integrity import find_any_damage, find_damage
from eventd.store.engine.statements import fetch
from eventd.store.engine.translation import translated
from eventd.store.schema.migrations import pending, read_revision

STEP_PAGES = 1024
"""Pages of the database that are copied at a time; Ctrl-C is handled between two steps."""
SIDECARS = ("-wal", "-shm", "-journal")
"""Files that SQLite keeps beside a database. If they were left beside another database, they would destroy it."""
HEADER = b"SQLite format 3\0"
KEPT = ".before-restore-"


@dataclass(frozen=True, slots=True)
class BackupCopy:
    """A complete database in one file. `size` is in bytes; `events` counts the distinct ids whose record is stored."""

    path: Path
    size: int
    events: int
    epoch: str


def back_up(database: Database, target: Path, *, force: bool = False) -> BackupCopy:
    """Copy a SQLite database at one moment while others write to it; return the copy, verified and durable.

    Raises `Conflict` when the target exists (unless `force`) or belongs to a database in use, `Invalid` when it is not
    a regular file, `NotFound` when its folder is missing, and `DatabaseUnusable` when the database, and so the copy, is
    damaged, has a newer schema, or belongs to another program.
    """
    source = database.path
    assert source is not None, "only a SQLite database is a file"
    target = target.parent.resolve() / target.name
    _require_free(target, source.resolve(), force=force)
    refuse_foreign(source)
    with part_of(target) as part:
        database.read_now(copy_pages, part.path)
        copy = replace(examine(part.path, name=f"the copy of {source}"), path=target)
        sync(part.path)
        _require_free(target, source.resolve(), force=force)  # copying took a while
        part.replace(target)
        sync(target.parent)
    return copy


def _require_free(target: Path, source: Path, *, force: bool) -> None:
    if not target.parent.is_dir():
        raise NotFound(f"the folder {target.parent} does not exist", hint="create it first")
    if target.is_symlink():  # another user of the folder could have made it, to have root replace any file
        raise Invalid(f"{target} is a symbolic link", hint="name the file itself")
    if target.exists() and not target.is_file():
        raise Invalid(f"{target} is not a file", hint="name the backup file to create")
    own = [Path(f"{source}{suffix}") for suffix in ("", ".lock", HEAD_SUFFIX, *SIDECARS)]
    if target in own or (target.exists() and target.samefile(source)):
        raise Conflict(f"{target} belongs to the database itself", hint="name another file")
    for suffix in SIDECARS:
        if Path(f"{target}{suffix}").exists():
            raise Conflict(f"{target}{suffix} exists, so {target} may be a database in use", hint="name another file")
    if target.exists() and not force:
        raise Conflict(f"{target} exists already", hint="name another file, or replace it with --force")


@contextmanager
def part_of(target: Path) -> Iterator[PartFile]:
    """Yield a new empty file beside `target`, which is deleted after the block unless renamed.

    Temporary files that killed commands with the same target have left are deleted first. Each file in use is locked,
    so a file without a lock is known to be left over.
    """
    _sweep(target)
    handle, name = tempfile.mkstemp(".part", f".{target.name}.", target.parent)
    try:
        with suppress(OSError):  # some network file systems lack such locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield PartFile(Path(name), handle)
    finally:
        remove_database(Path(name))
        os.close(handle)


def _sweep(target: Path) -> None:
    """Delete the temporary files that killed commands with the same target have left."""
    for left in target.parent.iterdir():
        if left.name.startswith(f".{target.name}.") and left.name.endswith(".part"):
            with suppress(OSError), left.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_database(left)


def remove_database(part: Path) -> None:
    """Delete a database file, if it exists, and the files that SQLite keeps beside it."""
    for suffix in (*SIDECARS, ""):
        Path(f"{part}{suffix}").unlink(missing_ok=True)


def copy_pages(conn: Connection, part: Path) -> None:
    """Fill the empty file `part` with the database as the open transaction sees it.

    The snapshot is held over all steps; without it each commit of a node would restart the copy.
    """
    source = conn.driver
    with translated(f"copying to {part.parent}"), closing(connect_as(part, "mode=rw", LOCK_SECONDS)) as target:
        fetch(conn, "SELECT count(*) FROM sqlite_master")  # a snapshot begins with the first read
        target.execute("PRAGMA journal_mode=OFF")
        target.execute("PRAGMA synchronous=OFF")
        source.backup(target, pages=STEP_PAGES)
        target.execute("PRAGMA journal_mode=DELETE")  # a single file, readable from a read-only folder


def copy_file(file: Path, part: Path) -> None:
    """Fill the empty file `part` with the database in `file`, including the commits that are only in its write-ahead
    log."""
    with _reading(file) as conn:
        copy_pages(conn, part)


def examine(path: Path, *, name: str = "") -> BackupCopy:
    """Check a database file completely, and return it as a `BackupCopy`.

    Write nothing, except perhaps the index (`-shm`) of its log. Raises `NotFound`, `Invalid` when it is not a regular
    file, `OSError` when it cannot be opened, and `DatabaseUnusable`, which calls it `name`, when it is damaged, has a
    newer schema, or is not a database of a node.
    """
    name = name or str(path)
    if not path.is_file():
        raise NotFound(f"{path} does not exist") if not path.exists() else Invalid(f"{path} is not a file")
    path.open("rb").close()  # gives the best reason why it cannot be read
    try:
        with _reading(path) as conn:
            events, epoch = _look_inside(conn)
    except DatabaseUnusable as error:
        hint = error.hint if "does not know" in error.message else "nothing was changed"
        raise DatabaseUnusable(f"{name}: {error.message.removeprefix(f'{path}: ')}", hint=hint) from None
    return BackupCopy(path, path.stat().st_size, events, epoch)


def _look_inside(conn: Connection) -> tuple[int, str]:
    if read_revision(conn) is None:
        raise DatabaseUnusable("this is not a database of routerd-eventd")
    pending(conn)  # raises for a schema of a newer program
    if damage := find_any_damage(conn):
        raise DatabaseUnusable(f"damaged: {damage[0]}")
    # a deleted topic keeps its row under a name that begins with "-"
    ((events,),) = fetch(conn, "SELECT coalesce(sum(ids), 0) FROM topics WHERE substr(name, 1, 1) <> '-'")
    heads = fetch(conn, "SELECT epoch FROM log_heads WHERE id = 1")
    if not heads:
        raise DatabaseUnusable("it has no log head")
    return int(events), str(heads[0][0])


@contextmanager
def _reading(path: Path) -> Iterator[Connection]:
    """Open a snapshot of the database with `connect_untouched`; the file may be in a read-only folder."""
    with translated(str(path)), reading_untouched(path, LOCK_SECONDS) as conn:
        yield conn


def put_in_place(part: PartFile, place: Path, stamp: str) -> Path | None:
    """Replace the database at `place` with the file `part`. Returns the path of the old one, None if there was none.

    Deletes the head file of the old one, which no node may serve. At every moment either the old or the new database is
    at `place`, complete. Raises `DatabaseUnavailable` when another process has it open, and `DatabaseUnusable` when
    `part` is damaged; `Conflict` when something else has its name.
    """
    with _alone(part.path):
        pass
    with _reading(part.path) as conn:
        if damage := find_damage(conn):
            raise DatabaseUnusable(f"{part.path} was damaged during the copy: {damage[0]}", hint="check the disk")
    part.give_to_owner(place)
    sync(part.path)
    with ExitStack() as held:
        if _has_header(place):
            with suppress(DatabaseUnusable):  # damaged or not, it is kept
                held.enter_context(_alone(place))
        kept = _keep(place, stamp)
        for suffix in SIDECARS:
            Path(f"{place}{suffix}").unlink(missing_ok=True)
        sync(place.parent)  # none of them may reappear beside the new file
        part.replace(place)
        forget_head(place)
        sync(place.parent)
    return kept


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Move a database's write-ahead log into its file, and keep other processes out during the block.

    A process that has opened the old file and waits for the lock must not continue with the new file's write-ahead
    log; SQLite returns an error to it when it sees that the file was renamed.
    """
    with translated(str(path)), closing(connect_as(path, "mode=rw", LOCK_SECONDS)) as held:
        held.execute("PRAGMA synchronous=FULL")
        held.execute("PRAGMA locking_mode=EXCLUSIVE")
        (mode,) = held.execute("PRAGMA journal_mode=DELETE").fetchone()
        if mode != "delete":
            raise DatabaseUnavailable(f"{path}: its write-ahead log cannot be folded in", hint="try again")
        held.execute("BEGIN EXCLUSIVE")
        Path(f"{path}-journal").unlink(missing_ok=True)  # from the change of mode: empty, but present
        yield


def _has_header(path: Path) -> bool:
    """Return whether a file exists and begins as SQLite's do. SQLite would delete the log of any other file."""
    if not path.exists():
        return False
    with path.open("rb") as file:
        return file.read(len(HEADER)) == HEADER


def _keep(place: Path, stamp: str) -> Path | None:
    """Give the database at `place`, with its logs, a second name, so that the first can be replaced in one step.

    Returns the second name; None if there is no database. A file system without links gets a copy.
    """
    for left in place.parent.iterdir():
        # After an interrupted command: two names of one database in use would destroy it.
        if left.name.startswith(f"{place.name}{KEPT}") and place.exists() and left.samefile(place):
            left.unlink()
    kept, number = Path(f"{place}{KEPT}{stamp}"), 1
    while any(Path(f"{kept}{suffix}").exists() for suffix in ("", *SIDECARS)):
        number += 1
        kept = Path(f"{place}{KEPT}{stamp}-{number}")
    for suffix in ("-wal", "-journal", ""):
        if Path(f"{place}{suffix}").exists():
            _link(Path(f"{place}{suffix}"), Path(f"{kept}{suffix}"))
    sync(place.parent)
    return kept if kept.exists() else None


def _link(file: Path, second: Path) -> None:
    try:
        second.hardlink_to(file)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        with part_of(second) as part:
            shutil.copyfile(file, part.path)
            part.give_to_owner(file)
            sync(part.path)
            part.replace(second)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
