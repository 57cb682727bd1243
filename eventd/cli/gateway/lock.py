"""Ensures that only one node serves a database, or on Postgres a group of it: two would send events twice."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from eventd.cli.gateway.serving_file import ServingNode, lock_file, read_serving_file
from eventd.errors import Conflict, DatabaseUnavailable
from eventd.store.engine.claim import DatabaseClaim
from eventd.store.engine.database import Database


def lock_path(database: Database) -> Path | None:
    """Return the lock file of a database; None on Postgres."""
    return Path(lock_file(database.path)) if database.path else None


@contextlib.contextmanager
def serving_lock(database: Database) -> Iterator[None]:
    """Lock a SQLite database for this process. Raises `Conflict`, which names the file and the holder.

    Does nothing on Postgres: see `claimed`. The kernel releases the lock when the process ends for any reason, so a
    leftover file does not mean that the database is locked.
    """
    path = lock_path(database)
    if path is None:
        yield
        return
    if not path.parent.is_dir():
        raise DatabaseUnavailable(
            f"the folder {path.parent} of the database does not exist", hint="create it, or set data_dir"
        )
    _create_lock(path, database.path)
    # Danger: the file behind a link would be truncated.
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.readline(32).strip()
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise Conflict(
                f"{who} serves, migrates or restores this database: it holds {path}",
                hint="stop it first, or use another data folder",
            ) from None
        file.truncate(0)
        _write(path, file.fileno(), f"{os.getpid()}\n")
        yield
        file.truncate(0)


def _write(path: Path, file: int, text: str) -> None:
    """Write into an open lock file. Raises an `OSError` that names it: the node cannot start on a full disk."""
    try:
        os.write(file, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _create_lock(path: Path, database: Path | None) -> None:
    """Create the lock file, unless it exists, for the owner of the database, or of the folder of a missing one.

    Otherwise, after a command run by root, the node's user could not lock its own database.
    """
    with contextlib.suppress(OSError):  # it exists, or opening it says better why it cannot be created
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            owner = (database if database is not None and database.exists() else path.parent).stat()
            os.fchown(file, owner.st_uid, owner.st_gid)
        finally:
            os.close(file)


@contextlib.contextmanager
def claimed(database: Database, group: str, *, wait: bool = False) -> Iterator[DatabaseClaim | None]:
    """Claim a Postgres database, or one group of it, for this process. Raises `Conflict`, which names the holder.

    With `wait`, the claim is not taken yet: that is left to the caller. A claim ends with its database session, so the
    caller must watch it with `DatabaseClaim.keep`. Yields None on SQLite.
    """
    claim = database.claim(group, f"{os.getpid()} on {platform.node() or 'an unknown machine'}")
    if claim is None:
        yield None
        return
    try:
        if not wait:
            claim.take()
        yield claim
    finally:
        claim.close()


def holder(database: Database) -> str:
    """Return the id of the process that serves, migrates or restores a SQLite database; empty without one.

    `unknown` if only the lock shows it. On Postgres: each process with a claim, as `ID on MACHINE` or `of another
    user`, separated by commas.
    """
    path = lock_path(database)
    if path is None:
        return ", ".join(database.claims())
    if not path.exists():
        return ""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.readline(32).strip() or "unknown"
    return ""


def write_serving(database: Database, node: ServingNode) -> None:
    """Write the address and clock origin (µs) into the lock file that this process holds; does nothing on Postgres."""
    path = lock_path(database)
    if path is not None:
        with path.open("a") as file:
            _write(path, file.fileno(), node.line())


def read_serving(database: Database) -> ServingNode | None:
    """Return the address and clock origin in the lock file; None if it has none, as on Postgres.

    They may be those of a node that was killed: check `holder` first.
    """
    path = lock_path(database)
    return read_serving_file(path) if path else None
