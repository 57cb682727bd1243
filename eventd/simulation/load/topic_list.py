"""Reads of whole topics, for what is checked later."""

from __future__ import annotations

from typing import Any, Final

from eventd.simulation.world.journal import Asked
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.world import SimulatedWorld

LISTING: Final = "topic listing"
"""The kind of journal entry of a whole topic: `path` is its name, `answer` has `epoch`, `head_seq` and `records`."""
_PAGE: Final = 1000
_NOT_FOUND: Final = 404


async def list_topic(world: SimulatedWorld, client: ApiClient, topic: str, kind: str = LISTING) -> bool:
    """Ask for all records of a topic; return whether the node has answered.

    The whole list is one entry of the journal, of this kind, which was asked when its first page was; its `losses` are
    the ranges of seqs that were reported as lost. A topic that does not exist is listed without records. If the epoch
    of the topic changes meanwhile, there is no listing.
    """
    asked_at = world.loop.time()
    records: list[Any] = []
    losses: list[tuple[int, int]] = []
    page: dict[str, Any] = {"epoch": "", "head_seq": 0, "next_from_seq": 0, "caught_up": False}
    while not page["caught_up"]:
        question = {"from_seq": page["next_from_seq"], "limit": _PAGE, "include_tags": True}
        if page["epoch"]:
            question["epoch"] = page["epoch"]
        reply = await client.ask("diff", "POST", f"/v0/topics/{topic}/diff", question)
        if reply.status == _NOT_FOUND:
            page = {"epoch": "", "head_seq": 0}
            break
        if not reply.is_good:
            return False
        page = reply.document
        tombstone = page["tombstone"]
        if tombstone is not None and tombstone["reason"] != "recreated":
            losses.append((tombstone["gap_from"], tombstone["gap_to"]))
        elif tombstone is not None and records:
            return False
        records += page["records"]
    answer = {"epoch": page["epoch"], "head_seq": page["head_seq"], "records": records, "losses": losses}
    listing = Asked(kind, client.machine.name, asked_at, world.loop.time(), 200, None, answer, path=topic)
    world.journal.add(listing)
    return True
