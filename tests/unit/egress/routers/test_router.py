"""The form of a copy, and which records are copied. Pure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventd.egress.routers.projection import (
    CYCLE_HOPS,
    FAN_IN_HOPS,
    MOST_KEYS,
    CopySource,
    Guarantee,
    Options,
    Router,
    Shape,
    copy_of,
    decode_options,
)
from eventd.log.core.records import parse_record_id, read_body, record_id, write_body
from eventd.log.routers.source import CopyPage, Original

SOURCE = CopySource("orders", 7, 12345, "epoch1")
AT = 1_700_000_000_000_000


def original(
    *, node: str | None = "n", tag: str | None = "t", meta: str | None = None, hops: int = 0, kept: str = ""
) -> Original:
    return Original(41, 9, AT, hops, kept, write_body(node, tag, '{"z":1,"a":[1.50]}', meta))


def shape(**options: Any) -> Shape:
    return Shape.of(Router("r", "orders", "copies", Options(**options)))


def stamped(meta: str | None) -> Any:
    copy = copy_of(original(meta=meta), shape(guarantee=Guarantee.EXACTLY_ONCE), SOURCE)
    told = read_body(copy.body).meta
    assert told is not None
    return json.loads(told)


STAMP = {
    "idempotency_key": f"router:r:7:12345.{AT // 1000}:9",
    "router": "r",
    "source_topic": "orders",
    "source_topic_id": 7,
    "source_epoch": f"12345.{AT // 1000}",
    "source_seq": 9,
}


def test_a_copy_has_the_very_text_of_its_original() -> None:
    copy = copy_of(original(meta='{"m":1}'), shape(), SOURCE)
    assert copy.body is original(meta='{"m":1}').body or copy.body == original(meta='{"m":1}').body
    assert (copy.position, copy.seq, copy.id, copy.path) == (41, 9, "", "1")


def test_a_copy_leaves_out_what_is_not_preserved() -> None:
    bare = read_body(copy_of(original(meta="[1]"), shape(preserve_node=False, preserve_tag=False), SOURCE).body)
    assert (bare.node, bare.tag, bare.data, bare.meta) == (None, None, '{"z":1,"a":[1.50]}', "[1]")
    assert read_body(copy_of(original(), shape(preserve_node=False), SOURCE).body).tag == "t"


def test_a_stamp_joins_the_members_of_meta() -> None:
    assert stamped(None) == {"_topics_router": STAMP}
    assert stamped('{"m":1.50}') == {"m": 1.5, "_topics_router": STAMP}


@pytest.mark.parametrize("meta", ['"text"', "[1,2]", "null", "7", "true"])
def test_a_meta_that_is_no_object_is_wrapped(meta: str) -> None:
    assert stamped(meta) == {"_topics_original_meta": json.loads(meta), "_topics_router": STAMP}


def test_the_key_of_a_copy_outlives_the_history_and_tells_records_of_one_seq_apart() -> None:
    def key(source: CopySource, recorded_at: int) -> str:
        copy = copy_of(original()._replace(recorded_at=recorded_at), shape(guarantee=Guarantee.EXACTLY_ONCE), source)
        return str(json.loads(read_body(copy.body).meta or "")["_topics_router"]["idempotency_key"])

    assert key(SOURCE, AT) == key(SOURCE._replace(epoch="epoch2"), AT)
    assert key(SOURCE, AT) != key(SOURCE, AT + 1000)


def test_a_meta_that_is_full_is_wrapped() -> None:
    full = {f"k{n}": n for n in range(MOST_KEYS)}
    assert stamped(json.dumps(full)) == {"_topics_original_meta": full, "_topics_router": STAMP}
    room = {f"k{n}": n for n in range(MOST_KEYS - 1)}
    assert stamped(json.dumps(room)) == room | {"_topics_router": STAMP}


def test_the_stamp_of_a_router_takes_the_place_of_that_of_the_one_before() -> None:
    before = {f"k{n}": n for n in range(MOST_KEYS - 1)} | {"_topics_router": {"router": "other"}}
    assert stamped(json.dumps(before)) == before | {"_topics_router": STAMP}


def test_an_identity_is_that_of_the_first_record() -> None:
    first = copy_of(original(), shape(fan_in=True), SOURCE)
    assert first.id == record_id(SOURCE.instance, 9, AT)
    assert first.path == f"1 {first.id}"
    second = copy_of(original(hops=1, kept=first.id), shape(fan_in=True), CopySource("copies", 8, 999, "epoch1"))
    assert (second.id, second.path) == (first.id, f"2 {first.id}")
    anew = copy_of(original(hops=1, kept=first.id), shape(), SOURCE)
    assert (anew.id, anew.path) == ("", "2")


@pytest.mark.parametrize(("options", "most"), [({"allow_cycle": True}, CYCLE_HOPS), ({"fan_in": True}, FAN_IN_HOPS)])
def test_a_record_that_has_gone_round_often_enough_is_not_forwarded(options: dict[str, Any], most: int) -> None:
    assert shape(**options).wants(original(hops=most - 1))
    assert not shape(**options).wants(original(hops=most))


def test_where_there_is_no_cycle_hops_do_not_count() -> None:
    assert shape().wants(original(hops=1000))


def test_a_filter_is_about_the_tag() -> None:
    public = shape(filter=("tag", "Glob", "public:*"))
    assert public.wants(original(tag="public:x"))
    assert not public.wants(original(tag="private"))
    assert not public.wants(original(tag=None))
    exact = shape(filter=("tag", "Eq", 'q"\\ü'))
    assert exact.wants(original(tag='q"\\ü'))


def test_routers_that_differ_only_in_their_names_make_the_same_copies() -> None:
    assert Shape.of(Router("r", "a", "b")) == Shape.of(Router("s", "a", "c", Options(allow_cycle=False)))
    once = Options(guarantee=Guarantee.EXACTLY_ONCE)
    assert Shape.of(Router("r", "a", "b", once)) != Shape.of(Router("s", "a", "b", once))


def test_options_are_stored_as_they_were() -> None:
    options = Options(preserve_node=False, filter=("tag", "Eq", "x"), fan_in=True, guarantee=Guarantee.EXACTLY_ONCE)
    assert decode_options(options.encode()) == options
    assert Options().encode() == "{}"


def test_a_cut_knows_which_copies_a_topic_may_have_written() -> None:
    ids = [record_id(5, 1, AT), "an-event", record_id(6, 2, AT)]
    originals = [original(hops=1, kept=kept) for kept in ids]
    cut = CopyPage.of_records([copy_of(each, shape(fan_in=True), SOURCE) for each in originals])
    assert cut.drafts.event_ids == (*ids,)
    assert cut.made_here == {5: {0: parse_record_id(ids[0])}, 6: {2: parse_record_id(ids[2])}}
    assert cut.sizes == [18, 18, 18]
    assert not cut.drafts.own
