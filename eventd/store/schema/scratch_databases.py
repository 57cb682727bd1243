"""Databases on a Postgres server that exist for a while, for a program that needs empty ones again and again.

A copy of a template takes about as long as truncating every table, some 50 ms, and leaves nothing behind of what was
there before: neither dead rows nor statistics, which would give the rows of a query another order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from eventd.errors import EventdError, MissingExtra, SettingsError
from eventd.store.engine.address import SqliteUrl, parse_url
from eventd.store.engine.database import Database
from eventd.store.engine.sessions import open_session
from eventd.store.engine.translation import translated
from eventd.store.schema.migrations import upgrade
from eventd.text.database_url import POSTGRES_FORM
from eventd.text.user_info import without_password

if TYPE_CHECKING:
    import sqlalchemy as sa

OLDEST_SERVER: Final = 14
"""The oldest version of Postgres that waits for the end of a session that it ends."""
TOKEN: Final = re.compile(r"[0-9a-f]{8}")
"""The form of a token, which the names of the databases of one program share."""
_TEMPLATE: Final = "template"
_MAY_CREATE: Final = "SELECT rolcreatedb OR rolsuper, rolname FROM pg_roles WHERE rolname = current_user"
_OWN: Final = (
    "SELECT datname FROM pg_database WHERE datname LIKE %s AND pg_get_userbyid(datdba) = current_user ORDER BY 1"
)
_HELD: Final = "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE %s"
_TERMINATE: Final = (
    # of this database only: another session may have got the number meanwhile
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid = ANY(%s)"
)
_TABLES: Final = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1"


class ScratchDatabases:
    """Creates databases on the server behind `url`, and drops them. It never touches a database that it has not named.

    The name of each is `purpose`, the `token` and a label, joined by underscores. Programs that share a token share
    their template; one of them calls `make_template` first, and `drop_all` at the end.
    """

    def __init__(self, url: str, purpose: str, token: str) -> None:
        """Connect to the server.

        Raises `SettingsError` for a URL of something else, `MissingExtra`, `DatabaseUnavailable`, and `EventdError` for
        a server on which the account cannot create databases, or that is too old, or does not flush commits.
        """
        parsed = parse_url(url)
        if isinstance(parsed, SqliteUrl):
            raise SettingsError("not the URL of a Postgres server", hint=f"write {POSTGRES_FORM}")
        assert TOKEN.fullmatch(token), token
        self._url: sa.URL = parsed
        self._purpose = purpose
        self._prefix = f"{purpose}_{token}_"
        self.label = without_password(parsed.set(query={}).render_as_string(hide_password=True))
        """The URL of the server for messages, without its password."""
        self._session = self._connect(f"{purpose} {token}")
        try:
            self.version = self._require_able()
        except BaseException:
            self.close()
            raise

    def _connect(self, name: str) -> Any:
        try:
            with translated(self.label):
                return open_session(self._url, name)
        except ModuleNotFoundError:
            raise MissingExtra(
                "the Postgres driver is not installed", hint="install the extra, in a clone: pip install '.[postgres]'"
            ) from None

    def _require_able(self) -> str:
        """Return the version of the server."""
        with translated(self.label):
            may_create, role = self._session.execute(_MAY_CREATE).fetchone()
            number = self._session.info.server_version
            (flushes,) = self._session.execute("SHOW fsync").fetchone()
        if number < OLDEST_SERVER * 10_000:
            raise EventdError(
                f"{self.label}: the server has the version {number // 10_000}, which is too old",
                hint=f"use a server of version {OLDEST_SERVER} or later",
            )
        if not may_create:
            raise EventdError(
                f"{self.label}: the role {role} may not create databases",
                hint=f"run as an administrator: ALTER ROLE {role} CREATEDB",
            )
        if flushes != "on":
            raise EventdError(
                f"{self.label}: the server has fsync={flushes}, so that no commit is durable", hint="set fsync = on"
            )
        return f"{number // 10_000}.{number % 10_000}"

    def left_by_others(self) -> list[str]:
        """Return the names of databases for this purpose whose program has ended without dropping them."""
        with translated(self.label):
            # Databases first: a program has its session before its databases, and may begin between the two questions.
            found = self._session.execute(_OWN, (f"{self._purpose}\\_%",)).fetchall()
            held = self._session.execute(_HELD, (f"{self._purpose} %",)).fetchall()
        tokens = {name.removeprefix(f"{self._purpose} ") for (name,) in held}
        names = (name for (name,) in found if not name.startswith(self._prefix))
        return [name for name in names if _token_of(name, self._purpose) not in {"", *tokens}]

    # --- databases -------------------------------------------------------------------------------------------------

    def make_template(self) -> None:
        """Create the template: the newest schema, without a log. Its tables are never vacuumed or analyzed.

        What the server does by itself at some time would give the rows of a table another order.
        """
        name = self._name(_TEMPLATE)
        with translated(self.label):
            # C: the order of texts must not depend on the server
            self._session.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
        database = Database(self._url_of(name))
        try:
            database.write_now(upgrade, now=1)
        finally:
            database.close()
        session = self._open(name)
        try:
            session.execute("DELETE FROM log_heads")
            for (table,) in session.execute(_TABLES).fetchall():
                session.execute(f"ALTER TABLE {table} SET (autovacuum_enabled=off, toast.autovacuum_enabled=off)")
        finally:
            self._close(session, name)

    def create(self, label: str) -> str:
        """Create a copy of the template; return its URL, with the password if there is one."""
        name = self._name(label)
        with translated(self.label):
            self._session.execute(f"CREATE DATABASE {name} TEMPLATE {self._name(_TEMPLATE)}")
        return self._url_of(name)

    def drop(self, label: str) -> None:
        """Drop a database, if it exists, and end its sessions."""
        self._drop(self._name(label))

    def _drop(self, name: str) -> None:
        with translated(self.label):
            self._session.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def drop_all(self) -> None:
        """Drop every database of this token, also those of other processes, and end their sessions."""
        with translated(self.label):
            found = self._session.execute(_OWN, (self._prefix.replace("_", "\\_") + "%",)).fetchall()
        for (name,) in found:
            self._drop(name)

    def left(self) -> str:
        """Return the pattern of the names of the databases that are left if `drop_all` fails."""
        return f"{self._prefix}*"

    def _name(self, label: str) -> str:
        return f"{self._prefix}{label}"

    def _url_of(self, name: str) -> str:
        return self._url.set(database=name).render_as_string(hide_password=False)

    # --- sessions --------------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self, label: str) -> Iterator[Any]:
        """Yield a session of a database."""
        session = self._open(self._name(label))
        try:
            yield session
        finally:
            self._close(session, self._name(label))

    def _open(self, name: str) -> Any:
        with translated(self.label):
            return open_session(self._url.set(database=name), self._purpose)

    def _close(self, session: Any, name: str) -> None:
        """Close a session, and wait for its end: a database with a session cannot be copied."""
        pid = session.info.backend_pid
        session.close()
        self._end(name, [pid])

    def end(self, label: str, pids: Collection[int]) -> None:
        """End sessions of a database, by the numbers of their processes, and wait until their locks are released."""
        self._end(self._name(label), pids)

    def _end(self, name: str, pids: Collection[int]) -> None:
        with translated(self.label):
            while self._session.execute(_TERMINATE, (name, list(pids))).fetchall():  # each takes a round trip
                pass

    def close(self) -> None:
        """Close the connection to the server."""
        self._session.close()


def _token_of(name: str, purpose: str) -> str:
    """Return the token in the name of a database; empty if there is none."""
    token = name.removeprefix(f"{purpose}_").partition("_")[0]
    return token if TOKEN.fullmatch(token) else ""
