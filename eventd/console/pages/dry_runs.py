"""Actions with two questions: first the visitor's choice, then a confirmation that shows what the choice would change,
by a dry run."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from eventd.console.pages.actions import FormField, Question
from eventd.errors import EventdError


class DryRun(NamedTuple):
    """What an action would change, in sentences, and how many objects that are."""

    lines: tuple[str, ...]
    number: int


async def ask_twice(
    params: dict[str, Any],
    title: str,
    fields: tuple[FormField, ...],
    choice: str,
    plan: Callable[[], Awaitable[DryRun]],
) -> Question:
    """Ask for a choice, and once there is one, show what it would change.

    `choice`: as a text; empty before a choice is made. `seen` of the parameters identifies the choice whose changes,
    with their number, the visitor was shown: for another choice, the changes are shown first. Events that arrive in
    the meantime do not lead to another question.
    """
    seen = params.pop("seen", "")
    if not choice:
        return Question(title, ("The next page shows what would change.",), fields=fields, ready=False, button="Next")
    try:
        found = await plan()
    except EventdError as error:
        return Question(title, (), fields=fields, ready=False, button="Next", problem=f"Nothing was changed: {error}")
    digest = hashlib.sha256(choice.encode()).hexdigest()
    number, _, shown = seen.partition("-")
    ready = shown == digest and number.isascii() and number.isdigit() and len(number) < 16
    count = int(number) if ready else found.number
    params["seen"] = f"{count}-{digest}"
    return Question(title, found.lines, count=count, fields=fields, ready=ready)
