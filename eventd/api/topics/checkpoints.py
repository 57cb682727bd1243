"""Ids of the events of a stream: where its client stands in every topic, or a short name for that.

An id comes back in a header, which has a limit. While the places of all topics fit into `ID_BYTES`, the id holds them
and needs no memory here. Beyond that it names a checkpoint: an event of one stream of a session, whose places the
session keeps.
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
"""Bytes of the longest id that holds the places themselves."""
TOPIC_BYTES = 300
"""Memory of the checkpoints of one stream for each topic, by estimate, beside the events."""
MOVES = 8192
"""Events of one stream whose checkpoints are kept: more than the buffers between node and client hold of small ones."""
_CHECKPOINT = re.compile(r"([0-9a-f]{12})\.(\d{1,9})\.(\d{1,15})")
_SEQS = msgspec.json.Decoder(dict[str, int])


def write_places(seqs: Mapping[str, int]) -> bytes:
    """Where a client stands in each of its topics: base64url of a JSON object, by name."""
    return urlsafe_b64encode(msgspec.json.encode(dict(sorted(seqs.items())))).rstrip(b"=")


def read_places(text: str) -> dict[str, int]:
    """What `write_places` wrote; nothing for anything else."""
    try:
        found = _SEQS.decode(urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)))
    except (ValueError, binascii.Error, msgspec.DecodeError, RecursionError):
        return {}
    return {name: seq for name, seq in found.items() if 0 <= seq <= MOST_SEQ}


def may_need_checkpoints(names: Iterable[str]) -> bool:
    """Whether the places of these topics may be too long for an id that holds them."""
    return len(write_places(dict.fromkeys(names, MOST_SEQ))) > ID_BYTES


def read_checkpoint(text: str) -> tuple[str, int, int] | None:
    """The session's tag, the stream and the number of the event that an id names; None for an id of the other form."""
    found = _CHECKPOINT.fullmatch(text)
    return (found[1], int(found[2]), int(found[3])) if found else None


class Checkpoints:
    """The checkpoints of one stream of the session `tag`, which began at the places `begun`.

    The newest `MOVES` are exact. An older one leads back to where the stream began: the client gets records again, and
    misses none.
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
        """Bytes of memory, by estimate."""
        return TOPIC_BYTES * len(self._names) + 10 * len(self._seqs)

    def add(self, name: str, seq: int) -> bytes:
        """The client is sent an event that takes it to a seq of one topic; the id of its checkpoint."""
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
        """The id of the newest checkpoint."""
        return b"%b.%d" % (self._label, self._count)

    def places(self, count: int) -> dict[str, int]:
        """Where the client stood after so many events; nothing where there were not so many."""
        if count > self._count:
            return {}
        oldest = max(0, self._count - MOVES)
        if count < oldest:
            return dict(self._begun)
        moves = [number % MOVES for number in range(oldest, count)]
        return self._base | {self._names[self._topics[at]]: self._seqs[at] for at in moves}
