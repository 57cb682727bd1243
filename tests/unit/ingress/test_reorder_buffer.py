"""The reorder buffer: order among batches of one link, and a bound on the links it remembers."""

from __future__ import annotations

import asyncio

import pytest

from eventd.ingress import reorder_buffer as gates
from eventd.ingress.reorder_buffer import LinkLife, ReorderBuffer
from eventd.testing import ManualClock, until
from federation.ranges import Mark, Range


def _claim(after: int, upto: int) -> Range:
    return Range(epoch="e", incarnation=1, after=after, upto=upto)


def _life(node: str, epoch: str = "e", incarnation: int = 1) -> LinkLife:
    return (node, epoch, incarnation)


@pytest.fixture
def gate() -> ReorderBuffer:
    return ReorderBuffer(ManualClock(), 1000)


async def test_a_batch_waits_for_the_one_before_it(gate: ReorderBuffer) -> None:
    life = _life("x")
    await gate.enter(life, _claim(0, 5), 10)
    async with asyncio.TaskGroup() as group:
        early = group.create_task(gate.enter(life, _claim(7, 9), 10))
        await until(lambda: life in gate._waiting)
        await gate.enter(life, _claim(5, 7), 10)
        await early
    assert (gate.knows(life), gate._upto(life), gate._room, gate._waiting) == (True, 9, 1000, {})


async def test_a_batch_that_reports_all_before_it_as_lost_waits_for_nothing_and_nothing_waits_after_it(
    gate: ReorderBuffer,
) -> None:
    life = _life("x")
    assert await gate.enter(life, _claim(0, 5), 10)
    lost = Range(epoch="e", incarnation=1, after=50, upto=60, lost=5)
    assert [await gate.enter(life, covered, 10) for covered in (lost, _claim(60, 61))] == [True, True]
    assert gate._upto(life) == 61


async def test_a_report_of_a_loss_waits_for_the_batches_before_the_loss(gate: ReorderBuffer) -> None:
    life = _life("x")
    await gate.enter(life, _claim(0, 5), 10)
    async with asyncio.TaskGroup() as group:
        early = group.create_task(gate.enter(life, Range(epoch="e", incarnation=1, after=50, upto=60, lost=6), 10))
        await until(lambda: life in gate._waiting)
        await gate.enter(life, _claim(5, 6), 10)
    assert (early.result(), gate._upto(life)) == (True, 60)


async def test_only_the_last_history_of_a_sender_is_remembered(gate: ReorderBuffer) -> None:
    first, second = _life("x"), _life("x", "f")
    await gate.enter(first, _claim(0, 5), 10)
    gate.learn(second, Mark(epoch="f", incarnation=1, upto=3, base=0))
    assert (gate.knows(first), gate.knows(second)) == (False, True)
    gate.forget(first)
    assert gate.knows(second)
    gate.forget(second)
    assert gate._passed == {}


async def test_who_was_not_heard_of_for_longest_is_forgotten_first(
    monkeypatch: pytest.MonkeyPatch, gate: ReorderBuffer
) -> None:
    monkeypatch.setattr(gates, "MOST_LINKS", 10)
    await gate.enter(_life("peer"), _claim(0, 1), 1)
    for number in range(100):
        await gate.enter(_life(f"x{number}"), _claim(0, 1), 1)
        if number % 5 == 0:
            await gate.enter(_life("peer"), _claim(number + 1, number + 6), 1)
            gate.learn(_life("peer"), Mark(epoch="e", incarnation=1, upto=number + 6, base=0))
    assert len(gate._passed) == 10
    assert gate.knows(_life("peer"))
    assert not gate.knows(_life("x0"))
