"""Protocol v2: the headers of requests, receipts, mark queries and error answers. `batch` has the bodies of batches."""

from __future__ import annotations

import re
from datetime import datetime
from typing import ClassVar, Final

import msgspec

from federation.errors import BadAnswer, ClockSkew, Malformed, MessageError, OtherCheckpoint, TooLarge
from federation.event import format_time, require_moment
from federation.peers import (
    BATCH_HEADER,
    BATCH_TYPE,
    EVENTS_PATH,
    FROM_HEADER,
    GROUP_HEADER,
    GROUP_NAME,
    HISTORY_PATH,
    JSON_TYPE,
    LINK_PATH,
    NODE_NAME,
    RANGE_HEADER,
    RUNS_TYPE,
    STATUS_PATH,
    TO_HEADER,
    VERIFY_PATH,
)
from federation.ranges import Mark, Position, Range, RangeAhead

BATCH_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class LinkQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a query for the receiver's mark: `from_node` asks `to_node`. Raises Malformed for invalid names."""

    path: ClassVar[str] = LINK_PATH
    takes: ClassVar[tuple[str, ...]] = (JSON_TYPE,)
    """Content types that this path accepts."""

    from_node: str
    to_node: str
    group: str

    def __post_init__(self) -> None:
        for name in (self.from_node, self.to_node):
            if not NODE_NAME.fullmatch(name):
                raise Malformed(f"{name[:80]!r} is not a node name")
        if not GROUP_NAME.fullmatch(self.group):
            raise Malformed(f"{self.group[:80]!r} is not a group name")

    @property
    def content_type(self) -> str:
        """The content type of the request's body."""
        return self.takes[0]

    def to_headers(self) -> dict[str, str]:
        """Return the `Eventd-` headers of the request; its content type is not among them."""
        return {FROM_HEADER: self.from_node, TO_HEADER: self.to_node, GROUP_HEADER: self.group}


MARK_QUERY: Final = b"{}"
"""The body of a query for the mark; it may be the first sign that the asking node was started."""
REOPEN_QUERY: Final = b'{"start":false}'
"""The same of a node that was not started since its last answered query."""
REPAIR_QUERY: Final = b'{"repair":true}'
"""The same for a repair: batches of the link itself need not be signed after this query."""


class MarkQueryTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What the body of a mark query says. `start`: the asking node may have been started since its last query."""

    repair: bool = False
    start: bool = True


def read_mark_query(body: bytes) -> MarkQueryTerms:
    """Return what the body of a mark query says; one that cannot be read counts as `MARK_QUERY`."""
    try:
        return msgspec.json.decode(body, type=MarkQueryTerms)
    except (ValueError, RecursionError):
        return MarkQueryTerms()


class VerifyQuery(LinkQuery, frozen=True, kw_only=True):
    """The header of a question about which of the sender's events the receiver holds; its body: see `compare`."""

    path: ClassVar[str] = VERIFY_PATH


class StatusQuery(LinkQuery, frozen=True, kw_only=True):
    """The header of a question for the receiver's links in the group; its body: see `status`."""

    path: ClassVar[str] = STATUS_PATH


class HistoryQuery(LinkQuery, frozen=True, kw_only=True):
    """The header of a question about the verifiable histories of the two nodes; its body: see `history.exchange`."""

    path: ClassVar[str] = HISTORY_PATH


class BatchHeader(LinkQuery, frozen=True, kw_only=True):
    """The header of a batch. `batch_id` is a UUID version 7.

    Retries of the same bytes over the same range keep it, unless the sender restarts.
    `form` is the content type of its body: lines (`peers.BATCH_TYPE`), or runs (`peers.RUNS_TYPE`) for a receiver that
    accepts them.
    """

    path: ClassVar[str] = EVENTS_PATH
    takes: ClassVar[tuple[str, ...]] = (BATCH_TYPE, RUNS_TYPE)

    batch_id: str
    range: Range
    form: str = BATCH_TYPE

    @property
    def content_type(self) -> str:
        return self.form

    def __post_init__(self) -> None:
        super().__post_init__()
        if not BATCH_ID.fullmatch(self.batch_id):
            raise Malformed(f"{self.batch_id[:80]!r} is not a UUID version 7 in lower case")

    def to_headers(self) -> dict[str, str]:
        return super().to_headers() | {BATCH_HEADER: self.batch_id, RANGE_HEADER: self.range.to_header()}


KINDS: Final[dict[str, type[LinkQuery]]] = {
    LINK_PATH: LinkQuery,
    EVENTS_PATH: BatchHeader,
    VERIFY_PATH: VerifyQuery,
    STATUS_PATH: StatusQuery,
    HISTORY_PATH: HistoryQuery,
}
"""The kind of message at each path."""


def read_header(path: str, headers: dict[str, str]) -> LinkQuery:
    """Read the header of a request to that path (header names in lower case). Raises Malformed."""
    names = {
        "from_node": headers[FROM_HEADER.lower()],
        "to_node": headers[TO_HEADER.lower()],
        "group": headers[GROUP_HEADER.lower()],
    }
    kind = KINDS[path]
    if kind is not BatchHeader:
        return kind(**names)
    covered = Range.from_header(headers[RANGE_HEADER.lower()])
    batch_id, form = headers[BATCH_HEADER.lower()], headers["content-type"]
    return BatchHeader(**names, batch_id=batch_id, range=covered, form=form)


class Refusal(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One line that a receiver refused. `id` is empty if it could not be read; reasons are in `peers.REFUSALS`.

    `owner` and `digest` are set for `id_conflict`: the source of the event that has the id at the receiver, and the
    SHA-256 of its canonical form in hexadecimal.
    """

    position: Position
    id: str
    reason: str
    owner: str = ""
    digest: str = ""


class Receipt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The outcome of a batch, created once, in the transaction that stored the batch.

    `digest` is the Content-Digest of the batch's body. `upto` is the position of the link's mark after the batch, None
    without a mark in this epoch. `accepted` lines became records, `duplicates` were stored already, and `refused` lists
    all others by position.
    """

    group: str
    from_node: str = msgspec.field(name="from")
    to_node: str = msgspec.field(name="to")
    batch: str
    digest: str
    epoch: str
    incarnation: Position
    upto: Position | None
    accepted: Position
    duplicates: Position
    refused: tuple[Refusal, ...] = ()
    recorded_at: datetime

    def __post_init__(self) -> None:
        require_moment(self.recorded_at)


class LinkAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The receiver's mark of the link from `from_node`, None without one."""

    group: str
    from_node: str = msgspec.field(name="from")
    to_node: str = msgspec.field(name="to")
    mark: Mark | None


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Why a request was refused as a whole. `code` is one of `peers.STATUS`; the other fields depend on it."""

    code: str
    message: str
    mark: Mark | None = None
    server_time: str = ""
    limit: int = 0
    unit: str = ""
    note: str = ""


class _ErrorBody(msgspec.Struct, frozen=True):
    error: ErrorAnswer


def encode_json(answer: Receipt | LinkAnswer | ErrorAnswer) -> bytes:
    """Return the body of an answer: one JSON object without white space."""
    return msgspec.json.encode(_ErrorBody(answer) if isinstance(answer, ErrorAnswer) else answer)


def read_receipt(body: bytes, header: BatchHeader, digest: str) -> Receipt:
    """Read the receipt in the answer to a batch with this header and digest.

    Raises BadAnswer when it is no receipt, or for another batch. The signature is verified in `signing`.
    """
    try:
        receipt = msgspec.json.decode(body, type=Receipt)
    except (ValueError, RecursionError):
        raise BadAnswer("the answer is not a receipt", reason="no_receipt") from None
    sent = (header.group, header.from_node, header.to_node, header.batch_id, digest, header.range.epoch)
    stated = (receipt.group, receipt.from_node, receipt.to_node, receipt.batch, receipt.digest, receipt.epoch)
    if sent != stated or receipt.incarnation != header.range.incarnation:
        raise BadAnswer("the receipt is about another batch than the one that was sent", reason="other_batch")
    return receipt


def read_too_large(body: bytes, size: int) -> int:
    """Return the limit in bytes that a 413 states, in answer to a body of `size` bytes.

    Raises BadAnswer when the answer does not confirm that this size is too large: it may concern a body that a proxy
    changed.
    """
    error = read_error(body)
    if error is None or error.code != TooLarge.code or error.unit != "bytes" or error.limit >= size:
        raise BadAnswer("the answer does not confirm that the batch is too large", reason="other_size")
    return error.limit


def read_link_answer(body: bytes, query: LinkQuery) -> Mark | None:
    """Return the receiver's mark in the answer to a mark query; None if it has none. Raises BadAnswer."""
    try:
        answer = msgspec.json.decode(body, type=LinkAnswer)
    except (ValueError, RecursionError):
        raise BadAnswer("the answer says nothing about the link", reason="no_link_answer") from None
    if (answer.group, answer.from_node, answer.to_node) != (query.group, query.from_node, query.to_node):
        raise BadAnswer("the answer is about another link than the one asked about", reason="other_link")
    return answer.mark


def answer_to(error: MessageError) -> ErrorAnswer:
    """Return the answer for an error. Every Unauthorized but ClockSkew has the same message: it reveals no cause."""
    if error.code == "unauthorized":
        return ErrorAnswer(code=error.code, message="the request is not signed by a key of this group")
    return ErrorAnswer(
        code=error.code,
        message=error.message,
        mark=error.mark if isinstance(error, RangeAhead) else None,
        server_time=format_time(error.server_time) if isinstance(error, ClockSkew) else "",
        limit=error.limit if isinstance(error, TooLarge) else 0,
        unit=error.unit if isinstance(error, TooLarge) else "",
        note=error.note if isinstance(error, OtherCheckpoint) else "",
    )


def read_error(body: bytes) -> ErrorAnswer | None:
    """Return the error in the body of an answer that is not a 200; None if the body has another format."""
    try:
        return msgspec.json.decode(body, type=_ErrorBody).error
    except (ValueError, RecursionError):
        return None
