"""A page in its wire form: the stored events of the log, each with its position and its path.

If the columns of a block prove that all of it may be sent, or none of it, its records are not decoded; otherwise they
are checked one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, repeat
from typing import NamedTuple, Protocol

from eventd.log.core.blocks import Block, names, unpack
from eventd.log.core.pages import LOOKED_AT, PASSED_OVER, PageRange, cost_of, read_page_range
from eventd.log.core.scan import scan
from eventd.log.core.values import Gap, Head, Record
from eventd.store.engine.database import Connection
from federation.event import is_alive
from federation.lines import encode_lines
from federation.loops import decode_path, may_send
from federation.peers import BATCH_TYPE, RUNS_TYPE
from federation.runs import Run

WORTH_A_RUN = 16
"""A page is sent as runs if the runs have at least this many records on average; otherwise lines are cheaper to
read."""


class RecordSelection(Protocol):
    """Interface: decides which records are meant for a peer, regardless of what keeps them from being sent."""

    @property
    def relay(self) -> bool:
        """Return whether records that entered the log from other nodes are also meant for the peer."""
        ...

    def matches(self, record: Record) -> bool:
        """Return whether the record is meant for the peer.

        It may still be withheld, because it has expired or its path names the peer.
        """
        ...

    def settles(self, block: Block) -> bool | None:
        """Return True if all of a block's records are meant for the peer, False if none is; None: check each one."""
        ...


@dataclass(frozen=True, slots=True)
class PeerFilter:
    """The records to send to a peer: those of a selection, except expired ones and those whose path names the peer.

    `runs`: the peer also accepts the compact form of `federation.runs`.
    """

    peer: str
    selection: RecordSelection
    runs: bool = False

    @property
    def own(self) -> bool:
        """Return whether only records that entered the log here can be meant."""
        return not self.selection.relay

    def settles(self, block: Block, now: int) -> bool | None:
        """Return True if all of a block's records are to be sent, False if none is, None if it must be decoded."""
        meant = self.selection.settles(block)
        return meant if meant is False or self._nothing_hinders(block, now) else None

    def _nothing_hinders(self, block: Block, now: int) -> bool:
        """Return whether the columns prove that no record of the block has expired or has been at the peer."""
        sources, paths = names(block.sources), names(block.paths)
        return (
            is_alive(block.expires_first, now)
            and sources is not None
            and paths is not None
            and self.peer not in sources
            and not any(self.peer in decode_path(path) for path in paths)
        )

    def hindrance(self, record: Record, now: int) -> str:
        """Return why a record that is meant for the peer must not be sent: `expired` or `in_path`; empty if it may."""
        if not is_alive(record.expires_at, now):
            return "expired"
        return may_send(decode_path(record.path), record.node, self.peer, relay=True) or ""

    def waits(self, record: Record, now: int) -> bool:
        """Return whether a record is meant for the peer and may be sent."""
        return self.selection.matches(record) and not self.hindrance(record, now)


class PageLeaf(NamedTuple):
    """From `position` on, the records of a page have the leaves from index `leaf` on of a tree of this node.

    With leaf 0, they have none. `tree` is its number in the database.
    """

    position: int
    leaf: int
    tree: int


@dataclass(frozen=True, slots=True)
class WirePage:
    """A page for a peer: `body` is that of a v2 batch of `count` events, and `form` its content type.

    `exceptions` are the positions of records that are meant for the peer but must not be sent, each with the reason;
    `oldest` is when the oldest event of the body was recorded, in microseconds, 0 without events. Everything up to the
    position `upto` was read; the page is `full` if a limit ended it, and there may be more. For `gaps` and
    `lost_position` see `PageRange`. `leaves`: one for each place where leaves stop running with positions; `hints`:
    these as they are sent.
    """

    body: bytes
    form: str
    count: int
    oldest: int
    exceptions: Sequence[tuple[int, str]]
    gaps: Sequence[Gap]
    upto: int
    full: bool
    head: Head
    lost_position: int
    leaves: Sequence[PageLeaf] = ()
    hints: str = ""

    def without_lines(self) -> WirePage:
        """Return the page without events to send."""
        return replace(self, body=b"", form=BATCH_TYPE, count=0, oldest=0)

    def unread(self, after: int) -> WirePage:
        """Return an empty page that ends at the position `after`; it is `full`, so that the reader continues there.

        It claims nothing: the page that is read next shows the gaps and losses.
        """
        return replace(self.without_lines(), exceptions=(), gaps=(), lost_position=0, upto=after, full=True)


def read_wire_page(
    conn: Connection,
    topic_id: int,
    after: int,
    wanted: PeerFilter,
    *,
    limit: int,
    max_bytes: int,
    until: int | None,
    now: int,
) -> WirePage:
    """Return a page for a peer of the positions in `(after, until]` of a topic; `until` None: up to the head.

    A page has at most `limit` records, `exceptions` included, and `max_bytes` of bodies, which the first record may
    exceed. A selective reader's page ends after a number of examined records; it may then be empty, but is `full`, so
    that the reader continues.
    """
    ahead = read_page_range(conn, topic_id, after, until)
    found = scan(conn, topic_id, after, ahead.end, own=wanted.own)
    return fill_wire_page(found, ahead, wanted, limit=limit, max_bytes=max_bytes, now=now)


def fill_wire_page(
    blocks: Iterable[Block], ahead: PageRange, wanted: PeerFilter, *, limit: int, max_bytes: int, now: int
) -> WirePage:
    """Return a page of the given blocks, up to its limits; for these see `read_wire_page`."""
    sheet = _PageBuilder(wanted, limit, max_bytes, now)
    upto, full = ahead.end, False
    for block in blocks:
        sheet.take(block)
        if sheet.is_full:
            upto, full = sheet.upto, True
            break
    body, form = sheet.body()
    found, leaves = sheet.exceptions, sheet.leaves
    return WirePage(
        body, form, sheet.count, sheet.oldest, found, ahead.gaps, upto, full, ahead.head, ahead.lost_position, leaves
    )


@dataclass(slots=True)
class _Run:
    """Consecutive records that came by one path. `texts`: their bodies, each followed by a line break."""

    position: int
    path: str
    records: int
    texts: list[str]

    def lines(self) -> str:
        bodies = "".join(self.texts).split("\n")[:-1]
        return encode_lines(zip(count(self.position), repeat(self.path), bodies, strict=False))

    def run(self) -> bytes:
        return Run(self.position, self.records, self.path, "".join(self.texts).encode()).encode()


@dataclass(slots=True)
class _PageBuilder:
    """Builds a page, block by block."""

    wanted: PeerFilter
    limit: int
    max_bytes: int
    now: int
    runs: list[_Run] = field(default_factory=list)
    count: int = 0
    oldest: int = 0
    exceptions: list[tuple[int, str]] = field(default_factory=list)
    upto: int = 0
    size: int = 0
    looked: int = 0
    is_full: bool = False
    leaves: list[PageLeaf] = field(default_factory=list)
    run: tuple[int, int] = (0, 0)

    @property
    def found(self) -> int:
        return self.count + len(self.exceptions)

    def body(self) -> tuple[bytes, str]:
        """Return the body and its content type: runs if the peer accepts them and they are long enough, else lines."""
        if self.wanted.runs and self.count >= WORTH_A_RUN * len(self.runs) > 0:
            return b"".join([run.run() for run in self.runs]), RUNS_TYPE
        return "".join([run.lines() for run in self.runs]).encode(), BATCH_TYPE

    def take(self, block: Block) -> None:
        """Add the wanted records of the block, until the page is full."""
        answer = self.wanted.settles(block, self.now)
        if answer:
            self._take_whole(block)
        elif answer is None:
            self.looked += cost_of(block)
            self._take_singly(block)
        else:
            self.looked += PASSED_OVER
        if not self.is_full:
            self.upto = block.last
            self.is_full = self.found == self.limit or self.looked >= LOOKED_AT

    def _take_whole(self, block: Block) -> None:
        room = block.fitting(self.limit - self.found, self.max_bytes - self.size) or int(not self.found)
        part = block.within(block.position - 1, block.position + room - 1)
        if part is not None:
            self._add_block(part)
            self.upto = part.last
        self.is_full = room < block.records

    def _take_singly(self, block: Block) -> None:
        for record in unpack(block):
            if not self.wanted.selection.matches(record):
                continue
            if self.found and (self.found == self.limit or self.size + record.size > self.max_bytes):
                self.is_full = True
                return
            self.upto = record.position
            if reason := self.wanted.hindrance(record, self.now):
                self.exceptions.append((record.position, reason))
                self.size += record.size
            else:
                self._add(record.position, record.path, 1, f"{record.body}\n")
                self._note_leaf(record.position, block)
                self._count(1, record.size, record.recorded_at)

    def _add_block(self, block: Block) -> None:
        self._note_leaf(block.position, block)
        if block.path is not None:
            self._add(block.position, block.path, block.records, block.text)
        else:
            for position, (path, body) in enumerate(block.entries(), block.position):
                self._add(position, path, 1, f"{body}\n")
        self._count(block.records, block.bytes, block.recorded_at)

    def _add(self, position: int, path: str, records: int, text: str) -> None:
        last = self.runs[-1] if self.runs else None
        if last is not None and last.path == path and last.position + last.records == position:
            last.records += records
            last.texts.append(text)
        else:
            self.runs.append(_Run(position, path, records, [text]))

    def _note_leaf(self, position: int, block: Block) -> None:
        """Note the leaf of a record of the block, unless it follows from that of the record before."""
        shift = 0 if block.leaf is None else block.leaf - block.position
        run = (0, 0) if block.tree is None else (block.tree, shift)
        if run != self.run:
            self.run = run
            self.leaves.append(PageLeaf(position, position + shift if run[0] else 0, run[0]))

    def _count(self, records: int, size: int, recorded_at: int) -> None:
        self.count += records
        self.size += size
        self.oldest = min(self.oldest or recorded_at, recorded_at)
