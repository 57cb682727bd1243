"""How records are cut into batches."""

from __future__ import annotations

import pytest

from eventd.egress.callbacks.batches import BatchLimits, MessageBatch, cut
from eventd.egress.callbacks.formats import CallbackItem

LIMITS = BatchLimits(2, 100, 0)
Shown = list[tuple[int, int, list[int], list[int], bool]]


def item(position: int, size: int = 1, omitted: str = "") -> CallbackItem:
    return CallbackItem(position, position, 0, f"e{position}", f"m{position}", "x" * size, omitted)


def shown(*batches: MessageBatch) -> Shown:
    """Begin, end, positions of items, positions of omitted ones, and whether it is full."""
    return [
        (one.after, one.upto, [i.position for i in one.items], [i.position for i in one.omitted], one.is_full)
        for one in batches
    ]


@pytest.mark.parametrize(
    ("items", "batches"),
    [
        ([], []),
        ([item(3)], [(1, 9, [3], [], False)]),
        ([item(3), item(5)], [(1, 9, [3, 5], [], True)]),
        ([item(3), item(5), item(7)], [(1, 5, [3, 5], [], True), (5, 9, [7], [], False)]),
        ([item(3, 60), item(5, 60), item(7)], [(1, 3, [3], [], True), (3, 9, [5, 7], [], True)]),
        ([item(3, 500), item(5)], [(1, 3, [3], [], True), (3, 9, [5], [], False)]),
        ([item(2, omitted="expired")], [(1, 9, [], [2], False)]),
        ([item(2, omitted="expired"), item(3), item(5)], [(1, 9, [3, 5], [2], True)]),
        (
            [item(3), item(5), item(6, omitted="expired"), item(7)],
            [(1, 5, [3, 5], [], True), (5, 9, [7], [6], False)],
        ),
    ],
    ids=[
        *("none", "one", "as many as fit", "more", "as many bytes as fit", "one that is too large alone"),
        *("omitted ones alone", "an omitted one first", "an omitted one between batches"),
    ],
)
def test_each_position_up_to_the_end_of_the_page_is_in_one_batch(items: list[CallbackItem], batches: Shown) -> None:
    assert shown(*cut(items, 1, 9, LIMITS)) == batches


def test_a_part_of_a_batch_ends_at_its_last_item() -> None:
    batch = MessageBatch(1, 9, [item(2), item(4), item(8)], [item(3, omitted="expired"), item(7, omitted="expired")])
    assert shown(batch.first_half()) == [(1, 2, [2], [], True)]
    assert shown(batch.before(2)) == [(1, 4, [2, 4], [3], True)]
