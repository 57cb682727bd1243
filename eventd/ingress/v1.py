"""Receives events over v1: one signed event per request, and the status request."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from eventd.errors import EventdError
from eventd.ingress.admission import admit_v1
from eventd.ingress.claimed_sender import claimed_sender, sender_of_v1
from eventd.ingress.metrics import IngressMetrics
from eventd.ingress.mismatch import Mismatch, any_node
from eventd.ingress.request_counter import RequestCounter
from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_row import read_topic
from eventd.log.core.units import Publish
from eventd.log.core.values import Drafts, Outcome
from eventd.resources.group_configuration import GroupConfig, topic_of
from eventd.runtime.clock import SECOND
from federation.errors import V1Refused
from federation.keys import KeyRing
from federation.peers import ANY
from federation.v1 import check_v1, decode_v1, encode_answer_v1


@dataclass(frozen=True, slots=True)
class AcceptedV1:
    """The body of a 200 over v1, and the id of the key that signed the request.

    `new`: the event, or its refresh, was stored. v1 has no nonce: only `new` shows that the request is not a replay.
    """

    answer: bytes
    new: bool
    key_id: str


class IngressV1:
    """The receiving side of one group over v1. `ring` returns the current keys; it may raise an `EventdError`."""

    def __init__(
        self,
        config: Callable[[], GroupConfig],
        topic_id: int,
        log: EventLog,
        ring: Callable[[], KeyRing],
        metrics: IngressMetrics,
        counter: RequestCounter,
    ) -> None:
        self._config = config
        self._topic_id = topic_id
        self._log = log
        self._ring = ring
        self._metrics = metrics
        self._counter = counter

    async def push(
        self,
        timestamp: str | None,
        signature: str | None,
        body: bytes | None,
        address: str = "",
        mismatch: Mismatch = any_node,
    ) -> AcceptedV1:
        """Store one event of a v1 sender if it is new or a refresh. Raises `V1Refused` unless the answer is 200.

        `body` is None when it exceeds the limit of v1. `address` is the sender's, for the log; `mismatch` compares the
        connection's certificate with a node.
        """
        try:
            return await self._push(timestamp, signature, body, mismatch)
        except V1Refused as refusal:
            self._counter.count_refused_request(refusal.reason, sender=lambda: sender_of_v1(body, address))
            raise
        except EventdError as error:
            self._counter.count_refused_request("store_error", sender=lambda: sender_of_v1(body, address))
            raise V1Refused("store_error", error.message) from error

    async def _push(
        self, timestamp: str | None, signature: str | None, body: bytes | None, mismatch: Mismatch
    ) -> AcceptedV1:
        config, now = self._config(), self._log.clock.now()
        key = check_v1(timestamp, signature, body, self._ring(), now=now, window=config.replay_window)
        event = decode_v1(body or b"", now=now)
        if others := mismatch(event.source_node if key.owner == ANY else key.owner):
            raise V1Refused("wrong_certificate", f"it names {others}")
        draft = admit_v1(event, config, key)
        self._metrics.verified(config.name, "v1")
        drafts = replace(Drafts.of([draft]), key_id=key.id)
        appended = await self._log.submit(Publish(self._topic_id, drafts, ceiling=config.retention.max_bytes))
        outcome = appended.outcomes[0]
        if outcome is Outcome.CONFLICT:
            claimed = claimed_sender(event.source_node, key.id, self._config().peer_nodes())
            self._counter.count_refusal("id_conflict", claimed)
        new = outcome is Outcome.NEW
        self._counter.accept(event.source_node, int(new), int(not new))
        fresh = outcome in (Outcome.NEW, Outcome.REFRESH)
        if fresh:
            self._metrics.alive(config.name, event.source_node)
        if fresh and config.verifies_history:
            self._metrics.history_verified(config.name, "unproven", 1)  # v1 cannot say where its leaf is
        return AcceptedV1(encode_answer_v1(event.id, duplicate=not new), fresh, key.id)

    async def status(self) -> bytes:
        """Return the JSON body of the answer to a v1 status request.

        Its `storedEvents` counts a refreshed event once.
        """
        config = self._config()
        topic = await self._log.database.read_for_delivery(read_topic, topic_of(config.name))
        counts = self._counter.counts
        status = {
            "node": config.node_name,
            "group": config.name,
            "received": counts.received,
            "duplicate": counts.duplicate,
            "rejected": counts.rejected,
            "storedEvents": topic.ids,
            "replayWindowSeconds": config.replay_window // SECOND,
        }
        return json.dumps(status, separators=(",", ":")).encode() + b"\n"
