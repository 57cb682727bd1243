"""A command runs without an event loop until it needs one, and its access to the node is closed in any case."""

from __future__ import annotations

import ast
import asyncio

import pytest

from eventd.cli.gateway.late_loop import enter_loop, run_with_late_loop
from tests.support.source import read_sources

seen: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


def note_loop(name: str) -> None:
    try:
        asyncio.get_running_loop()
        seen.append(f"{name} on a loop")
    except RuntimeError:
        seen.append(name)


async def close() -> None:
    note_loop("close")


def test_a_command_that_needs_no_loop_gets_none() -> None:
    async def command() -> None:
        note_loop("command")

    run_with_late_loop(command, close)
    assert seen == ["command", "close"]


def test_a_command_continues_on_a_loop_where_it_is() -> None:
    async def inner() -> str:
        note_loop("before")
        await enter_loop()
        await asyncio.sleep(0)
        note_loop("after")
        return "result"

    async def command() -> None:
        seen.append(await inner())
        async with asyncio.timeout(5):
            await asyncio.gather(asyncio.ensure_future(asyncio.sleep(0)))

    run_with_late_loop(command, close)
    assert seen == ["before", "after on a loop", "result", "close on a loop"]


@pytest.mark.parametrize("late", [False, True])
def test_an_error_closes_the_access(late: bool) -> None:
    async def command() -> None:
        if late:
            await enter_loop()
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        run_with_late_loop(command, close)
    assert seen == ["close on a loop" if late else "close"]


def test_marked_commands_await_only_calls() -> None:
    """Anything else might wait for a loop that does not run, but only where a node answers."""
    awaited: dict[str, str] = {}
    for source in read_sources():
        for function in source.nodes(ast.AsyncFunctionDef):
            if any(isinstance(each, ast.Name) and each.id == "only_calls" for each in function.decorator_list):
                for node in ast.walk(function):
                    if isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
                        awaited.setdefault(ast.unparse(node.value.func), f"{source.path}:{node.lineno}")
                    elif isinstance(node, ast.AsyncFor) and isinstance(node.iter, ast.Call):
                        awaited.setdefault(ast.unparse(node.iter.func), f"{source.path}:{node.lineno}")
    with_calls_alone = {
        "session.call",
        "all_groups",
        "one_group",
        "pages.read",
        "_last_answer",
        "_note_undeclared",
        "listed",
        "named",
        "read_rows",
        "_stay",
        "_call_of_held",
        "ask_prune",
        "read_waiting",
        "note_what_may_be_lost",
    }
    with_watch = {"watch_links", "watch_events", "watch_callbacks", "watch_resources", "_watch", "_answers"}
    assert awaited.keys() - with_calls_alone - with_watch == set(), awaited
