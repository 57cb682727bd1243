"""Settings of every Postgres session, and sessions outside of the pool: to listen, and to hold a claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventd.errors import SettingsError
from eventd.text.database_url import SEVERAL_HOSTS

if TYPE_CHECKING:
    import sqlalchemy as sa

KEEPALIVES: dict[str, Any] = {
    # A silent server must be noticed in a bounded time.
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Parameters of every connection to Postgres, in seconds; only the last one is in milliseconds."""

SERVER_OPTIONS = (
    "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 -c tcp_user_timeout=25000"
)
"""The parameters with which the server watches its side of a connection: a session whose machine has vanished must not
hold a claim, or the lock of a transaction, for the two hours after which the system's defaults would end it.

The keepalives end an idle session; the timeout ends one whose answer is not read.
"""


def connect_options(url: sa.URL) -> dict[str, Any]:
    """Return the parameters of a URL for the driver, as the pool passes them.

    The driver must not read the URL itself: its messages about it quote parts of the password. Raises `SettingsError`
    for hosts and ports in the query that cannot be read.
    """
    from sqlalchemy.exc import ArgumentError

    try:
        return {**url.get_dialect()().create_connect_args(url)[1]}
    except (ArgumentError, ValueError):
        raise SettingsError(
            "the database URL has invalid hosts or ports in the query", hint=f"write {SEVERAL_HOSTS}"
        ) from None


def open_session(url: sa.URL, name: str) -> Any:
    """Open a connection outside of the pool, named `name`; each statement is a transaction. Raises `psycopg.Error`."""
    import psycopg

    own = {"autocommit": True, "connect_timeout": 5, "application_name": name, "options": SERVER_OPTIONS}
    return psycopg.connect(**connect_options(url) | own | KEEPALIVES)
