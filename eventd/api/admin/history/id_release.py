"""Frees an id that another source has taken, for an event that a proof file shows."""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field

from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.errors import Conflict
from eventd.groups.lookup import find_group, read_group_topic
from eventd.log.core.freed_ids import find_records
from eventd.log.history.refuted import MarkKind, RefutedRecord, keep_released
from eventd.log.witnesses.id_release import IdRelease, check_release, holder_digest
from eventd.store.engine.database import Connection


class ReleaseId(Params):
    """The id to free, and the proof that it belongs to another event than the one that has it."""

    group: str
    id: str = Field(min_length=1, description="The id of the event.")
    proof: Any = Field(description="The content of the proof file of the true event.")


async def release(services: Services, params: ReleaseId) -> dict[str, Any]:
    """Free an id for the proven event; the records of the event that had it stay, and are marked."""
    topic_id, found, positions = await services.database.read(_check, params)
    # Checked in a read: a writer must not wait for signatures. By its position, the id is still that record's.
    proven = found.proven
    leaf = str(proven.checkpoint.origin), proven.index
    mark = RefutedRecord(found.holder.position, params.id, *leaf, services.clock.now(), MarkKind.RELEASED)
    if not await services.database.write(keep_released, topic_id, mark, positions):
        raise Conflict(
            f"the id {params.id} of group {params.group} was freed or given to another record meanwhile: nothing was"
            " released",
            hint="look at the record that has it now: routerctl federation event describe ID",
        )
    return _show(params, found)


def _check(conn: Connection, params: ReleaseId) -> tuple[int, IdRelease, list[int]]:
    """Return the topic, what the proof shows, and the positions of all records of the event that has the id."""
    group = find_group(conn, params.group)
    topic = read_group_topic(conn, group.name)
    file = json.dumps(params.proof, ensure_ascii=True).encode()
    found = check_release(conn, topic.id, group.name, params.id, file, group.history_pins)
    return topic.id, found, find_records(conn, topic.id, params.id, found.holder.position)


def _show(params: ReleaseId, found: IdRelease) -> dict[str, Any]:
    record, origin = found.holder.record, found.proven.checkpoint.origin
    mark = holder_digest(found.holder)
    return {
        "group": params.group,
        "id": params.id,
        "holder": {
            "stored": record is not None,
            "position": found.holder.position,
            "sourceNode": None if record is None else record.node,
            "digest": None if mark is None else mark.hex(),
            "recordedAt": None if record is None else show_time(record.recorded_at),
        },
        "proven": {
            "node": origin.node,
            "sourceNode": found.event.source_node,
            "digest": found.proven.digest.hex(),
            "origin": str(origin),
            "leaf": found.proven.index,
        },
    }
