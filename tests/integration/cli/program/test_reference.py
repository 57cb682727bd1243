"""The reference of commands and of the API is complete and matches the programs.

Each command and each operation has a block that is generated from the program; a page must contain it word for word. If
one differs, the failure prints the new block.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
import typer.main
from pydantic.fields import FieldInfo

from eventd.api.framework.endpoint import load
from eventd.api.framework.route import Route
from eventd.api.routes import OPERATIONS, ROUTES
from eventd.cli import routerctl_commands, routerd_eventd_commands
from eventd.cli.gateway.options import SHARED
from eventd.cli.program.command_line import _behind_command
from eventd.cli.program.flags import _PANEL as SETTINGS_PANEL

REFERENCE = Path(__file__).parents[4] / "docs" / "reference"


def commands(app: typer.Typer, name: str) -> Iterator[tuple[str, Any]]:
    """Every command with its full name; hidden names of the same are left out."""
    yield from _walk(typer.main.get_command(app), name)


def _walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "list_commands"):
        yield path, command
        return
    context = typer.Context(command)
    for name in command.list_commands(context):
        if not (inner := command.get_command(context, name)).hidden:
            yield from _walk(inner, f"{path} {name}")


def block_of_command(path: str, command: Any) -> str:
    """The heading of a command, what it does, and its own options."""
    shared = SHARED if path.startswith("routerctl") else ()
    params = [p for p in command.params if p.name not in ("help", *shared) and p.rich_help_panel != SETTINGS_PANEL]
    arguments = "".join(f" {p.metavar}" for p in params if p.param_type_name == "argument")
    lines = [f"### {path}{arguments}", "", " ".join(command.help.split())]
    if params:
        lines += ["", "| Option | Meaning |", "|---|---|", *map(_row, params)]
    return "\n".join(lines)


def _row(param: Any) -> str:
    if param.param_type_name == "argument":
        name = f"`{param.metavar}`"
    else:
        named = param.metavar and not param.metavar.startswith("<")  # where it is not named, its choices are shown
        value = "" if param.is_flag else f" {param.metavar if named else _metavar(param)}"
        name = ", ".join(f"`{option}`" for option in param.opts[:-1])
        name += f"{', ' if name else ''}`{param.opts[-1]}{value}`"
    default = "" if param.default in (None, "", False, []) or param.is_flag else f" Default: `{param.default}`."
    variable = f" [{param.envvar}]" if param.envvar else ""
    required = " Required." if param.required and param.param_type_name == "option" else ""
    return f"| {name} | {(param.help or '').replace('|', chr(92) + '|')}{variable}{required}{default} |"


def _metavar(param: Any) -> str:
    return str(param.opts[-1].removeprefix("--").split("-")[-1].upper())


def shared_options() -> str:
    """The table of the options that commands of routerctl share."""
    every = commands(routerctl_commands.app, "routerctl")
    shared = {param.name: _row(param) for _, command in every for param in command.params if param.name in SHARED}
    return "\n".join(["| Option | Meaning |", "|---|---|", *(shared[name] for name in SHARED)])


def block_of_operation(route: Route) -> str:
    """The heading of an operation, what it does, who may, and what it takes."""
    fields = params.model_fields if (params := load(route).params) else {}
    lines = [f"### {route.method} {route.path}", "", f"{route.summary}. Scope: {_scopes(route)}."]
    if fields:
        lines += ["", "| Field | Type | Meaning |", "|---|---|---|"]
        lines += [_field_row(field, name in route.path) for name, field in fields.items()]
    return "\n".join(lines)


def _scopes(route: Route) -> str:
    return " or ".join(f"`{scope}`" for scope in route.scopes) if route.any_scope else f"`{', '.join(route.scopes)}`"


def _field_row(field: FieldInfo, in_path: bool) -> str:
    told = field.description or ("The name of the EventGroup." if field.alias == "group" else "Its name.")
    default = "" if in_path else _default(field)
    return f"| `{field.alias}` | {_type(field.annotation)} | {told.replace('|', chr(92) + '|')}{default} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return " Required."
    return "" if field.default in (None, "", False, []) else f" Default: `{field.default}`."


def _type(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is list:
        return f"list of {_type(get_args(annotation)[0])}"
    if origin in (Union, UnionType):
        return _type(get_args(annotation)[0])
    if origin is Literal:
        return "text"
    names = {str: "text", int: "number", bool: "true or false", Any: "object"}
    if annotation in names:
        return names[annotation]
    return "object" if hasattr(annotation, "model_fields") else ", ".join(f"`{value}`" for value in annotation)


def sections(page: str) -> str:
    return (REFERENCE / page).read_text(encoding="utf-8")


def blocks_of_commands() -> list[str]:
    every = [*commands(routerd_eventd_commands.app, "routerd-eventd"), *commands(routerctl_commands.app, "routerctl")]
    return [block_of_command(path, command) for path, command in every]


def test_every_command_is_in_the_reference() -> None:
    page = sections("cli.md")
    lacking = [block for block in blocks_of_commands() if f"\n{block}\n" not in page]
    assert not lacking, "docs/reference/cli.md lacks these blocks:\n\n" + "\n\n".join(lacking)


def test_the_options_of_every_command_are_in_the_reference() -> None:
    block = shared_options()
    assert f"\n{block}\n" in sections("cli.md"), f"docs/reference/cli.md lacks this table:\n\n{block}"


def test_the_reference_names_no_command_that_is_not_there() -> None:
    known = {block.splitlines()[0] for block in blocks_of_commands()}
    named = {line for line in sections("cli.md").splitlines() if line.startswith("### ")}
    assert named == known


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_is_in_the_reference(operation: str) -> None:
    block = block_of_operation(OPERATIONS[operation])
    assert f"\n{block}\n" in sections("http-api.md"), f"docs/reference/http-api.md lacks this block:\n\n{block}"


def test_the_reference_names_no_operation_that_is_not_there() -> None:
    known = {f"### {route.method} {route.path}" for route in OPERATIONS.values()}
    named = {line for line in sections("http-api.md").splitlines() if line.startswith("### ")}
    assert named == known


def _command_lines() -> Iterator[tuple[str, list[str]]]:
    """Every line of the documentation that begins with routerctl, in a block or between backticks."""
    pages = [*REFERENCE.parent.rglob("*.md"), REFERENCE.parents[1] / "README.md"]
    for page in pages:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        # What is quoted belongs to the command, whatever it means to a shell.
        line = r"""^ *(?:\$ )?routerctl ((?:'[^'\n]*'|"[^"\n]*"|[^\n|>'"])+)|`routerctl ([^`\n]+)`"""
        for found in re.finditer(line, text, re.MULTILINE):
            yield page.name, shlex.split((found[1] or found[2]).split(" #")[0])


def test_every_command_line_in_the_documentation_can_be_typed() -> None:
    root = typer.main.get_command(routerctl_commands.app)
    for page, arguments in _command_lines():
        command: Any = root
        rest = _behind_command(arguments, routerctl_commands.Routerctl.shared)
        while hasattr(command, "commands") and rest and (inner := command.get_command(typer.Context(command), rest[0])):
            command = inner
            rest.pop(0)
        if rest and getattr(command, "usual", "") and not rest[0].startswith("-"):
            command = command.get_command(typer.Context(command), command.usual)
        known = {"-", "--help", *(option for param in command.params for option in param.opts)}
        options = [word.split("=")[0] for word in rest if word.startswith("-")]
        said = f"{page}: routerctl {shlex.join(arguments)}"
        assert set(options) <= known, f"{said}: {', '.join(set(options) - known)} is no option of it"
        assert not hasattr(command, "commands") or len(options) == len(rest), f"{said}: there is no such command"


def test_a_method_of_a_path_is_one_route() -> None:
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)
