"""What simulated processes watch by its descriptor is told when it is readable, until it is forgotten."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from eventd.simulation.world.life import Life
from eventd.simulation.world.loop import VirtualLoop
from eventd.simulation.world.postgres_sessions import PostgresConnector


def test_a_reader_that_is_removed_is_not_called_any_more() -> None:
    """Also if it was about to be called, as by a real loop."""
    loop, life, called = VirtualLoop(), Life("a", 1, "10.0.0.1"), list[str]()
    tell = list[Callable[[], None]]()
    sessions = SimpleNamespace(watch=lambda _inode, readable: tell.append(readable))
    read, write = os.pipe()

    async def main() -> None:
        life.call(lambda: loop.add_reader(read, called.append, "readable"))
        tell[0]()
        await loop.pause(0.1)
        tell[0]()
        assert loop.remove_reader(read)
        assert not loop.remove_reader(read)
        await loop.pause(0.1)

    try:
        with PostgresConnector(loop, cast(Any, lambda _host: sessions)).installed():
            loop.run_until_complete(main())
    finally:
        os.close(read)
        os.close(write)
        loop.end()
    assert called == ["readable"]
