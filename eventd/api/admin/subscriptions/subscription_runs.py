"""Runs of a subscription, and the result for each event."""

from __future__ import annotations

from typing import Any, Final, Self

from pydantic import Field, model_validator

from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.paging import PAGE_SIZE, Limit, cut_page
from eventd.store.engine.database import Connection
from eventd.store.rows.runs import Run, RunStatus, read_runs

QUALIFIED = "EventSubscription/"
SHOWN = {
    RunStatus.RUNNING: "pending",
    RunStatus.INTERRUPTED: "pending",
    RunStatus.SUCCEEDED: "succeeded",
    RunStatus.FAILED: "failed",
    RunStatus.BLOCKED: "failed",
    RunStatus.PARKED: "failed",
    RunStatus.LOST: "failed",
}
"""The status of a run's events, by the status of the run."""

MOST_COVERED: Final = 1000
"""Maximum number of runs among which a page looks for the first one of the requested status."""


class ListRuns(Params):
    """The results of a subscription's events, newest run first; also for a deleted subscription."""

    subscription: str = Field(description="The subscription, as `EventSubscription/NAME` or NAME.")
    group: str = Field(default="", description="Only runs for this EventGroup.")
    event_id: str = Field(default="", description="Only runs for this event.")
    status: str = Field(default="", description="Only events with this status: `pending`, `succeeded` or `failed`.")
    before: int | None = Field(default=None, ge=1, description="Continue with runs before this id.")
    limit: Limit = PAGE_SIZE

    @model_validator(mode="after")
    def _known_status(self) -> Self:
        if self.status and self.status not in SHOWN.values():
            raise ValueError(f"status: {self.status!r} is not one of pending, succeeded, failed")
        return self


async def list_runs(services: Services, params: ListRuns) -> dict[str, Any]:
    """Return the runs of a subscription, newest first, one row for each event: `runs`, and `next` for the next page.

    Of several runs of one event a page shows the newest, or all of them if the event was requested by id.
    """
    return await services.database.read(_read, params)


def _read(conn: Connection, params: ListRuns) -> dict[str, Any]:
    seen, rows = set[tuple[str, int]](), list[dict[str, Any]]()
    before, covered = params.before, 0
    while True:
        runs = read_runs(
            conn,
            subscription=params.subscription.removeprefix(QUALIFIED),
            group=params.group,
            event_id=params.event_id,
            before=before,
            limit=params.limit + 1,
        )
        shown, before = cut_page(runs, params.limit, lambda run: run.id)
        covered += len(shown)
        for run in shown:
            for event_id in [*run.event_ids, *run.coalesced] or [""]:
                place = event_id, 0 if event_id and not params.event_id else run.id
                if params.event_id not in ("", event_id) or place in seen:
                    continue
                seen.add(place)
                if params.status in ("", SHOWN[run.status]):
                    rows.append(_line(run, event_id))
        if rows or not params.status or before is None or covered >= MOST_COVERED:
            return {"runs": rows, "next": before}


def _line(run: Run, event_id: str) -> dict[str, Any]:
    """Return one event's row of a run: its result, or that a later event replaced it."""
    replaced = event_id in run.coalesced and event_id not in run.event_ids
    return {
        "id": run.id,
        "subscription": f"{QUALIFIED}{run.subscription}",
        "eventId": event_id,
        "group": run.group,
        "plugin": run.plugin,
        "status": SHOWN[run.status],
        "outcome": "coalesced" if replaced else str(run.status),
        "attempts": run.attempt,
        "startedAt": show_time(run.started_at),
        "completedAt": show_time(run.completed_at),
        "dynamicSource": run.source,
        "dynamicGeneration": run.generation,
        "error": run.error,
    }


def show_run(run: Run) -> dict[str, Any]:
    """Return a run as JSON, with the ids of its events."""
    return {
        "id": run.id,
        "plugin": run.plugin,
        "trigger": run.trigger,
        "subscription": run.subscription,
        "group": run.group,
        "status": str(run.status),
        "attempt": run.attempt,
        "events": run.events,
        "eventIds": list(run.event_ids),
        "coalesced": list(run.coalesced),
        "startedAt": show_time(run.started_at),
        "completedAt": show_time(run.completed_at),
        "exitCode": run.exit_code,
        "stdoutDigest": run.stdout_digest,
        "stderr": run.stderr,
        "error": run.error,
        "dynamicSource": run.source,
        "dynamicGeneration": run.generation,
    }
