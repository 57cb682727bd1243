"""Queues: how many jobs are ready, leased and delayed, and since when the oldest ready one waits."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.log.queues.survey import QueueStanding, list_queues
from eventd.runtime.clock import Moment


class ListQueues(Params):
    """Which queues to list."""

    narrows = True

    prefix: str = Field(default="", max_length=255, description="Only queues whose names begin with this.")
    after: str = Field(default="", max_length=255, description="Continue after this token, the `next` of a page.")
    limit: int = Field(default=50, ge=1, le=200, description="Maximum number of queues of the page.")


async def list_all(services: Services, params: ListQueues) -> dict[str, Any]:
    """Return a page of the queues that the caller may access, by name."""
    page = await services.database.read(
        list_queues,
        prefix=params.prefix,
        after=params.after,
        limit=params.limit,
        sees=services.sees,
        at=Moment.of(services.clock),
    )
    return {
        "queues": [_show(queue) for queue in page.queues],
        "next": page.queues[-1].line.name if page.more else None,
        "complete": page.complete,
    }


def _show(queue: QueueStanding) -> dict[str, Any]:
    oldest = queue.oldest
    return {
        "queue": queue.line.name,
        "ready": queue.jobs.ready,
        "leased": queue.jobs.in_flight,
        "delayed": queue.delayed,
        "deadLettered": queue.jobs.dead_lettered,
        "deadLetterTopic": queue.line.config.dead_letter,
        "bytes": queue.bytes,
        "oldestReady": None if oldest is None else {"seq": oldest.seq, "writtenAt": show_time(oldest.recorded_at)},
    }
