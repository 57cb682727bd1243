"""A progress line on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
from typing import Self, TextIO

WIDTH = 30


class Bar:
    """A line on a terminal that each call of `show` replaces, erased at the end of the context.

    Without a terminal nothing is shown.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shown = self._stream.isatty()

    def show(self, words: str, done: int, of: int) -> None:
        """Show `words`, and as a bar which share of the total `of` is done; no bar if `of` is 0."""
        if self._shown:
            share = min(1.0, done / of) if of > 0 else 0.0
            full = round(WIDTH * share)
            scale = f" [{'#' * full}{'.' * (WIDTH - full)}] {share:4.0%}" if of > 0 else ""
            self._stream.write(f"\r\x1b[2K{words}{scale}")
            self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._shown:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
