"""One map from the maps of several nodes: whose word counts, and what is known of a node that is silent."""

from __future__ import annotations

from typing import Any

from eventd.console.many.joined_map import join_maps


def end(state: str, age: float) -> dict[str, Any]:
    return {"state": state, "lagEvents": 0, "lagSeconds": 0.0, "ageSeconds": age, "silentSeconds": 1.0}


def shown(node: str, nodes: dict[str, str], *links: tuple[str, str, Any, Any, list[str]]) -> dict[str, Any]:
    """Return an answer of `map.show`."""
    rows = [{"node": name, "answer": answer, "ageSeconds": 1.0, "via": ""} for name, answer in nodes.items()]
    members = ("from", "to", "sender", "receiver", "findings")
    return {
        "node": node,
        "nodes": rows,
        "links": [dict(zip(members, link, strict=True)) for link in links],
        "leftOut": 0,
    }


A = shown("a", {"a": "self", "b": "answered"}, ("a", "b", end("running", 0.0), end("", 4.0), ["by a"]))
B = shown("b", {"a": "answered", "b": "self"}, ("a", "b", end("paused", 3.0), end("", 0.0), ["by b"]))


def test_what_a_node_says_of_itself_precedes_what_others_say() -> None:
    for maps in ([A, B], [B, A]):
        joined = join_maps("edge", maps, {})
        (link,) = joined["links"]
        assert (link["sender"]["state"], link["receiver"]["ageSeconds"]) == ("running", 0.0)
        assert link["findings"] == ["by a"]
        assert [(node["node"], node["answer"]) for node in joined["nodes"]] == [("a", "answered"), ("b", "answered")]


def test_a_finding_that_only_one_end_has_counts_whichever_node_is_read_first() -> None:
    lacking = shown("a", {"a": "self"}, ("a", "b", None, end("", 4.0), []))
    for maps in ([lacking, B], [B, lacking]):
        assert join_maps("edge", maps, {})["links"][0]["findings"] == ["by b"]


def test_a_finding_of_a_node_between_counts_while_the_end_that_it_misses_is_missing() -> None:
    quiet = shown("b", {"b": "self"}, ("a", "b", None, end("", 0.0), []))
    between = shown("c", {"c": "self"}, ("a", "b", None, end("", 5.0), ["by c"]))
    again = shown("a", {"a": "self"}, ("a", "b", end("running", 0.0), None, []))
    assert join_maps("edge", [quiet, between], {})["links"][0]["findings"] == ["by c"]
    assert join_maps("edge", [quiet, between, again], {})["links"][0]["findings"] == [], "a has its link again"
    assert join_maps("edge", [quiet, between], {"a": 9.0})["links"][0]["findings"] == []
    both = shown("c", {"c": "self"}, ("a", "b", end("running", 5.0), end("", 5.0), ["by c"]))
    assert join_maps("edge", [quiet, both], {})["links"][0]["findings"] == []


def test_a_link_that_was_deleted_at_one_end_is_found_from_the_own_maps_of_both_ends() -> None:
    a = shown("a", {"a": "self"}, ("b", "a", None, end("", 0.0), []))
    b = shown("b", {"b": "self"}, ("b", "a", end("running", 0.0), None, []), ("a", "b", None, end("", 0.0), []))
    found = {(link["from"], link["to"]): link["findings"] for link in join_maps("edge", [a, b], {})["links"]}
    assert found == {("a", "b"): ["a has no link to b any more, though b has one to a"], ("b", "a"): []}
    assert not any(link["findings"] for link in join_maps("edge", [b], {})["links"]), "a has not reported itself"


def test_of_a_silent_node_only_reports_after_its_silence_count() -> None:
    (link,) = join_maps("edge", [B], {"a": 2.0})["links"]
    assert link["sender"] is None
    joined = join_maps("edge", [B], {"a": 5.0})
    assert joined["links"][0]["sender"]["state"] == "paused"
    assert [node["answer"] for node in joined["nodes"]] == ["unreachable", "answered"]
