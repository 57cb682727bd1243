"""Parses the command line: commands are loaded when needed, and a mistake is reported in one line.

The commands are declared with typer's annotations; its groups are subclassed as its documentation describes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

import eventd
from eventd.cli.program.command_hints import hint_for_argument, hint_for_command
from eventd.cli.program.exits import ExitCode
from eventd.cli.program.old_spellings import (
    RENAMED_OPTIONS,
    command_of,
    remedy,
    renamed_command,
    renamed_options,
    unused_options,
)
from eventd.cli.program.params import UnusedOption, own
from eventd.cli.terminal.output import note
from eventd.text.did_you_mean import did_you_mean
from eventd.text.quoting import quoted

_NEGATIVE = re.compile(r"-[0-9.]")
"""Matches negative numbers, which the library would mistake for options."""


class Leaf(NamedTuple):
    """A command: `folder.file.function` within `eventd.cli`. A hidden one works, but the help does not list it.

    `help` is the first sentence of its help, so that a list of commands loads none of them.
    """

    where: str
    help: str = ""
    hidden: bool = False


class Branch(NamedTuple):
    """A group of commands, by name. A hidden one is not listed by the help.

    `usual`: the command that runs when the first argument is not the name of one.
    """

    help: str
    commands: Mapping[str, Leaf | Branch]
    hidden: bool = False
    usual: str = ""


class _OwnParams:
    """Converts the parameters of a command or group with `params.own`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the converted parameters: the same objects each time, because the library compares them."""
        made: dict[int, Any] = self.__dict__.setdefault("_own", {})
        given: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        return [made.setdefault(id(param), own(param)) for param in given]


class Command(_OwnParams, TyperCommand):
    """A command with plain-text help, which suits terminals, files and screen readers, and is shown at once."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the command's parameters, and hidden ones for the options that it accepts and ignores."""
        shared, made = _shared(ctx), self.__dict__.setdefault("_unused", {})
        for name in unused_options(ctx.command_path):
            if name not in made:
                flag = not shared.get(RENAMED_OPTIONS.get(name, name), True)
                made[name] = UnusedOption(name, command_of(ctx.command_path), is_flag=flag)
        return [*super().get_params(ctx), *made.values()]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command's arguments, including old option names; print a notice for each old name."""
        known = {name for param in self.get_params(ctx) for name in param.opts}
        renamed = renamed_options(ctx.command_path)
        old = {was: now for was, now in renamed.items() if now in known and was not in known}
        words, notices = _renamed(args, old)
        if (command := renamed_command(ctx.command_path)) is not None:
            notices = [_renamed_notice(*command), *notices]
        if not ctx.resilient_parsing:  # completion
            for notice in notices:
                note(notice)
        return super().parse_args(ctx, words)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return `[OPTIONS]` and the names of the arguments, with marks for optional and repeated ones."""
        arguments = [param for param in self.params if param.param_type_name == "argument"]
        return ["[OPTIONS]", *[str(param.metavar or param.name) for param in arguments]]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Format the arguments and options, each under the heading of its panel."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                usual = "Arguments" if param.param_type_name == "argument" else "Options"
                sections.setdefault(getattr(param, "rich_help_panel", None) or usual, []).append(record)
        for title, rows in sections.items():
            _write_section(formatter, title, rows)


class Group(_OwnParams, TyperGroup):
    """A group of commands. Those of `tree` are loaded on access."""

    tree: Mapping[str, Leaf | Branch] = {}
    usual: str = ""
    """The command that runs when the first argument is not the name of one."""
    headings: Mapping[str, Sequence[str]] = {}
    """The headings under which the help lists commands; the others follow under one of their own."""
    shared: Mapping[str, bool] = {}
    """The program's options that may precede the command, and whether they take a value."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names without loading the commands."""
        return [*self.commands, *(name for name in self.tree if name not in self.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load and return the command of that name; None if there is none."""
        if cmd_name not in self.commands and cmd_name in self.tree:
            self.commands[cmd_name] = make(cmd_name, self.tree[cmd_name])
        return self.commands.get(cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the command; the shared ones among them move behind it.

        Without arguments, print the help to stderr and exit with status 2.
        """
        if not args and not self.usual and not ctx.resilient_parsing:
            print(ctx.get_help(), file=sys.stderr)
            ctx.exit(ExitCode.USAGE)
        return super().parse_args(ctx, self._with_usual(_behind_command(args, _shared(ctx))))

    def _with_usual(self, args: list[str]) -> list[str]:
        """Return the arguments after the name of the usual command, unless they begin with another command."""
        named = bool(args) and (args[0] in self.tree or args[0] == "--help")
        return args if named or not self.usual else [self.usual, *args]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of the command in the first argument, the command, and the rest; fail if it is unknown."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = [name for name in self.list_commands(ctx) if not self._listed(name).hidden]
            meant = did_you_mean(args[0], names) or hint_for_command(ctx.command_path, args[0])
            ctx.fail(f"no such command {quoted(args[0])}{f': {meant}' if meant else ''}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Format the commands that are not hidden, each with the first sentence of its help."""
        found = {name: self._listed(name) for name in self.list_commands(ctx)}
        width = formatter.width * 3
        rows = {name: command.get_short_help_str(width) for name, command in found.items() if not command.hidden}
        for heading, names in self.headings.items():
            _write_section(formatter, heading, [(name, rows.pop(name)) for name in names])
        _write_section(formatter, "Commands", [*rows.items()])

    def _listed(self, name: str) -> Any:
        """Return a command, or a substitute without its code that is sufficient for a list."""
        if name in self.commands:
            return self.commands[name]
        one = self.tree[name]
        return TyperCommand(name, help=one.help, hidden=one.hidden)


class CommandLine(Group):
    """The root of a program's commands: reports wrong use on stderr, with status 2; other errors pass through."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except typer.TyperException as error:
            print(_render(error, self.name or ""), file=sys.stderr)
            sys.exit(ExitCode.USAGE)
        sys.exit(code if isinstance(code, int) else ExitCode.OK)


def make(name: str, one: Leaf | Branch) -> Any:
    """Return a command, whose code is loaded, or a group of commands, which are not."""
    if isinstance(one, Branch):
        group = Group(name=name, help=one.help, hidden=one.hidden, rich_markup_mode=None)
        group.tree = one.commands
        group.usual = one.usual
        return group
    file, _, function = one.where.rpartition(".")
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, cls=Command, hidden=one.hidden)(getattr(import_module(f"eventd.cli.{file}"), function))
    return typer.main.get_command(app)


def _shared(ctx: Any) -> Mapping[str, bool]:
    shared: Mapping[str, bool] = getattr(ctx.find_root().command, "shared", {})
    return shared


def _behind_command(args: Sequence[str], shared: Mapping[str, bool]) -> list[str]:
    """Return the arguments, with the shared options that precede the command moved behind its name."""
    kept: list[str] = []
    moved: list[str] = []
    at = 0
    while at < len(args) and args[at].startswith("-") and args[at] not in ("-", "--"):
        word = args[at]
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        today = RENAMED_OPTIONS.get(name, name)
        takes_next = shared.get(today, False) and word == name
        (moved if today in shared else kept).extend(args[at : at + 1 + takes_next])
        at += 1 + takes_next
    return [*kept, *args[at : at + 1], *moved, *args[at + 1 :]]


def _renamed(args: Sequence[str], old: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Replace old option names. Returns the arguments, and a notice for each name."""
    end = args.index("--") if "--" in args else len(args)
    words = list(args)
    found: dict[str, str] = {}
    for at, word in enumerate(args[:end]):
        name, equals, value = word.partition("=")
        if name in old:
            found[name] = _renamed_notice(name, old[name])
            words[at] = f"{old[name]}{equals}{value}"
    return words, list(found.values())


def _renamed_notice(old: str, name: str) -> str:
    return f"note: {old} is now called {name}; the old name still works"


def _render(error: typer.TyperException, program: str) -> str:
    """Return the error as a line that names the command whose help explains it."""
    context: Any = getattr(error, "ctx", None)
    command = context.command_path if context is not None else program
    hint = ""
    if context is not None and (option := getattr(error, "option_name", "")):
        hint = _advice(option, context)
        _suggest_shown_options(error, context)
    elif advice := hint_for_argument(error):
        hint = f"{advice}; "
    message = error.format_message().removesuffix(".").removeprefix("Invalid value: ")
    return f"error: {message[:1].lower()}{message[1:]} ({hint}see {command} --help)"


def _suggest_shown_options(error: Any, context: Any) -> None:
    """Limit the library's suggestions to options that the help shows; make none for an option with a remedy."""
    shown = {name for param in context.command.get_params(context) if not param.hidden for name in param.opts}
    none = remedy(context.command_path, error.option_name)
    error.possibilities = [name for name in getattr(error, "possibilities", None) or () if name in shown and not none]


def _advice(option: str, context: Any) -> str:
    """Return the advice about an option that needs a command, is refused, or is meant as an argument.

    The text ends in `; `, as a part of a message; it is empty for any other option.
    """
    if isinstance(context.command, Group):
        return "add a command; " if option in _shared(context) else ""
    if words := remedy(context.command_path, option):
        return f"{words}; "
    return "before an argument that begins with a dash, write --; " if _NEGATIVE.match(option) else ""


def _write_section(formatter: Any, title: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"routerd-eventd {eventd.__version__}")
        raise typer.Exit


def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Declares the options of a program itself, which precede its commands."""
