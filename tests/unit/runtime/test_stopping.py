"""A stop closes what was opened, the latest first, and says what it waits for."""

from __future__ import annotations

import asyncio

import pytest

from eventd.runtime.stopping import OpenParts, StopState
from eventd.testing import until


async def test_parts_are_closed_in_the_reverse_order_and_the_present_one_is_named_with_all_work() -> None:
    parts, released, closed = OpenParts(), asyncio.Event(), list[str]()

    async def close_log() -> None:
        closed.append("log")

    async def close_api() -> None:
        await released.wait()
        closed.append("api")

    parts.add("log", close_log, lambda: {"writes": 3, "merges": 0})
    parts.add("api", close_api)
    closing = asyncio.create_task(parts.close_all())
    await until(lambda: parts.state({}).closing == "api")
    assert parts.state({"api": 2, "quic": 0}) == StopState("api", {"api": 2}, {"writes": 3})
    released.set()
    await closing
    assert closed == ["api", "log"]
    assert not parts


async def test_after_an_error_another_stop_closes_the_rest() -> None:
    parts, closed = OpenParts(), list[str]()

    async def close() -> None:
        closed.append("log")

    async def fail() -> None:
        raise OSError("no such socket")

    parts.add("log", close)
    parts.add("api", fail)
    with pytest.raises(OSError, match="no such socket"):
        await parts.close_all()
    assert closed == []
    await parts.close_all()
    assert closed == ["log"]
