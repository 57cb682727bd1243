"""The checks of refused events name what is wrong with them and their dead letters, and only that."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from eventd.simulation.checks.conflicts import ConflictReference
from eventd.simulation.checks.contents import EmittedContents
from eventd.simulation.checks.tables import StoredTables
from eventd.simulation.load.conflicts import CONFLICT, LETTER_LISTING, make_shared, without_shared
from eventd.simulation.load.repairs import VERIFY
from eventd.simulation.world.journal import Asked, Journal
from eventd.simulation.world.topology import GROUP, PlannedLink, Topology

PAIR = (PlannedLink("a", "b", relay=False), PlannedLink("b", "a", relay=False))
THIRD = (*PAIR, PlannedLink("b", "c", relay=True))
NAME = "shared-0001-0"


@dataclass
class PlayedTables:
    """The dead letters of a node's peers, and its batches with their receipts, as they are stored."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    batches: list[dict[str, Any]] = field(default_factory=list)

    def letters(self) -> list[dict[str, Any]]:
        return self.rows

    def settled_batches(self) -> list[dict[str, Any]]:
        return self.batches


def emitted(host: str, result: str = "new", at: float = 1.0) -> Asked:
    """Return an emit of the event that a host has with the shared id."""
    results = {"results": [{"id": NAME, "result": result, "event": None}]}
    is_taken = result == "conflict"
    question = {"events": [make_shared(NAME, host)]}
    return Asked(CONFLICT, host, at, at + 0.1, 409 if is_taken else 200, question, None if is_taken else results)


def listed(source: str, *path: str) -> dict[str, Any]:
    return make_shared(NAME, source) | {"sourceNode": source, "path": list(path)}


def letter(peer: str, owner: str, name: str = NAME, reason: str = "id_conflict") -> dict[str, Any]:
    """Return a dead letter as it is listed."""
    detail = f"refused by {peer}: the id belongs to an event of {owner} with the digest 7b"
    return {"peer": peer, "eventId": name, "reason": reason, "detail": detail}


def letter_row(shown: Mapping[str, str]) -> dict[str, Any]:
    """Return a dead letter as it is stored."""
    return {"cursor": f"peer:{GROUP}/{shown['peer']}", "event_id": shown["eventId"]} | {
        name: shown[name] for name in ("reason", "detail")
    }


def found(
    letters: Mapping[str, Sequence[dict[str, Any]]],
    *asked: Asked,
    final: Mapping[str, Sequence[dict[str, Any]]] | None = None,
    links: Sequence[PlannedLink] = PAIR,
    refused: Sequence[tuple[str, str, str]] = (),
    stored: Mapping[str, Sequence[dict[str, Any]]] | None = None,
) -> list[tuple[str, str]]:
    """Return what is found wrong.

    `refused`: the receipts with one refusal each, as sender, peer and id. `stored`: the dead letters in the tables, if
    they differ from those that are listed.
    """
    nodes = sorted({link.source for link in links} | {link.dest for link in links})
    own = [Asked(LETTER_LISTING, node, 9.0, 9.1, 200, None, [*letters.get(node, ())]) for node in nodes]
    journal = Journal([emitted("a"), emitted("b"), *asked, *own])
    tables = {node: PlayedTables([letter_row(each) for each in (stored or letters).get(node, ())]) for node in nodes}
    for sender, peer, name in refused:
        body = json.dumps({"refused": [{"id": name, "reason": "id_conflict"}]})
        row = {"cursor": f"peer:{GROUP}/{peer}", "receipt": json.dumps({"body": body})}
        tables[sender].batches.append(row)
    lists = final or {"a": [listed("a")], "b": [listed("b")]}
    topology = Topology("pair", nodes, list(links))
    reference = ConflictReference(journal, topology, lists, cast("Mapping[str, StoredTables]", tables), 0.0)
    return [(each.invariant, each.host) for each in reference.violations()]


BOTH: Mapping[str, Sequence[dict[str, Any]]] = {"a": [letter("b", "b")], "b": [letter("a", "a")]}


def test_a_dead_letter_at_each_sender_violates_nothing() -> None:
    assert found(BOTH, refused=[("a", "b", NAME)]) == []


@pytest.mark.parametrize(
    "at_a",
    [
        [],
        [letter("b", "b")] * 2,
        [letter("b", "b", reason="loop")],
        [letter("b", "b"), letter("b", "b", "a-00001")],
        [letter("b", "a")],
    ],
    ids=["none", "two", "another reason", "one more", "another owner"],
)
def test_wrong_dead_letters_of_a_refused_event_are_named(at_a: list[dict[str, Any]]) -> None:
    wrong = found(BOTH | {"a": at_a})
    assert set(wrong) == {("V4", "a")}


def test_a_dead_letter_that_is_listed_and_not_stored_is_named() -> None:
    assert found(BOTH, stored={"b": BOTH["b"]}) == [("V4", "a")]


def test_two_dead_letters_that_were_listed_before_the_end_are_named() -> None:
    early = Asked(LETTER_LISTING, "a", 2.0, 2.1, 200, None, [letter("b", "b")] * 2)
    assert found(BOTH, early) == [("V4", "a")]


def test_a_dead_letter_of_an_event_that_the_peer_took_is_named() -> None:
    final = {"a": [listed("a")], "b": [listed("b")], "c": [listed("b", "b")]}
    assert found(BOTH, final=final, links=THIRD) == []
    assert found(BOTH | {"b": [letter("a", "a"), letter("c", "a")]}, final=final, links=THIRD) == [("V4", "b")]


def test_a_relay_that_a_peer_refuses_has_a_dead_letter() -> None:
    final = {"a": [listed("a")], "b": [listed("a", "a")], "c": [listed("c")]}
    links = (PlannedLink("a", "b", relay=False), PlannedLink("b", "c", relay=True))
    taken = emitted("b", "conflict", at=2.0)
    assert ("V4", "b") in found({}, taken, final=final, links=links)
    wrong = found({"b": [letter("c", "c")]}, taken, final=final, links=links)
    assert ("V4", "b") not in wrong


def test_an_event_that_did_not_come_and_is_not_refused_is_named() -> None:
    final = {"a": [listed("a")], "b": [listed("b")], "c": []}
    assert ("V4", "c") in found(BOTH, final=final, links=THIRD)


def test_by_v1_there_are_no_dead_letters() -> None:
    links = (PlannedLink("a", "b", relay=False, protocol="v1"), PAIR[1])
    assert found({"b": BOTH["b"]}, links=links) == []
    assert found(BOTH, links=links) == [("V4", "a")]


def test_a_link_that_was_changed_may_have_dead_letters_of_refused_events_alone() -> None:
    links = (PlannedLink("a", "b", relay=False, is_changed=True), PAIR[1])
    assert found(BOTH, links=links) == []
    assert found({"b": BOTH["b"]}, links=links) == []
    assert found(BOTH | {"a": [letter("b", "b", "a-00001")]}, links=links)


def test_an_acknowledged_event_that_gave_way_to_another_one_is_named() -> None:
    final = {"a": [listed("b", "b")], "b": [listed("b")]}
    assert ("V3", "a") in found({}, final=final)


def test_an_id_that_was_taken_stays_that_of_the_other_event() -> None:
    final = {"a": [listed("a")], "b": [listed("a", "a")]}
    reference = ConflictReference(
        Journal([emitted("a"), emitted("b", "conflict")]),
        Topology("pair", ["a", "b"], list(PAIR)),
        final,
        cast("Mapping[str, StoredTables]", {"a": PlayedTables(), "b": PlayedTables()}),
        0.0,
    )
    assert list(reference.violations()) == []
    assert ("V3", "b") in found(BOTH, emitted("b", "conflict", at=3.0))


def test_an_acknowledged_event_that_a_list_lacks_is_named() -> None:
    assert found(BOTH, Asked("listing", "a", 3.0, 3.1, 200, [0], [])) == [("V3", "a")]


def test_a_refusal_of_another_event_of_the_batch_is_named() -> None:
    assert found(BOTH, refused=[("a", "b", NAME), ("a", "b", "a-00001")]) == [("V9", "a")]


@pytest.mark.parametrize(
    ("aside", "wrong"), [({"refused": 1}, []), ({}, [("V1", "a")]), ({"refused": 2}, [("V1", "a")])]
)
def test_a_comparison_counts_the_refused_events(aside: dict[str, int], wrong: list[tuple[str, str]]) -> None:
    report = {"compared": True, "events": {"setAside": aside}}
    path = f"/groups/{GROUP}/peers/b/verify"
    verified = Asked(VERIFY, "a", 8.0, 8.1, 200, None, {"done": True, "report": report}, path=path)
    assert found(BOTH, verified) == wrong


def test_an_event_with_a_shared_id_says_what_the_client_of_its_source_emitted() -> None:
    contents = EmittedContents(Journal([emitted("a"), emitted("b")]))
    assert contents.difference([listed("a"), listed("b")]) == ""
    assert "never emitted" in contents.difference([listed("a") | {"sourceNode": "c"}])
    assert contents.difference([listed("a") | {"sourceNode": "b"}])


def test_the_reference_of_all_events_is_without_shared_ids() -> None:
    other = {"id": "a-00001"}
    lists = {"a": [other, listed("a")], "b": [listed("b")]}
    assert without_shared(Journal([emitted("a")]), lists) == {"a": [other], "b": []}
