"""Delivers a batch over v2: one signed batch, one signed receipt.

The cursor passes a sent event only with a verified answer: a receipt, or for one event of a repair a 413.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from eventd.egress.loop.sink import (
    Ack,
    Blocked,
    LinkError,
    LinkUnavailable,
    OutboundRecord,
    RecordRefusal,
    Rewind,
    plain,
)
from eventd.egress.peers.answers import is_of_an_api, link_error
from eventd.egress.peers.outbound_batch import PeerBatch
from eventd.egress.peers.range_start import impossible_mark
from eventd.egress.transport.transport import MAX_ANSWER, Transport
from eventd.log.core.values import Head
from eventd.log.cursors.steps import DeliveredBatch
from eventd.net.address_rules import AddressRules
from eventd.net.exchange import Answer
from eventd.runtime.clock import Clock
from eventd.tls.files import SYSTEM_CAS, ClientTlsConfig
from eventd.tracing import tracing
from eventd.tracing.contexts import NO_TRACE, trace_headers
from federation.errors import BadAnswer, NoSigningKey
from federation.event import micros, new_event_id
from federation.history.leaf_hints import LEAVES
from federation.keys import KeyRing
from federation.peers import RUNS_TYPE, STATUS
from federation.ranges import Mark, Range
from federation.signing import SignedRequest, sign_request, verify_answer
from federation.wire import (
    MARK_QUERY,
    REOPEN_QUERY,
    REPAIR_QUERY,
    BatchHeader,
    LinkQuery,
    Receipt,
    Refusal,
    read_error,
    read_link_answer,
    read_receipt,
    read_too_large,
)

V2 = "v2"
REFUSAL = 256
"""Bytes that a receipt may have for each line that it refuses, besides the line's id."""
BATCH_IDS = 64
"""Maximum number of batches without a receipt whose ids are remembered for the next attempt."""


class V2Unsupported(Exception):
    """The other side does not speak v2."""


@dataclass(frozen=True, slots=True)
class Link:
    """One direction, from `node` to `peer`. `endpoint` is the peer's base URL; `seconds` the time limit of an answer.

    `cursor` is the name under which deliveries are recorded; `window` the group's replay window in microseconds.
    `repair`: batches are sent for a repair, so that they report no range of the cursor.
    `tls` applies to an https endpoint; `rules` judge the addresses of the endpoint's host.
    """

    cursor: str
    group: str
    node: str
    peer: str
    endpoint: str
    seconds: float
    window: int
    selector_version: int
    repair: bool
    tls: ClientTlsConfig = SYSTEM_CAS
    rules: AddressRules | None = None


class PushV2:
    """Sends the batches of one link over v2.

    `ring` returns the current keys, `random` random bytes; `skewed` gets the seconds by which the peer's clock is
    ahead.
    """

    def __init__(
        self,
        link: Link,
        transport: Transport,
        ring: Callable[[], KeyRing],
        clock: Clock,
        random: Callable[[int], bytes],
        skewed: Callable[[float], None],
    ) -> None:
        self._link = link
        self._transport = transport
        self._ring = ring
        self._clock = clock
        self._random = random
        self._skewed = skewed
        self._batch_ids: dict[tuple[Range, int], str] = {}
        self.takes_runs = False
        """Whether to send batches as runs: the peer announced them with its latest receipt, and has refused none."""
        self._refuses_runs = False
        self.head: Head | None = None
        """The log's head when a page was last read: no honest mark of this link exceeds it. None before the first page.
        """

    async def mark(self, *, start: bool) -> Mark | None:
        """Return the peer's mark of this link; None if it has none. Raises `V2Unsupported`, `LinkError`.

        `start`: this node may have been started since its last answered query.
        """
        query = LinkQuery(from_node=self._link.node, to_node=self._link.peer, group=self._link.group)
        body = REPAIR_QUERY if self._link.repair else MARK_QUERY if start else REOPEN_QUERY
        signed, answer, _ = await self._send(query, body, MAX_ANSWER)
        if answer.status in (404, 405) and not is_of_an_api(answer):
            raise V2Unsupported(f"the peer answered {answer.status} to {query.path}")
        if answer.status != 200:
            raise self._link_error(answer)
        try:
            verify_answer(signed, answer.status, answer.headers, answer.body, self._ring())
            return read_link_answer(answer.body, query)
        except BadAnswer as error:
            raise Blocked("unproven_answer", error.message) from None

    async def push(self, outbound: PeerBatch) -> Ack:
        """Deliver the batch, in halves while the peer answers that it is too large. Raises `LinkError`, `Rewind`."""
        body = outbound.records.body
        header = BatchHeader(
            from_node=self._link.node,
            to_node=self._link.peer,
            group=self._link.group,
            batch_id=self._batch_id(outbound, body),
            range=self._range(outbound),
            form=outbound.records.form,
        )
        sent_at = self._clock.now()
        # The longest receipt refuses every line with its id, perhaps with more escapes than this program uses.
        most = MAX_ANSWER + 2 * len(body) + REFUSAL * len(outbound.records)
        trace = self._trace(outbound) if tracing.on else NO_TRACE
        hints = {**trace, LEAVES: outbound.leaves} if outbound.leaves else trace
        signed, answer, key_id = await self._send(header, body, most, hints)
        if answer.status == 415 and header.form == RUNS_TYPE:  # another program answers there by now, or a proxy
            self.takes_runs, self._refuses_runs = False, True
            return await self.push(replace(outbound, records=outbound.records[:]))
        if answer.status == 413 and len(outbound.records) > 1:
            return await self._halve(outbound)
        if answer.status == 413 and outbound.records:
            self._require_too_large(signed, answer, len(body))
            return await self._leave_out(outbound)
        if answer.status != 200:
            raise self._refused(signed, answer, header)
        try:
            verify_answer(signed, answer.status, answer.headers, answer.body, self._ring())
            receipt = read_receipt(answer.body, header, signed.digest)
        except BadAnswer as error:
            raise Blocked("unproven_answer", error.message) from None
        self._require_possible(receipt)
        self._batch_ids = {key: known for key, known in self._batch_ids.items() if known != header.batch_id}
        self.takes_runs = not self._refuses_runs and RUNS_TYPE in answer.headers.get("accept", "")
        self._skewed(self._skew(receipt, sent_at))
        refused = self._refusals(outbound, receipt)
        row = replace(
            self.row(outbound, [p.record for p in refused], status=200),
            batch_id=header.batch_id,
            bytes=len(body),
            sent_at=sent_at,
            key_id=key_id,
            receipt=_evidence(signed, answer),
        )
        return Ack(outbound.upto, (row,), refused, V2)

    def _require_possible(self, receipt: Receipt) -> None:
        """Raise `Blocked` for a receipt that claims more than this log has.

        The receipt of a repair is exempt: it concerns the whole link, which may have sent events since the repair's
        page was read.
        """
        if self.head is not None and not self._link.repair and (receipt.upto or 0) > self.head.last:
            raise impossible_mark(receipt.upto or 0, self.head)

    # --- sending ----------------------------------------------------------------------------------------------

    async def _send(
        self, header: LinkQuery, body: bytes, most: int, hints: Mapping[str, str] = NO_TRACE
    ) -> tuple[SignedRequest, Answer, str]:
        try:
            key = self._ring().signer(self._link.node)
        except NoSigningKey as error:
            raise LinkError("no_signing_key", error.message) from None
        nonce = self._random(16).hex()
        signed = sign_request(header, body, key, now=self._clock.now(), nonce=nonce, window=self._link.window)
        headers = {**hints, **signed.headers, "Accept-Encoding": "identity"}
        url = self._link.endpoint + header.path
        link = self._link
        answer = await self._transport.post(
            url, body, headers, seconds=link.seconds, most=most, tls=link.tls, node=link.peer, rules=link.rules
        )
        return signed, answer, key.id

    def _trace(self, outbound: PeerBatch) -> Mapping[str, str]:
        """Return the headers that name the present span and the spans of sampled events.

        The events of a repair are left out, because their positions are far apart.
        """
        hints = [] if self._link.repair else tracing.sampled.between(outbound.after, outbound.upto)
        return trace_headers(tracing.current(), hints)

    def _range(self, outbound: PeerBatch) -> Range:
        if self._link.repair:
            return Range(epoch=outbound.epoch, incarnation=outbound.incarnation, repair=True)
        return Range(
            epoch=outbound.epoch,
            incarnation=outbound.incarnation,
            after=outbound.after,
            upto=outbound.upto,
            lost=outbound.lost,
        )

    def _batch_id(self, outbound: PeerBatch, body: bytes) -> str:
        """Return the id of the batch, a new one unless the same bytes over the same range were sent without a receipt.

        By that id the peer recognizes the batch, and sends the receipt again if it was lost.
        """
        key = (self._range(outbound), hash(body))
        if key not in self._batch_ids:
            while len(self._batch_ids) >= BATCH_IDS:
                del self._batch_ids[next(iter(self._batch_ids))]  # the peer was down for long: the page has grown
            self._batch_ids[key] = new_event_id(self._clock.now(), self._random(10))
        return self._batch_ids[key]

    async def _halve(self, outbound: PeerBatch) -> Ack:
        middle = len(outbound.records) // 2
        edge = outbound.records[middle - 1].position
        first = replace(
            outbound,
            upto=edge,
            records=outbound.records[:middle],
            exceptions=[(at, why) for at, why in outbound.exceptions if at <= edge],
        )
        second = replace(
            outbound,
            after=edge,
            lost=None,
            records=outbound.records[middle:],
            exceptions=[(at, why) for at, why in outbound.exceptions if at > edge],
        )
        done = await self.push(first)
        if done.failure is not None:  # only a part of the first half was accepted
            return done
        try:
            rest = await self.push(second)
        except LinkError as held:
            return replace(done, failure=held)
        return Ack(rest.upto, (*done.batches, *rest.batches), (*done.refused, *rest.refused), V2, rest.failure)

    async def _leave_out(self, outbound: PeerBatch) -> Ack:
        """Make the batch's only record a dead letter, and send the peer the batch's range without it.

        A repair has no range to send.
        """
        [record] = outbound.records
        refused = RecordRefusal(record, "too_large", "the peer does not accept a batch as large as this event alone")
        if self._link.repair:
            return Ack(outbound.upto, (self.row(outbound, [record], status=413),), (refused,), V2)
        exceptions = sorted([*outbound.exceptions, (record.position, "refused")])
        done = await self.push(replace(outbound, records=outbound.records[:0], exceptions=exceptions))
        return replace(done, refused=(refused,))

    # --- answers ----------------------------------------------------------------------------------------------

    def _require_too_large(self, signed: SignedRequest, answer: Answer, size: int) -> None:
        """Check that the answer "too large" is from the peer itself, and about the batch that was sent.

        Otherwise anyone on the path could make this node give up a record. Raises `Blocked`.
        """
        try:
            verify_answer(signed, answer.status, answer.headers, answer.body, self._ring())
            read_too_large(answer.body, size)
        except BadAnswer as error:
            raise Blocked(
                "unproven_too_large",
                f"one event alone ({size} bytes with its position and path) was answered 413, which proves nothing: "
                f"{error.message}; is there a proxy in between that takes less than the peer?",
            ) from None

    def _proven(self, signed: SignedRequest, answer: Answer) -> bool:
        try:
            verify_answer(signed, answer.status, answer.headers, answer.body, self._ring())
        except BadAnswer:
            return False
        return True

    def _refused(self, signed: SignedRequest, answer: Answer, header: BatchHeader) -> LinkError | Rewind:
        error = read_error(answer.body)
        if error is not None and error.code == "range_ahead":
            mark = error.mark
            if mark is not None and mark.epoch == header.range.epoch and self._proven(signed, answer):
                return Rewind(mark.upto, f"the peer has everything only up to position {mark.upto}", epoch=mark.epoch)
            return LinkUnavailable("range_ahead", "the peer misses a batch before this one")
        return self._link_error(answer)

    def _link_error(self, answer: Answer) -> LinkError:
        error = read_error(answer.body)
        if error is None:
            return link_error(answer, self._link.endpoint, self._clock.now())
        if error.code == "replayed":
            return LinkUnavailable("replayed", "the peer has seen this request before (replay)")
        detail = error.message + (f"; its clock says {error.server_time}" if error.server_time else "")
        if error.code not in STATUS:
            return link_error(answer, self._link.endpoint, self._clock.now(), detail=f"{error.code}: {detail}")
        return link_error(answer, self._link.endpoint, self._clock.now(), code=error.code, detail=detail)

    def _refusals(self, outbound: PeerBatch, receipt: Receipt) -> list[RecordRefusal]:
        """Return the records that the receipt refuses. Raises `Blocked` when its sums differ from what was sent."""
        total = receipt.accepted + receipt.duplicates + len(receipt.refused)
        if total == len(outbound.records) and not receipt.refused:
            return []  # in most cases, and then the lines need not be split
        by_position = {record.position: record for record in outbound.records}
        refused = {refusal.position: refusal for refusal in receipt.refused}
        if total != len(by_position) or not refused.keys() <= by_position.keys():
            raise Blocked("unproven_answer", "the receipt's sums differ from what was sent")
        return [
            RecordRefusal(by_position[position], plain(refusal.reason), self._words(refusal))
            for position, refusal in refused.items()
        ]

    def _words(self, refusal: Refusal) -> str:
        owner = f": the id belongs to an event of {plain(refusal.owner)}" if refusal.owner else ""
        mark = f" with the digest {plain(refusal.digest)}" if owner and refusal.digest else ""
        return f"refused by {self._link.peer}{owner}{mark}"

    def row(self, outbound: PeerBatch, refused: Sequence[OutboundRecord], *, status: int) -> DeliveredBatch:
        """Return the ledger row for a batch, with the `refused` records among its exceptions."""
        now = self._clock.now()
        exceptions = [*outbound.exceptions, *((record.position, "refused") for record in refused)]
        return DeliveredBatch(
            cursor=self._link.cursor,
            batch_id="",
            epoch=outbound.epoch,
            incarnation=outbound.incarnation,
            after=outbound.after,
            upto=outbound.upto,
            events=len(outbound.records) - len(refused),
            bytes=0,
            selector_version=self._link.selector_version,
            exceptions=sorted(exceptions),
            picked=outbound.picked(outbound.upto) if self._link.repair else (),
            attempts=outbound.attempts,
            sent_at=now,
            acked_at=now,
            status=status,
            protocol=V2,
            key_id="",
            receipt="",
        )

    def _skew(self, receipt: Receipt, sent_at: int) -> float:
        """Return the seconds by which the peer's clock is ahead: its time of recording minus the middle of the wait."""
        return (micros(receipt.recorded_at) - (sent_at + self._clock.now()) / 2) / 1e6


def _evidence(signed: SignedRequest, answer: Answer) -> str:
    """Return, as JSON, what is needed to verify the receipt's signature again, later and elsewhere."""
    names = ("content-type", "content-digest", "signature-input", "signature")
    return json.dumps(
        {
            "status": answer.status,
            "headers": {name: answer.headers[name] for name in names if name in answer.headers},
            "body": answer.body.decode(),
            "request": signed.signature,
        },
        separators=(",", ":"),
    )
