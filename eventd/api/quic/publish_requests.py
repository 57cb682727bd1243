"""The publishes of one stream: binary and JSON, acknowledged or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from eventd.api.quic import answers
from eventd.api.quic.answers import AnswerSlot, json_frame
from eventd.api.quic.publish_units import PublishUnits, QueuedBatch
from eventd.api.quic.publishing import (
    PublishRefusal,
    PublishTarget,
    StoredBatch,
    read_receipt,
    require_valid,
    write_key,
)
from eventd.api.quic.stream_state import HANDLED, MUST_WAIT, StreamState
from eventd.api.topics.write import MAX_RECORDS
from eventd.streams.layouts import (
    ACKNOWLEDGED_BYTES,
    BadLayout,
    PublishAck,
    read_publish_count,
    read_publish_head,
    read_publish_names,
    read_publish_records,
    read_request_id,
    write_ack,
)
from eventd.streams.messages import (
    Error,
    Message,
    Ok,
    PublishBatchRequest,
    PublishError,
    PublishOk,
    PublishRequest,
    RequestId,
    read_payload,
    require_names,
)
from eventd.streams.names import StreamName

UNIT_BYTES: Final = 2048
RECORD_BYTES: Final = 256
"""The memory that a batch, and each of its records, takes in addition to its bytes; it counts towards the budgets."""
_LENGTH: Final = 4
"""The bytes of the count, and of each record's length."""
MOST_TARGETS: Final = 64
"""Streams whose permission is remembered for a client's stream."""


class PublishForm(NamedTuple):
    """The form of the answers to a publish: its name in the metrics, and the frames of both answers."""

    name: str
    ok: Callable[[RequestId, StoredBatch], bytes]
    error: Callable[[RequestId, str], bytes]


class PublishJob(NamedTuple):
    """A batch that is being published. `slot` is None if the batch is not to be acknowledged."""

    form: PublishForm
    request_id: RequestId | None
    slot: AnswerSlot | None
    records: int
    size: int
    charge: int
    begun: float


def _json_ok(id: RequestId, batch: StoredBatch) -> bytes:
    kind: Callable[..., Message] = Ok if isinstance(id, str) else PublishOk
    return json_frame(
        kind(request_id=id, offset=batch.offset, count=batch.count, durability=batch.durability, epoch=batch.epoch)
    )


def _json_error(id: RequestId, text: str) -> bytes:
    return json_frame(
        Error(message=text, request_id=id) if isinstance(id, str) else PublishError(request_id=id, message=text)
    )


def _binary_ok(id: RequestId, batch: StoredBatch) -> bytes:
    assert isinstance(id, int)
    return write_ack(PublishAck(id, False))


def _binary_receipt(id: RequestId, batch: StoredBatch) -> bytes:
    assert isinstance(id, int)
    return write_ack(PublishAck(id, False, read_receipt(batch)))


def _binary_error(id: RequestId, text: str) -> bytes:
    assert isinstance(id, int)
    return write_ack(PublishAck(id, True, text))


JSON: Final = PublishForm("json", _json_ok, _json_error)
BINARY: Final = PublishForm("publish_ack", _binary_ok, _binary_error)
RECEIPT: Final = PublishForm("publish_ack", _binary_receipt, _binary_error)


class PublishRequests:
    """Serves the publishes of one authenticated stream."""

    def __init__(self, state: StreamState) -> None:
        self._state = state
        self._server = state.connection.server
        self._units = PublishUnits(
            self._server.publisher, lambda: state.grant.subject, self._done, lambda: state.resume()
        )
        self._blocked_since: float | None = None
        self._targets: dict[bytes | StreamName, PublishTarget] = {}

    # --- binary

    def take_unacknowledged(self, payload: bytes) -> bool:
        """Handle a binary batch without an answer."""
        state = self._state
        try:
            head = read_publish_head(payload)
            target = self._find_encoded(head.names)
            count = read_publish_count(payload, head.at)
            if target.refusal:
                state.end(Error(message=target.refusal))
                return HANDLED
            if state.find_refusal():
                return self._wait_or_drop(count)
            if _is_over(payload, head.at, count):
                self._server.metrics.dropped("too_large", count)
                return HANDLED
            payloads = read_publish_records(payload, head.at)
        except BadLayout:
            self._server.metrics.bad_frame("publish")
            state.end(Error(message=answers.MALFORMED_PUBLISH))
            return HANDLED
        self._submit(BINARY, target, payloads, None, len(payload))
        return HANDLED

    def take_acknowledged(self, payload: bytes) -> bool:
        """Handle a binary batch with an answer."""
        state = self._state
        form = RECEIPT if "receipt" in state.extensions else BINARY
        try:
            request_id = read_request_id(payload)
        except BadLayout:
            self._server.metrics.bad_frame("publish")
            state.end(Error(message=answers.MALFORMED_PUBLISH))
            return HANDLED
        try:
            head = read_publish_head(payload, ACKNOWLEDGED_BYTES)
            target = self._find_encoded(head.names)
            count = read_publish_count(payload, head.at)
            refusal = target.refusal or state.find_refusal()
            if not refusal and _is_over(payload, head.at, count):
                refusal = answers.BATCH_TOO_LARGE
            if refusal:
                self._refuse(form, request_id, refusal, count)
                return HANDLED
            payloads = read_publish_records(payload, head.at)
        except BadLayout:
            self._server.metrics.bad_frame("publish")
            self._refuse(form, request_id, answers.MALFORMED_PUBLISH, 0)
            return HANDLED
        self._submit(form, target, payloads, request_id, len(payload))
        return HANDLED

    def _find_encoded(self, names: bytes) -> PublishTarget:
        found = self._targets.get(names)
        if found is None:
            found = self._remember(names, StreamName(*read_publish_names(names)))
        return found

    def _remember(self, key: bytes | StreamName, name: StreamName) -> PublishTarget:
        target = PublishTarget.of(name, self._state.grant)
        if name.is_possible:  # others may be of any length
            if len(self._targets) >= MOST_TARGETS:
                self._targets.clear()
            self._targets[key] = target
        return target

    # --- JSON

    def take_message(self, request: PublishRequest | PublishBatchRequest, size: int) -> bool:
        """Handle a JSON publish of a frame of `size` bytes. Raises `BadMessage`."""
        require_names(request)
        state, id = self._state, request.request_id
        tenant = state.grant.tenant if request.tenant_id is None else request.tenant_id
        name = StreamName(tenant, request.namespace or "", request.stream)
        target = self._targets.get(name) or self._remember(name, name)
        texts = [request.payload] if isinstance(request, PublishRequest) else request.payloads
        if target.refusal:
            self._end_with(target.refusal, id)
            return HANDLED
        is_acknowledged = request.ack != "none" and not state.is_silent
        refusal = state.find_refusal()
        if refusal and not is_acknowledged:
            return self._wait_or_drop(len(texts))
        if is_acknowledged and id is None and not refusal:
            refusal = answers.NO_ID if isinstance(request, PublishRequest) else answers.NO_ID_OF_BATCH
        if refusal:
            self._refuse(JSON, id, refusal, len(texts))
            return HANDLED
        payloads = [read_payload(text) for text in texts]
        self._submit(JSON, target, payloads, id if is_acknowledged else None, size)
        return HANDLED

    def _end_with(self, refusal: str, id: RequestId | None) -> None:
        if refusal == answers.FORBIDDEN and isinstance(id, int):
            self._state.end(PublishError(request_id=id, message=refusal))
        else:
            self._state.end(Error(message=refusal, request_id=id))

    # --- both

    def _wait_or_drop(self, records: int) -> bool:
        """Have an unacknowledged publish wait for memory; drop it if that lasts too long, with those that follow it."""
        now = self._server.clock.monotonic()
        if self._blocked_since is None:
            self._blocked_since = now
        if now - self._blocked_since < self._server.options.ingress_wait:
            return MUST_WAIT
        self._server.metrics.dropped("overloaded", records)
        return HANDLED

    def _refuse(self, form: PublishForm, id: RequestId | None, text: str, records: int) -> None:
        """Answer a publish that is not written; the stream continues."""
        self._server.metrics.published("refused", records, 0)
        if id is None:
            self._state.answer(Error(message=text))
        else:
            self._server.metrics.frame("out", form.name)
            self._state.answers.add(form.error(id, text))

    def _submit(
        self, form: PublishForm, target: PublishTarget, payloads: Sequence[bytes], id: RequestId | None, size: int
    ) -> None:
        state, clock = self._state, self._server.clock
        self._blocked_since = None
        try:
            require_valid(target, payloads)
        except PublishRefusal as refusal:
            if id is None:
                self._server.metrics.dropped(refusal.reason, len(payloads))
            else:
                self._refuse(form, id, refusal.text, len(payloads))
            return
        charge = size + UNIT_BYTES + RECORD_BYTES * len(payloads)
        state.take(charge)
        slot = None if id is None else state.answers.reserve()
        content = sum(map(len, payloads))
        job = PublishJob(form, id, slot, len(payloads), content, charge, clock.monotonic())
        key = write_key(state.session, id) if id is not None and state.session else ""
        self._units.add(target, QueuedBatch(payloads, size, job), key)

    def flush(self) -> None:
        """Submit the batches that were collected; others join those that follow units under way."""
        self._units.flush_first()

    def _done(self, job: PublishJob, result: StoredBatch | PublishRefusal) -> None:
        """Answer a batch that is written, or not."""
        metrics = self._server.metrics
        is_stored = isinstance(result, StoredBatch)
        self._state.give(job.charge)
        if job.slot is None or job.request_id is None:
            if isinstance(result, StoredBatch):
                metrics.published("ok", job.records, job.size)
            else:
                metrics.dropped(result.reason, job.records)
            return
        seconds = self._server.clock.monotonic() - job.begun
        metrics.published("ok" if is_stored else "refused", job.records, job.size, seconds)
        metrics.frame("out", job.form.name)
        if isinstance(result, StoredBatch):
            answer = job.form.ok(job.request_id, result)
        else:
            answer = job.form.error(job.request_id, result.text)
        self._state.answers.fill(job.slot, answer)


def _is_over(payload: bytes, at: int, count: int) -> bool:
    """Return whether a batch, whose records begin at an index, has too many records; False for a malformed one."""
    return MAX_RECORDS < count <= (len(payload) - at) // _LENGTH - 1
