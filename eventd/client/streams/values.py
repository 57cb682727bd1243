"""The values that a client of streams returns to the program."""

from __future__ import annotations

from msgspec import Struct


class Event(Struct, frozen=True, gc=False):
    """An event of a stream. `offset` is None if the server does not number events."""

    offset: int | None
    payload: bytes


class StreamGap(Struct, frozen=True):
    """A range of offsets, `first` to `last` inclusive, whose events never come; `missed` counts those that were lost.

    `reason`: `ttl`, `cap`, `source_trim`, `mixed`, `recreated` or `skipped`. After `recreated`, the stream is read
    from its beginning: it was created again, or the log began a new `epoch`, which is empty for other reasons.
    """

    first: int
    last: int
    reason: str
    missed: int
    epoch: str = ""


StreamSight = Event | StreamGap
"""One item of a subscription."""


class Published(Struct, frozen=True):
    """Records are stored, as safely as `durability` says: `count` of them, the first one at `offset`.

    An offset means the same event as long as the `epoch` of the log is the same. A server that does not number events
    leaves `offset` at None and the texts empty.
    """

    offset: int | None
    count: int
    durability: str = ""
    epoch: str = ""
