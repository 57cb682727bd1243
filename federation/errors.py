"""What can be wrong with a message.

MessageError                the base of this package's exceptions
├── BadEvent                the bytes are not an event
│   ├── NotCanonical        they may be one, but not in the one form v2 carries
│   └── InvalidEvent        an event that breaks a rule every event must keep
├── BadKey                  key material or a key ring that cannot be used
├── NoSigningKey            no key of the ring may sign for this node
├── Malformed               400  a header, a path or the form of a body is not valid
├── Unauthorized            401  no valid signature of a usable key of the group
│   └── ClockSkew           401  validly signed, but too long ago or too far ahead, or expired
├── Forbidden               403  validly signed, but for another node or group, or from a wrong sender or certificate
├── NotShared               403  the receiver does not tell of its links
├── NotFound                404  no such path
├── WrongMethod             405  only POST
├── Conflict                409  replayed, or a batch id used for two batches
│   ├── RangeAhead          409  a batch before this one is missing
│   ├── OtherHistory        409  a question about positions that the log does not have in its present epoch
│   └── OtherCheckpoint     409  a checkpoint that does not follow the one that its witness holds
│       └── TreeForked      409  and contradicts it
├── TooLarge                413  over a limit
├── UnsupportedMedia        415  another content type or encoding
├── TooManyQueries          429  a question of this sender is being answered already, or too many of others
├── BadAnswer               an answer that proves nothing
├── HistoryError            a tree, proof, note or key of the verifiable history that proves nothing
│   ├── MalformedHistory      not in its one form, or of a size that no tree has
│   │   └── LeavesNotHeld       leaves or a checkpoint that the node does not have
│   ├── ProofMismatch         a proof that leads to another root
│   ├── UnprovenNote          a note without a valid signature of the key that is known
│   └── KeyChanged       403  another key than the one that is known of a node
└── V1Refused               the refusals of protocol v1, with their own texts

The `code` of an error with a status is sent to the other side; `reason`, for logs, metrics and tests, is more precise
where an outsider must not learn the cause. The text is one sentence and carries no secret and no payload.
"""

from __future__ import annotations

from typing import ClassVar

from federation.peers import STATUS


class MessageError(Exception):
    """Base of this package's exceptions."""

    code: ClassVar[str] = "malformed"
    is_fault: ClassVar[bool] = True
    """Whether a request that is refused with this error counts as one that should not have been sent."""

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.code

    @property
    def status(self) -> int:
        """The HTTP status this error travels with."""
        return STATUS[self.code]


class BadEvent(MessageError):
    """The bytes are not an event."""

    refusal: ClassVar[str] = "invalid"


class NotCanonical(BadEvent):
    """Not an event in its one canonical form."""

    refusal = "not_canonical"


class InvalidEvent(BadEvent):
    """An event that breaks a rule every event must keep."""


class BadKey(MessageError):
    """Key material, or a key ring, cannot be used."""


class NoSigningKey(MessageError):
    """No key of the ring may sign for this node."""


class Malformed(MessageError):
    """A header, the path of a record, or the form of a batch or question is not valid."""


class Unauthorized(MessageError):
    """A message without a valid signature of a usable key of the group. `reason` stays at this node."""

    code = "unauthorized"


class ClockSkew(Unauthorized):
    """A request validly signed, but outside of the replay window or past its own expiry.

    `server_time` is the receiver's time, in microseconds.
    """

    code = "clock_skew"

    def __init__(self, message: str, *, reason: str = "", server_time: int) -> None:
        super().__init__(message, reason=reason)
        self.server_time = server_time


class Forbidden(MessageError):
    """A validly signed request for another node; the subclasses: for another group, or from a wrong sender.

    A sender is also wrong if the connection's certificate does not name it.
    """

    code = "wrong_audience"


class WrongGroup(Forbidden):
    """The request is for a group other than the receiver's."""

    code = "wrong_group"


class WrongSender(Forbidden):
    """The key does not belong to the sender that the request names, or that sender is the receiver itself."""

    code = "wrong_sender"


class WrongCertificate(Forbidden):
    """The certificate of the connection does not name the sender, or there is none where one is required."""

    code = "wrong_certificate"


class NotShared(MessageError):
    """A verified question asks for links, and this node does not report its links."""

    code = "not_shared"


class NotFound(MessageError):
    """No such path."""

    code = "not_found"


class WrongMethod(MessageError):
    """The path takes only POST."""

    code = "method_not_allowed"


class Conflict(MessageError):
    """The request contradicts what the receiver has stored; without a subclass: it was seen before (replay)."""

    code = "replayed"


class BatchConflict(Conflict):
    """A batch id that was used for two different batches."""

    code = "batch_conflict"


class OtherHistory(Conflict):
    """The answering log does not have the positions of a question in its present epoch."""

    code = "other_history"


class OtherCheckpoint(Conflict):
    """The checkpoint was not offered as a continuation of what its witness holds, which is `note`; empty: nothing."""

    code = "conflict"

    def __init__(self, message: str, *, note: str = "") -> None:
        super().__init__(message)
        self.note = note


class TreeForked(OtherCheckpoint):
    """The checkpoint contradicts the one that its witness holds: both have the signature of the tree's key."""

    code = "forked"


class TooLarge(MessageError):
    """The message is over a limit; `unit` is "bytes" or "events"."""

    code = "too_large"

    def __init__(self, message: str, *, limit: int, unit: str) -> None:
        super().__init__(message)
        self.limit = limit
        self.unit = unit


class UnsupportedMedia(MessageError):
    """The content type or encoding is not supported."""

    code = "unsupported_media_type"


class TooManyQueries(MessageError):
    """A question of this sender is being answered already, or too many of others: retry a little later."""

    code = "too_many_requests"


class BadAnswer(MessageError):
    """An answer that proves nothing: unsigned, wrongly signed, unreadable, or about something else."""


class HistoryError(MessageError):
    """A tree, proof, note or key of the verifiable history that proves nothing."""


class MalformedHistory(HistoryError):
    """A text is not in its one valid form, or states a size that no tree can have."""


class LeavesNotHeld(MalformedHistory):
    """A node does not have the leaves or the checkpoint that it is asked about, as after a restore of its database."""

    is_fault = False

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="not_held")


class ProofMismatch(HistoryError):
    """A proof that leads to the root `computed`, and not to the one that is `expected`."""

    def __init__(self, message: str, *, computed: bytes, expected: bytes) -> None:
        super().__init__(message, reason="root")
        self.computed = computed
        self.expected = expected


class UnprovenNote(HistoryError):
    """A note without a valid signature of the key that is known, or of another tree than that of the key."""


class NotWitnessed(UnprovenNote):
    """A checkpoint that may be true and is not cosigned, because the witness is at a limit or holds another tree; the
    sender is not at fault, and offers it again."""

    is_fault = False
    LIMITS: ClassVar[frozenset[str]] = frozenset({"too_many_trees", "not_a_peer"})
    """The reasons that are limits of the witness: they are counted, because many of them are a flood."""


class KeyChanged(HistoryError):
    """A node shows another key of its history than the one that is known, without the old key's signature."""

    code = "key_changed"


V1_REFUSALS = {
    "read_body": (400, "read body"),
    "bad_timestamp": (400, "bad timestamp"),
    "stale_timestamp": (403, "stale timestamp"),
    "bad_signature": (401, "bad signature"),
    "bad_body": (400, "bad event body"),
    "validation": (400, "invalid event: "),
    "wrong_certificate": (403, "wrong certificate"),
    "store_error": (500, "store error"),
}


class V1Refused(MessageError):
    """A refusal with the text that v1 senders know.

    `reason` is one of the keys of V1_REFUSALS. `text` is the answer's only line, `body` its bytes with the line feed,
    to be sent as `text/plain; charset=utf-8`.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        self._status, text = V1_REFUSALS[reason]
        self.text = text + (detail if reason == "validation" else "")
        super().__init__(f"{self.text} ({detail})" if detail and reason != "validation" else self.text, reason=reason)

    @property
    def status(self) -> int:
        return self._status

    @property
    def body(self) -> bytes:
        return f"{self.text}\n".encode("utf-8", "replace")
