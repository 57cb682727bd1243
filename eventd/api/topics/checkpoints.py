"""Ids of the events of a stream: the client's seq in every topic, or a checkpoint that stands for them.

A client sends an id back in a header, whose size is limited. While the seqs of all topics fit into `ID_BYTES`, the id
contains them. Beyond that it names a checkpoint: the number of an event in a stream, whose session keeps the seqs.
"""

from __future__ import annotations

import binascii
import re
from array import array
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping

import msgspec

from eventd.api.topics.start import MOST_SEQ

ID_BYTES = 4096
"""The longest id in bytes that contains the seqs themselves."""
TOPIC_BYTES = 300
"""Estimated memory of the checkpoints of one stream for each topic, besides the events."""
MOVES = 8192
"""Number of newest events of one stream whose checkpoints are kept: more than fit into the buffers between node and
client."""
_CHECKPOINT = re.compile(r"([0-9a-f]{12})\.(\d{1,9})\.(\d{1,15})")
_SEQS = msgspec.json.Decoder(dict[str, int])


def write_places(seqs: Mapping[str, int]) -> bytes:
    """Return an id that contains the client's seqs: a JSON object of seqs by topic name, in base64url."""
    return urlsafe_b64encode(msgspec.json.encode(dict(sorted(seqs.items())))).rstrip(b"=")


def read_places(text: str) -> dict[str, int]:
    """Return the seqs by topic name of an id that `write_places` made; empty for any other text.

    A seq that is marked (see `marked`) is negative.
    """
    try:
        found = _SEQS.decode(urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)))
    except (ValueError, binascii.Error, msgspec.DecodeError, RecursionError):
        return {}
    return {name: seq for name, seq in found.items() if -MOST_SEQ <= seq <= MOST_SEQ}


def marked(seq: int) -> int:
    """Return the form in an id of a seq of the present epoch, in a session that began in another one; and back."""
    return -1 - seq


def may_need_checkpoints(names: Iterable[str]) -> bool:
    """Return whether the seqs of topics with these names may become too long for an id."""
    return len(write_places(dict.fromkeys(names, MOST_SEQ))) > ID_BYTES


def read_checkpoint(text: str) -> tuple[str, int, int] | None:
    """Return the session's tag and the numbers of stream and event in the id of a checkpoint; None for another id."""
    found = _CHECKPOINT.fullmatch(text)
    return (found[1], int(found[2]), int(found[3])) if found else None


class Checkpoints:
    """The checkpoints of one stream of the session `tag`. The stream began at the seqs `begun`.

    The newest `MOVES` are exact. An older one leads back to the start of the stream: the client receives records again,
    and misses none.
    """

    def __init__(self, tag: str, stream: int, begun: Mapping[str, int]) -> None:
        self._label = f"{tag}.{stream}".encode()
        self._begun = dict(begun)
        self._base = dict(begun)
        self._names = [*begun]
        self._indexes = {name: index for index, name in enumerate(begun)}
        self._topics = array("H")
        self._seqs = array("q")
        self._count = 0

    @property
    def size(self) -> int:
        """Return the memory in bytes, estimated."""
        return TOPIC_BYTES * len(self._names) + 10 * len(self._seqs)

    def add(self, name: str, seq: int) -> bytes:
        """Add an event that takes the client to a seq of one topic; return the id of its checkpoint."""
        at = self._count % MOVES
        if self._count < MOVES:
            self._topics.append(self._indexes[name])
            self._seqs.append(seq)
        else:
            self._base[self._names[self._topics[at]]] = self._seqs[at]
            self._topics[at], self._seqs[at] = self._indexes[name], seq
        self._count += 1
        return self.last

    @property
    def last(self) -> bytes:
        """Return the id of the newest checkpoint."""
        return b"%b.%d" % (self._label, self._count)

    def places(self, count: int) -> dict[str, int]:
        """Return the client's seqs after this number of events; empty if there were fewer.

        If that checkpoint is no longer kept, they are those at the start of the stream.
        """
        if count > self._count:
            return {}
        oldest = max(0, self._count - MOVES)
        if count < oldest:
            return dict(self._begun)
        moves = [number % MOVES for number in range(oldest, count)]
        return self._base | {self._names[self._topics[at]]: self._seqs[at] for at in moves}
