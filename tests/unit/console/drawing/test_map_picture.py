"""The picture of a map: nothing in it moves when a state changes, and what needs attention is seen."""

from __future__ import annotations

from typing import Any

from eventd.console.drawing.layout import MOST_DRAWN, MOST_HUBS, SECTORS, arrange, find_hubs
from eventd.console.drawing.map_links import reporting_nodes, silent_nodes, table_rows
from eventd.console.drawing.map_picture import MapPicture, draw_map


def star(count: int) -> list[tuple[str, str]]:
    """The links of a hub with so many others, in both directions."""
    return [ends for at in range(count) for ends in (("hub", f"site-{at:03}"), (f"site-{at:03}", "hub"))]


def shown(
    pairs: list[tuple[str, str]], states: dict[tuple[str, str], str] | None = None, age: float = 1.0, **ends: Any
) -> dict[str, Any]:
    """An answer of `map.show` in which all links run but those in `states`."""
    names = sorted({name for pair in pairs for name in pair})
    nodes = [{"node": name, "answer": "self" if name == "hub" else "answered", "ageSeconds": 0.1} for name in names]
    links = []
    for pair in pairs:
        end = {"eventsPerSecond": 0.0, "silentSeconds": 1.0, "ageSeconds": age, "via": ""} | ends
        sender = end | {"state": (states or {}).get(pair, "running"), "lagEvents": 0, "lagSeconds": 0.0}
        links.append({"from": pair[0], "to": pair[1], "sender": sender, "receiver": end, "findings": []})
    return {"group": "edge", "node": "hub", "nodes": nodes, "links": links, "leftOut": 0}


def places(picture: MapPicture) -> dict[str, Any]:
    return {mark.name: mark.place for mark in picture.marks}


def test_the_places_are_the_same_whatever_the_states_and_the_order_of_the_answer() -> None:
    pairs = star(9)
    calm = draw_map(shown(pairs))
    bad = draw_map(shown(pairs[::-1], {pairs[3]: "blocked", pairs[7]: "paused"}, age=99.0))
    assert places(calm) == places(bad)
    assert {line.path for line in calm.lines} == {line.path for line in bad.lines}


def test_a_hub_is_inside_and_the_others_are_on_a_ring_without_two_at_one_place() -> None:
    layout = arrange([f"site-{at:03}" for at in range(30)] + ["hub"], star(30), "hub")
    assert list(layout.hubs) == ["hub"]
    assert layout.hubs["hub"].inside
    assert len({(sector.place.x, sector.place.y) for sector in layout.sectors}) == 30


def test_a_full_mesh_and_a_chain_have_no_hub() -> None:
    names = ["a", "b", "c", "d", "e"]
    assert find_hubs(names, [(one, other) for one in names for other in names if one != other]) == []
    assert find_hubs(names, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]) == []


def test_each_direction_has_a_line_of_its_own_with_a_word() -> None:
    pairs = [("hub", "b"), ("b", "hub")]
    picture = draw_map(shown(pairs, {("b", "hub"): "backing-off"}))
    assert len({line.path for line in picture.lines}) == 2
    assert {(line.link.source, line.link.state, line.labelled) for line in picture.lines} == {
        ("hub", "running", True),
        ("b", "backing-off", True),
    }


def test_a_line_is_wider_in_three_steps() -> None:
    widths = [draw_map(shown([("hub", "b")], eventsPerSecond=rate)).lines[0].link.width for rate in (0.4, 7.0, 400.0)]
    assert widths == [1, 2, 3]


def test_rates_are_those_of_links_that_carry_events_now() -> None:
    answer = shown([("hub", "b"), ("b", "hub"), ("hub", "c")], {("hub", "c"): "backing-off"}, eventsPerSecond=2.6)
    for silent, expected in ((set(), [2.6, 2.6, None]), ({"b"}, [None, None, None])):
        rows = table_rows(answer["links"], silent)
        assert [row["sentRate"] for row in rows] == [row["receivedRate"] for row in rows] == expected
        assert [row["carries"] for row in rows] == [rate is not None for rate in expected]
    assert {line.link.rate for line in draw_map(answer).lines if line.link.target == "c"} == {0.0}


def test_a_link_that_its_source_does_not_report_is_not_there_if_the_source_reports() -> None:
    answer = shown([("hub", "b"), ("c", "hub"), ("d", "hub"), ("e", "hub")])
    for link in answer["links"]:
        link["sender"] = None
    about = {"c": {"answer": "unreachable"}, "d": {"ageSeconds": 31.0}, "e": {"leftOut": 1}}
    answer["nodes"] = [{"leftOut": 0} | node | about.get(node["node"], {}) for node in answer["nodes"]]
    rows = table_rows(answer["links"], silent_nodes(answer), reporting_nodes(answer))
    assert [row["absent"] for row in rows] == [True, False, False, False]


def test_a_report_of_a_node_that_does_not_answer_now_is_old_and_that_of_the_other_end_is_not() -> None:
    answer = shown([("hub", "b"), ("b", "hub")], age=8.0)
    answer["nodes"] = [node | {"answer": "unreachable"} if node["node"] == "b" else node for node in answer["nodes"]]
    assert {line.link.source: line.link.age for line in draw_map(answer).lines} == {"hub": None, "b": 8.0}


def test_a_report_older_than_30_seconds_is_old_with_its_age() -> None:
    ages = [draw_map(shown([("hub", "b")], age=age)).lines[0].link.age for age in (30.0, 31.0)]
    assert ages == [None, 31.0]


def test_many_nodes_are_folded_and_those_with_a_problem_are_drawn() -> None:
    pairs = star(300)
    calm = draw_map(shown(pairs))
    assert len(calm.marks) <= MOST_DRAWN
    folds = [mark for mark in calm.marks if mark.folded]
    assert sum(len(mark.folded) for mark in folds) == 300
    assert all(mark.note.endswith(", all running") for mark in folds)
    assert "hub" in places(calm)
    bad = draw_map(shown(pairs, {("hub", "site-123"): "blocked", ("hub", "site-124"): "paused"}))
    assert "site-123" in places(bad)
    assert [mark.note for mark in bad.marks if "site-124" in mark.folded] == ["+10, 1 paused"]
    assert {mark.place for mark in calm.marks} <= {mark.place for mark in bad.marks}, "nothing has moved"
    everything = draw_map(shown(pairs, dict.fromkeys(pairs, "failed")))
    assert len(everything.marks) <= MOST_DRAWN
    assert MOST_HUBS + 2 * SECTORS <= MOST_DRAWN


def test_a_mesh_of_many_nodes_draws_a_bounded_number_of_lines_and_counts_the_rest() -> None:
    names = [f"n{at:02}" for at in range(40)] + ["hub"]
    pairs = [(one, other) for one in names for other in names if one != other]
    picture = draw_map(shown(pairs, {("n01", "n02"): "blocked"}))
    assert len(picture.lines) + picture.left_out == len(pairs)
    assert picture.left_out > 0
    assert picture.lines[-1].link.state == "blocked", "painted above all others"
    assert {("hub", "n05"), ("n05", "hub")} <= {(line.link.source, line.link.target) for line in picture.lines}


def test_a_node_that_does_not_answer_needs_attention_and_a_link_that_nobody_told_does_not() -> None:
    answer = shown([("hub", "b"), ("hub", "c")])
    answer["nodes"][0]["answer"] = "unreachable"
    answer["links"][1]["sender"] = None
    ranks = {mark.name: mark.rank for mark in draw_map(answer).marks}
    assert ranks["b"] < ranks["c"]


def test_a_long_name_is_shortened() -> None:
    picture = draw_map(shown([("hub", "x" * 253)]))
    assert max(len(mark.label) for mark in picture.marks) < 30


def test_a_long_name_on_the_left_begins_within_the_picture() -> None:
    picture = draw_map(shown([("a-name-as-long-as-names-of-nodes-may-be", "hub")]))
    (mark,) = (mark for mark in picture.marks if mark.anchor == "end")
    assert mark.place.x + mark.dx - 7.7 * len(mark.label) > 0, "a letter is about 7.7 wide"
