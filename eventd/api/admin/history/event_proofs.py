"""The leaf of one event, and the file that proves the event to a third party."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from eventd.api.admin.events.refuted_marks import find_at, list_positions
from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.errors import NotFound
from eventd.groups.lookup import find_group, read_group_topic
from eventd.log.core.listing import read_first_position, read_id_places
from eventd.log.history.proving import EventLeaf, NotProven, find_leaf, prove_event
from eventd.log.history.refuted import find_refuted
from eventd.log.history.trees import read_checkpoint_of
from eventd.log.witnesses.cosignatures import count_cosigned
from eventd.store.engine.database import Connection
from federation.digest import digest
from federation.history.checkpoints import read_checkpoint, read_origin
from federation.history.merkle import MAX_SIZE
from federation.history.proof_file import ProofFile


class OneLeaf(Params):
    """A record of an event."""

    group: str
    id: str = Field(min_length=1, description="The id of the event.")
    record: Literal["latest", "first"] = Field(
        default="latest", description="Which record of an event that was refreshed: each has a leaf of its own."
    )
    position: int | None = Field(
        default=None, ge=1, description="The record at this position instead, for example one whose id was released."
    )


class ProveEvent(OneLeaf):
    """How to prove an event."""

    size: int | None = Field(
        default=None,
        ge=1,
        le=MAX_SIZE,
        description="In the checkpoint of this size (default: of those that cover the event, the one with the most"
        " signatures, and of these the newest).",
    )
    digest_only: bool = Field(default=False, description="Leave the event out; the proof names its digest.")


async def show_leaf(services: Services, params: OneLeaf) -> dict[str, Any]:
    """Return the tree and the index of the leaf of an event, and whether a checkpoint covers it."""
    return await services.database.read(_read_leaf, params)


def _read_leaf(conn: Connection, params: OneLeaf) -> dict[str, Any]:
    leaf = _find(conn, params)
    last = read_checkpoint_of(conn, leaf.tree.id)
    size = 0 if last is None else last.size
    return {
        "group": params.group,
        "id": params.id,
        **show_place(leaf.tree.origin, leaf.index),
        "digest": digest(leaf.body).hex(),
        "sealed": leaf.index < size,
        "witnesses": count_cosigned(conn, leaf.tree.id, leaf.index + 1),
        "size": size,
        "signedAt": None if last is None else show_time(last.signed_at),
        "damage": leaf.tree.trouble,
    }


def show_place(origin: str, index: int) -> dict[str, Any]:
    """Return the place of a leaf as JSON. An index never appears without its tree."""
    return {"origin": origin, "tree": read_origin(origin).tree, "leaf": index}


async def prove(services: Services, params: ProveEvent) -> dict[str, Any]:
    """Return the proof file of an event, and where its leaf is."""
    return await services.database.read(_prove, params)


def _prove(conn: Connection, params: ProveEvent) -> dict[str, Any]:
    topic_id, position = find_record(conn, params)
    file = prove_event(conn, find_leaf(conn, topic_id, position), size=params.size, with_event=not params.digest_only)
    return show_proof(params, file) | {"position": position, "others": find_others(conn, topic_id, params.id, position)}


def find_others(conn: Connection, topic_id: int, event_id: str, position: int = 0) -> list[int]:
    """Return the positions of refuted and released records with an id, but not `position`."""
    return sorted({mark.position for mark in find_refuted(conn, topic_id, event_id)} - {position})


def show_proof(params: OneLeaf, file: ProofFile) -> dict[str, Any]:
    """Return a proof file and the place of its leaf as JSON."""
    return {
        "group": params.group,
        "id": params.id,
        **show_place(str(read_checkpoint(file.leaf.note.text).origin), file.leaf.index),
        "digest": file.digest.hex(),
        "file": json.loads(file.encode()),
    }


def _find(conn: Connection, params: OneLeaf) -> EventLeaf:
    """Return the leaf of an event. Raises NotFound if the group does not know the event, and NotProven."""
    return find_leaf(conn, *find_record(conn, params))


def find_record(conn: Connection, params: OneLeaf) -> tuple[int, int]:
    """Return the topic and the position of a record. Raises NotFound for an unknown event, and NotProven."""
    group = find_group(conn, params.group)
    topic = read_group_topic(conn, group.name)
    if params.position is not None:
        return topic.id, find_at(conn, topic.id, group.name, params.id, params.position).position
    for place in read_id_places(conn, params.id, [topic.id]):
        first = read_first_position(conn, topic.id, params.id) if params.record == "first" else None
        if first is not None or place.gone_at is None:
            return topic.id, place.position if first is None else first
        others, named = _name_others(conn, topic.id, params.id)
        raise NotProven(
            f"retention evicted event {params.id[:200]} of group {group.name} at {show_time(place.gone_at)}{named}",
            "evicted",
            hint=others or "prove it at a peer that relays it, or from the lake",
        )
    others, named = _name_others(conn, topic.id, params.id)
    raise NotFound(
        f"no event has the id {params.id[:200]} in group {group.name}{named}"
        if others
        else f"group {group.name} has no event {params.id[:200]}",
        hint=others or "routerctl federation event find ID looks for it in all groups",
    )


def _name_others(conn: Connection, topic_id: int, event_id: str) -> tuple[str, str]:
    """Return a hint at the refuted and released records with an id, and words that list them; empty if none has it."""
    others = find_others(conn, topic_id, event_id)
    if not others:
        return "", ""
    listed = f"; other records with this id, which were refuted or released: {list_positions(others)}"
    return "prove one of these with --position", listed
