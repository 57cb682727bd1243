"""The digests of events are computed again from the columns of their rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from eventd.audit.arrays.columns import Columns
from eventd.audit.report.findings import (
    OTHER_DIGEST,
    OTHER_FINGERPRINT,
    Discrepancy,
    DiscrepancyKey,
    Evidence,
    Kind,
    unnamed_findings,
)
from eventd.audit.segments import event_digests
from eventd.audit.segments.event_digests import (
    AlteredCount,
    DigestResult,
    check_digests,
    digest_discrepancies,
    unnamed_alterations,
)
from eventd.lake.schema import Ledger, arrow_schema
from federation.digest import digest, fingerprint
from federation.event import UNSET, Event, encode, expiry_micros, micros

WRONG = (Kind.ALTERED, "g", "a")
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
EVENTS = [
    Event(id="e1", group="g", source_node="a", type="t", dedupe_key="e1", observed_at=NOON),
    Event(id="e2", group="g", source_node="a", type="t", dedupe_key="k", payload={"m": "1"}, observed_at=NOON),
    Event(
        id='e"3\\',
        group="größe",
        source_node="",
        type="t\n",
        subject="s\u2028\x7f",
        dedupe_key='e"3\\',
        payload={"ä": '"', "b": ""},
        observed_at=NOON.replace(microsecond=7),
        expires_at=NOON.replace(year=2027, microsecond=120_000),
    ),
]


def row(event: Event, **more: Any) -> dict[str, Any]:
    text = encode(event)
    known = {"node": "a", "epoch": "e", "group": event.group, "id": event.id, "source": event.source_node}
    known |= {"type": event.type, "subject": event.subject, "path": "", "own": True, "number": 1, "position": 1}
    times = {"event_at": micros(event.observed_at), "expires_at": expiry_micros(event), "recorded_at": 0}
    content = {"bytes": len(text), "fingerprint": fingerprint(text), "digest": digest(text), "seq": 7}
    key = event.dedupe_key if event.dedupe_key != event.id else None
    payload = msgspec.json.encode(event.payload, order="deterministic").decode()
    return {**known, **times, **content, "payload": payload, "dedupe_key": key, **more}


def columns(*rows: dict[str, Any]) -> Columns:
    schema = arrow_schema(Ledger.EVENTS)
    arrays = []
    for field in schema:
        plain = pa.string() if pa.types.is_dictionary(field.type) else field.type
        arrays.append(pa.array([each.get(field.name) for each in rows], plain).cast(field.type))
    return Columns(pa.Table.from_arrays(arrays, schema=schema))


def test_rows_that_are_what_their_digests_say_are_in_order() -> None:
    assert EVENTS[0].expires_at == UNSET
    result = check_digests(columns(*map(row, EVENTS)), 100)
    assert (result.checked, result.altered) == (3, [])


@pytest.mark.parametrize(
    "change",
    [
        {"subject": "x"},
        {"type": "x"},
        {"payload": '{"m":"2"}'},
        {"dedupe_key": "x"},
        {"expires_at": 5},
        {"event_at": 5},
        {"id": "x"},
        {"source": "b"},
        {"group": "h"},
        {"digest": digest("x"), "fingerprint": fingerprint("x")},
    ],
)
@pytest.mark.parametrize("event", EVENTS, ids=["plain", "payload", "special"])
def test_a_row_with_another_content_than_its_digest_says_is_altered(event: Event, change: dict[str, Any]) -> None:
    result = check_digests(columns(row(EVENTS[0], id="other"), row(event, **change)), 100)
    assert [(one.id, one.reason) for one in result.altered][1:] == [(change.get("id", event.id), OTHER_DIGEST)]


def test_a_fingerprint_that_is_not_the_beginning_of_its_digest_is_altered_also_without_a_payload() -> None:
    (altered,) = check_digests(columns(row(EVENTS[0], payload=None, fingerprint=9), row(EVENTS[1])), 0).altered
    assert (altered.id, altered.seq, altered.fingerprint, altered.reason) == ("e1", 7, 9, OTHER_FINGERPRINT)
    assert altered.computed == fingerprint(encode(EVENTS[0]))


def test_without_a_payload_or_a_recorded_dedupe_key_no_content_is_compared() -> None:
    rows = columns(row(EVENTS[0], payload=None, subject="x"), row(EVENTS[1], dedupe_key="", subject="x"))
    assert check_digests(rows, 100).checked == 0


def test_a_share_of_the_events_has_the_same_events_at_each_node() -> None:
    rows = [row(msgspec.structs.replace(EVENTS[0], id=f"e{n}", dedupe_key=f"e{n}")) for n in range(400)]
    changed = [each | {"subject": "x"} for each in rows]
    one = check_digests(columns(*changed), 25)
    other = check_digests(columns(*reversed(changed)), 25)
    assert 50 < one.checked < 150
    assert {each.id for each in one.altered} == {each.id for each in other.altered}
    assert len(one.altered) == one.checked


def test_of_many_altered_rows_the_first_are_named_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_digests, "MOST_ALTERED", 3)
    rows = [row(msgspec.structs.replace(EVENTS[0], id=f"e{n}", dedupe_key=f"e{n}")) for n in range(20)]
    changed = [each | ({"subject": "x"} if n % 2 else {"fingerprint": 9}) for n, each in enumerate(rows[:15])]
    result = check_digests(columns(*changed, *rows[15:]), 100)
    assert [(one.id, one.reason) for one in result.altered] == [
        ("e0", OTHER_FINGERPRINT),
        ("e1", OTHER_DIGEST),
        ("e2", OTHER_FINGERPRINT),
    ]
    assert {(one.group, one.source, one.reason): one.rows for one in result.more} == {
        ("g", "a", OTHER_FINGERPRINT): 6,
        ("g", "a", OTHER_DIGEST): 6,
    }


def test_altered_rows_that_are_counted_only_are_a_finding_with_their_number() -> None:
    result = DigestResult(9, [], [AlteredCount("g", "a", OTHER_DIGEST, 7)])
    own, peers = DiscrepancyKey(*WRONG, "", OTHER_DIGEST), DiscrepancyKey(*WRONG, "b", OTHER_DIGEST)
    counts = unnamed_alterations([("a", result), ("b", result), ("b", result)], {}, [])
    assert counts == {own: 7, peers: 14}
    findings = unnamed_findings(counts)
    assert [(one.peer, one.ids, one.events) for one in findings] == [("", (), 7), ("b", (), 14)]
    assert {one.detail for one in findings} == {f"{OTHER_DIGEST}; more than are listed"}


def test_rows_that_the_comparison_has_counted_only_are_not_counted_again() -> None:
    more = [AlteredCount("g", "a", reason, 4) for reason in (OTHER_DIGEST, OTHER_FINGERPRINT)]
    result, detail = DigestResult(9, [], more), "differs in digest"
    compared = {DiscrepancyKey(*WRONG, "b", detail): 5, DiscrepancyKey(*WRONG, "c", detail): 1}
    assert sum(unnamed_alterations([("b", result)], compared, []).values()) == 3
    assert sum(unnamed_alterations([("a", result)], compared, []).values()) == 3
    assert unnamed_alterations([("b", result)], {DiscrepancyKey(*WRONG, "b", "x"): 99}, []) == {}


@pytest.mark.parametrize("node", ["a", "b"])
def test_rows_that_the_comparison_names_and_the_check_counts_only_are_not_counted_again(
    node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_digests, "MOST_ALTERED", 2)
    rows = [row(EVENTS[1], subject="x", id=f"e{n}") for n in range(5)]
    result = check_digests(columns(*rows), 100)
    compared = [Discrepancy(Kind.ALTERED, "g", "a", "b", 7, f"e{n}") for n in range(4)]
    named = list(digest_discrepancies([(node, result)], compared))
    counted = unnamed_alterations([(node, result)], {}, compared)
    assert len(compared) + len(named) + sum(counted.values()) == len(rows)


def test_an_altered_row_is_reported_once_and_with_the_node_that_keeps_it() -> None:
    result = check_digests(columns(row(EVENTS[1], subject="x")), 100)
    (own,) = digest_discrepancies([("a", result)], [])
    (peers,) = digest_discrepancies([("b", result)], [])
    assert (own.kind, own.source, own.peer, own.seq, own.id) == (Kind.ALTERED, "a", "", 7, "e2")
    assert (peers.peer, peers.seq) == ("b", 0)
    assert own.evidence.values[0].startswith(f"fingerprint: {own.evidence.fingerprints[0]} in the row of a, ")
    compared = Discrepancy(Kind.ALTERED, "g", "a", "b", 7, "e2")
    assert list(digest_discrepancies([("a", result), ("b", result)], [compared])) == []
    assert len(list(digest_discrepancies([("c", result)], [compared]))) == 1
    renamed = compared._replace(id="e9", evidence=Evidence(fingerprints=own.evidence.fingerprints * 2))
    assert list(digest_discrepancies([("b", result)], [renamed])) == []
