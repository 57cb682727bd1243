"""Declarations that change while the nodes work: filters, relays, peers that are deleted and declared again, secrets.

The last declaration of each link says which events must be at its end; what an earlier one let through may be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from eventd.simulation.load.step import LoadKind, LoadStep
from eventd.simulation.world.requests import ApiClient, Reply
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import STAGES, PlannedLink, Topology, peer_document
from eventd.simulation.world.world import SimulatedWorld

DECLARE: Final = "declare"
"""The kind of journal entry of a changed link."""
ROTATE: Final = "rotate"
"""The kind of journal entry of a changed secret."""
_FILTERS: Final[Sequence[list[str]]] = ([], [], ["door.*"], ["power.lost"], ["door.open", "power.lost"])
_NOT_FOUND: Final = 404
_TRIES: Final = 4
_PAUSE: Final = 1.0
_LAST_TRIES: Final = 60
_LATE_SECONDS: Final = 30.0
"""Seconds after which a node has done what a client asked for without an answer."""


class Declarations(LoadKind):
    """The load of an operator at each node, who changes its links, and replaces the secret in stages."""

    name = DECLARE

    def draw(self, stream: Stream, topology: Topology, host: str, seconds: float) -> Iterator[LoadStep]:
        links = {link.dest: link for link in topology.links_from(host)}
        is_rotated = stream.random() < 0.5
        stage = 0
        mean = seconds / stream.choice((2, 5))
        at = stream.expovariate(1 / mean)
        while at < seconds:
            if is_rotated and stage < STAGES and stream.random() < 0.4:
                stage += 1
                yield LoadStep(round(at, 6), self.name, host, {"stage": stage})
            else:
                peer = stream.choice(list(links))
                what = stream.choices(("types", "relay", "deleted"), (4, 1, 2))[0]
                if what == "relay":
                    links[peer] = replace(links[peer], relay=not links[peer].relay)
                elif what == "types":
                    links[peer] = replace(links[peer], types=stream.choice(_FILTERS))
                data = {"peer": peer, "relay": links[peer].relay, "types": links[peer].types}
                yield LoadStep(round(at, 6), self.name, host, data | {"deleted": what == "deleted"})
            at += stream.expovariate(1 / mean)

    async def perform(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        for attempt in range(_TRIES):
            if attempt:
                await world.loop.pause(_PAUSE)
            if _is_done(await _declare(world, client, step), step):
                return


async def settle_declarations(world: SimulatedWorld, steps: Sequence[LoadStep]) -> None:
    """Make the last declaration of each link and secret again, and let the world have the topology that they make.

    Raises TimeoutError if a node does not take them.
    """
    last = _last_of(steps)
    if not last:
        return
    if any("stage" in step.data for step in last.values()):  # then all nodes replace their secrets
        last |= {(host, ""): LoadStep(0.0, DECLARE, host, {"stage": STAGES}) for host in world.topology.nodes}
    await world.loop.pause(_LATE_SECONDS)
    for step in last.values():
        client = world.clients[step.host]
        for _ in range(_LAST_TRIES):
            if _is_done(await client.life.start(_declare(world, client, step)), step):
                break
            await world.loop.pause(_PAUSE)
        else:
            raise TimeoutError(f"{step.host} does not take {step.data}")
    world.topology = declared_at_end(world.topology, steps)


def declared_at_end(topology: Topology, steps: Sequence[LoadStep]) -> Topology:
    """Return the topology that the last declarations make of one."""
    last = _last_of(steps)
    links = []
    for link in topology.links:
        step = last.get((link.source, link.dest))
        if step is None:
            links.append(link)
        elif not step.data["deleted"]:
            links.append(_declared(link, step))
    return replace(topology, links=links)


def _last_of(steps: Sequence[LoadStep]) -> dict[tuple[str, str], LoadStep]:
    """Return the last step of each link, and of each node's secret, which has no peer."""
    return {(step.host, step.data.get("peer", "")): step for step in steps if step.kind == DECLARE}


def _declared(link: PlannedLink, step: LoadStep) -> PlannedLink:
    return replace(link, relay=step.data["relay"], types=step.data["types"], is_changed=True)


async def _declare(world: SimulatedWorld, client: ApiClient, step: LoadStep) -> Reply:
    data = step.data
    if "stage" in data:
        return await _send(client, ROTATE, "apply", world.group_document(step.host, data["stage"]))
    planned = next(link for link in world.topology.links_from(step.host) if link.dest == data["peer"])
    link = _declared(planned, step)
    document = peer_document(link, world.address(link.dest))
    return await _send(client, DECLARE, "delete" if data["deleted"] else "apply", document)


async def _send(client: ApiClient, kind: str, deed: str, document: dict[str, Any]) -> Reply:
    question = {"sources": [{"name": "plan", "text": msgspec.json.encode(document).decode()}]}
    return await client.ask(kind, "POST", f"/resources/{deed}", question, seconds=5.0)


def _is_done(reply: Reply, step: LoadStep) -> bool:
    """Return whether the node has done the step; a peer that is not there was deleted before, without an answer."""
    return reply.is_good or (reply.status == _NOT_FOUND and step.data.get("deleted", False))
