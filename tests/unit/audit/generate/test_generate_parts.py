"""The parts of the ledger generator: random numbers that depend on an index, and batches that wait for a peer."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eventd.audit.generate.flows import COMMIT, PendingBatches, common, without
from eventd.audit.generate.pseudo_random import digests, fingerprints, key_of, random_bits, uuids, write_uuids
from eventd.audit.generate.segments import SegmentRange, blocks, divide
from eventd.lake.writer import ROW_GROUP
from eventd.runtime.clock import SECOND
from federation.event import new_event_id

TIMES = st.integers(0, 4_000_000_000 * SECOND)
NUMBERS = st.lists(st.integers(0, 10_000), max_size=50).map(lambda some: np.unique(np.array(some, np.int64)))
DAY = 24 * 3600 * SECOND


@given(st.lists(st.tuples(TIMES, st.integers(0, 2**64 - 1)), min_size=1))
def test_ids_are_those_that_a_node_makes(made: list[tuple[int, int]]) -> None:
    at, random = np.array([time for time, _ in made]), np.array([bits for _, bits in made], np.uint64)
    texts = [bytes(row).decode() for row in write_uuids(uuids(at, random))]
    assert texts == [new_event_id(time, bits.to_bytes(8, "big")) for time, bits in made]


def test_chance_depends_on_the_number_and_on_nothing_beside() -> None:
    key = key_of(7, "events", 3)
    whole = random_bits(key, np.arange(1000))
    assert (random_bits(key, np.arange(400, 500)) == whole[400:500]).all()
    assert len(set(whole.tolist())) == 1000
    assert not (random_bits(key_of(8, "events", 3), np.arange(1000)) == whole).any()


def test_a_digest_begins_with_its_fingerprint() -> None:
    numbers = fingerprints(uuids(np.arange(100), random_bits(1, np.arange(100))))
    assert len(set(numbers.tolist())) == 100
    for digest, number in zip(digests(numbers), numbers.tolist(), strict=True):
        assert bytes(digest)[:8] == number.to_bytes(8, "big", signed=True)


@given(NUMBERS, NUMBERS)
def test_few_of_many_numbers(many: np.ndarray, few: np.ndarray) -> None:
    assert set(common(many, few).tolist()) == set(many.tolist()) & set(few.tolist())
    assert without(many, few).tolist() == sorted(set(many.tolist()) - set(few.tolist()))


@given(st.lists(st.integers(1, 700), min_size=1, max_size=30), st.integers(0, 30), st.integers(0, 30))
def test_what_waits_for_a_peer_goes_in_full_batches(sizes: list[int], begin: int, length: int) -> None:
    """Nothing is lost, nothing is twice, and what became ready before or after goes as it would have."""
    edges = np.append(0, np.cumsum(sizes))
    numbers = np.arange(edges[-1])
    pending = PendingBatches(np.arange(len(sizes)) * SECOND, edges.copy(), np.ones(len(sizes), np.int64))
    pending.hold_back(numbers, begin * SECOND, (begin + length) * SECOND)
    assert (np.diff(pending.edges) > 0).all()
    assert (pending.edges[0], pending.edges[-1]) == (0, edges[-1])
    assert len(pending.ready) == len(pending.attempts) == len(pending.edges) - 1
    held = [at for at in range(len(sizes)) if begin <= at < begin + length]
    waiting = sum(sizes[at] for at in held)
    assert len(pending.ready) == len(sizes) - len(held) + -(-waiting // COMMIT)


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, DAY), st.booleans()), min_size=1, max_size=60),
    st.integers(1, 900),
)
def test_segments_hold_everything_once_and_end_with_the_day(things: list[tuple[int, int, bool]], most: int) -> None:
    rows = np.array([count for count, _, _ in things])
    times = np.cumsum([step for _, step, _ in things])
    turns = np.cumsum([turn for _, _, turn in things]) > len(things) // 2
    cuts = list(divide(rows, times, turns.astype(np.int64), most))
    assert [at for one in cuts for at in range(one.begin, one.end)] == list(range(len(things)))
    for one in cuts:
        some = slice(one.begin, one.end)
        assert len(set((times[some] // DAY).tolist())) == len(set(turns[some].tolist())) == 1
        assert rows[some].sum() <= most or one.end == one.begin + 1


def test_a_segment_is_written_in_row_groups() -> None:
    rows = np.array([ROW_GROUP - 1, 5, 0, 3 * ROW_GROUP, 7])
    made = list(blocks(rows, SegmentRange(0, 5, 0)))
    assert [block.rows for block in made] == [ROW_GROUP] * 4 + [11]
    seen = [
        (int(item), place)
        for block in made
        for item, low, count in zip(block.items, block.low, block.counts, strict=True)
        for place in (int(low), int(low + count - 1))
    ]
    assert seen[:3] == [(0, 0), (0, ROW_GROUP - 2), (1, 0)]
    assert seen[-1] == (4, 6)
