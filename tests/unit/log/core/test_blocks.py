"""Blocks: decoding returns the encoded records, however they are divided."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.log.core import blocks
from eventd.log.core.blocks import Block, names, pack, unpack
from eventd.log.core.values import Draft, Drafts
from eventd.testing import NOW, draft
from federation.lines import size_of

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
facts = st.builds(
    lambda number, node, type, subject, life, value: draft(
        f"e{number}",
        node=node,
        type=type,
        subject=subject.strip(),
        expires=None if life is None else NOW + life,
        payload={"k": value},
    ),
    st.integers(0, 99),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["t.up", "t.down"]),
    texts,
    st.none() | st.integers(-5, 5),
    texts,
)


def packed(drafts: list[Draft]) -> list[Block]:
    return [*pack(Drafts.of(drafts), topic_id=7, position=101, seq=11, now=NOW)]


@given(st.lists(facts, min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 2000))
def test_what_was_packed_is_unpacked(drafts: list[Draft], records: int, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_RECORDS", records)
        patch.setattr(blocks, "BLOCK_BYTES", size)
        made = packed(drafts)
    found = [record for block in made for record in unpack(block)]
    assert [(r.event_id, r.node, r.tag, r.expires_at, r.path, r.body) for r in found] == drafts
    assert [(r.position, r.seq) for r in found] == [(101 + n, 11 + n) for n in range(len(drafts))]
    assert {(r.topic_id, r.recorded_at, r.ts) for r in found} == {(7, NOW, NOW)}
    assert [r.size for r in found] == [size_of(d.body) for d in drafts]
    for block in made:
        bodies = [r.body for r in unpack(block)]
        assert len(bodies) == block.records <= records
        assert block.bytes == sum(map(size_of, bodies))
        assert len(bodies) == 1 or sum(map(len, bodies)) <= size, "a block is small, unless one record is not"


@given(st.lists(facts, min_size=1, max_size=12))
def test_a_block_tells_at_least_what_is_in_it(drafts: list[Draft]) -> None:
    (block,) = packed(drafts)
    types, sources = names(block.types), names(block.sources)
    assert types is not None
    assert sources is not None
    assert {d.tag for d in drafts} <= types
    assert {d.node for d in drafts} <= sources
    assert names(block.paths) == {""}
    expiries = [d.expires_at for d in drafts if d.expires_at is not None]
    assert block.expires_first == min(expiries, default=None)


def test_a_block_of_many_types_does_not_name_them() -> None:
    (block,) = packed([draft(f"e{n}", type=f"t{n}") for n in range(blocks.MOST_NAMES + 1)])
    assert (block.types, names(block.types)) == ("", None)
    (block,) = packed([draft(f"e{n}", type=f"t{n}") for n in range(blocks.MOST_NAMES)])
    assert len(names(block.types) or ()) == blocks.MOST_NAMES


@given(st.lists(facts, min_size=1, max_size=12), st.integers(98, 115), st.integers(98, 115))
def test_a_part_of_a_block_holds_the_records_of_that_range(drafts: list[Draft], after: int, until: int) -> None:
    (block,) = packed(drafts)
    part = block.within(after, until)
    expected = [record for record in unpack(block) if after < record.position <= until]
    if part is None:
        assert expected == []
    else:
        assert unpack(part) == expected
        assert (part.position, part.last, part.records) == (
            expected[0].position, expected[-1].position, len(expected),
        )  # fmt: skip
        assert part.bytes == sum(record.size for record in expected)


@given(st.lists(facts, min_size=1, max_size=12), st.integers(0, 14), st.integers(0, 4000))
def test_as_many_fit_as_the_budget_allows(drafts: list[Draft], records: int, size: int) -> None:
    (block,) = packed(drafts)
    fitting = block.fitting(records, size)
    bodies = [size_of(d.body) for d in drafts]
    assert fitting <= records
    assert sum(bodies[:fitting]) <= size
    assert fitting == min(records, len(bodies)) or sum(bodies[: fitting + 1]) > size


def test_drafts_of_two_kinds_are_told_apart_in_order() -> None:
    drafts = [draft("a"), draft("b"), draft("c", path="x"), draft("d", path="y"), draft("e")]
    parts = [*Drafts.of(drafts).of_one_kind()]
    assert [(part.own, [*part.event_ids]) for part in parts] == [
        (True, ["a", "b"]),
        (False, ["c", "d"]),
        (True, ["e"]),
    ]
    assert [*Drafts.joined(parts).event_ids] == ["a", "b", "c", "d", "e"]
    whole = Drafts.of(drafts[:2])
    assert [*whole.of_one_kind()] == [whole]
