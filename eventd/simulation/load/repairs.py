"""An operator at each node who compares its links with their peers, and sends events and dead letters again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from eventd.simulation.load.step import LoadKind, LoadStep
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import GROUP, Topology
from eventd.simulation.world.world import SimulatedWorld

VERIFY: Final = "verify"
"""The kind of journal entry of a comparison."""
REDELIVER: Final = "redeliver"
RETRY: Final = "retry"
_ACTIONS: Final = (VERIFY, REDELIVER, REDELIVER, RETRY)
_FINDINGS: Final = ("missing", "extra", "other", "unresolved")
_MOST_STEPS: Final = 40
_WORK_SECONDS: Final = 3


class Repairs(LoadKind):
    """The load of an operator who does at random what repairs links, also where nothing is broken."""

    name = "repair"

    def draw(self, stream: Stream, topology: Topology, host: str, seconds: float) -> Iterator[LoadStep]:
        peers = [link.dest for link in topology.links_from(host)]
        mean = seconds / stream.choice((2, 6))
        at = stream.expovariate(1 / mean)
        while at < seconds and peers:
            data: dict[str, Any] = {"action": stream.choice(_ACTIONS), "peer": stream.choice(peers)}
            first = stream.randint(1, 30)
            given = {"fromSeq": first, "toSeq": first + stream.choice((0, 5, 1000))}
            data["events"] = stream.choice((given, {"since": stream.choice(("1s", "2h"))}))
            yield LoadStep(round(at, 6), self.name, host, data)
            at += stream.expovariate(1 / mean)

    async def perform(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        peer = step.data["peer"]
        match step.data["action"]:
            case "verify":
                await _compare(client, peer)
            case "redeliver":
                await client.ask(REDELIVER, "POST", f"/groups/{GROUP}/peers/{peer}/redeliver", step.data["events"])
            case "retry":
                await client.ask(RETRY, "POST", f"/groups/{GROUP}/dead-letters/retry", {"all": True})

    async def unrest(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> list[str]:
        """Say which links an operator finds broken at rest."""
        return await link_differences(world, client)


async def link_differences(world: SimulatedWorld, client: ApiClient) -> list[str]:
    """Compare the links of a node to their ends; say which differ, or cannot be compared."""
    found = []
    for link in world.topology.links_from(client.machine.name):
        if link.protocol == "v1":  # which knows no comparison
            continue
        report = await _compare(client, link.dest)
        words = f"{client.machine.name}>{link.dest}"
        if report is None or not report["compared"]:
            found.append(f"{words} is not compared: {report and report['why']}")
        elif any(report["events"][name] for name in _FINDINGS):
            found.append(f"{words} differs: { {name: report['events'][name] for name in _FINDINGS} }")
    return found


async def _compare(client: ApiClient, peer: str) -> dict[str, Any] | None:
    """Compare a link to its end; return the report, or None without one."""
    run = ""
    for _ in range(_MOST_STEPS):
        question = {"run": run, "seconds": _WORK_SECONDS}
        reply = await client.ask(VERIFY, "POST", f"/groups/{GROUP}/peers/{peer}/verify", question)
        if not reply.is_good:
            return None
        if reply.document["done"]:
            report: dict[str, Any] = reply.document["report"]
            return report
        run = reply.document["run"]
    return None
