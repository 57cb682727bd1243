"""Waits until the nodes rest: every link runs, and has nothing left to send."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from eventd.simulation.world.journal import Asked
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.topology import GROUP
from eventd.simulation.world.world import SimulatedWorld

REST_SECONDS: Final = 300.0
"""Virtual seconds after the last fault within which the nodes must rest."""
LOOK_SECONDS: Final = 1.0
COMPARISON_SECONDS: Final = 61.0
"""After which a sender has compared its link with a peer that was restored: it may postpone that for a minute, in which
the link looks as if it were done."""

GAP_REPORT_SECONDS: Final = 11.0
"""After which a link has reported to its peer what retention evicted too early: in a try that may wait for another one.
No backlog shows that."""


class NoRest(Exception):
    """The nodes do not rest; the text says what they still have to do."""


Unrest = Callable[[ApiClient], Coroutine[Any, Any, list[str]]]
"""Returns what a node has to do besides its links."""


async def await_rest(world: SimulatedWorld, others: Unrest) -> None:
    """Return when the nodes rest. Raises `NoRest` after `REST_SECONDS`."""
    until = world.loop.time() + REST_SECONDS
    while True:
        busy: list[str] = []
        for client in world.clients.values():
            busy += await client.life.start(_unrest(world, client))
            busy += await client.life.start(others(client))
        if not busy:
            return
        if world.loop.time() > until:
            raise NoRest("; ".join(busy))
        await world.loop.pause(LOOK_SECONDS)


async def _unrest(world: SimulatedWorld, client: ApiClient) -> list[str]:
    name = client.machine.name
    reply = await client.ask("links", "GET", f"/groups/{GROUP}/links")
    if not reply.is_good:
        return [f"{name} answers {reply.status}"]
    peers = {link.dest for link in world.topology.links if link.source == name}
    shown = {link["peer"]: link for link in reply.document["outbound"]}
    busy = [f"{name} has no link to {peer}" for peer in sorted(peers - shown.keys())]
    return [*busy, *(f"{name}>{peer}: {_words(link)}" for peer, link in shown.items() if not _rests(link))]


def _rests(link: dict[str, Any]) -> bool:
    return link["state"] == "running" and not link["lagEvents"] and not link["repairs"]


def _words(link: dict[str, Any]) -> dict[str, Any]:
    return {name: link[name] for name in ("state", "reason", "lastError", "lagEvents", "repairs")}


async def list_all(world: SimulatedWorld, client: ApiClient) -> list[dict[str, Any]] | None:
    """Ask for all events of the group; return them in the node's order, or None without an answer.

    The whole list is one entry of the journal, a `listing`, which was asked when its first page was. Its question is
    the number of events of each page: between two of them, retention may evict what the next one would have had.
    """
    found: list[dict[str, Any]] = []
    pages: list[int] = []
    asked_at, after = world.loop.time(), ""
    while True:
        query = f"?limit=1000&includeExpired=true{f'&after={after}' if after else ''}"
        reply = await client.ask("list", "GET", f"/groups/{GROUP}/events{query}")
        if not reply.is_good:
            return None
        found += reply.document["events"]
        pages.append(len(reply.document["events"]))
        after = reply.document["next"] or ""
        if not after:
            break
    listing = Asked("listing", client.machine.name, asked_at, world.loop.time(), 200, pages, found)
    world.journal.add(listing)
    return found
