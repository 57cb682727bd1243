"""Ids of the events of a stream: the client's place in every topic, or a checkpoint that stands for them.

A client sends an id back in a header, whose size is limited. While the places in all topics fit into `ID_BYTES`, the id
contains them. Beyond that it names a checkpoint: the number of an event in a stream, whose session keeps the places.
"""

from __future__ import annotations

import binascii
import re
from array import array
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from eventd.api.topics.start import MOST_SEQ

ID_BYTES = 4096
"""The longest id in bytes that contains the places themselves."""
TOPIC_BYTES = 400
"""Estimated memory of the checkpoints of one stream for each topic, besides the events."""
MOVES = 8192
"""Number of newest events of one stream whose checkpoints are kept: more than fit into the buffers between node and
client."""
MOVE_BYTES = 14
"""The memory of each of them."""
_EPOCHS = 9999
"""The largest number of an epoch for which the length of an id is estimated."""
_CHECKPOINT = re.compile(r"([0-9a-f]{12})\.(\d{1,9})\.(\d{1,15})")
_Seq = Annotated[int, Meta(ge=0, le=MOST_SEQ)]


class EventPlace(NamedTuple):
    """A client's place in a topic: the number of an epoch in the session (see `TopicProgress`), and a seq of it."""

    epoch: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    seq: _Seq


_PLACES = msgspec.json.Decoder(dict[str, _Seq | EventPlace])


def write_places(places: Mapping[str, EventPlace]) -> bytes:
    """Return an id that contains the client's places: a JSON object of places by topic name, in base64url.

    A place is a seq, or, in another epoch than that of the session's start, the list of the epoch's number and the seq.
    """
    shown = {name: place if place.epoch else place.seq for name, place in sorted(places.items())}
    return urlsafe_b64encode(msgspec.json.encode(shown)).rstrip(b"=")


def read_places(text: str) -> dict[str, EventPlace]:
    """Return the places by topic name of an id that `write_places` made; empty for any other text."""
    try:
        found = _PLACES.decode(urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)))
    except (ValueError, binascii.Error, msgspec.DecodeError, RecursionError):
        return {}
    return {name: EventPlace(0, place) if isinstance(place, int) else place for name, place in found.items()}


def may_need_checkpoints(names: Iterable[str]) -> bool:
    """Return whether the places in topics with these names may become too long for an id."""
    # Also beside the number of an epoch, a client may send any seq: that of an epoch that was dropped is not compared.
    return len(write_places(dict.fromkeys(names, EventPlace(_EPOCHS, MOST_SEQ)))) > ID_BYTES


def read_checkpoint(text: str) -> tuple[str, int, int] | None:
    """Return the session's tag and the numbers of stream and event in the id of a checkpoint; None for another id."""
    found = _CHECKPOINT.fullmatch(text)
    return (found[1], int(found[2]), int(found[3])) if found else None


class Checkpoints:
    """The checkpoints of one stream of the session `tag`. The stream began at the places `begun`.

    The newest `MOVES` are exact. An older one leads back to the start of the stream: the client receives records again,
    and misses none.
    """

    def __init__(self, tag: str, stream: int, begun: Mapping[str, EventPlace]) -> None:
        self._label = f"{tag}.{stream}".encode()
        self._begun = dict(begun)
        self._base = dict(begun)
        self._names = [*begun]
        self._indexes = {name: index for index, name in enumerate(begun)}
        self._topics = array("H")
        self._epochs = array("I")
        self._seqs = array("q")
        self._count = 0

    @property
    def size(self) -> int:
        """Return the memory in bytes, estimated."""
        return TOPIC_BYTES * len(self._names) + MOVE_BYTES * len(self._seqs)

    def add(self, name: str, place: EventPlace) -> bytes:
        """Add an event that takes the client to a place in one topic; return the id of its checkpoint."""
        at = self._count % MOVES
        if self._count < MOVES:
            self._topics.append(self._indexes[name])
            self._epochs.append(place.epoch)
            self._seqs.append(place.seq)
        else:
            self._base |= self._move(at)
            self._topics[at], self._epochs[at], self._seqs[at] = self._indexes[name], *place
        self._count += 1
        return self.last

    @property
    def last(self) -> bytes:
        """Return the id of the newest checkpoint."""
        return b"%b.%d" % (self._label, self._count)

    def places(self, count: int) -> dict[str, EventPlace]:
        """Return the client's places after this number of events; empty if there were fewer.

        If that checkpoint is no longer kept, they are those at the start of the stream.
        """
        if count > self._count:
            return {}
        oldest = max(0, self._count - MOVES)
        if count < oldest:
            return dict(self._begun)
        found = dict(self._base)
        for number in range(oldest, count):
            found |= self._move(number % MOVES)
        return found

    def _move(self, at: int) -> dict[str, EventPlace]:
        return {self._names[self._topics[at]]: EventPlace(self._epochs[at], self._seqs[at])}
