"""routerctl routemaster: topics, subscribers, sign, topic claim, token create, list, rotate and revoke."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eventd.cli.gateway.session import Session, connected, connected_without_table, may_ask, only_calls
from eventd.cli.terminal.output import Column, joined, moment, note, text
from eventd.errors import EventdError

TOPICS = (
    Column("NAME", text("name")),
    Column("PUBLISHER", text("publisher")),
    Column("EVENTS", text("events")),
    Column("SUBSCRIBERS", text("subscribers")),
    Column("CREATED", moment("createdAt"), wide=True),
)
SUBSCRIBERS = (
    Column("SUBSCRIBER", text("subscriber")),
    Column("CALLBACK", text("callback")),
    Column("TOPICS", joined("topics")),
    Column("SENT", text("sent")),
    Column("QUEUED", text("queued")),
    Column("OLDEST", moment("oldestAt")),
    Column("UUID", text("uuid"), wide=True),
    Column("KEYS", joined("keyIds"), wide=True),
    Column("TIMEOUT_MS", text("timeoutMs"), wide=True),
    Column("MAX", text("maxEvents"), wide=True),
    Column("UPDATED", moment("updatedAt"), wide=True),
)
TOKENS = (
    Column("HANDLE", text("handle")),
    Column("NAME", text("name")),
    Column("STATE", text("state")),
    Column("CREATED", moment("createdAt")),
    Column("EXPIRES", moment("expiresAt")),
    Column("IDENTITY", text("identity"), wide=True),
)

HandleArgument = Annotated[str, typer.Argument(metavar="HANDLE", help="Handle of a token, as `token list` shows it.")]


@connected
@only_calls
async def topics(session: Session) -> None:
    """List the topics of the Routemaster surface with their publishers and counts."""
    answer = await session.call("routemaster.topics")
    session.out.rows(TOPICS, answer["topics"], name=lambda row: str(row["name"]))


@connected
@only_calls
async def subscribers(session: Session) -> None:
    """List the subscribers of the Routemaster surface, and how many events wait for each."""
    answer = await session.call("routemaster.subscribers")
    session.out.rows(SUBSCRIBERS, answer["subscribers"], name=lambda row: str(row["subscriber"]))


@connected_without_table
@only_calls
async def sign(
    session: Session,
    client: Annotated[str, typer.Argument(metavar="NAME", help="Name of the client's token, or its handle.")],
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--signing-key",
            metavar="ID=FILE",
            help="A key's id and, at the node, the file of its secret; may be repeated.",
        ),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Stop signing its requests.")] = False,
) -> None:
    """Set the keys that sign the requests to a subscriber, or stop signing them."""
    if bool(keys) == none:
        raise typer.BadParameter("give either --signing-key ID=FILE, once for each key, or --none")
    answer = await session.call("routemaster.sign", client=client, keys=keys or [])
    done = f"signed with {', '.join(answer['keyIds'])}" if answer["keyIds"] else "not signed"
    session.out.outcome(answer, f"subscriber/{answer['subscriber']} {done}", name=lambda row: str(row["subscriber"]))


@connected_without_table
@only_calls
@may_ask
async def claim(
    session: Session,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of the surface.")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="New publisher: the name of its token, or a handle.")
    ] = None,
    release: Annotated[bool, typer.Option("--release", help="Let the next publisher claim the topic.")] = False,
) -> None:
    """Hand the claim of a topic over to another client, or release it."""
    if (to is None) != release:
        raise typer.BadParameter("give either --to NAME or --release")
    given = {"release": True} if to is None else {"to": to}
    answer = await session.call("routemaster.claim", name=topic, **given)
    done = f"claimed by {answer['publisher']}" if answer["publisher"] else "released"
    session.out.outcome(answer, f"topic/{topic} {done}", name=lambda row: str(row["name"]))


@connected_without_table
@only_calls
async def create_token(
    session: Session, name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the client.")]
) -> None:
    """Create a token and print it: it cannot be shown again."""
    _require_shown(session)
    _print_token(session, await session.call("routemaster.create_token", name=name))


@connected
@only_calls
async def list_tokens(session: Session) -> None:
    """List the tokens of the Routemaster surface by their handles."""
    answer = await session.call("routemaster.tokens")
    session.out.rows(TOKENS, answer["tokens"], name=lambda row: str(row["handle"]))


@connected_without_table
@only_calls
@may_ask
async def rotate_token(
    session: Session,
    handle: HandleArgument,
    grace: Annotated[
        str, typer.Option("--grace", metavar="TIME", help="How long the client's present tokens stay valid.")
    ] = "1h",
) -> None:
    """Give a client a new token, and print it; its subscription and its claims stay."""
    _require_shown(session)
    _print_token(session, await session.call("routemaster.rotate_token", handle=handle, grace=grace))


@connected_without_table
@only_calls
@may_ask
async def revoke_token(session: Session, handle: HandleArgument) -> None:
    """Delete a token at once, and with a client's last one its subscription and waiting events."""
    answer = await session.call("routemaster.revoke_token", handle=handle)
    session.out.outcome(answer, f"token/{answer['handle']} revoked", name=lambda row: str(row["handle"]))


def _require_shown(session: Session) -> None:
    if session.out.format == "name":
        raise typer.BadParameter("-o name would lose the token, which is shown only once: use another format")


def _print_token(session: Session, answer: dict[str, Any]) -> None:
    handle = answer["handle"]
    try:
        session.out.outcome(answer, answer["token"])
        session.out.flush()
    except OSError as error:
        raise EventdError(
            f"the token {handle} is active, but could not be printed: {error.strerror}",
            hint=f"it is lost: delete it with routerctl routemaster token revoke {handle}, and create another",
        ) from None
    if session.out.is_table:
        note(f"note: this is the token {handle}; it cannot be shown again")
