"""routerctl context: add, use, list, current, remove."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from eventd.cli.gateway.completion import complete_context
from eventd.cli.gateway.contexts import (
    Colour,
    Contexts,
    NodeContext,
    read_contexts,
    require_context_name,
    shown_members,
    write_contexts,
)
from eventd.cli.gateway.session import Session, offline
from eventd.cli.terminal.output import Column, note, text
from eventd.errors import Conflict, NotFound
from eventd.net.address import Address

_CONTEXTS = (
    Column("", lambda row: "*" if row["current"] else ""),
    Column("NAME", text("name")),
    Column("SERVER", text("server")),
    Column("GROUP", text("group")),
    Column("KEY", lambda row: "file" if row["keyFile"] else "command" if row["keyCommand"] else "-"),
    Column("PROTECTED", lambda row: "yes" if row["protected"] else "-"),
    Column("COLOUR", text("colour"), wide=True),
    Column("CA", text("caFile"), wide=True),
    Column("CERTIFICATE", text("clientCert"), wide=True),
)
_EMPTY: dict[str, Any] = {
    **dict.fromkeys(("group", "keyFile", "colour", "caFile", "clientCert", "clientKey", "serverName", "pin"), ""),
    "keyCommand": [],
    "protected": False,
}

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", autocompletion=complete_context, help="Name of the context.")
]


def _at(*names: str, metavar: str = "", help: str) -> Any:
    return typer.Option(*names, metavar=metavar or None, help=help)


@offline("output")
def add(
    session: Session,
    name: NameArgument,
    api: Annotated[str, _at("--server", metavar="URL", help="API of the node.")],
    file_of_key: Annotated[Path | None, _at("--key-file", metavar="PATH", help="File that holds the API key.")] = None,
    command_of_key: Annotated[
        str, _at("--key-command", metavar="COMMAND", help="Program that prints the API key, with its arguments.")
    ] = "",
    ca: Annotated[
        Path | None, _at("--ca-file", metavar="PATH", help="PEM file of CAs that verify the node, not the system's.")
    ] = None,
    certificate: Annotated[
        Path | None, _at("--client-cert", metavar="PATH", help="PEM file of a certificate to show to the node.")
    ] = None,
    private_key: Annotated[
        Path | None, _at("--client-key", metavar="PATH", help="PEM file of the certificate's private key.")
    ] = None,
    name_of_server: Annotated[
        str, _at("--server-name", metavar="NAME", help="Name that the node's certificate must have.")
    ] = "",
    public_key: Annotated[
        str, _at("--pin", metavar="PIN", help="Public key that the node's certificate must have.")
    ] = "",
    group: Annotated[str, _at("--group", "-g", metavar="NAME", help="Group of commands without --group.")] = "",
    colour: Annotated[Colour | None, _at("--colour", help="Colour that marks the node in the console.")] = None,
    protected: Annotated[bool, _at("--protected", help="Ask before commands that end or drop something.")] = False,
    use_it: Annotated[bool, _at("--use", help="Make it the context in use.")] = False,
    overwrite: Annotated[bool, _at("--replace", help="Replace the context if it exists.")] = False,
) -> None:
    """Store a node under a name: its address and how to connect to it. The key itself is not stored."""
    require_context_name(name)
    contexts = read_contexts()
    if name in contexts.all and not overwrite:
        raise Conflict(f"the context {name} exists", hint="replace it with --replace, or remove it first")
    if file_of_key and command_of_key:
        raise typer.BadParameter("--key-file and --key-command contradict each other: leave one out")
    files = {"key_file": file_of_key, "ca_file": ca, "client_cert": certificate, "client_key": private_key}
    context = NodeContext(
        name,
        str(Address.parse(api)),
        server_name=name_of_server,
        pin=public_key,
        key_command=_words(command_of_key),
        group=group,
        colour=colour or "",
        protected=protected,
        **{option: str(path.expanduser().absolute()) for option, path in files.items() if path is not None},
    )
    context.choice().read_tls()  # reports options that do not belong together
    current = name if use_it else contexts.current
    path = write_contexts(Contexts({**contexts.all, name: context}, current))
    _say(session, context, current, "added", f"note: {path} has the contexts")


def _words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise typer.BadParameter(f"--key-command is not a command: {error}") from None


@offline("output")
def use(
    session: Session,
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", autocompletion=complete_context, help="Name of the context.")
    ] = "",
    none: Annotated[bool, typer.Option("--none", help="Use none: the node on this machine, or its database.")] = False,
) -> None:
    """Make a context the one that commands use. Options and variables that name a node precede it."""
    if bool(name) == none:
        raise typer.BadParameter("give either a context or --none")
    contexts = read_contexts()
    if none:
        write_contexts(replace(contexts, current=""))
        session.out.outcome({"current": ""}, "no context is in use")
        return
    context = contexts.get(name)
    write_contexts(replace(contexts, current=name))
    _say(session, context, name, "is in use")


@offline("output", "no_headers")
def list_contexts(session: Session) -> None:
    """List contexts, sorted by name."""
    contexts = read_contexts()
    rows = [_row(contexts.all[name], contexts.current) for name in sorted(contexts.all)]
    session.out.rows(_CONTEXTS, rows, name=lambda row: str(row["name"]))
    if not rows and session.out.is_table:
        note("note: add a context with `routerctl context add NAME --server URL --key-file PATH`")


@offline("output", "no_headers")
def current(session: Session) -> None:
    """Show the context in use; exits with status 3 if there is none."""
    contexts = read_contexts()
    if not contexts.current:
        raise NotFound("no context is in use", hint="choose one with `routerctl context use NAME`")
    row = _row(contexts.get(contexts.current), contexts.current)
    session.out.one(_CONTEXTS, row, name=lambda row: str(row["name"]))


@offline("output")
def remove(session: Session, name: NameArgument) -> None:
    """Remove a context. The node and the key file stay as they are."""
    contexts = read_contexts()
    context = contexts.get(name)
    left = "" if contexts.current == name else contexts.current
    write_contexts(Contexts({each: contexts.all[each] for each in contexts.all if each != name}, left))
    _say(session, context, left, "removed")


def _say(session: Session, context: NodeContext, current: str, what: str, *notes: str) -> None:
    lines = (f"context/{context.name} {what}",)
    session.out.outcome(_row(context, current), *lines, name=lambda row: str(row["name"]), notes=notes)


def _row(context: NodeContext, current: str) -> dict[str, Any]:
    return {"name": context.name, "current": context.name == current, **_EMPTY, **shown_members(context)}
