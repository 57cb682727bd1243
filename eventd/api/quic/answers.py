"""The answers of one stream, which leave in the order of their requests, and the texts of refusals."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from eventd.api.quic.interfaces import Channel
from eventd.streams.frames import encode_frame
from eventd.streams.messages import Message, write_message
from eventd.streams.names import StreamName, cut_name

AUTH_REQUIRED: Final = "auth required"
AUTH_FAILED: Final = "auth failed"
AUTH_TWICE: Final = "auth already established"
TENANT_MISMATCH: Final = "tenant mismatch"
FORBIDDEN: Final = "forbidden"
UNSUPPORTED_FLAGS: Final = "unsupported frame flags"
UNEXPECTED_TYPE: Final = "unexpected message type"
MALFORMED_MESSAGE: Final = "malformed message"
MALFORMED_PUBLISH: Final = "malformed publish batch"
TRUNCATED: Final = "the stream ends within a frame"
NO_ID: Final = "missing request_id for acked publish"
NO_ID_OF_BATCH: Final = "missing request_id for acked publish batch"
RECORD_TOO_LARGE: Final = "record too large"
BATCH_TOO_LARGE: Final = "batch too large"
TOPIC_FULL: Final = "topic full"
OVERLOADED: Final = "server overloaded"
UNCERTAIN: Final = "publish commit timeout"
"""The only refusal of a publish that does not prove that nothing was written."""


def stream_not_found(name: StreamName) -> str:
    """Return the answer to a request for a stream that does not exist."""
    tenant, namespace, stream = map(cut_name, name)
    return f"stream not found: tenant={tenant} namespace={namespace} stream={stream}"


def json_frame(message: Message) -> bytes:
    """Return a message as a frame."""
    return encode_frame(0, write_message(message))


class AnswerSlot:
    """A slot for one answer in the order of answers.

    `data` is None until the answer is known; `then` is called once it is written.
    """

    __slots__ = ("data", "ends", "then")

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.ends = False
        self.then: Callable[[], None] | None = None


class AnswerQueue:
    """Writes answers to a stream as soon as all earlier ones are written; `ended` is called after the last one.

    `ready_bytes`: bytes of the answers that are known and not written.
    """

    def __init__(self, channel: Channel, ended: Callable[[], None]) -> None:
        self.ready_bytes = 0
        self._channel = channel
        self._ended = ended
        self._slots: deque[AnswerSlot] = deque()

    def __len__(self) -> int:
        """Return how many answers are not written."""
        return len(self._slots)

    def reserve(self) -> AnswerSlot:
        """Return a slot for the answer to the next request."""
        slot = AnswerSlot()
        self._slots.append(slot)
        return slot

    def fill(self, slot: AnswerSlot, data: bytes, *, ends: bool = False) -> None:
        """Set an answer; with `ends`, nothing follows it."""
        slot.data, slot.ends = data, ends
        self.ready_bytes += len(data)

    def add(self, data: bytes, *, ends: bool = False) -> None:
        """Append an answer that is known already."""
        self.fill(self.reserve(), data, ends=ends)

    def drop(self) -> None:
        """Drop the answers that are not written yet; their `then` functions are called nevertheless."""
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.then is not None:
                slot.then()

    def flush(self) -> bool:
        """Write the answers that are known, up to the first one that is not; return whether there were any."""
        slots, ready, then, ends = self._slots, [], [], False
        while slots and not ends and (data := slots[0].data) is not None:
            slot = slots.popleft()
            ready.append(data)
            ends = slot.ends
            if slot.then is not None:
                then.append(slot.then)
        if not ready:
            return False
        text = ready[0] if len(ready) == 1 else b"".join(ready)
        self.ready_bytes -= len(text)
        self._channel.write(text, end=ends)
        for call in then:
            call()
        if ends:
            slots.clear()
            self._ended()
        return True
