"""A node's delivery ledger for tests: groups, peers and events, and the steps a consumer would commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eventd.api.framework.operations import Services
from eventd.egress.cursors import link_name
from eventd.log.core.eventlog import EventLog
from eventd.log.core.units import Publish
from eventd.log.core.values import Draft
from eventd.log.cursors.cursors import LinkState, delete_cursors, read_cursor, read_cursors
from eventd.log.cursors.dead_letters import DeadLetter
from eventd.log.cursors.steps import DeliveredBatch, Postponement, Step, postpone
from eventd.runtime.clock import SECOND
from eventd.testing import ManualClock
from tests.support import operations

GROUP = """
apiVersion: federation.routerd.net/v1alpha1
kind: EventGroup
metadata: {name: %s}
spec:
  nodeName: a
  auth: {secretFile: /nowhere/secret}
  %s
"""
PEER = """
apiVersion: federation.routerd.net/v1alpha1
kind: EventPeer
metadata: {name: %s}
spec: {groupRef: %s, nodeName: %s, endpoint: "http://127.0.0.1:1", %s}
"""


class GroupLedger:
    """One group `g` of node `a`, over an open log with a manual clock."""

    def __init__(self, log: EventLog, clock: ManualClock) -> None:
        self.log = log
        self.clock = clock
        self.services = Services(log)
        self._numbers = 0

    async def call(self, name: str, /, **params: Any) -> Any:
        """Run an operation as the API does."""
        return await operations.run(self.services, name, **params)

    async def declare(self, *peers: str, group: str = "g", spec: str = "", **peer_specs: str) -> None:
        """Apply a group and peers; `peer_specs` maps a peer's name to further fields of its spec."""
        texts = [GROUP % (group, spec)]
        texts += [
            PEER % (name, group, name, peer_specs.get(name, "")) for name in {**dict.fromkeys(peers), **peer_specs}
        ]
        await self.call("resources.apply", sources=[{"name": "test.yaml", "text": "---".join(texts)}])

    async def publish(self, *drafts: Draft) -> list[int]:
        """Append events; return their positions."""
        topic = await self.log.topic("group:g")
        return list((await self.log.submit(Publish(topic, drafts))).positions)

    async def settle(
        self,
        peer: str,
        upto: int,
        *,
        exceptions: Sequence[tuple[int, str]] = (),
        parked: Mapping[int, str] | None = None,
        sent: bool = True,
        attempts: int = 1,
        version: int | None = None,
        idle: bool = False,
    ) -> None:
        """Advance the peer's cursor as its consumer does; `idle` without a batch, `sent=False` with an empty one."""
        name = link_name("g", peer)
        cursor = await self.log.database.read(read_cursor, name)
        refused = [(position, "refused") for position in parked or {}]
        batch = self.batch(
            name, cursor.sent_upto, upto, version or cursor.selector_version, [*exceptions, *refused], attempts=attempts
        )
        sent_upto = upto if sent and not idle else cursor.sent_upto
        letters = [
            DeadLetter(name, position, cursor.topic_id, f"e{position}", reason, "said so", attempts, self.clock.now())
            for position, reason in (parked or {}).items()
        ]
        batches = () if idle else (batch,)
        await self.log.settle(
            Step(name, cursor.position, upto, sent_upto, self.clock.now(), batches, letters, "v2", not idle)
        )

    async def repaired(self, peer: str, *positions: int, exceptions: Sequence[tuple[int, str]] = ()) -> None:
        """Record what a repair delivered, as the repair's consumer does, and end the repair."""
        name = link_name("g", peer)
        every = [*positions, *(position for position, _ in exceptions)]
        row = self.batch(name, min(every) - 1, max(every), 1, exceptions, picked=every)
        repairs = await self.repairs(peer)
        cursor = repairs[0]
        await self.log.settle(Step(cursor.name, cursor.position, cursor.until or 0, 0, self.clock.now(), [row]))
        await self.log.database.write(delete_cursors, [cursor.name])

    async def repairs(self, peer: str) -> list[Any]:
        """Return the cursors of the repairs that run."""
        prefix = f"repair:g/{peer}/"
        return [c for c in await self.log.database.read(read_cursors) if c.name.startswith(prefix)]

    async def fail(
        self,
        peer: str,
        upto: int,
        error: str = "refused",
        *,
        state: LinkState = LinkState.BACKING_OFF,
        reason: str = "unreachable",
    ) -> None:
        """Record that the peer's consumer failed to deliver up to a position."""
        name = link_name("g", peer)
        cursor = await self.log.database.read(read_cursor, name)
        now = self.clock.now()
        failure = Postponement(name, cursor.position, state, reason, error, upto, now, now + SECOND)
        await self.log.database.write(postpone, failure)

    def batch(
        self,
        cursor: str,
        after: int,
        upto: int,
        version: int,
        exceptions: Sequence[tuple[int, str]],
        *,
        picked: Sequence[int] = (),
        attempts: int = 1,
    ) -> DeliveredBatch:
        """Return a ledger row of a batch."""
        self._numbers += 1
        now = self.clock.now()
        return DeliveredBatch(
            cursor=cursor,
            batch_id=f"batch-{self._numbers}",
            epoch="e",
            incarnation=1,
            after=after,
            upto=upto,
            events=1,
            bytes=1,
            selector_version=version,
            exceptions=sorted(exceptions),
            picked=picked,
            attempts=attempts,
            sent_at=now,
            acked_at=now,
            status=200,
            protocol="v2",
            key_id="k",
            receipt="",
        )

    async def states(self, peer: str = "b", **filters: Any) -> dict[str, str]:
        """Return the state of each event at the peer."""
        answer = await self.call("deliveries.list", group="g", peer=peer, limit=1000, **filters)
        return {row["eventId"]: row["status"] for row in answer["deliveries"]}

    async def row(self, event_id: str, peer: str = "b") -> dict[str, Any]:
        """Return the one delivery of an event to the peer."""
        answer = await self.call("deliveries.list", group="g", peer=peer, event_id=event_id)
        (row,) = answer["deliveries"]
        found: dict[str, Any] = row
        return found
