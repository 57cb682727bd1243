"""routerctl wait: until a resource, an event, a queue or the node meets a condition."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from eventd.cli.gateway.completion import complete_condition, complete_name, complete_waited
from eventd.cli.gateway.session import Session, connected_without_table, only_calls
from eventd.cli.program.values import Duration
from eventd.errors import CheckFailed, Invalid, NotFound, Unavailable

MOST_SECONDS: Final = 30
"""Maximum seconds that one request waits."""
PAUSE: Final = 0.5
"""Seconds before the next request if the node ended one early, or does not answer."""
NODE: Final = "node"
USUAL: Final = Duration.read("30s")


@connected_without_table
@only_calls
async def wait(
    session: Session,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND/NAME",
            autocompletion=complete_waited,
            help="A resource, such as ep/to-cloud; or event/ID, queue/TOPIC, or node alone.",
        ),
    ],
    condition: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="CONDITION",
            autocompletion=complete_condition,
            help="state=STATE, caught-up, delivered=PEER, ready, 'generation>N' or deleted.",
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(metavar="[NAME]", autocompletion=complete_name, help="Name, if not written as KIND/NAME."),
    ] = "",
    give_up_after: Annotated[
        Duration, typer.Option("--timeout", metavar="DURATION", help="Maximum time to wait.")
    ] = USUAL,
) -> None:
    """Wait until a condition is met. If it is not met in time, show the last state on stderr and exit with status 4.

    An EventPeer, EventSubscription or EventCallback has state=STATE (running, backing-off, blocked, paused, failed) and
    caught-up; event/ID has delivered=PEER, queue/TOPIC caught-up, node and an EventGroup ready; every resource has
    generation>N and deleted. For example: wait ep/to-cloud --for caught-up --timeout 2m.

    The status is 1 if the node refuses or cannot be reached, 2 for a condition that the object does not have, and 3 if
    the object does not exist.
    """
    if not name:
        kind, _, name = kind.partition("/")
    answer = await _last_answer(session, kind, name, condition, give_up_after / 1e6)
    kind, slash, name = answer["object"].partition("/")
    shown = f"{kind.lower()}{slash}{name}"
    if not answer["met"]:
        how_long = Duration(give_up_after)
        raise CheckFailed(f"{shown} is not {_words(condition)} after {how_long}: {answer['state']}")
    session.out.outcome(answer, f"{shown} condition met", name=lambda _: shown)


async def _last_answer(session: Session, kind: str, name: str, condition: str, seconds: float) -> Mapping[str, Any]:
    """Return the answer that says that the condition is met; if it is not met in time, the last answer."""
    from eventd.runtime.clock import SystemClock

    clock, what = SystemClock(), f"{kind}/{name}" if name else kind
    ends, answer = clock.monotonic() + seconds, dict[str, Any]()
    while True:
        left = ends - clock.monotonic()
        try:
            answer = await session.call(
                "resources.wait", kind=kind, name=name, condition=condition, seconds=_seconds(left)
            )
        except Invalid as error:  # a condition that does not exist, or that this kind does not have
            raise typer.BadParameter(f"{error.message}: {error.hint}" if error.hint else error.message) from None
        except (Unavailable, NotFound) as error:
            if not _may_come(error, kind, answer):
                raise
            answer = {"object": what, "condition": condition, "met": False, "state": error.message}
        if answer["met"] or clock.monotonic() >= ends:
            return answer
        if clock.monotonic() < ends - PAUSE:
            threading.Event().wait(PAUSE)  # without an event loop, as Ctrl-C then ends it at once


def _seconds(left: float) -> int:
    return max(0, min(MOST_SECONDS, math.ceil(left)))


def _may_come(error: Exception, kind: str, before: Mapping[str, Any]) -> bool:
    """Return whether to keep trying a node that does not answer: if the command waits for the node itself, or the node
    has answered before."""
    return kind.lower() == NODE or (isinstance(error, Unavailable) and bool(before))


def _words(condition: str) -> str:
    """Return a condition as a message names it."""
    name, equals, value = condition.partition("=")
    if not equals:
        return condition
    return f"delivered to {value}" if name == "delivered" else value
