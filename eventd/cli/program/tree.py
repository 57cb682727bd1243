"""A tree of commands, each loaded when it is looked at: who calls one does not wait for eighty."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple

import typer

from eventd.cli.program.command_line import Command, CommandLine, Group, name_values
from eventd.cli.program.values import read_words


class Leaf(NamedTuple):
    """A command: `file.function` of this package. A hidden one works, and no help tells of it."""

    where: str
    hidden: bool = False


class Branch(NamedTuple):
    """Commands under one word."""

    help: str
    commands: Mapping[str, Leaf | Branch]
    hidden: bool = False


def grow(commands: Mapping[str, Leaf | Branch]) -> type[CommandLine]:
    """The class of a program with these commands."""

    class Grown(CommandLine):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.commands = _Commands(commands)

    return Grown


class _Commands(MutableMapping[str, Any]):
    """The commands of a group by their names. Their values are made once, when somebody asks for them."""

    def __init__(self, commands: Mapping[str, Leaf | Branch]) -> None:
        self._made: dict[str, Callable[[], Any]] = {
            name: cache(partial(_make, name, one)) for name, one in commands.items()
        }

    def __getitem__(self, name: str) -> Any:
        return self._made[name]()

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = lambda: command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def _make(name: str, one: Leaf | Branch) -> Any:
    if isinstance(one, Branch):
        app = typer.Typer(
            name=name, cls=Group, help=one.help, no_args_is_help=True, hidden=one.hidden, rich_markup_mode=None
        )
        group = typer.main.get_group(app)
        group.commands = _Commands(one.commands)
        return group
    file, _, function = one.where.rpartition(".")
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, cls=Command, hidden=one.hidden)(getattr(import_module(f"eventd.cli.{file}"), function))
    made = typer.main.get_command(app)
    name_values(made)
    read_words(made)
    return made
