"""How a command line is read: a mistake is one readable line, like every other error, and the help is in our words."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import eventd
from eventd.cli.program.exits import ExitCode
from eventd.cli.program.values import read_words

_WORDS = (
    (re.compile(r"must be a valid integer, unable to parse string as an integer"), "must be a whole number"),
    (re.compile(r"must be greater than or equal to"), "must be at least"),
    (re.compile(r"must be less than or equal to"), "must be at most"),
    (re.compile(r"Value error, |^Invalid value: "), ""),
)
"""What the library says, and how we say it."""


_ASIDE = frozenset({"help", "install_completion", "show_completion"})
"""Flags of every program. None of them given is a no: to find out what to make of None, pydantic would be loaded."""


_NEGATIVE = re.compile(r"-[0-9.]")
"""How a number below zero begins, which the library takes for options."""
_TYPE = re.compile(r" <(str|int|list\[.*\])>$")
"""What the library says of an argument: a type of Python's."""


class Command(TyperCommand):
    """A command. Its help is plain text: for a terminal, a file and a reader of screens alike, and there at once."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What stands behind its name: arguments as they are called, which says what may be left out or repeated."""
        arguments = [param for param in self.params if param.param_type_name == "argument"]
        return ["[OPTIONS]", *[str(param.metavar or param.name) for param in arguments]]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """What it takes, by what that is about."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            usual, (name, words) = "Options", record
            if param.param_type_name == "argument":
                usual, name = "Arguments", _TYPE.sub("", name)
            sections.setdefault(getattr(param, "rich_help_panel", None) or usual, []).append((name, words))
        for title, rows in sections.items():
            _write_section(formatter, title, rows)


def _write_section(formatter: Any, title: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)


class Group(TyperGroup):
    """Commands under one word, which are not all loaded to tell their names."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        name_values(self)
        read_words(self)

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # its own name for a context
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Their names, each with all of its first sentence."""
        shown = [(name, self.commands[name]) for name in self.list_commands(ctx) if not self.commands[name].hidden]
        rows = [(name, command.get_short_help_str(formatter.width * 3)) for name, command in shown]
        _write_section(formatter, "Commands", rows)


class CommandLine(Group):
    """The tree of commands of a program."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        _name_own(self)  # the library has added some by now
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except typer.TyperException as error:
            print(_render(error, self.name or ""), file=sys.stderr)
            sys.exit(ExitCode.USAGE)
        sys.exit(code if isinstance(code, int) else ExitCode.OK)


def _render(error: typer.TyperException, program: str) -> str:
    """The error with the command whose help explains it; for a bare group of commands, that help itself."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return error.format_message()
    message = error.format_message().removesuffix(".")
    for theirs, ours in _WORDS:
        message = theirs.sub(ours, message, count=1)
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else program
    hint = _misplaced(error, context.command) if context is not None else ""
    return f"error: {message[:1].lower()}{message[1:]} ({hint}see {command} --help)"


def _misplaced(error: typer.TyperException, command: Any) -> str:
    """What to do about an unknown option that is right elsewhere, or is meant as an argument."""
    option = getattr(error, "option_name", "")
    if getattr(command, "commands", None):
        return "put it after the command; " if option in _options_of_first(command) else ""
    return "before an argument that begins with a dash, write --; " if _NEGATIVE.match(option) else ""


def _options_of_first(command: Any) -> set[str]:
    """The options of the first command below; it has those that all commands share, and to load all takes a second."""
    while getattr(command, "commands", None):
        command = next(iter(command.commands.values()))
    return {name for param in command.params if param.param_type_name == "option" for name in param.opts}


def name_values(command: Any) -> None:
    """Name the value of each option after the option, and none where it takes none, instead of a type of Python's."""
    _name_own(command)
    for inner in getattr(command, "commands", {}).values():
        name_values(inner)


def _name_own(command: Any) -> None:
    about = typer.Context(command)
    for option in (*command.params, command.get_help_option(about)):
        if option is None or option.param_type_name != "option" or option.metavar is not None:
            continue
        if option.is_flag:
            option.metavar = ""
            if option.name in _ASIDE and option.default is None:
                option.default = False
        elif option.type_descriptor.annotation in (str, Path, list[str], int, float):
            option.metavar = option.opts[-1].removeprefix("--").split("-")[-1].upper()
        elif option.type_descriptor.is_list and option.type_descriptor.choices:
            option.metavar = f"<{'|'.join(map(str, option.type_descriptor.choices))}>"


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"routerd-eventd {eventd.__version__}")
        raise typer.Exit


def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """The options of a program itself, before its commands."""
