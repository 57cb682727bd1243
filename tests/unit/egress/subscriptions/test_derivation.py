"""Events that a run emits: their names, their times, their origin."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eventd.egress.subscriptions.derivation import derive
from eventd.egress.subscriptions.trigger import DERIVED_BY, TriggerEvent
from eventd.egress.subscriptions.window import RunBatch
from eventd.log.core.values import Draft, Record
from eventd.plugins.contract.contract import PluginFailed, Result
from eventd.resources.group_configuration import GroupConfig, effective
from eventd.runtime.clock import SECOND
from eventd.store.rows.registry import StoredResource
from eventd.testing import NOW, event
from tests.support.declared import API_VERSION

FACT = {"type": "lab.seen", "subject": "x", "message": "there", "attributes": {"n": "1"}}


def group() -> GroupConfig:
    spec = {"nodeName": "onprem"}
    fields = {name: None for name in StoredResource.__dataclass_fields__}
    known = {"api_version": API_VERSION, "kind": "EventGroup", "name": "edge", "spec": spec, "annotations": {}}
    return effective([StoredResource(**(fields | known))])["edge"]


def batch(*names: str, chain: str = "") -> RunBatch:
    payload = {DERIVED_BY: chain} if chain else {}
    found = []
    for at, name in enumerate(names, 1):
        said = event(name, payload=payload)
        found.append(TriggerEvent(Record(at, 1, at, "a", "t", "", name, NOW, None, NOW, "", 1, ""), said, True, False))
    return RunBatch.of(0, len(names), found)


def facts(*raw: dict[str, Any], of: RunBatch | None = None, now: int = NOW, by: str = "onprem/s") -> list[Draft]:
    result = Result(observed_at=now, ttl=60 * SECOND, events=raw)
    return derive(result, of or batch("e1"), by, group(), now)


def body(draft: Draft) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(draft.body)
    return found


def test_what_is_said_becomes_a_fact_of_this_node() -> None:
    (made,) = facts(FACT)
    assert (made.node, made.tag, made.expires_at, made.path) == ("onprem", "lab.seen", NOW + 60 * SECOND, "")
    told = body(made)
    assert told["payload"] == {"n": "1", "message": "there", DERIVED_BY: "onprem/s"}
    assert (told["group"], told["subject"], told["dedupeKey"]) == ("edge", "x", made.event_id)


def test_a_payload_goes_before_attributes() -> None:
    (made,) = facts({**FACT, "payload": {"only": "this"}})
    assert body(made)["payload"] == {"only": "this", DERIVED_BY: "onprem/s"}


@pytest.mark.parametrize(
    ("more", "expires"),
    [({"ttl": "5s"}, 5), ({"expiresAt": "2026-11-20T12:00:07Z"}, 7), ({"ttl": "5s", "expiresAt": ""}, 5)],
)
def test_it_may_end_sooner(more: dict[str, str], expires: int) -> None:
    (made,) = facts({**FACT, **more})
    assert made.expires_at == NOW + expires * SECOND


def test_the_same_of_the_same_has_the_same_name_whenever_and_wherever_it_is_said() -> None:
    (first,) = facts(FACT, of=batch("e1", "e2"))
    other, again = facts({**FACT, "subject": "y"}, FACT, of=batch("e2", "e1"), now=NOW + SECOND)
    assert again.event_id == first.event_id
    assert other.event_id != first.event_id


@pytest.mark.parametrize(
    "raw",
    [
        {**FACT, "attributes": {"n": "2"}},
        {**FACT, "message": "gone"},
        {**FACT, "type": "lab.gone"},
        {**FACT, "subject": "y"},
        {**FACT, "dedupeKey": "k"},
    ],
)
def test_something_else_has_another_name(raw: dict[str, Any]) -> None:
    assert facts(raw)[0].event_id != facts(FACT)[0].event_id


def test_names_differ_between_events_subscriptions_and_nodes() -> None:
    names = {
        facts(FACT)[0].event_id,
        facts(FACT, of=batch("e2"))[0].event_id,
        facts(FACT, by="onprem/t")[0].event_id,
        facts(FACT, by="cloud/s")[0].event_id,
    }
    assert len(names) == 4


def test_all_that_led_to_it_is_kept_once() -> None:
    (made,) = facts(FACT, of=batch("e1", "e2", chain="b/x onprem/t"))
    assert body(made)["payload"][DERIVED_BY] == "b/x onprem/t onprem/s"
    (made,) = facts(FACT, of=batch("e1", chain="onprem/s"))
    assert body(made)["payload"][DERIVED_BY] == "onprem/s"


def test_a_plugin_cannot_hide_where_it_comes_from() -> None:
    (made,) = facts({**FACT, "payload": {DERIVED_BY: "nobody"}}, of=batch("e1", chain="b/x"))
    assert body(made)["payload"][DERIVED_BY] == "b/x onprem/s"


@pytest.mark.parametrize(
    "more",
    [
        {"type": ""},
        {"ttl": "soon"},
        {"expiresAt": "tomorrow"},
        {"observedAt": "2026"},
        {"attributes": {"n": 1}},
        {"payload": ["no"]},
        {"id": "x" * 600},
        {"ttl": "100000000h"},
    ],
)
def test_what_cannot_be_stored_names_its_place(more: dict[str, Any]) -> None:
    with pytest.raises(PluginFailed) as caught:
        facts(FACT, {**FACT, **more})
    assert caught.value.reason == "bad_event"
    assert caught.value.message.startswith("status.events[1] cannot be stored: ")
