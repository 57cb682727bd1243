"""routerctl key: create, list, revoke."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eventd.cli.gateway.session import Session, connected
from eventd.cli.terminal.output import Column, joined, moment, note, text
from eventd.errors import EventdError

KEYS = (
    Column("NAME", text("name")),
    Column("SCOPES", joined("scopes")),
    Column("PREFIXES", joined("prefixes")),
    Column("STATE", text("state")),
    Column("CREATED", moment("createdAt")),
    Column("EXPIRES", moment("expiresAt")),
    Column("REVOKED", moment("revokedAt"), wide=True),
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What the key is called.")]


@connected
async def create(
    session: Session,
    name: NameArgument,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope", metavar="SCOPE", help="`read`, `write`, `delete`, `admin` or `rw`; repeatable; all by default."
        ),
    ] = None,
    prefix: Annotated[
        list[str] | None,
        typer.Option(
            "--prefix", metavar="PREFIX", help="Only for groups, topics and routers whose names begin so; repeatable."
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="WHEN", help="When it ends: a time, or from now such as 720h.")
    ] = None,
) -> None:
    """Make a key to the API. It is printed this once, and kept nowhere. Makes the database if there is none yet."""
    if session.out.format == "name":
        raise typer.BadParameter("-o name would lose the key, which is shown this once")
    session.make = True
    limits = {"scopes": scope or None, "prefixes": prefix or None, "expires": expires}
    given = {limit: value for limit, value in limits.items() if value is not None}
    answer = await session.call("keys.create", name=name, **given)
    try:
        _show_key(session, answer)
    except OSError as error:
        raise EventdError(
            f"the key {name} is in force, but could not be written: {error.strerror}",
            hint=f"its secret is lost: delete it with routerctl key revoke {name} --forget, and make another",
        ) from None
    if session.out.is_table:
        note(f"note: this is the key {name}; it cannot be shown again")


def _show_key(session: Session, answer: dict[str, Any]) -> None:
    """Raises OSError where the key does not reach its reader, also when only the last flush fails."""
    if session.out.is_table:
        session.out.line(answer["key"])
    else:
        session.out.value(answer)
    session.out.flush()


@connected
async def list_keys(session: Session) -> None:
    """Show which keys were made, and what they may do; not those of the settings, and never a key itself."""
    answer = await session.call("keys.list")
    session.out.rows(KEYS, answer["keys"], name=lambda row: str(row["name"]))


@connected
async def revoke(
    session: Session,
    name: NameArgument,
    forget: Annotated[
        bool, typer.Option("--forget", help="Strike it from the list, too; its name can be given again.")
    ] = False,
) -> None:
    """End a key at once, with every stream that was opened with it."""
    answer = await session.call("keys.revoke", name=name, forget=forget)
    if session.out.is_table:
        session.out.line(f"key/{name} {'forgotten' if forget else 'revoked'}")
    else:
        session.out.one(KEYS, answer, name=lambda row: str(row["name"]))
