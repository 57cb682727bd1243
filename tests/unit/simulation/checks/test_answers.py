"""The checks of answers name what is wrong, and only that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from eventd.simulation.checks.answers import AnswerReference
from eventd.simulation.world.journal import Asked, Journal, Restore
from eventd.simulation.world.played_plugin import DERIVED
from eventd.simulation.world.retention import SmallRetention
from eventd.simulation.world.topology import PlannedLink, Topology

TOPOLOGY = Topology("pair", ["a", "b"], [PlannedLink("a", "b", relay=False), PlannedLink("b", "a", relay=False)])


def emitted(
    *ids: str,
    host: str = "a",
    at: float = 1.0,
    answered: float = 1.1,
    seq: int = 1,
    status: int = 200,
    kind: str = "door.open",
) -> Asked:
    """Return an emit that was answered with these new events from `seq` on, or not answered (status 0)."""
    question = {"events": [{"id": name, "type": kind} for name in ids]}
    results = [{"id": name, "result": "new", "event": {"seq": seq + at}} for at, name in enumerate(ids)]
    return Asked("emit", host, at, answered, status, question, {"results": results} if status else None)


def listed(*ids: str, source: str = "a", kinds: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the list of a node with these events, of the node `source` unless their name says another one.

    `kinds` are the types of events that are not `door.open`, by their ids.
    """
    return [
        {
            "id": name,
            "type": (kinds or {}).get(name, "door.open"),
            "sourceNode": name.partition("-")[0] if "-" in name else source,
            "seq": at,
        }
        for at, name in enumerate(ids, 1)
    ]


def found(journal: Journal, **final: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each.invariant, each.host) for each in AnswerReference(journal, TOPOLOGY, 0.0).violations(final)]


def journal(*asked: Asked) -> Journal:
    return Journal(list(asked))


def test_events_that_are_everywhere_in_order_violate_nothing() -> None:
    known = journal(emitted("a-1", "a-2"), emitted("b-1", host="b"))
    assert found(known, a=listed("a-1", "a-2", "b-1"), b=listed("b-1", "a-1", "a-2")) == []


def test_an_event_without_an_answer_may_be_there_or_not() -> None:
    known = journal(emitted("a-1"), emitted("a-2", at=2.0, answered=3.0, status=0))
    assert found(known, a=listed("a-1"), b=listed("a-1")) == []
    assert found(known, a=listed("a-1", "a-2"), b=listed("a-1", "a-2")) == []


@pytest.mark.parametrize(
    ("final", "violation"),
    [
        ({"a": ["a-1"], "b": ["a-1", "a-2"]}, ("V3", "a")),
        ({"a": ["a-1", "a-2"], "b": ["a-1"]}, ("V4", "b")),
        ({"a": ["a-1", "a-2"], "b": ["a-1", "a-2", "a-1"]}, ("V5", "b")),
        ({"a": ["a-1", "a-2"], "b": ["a-2", "a-1"]}, ("V6", "b")),
        ({"a": ["a-2", "a-1"], "b": ["a-2", "a-1"]}, ("V7", "a")),
    ],
)
def test_what_a_list_shows_wrong_is_named(final: dict[str, list[str]], violation: tuple[str, str]) -> None:
    lists = {name: listed(*ids) for name, ids in final.items()}
    assert violation in found(journal(emitted("a-1", "a-2")), **lists)


def test_an_event_that_a_list_lacked_after_a_restart_is_named_although_it_is_there_again() -> None:
    listing = Asked("listing", "a", 2.0, 2.1, 200, None, [])
    assert found(journal(emitted("a-1"), listing), a=listed("a-1"), b=listed("a-1")) == [("V3", "a")]


def test_a_list_that_was_asked_for_before_the_answer_may_lack_the_event() -> None:
    listing = Asked("listing", "a", 1.05, 2.1, 200, None, [])
    assert found(journal(emitted("a-1"), listing), a=listed("a-1"), b=listed("a-1")) == []


def test_a_lower_seq_for_a_later_emit_is_named() -> None:
    known = journal(emitted("a-1", seq=2), emitted("a-2", at=2.0, answered=2.1, seq=1))
    assert ("V6", "a") in found(known, a=listed("a-2", "a-1"), b=listed("a-2", "a-1"))


def test_emits_that_overlap_may_have_either_order() -> None:
    known = journal(emitted("a-1", seq=2), emitted("a-2", at=1.05, answered=2.1, seq=1))
    assert found(known, a=listed("a-2", "a-1"), b=listed("a-2", "a-1")) == []


def test_a_restore_may_take_what_was_acknowledged_after_the_copy_and_nothing_else() -> None:
    known = journal(
        emitted("a-1"), emitted("a-2", at=2.0, answered=2.1, seq=2), emitted("a-3", at=6.0, answered=6.1, seq=2)
    )
    known.restores.append(Restore("a", copied_at=1.5, restored_at=3.0))
    assert found(known, a=listed("a-1", "a-3"), b=listed("a-1", "a-3")) == []
    assert found(known, a=listed("a-1", "a-3"), b=listed("a-1", "a-2", "a-3")) == []
    assert ("V3", "a") in found(known, a=listed("a-3"), b=listed("a-1", "a-3"))
    assert ("V4", "b") in found(known, a=listed("a-1", "a-3"), b=listed("a-1"))


def test_the_order_at_a_restored_node_with_relays_is_not_judged() -> None:
    known = journal(emitted("a-1"), emitted("a-2", at=2.0, answered=2.1, seq=2))
    relayed = Topology("pair", ["a", "b"], [PlannedLink("a", "b", relay=True)])
    final = {"a": listed("a-1", "a-2"), "b": listed("a-2", "a-1")}
    assert [each.invariant for each in AnswerReference(known, relayed, 0.0).violations(final)] == ["V6"]
    known.restores.append(Restore("b", copied_at=0.5, restored_at=3.0))
    assert [*AnswerReference(known, relayed, 0.0).violations(final)] == []


def test_a_restore_of_another_node_takes_nothing_here() -> None:
    known = journal(emitted("a-1"), emitted("a-2", at=2.0, answered=2.1, seq=2))
    known.restores.append(Restore("b", copied_at=1.5, restored_at=3.0))
    assert found(known, a=listed("a-1"), b=listed("a-1", "a-2")) == [("V3", "a")]


def test_a_link_that_was_declared_anew_carries_what_its_last_declaration_says() -> None:
    doors = PlannedLink("a", "b", relay=False, types=["door.*"])
    known = journal(emitted("a-1", kind="door.open"), emitted("a-2", at=2.0, answered=2.1, seq=2, kind="power.lost"))
    declared = AnswerReference(known, Topology("pair", ["a", "b"], [doors]), 0.0)
    kinds = {"a-2": "power.lost"}
    assert [*declared.violations({"a": listed("a-1", "a-2", kinds=kinds), "b": listed("a-1")})] == []
    [missing] = declared.violations({"a": listed("a-1", "a-2", kinds=kinds), "b": listed("a-2", kinds=kinds)})
    assert (missing.invariant, missing.host) == ("V4", "b")


def test_resources_that_a_node_took_and_does_not_know_any_more_are_named() -> None:
    applied = Asked("apply", "a", 0.1, 0.2, 200, None, {})
    refused = Asked("links", "a", 3.0, 3.1, 404, None, {})
    assert found(journal(applied, refused)) == [("V3", "a")]


@pytest.mark.parametrize("change", [{"payload": {"text": "y"}}, {"type": "door.shut"}])
def test_an_event_that_does_not_say_what_was_emitted_is_named_in_each_list(change: dict[str, Any]) -> None:
    wrong = [listed("a-1")[0] | change]
    assert found(journal(emitted("a-1")), a=listed("a-1"), b=wrong) == [("V7", "b")]
    listing = Asked("listing", "a", 2.0, 2.1, 200, None, wrong)
    assert found(journal(emitted("a-1"), listing), a=listed("a-1"), b=listed("a-1")) == [("V7", "a")]


def test_an_event_that_no_client_has_emitted_is_named() -> None:
    assert found(journal(emitted("a-1")), a=listed("a-1", "a-2"), b=listed("a-1")) == [("V7", "a")]


@pytest.mark.parametrize(("restored", "violations"), [(True, []), (False, [("V6", "b")])])
def test_the_events_that_a_plugin_derived_again_after_a_restore_may_have_another_order(
    restored: bool, violations: list[tuple[str, str]]
) -> None:
    kinds = {"derived 1": DERIVED, "derived 2": DERIVED}
    known = Journal(restores=[Restore("a", 1.0, 2.0)] * restored)
    lists = {name: listed(*ids, kinds=kinds) for name, ids in (("a", [*kinds]), ("b", [*kinds][::-1]))}
    assert found(known, **lists) == violations


@pytest.mark.parametrize(
    ("retention", "ids", "violations"),
    [
        (SmallRetention(max_events=2), ["a-2", "a-3"], []),
        (SmallRetention(max_events=2), ["a-1", "a-3"], [("V3", "a")]),  # it is not the oldest one
        (SmallRetention(max_events=3), ["a-2", "a-3"], [("V3", "a")]),  # it is one of those to keep
        (SmallRetention(max_age=0.5), ["a-2", "a-3"], []),
        (SmallRetention(max_age=9.0), ["a-2", "a-3"], [("V3", "a")]),
    ],
)
def test_a_list_lacks_only_the_oldest_events_beyond_the_limits(
    retention: SmallRetention, ids: list[str], violations: list[tuple[str, str]]
) -> None:
    every = ["a-1", "a-2", "a-3"]
    shown = [each | {"seq": every.index(each["id"]) + 1} for each in listed(*ids)]
    known = journal(emitted(*every), Asked("listing", "a", 3.0, 3.1, 200, [len(shown)], shown))
    known.retentions["a"] = retention
    assert found(known) == violations


@pytest.mark.parametrize(("pages", "violations"), [([1, 2], []), ([2, 1], [("V3", "a")])])
def test_a_list_may_lack_events_that_are_evicted_between_two_of_its_pages(
    pages: list[int], violations: list[tuple[str, str]]
) -> None:
    every = ["a-1", "a-2", "a-3", "a-4"]
    shown = [each | {"seq": every.index(each["id"]) + 1} for each in listed("a-1", "a-3", "a-4")]
    known = journal(emitted(*every), Asked("listing", "a", 3.0, 3.1, 200, pages, shown))
    known.retentions["a"] = SmallRetention(max_events=2)
    assert found(known) == violations


def test_an_event_that_is_stored_a_second_time_is_named() -> None:
    """Its id is known after retention has evicted it."""
    assert ("V5", "a") in found(journal(emitted("a-1"), emitted("a-1", at=2.0, answered=2.1, seq=2)))
