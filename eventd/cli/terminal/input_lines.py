"""Reads lines of standard input as they arrive, without waiting for the end of the input."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from typing import IO, NamedTuple

AT_ONCE = 1 << 18
"""Maximum bytes of one read."""


class Line(NamedTuple):
    """A line without its newline, numbered from 1.

    A line over the limit of `InputLines` may be cut, but remains longer than the limit.
    """

    number: int
    text: bytes

    @property
    def place(self) -> str:
        """The place of the line for messages, such as `line 3 of the standard input`."""
        return f"line {self.number} of the standard input"


class InputLines:
    """The lines of a stream, without blank ones. Of an unfinished line that is too long, only the start is kept."""

    def __init__(self, stream: IO[bytes] | None = None, *, longest: int) -> None:
        self.finished = 0
        """Number of lines that were read completely, including blank ones."""
        self._stream = sys.stdin.buffer if stream is None else stream
        self._longest = longest
        self._rest = bytearray()
        self._can_wait = True
        self._ended = False
        self._stopped = False
        self._ready: asyncio.Future[None] | None = None

    async def read(self, within: float | None = None) -> list[Line] | None:
        """Return the lines that new input completes; an empty list if none, as after `within` seconds without input.

        None: the end of the input. A file is read without waiting. The last line needs no newline, unless `stop` ends
        the input.
        """
        if self._ended or not await self._wait(within):
            return None if self._ended or self._stopped else []
        chunk = os.read(self._stream.fileno(), AT_ONCE) if self._can_wait else self._stream.read(AT_ONCE)
        if chunk:
            return self._split(chunk)
        self._ended = True
        return self._split(b"\n") if self._rest else None

    def stop(self) -> None:
        """End the input here: a waiting `read` returns None."""
        self._stopped = True
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    @property
    def unfinished(self) -> bool:
        """Return whether the start of a line has been read, but not its end."""
        return bool(self._rest) and not self._ended

    def _split(self, chunk: bytes) -> list[Line]:
        first, *others = chunk.split(b"\n")
        self._rest += first[: self._longest + 1 - len(self._rest)]
        if not others:
            return []
        texts = [bytes(self._rest), *others[:-1]]
        self._rest = bytearray(others[-1])
        before, self.finished = self.finished, self.finished + len(texts)
        return [Line(number, text) for number, text in enumerate(texts, before + 1) if text.strip()]

    async def _wait(self, within: float | None) -> bool:
        """Return whether input, or its end, is available within `within` seconds and before `stop` is called."""
        if not self._can_wait or self._stopped:
            return not self._stopped
        loop = asyncio.get_running_loop()
        self._ready = ready = loop.create_future()
        try:
            number = self._stream.fileno()
            loop.add_reader(number, lambda: None if ready.done() else ready.set_result(None))
        except (io.UnsupportedOperation, OSError):  # a file is always ready, and loops cannot wait for it
            self._can_wait = False
            return True
        try:
            async with asyncio.timeout(within):
                await ready
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(number)
        return not self._stopped
