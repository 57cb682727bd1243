"""The stored form of records: joined and cut as texts, and cutting inverts joining."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.log.core.blocks import weight_of
from eventd.log.core.records import (
    Provenance,
    RecordId,
    RecordParts,
    View,
    body_of_event,
    compact,
    content_size,
    data_begin,
    encoded,
    new_instance,
    node_text,
    parse_record_id,
    read_body,
    read_provenance,
    record_id,
    render,
    tag_of,
    write_body,
    write_provenance,
)
from eventd.testing import NOW

HOSTILE = ['","', '\\","', '"$tag":"x"', '{"$node":"', "\\", '"', "é", "\u2028", "\x00", "\t\n", '"meta":1,"data":']
texts = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=("Cs",)), max_size=20))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(texts, st.sampled_from(["$tag", "$node", "meta", "data"])), inner, max_size=3),
    ),
    max_leaves=8,
).map(lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")))
stored = st.builds(
    RecordParts, st.none() | texts, st.none() | texts, values, st.none() | values.filter(lambda v: v != "null")
)
views = st.builds(View, st.booleans(), st.booleans(), st.booleans(), st.just(False))


def shown(record: RecordParts, view: View) -> dict[str, Any]:
    """What a reader should get besides seq and time, made by decoding."""
    members: dict[str, Any] = {}
    if record.node is not None:
        members["$node"] = record.node
    if view.tags and record.tag is not None:
        members["$tag"] = record.tag
    if view.meta and record.meta is not None:
        members["meta"] = json.loads(record.meta)
    if view.data:
        members["data"] = json.loads(record.data)
    return members


@given(stored, views)
def test_what_is_cut_out_is_what_was_put_together(record: RecordParts, view: View) -> None:
    body = write_body(*record)
    assert read_body(body) == record
    assert "\n" not in body, "a line is one line"
    assert "\t" not in body, "its parts are parted by tabs"
    assert tag_of(body) == record.tag
    assert node_text(body) == ("" if record.node is None else encoded(record.node))
    assert content_size(body) == weight_of(body) == len(record.data.encode()) + len((record.meta or "").encode())
    assert json.loads(render(7, 9, body, view)) == {"$seq": 7, "$ts": 9} | shown(record, view)


@given(stored, st.booleans())
def test_parts_that_are_nested_too_deep_to_decode_are_cut_out(record: RecordParts, in_meta: bool) -> None:
    def deep(text: str) -> str:
        return "[" * 3000 + text + "]" * 3000

    meta = deep(record.meta) if in_meta and record.meta is not None else record.meta
    record = record._replace(data=deep(record.data), meta=meta)
    assert read_body(write_body(*record)) == record


def test_what_was_deleted_weighs_nothing() -> None:
    assert weight_of("") == content_size("") == 0


@given(st.integers(1, 2**38 - 1), st.integers(1, 2**36 - 1), st.integers(0, 2**47 * 1000))
def test_an_id_tells_the_topic_the_seq_and_the_millisecond(instance: int, seq: int, at: int) -> None:
    told = record_id(instance, seq, at)
    assert parse_record_id(told) == RecordId(instance, seq, at // 1000)
    assert (told[14], told[19] in "89ab") == ("7", True), "it is a UUID of version 7"


def test_ids_of_later_records_sort_later() -> None:
    assert record_id(9, 9, NOW) < record_id(1, 1, NOW + 1000)
    assert record_id(1, 9, NOW) < record_id(1, 10, NOW) < record_id(2, 1, NOW)


@pytest.mark.parametrize(
    "text",
    ["", "e1", "01934f2a-6a7b-4fff-bfff-fff0075bcd15", "01934F2A-6A7B-7FFF-BFFF-FFF0075BCD15", "0" * 36, "-" * 36],
)
def test_another_text_is_no_id_of_a_record(text: str) -> None:
    assert parse_record_id(text) is None


def test_an_instance_fits_its_place_and_is_never_nothing() -> None:
    assert new_instance(bytes(8)) == 1
    assert new_instance(b"\xff" * 8) == 2**38 - 1


@pytest.mark.parametrize("text", ['a",', '"",', 'a\\",', "a\\", 'a\\\\","', '","', "plain"])
def test_a_node_or_tag_may_end_with_a_quote_and_a_comma(text: str) -> None:
    body = write_body(text, text, '{"a":1}', "2")
    assert (tag_of(body), json.loads(node_text(body)), body[data_begin(body) : -1]) == (text, text, '{"a":1}')
    assert json.loads(render(1, 2, body, View())) == {"$seq": 1, "$ts": 2, "$node": text, "meta": 2, "data": {"a": 1}}
    assert content_size(body) == len('{"a":1}') + 1


@pytest.mark.parametrize("way", [Provenance(0, ""), Provenance(3, ""), Provenance(1, "e 1"), Provenance(64, "x")])
def test_the_way_of_a_copy_is_read_as_it_was_written(way: Provenance) -> None:
    assert read_provenance("" if way == Provenance(0, "") else write_provenance(way)) == way


def event(payload: dict[str, str], **more: str) -> str:
    fields = {"id": "e1", "group": "g", "sourceNode": "n", "type": "t", "subject": "s", "dedupeKey": "e1"}
    times = {"observedAt": "2026-01-01T00:00:00Z", "expiresAt": "0001-01-01T00:00:00Z"}
    return json.dumps(fields | {"payload": payload} | times | more)


def test_an_event_is_a_record_of_its_source_with_its_payload_and_what_else_is_known_of_it() -> None:
    record = read_body(body_of_event(event({"a": "1"}, expiresAt="2027-01-01T00:00:00Z")))
    assert (record.node, record.tag, json.loads(record.data)) == ("n", "t", {"a": "1"})
    assert json.loads(record.meta or "") == {
        "id": "e1",
        "subject": "s",
        "dedupeKey": "e1",
        "observedAt": "2026-01-01T00:00:00Z",
        "expiresAt": "2027-01-01T00:00:00Z",
    }


def test_a_record_that_went_through_a_group_is_opened_again() -> None:
    record = read_body(body_of_event(event({"data": '{"n": 1}', "meta": "[2]"})))
    assert (record.data, record.meta) == ('{"n":1}', "[2]")
    assert read_body(body_of_event(event({"data": "3"}))).meta is None


def test_a_record_without_a_tag_has_none_after_it_went_through_a_group() -> None:
    assert read_body(body_of_event(event({"data": "3"}, type="topic.record"))).tag is None
    assert read_body(body_of_event(event({"a": "3"}, type="topic.record"))).tag == "topic.record", "it was no record"


@pytest.mark.parametrize("payload", [{"data": "no json"}, {"data": "1", "more": "2"}, {"meta": "1"}, {}])
def test_any_other_payload_is_left_as_it_is(payload: dict[str, str]) -> None:
    assert json.loads(read_body(body_of_event(event(payload))).data) == payload


def test_white_space_goes_and_nothing_else() -> None:
    assert (
        compact('{ "a" : [ 1.50 , 1e400 , 12345678901234567890123 ] }\n')
        == '{"a":[1.50,1e400,12345678901234567890123]}'
    )
    with pytest.raises(ValueError, match="malformed"):
        compact("[1,]")
    with pytest.raises(ValueError, match="recursion"):
        compact("[" * 5000 + "]" * 5000)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (r'"\u00e9\u4e2d"', '"é中"'),
        (r'"\ud83d\ude00"', '"😀"'),
        (r'"\u0000\u001f\u0022\u005c\u000a"', r'"\u0000\u001f\"\\\n"'),
        (r'"\\u00e9 \\\u00e9"', r'"\\u00e9 \\é"'),
        (r'{"\u00e9":["\u0041"]}', '{"é":["A"]}'),
    ],
)
def test_a_character_is_kept_as_itself_however_it_was_written(text: str, kept: str) -> None:
    assert compact(text) == kept
    assert json.loads(compact(text)) == json.loads(text)


def test_half_a_character_is_no_text() -> None:
    with pytest.raises(ValueError, match=r"malformed|truncated"):
        compact(r'"\ud83d x \ude00"')


@given(texts)
def test_escaping_makes_no_difference(text: str) -> None:
    plain = compact(json.dumps(text, ensure_ascii=False))
    assert compact(json.dumps(text)) == plain
    assert json.loads(plain) == text
