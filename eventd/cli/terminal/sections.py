"""The parts of a description as text: names with values, and tables with titles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eventd.cli.terminal.output import Column, Output
from eventd.text.invisible import printable


def pairs(out: Output, values: Mapping[str, Any]) -> None:
    """Print names and values, one pair a line."""
    width = max(12, *(len(name) + 2 for name in values))
    for name, value in values.items():
        out.line(printable(f"{name + ':':<{width}} {value if value not in ('', None) else '-'}"))


def table(out: Output, title: str, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table below a title; nothing without rows."""
    if rows:
        out.line(f"\n{title}:")
        out.table(columns, rows)
