"""Moves a subscription or a callback to another position: asks for the position, then shows what the move changes
before it is made."""

from __future__ import annotations

from typing import Any, Final

from eventd.console.pages.actions import FormField, Question
from eventd.console.pages.dry_runs import DryRun, ask_twice
from eventd.console.pages.visit import Visit
from eventd.errors import Invalid
from eventd.text.plural import counted

OLDEST, NEWEST, TIME = "the oldest stored event", "after the newest event", "the time below"
_FIELDS: Final = (
    FormField("where", "Continue at", choices=(OLDEST, NEWEST, TIME)),
    FormField("since", "Time", "Such as 15m, or 2026-03-01T12:00:00Z; only for “the time below”."),
)


async def ask_move(visit: Visit, operation: str, params: dict[str, Any], title: str, again: str) -> Question:
    """Ask at which position to continue, then ask for confirmation.

    `again`: what happens to repeated events, such as `run again`.
    """

    async def plan() -> DryRun:
        found = await visit.view.call(operation, **prepare_move(params), dry_run=True)
        return DryRun(_lines(found, again), found["again"] or found["skipped"])

    choice = f"{params['where']}:{params.get('since', '')}" if "where" in params else ""
    return await ask_twice(params, title, _FIELDS, choice, plan)


def _lines(plan: dict[str, Any], again: str) -> tuple[str, ...]:
    more = "" if plan["countIsExact"] else "More than "
    moved = f"It moves from position {plan['from']:,} to {plan['to']:,}."
    if plan["to"] > plan["from"]:
        lines = [moved, f"{more}{counted(plan['skipped'], 'event')} {_are(plan['skipped'])} skipped."]
    else:
        lines = [moved, f"{more}{counted(plan['again'], 'event')} {_are(plan['again'])} {again}."]
    if plan["deadLetters"]:
        letters = plan["deadLetters"]
        lines.append(f"{counted(letters, 'dead letter')} after the new position {_are(letters)} dropped.")
    unfinished = plan.get("backfills") or plan.get("resends")
    if unfinished:
        what = "backfill" if plan.get("backfills") else "resend"
        lines.append(f"{counted(unfinished, f'unfinished {what}')} {_are(unfinished)} ended.")
    return tuple(lines)


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


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
