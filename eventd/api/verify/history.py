"""The history of verifications: the newest results of each peer, as numbers."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from pydantic import Field

from eventd.api.framework.moments import show_seconds, show_time
from eventd.api.framework.operations import Params, Services
from eventd.errors import EventdError
from eventd.groups.lookup import find_group
from eventd.store.engine.database import Connection, Database
from eventd.store.rows.verifications import Verification, add_verification, read_verifications

PAGE_SIZE, MAX_PAGE_SIZE = 20, 200
logger = logging.getLogger("eventd.verify")


class ListVerifications(Params):
    """Which verifications to list; the newest come first."""

    group: str
    peer: str = Field(default="", description="Only of this peer, by its node name.")
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE, description="Maximum number of verifications.")] = PAGE_SIZE


async def list_verifications(services: Services, params: ListVerifications) -> dict[str, Any]:
    found = await services.database.read(_read, params)
    return {"verifications": [_show(one) for one in found]}


def _read(conn: Connection, params: ListVerifications) -> list[Verification]:
    group = find_group(conn, params.group).name
    return read_verifications(conn, group, params.peer, limit=params.limit)


def _show(one: Verification) -> dict[str, Any]:
    differs = one.missing or one.extra or one.other or one.unresolved
    return {
        "peer": one.peer,
        "run": one.run,
        "at": show_time(one.at),
        "seconds": show_seconds(one.duration),
        "result": "not-compared" if one.why else "differs" if differs else "clean",
        "why": one.why,
        "compared": one.compared,
        "missing": one.missing,
        "extra": one.extra,
        "other": one.other,
        "unresolved": one.unresolved,
        "pending": one.pending,
    }


async def keep(database: Database, verification: Verification) -> None:
    """Store a verification. A failure is logged: the comparison itself has succeeded."""
    try:
        await database.write(add_verification, verification)
    except EventdError as error:
        logger.warning("storing a verification failed", extra={"error": str(error)})
