"""The picture of a routing graph: places that depend on names alone, and what is drawn of large graphs."""

from __future__ import annotations

from typing import Any

from eventd.console.drawing.router_layout import TopicPlace, place_topics
from eventd.console.drawing.router_picture import MOST_TOPICS, draw_routers


def router(source: str, dest: str, **members: Any) -> dict[str, Any]:
    return {"router": f"{source}->{dest}", "source": source, "dest": dest, "exists": True, "state": "running"} | members


def test_a_topic_is_right_of_all_that_is_copied_into_it() -> None:
    places = place_topics([("a", "b"), ("b", "c"), ("a", "c")])
    assert places == {"a": TopicPlace(0, 0), "b": TopicPlace(1, 0), "c": TopicPlace(2, 0)}


def test_a_cycle_is_cut_where_it_closes() -> None:
    places = place_topics([("a", "b"), ("b", "c"), ("c", "a"), ("c", "c")])
    assert [places[topic].column for topic in "abc"] == [0, 1, 2]


def test_graphs_that_are_not_joined_are_below_each_other() -> None:
    places = place_topics([("a", "b"), ("a", "c"), ("x", "y")])
    assert len(set(places.values())) == len(places)
    assert min(places["x"].row, places["y"].row) > max(places[topic].row for topic in "abc")


def test_no_two_topics_have_one_place_whatever_the_graph() -> None:
    names = [f"t{number}" for number in range(12)]
    pairs = [(one, other) for at, one in enumerate(names) for other in names[at % 3 :: 4]]
    places = place_topics(pairs)
    assert len(set(places.values())) == len(places) == 12
    assert place_topics(reversed(pairs)) == places, "their order does not count"


def test_a_long_chain_is_placed_without_recursion() -> None:
    assert place_topics([(f"{n:05}", f"{n + 1:05}") for n in range(1500)])["01500"].column == 1500


def test_routers_between_two_topics_share_a_line_with_the_state_that_needs_attention_most() -> None:
    several = [router("a", "b"), router("a", "b", router="x", state="backing-off"), router("b", "a")]
    lines = {(line.source, line.dest): line for line in draw_routers(several, frozenset()).lines}
    assert (lines["a", "b"].state, len(lines["a", "b"].routers)) == ("backing-off", 2)
    assert lines["b", "a"].path != lines["a", "b"].path
    assert draw_routers(several, frozenset()).lines[-1].state == "backing-off", "it is painted above the others"


def test_a_state_that_is_not_known_is_waiting_and_a_draft_is_planned() -> None:
    drawn = draw_routers([router("a", "b", state=""), router("c", "d", exists=False)], frozenset())
    assert {line.source: line.state for line in drawn.lines} == {"a": "waiting", "c": "planned"}


def test_of_a_large_graph_topics_with_a_problem_are_drawn() -> None:
    many = [router(f"s{number:03}", f"t{number:03}") for number in range(100)]
    drawn = draw_routers(many, frozenset({"t099"}))
    assert (len(drawn.boxes), drawn.left_out) == (MOST_TOPICS, 200 - MOST_TOPICS)
    assert [box.topic for box in drawn.boxes if box.odd] == ["t099"]


def test_boxes_stay_in_their_places_when_a_state_changes() -> None:
    calm = draw_routers([router("a", "b"), router("b", "c")], frozenset())
    worse = draw_routers([router("a", "b", state="backing-off"), router("b", "c")], frozenset("b"))
    assert [box[:4] for box in calm.boxes] == [box[:4] for box in worse.boxes]


def test_lines_of_one_topic_begin_and_end_apart() -> None:
    drawn = draw_routers([router("a", "b"), router("a", "c"), router("x", "c")], frozenset())
    starts = {line.path.partition(" ")[0] for line in drawn.lines}
    ends = {line.path.rpartition(" ")[2] for line in drawn.lines}
    assert len(starts) == len(ends) == 3
