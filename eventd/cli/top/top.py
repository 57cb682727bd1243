"""routerctl top: the links, topics, queues or callbacks that matter now, on one screen or once."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from eventd.cli.gateway.selecting import GroupsOption
from eventd.cli.gateway.session import Session, connected, may_colour, only_calls
from eventd.errors import EventdError, Unavailable

if TYPE_CHECKING:
    from eventd.cli.top.choices import Choices
    from eventd.cli.top.views import Row

PAUSE: Final = 1.0
"""Seconds between two reads."""


class Subject(StrEnum):
    LINKS = "links"
    TOPICS = "topics"
    QUEUES = "queues"
    CALLBACKS = "callbacks"


@connected
@only_calls
async def top(
    session: Session,
    what: Annotated[
        Subject | None,
        typer.Argument(metavar="[WHAT]", help="links, topics, queues or callbacks; links if it is left out."),
    ] = None,
    group: GroupsOption = "",
    part: Annotated[
        str, typer.Option("--filter", metavar="TEXT", help="Only rows whose names contain this text.")
    ] = "",
    failing: Annotated[bool, typer.Option("--failing", help="Only rows that are failing.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Show the rows once, as a table or with -o.")] = False,
) -> None:
    """Show rates, lag and backlog of links, topics, queues or callbacks, the largest first, until q or Ctrl-C."""
    from eventd.cli.top.choices import Choices
    from eventd.cli.top.views import VIEWS, read_rows

    choices = Choices(VIEWS[what or Subject.LINKS], failing=failing, part=part)
    is_live = not once and session.out.format == "table" and sys.stdin.isatty() and sys.stdout.isatty()
    rows = await read_rows(session, choices.view, group)
    if not is_live:
        view = choices.view
        shown = view.arrange(rows, sort="", reverse=False, failing=failing, part=part)
        session.out.rows(view.columns, shown, name=view.title)
        return
    from asyncio import CancelledError

    try:
        await _stay(session, choices, rows, group)
    except (KeyboardInterrupt, CancelledError):
        return  # Ctrl-C is one way to end it; on an event loop it cancels


async def _stay(session: Session, choices: Choices, rows: list[Row], group: str) -> None:
    """Show the rows, and read them again every second, until the operator ends it."""
    from eventd.cli.top.screen import Screen
    from eventd.cli.top.views import read_rows
    from eventd.runtime.clock import SystemClock

    clock, problem = SystemClock(), ""
    with Screen(colour=may_colour()) as screen:
        while True:
            screen.show(choices, rows, problem)
            ends = clock.monotonic() + PAUSE
            is_other = False
            while not is_other and (left := ends - clock.monotonic()) > 0:
                if keys := screen.wait_for_keys(left):
                    is_other = choices.press(keys)
                    rows = [] if is_other else rows
                    screen.show(choices, rows, problem)
                if choices.ended:
                    return
            try:
                rows, problem = await read_rows(session, choices.view, group), ""
            except Unavailable as error:
                problem = f"no answer, these are the last rows: {error.message}"
            except EventdError as error:
                rows, problem = [], str(error)
