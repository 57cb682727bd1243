"""The books of receipts (what peers signed, kept by who sent) and of inbound batches (kept by who signed)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from eventd.audit.generate import arrays
from eventd.audit.generate.batches import ALGORITHM, Batches, Receipt, evidence, key_id, key_ids, refused_in
from eventd.audit.generate.courses import IN_PATH, Course
from eventd.audit.generate.cutting import cut
from eventd.audit.generate.mixing import Ints
from eventd.audit.generate.numbering import places_of
from eventd.audit.generate.segments import Part, turns_of
from eventd.audit.generate.world import World
from eventd.lake.schema import Book

_AT_ONCE: Final = 65_536
"""Batches of one table: their receipts are long."""


class ReceiptsBook:
    """The receipts that one node keeps. `digests` has what stands for each of them once the parts were written."""

    def __init__(self, world: World, node: int, batches: Batches) -> None:
        self._world, self._node, self._batches = world, node, batches
        self.digests: list[str] = []

    def parts(self) -> Iterator[Part]:
        """The segments of the book."""
        world, sheet = self._world, self._batches.sheet
        times, turns = sheet.at + world.skews[self._node], turns_of(world, self._node, sheet.at)
        for one in cut(np.ones(len(sheet), np.int64), times, turns, _most(world)):
            tables = (self._table(one.turn, *bounds) for bounds in _steps(one.begin, one.end))
            yield Part(Book.RECEIPTS, one.turn, one.begin, one.end, int(times[one.begin]), tables)

    def _table(self, turn: int, begin: int, end: int) -> Any:
        world, node, batches = self._world, self._node, self._batches
        rows, some = end - begin, slice(begin, end)
        moot = batches.column(lambda c: c.moot, np.bool_)[some]
        found = batches.receipts(begin, end, kept=True)
        digests = [receipt.digest if receipt else "" for receipt in found]
        self.digests += digests

        def column(of: Any) -> Ints:
            values: Ints = batches.column(of)[some]
            return values

        sent, recorded = batches.column(lambda c: c.sent)[some], column(lambda c: c.recorded)
        peer, accepted, refused = column(lambda c: c.peer), column(lambda c: c.accepted), column(lambda c: c.refusals)
        keys = np.where(moot, 2 * len(world.names), key_id(world, node, sent))
        signers = key_id(world, 0, recorded) + 2 * peer
        selections, chosen = self._selections(begin, end)
        return arrays.table(
            Book.RECEIPTS,
            _kept(world, node, turn, begin, rows)
            | _range(batches, some)
            | {
                "peer": arrays.words(world.names, peer),
                "batch_id": arrays.words(*arrays.distinct(arrays.texts(batches.ids[some]), moot)).cast(pa.string()),
                "link_epoch": _epochs(batches, some),
                "sent": arrays.small(accepted + refused + column(lambda c: c.known)),
                "accepted": arrays.small(accepted, moot),
                "duplicates": arrays.small(column(lambda c: c.known), moot),
                "refused": arrays.small(refused, moot),
                "peer_upto": arrays.ints(column(lambda c: c.mark), moot),
                "selector_version": arrays.small(column(lambda c: c.version)),
                "selection": arrays.words(selections, chosen),
                "attempts": arrays.small(column(lambda c: c.attempts)),
                "sent_at": arrays.times(sent + world.skews[node]),
                "acked_at": arrays.times(batches.sheet.at[some] + world.skews[node]),
                "peer_recorded_at": arrays.times(recorded + world.skews[peer], moot),
                "status": arrays.tiny(np.where(moot, 0, 200)),
                "protocol": arrays.word("v2", rows),
                "key_id": arrays.words([*key_ids(world), ""], keys),
                "receipt_key_id": arrays.words(key_ids(world), signers, moot),
                "receipt_alg": arrays.words([ALGORITHM], np.zeros(rows, np.int32), moot),
                "receipt_digest": arrays.words(*arrays.distinct(digests, moot)),
                "receipt": pa.array(self._evidence(found, signers, recorded + world.skews[peer]), pa.string()),
                "exceptions": pa.array(self._exceptions(begin, end), pa.string()),
            },
        )

    def _evidence(self, found: list[Receipt | None], signers: Ints, at: Ints) -> list[str]:
        names = key_ids(self._world)
        signed = zip(found, signers.tolist(), at.tolist(), strict=True)
        return [evidence(receipt, names[key], time) if receipt else "" for receipt, key, time in signed]

    def _selections(self, begin: int, end: int) -> tuple[list[str], Ints]:
        """The selections as JSON, and which one each batch was made by."""
        world = self._world
        known: list[str] = []
        codes: dict[tuple[int, int, int], int] = {}
        for link in world.links:
            for version, terms in enumerate(link.terms if link.sender == self._node else (), 1):
                text = json.dumps(terms.selection, separators=(",", ":"))
                known += [] if text in known else [text]
                codes[link.group, link.peer, version] = known.index(text)
        group, peer = self._batches.column(lambda c: c.group), self._batches.column(lambda c: c.peer)
        version = self._batches.column(lambda c: c.version)
        picked = zip(group[begin:end].tolist(), peer[begin:end].tolist(), version[begin:end].tolist(), strict=True)
        return known, np.array([codes[one] for one in picked], np.int64)

    def _exceptions(self, begin: int, end: int) -> list[str]:
        """What each range passed over."""
        batches, sheet = self._batches, self._batches.sheet
        lines = batches.column(lambda c: np.diff(c.row_at))
        told = batches.column(lambda c: c.accepted + c.known)
        found = ["[]"] * (end - begin)
        for at in (begin + np.flatnonzero((lines != told)[begin:end])).tolist():
            course = self._world.courses[int(sheet.course[at])]
            found[at - begin] = _left_out(self._world, course, int(sheet.batch[at]))
        return found


class InboundBook:
    """The batches that one node answered."""

    def __init__(self, world: World, node: int, batches: Batches) -> None:
        self._world, self._node, self._batches = world, node, batches

    def parts(self) -> Iterator[Part]:
        """The segments of the book."""
        world, sheet = self._world, self._batches.sheet
        times, turns = sheet.at + world.skews[self._node], turns_of(world, self._node, sheet.at)
        for one in cut(np.ones(len(sheet), np.int64), times, turns, _most(world)):
            tables = (self._table(one.turn, *bounds) for bounds in _steps(one.begin, one.end))
            yield Part(Book.INBOUND, one.turn, one.begin, one.end, int(times[one.begin]), tables)

    def _table(self, turn: int, begin: int, end: int) -> Any:
        world, node, batches = self._world, self._node, self._batches
        rows, some = end - begin, slice(begin, end)
        found = [receipt for receipt in batches.receipts(begin, end, kept=False) if receipt]
        sender, sent = batches.column(lambda c: c.sender)[some], batches.column(lambda c: c.sent)[some]
        repair = batches.column(lambda c: c.repair, np.bool_)[some]
        counts = {
            "accepted": batches.column(lambda c: c.accepted),
            "duplicates": batches.column(lambda c: c.known),
            "refused": batches.column(lambda c: c.refusals),
        }
        ranges = {
            "after": batches.column(lambda c: c.after)[some],
            "upto": batches.column(lambda c: c.upto)[some],
        }
        return arrays.table(
            Book.INBOUND,
            _kept(world, node, turn, begin, rows)
            | _range(batches, some)
            | {name: arrays.small(values[some]) for name, values in counts.items()}
            | {name: arrays.ints(np.where(repair, 0, values)) for name, values in ranges.items()}  # it claims none
            | {
                "peer": arrays.words(world.names, sender),
                "batch_id": arrays.texts(batches.ids[some]),
                "link_epoch": _epochs(batches, some),
                "key_id": arrays.words(key_ids(world), key_id(world, 0, sent) + 2 * sender),
                "body_digest": arrays.words([f"sha-256=:{one.content}:" for one in found], np.arange(rows)),
                "recorded_at": arrays.times(batches.sheet.at[some] + world.skews[node]),
                "receipt": pa.array([one.body for one in found], pa.string()),
                "receipt_digest": arrays.words([one.digest for one in found], np.arange(rows)),
            },
        )


def _kept(world: World, node: int, turn: int, begin: int, rows: int) -> dict[str, Any]:
    return {
        "number": arrays.ints(np.arange(begin + 1, begin + rows + 1)),
        "node": arrays.word(world.names[node], rows),
        "epoch": arrays.word(world.epoch(node, turn), rows),
    }


def _range(batches: Batches, some: slice) -> dict[str, Any]:
    groups = batches.column(lambda c: c.group)[some]
    return {
        "group": arrays.words(batches.world.groups, groups),
        "incarnation": arrays.ints(np.zeros(len(groups), np.int64)),
        "after": arrays.ints(batches.column(lambda c: c.after)[some]),
        "upto": arrays.ints(batches.column(lambda c: c.upto)[some]),
        "repair": arrays.flags(batches.column(lambda c: c.repair, np.bool_)[some]),
    }


def _epochs(batches: Batches, some: slice) -> Any:
    """The epoch of each batch's sender when it was sent."""
    world = batches.world
    names = [world.epoch(node, turn) for node in range(len(world.names)) for turn in (0, 1)]
    return arrays.words(names, batches.column(lambda c: 2 * c.sender + turns_of(world, c.sender, c.sent))[some])


def _left_out(world: World, course: Course, batch: int) -> str:
    low, high = course.row_at[batch : batch + 2]
    numbers = course.rows[low:high]
    expired = numbers[np.isin(numbers, world.histories[course.source].soon)]
    passed = numbers if course.outcome == IN_PATH else numbers[:0]
    found = [(position, "refused") for position, _ in refused_in(world, course, batch)]
    for some, reason in ((expired, "expired"), (passed, IN_PATH)):
        found += [(position, reason) for position in places_of(world, course, some).position.tolist()]
    return json.dumps(sorted(found), separators=(",", ":"))


def _most(world: World) -> int:
    return max(1, world.segment_rows // 20)


def _steps(begin: int, end: int) -> Iterator[tuple[int, int]]:
    for at in range(begin, end, _AT_ONCE):
        yield at, min(end, at + _AT_ONCE)
