"""Collects the log lines of nodes that report errors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from eventd.errors import DatabaseUnavailable
from eventd.observe.log_lines import is_fault_of_node
from eventd.simulation.world.session_failures import NODE_URL

_SERVER: Final = "aiohttp.server"
_LOGGERS: Final = ("eventd", _SERVER)
_FIELDS: Final = ("kind", "peer")
"""The fields of a log line that are shown with it."""
_OF_SERVER: Final = (NODE_URL, "this node does not hold its claim on the database")
"""How the text of an error begins that a Postgres server causes."""


class ErrorLine(NamedTuple):
    """A log line; `is_of_server`: a Postgres server that failed a statement, or was not there, explains it."""

    text: str
    is_of_server: bool


class _ErrorLines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[ErrorLine] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        about = [repr(error)] if error else [str(record.__dict__[name]) for name in _FIELDS if name in record.__dict__]
        text = f"{record.name}: {record.getMessage()}{': ' * bool(about)}{' '.join(about)}"
        cause = str(error if isinstance(error, DatabaseUnavailable) else record.__dict__.get("error", ""))
        self.lines.append(ErrorLine(text, cause.startswith(_OF_SERVER)))


@contextmanager
def errors_logged() -> Iterator[list[ErrorLine]]:
    """Yield a list that gets the error lines of nodes and of their servers, which are not shown meanwhile."""
    handler = _ErrorLines()
    handler.addFilter(lambda record: record.name != _SERVER or is_fault_of_node(record))
    before = [(logger, logger.propagate, logger.level) for logger in map(logging.getLogger, _LOGGERS)]
    for logger, _, _ in before:
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(logging.ERROR)
    try:
        yield handler.lines
    finally:
        for logger, propagates, level in before:
            logger.removeHandler(handler)
            logger.propagate = propagates
            logger.setLevel(level)
