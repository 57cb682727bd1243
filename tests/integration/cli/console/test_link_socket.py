"""A command asks a running console for a new link, and a question that names none of several changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eventd.cli.console.link_socket import ask_link, offering_links
from eventd.errors import NotFound, Unavailable


async def test_of_several_consoles_one_is_named_and_the_others_keep_their_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made: list[str] = []

    def make(name: str) -> str:
        made.append(name)
        return f"{name}{len(made)}"

    async with offering_links(1, lambda: make("a")) as first:
        assert first
        assert await asyncio.to_thread(ask_link, 0) == "a1"
        async with offering_links(2, lambda: make("b")):
            (tmp_path / "routerctl" / "console-3.sock").touch()
            with pytest.raises(Unavailable, match="at the ports 1, 2 "):
                await asyncio.to_thread(ask_link, 0)
            assert made == ["a"], "a new link ends the one before"
            assert await asyncio.to_thread(ask_link, 2) == "b2"
        assert await asyncio.to_thread(ask_link, 0) == "a3"
    with pytest.raises(NotFound, match="no routerctl console"):
        await asyncio.to_thread(ask_link, 0)
