"""Arriving bodies share the memory for bodies, and release it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from eventd.api.listener.arriving import ArrivingBodies, NoRoom


def _request(chunks: AsyncIterator[bytes]) -> Any:
    content = SimpleNamespace(iter_any=lambda: chunks)
    return SimpleNamespace(content_length=None, transport=None, content=content)


async def test_a_body_that_has_given_way_takes_no_room_with_what_was_already_here() -> None:
    arriving = ArrivingBodies(10)
    waits, comes = asyncio.Event(), asyncio.Event()

    async def withheld() -> AsyncIterator[bytes]:
        yield b"x" * 8
        waits.set()
        await comes.wait()
        yield b"x"

    async def newer() -> AsyncIterator[bytes]:
        comes.set()  # so the other runs on before its deadline does
        yield b"x" * 9

    slow = asyncio.create_task(arriving.read(_request(withheld()), 100))
    await waits.wait()
    assert len(await arriving.read(_request(newer()), 100)) == 9
    with pytest.raises(NoRoom):
        await slow

    async def largest() -> AsyncIterator[bytes]:
        yield b"x" * 10

    assert len(await arriving.read(_request(largest()), 100)) == 10
