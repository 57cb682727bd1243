"""The log lines of the product, read from its code: the event, and the fields that are logged with it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from tests.support.source import Source

LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}


class LogEvent(NamedTuple):
    """One call of a logger. `name` is None if the message is not a plain text; `fields` if they cannot be
    determined."""

    place: str
    name: str | None
    level: str
    fields: frozenset[str]


def log_events(source: Source) -> Iterator[LogEvent]:
    """Yield every line that a file can log."""
    for node in source.nodes(ast.Call):
        if not (isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS):
            continue
        if ast.unparse(node.func.value).endswith("logger") and node.args:
            plain = isinstance(node.args[0], ast.Constant) and len(node.args) == 1
            name = str(node.args[0].value) if plain and isinstance(node.args[0], ast.Constant) else None
            fields = frozenset(key for word in node.keywords if word.arg == "extra" for key in _keys(word.value))
            yield LogEvent(f"{source.path}:{node.lineno}", name, LEVELS[node.func.attr], fields)


def _keys(value: ast.expr) -> Iterator[str]:
    for part in ast.walk(value):
        if isinstance(part, ast.Dict):
            yield from (key.value for key in part.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
