"""Serves the requests of peers over v2: proves the sender, stores events, and answers batches, mark queries and
questions.

Questions are about the events of the sender that this node holds, the links of this node, or histories.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from eventd.errors import EventdError, Full
from eventd.ingress.admission import drafts_of
from eventd.ingress.batch import StoreBatch, StoreResult, VerifiedBatch, mark_of
from eventd.ingress.claimed_sender import (
    NO_SENDER,
    ClaimedSender,
    Sender,
    claimed_sender,
    claimed_sender_in,
    sender_in,
)
from eventd.ingress.mark_queries import LinkForgotten, MarkQueries
from eventd.ingress.metrics import IngressMetrics
from eventd.ingress.mismatch import Mismatch, any_node
from eventd.ingress.nonces import Nonces
from eventd.ingress.questions import Questions
from eventd.ingress.refusal_counter import RefusalCounter
from eventd.ingress.reorder_buffer import LinkLife, ReorderBuffer
from eventd.ingress.request_counter import RequestCounter
from eventd.ingress.status import LinkReporter, StatusQuestions
from eventd.ingress.traced import UNTRACED, receiving
from eventd.ingress.v1 import IngressV1
from eventd.log.core.eventlog import EventLog
from eventd.resources.group_configuration import GroupConfig
from eventd.store.rows.links import read_mark
from eventd.tracing import tracing
from eventd.tracing.contexts import BatchTrace
from federation.batch import read_batch
from federation.compare import QUESTION_BYTES
from federation.errors import Conflict, MessageError, NoSigningKey, NotFound, TooLarge, WrongCertificate
from federation.history.exchange import HISTORY_QUESTION_BYTES
from federation.history.leaf_hints import read_places
from federation.keys import Key, KeyRing
from federation.peers import (
    BATCH_TYPE,
    HISTORY_PATH,
    JSON_TYPE,
    RUNS_TYPE,
    STATUS,
    STATUS_PATH,
    VERIFY_PATH,
    Limits,
)
from federation.ranges import Mark, follow
from federation.signing import (
    Head,
    Receiver,
    VerifiedRequest,
    check_body,
    check_size,
    sign_answer,
    verify_head,
)
from federation.status import STATUS_QUESTION_BYTES
from federation.wire import (
    BatchHeader,
    ErrorAnswer,
    HistoryQuery,
    LinkAnswer,
    LinkQuery,
    StatusQuery,
    VerifyQuery,
    answer_to,
    encode_json,
    read_mark_query,
)

_TAKES = {"Accept": f"{BATCH_TYPE}, {RUNS_TYPE}"}
"""The content types of batches that this node accepts; sent with the answer as `Accept` (RFC 9110, 12.5.1)."""


class HistoryAnswerer(Protocol):
    """Interface of what answers the questions about a group's histories."""

    async def answer(self, request: VerifiedRequest, body: bytes) -> bytes:
        """Return the encoded answer to a question. Raises `MessageError`."""
        ...


class BatchHints(NamedTuple):
    """What a sender says of a batch without a signature: never a reason for a decision."""

    trace: BatchTrace
    leaves: str


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """The answer to a request. `key_id`: the key that signed the request, if it is accepted; otherwise empty."""

    status: int
    headers: dict[str, str]
    body: bytes
    key_id: str = ""


class PeerIngress:
    """The receiving side of one group, over v2; `v1` is the one over v1.

    `ring` returns the current keys; it may raise an `EventdError`.
    """

    def __init__(
        self,
        config: GroupConfig,
        topic_id: int,
        log: EventLog,
        ring: Callable[[], KeyRing],
        metrics: IngressMetrics,
        refusals: RefusalCounter,
        links: LinkReporter,
        history: HistoryAnswerer | None = None,
    ) -> None:
        self.config = config
        self._topic_id = topic_id
        self._log = log
        self._ring = ring
        self._metrics = metrics
        self.counter = RequestCounter(config, metrics, refusals, log.clock)
        self.v1 = IngressV1(lambda: self.config, topic_id, log, ring, metrics, self.counter)
        self._reorder = ReorderBuffer(log.clock, config.limits.max_waiting_bytes)
        self.mark_queries = MarkQueries(log.clock)
        self._questions = Questions(topic_id, log)
        self._nonces = Nonces(log)
        self._status = StatusQuestions(links, log.clock)
        self.history = history
        """Answers questions about histories; None while this node keeps none of the group."""

    async def push(
        self,
        head: Head,
        declared: int | None,
        read: Callable[[], Awaitable[bytes]],
        address: str = "",
        mismatch: Mismatch = any_node,
        trace: BatchTrace = UNTRACED,
        leaves: str = "",
    ) -> PeerAnswer:
        """Answer a batch, a mark query, or a question for events or links.

        The answer is signed if head and body are verified, and also if a verified head is refused as replayed or too
        large; otherwise, and without an active key of this node, it is not.
        `declared` is the Content-Length. `read` reads the body, and is called only after the head is verified;
        it raises `MessageError` when the body cannot be read and `TooLarge` beyond the limit. `address` is the
        sender's, for the log; `mismatch` compares the connection's certificate with a node. `trace` is what the
        sender says of the traces of a batch, and `leaves` of the leaves of its events.
        """

        def sender() -> Sender:
            return sender_in(head, address)

        over = self._over(head.path, declared)
        try:
            verified, key = self._prove(head, mismatch)
        except (MessageError, EventdError) as error:
            return self._unproven(over or error, claimed_sender_in(head, self.config.peer_nodes(), self._ring), sender)
        try:
            if over is not None:
                raise over
            self._nonces.require_new(verified)
            body = await read()
            check_body(verified, body)
        except (TooLarge, Conflict) as error:  # the digest of the head suffices: the sender knows what it sent
            proven = False
            self.counter.count_refused_request(error.reason, self._claimed_by(verified), sender, code=error.code)
            status, response = error.status, encode_json(answer_to(error))
        except MessageError as error:
            return self._unproven(error, self._claimed_by(verified), sender)
        else:
            self._metrics.verified(self.config.name, "v2")
            status, response = await self._effect(verified, body, sender, BatchHints(trace, leaves))
            proven = status == 200
        signed = sign_answer(verified, status, response, key, now=self._log.clock.now())
        takes = _TAKES if isinstance(verified.header, BatchHeader) else {}
        return PeerAnswer(status, signed | takes, response, verified.key.id if proven else "")

    def most_bytes(self, path: str) -> int:
        """Return the maximum size, in bytes, of a body at this path."""
        if path == STATUS_PATH:
            return STATUS_QUESTION_BYTES
        if path == HISTORY_PATH:
            return HISTORY_QUESTION_BYTES
        return QUESTION_BYTES if path == VERIFY_PATH else self.config.limits.max_batch_bytes

    def _over(self, path: str, declared: int | None) -> TooLarge | None:
        try:
            check_size(declared or 0, Limits(batch_bytes=self.most_bytes(path)))
        except TooLarge as error:
            return error
        return None

    def _prove(self, head: Head, mismatch: Mismatch) -> tuple[VerifiedRequest, Key]:
        """Return the request with a verified head, and the key that signs the answer. Raises `NoSigningKey`."""
        ring = self._ring()
        verified = verify_head(head, self._receiver(ring), now=self._log.clock.now())
        if others := mismatch(verified.header.from_node):
            node = verified.header.from_node
            raise WrongCertificate(f"the certificate of the connection does not name {node}, but {others}")
        return verified, ring.signer(self.config.node_name)

    def _unproven(
        self, error: MessageError | EventdError, claimed: ClaimedSender, sender: Callable[[], Sender]
    ) -> PeerAnswer:
        """Return the unsigned answer to a request whose sender is not proven, or for whose answer this node has no
        signing key.

        Also counts the refusal, unless the cause is trouble of this node itself (an `EventdError`).
        """
        if isinstance(error, NoSigningKey):
            self.counter.count_refused_request("no_signing_key", claimed, sender, code="unavailable")
            status, told = STATUS["unavailable"], encode_json(ErrorAnswer(code="unavailable", message=error.message))
        elif isinstance(error, MessageError):
            self.counter.count_refused_request(error.reason, claimed, sender, code=error.code)
            status, told = error.status, encode_json(answer_to(error))
        else:
            status, told = _own_trouble(error)
        return PeerAnswer(status, {"Content-Type": JSON_TYPE}, told)

    async def _effect(
        self, verified: VerifiedRequest, body: bytes, sender: Callable[[], Sender], hints: BatchHints
    ) -> tuple[int, bytes]:
        header = verified.header
        try:
            if isinstance(header, BatchHeader):
                told = await self._store(verified, header, body, hints)
                self._alive(verified)
                return 200, told
            if isinstance(header, HistoryQuery) and self.history is None:
                # As an older program answers. The peer asks from time to time, which is no refusal to be counted.
                off = NotFound("this node keeps no history of the group")
                return off.status, encode_json(answer_to(off))
            if isinstance(header, StatusQuery):
                told = await self._status.answer(verified, header, body, self.config, self.config.peer_nodes())
                self._alive(verified)
                return 200, told
            await self._nonces.keep(verified)
            self._alive(verified)
            if isinstance(header, VerifyQuery):
                return 200, await self._questions.answer(header.from_node, body)
            if isinstance(header, HistoryQuery) and self.history is not None:
                return 200, await self.history.answer(verified, body)
            return 200, encode_json(await self._link(header, body, verified.created))
        except MessageError as error:
            if error.is_fault:
                self.counter.count_refused_request(error.reason, self._claimed_by(verified), sender, code=error.code)
            return error.status, encode_json(answer_to(error))
        except EventdError as error:
            self.counter.count_refused_request(error.code, self._claimed_by(verified), sender, code=_own_code(error))
            return _own_trouble(error)

    def _alive(self, verified: VerifiedRequest) -> None:
        """Cache the nonce of a request that is proven and not a replay, and report that its sender is up."""
        self._nonces.remember(verified)
        self._metrics.alive(self.config.name, verified.header.from_node)

    async def _store(self, verified: VerifiedRequest, header: BatchHeader, body: bytes, hints: BatchHints) -> bytes:
        try:
            judged = await self._in_order(header, verified.created, len(body))
        except LinkForgotten:
            read_batch(body, header, verified.key, self._limits())  # the answer to a malformed body says so in any case
            raise
        try:
            stored = await self._take(verified, header, body, hints, judged)
        except BaseException:
            self._reorder.forget(_life_of(header))
            raise
        self.counter.accept(header.from_node, stored.accepted, stored.duplicates)
        claimed = self._claimed_by(verified) if stored.refused else NO_SENDER
        for refusal in stored.refused:
            self.counter.count_refusal(refusal.reason, claimed)
        return stored.receipt

    async def _in_order(self, header: BatchHeader, created: int, size: int) -> str | None:
        """Wait for the predecessor of a batch, and return the epoch of the mark that the batch may replace.

        The head alone decides: a batch is decoded, which takes several times the memory of its body, only when it is
        its turn. One that begins beyond the stored mark is refused here, without a turn of the writer. Raises
        `RangeAhead` and `LinkForgotten`.
        """
        covered, life = header.range, _life_of(header)
        if covered.repair:
            return covered.epoch
        judged: str | None = covered.epoch
        if not self._reorder.knows(life):
            mark = await self._mark(header.from_node)
            self.mark_queries.require(header, created, mark)
            judged = mark.epoch if mark is not None else None
            self._reorder.learn(life, mark)
        if not await self._reorder.enter(life, covered, size):
            follow(await self._mark(header.from_node), covered)
            self._reorder.advance(life, covered.upto)
        return judged

    async def _take(
        self, verified: VerifiedRequest, header: BatchHeader, body: bytes, hints: BatchHints, judged: str | None
    ) -> StoreResult:
        """Decode a batch and store it."""
        lines, refused = read_batch(body, header, verified.key, self._limits())
        batch = VerifiedBatch(
            header,
            verified.digest,
            verified.key.id,
            verified.nonce,
            verified.nonce_until,
            lines.positions,
            drafts_of(lines, header.from_node, verified.key.id),
            refused,
            read_places(hints.leaves),
            self.config.verifies_history,
        )
        ceiling = self.config.retention.max_bytes
        unit = StoreBatch(self._topic_id, batch, ceiling, self.config.peer_nodes(), judged)
        if not tracing.on:
            return await self._log.submit(unit)
        with receiving(batch, hints.trace) as note:
            return note(await self._log.submit(unit))

    async def _link(self, header: LinkQuery, body: bytes, created: int) -> LinkAnswer:
        terms = read_mark_query(body)
        if not terms.repair:
            self.mark_queries.remember(header.from_node, created, self.config.peer_nodes())
            if terms.start:
                self._metrics.started(header.group, header.from_node)
        mark = await self._mark(header.from_node)
        return LinkAnswer(group=header.group, from_node=header.from_node, to_node=header.to_node, mark=mark)

    async def _mark(self, node: str) -> Mark | None:
        return mark_of(await self._log.database.read_for_delivery(read_mark, self._topic_id, node))

    def _receiver(self, ring: KeyRing) -> Receiver:
        return Receiver(self.config.node_name, self.config.name, ring, self.config.replay_window, self._limits())

    def _limits(self) -> Limits:
        limits = self.config.limits
        return Limits(
            batch_bytes=limits.max_batch_bytes,
            batch_events=limits.max_batch_events,
            event_bytes=limits.max_event_bytes,
            max_hops=limits.max_hops,
        )

    def _claimed_by(self, verified: VerifiedRequest) -> ClaimedSender:
        return claimed_sender(verified.header.from_node, verified.key.id, self.config.peer_nodes())


def _life_of(header: BatchHeader) -> LinkLife:
    return header.from_node, header.range.epoch, header.range.incarnation


def _own_code(error: EventdError) -> str:
    return "full" if isinstance(error, Full) else "unavailable"


def _own_trouble(error: EventdError) -> tuple[int, bytes]:
    """Return the status and body of the answer to a request that this node cannot process; only `Full` is explained."""
    code = _own_code(error)
    hidden = "the receiving node cannot process requests now; its log has the reason"
    words = error.message if isinstance(error, Full) else hidden
    return STATUS[code], encode_json(ErrorAnswer(code=code, message=words))
