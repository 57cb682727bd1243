"""routerctl session: list and end the sessions of the console."""

from __future__ import annotations

from typing import Annotated

import typer

from eventd.cli.gateway.session import Session, connected, connected_without_table, only_calls
from eventd.cli.terminal.output import Column, moment, note, text

SESSIONS = (
    Column("ID", text("id")),
    Column("WHO", text("who")),
    Column("ADDRESS", text("address")),
    Column("BEGAN", moment("createdAt")),
    Column("USED", moment("usedAt")),
    Column("EXPIRES", moment("expiresAt")),
)


@connected
@only_calls
async def list_sessions(
    session: Session,
    of_key: Annotated[str, typer.Option("--of-key", metavar="NAME", help="Only of the key NAME.")] = "",
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=200, help="Maximum number of sessions; the newest are shown.")
    ] = 50,
    after: Annotated[str, typer.Option("--after", metavar="TOKEN", help="Show the older sessions after TOKEN.")] = "",
) -> None:
    """List the sessions of the console that have not ended, the newest first."""
    answer = await session.call("sessions.list", key=of_key, limit=limit, after=after)
    session.out.rows(SESSIONS, answer["sessions"], name=lambda row: str(row["id"]))
    if answer["next"] is not None:
        note(f"note: there are older sessions: continue with --after {answer['next']}")


@connected_without_table
@only_calls
async def end(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="ID", help="Id of the session, as `list` shows it.")],
) -> None:
    """End a session of the console: its browser must sign in again."""
    answer = await session.call("sessions.end", id=name)
    session.out.outcome(answer, f"session/{name} ended", name=lambda row: str(row["id"]))
