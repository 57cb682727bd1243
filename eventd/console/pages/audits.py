"""Audits: the reports in a folder of the settings with their verdicts, and the page of each."""

from __future__ import annotations

from eventd.console.pages.visit import ForeignPage, ShownPage, Visit


async def show_audits(visit: Visit) -> ShownPage:
    """Show the reports, newest first."""
    found = await visit.view.call("audits.list", after=visit.asked("after"), limit=visit.limit)
    return ShownPage("Audits", "audits.html", found, live=not visit.asked("after"))


async def show_report(visit: Visit) -> ForeignPage:
    """Show the page of one report."""
    return ForeignPage((await visit.view.call("audits.report", name=visit.names["name"])).content)
