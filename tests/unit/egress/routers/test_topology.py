"""The routing graph: which routers may be connected, what counts as a cycle, and the path of a record. Pure."""

from __future__ import annotations

from itertools import pairwise, permutations

import pytest

from eventd.egress.routers.graph import MOST_COPIES, CopyForecast, Graph
from eventd.egress.routers.projection import Options, Router

FAN_IN = Options(fan_in=True)
ALLOWED = Options(allow_cycle=True)


def edge(name: str, options: Options = Options()) -> Router:  # noqa: B008
    source, dest = name.split("->")
    return Router(name, source, dest, options)


def graph(*names: str, options: Options = Options()) -> Graph:  # noqa: B008
    return Graph(edge(name, options) for name in names)


def test_one_source_may_feed_a_topic_twice_and_two_may_not() -> None:
    fed = graph("a->c")
    assert fed.meets(Router("again", "a", "c")) is None
    met = fed.meets(edge("b->c"))
    assert met == edge("a->c")


def test_sources_meet_where_every_router_keeps_identities() -> None:
    fed = graph("a->c", options=FAN_IN)
    assert fed.meets(edge("b->c", FAN_IN)) is None
    assert fed.meets(edge("b->c")) == edge("a->c", FAN_IN)
    assert graph("a->c").meets(edge("b->c", FAN_IN)) == edge("a->c")
    mixed = Graph([edge("a->c", FAN_IN), Router("plain", "a", "c")])
    assert mixed.meets(edge("b->c", FAN_IN)) is not None


def test_a_router_is_not_in_its_own_way() -> None:
    fed = graph("a->b", "b->c")
    assert fed.meets(edge("a->b")) is None
    assert fed.cycle_closed_by(edge("a->b")) is None


def test_a_cycle_is_told_from_the_new_source_round_to_it() -> None:
    assert graph("a->b", "b->c").cycle_closed_by(edge("c->a")) == ["c", "a", "b", "c"]
    assert graph("a->b").cycle_closed_by(edge("b->a")) == ["b", "a", "b"]


def test_allowed_edges_count_and_an_allowed_router_may_close_a_cycle() -> None:
    there = graph("a->b", options=ALLOWED)
    assert there.cycle_closed_by(edge("b->a")) == ["b", "a", "b"]
    assert there.cycle_closed_by(edge("b->a", ALLOWED)) is None


def test_a_cycle_of_routers_that_keep_identities_is_none() -> None:
    there = graph("a->b", "b->c", options=FAN_IN)
    assert there.cycle_closed_by(edge("c->a", FAN_IN)) is None
    assert there.cycle_closed_by(edge("c->a")) == ["c", "a", "b", "c"]
    mixed = Graph([edge("a->b", FAN_IN), edge("b->c")])
    assert mixed.cycle_closed_by(edge("c->a", FAN_IN)) == ["c", "a", "b", "c"]


def test_a_cycle_through_a_group_is_for_identities_alone() -> None:
    there = Graph([Router("in", "t", "group:g", Options())])
    back = Router("out", "group:g", "t", ALLOWED)
    assert there.cycle_closed_by(back) == ["group:g", "t", "group:g"]
    kept = Graph([Router("in", "t", "group:g", FAN_IN)])
    assert kept.cycle_closed_by(back) == ["group:g", "t", "group:g"]
    assert kept.cycle_closed_by(Router("out", "group:g", "t", FAN_IN)) is None


def test_only_routers_of_a_cycle_are_cyclic() -> None:
    there = graph("x->a", "a->b", "b->a", "b->y", "y->z", options=ALLOWED)
    cyclic = {name for name, router in there.routers.items() if there.is_cyclic(router)}
    assert cyclic == {"a->b", "b->a"}


def test_cycles_are_found_in_whatever_order_routers_came() -> None:
    for order in permutations(("a->b", "b->c", "c->a", "c->d", "d->e", "e->d")):
        there = graph(*order, options=ALLOWED)
        cyclic = {name for name, router in there.routers.items() if there.is_cyclic(router)}
        assert cyclic == {"a->b", "b->c", "c->a", "d->e", "e->d"}, order


def test_a_long_chain_is_followed_without_recursion() -> None:
    topics = [f"t{n}" for n in range(1500)]
    there = Graph(Router(f"{a}->{b}", a, b) for a, b in pairwise(topics))
    assert not there.is_cyclic(there.routers["t0->t1"])
    assert there.cycle_closed_by(Router("back", topics[-1], topics[0])) is not None
    assert there.draw().count("\n") == 1500


def test_what_is_upstream_of_a_topic_comes_the_farthest_first() -> None:
    there = graph("a->b", "b->c", "c->d", "x->y")
    assert [router.name for router in there.upstream("d")] == ["a->b", "b->c", "c->d"]
    assert there.upstream("a") == []


def test_a_mirror_that_is_allowed_makes_nine_of_one() -> None:
    there = graph("a->b", "b->a", options=ALLOWED)
    assert there.predict("a") == {"a": CopyForecast(4, 4), "b": CopyForecast(4, 3)}


@pytest.mark.parametrize("names", [("a->b", "b->a"), ("a->b", "b->a", "b->c", "c->b", "a->c", "c->a")])
def test_a_mesh_that_keeps_identities_makes_one_of_one_in_each_topic(names: tuple[str, ...]) -> None:
    there = graph(*names, options=FAN_IN)
    topics = {router.dest for router in there.routers.values()}
    assert there.predict("a") == {topic: CopyForecast(1, 0) for topic in topics - {"a"}}


def test_a_diamond_doubles_where_its_first_half_makes_new_records() -> None:
    second = [edge("b->d", FAN_IN), edge("c->d", FAN_IN)]
    plain = Graph([edge("a->b"), edge("a->c"), *second])
    kept = Graph([edge("a->b", FAN_IN), edge("a->c", FAN_IN), *second])
    assert plain.predict("a")["d"] == CopyForecast(2, 1)
    assert kept.predict("a")["d"] == CopyForecast(1, 0)


def test_what_has_no_end_is_said_to_have_none() -> None:
    pairs = [Router(f"{n}.{twin}", f"t{n}", f"t{n + 1}") for n in range(30) for twin in "ab"]
    told = Graph(pairs).predict("t0")
    assert all(each.endless for each in told.values())
    assert sum(each.copies for each in told.values()) <= MOST_COPIES + 30


def test_a_drawing_shows_every_router_once() -> None:
    there = Graph(
        [
            edge("a->b"),
            edge("a->c", Options(filter=("tag", "Glob", "x*"))),
            edge("b->d", FAN_IN),
            edge("c->d", FAN_IN),
            edge("d->e"),
            edge("m->n", ALLOWED),
            edge("n->m", ALLOWED),
        ]
    )
    assert there.draw() == (
        "a\n"
        "├─ b  a->b\n"
        "│  └─ d  b->d [fan_in]\n"
        "│     └─ e  d->e\n"
        "└─ c  a->c [tag Glob x*]\n"
        "   └─ d  c->d [fan_in]  (see above)\n"
        "m\n"
        "└─ n  m->n [allow_cycle]\n"
        "   └─ m  n->m [allow_cycle]  (see above)\n"
    )
