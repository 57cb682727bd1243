"""The requests of an operator after restores, as docs/operations/backup.md says."""

from __future__ import annotations

from typing import Final

from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.topology import GROUP
from eventd.simulation.world.world import SimulatedWorld

NOTICE_SECONDS: Final = 5.0
"""Seconds within which a sender has noticed that a node was restored, once they are connected."""


async def compare_links(world: SimulatedWorld) -> None:
    """Let each sender that a restored node never sends to compare its link anew; return when senders have begun to."""
    sends = {(link.source, link.dest) for link in world.topology.links}
    for source, dest in sorted(sends):
        if world.journal.is_restored(dest) and (dest, source) not in sends:
            client = world.clients[source]
            for deed in ("pause", "resume"):
                await client.life.start(client.ask(deed, "POST", f"/groups/{GROUP}/peers/{dest}/{deed}", {}))
    await world.loop.pause(NOTICE_SECONDS)


async def pull_lost(world: SimulatedWorld) -> None:
    """Let each restored node get its own events back from each peer that it sends to."""
    for link in world.topology.links:
        if world.journal.is_restored(link.source):
            client = world.clients[link.source]
            await client.life.start(_pull(client, link.dest))


async def _pull(client: ApiClient, peer: str) -> None:
    question = {"acceptUnproven": True, "after": ""}
    while question["after"] is not None:
        reply = await client.ask("pull", "POST", f"/groups/{GROUP}/peers/{peer}/pull", question, seconds=60.0)
        if not reply.is_good:
            return  # what is missing then shows at the end
        question["after"] = reply.document["next"]
