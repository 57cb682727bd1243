"""Delivers a batch over v1: one signed event per request, in order.

After a failure in the middle of a batch, the events that were answered before are settled, so that they are not posted
twice.
"""

from __future__ import annotations

from collections.abc import Callable

from eventd.egress.loop.sink import Ack, Blocked, LinkError, RecordRefusal
from eventd.egress.peers.answers import link_error
from eventd.egress.peers.outbound_batch import OutboundLine, PeerBatch
from eventd.egress.peers.push_v2 import Link
from eventd.egress.transport.transport import Transport
from eventd.log.cursors.steps import DeliveredBatch
from eventd.net.exchange import Answer
from eventd.runtime.clock import Clock
from federation.errors import NoSigningKey
from federation.keys import Algorithm, Key, KeyRing
from federation.peers import V1_EVENTS_PATH, V1_MAX_BODY
from federation.v1 import is_page, refuses_event_v1, sign_request_v1

V1 = "v1"
PAGE = 64
"""Maximum number of events in a batch, which is one ledger row."""


class PushV1:
    """Sends the batches of one link over v1."""

    def __init__(self, link: Link, transport: Transport, ring: Callable[[], KeyRing], clock: Clock) -> None:
        self._link = link
        self._transport = transport
        self._ring = ring
        self._clock = clock

    async def push(self, outbound: PeerBatch) -> Ack:
        """Deliver the batch; if the link fails after some events, the `Ack` covers these and has the failure.

        Raises `LinkError` if the link fails at the first event.
        """
        key = self._key()
        sent_at = self._clock.now()
        refused: list[RecordRefusal] = []
        status = 0
        for count, record in enumerate(outbound.records):
            try:
                answered, refusal = await self._post(record, key)
            except LinkError as held:
                if count == 0:
                    raise
                done = outbound.records[count - 1].position
                row = self._row(outbound, count, done, refused, status=status, sent_at=sent_at, key_id=key.id)
                return Ack(done, (row,), refused, V1, held)
            status = answered or status
            if refusal is not None:
                refused.append(refusal)
        row = self._row(
            outbound, len(outbound.records), outbound.upto, refused, status=status, sent_at=sent_at, key_id=key.id
        )
        return Ack(outbound.upto, (row,), refused, V1)

    def _key(self) -> Key:
        try:
            return self._ring().signer(self._link.node, Algorithm.HMAC_SHA256)
        except NoSigningKey as error:
            raise LinkError("no_signing_key", error.message) from None

    async def _post(self, record: OutboundLine, key: Key) -> tuple[int, RecordRefusal | None]:
        """Post one event. Returns the status, 0 if nothing was sent, and the refusal if there is one.

        Raises `LinkError`.
        """
        body = record.body.encode()
        if len(body) > V1_MAX_BODY:  # the receiver would truncate it and consider the signature wrong
            return 0, RecordRefusal(record, "too_large_for_v1", f"{len(body)} bytes; v1 carries at most {V1_MAX_BODY}")
        headers = sign_request_v1(body, key, now=self._clock.now())
        url = self._link.endpoint + V1_EVENTS_PATH
        answer = await self._transport.post(
            url,
            body,
            headers,
            seconds=self._link.seconds,
            tls=self._link.tls,
            node=self._link.peer,
            rules=self._link.rules,
        )
        if 200 <= answer.status < 300:
            if is_page(answer.headers.get("content-type", ""), answer.body):
                raise Blocked(
                    "unproven_answer", f"the answer {answer.status} is an HTML page of a proxy, not of the peer"
                )
            return answer.status, None
        text = _first_line(answer)
        if refuses_event_v1(answer.status, answer.body):
            return answer.status, RecordRefusal(record, "refused", text)
        raise link_error(answer, self._link.endpoint, self._clock.now(), detail=text)

    def _row(
        self,
        outbound: PeerBatch,
        count: int,
        upto: int,
        refused: list[RecordRefusal],
        *,
        status: int,
        sent_at: int,
        key_id: str,
    ) -> DeliveredBatch:
        taken = outbound.records[:count]
        exceptions = [(at, why) for at, why in outbound.exceptions if at <= upto]
        exceptions += [(p.record.position, "refused") for p in refused]
        return DeliveredBatch(
            cursor=self._link.cursor,
            batch_id="",
            epoch=outbound.epoch,
            incarnation=outbound.incarnation,
            after=outbound.after,
            upto=upto,
            events=count - len(refused),
            bytes=sum(len(record.body.encode()) for record in taken),
            selector_version=self._link.selector_version,
            exceptions=sorted(exceptions),
            picked=outbound.picked(upto) if self._link.repair else (),
            attempts=outbound.attempts + count - 1,
            sent_at=sent_at,
            acked_at=self._clock.now(),
            status=status,
            protocol=V1,
            key_id=key_id,
            receipt="",
        )


def _first_line(answer: Answer) -> str:
    """Return the first line of an answer's body, at most 200 printable characters."""
    text = answer.body[:500].decode("utf-8", "replace").strip()
    line = text.splitlines()[0] if text else ""
    return "".join(c for c in line if c.isprintable())[:200]
