"""Bulk jobs: all that the node keeps, and one with its progress and results."""

from __future__ import annotations

from typing import Any, Final

from eventd.console.pages.actions import PageAction, Question
from eventd.console.pages.visit import ShownPage, Visit
from eventd.errors import NotFound

STATES: Final = ("waiting", "running", "done", "cancelled", "failed")


async def show_jobs(visit: Visit) -> ShownPage:
    """Show the jobs, newest first, or those of one `state` in the query."""
    visit.chosen("state", STATES)
    given = {name: text for name in ("state", "group", "after") if (text := visit.asked(name))}
    found = await visit.view.call("jobs.list", limit=visit.limit, **given)
    return ShownPage("Jobs", "jobs.html", {"states": STATES, **found}, live=not visit.asked("after"))


async def show_job(visit: Visit) -> ShownPage:
    """Show one job. Raises NotFound."""
    job = await _read(visit, visit.names["number"])
    return ShownPage(f"Job {job['number']}", "job.html", {"job": job})


async def _read(visit: Visit, number: str) -> dict[str, Any]:
    if not (number.isascii() and number.isdigit() and 0 < int(number[:19]) < 2**62):
        raise NotFound("there is no such job", hint="the page Jobs shows all of them")
    found = await visit.view.call("jobs.get", number=int(number[:19]))
    job: dict[str, Any] = found["job"]
    return job


async def ask_cancel(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before a job is cancelled."""
    job = await _read(visit, str(params.get("number", "")))
    about = "" if job["exact"] else "about "
    lines = (
        f"{job['done']:,} of {about}{job['total']:,} dead letters are done, and stay so; the others are left alone.",
    )
    return Question(f"Cancel job {job['number']}?", lines)


ACTIONS: Final = {
    "jobs.cancel": PageAction("Cancel the job", "The job is cancelled.", ask_cancel, danger=True),
}
