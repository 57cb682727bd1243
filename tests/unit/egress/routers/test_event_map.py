"""Mapping a record to an event: templates, defaults, and records that become dead letters. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.egress.routers.event_map import RecordFields, check_map, cut_events, fill, render_event
from eventd.egress.routers.projection import EventMap, Options, Router
from eventd.errors import Invalid
from eventd.log.core.records import RecordParts, body_of_event, record_id, write_body
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.values import Head
from eventd.log.routers.source import Original, OriginalPage
from eventd.resources.group_configuration import GroupConfig, effective
from eventd.store.rows.registry import StoredResource
from eventd.testing import NOW, event
from federation.event import decode_canonical, encode
from tests.support.declared import API_VERSION

STORED = RecordParts("n1", "order.made", '{"who":{"name":"ann","age":3},"list":[1]}', '{"k":"v"}')
FIELDS = RecordFields(STORED, "orders", 9, "id-1")


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("plain", "plain"),
        ("${tag}/${node}", "order.made/n1"),
        ("${topic}#${seq} ${id}", "orders#9 id-1"),
        ("${data.who.name}", "ann"),
        ("${data.who.age}", "3"),
        ("${data.who}", '{"name":"ann","age":3}'),
        ("${data.list}", "[1]"),
        ("${data.none.deep}", ""),
        ("${meta.k}", "v"),
        ("${meta}", '{"k":"v"}'),
        ("$${tag} costs $5", "${tag} costs $5"),
    ],
)
def test_a_template_is_filled(template: str, text: str) -> None:
    assert fill(template, FIELDS) == text


def test_what_a_record_does_not_have_is_empty() -> None:
    bare = RecordFields(RecordParts(None, None, "7", None), "t", 1, "i")
    assert fill("${node}|${tag}|${meta}|${meta.k}|${data.k}", bare) == "||||"


def test_without_a_map_an_event_carries_data_and_meta() -> None:
    rendered = render_event(FIELDS, None)
    assert (rendered.type, rendered.subject, rendered.id) == ("order.made", "", "")
    assert rendered.payload == {"data": STORED.data, "meta": STORED.meta}
    assert render_event(RecordFields(RecordParts(None, None, "7", None), "t", 1, "i"), None).type == "topic.record"


@pytest.mark.parametrize("template", ["${nothing}", "${data.}", "${seq.x}", "${}", "cost: $"])
def test_a_template_that_speaks_of_nothing_is_refused(template: str) -> None:
    with pytest.raises(Invalid, match=r"map\.subject"):
        check_map(EventMap(subject=template))
    with pytest.raises(Invalid, match=r"map\.payload\.x"):
        check_map(EventMap(payload={"x": template}))


def test_a_map_that_can_be_filled_is_taken() -> None:
    check_map(EventMap(type="${tag}", subject="$$ ${data.a.b}", id="${topic}-${seq}", payload={"x": "${meta}"}))


def group() -> GroupConfig:
    fields: dict[str, Any] = {name: None for name in StoredResource.__dataclass_fields__}
    spec = {"nodeName": "here"}
    known = {"api_version": API_VERSION, "kind": "EventGroup", "name": "g", "spec": spec, "annotations": {}}
    return effective([StoredResource(**(fields | known))])["g"]


def page(*originals: Original) -> OriginalPage:
    line = TopicRow(3, "orders", "record", next_seq=10, instance=77, durability="disk")
    head = Head(100, "epoch1", 1, 1, 1, 1, "")
    return OriginalPage(line, head, originals, 0, 0, 99, 9, False)


def made(original: Original, **options: Any) -> Any:
    cut = cut_events(page(original), Router("r", "orders", "group:g", Options(**options)), group())
    assert not cut.failures, cut.failures
    return decode_canonical(cut.drafts.bodies[0])


def record(body: str, kept: str = "") -> Original:
    return Original(41, 9, NOW, 0, kept, body)


def test_a_record_becomes_an_event_that_is_the_same_each_time() -> None:
    original = record(write_body("n1", "order.made", '{"a":1}', None))
    first, again = made(original), made(original)
    assert first == again
    assert (first.group, first.source_node, first.type, first.payload) == ("g", "n1", "order.made", {"data": '{"a":1}'})
    assert first.dedupe_key == first.id


def test_without_a_node_this_one_has_said_it() -> None:
    assert made(record(write_body(None, None, "1", None))).source_node == "here"
    assert made(record(write_body("n1", None, "1", None)), preserve_node=False).source_node == "here"


def test_an_identity_becomes_the_id_of_the_event() -> None:
    body = write_body(None, None, "1", None)
    assert made(record(body), fan_in=True).id == record_id(77, 9, NOW)
    assert made(record(body, "kept-id"), fan_in=True).id == "kept-id"


def test_an_event_of_another_group_says_the_same_here() -> None:
    rendered = event("e1", group="other", node="far", type="t", subject="s", payload={"k": "v"}, expires=NOW + 5)
    text = encode(rendered).decode()
    original = Original(41, 9, NOW, 0, "e1", body_of_event(text), text)
    kept = made(original, fan_in=True)
    assert (kept.id, kept.group, kept.source_node, kept.type, kept.subject) == ("e1", "g", "far", "t", "s")
    assert (kept.payload, kept.observed_at, kept.expires_at) == ({"k": "v"}, rendered.observed_at, rendered.expires_at)
    assert made(original).id != "e1"


def test_what_is_no_event_is_set_aside_and_the_rest_goes() -> None:
    bad = Original(40, 8, NOW, 0, "", write_body("x" * 128, None, '"' + "y" * 2_000_000 + '"', None))
    good = record(write_body(None, None, "1", None))
    cut = cut_events(page(bad, good), Router("r", "orders", "group:g"), group())
    assert [(parked.position, parked.reason) for parked in cut.failures] == [(40, "bad_event")]
    assert "over the limit" in cut.failures[0].detail
    assert [*cut.positions] == [41]
    nul = record(write_body("a\x00b", None, "1", None))
    assert cut_events(page(nul), Router("r", "orders", "group:g"), group()).failures[0].reason == "bad_event"
