"""The record of actions: lists who did what."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field

from eventd.api.framework.moments import read_span, show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.paging import After
from eventd.errors import Invalid
from eventd.store.rows.actions import ActionFilter, ActionRow, read_actions
from eventd.text.quoting import quoted

PAGE_SIZE, MAX_PAGE_SIZE = 50, 200


class ListActions(Params):
    """Which actions to list; the newest come first. Filters must all match."""

    who: str = Field(default="", description="Only of this caller, by its whole name.")
    operation: str = Field(default="", description="Only this operation, such as `keys.create`.")
    object: str = Field(default="", description="Only objects that begin with this, such as `peer core/`.")
    result: str = Field(default="", description="Only with this result: `ok`, `started` or the code of an error.")
    since: str = Field(default="", description="Only since a time, or an age such as 15m.")
    until: str = Field(default="", description="Only before a time, or an age such as 15m.")
    after: After = ""
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE, description="Maximum number of entries of the page.")] = (
        PAGE_SIZE
    )


async def list_actions(services: Services, params: ListActions) -> dict[str, Any]:
    since, until = read_span(params.since, params.until, services.clock.now())
    wanted = ActionFilter(params.who, params.operation, params.object, params.result, since, until)
    page = await services.database.read(read_actions, wanted, _before(params.after), params.limit)
    return {
        "actions": [_show(row) for row in sorted(page.rows, key=_order, reverse=True)],
        "next": None if page.before is None else str(page.before),
        "searchedTo": show_time(page.searched_to),
    }


def _order(row: ActionRow) -> tuple[int, int]:
    """Return the sort key of a row: equal refusals are stored up to a minute after the time that they show."""
    return row.at, row.number


def _before(token: str) -> int | None:
    if not token:
        return None
    if token.isascii() and token.isdigit() and len(token) <= 18:
        return int(token)
    raise Invalid(f"{quoted(token)} is not a token of this list", hint="use `next` of an answer")


def _show(row: ActionRow) -> dict[str, Any]:
    return {
        "number": row.number,
        "at": show_time(row.at),
        "who": row.who,
        "kind": row.kind,
        "address": row.address,
        "operation": row.operation,
        "object": row.object,
        "arguments": json.loads(row.arguments),
        "result": row.result,
        "requestId": row.request,
        "count": row.count,
    }
