"""An open connection, as storage functions get it. Statements run on the driver; SQLAlchemy is loaded only when needed.

Loading SQLAlchemy takes longer than all other work of a command on a SQLite file, and 12 MB in an idle node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    import sqlalchemy as sa

    from eventd.runtime.chance import Chance

Kind = Literal["sqlite", "postgresql"]


class ProcessFacts(NamedTuple):
    """The properties of its process that a write transaction may use: its source of randomness, and the boot of its
    machine."""

    chance: Chance
    boot_id: str


class DatabaseConnection:
    """A connection to a database in a `dialect`.

    `driver` is the driver's own connection; `info` is a dictionary that lives as long as that connection. `process` is
    set on connections that write. `make_sqlalchemy` returns SQLAlchemy's connection over `driver`.
    """

    __slots__ = ("_made", "_make", "dialect", "driver", "info", "process")

    def __init__(
        self,
        dialect: Kind,
        driver: Any,
        make_sqlalchemy: Callable[[], sa.Connection],
        *,
        info: dict[Any, Any] | None = None,
        process: ProcessFacts | None = None,
    ) -> None:
        self.dialect: Kind = dialect
        self.driver = driver
        self.info: dict[Any, Any] = {} if info is None else info
        self.process = process
        self._make = make_sqlalchemy
        self._made: sa.Connection | None = None

    @property
    def sqlalchemy(self) -> sa.Connection:
        """Return SQLAlchemy's connection in the same transaction, for migrations."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def _rollback(self) -> None:
        if self.dialect == "sqlite":
            self.driver.rollback()
        elif not self.sqlalchemy.in_transaction():
            self.sqlalchemy.begin()
        self._forget_transaction()  # SQLAlchemy knows what a lost connection means for the others

    def _forget_transaction(self) -> None:
        if self._made is not None and self._made.in_transaction():
            self._made.rollback()

    @contextmanager
    def begun(self, begin: str) -> Iterator[None]:
        """Run the block as one transaction, committed at its end. `begin`: the statement that begins it, for SQLite.

        It is the driver's transaction. SQLAlchemy also begins one with its first statement, which means nothing to
        either driver; using SQLAlchemy's would cost as much as writing one event.
        """
        if begin:
            self.driver.execute(begin)
        try:
            yield
            self.driver.commit()
        except BaseException:
            with suppress(Exception):  # the first error is the one that matters
                self._rollback()
            raise
        self._forget_transaction()
