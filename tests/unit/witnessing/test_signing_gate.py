"""When a node may sign in a tree that it found at its start: its database may be an older copy."""

from __future__ import annotations

from eventd.witnessing.signing_gate import LAKE, SigningGate


def gate(
    known: dict[str, int] | None = None, *, with_lake: bool = False, asked: tuple[str, ...] = ("b", "c")
) -> SigningGate:
    made = SigningGate(known, with_lake=with_lake)
    made.ask(asked)
    return made


def test_a_node_that_asks_no_peer_may_sign() -> None:
    assert gate(asked=()).is_open
    assert not gate(asked=(), with_lake=True).is_open
    assert not SigningGate().is_open, "the peers are not known yet"


def test_a_peer_that_holds_nothing_does_not_answer_for_the_others() -> None:
    asking = gate()
    asking.heard("c", 0)
    assert (asking.is_open, asking.outstanding) == (False, ["b"])
    asking.heard("b", 0)
    assert asking.is_open, "none holds any of it"


def test_one_peer_that_holds_some_of_the_tree_is_enough_where_none_is_known_to_hold_more() -> None:
    asking = gate()
    asking.heard("b", 3)
    assert asking.is_open


def test_a_peer_that_has_cosigned_is_waited_for() -> None:
    asking = gate({"b": 5, "c": 3})
    asking.heard("c", 3)
    assert (asking.is_open, asking.outstanding) == (False, ["b"])
    asking.heard("b", 5)
    assert asking.is_open


def test_a_peer_that_shows_less_than_it_has_cosigned_or_knows_no_histories_was_not_heard() -> None:
    asking = gate({"b": 5})
    for size in (0, 4):
        asking.heard("b", size)
        asking.heard("c", 5)
        assert (asking.is_open, asking.outstanding) == (False, ["b"])
    asking.ask(["c"])
    assert asking.is_open, "it is not declared any more"


def test_the_lake_answers_as_a_peer_does() -> None:
    asking = gate({"b": 5}, with_lake=True)
    asking.heard(LAKE, 6)
    assert asking.outstanding == ["b", "c"]
    asking.heard("b", 6)
    assert asking.is_open
    alone = gate(asked=(), with_lake=True)
    alone.heard(LAKE, 0)
    assert alone.is_open, "it has nothing of the tree, and no peer is asked"


def test_any_answer_is_enough_for_a_tree_that_was_just_opened() -> None:
    asking = gate({"b": 5})
    asking.note_new_tree()
    assert not asking.is_open
    asking.heard("c", 0)
    assert asking.is_open
