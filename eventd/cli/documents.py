"""Files of a command line that hold values, as YAML or JSON, and what comes in on the standard input."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from eventd.errors import Invalid

AT_ONCE = 1 << 18


def read_documents(filename: str) -> list[Any]:
    """The documents of a file, `-` for the standard input; blank ones left out. Raises `Invalid` with file and line."""
    from eventd.resources.documents import read_file
    from eventd.resources.nodes import Flaw, Malformed, plain
    from eventd.resources.yaml_text import read_yaml

    name = "<stdin>" if filename == "-" else filename
    try:
        raw = sys.stdin.buffer.read() if filename == "-" else read_file(Path(filename))
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text"
        raise Invalid(f"{name}: {why}") from None
    flaws: list[Flaw] = []
    try:
        documents = [plain(node) for node in read_yaml(text, flaws)]  # JSON is YAML, too
    except Malformed as error:
        raise Invalid(f"{name}: line {error.line}: {error.message}") from None
    for flaw in flaws:
        raise Invalid(f"{name}: line {flaw.line}: {flaw.message}")
    return [document for document in documents if document is not None]


async def read_lines() -> AsyncIterator[list[tuple[str, bytes]]]:
    """Lines of the standard input that hold something, as many as have come, each with its place."""
    number, rest = 0, b""
    async for chunk in _chunks():
        *whole, rest = (rest + chunk).split(b"\n")
        yield _placed(whole, number)
        number += len(whole)
    yield _placed([rest], number)


def _placed(lines: list[bytes], before: int) -> list[tuple[str, bytes]]:
    return [(f"line {at} of the standard input", line) for at, line in enumerate(lines, before + 1) if line.strip()]


async def _chunks() -> AsyncIterator[bytes]:
    """What has come, each time that something has. Who waits for more can be told to stop."""
    source = sys.stdin.buffer
    try:
        number = source.fileno()
        await _readable(number)
    except (AttributeError, io.UnsupportedOperation, OSError):  # a file is always ready, and no loop waits for it
        while chunk := source.read(AT_ONCE):
            yield chunk
        return
    while chunk := os.read(number, AT_ONCE):
        yield chunk
        await _readable(number)


async def _readable(number: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(number, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(number)
