"""Records cut out of a block as text equal the decoded ones, whatever their parts look like."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from eventd.log.core.blocks import Block, pack
from eventd.log.core.live_records import empty_seqs, live_ranges
from eventd.log.core.records import View, body_of_event, content_size, read_body, render, write_body
from eventd.log.core.values import Drafts
from eventd.log.topics.projection import records_of_events, texts_of
from eventd.testing import NOW, draft

TRICKY = ['","', '"$tag":"', '\\"', "\\", '{"$node":"', "\t", "\n", "é", "\u2028", "a"]
texts = st.lists(st.sampled_from(TRICKY), max_size=4).map("".join)
data = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["$tag", "data", "meta"]), inner),
    max_leaves=4,
)
told = st.tuples(st.none() | texts, st.none() | texts, data, st.none() | data)


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def block_of(told: list[tuple[str | None, str | None, Any, Any]], path: str, position: int) -> Block:
    bodies = [write_body(node, tag, compact(d), None if m is None else compact(m)) for node, tag, d, m in told]
    tags, nodes = (frozenset(one[i] or "" for one in told) for i in (1, 0))
    drafts = Drafts((), [path] * len(bodies), bodies, tags, nodes, None, [*map(content_size, bodies)])
    (block,) = pack(drafts, topic_id=1, position=position, seq=7, now=NOW)
    return block


@given(
    told=st.lists(told, min_size=1, max_size=5),
    path=st.sampled_from(["", "3", '1 id{"$tag":"x",']),
    position=st.sampled_from([1, 8, 98]),
    view=st.builds(View, st.booleans(), st.booleans(), st.booleans(), st.just(False)),
)
@example(told=[(None, "", None, None)], path="", position=1, view=View())
def test_what_is_cut_is_what_decoding_gives(
    told: list[tuple[str | None, str | None, Any, Any]], path: str, position: int, view: View
) -> None:
    block = block_of(told, path, position)
    bodies = block.bodies()
    cut = texts_of(block, range(7, 7 + len(bodies)), bodies, view)
    assert cut == [render(seq, NOW // 1000, body, view) for seq, body in enumerate(bodies, 7)]
    for text, seq, (node, tag, value, meta) in zip(cut, range(7, 12), told, strict=False):
        expected = {"$seq": seq, "$ts": NOW // 1000}
        expected |= {} if node is None else {"$node": node}
        expected |= {} if tag is None or not view.tags else {"$tag": tag}
        expected |= {} if meta is None or not view.meta else {"meta": meta}
        expected |= {"data": value} if view.data else {}
        assert json.loads(text) == expected


@given(told=st.lists(told, min_size=1, max_size=5), path=st.sampled_from(["", "3"]))
@example(told=[("a", None, 1, None), ("a", None, 2, 1), ("ab", None, 3, None), (None, "t", '","data":', 4)], path="")
def test_a_bare_view_is_the_data_as_it_is_stored(
    told: list[tuple[str | None, str | None, Any, Any]], path: str
) -> None:
    block = block_of(told, path, 1)
    bodies = block.bodies()
    cut = texts_of(block, range(7, 7 + len(bodies)), bodies, View(bare=True))
    assert cut == [compact(value) for _, _, value, _ in told]
    assert cut == [render(7, 9, body, View(bare=True)) for body in bodies]


def test_nothing_is_cut_out_of_nothing() -> None:
    assert texts_of(block_of([(None, None, 1, None)], "", 1), range(0), [], View()) == []


def test_events_are_shown_as_records_and_what_has_expired_as_nothing() -> None:
    drafts = [draft("a"), draft("b", expires=NOW), draft("c", expires=NOW + 1, path="b/c")]
    (block,) = pack(Drafts.of(drafts), topic_id=1, position=4, seq=2, now=NOW)
    shown = records_of_events(block, NOW + 1)
    assert empty_seqs(shown) == [3]
    bodies = shown.bodies()
    assert bodies == [body_of_event(drafts[0].body), "", body_of_event(drafts[2].body)]
    assert shown.bytes == sum(map(content_size, bodies))
    assert read_body(bodies[0]).tag == drafts[0].tag
    assert empty_seqs(records_of_events(block, NOW)) == [], "alive to its last microsecond"


def test_what_lives_is_told_in_ranges() -> None:
    first = block_of([(None, None, n, None) for n in range(5)], "", 1)
    rows = first.rows()
    rows[1] = first.empty_row
    first = first.made_of(rows, 0, first.bytes)  # 7, 9, 10, 11
    second = block_of([(None, None, n, None) for n in range(3)], "", 6)._replace(seq=12)  # 12, 13, 14
    third = second._replace(position=9, seq=17)  # 17, 18, 19
    held = [first, second, third]
    assert live_ranges(held, (), 0, 100) == [(7, 7), (9, 14), (17, 19)]
    assert live_ranges(held, {10, 17, 19}, 7, 18) == [(9, 9), (11, 14), (18, 18)]
    assert live_ranges(held, (), 8, 13) == [(9, 13)]
    assert live_ranges(held, (), 14, 16) == []
