"""Moving a subscription or a callback to another position: asked first, then shown with what it changes."""

from __future__ import annotations

from typing import Any, Final

from eventd.console.pages.actions import FormField, Question
from eventd.console.pages.visit import Visit
from eventd.errors import EventdError, Invalid
from eventd.text.plural import counted

OLDEST, NEWEST, TIME = "the oldest stored event", "after the newest event", "the time below"
_FIELDS: Final = (
    FormField("where", "Continue at", choices=(OLDEST, NEWEST, TIME)),
    FormField("since", "Time", "Such as 15m, or 2026-03-01T12:00:00Z; only for “the time below”."),
)


async def ask_move(visit: Visit, operation: str, params: dict[str, Any], title: str, again: str) -> Question:
    """Ask where to continue; once that is chosen, show what would change.

    `again`: what happens to events once more, such as `run again`.

    `seen` of the parameters names the choice whose changes the visitor was shown, with the number of events: another
    choice is shown first, and events that arrive meanwhile do not ask again.
    """
    seen = params.pop("seen", "")
    if "where" not in params:
        return Question(title, ("The next page shows what would change.",), fields=_FIELDS, ready=False)
    choice = f"{params['where']}:{params.get('since', '')}"
    try:
        plan = await visit.view.call(operation, **prepare_move(params), dry_run=True)
    except EventdError as error:
        return Question(title, (f"Nothing was moved: {error}",), fields=_FIELDS, ready=False)
    number, _, shown = seen.partition(":")
    ready = shown == choice and number.isascii() and number.isdigit() and len(number) < 16
    count = int(number) if ready else plan["again"] or plan["skipped"]
    params["seen"] = f"{count}:{choice}"
    return Question(title, _lines(plan, again), count=count, fields=_FIELDS, ready=ready)


def _lines(plan: dict[str, Any], again: str) -> tuple[str, ...]:
    more = "" if plan["countIsExact"] else "More than "
    moved = f"It moves from position {plan['from']:,} to {plan['to']:,}."
    if plan["to"] > plan["from"]:
        lines = [moved, f"{more}{counted(plan['skipped'], 'event')} skipped."]
    else:
        lines = [moved, f"{more}{counted(plan['again'], 'event')} {again}."]
    if plan["deadLetters"]:
        lines.append(f"{counted(plan['deadLetters'], 'dead letter')} after the new position dropped.")
    unfinished = plan.get("backfills") or plan.get("resends")
    if unfinished:
        what = "backfill" if plan.get("backfills") else "resend"
        lines.append(f"{counted(unfinished, f'unfinished {what}')} ended.")
    return tuple(lines)


def prepare_move(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the operation for the fields of the question."""
    params = dict(params)
    where, since = params.pop("where", ""), params.pop("since", "")
    params.pop("seen", None)
    if where == NEWEST:
        return params | {"latest": True}
    if where == TIME:
        if not since:
            raise Invalid("the time is empty", hint="write 15m or 2026-03-01T12:00:00Z")
        return params | {"since": since}
    if where != OLDEST:
        raise Invalid("choose where to continue")
    return params
