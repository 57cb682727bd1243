"""Over the whole tree of commands: every option that a command offers is used by its code."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import Any

import pytest

from eventd.cli import routerctl_commands, routerd_eventd_commands
from eventd.cli.gateway.options import NODE, SHARED
from eventd.cli.program.command_line import Branch, Leaf, make

TABLES = {"rows", "one", "table", "records", "stream_rows"}
WAYS_TO_A_NODE = {"call", "client", "gateway", "node"}
MACHINERY = ("eventd.cli.terminal", "eventd.cli.program", "eventd.cli.gateway.session")
"""Code that offers all of it to every command."""


def leaves(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, one in tree.items():
        if isinstance(one, Branch):
            yield from leaves(one.commands, f"{path} {name}")
        elif not one.hidden:
            yield f"{path} {name}", one


def function_of(leaf: Leaf) -> Any:
    file, _, name = leaf.where.rpartition(".")
    return getattr(import_module(f"eventd.cli.{file}"), name)


COMMANDS = {path: function_of(leaf) for path, leaf in leaves(routerctl_commands.COMMANDS, "routerctl")}
DAEMON = {
    f"routerd-eventd {command.callback.__name__}": command.callback
    for command in routerd_eventd_commands.app.registered_commands
    if command.callback is not None
}


def written_of(command: Any) -> Any:
    """The function as its source has it, without what decorators add."""
    return inspect.unwrap(command)


@cache
def nodes_of(function: Any) -> list[ast.AST]:
    """Every node of the source of a function or class."""
    return [*ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))]


@cache
def reached(command: Any) -> list[ast.AST]:
    """Every node of the code that a command may run, as far as that is code of commands."""
    waiting, seen, reach = list[Any](), set[Any](), list[ast.AST]()
    while (inner := getattr(command, "__wrapped__", None)) is not None:
        waiting.append(command := inner)
    waiting = waiting or [command]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):  # functions by name, such as those of the views of `top`
            waiting += [part for value in found.values() for part in (value if isinstance(value, tuple) else [value])]
        if not isinstance(found, FunctionType | type) or found in seen:
            continue
        if not found.__module__.startswith("eventd.cli") or found.__module__.startswith(MACHINERY):
            continue
        seen.add(found)
        names = vars(import_module(found.__module__))
        reach += nodes_of(found)
        for node in nodes_of(found):
            if isinstance(node, ast.Name) and node.id in names:
                waiting.append(names[node.id])
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("eventd.cli"):
                waiting += [getattr(import_module(str(node.module)), alias.name) for alias in node.names]
    return reach


def attributes(command: Any) -> set[str]:
    return {node.attr for node in reached(command) if isinstance(node, ast.Attribute)}


def draws_a_table(command: Any) -> bool:
    nodes = [node for node in reached(command) if isinstance(node, ast.Call)]
    if any(isinstance(call.func, ast.Name) and call.func.id == "table" for call in nodes):  # a titled one
        return True
    calls = [node for node in nodes if isinstance(node.func, ast.Attribute)]
    drawing = [call for call in calls if call.func.attr in TABLES]  # type: ignore[attr-defined]
    return any(not (isinstance(call.args[0], ast.Tuple) and not call.args[0].elts) for call in drawing if call.args)


@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_uses_the_shared_options_that_it_offers(path: str) -> None:
    command = COMMANDS[path]
    offered = {name for name in inspect.signature(command).parameters if name in SHARED}
    if offered & set(NODE):
        assert attributes(command) & WAYS_TO_A_NODE
    if "output" in offered:
        assert "out" in attributes(command)
    assert ("no_headers" in offered) is draws_a_table(command)


@pytest.mark.parametrize(("path", "leaf"), [*leaves(routerctl_commands.COMMANDS, "routerctl")])
def test_a_list_of_commands_shows_the_first_sentence_of_the_help_and_no_option_twice(path: str, leaf: Leaf) -> None:
    command: Any = make(path.split()[-1], leaf)
    assert leaf.help == command.get_short_help_str(1000)
    # Of two options with one name, the library takes both, and gives the value to one of them.
    names = [name for param in command.params for name in param.opts if name.startswith("-")]
    assert sorted({*names}) == sorted(names)


@pytest.mark.parametrize("path", [*COMMANDS, *DAEMON])
def test_a_command_uses_its_own_options(path: str) -> None:
    command = written_of({**COMMANDS, **DAEMON}[path])
    (source,) = ast.parse(textwrap.dedent(inspect.getsource(command))).body
    assert isinstance(source, ast.FunctionDef | ast.AsyncFunctionDef)
    used = {node.id for statement in source.body for node in ast.walk(statement) if isinstance(node, ast.Name)}
    declared = {parameter.arg for parameter in (*source.args.args, *source.args.kwonlyargs)} - {"session"}
    assert declared <= used
