"""Blocks contain the same records, whether built from single bodies or from joined texts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.log.core import blocks
from eventd.log.core.blocks import BLOCK_BYTES, BLOCK_RECORDS, Block, pack
from eventd.log.core.values import Drafts
from federation.lines import Bodies, BodyRun

bodies = st.text('{}"é 1', min_size=1, max_size=12).map(lambda text: f'{{"id":{text}')


def piecewise(texts: list[str], cuts: list[int]) -> Bodies:
    """The texts in pieces of so many, again and again."""
    pieces, at, turn = [], 0, 0
    while at < len(texts):
        part = texts[at : at + cuts[turn % len(cuts)]]
        pieces.append(BodyRun("".join(f"{text}\n" for text in part), len(part)))
        at, turn = at + len(part), turn + 1
    return Bodies(pieces)


def packed(ways: list[str], held: list[str] | Bodies) -> list[Block]:
    drafts = Drafts((), ways, held, frozenset(["t"]), frozenset(["a"]))
    return [*pack(drafts, topic_id=1, position=7, seq=3, now=5)]


@given(st.data())
def test_a_block_has_the_facts_it_was_made_of(data: st.DataObject) -> None:
    texts = data.draw(st.lists(bodies, min_size=1, max_size=30))
    one = data.draw(st.booleans())
    ways = (
        ["a"] * len(texts)
        if one
        else data.draw(st.lists(st.sampled_from(["a", "b,c"]), min_size=len(texts), max_size=len(texts)))
    )
    whole = piecewise(texts, data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    assert (list(whole), len(whole), whole.bytes) == (texts, len(texts), sum(len(text.encode()) for text in texts))
    for held in (texts, whole):
        [block] = packed(ways, held)
        assert [*block.entries()] == [*zip(ways, texts, strict=True)]
        assert (block.position, block.last, block.seq, block.records) == (7, 6 + len(texts), 3, len(texts))
        assert block.bytes == sum(len(text.encode()) for text in texts)
        assert block.bodies() == texts
        assert block.text.count("\n") == len(texts)
        first, last = sorted(data.draw(st.tuples(st.integers(6, 40), st.integers(6, 40))))
        part = block.within(first, last)
        inside = range(max(7, first + 1), min(block.last, last) + 1)
        assert (part is None) == (not inside)
        if part is not None:
            assert [*part.entries()] == [*zip(ways, texts, strict=True)][inside.start - 7 : inside.stop - 7]
            assert (part.position, part.seq, part.records) == (inside.start, inside.start - 4, len(inside))
            assert part.bytes == sum(len(texts[at - 7].encode()) for at in inside)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(2, 8), st.integers(20, 60))
def test_pieces_are_put_together_as_long_as_a_block_has_room(sizes: list[int], records: int, size: int) -> None:
    texts = ["x" * length for length in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_RECORDS", records)
        patch.setattr(blocks, "BLOCK_BYTES", size)
        made = packed(["a"] * len(texts), piecewise(texts, [1, 2]))
    assert [body for block in made for body in block.bodies()] == texts
    assert [block.position for block in made] == [7 + sum(b.records for b in made[:at]) for at in range(len(made))]
    assert all(block.records <= records and len(block.text) <= size for block in made)
    for one, other in pairwise(made):
        begins = other.bodies()[0:2]
        room = one.records + len(begins) <= records and len(one.text) + sum(map(len, begins)) + len(begins) <= size
        assert not room, "the next piece would have fitted in"


def test_what_is_too_large_for_a_block_is_one_of_its_own() -> None:
    large = '{"id":' + "x" * BLOCK_BYTES
    assert [block.bodies() for block in packed(["a"] * 3, piecewise(["1", large, "2"], [3]))] == [["1"], [large], ["2"]]
    many = ["1"] * (BLOCK_RECORDS + 1)
    assert [block.records for block in packed(["a"] * len(many), piecewise(many, [len(many)]))] == [BLOCK_RECORDS, 1]


def test_a_record_that_is_gone_leaves_its_line() -> None:
    for ways in (["a"] * 3, ["a", "b", "a"]):
        [block] = packed(ways, ["1", "2", "3"])
        assert not block.has_empty
        for gone in range(3):
            rows = block.rows()
            rows[gone] = block.empty_row
            left = block.made_of(rows, 0, 2)
            assert left.has_empty
            assert [at for at, body in enumerate(left.bodies()) if not body] == [gone]
            assert left.records == 3
