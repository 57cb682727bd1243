"""routerctl key: create, list, revoke."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eventd.cli.gateway.session import Session, connected, connected_without_table, may_ask, only_calls
from eventd.cli.terminal.output import Column, joined, moment, note, text
from eventd.errors import EventdError

KEYS = (
    Column("NAME", text("name")),
    Column("SCOPES", joined("scopes")),
    Column("PREFIXES", joined("prefixes")),
    Column("STATE", text("state")),
    Column("CREATED", moment("createdAt")),
    Column("EXPIRES", moment("expiresAt")),
    Column("LAST_USED", moment("lastUsedAt")),
    Column("REVOKED", moment("revokedAt"), wide=True),
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the key.")]


@connected_without_table
@only_calls
async def create(
    session: Session,
    name: NameArgument,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="`look`, `read`, `write`, `delete`, `admin` or `rw`; repeatable (default: all).",
        ),
    ] = None,
    prefix: Annotated[
        list[str] | None,
        typer.Option(
            "--prefix",
            metavar="PREFIX",
            help="Only groups, topics and routers whose names start with PREFIX; repeatable.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="WHEN", help="Expiry: a time, or a duration from now such as 30d."),
    ] = None,
) -> None:
    """Create an API key and print it: it cannot be shown again. Creates the database if it is missing."""
    if session.out.format == "name":
        raise typer.BadParameter("-o name would lose the key, which is shown only once: use another format")
    session.make = True
    limits = {"scopes": scope or None, "prefixes": prefix or None, "expires": expires}
    given = {limit: value for limit, value in limits.items() if value is not None}
    answer = await session.call("keys.create", name=name, **given)
    try:
        _show_key(session, answer)
    except OSError as error:
        raise EventdError(
            f"the key {name} is active, but could not be printed: {error.strerror}",
            hint=f"its secret is lost: delete it with routerctl key revoke {name} --forget, and create another",
        ) from None
    if session.out.is_table:
        note(f"note: this is the key {name}; it cannot be shown again")


def _show_key(session: Session, answer: dict[str, Any]) -> None:
    """Print the key. Raises OSError if it does not reach its reader, also when only the last flush fails."""
    session.out.outcome(answer, answer["key"])
    session.out.flush()


@connected
@only_calls
async def list_keys(session: Session) -> None:
    """List the keys that `key create` made, without their secrets. The keys of the settings are not listed."""
    answer = await session.call("keys.list")
    session.out.rows(KEYS, answer["keys"], name=lambda row: str(row["name"]))


@connected_without_table
@only_calls
@may_ask
async def revoke(
    session: Session,
    name: NameArgument,
    forget: Annotated[
        bool, typer.Option("--forget", help="Also remove it from the list, which frees its name.")
    ] = False,
) -> None:
    """Revoke a key at once, and close every connection that is using it."""
    answer = await session.call("keys.revoke", name=name, forget=forget)
    session.out.outcome(answer, f"key/{name} {'forgotten' if forget else 'revoked'}", name=lambda row: str(row["name"]))
