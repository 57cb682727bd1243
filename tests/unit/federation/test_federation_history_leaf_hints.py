"""Hints at leaves: what a header says of each position, compared with the definition, and what is left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.history.leaf_hints import (
    MOST_HINT_BYTES,
    MOST_PLACES,
    LeafPlace,
    find_place,
    join_places,
    merge_places,
    move_places,
    read_places,
    write_places,
)

TREES = ("a" * 16, "b" * 16)
Leaf = tuple[str, int]
NONE: Leaf = ("", 0)
leaves = st.one_of(st.just(NONE), st.tuples(st.sampled_from(TREES), st.integers(1, 5)))


def places_of(known: dict[int, Leaf]) -> list[LeafPlace]:
    """A place for each position."""
    return [LeafPlace(position, leaf, tree) for position, (tree, leaf) in sorted(known.items())]


@given(st.lists(leaves, min_size=1, max_size=12), st.integers(1, 9))
def test_a_header_says_of_each_position_what_was_written(found: list[Leaf], first: int) -> None:
    known = dict(enumerate(found, first))
    places = read_places(write_places(join_places(places_of(known))))
    assert {at: find_place(places, at) for at in known} == known
    assert find_place(places, first - 1) == NONE


@given(st.lists(leaves, min_size=1, max_size=12), st.data())
def test_places_by_the_positions_of_another_log_are_those_of_the_same_events(
    found: list[Leaf], data: st.DataObject
) -> None:
    known = dict(enumerate(found, 3))
    sent = sorted(data.draw(st.sets(st.sampled_from([*known]), min_size=1)))
    stored = range(50, 50 + len(sent))
    moved = move_places(places_of(known), sent, stored)
    assert [find_place(moved, at) for at in stored] == [known[at] for at in sent]


def test_one_run_of_leaves_is_one_place_however_many_events() -> None:
    run = [LeafPlace(7, 3, TREES[0])]
    assert join_places(LeafPlace(at, at - 4, TREES[0]) for at in range(7, 900)) == run
    assert move_places(run, range(7, 900), range(1, 894)) == [LeafPlace(1, 3, TREES[0])]
    assert write_places(run) == f'(7 3);t="{TREES[0]}"'


def test_own_and_relayed_places_of_one_log_are_merged() -> None:
    own = [LeafPlace(1, 1, TREES[0]), LeafPlace(3, 0, ""), LeafPlace(6, 3, TREES[0])]
    relayed = [LeafPlace(3, 8, TREES[1]), LeafPlace(5, 0, ""), LeafPlace(6, 0, "")]
    merged = merge_places(own, relayed)
    a, b = TREES
    assert [find_place(merged, at) for at in range(1, 8)] == [(a, 1), (a, 2), (b, 8), (b, 9), NONE, (a, 3), (a, 4)]


def test_of_more_than_fit_the_rest_has_no_leaf() -> None:
    many = [LeafPlace(2 * at, at, TREES[0]) for at in range(1, 1000)]
    text = write_places(many)
    assert len(text) <= MOST_HINT_BYTES
    places = read_places(text)
    assert find_place(places, 2) == (TREES[0], 1)
    assert find_place(places, places[-2].position) == (TREES[0], places[-2].leaf)
    assert {find_place(places, at) for at in range(places[-1].position, 3000)} == {NONE}


def test_places_that_do_not_fit_are_not_looked_for() -> None:
    run = [LeafPlace(1, 1, TREES[0])]
    moved = move_places(run, range(1, 20_000, 2), range(1, 10_001))
    assert len(moved) == MOST_PLACES + 1
    assert find_place(moved, MOST_PLACES) == (TREES[0], 2 * MOST_PLACES - 1)
    assert find_place(moved, MOST_PLACES + 1) == NONE
    assert write_places(moved) == write_places(moved[:MOST_PLACES])


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "x",
        f'(1 1);t="{TREES[0]}" ',
        f'(1 1);t="{TREES[0]}",(2 5);t="{TREES[0]}"',
        f'(0 1);t="{TREES[0]}"',
        f'(1 01);t="{TREES[0]}"',
        f'(1 -1);t="{TREES[0]}"',
        f'(1 281474976710656);t="{TREES[0]}"',
        f'(1 1);t="{TREES[0]}x"',
        f'(1 1);t="{TREES[0].upper()}"',
        f'(1 1);t="{TREES[0]}"; u=1',
        "(1 1)",
        f'(1 0);t="{TREES[0]}"',
        f'(2 1);t="{TREES[0]}", (2 0)',
        f'(2 1);t="{TREES[0]}", (1 0)',
        f'(2 1);t="{TREES[0]}", (3 0), nonsense',
        f'(٣ 1);t="{TREES[0]}"',
        ", ".join(f"({at} 0)" for at in range(1, 700)),
    ],
)
def test_a_header_that_is_not_well_formed_is_ignored(text: str | None) -> None:
    assert read_places(text) == ()
