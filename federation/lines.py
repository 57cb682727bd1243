"""A line of a batch: `position TAB path TAB event`, ended by a line feed. How it is written and taken apart."""

from __future__ import annotations

from collections.abc import Iterable


def encode_line(position: int, path: str, body: str) -> str:
    """One line, its line feed included. `path` is encoded, `body` canonical."""
    return f"{position}\t{path}\t{body}\n"


def encode_lines(records: Iterable[tuple[int, str, str]]) -> str:
    """The lines of (position, path, body), in rising order of positions."""
    return "".join([f"{position}\t{path}\t{body}\n" for position, path, body in records])


def split_line(line: str) -> list[str]:
    """The position, the path and the body of a line, its line feed aside; what follows a second tab is the body."""
    return line.split("\t", 2)
