"""Sessions: the browsers that are signed in to the console."""

from __future__ import annotations

from typing import Any, Final

from eventd.console.pages.actions import PageAction, Question
from eventd.console.pages.visit import ShownPage, Visit
from eventd.errors import NotFound


async def show_sessions(visit: Visit) -> ShownPage:
    """Show the sessions, or those of one `key`, those that began last first."""
    given = {name: text for name in ("key", "after") if (text := visit.asked(name))}
    found = await visit.view.call("sessions.list", limit=visit.limit, **given)
    return ShownPage("Sessions", "sessions.html", found, live=not visit.asked("after"))


async def ask_end(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before a session is ended."""
    name = params.get("id", "")
    if not name:
        raise NotFound("choose a session first", hint="the page Sessions shows all of them")
    lines = (
        f"The browser of the session {name} is signed out. It can sign in again while its key is valid:"
        " to prevent that, revoke the key.",
        *(("It is the session of this browser: you are signed out.",) if name == visit.session else ()),
    )
    return Question("End the session?", lines, stated=("id",))


ACTIONS: Final = {
    "sessions.end": PageAction("End the session", "The session has ended.", ask_end, danger=True),
}
