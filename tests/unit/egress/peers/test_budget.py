"""The shared memory budget of all links: plenty for few, a batch each for many, and silent peers cannot exhaust it."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from eventd.egress.peers.budget import LEAST, PATIENCE, Allowance, Budget
from eventd.testing import ManualClock, give_turns

MIB = 1 << 20
BATCH = MIB
HELD = BATCH + BATCH // 8
"""What is taken for a batch before its size is known."""


@dataclass
class Node:
    """A budget with links. Each batch is as large as it may be."""

    total: int
    links: int = 1
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.budget = Budget(self.total, lambda: self.links, self.clock)

    def link(self, *, answers: bool = False, most: int = BATCH) -> Allowance:
        link = Allowance(self.budget, most)
        link.answers = answers
        return link


def send(link: Allowance) -> int:
    """A batch as large as it may be goes under way; its size."""
    assert link.window(4) > 0
    size = link.take()
    assert link.keep(size)
    link.carry()
    return size


def nudge() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


def test_where_there_is_plenty_a_link_gets_all_it_wants() -> None:
    node = Node(64 * MIB)
    link = node.link(answers=True)
    for _ in range(4):
        assert link.window(4) == 4
        assert send(link) == BATCH
    assert node.budget.held == 4 * BATCH
    for _ in range(4):
        link.settled()
    assert node.budget.held == 0


def test_a_page_counts_as_what_it_is_and_one_that_is_dropped_not_at_all() -> None:
    node = Node(64 * MIB)
    link = node.link(answers=True)
    link.take()
    assert node.budget.held == HELD
    assert link.keep(100)
    assert node.budget.held == 100
    link.drop()
    assert node.budget.held == 0


def test_nobody_reads_ahead_when_half_is_used_up() -> None:
    node = Node(8 * MIB, links=2)
    one, other = node.link(answers=True), node.link(answers=True)
    sent = 0
    while one.window(16) > sent:
        send(one)
        sent += 1
    assert sent == 3, "half of the budget, in batches with their frames"
    assert one.window(16) == 1
    assert other.window(16) == 0


async def test_links_wait_for_their_turn_and_get_a_batch_each() -> None:
    node = Node(4 * MIB, links=4)
    links = [node.link(answers=True) for _ in range(4)]
    send(links[0])
    nudges = [nudge() for _ in links]
    for link, each in zip(links[1:], nudges[1:], strict=True):
        assert link.window(4) == 0
        link.wait(each)
    late = node.link(answers=True)
    for turn in range(1, 4):
        links[turn - 1].settled()
        assert [each.done() for each in nudges[1:]] == [number <= turn for number in range(1, 4)]
        assert late.window(4) == 0, "no link overtakes waiting ones"
        assert send(links[turn]) == BATCH
    assert node.budget.waiting == 0


async def test_whoever_waits_again_keeps_his_place_and_whoever_leaves_loses_it() -> None:
    node = Node(4 * MIB, links=3)
    holder, first, second = (node.link(answers=True) for _ in range(3))
    send(holder)
    old, new, other = nudge(), nudge(), nudge()
    first.wait(old)
    second.wait(other)
    old.cancel()  # it was woken by something else, and waits again
    first.wait(new)
    holder.settled()
    assert (new.done(), other.done()) == (True, False)
    first.end()
    assert other.done()
    second.end()
    assert node.budget.held == 0


async def test_room_that_came_before_it_waits_is_not_missed() -> None:
    node = Node(4 * MIB, links=2)
    holder, link = node.link(answers=True), node.link(answers=True)
    send(holder)
    assert link.window(4) == 0
    holder.settled()
    told = nudge()
    link.wait(told)
    assert told.done()
    assert link.window(4) > 0


def test_peers_that_never_answer_hold_a_part_each_and_the_others_go_on() -> None:
    node = Node(256 * MIB, links=1001)
    silent = [node.link() for _ in range(1000)]
    for link in silent:
        send(link)
        assert link.window(4) == 1, "one and no more"
    assert node.budget.main.held == 0
    living = node.link()
    assert send(living) >= LEAST
    living.settled()
    living.answers = True
    assert living.window(4) == 4
    assert send(living) == BATCH


async def test_links_that_are_in_step_wait_for_nobody_who_catches_up() -> None:
    node = Node(8 * MIB, links=16)
    late = [node.link(answers=True) for _ in range(8)]
    for link in late[:3]:
        send(link)
    for link in late[3:]:
        link.wait(nudge())
    for _ in range(8):
        link = node.link(answers=True)
        link.is_in_step = True
        link.take()
        assert link.keep(400)
        link.carry()
        assert link.window(4) == 1
        link.is_in_step = False
        link.settled()
        assert link.window(4) == 0, "now it has to catch up, too"
    assert node.budget.waiting == 5


def test_a_first_batch_is_whole_where_there_are_few_links() -> None:
    node = Node(256 * MIB, links=100)
    assert send(node.link()) == BATCH


async def test_where_all_fell_silent_the_others_go_on_with_smaller_batches_until_they_answer() -> None:
    node = Node(8 * MIB, links=8)
    silent = [node.link(answers=True) for _ in range(3)]
    for link in silent:
        send(link)
    living, other = node.link(answers=True), node.link(answers=True)
    told, too = nudge(), nudge()
    living.wait(told)
    other.wait(too)
    node.clock.advance(PATIENCE / 2)
    await give_turns()
    assert not told.done()
    node.clock.advance(PATIENCE / 2)
    await give_turns()
    assert told.done()
    assert too.done()
    part = node.budget.first.size // 8
    for link in (living, other):
        assert part // 2 < send(link) <= part
        link.settled()
    assert part // 2 < send(living) <= part, "at once, as long as nothing comes back"
    living.settled()
    silent[0].settled()
    assert send(living) == BATCH


async def test_who_waits_while_others_answer_gets_whole_batches() -> None:
    node = Node(8 * MIB, links=8)
    busy = [node.link(answers=True) for _ in range(3)]
    for link in busy:
        send(link)
    waiting = [node.link(answers=True) for _ in range(4)]
    for link in waiting:
        link.wait(nudge())
    for link in waiting:
        node.clock.advance(PATIENCE * 0.6)
        await give_turns()
        busy.pop(0).settled()
        assert send(link) == BATCH
        busy.append(link)


async def test_a_page_that_turned_out_too_large_is_read_again_in_its_turn() -> None:
    node = Node(8 * MIB, links=64)
    others = [node.link() for _ in range(60)]
    for other in others:
        send(other)
    link = node.link()
    asked = link.take()
    assert not link.keep(MIB), "an event of 1 MiB does not fit beside the others"
    assert link.window(1) == 0
    told = nudge()
    link.wait(told)
    while not told.done():
        others.pop().end()
    assert link.take() == asked, "the same page"
    assert link.keep(MIB)
    link.carry()
    assert node.budget.first.held <= node.budget.first.size
    link.settled()
    assert link.needed == LEAST


async def test_an_event_that_is_larger_than_all_there_is_goes_alone() -> None:
    node = Node(MIB, links=2)
    other, link = node.link(), node.link()
    send(other)
    link.take()
    assert not link.keep(64 * MIB)
    told = nudge()
    link.wait(told)
    assert not told.done()
    other.settled()
    assert told.done()
    link.take()
    assert link.keep(64 * MIB)
    link.carry()
    assert other.window(1) == 0
    link.settled()
    assert other.window(1) == 1


def test_a_peer_may_have_batches_larger_than_the_budget_and_gets_half_of_it() -> None:
    node = Node(4 * MIB)
    link = node.link(answers=True, most=1 << 30)
    assert MIB < send(link) <= 2 * MIB


@pytest.mark.parametrize("seed", range(20))
async def test_the_budget_is_kept_whatever_happens_and_everybody_has_his_turn(seed: int) -> None:
    chance = random.Random(seed)
    links = chance.randrange(1, 120)
    node = Node(8 * MIB, links=links)
    idle = [node.link(most=chance.choice([64 << 10, 300_000, MIB])) for _ in range(links)]
    waiting: dict[int, tuple[Allowance, asyncio.Future[None]]] = {}
    flying: list[Allowance] = []
    turns = 0
    for _ in range(3000):
        budget = node.budget
        deed = chance.randrange(10)
        if deed < 5 and idle:
            link = idle.pop(chance.randrange(len(idle)))
            if link.window(1):
                turns += _read(chance, link, flying, idle)
            else:
                told = nudge()
                link.wait(told)
                waiting[id(link)] = link, told
        elif flying:
            link = flying.pop(chance.randrange(len(flying)))
            if deed < 9:
                link.settled()
                link.answers = True
            else:
                link.end()
            idle.append(link)
        for key, (link, told) in [*waiting.items()]:
            if told.done():
                del waiting[key]
                turns += _read(chance, link, flying, idle)
        assert budget.main.held <= budget.main.size
        assert budget.first.held <= budget.first.size
    while waiting or flying:
        for link in flying:
            link.settled()
        flying.clear()
        node.clock.advance(PATIENCE)
        await give_turns()
        told_now = [key for key, (_, told) in waiting.items() if told.done()]
        assert told_now or not waiting, "one link always proceeds"
        for key in told_now:
            turns += _read(chance, waiting.pop(key)[0], flying, idle)
    assert node.budget.held == 0
    assert turns > 100


def _read(chance: random.Random, link: Allowance, flying: list[Allowance], idle: list[Allowance]) -> int:
    """A page is read: nothing is in it, as much as was asked for with its frame, or a large event."""
    asked = link.take()
    size = chance.choice([0, asked, asked + asked // 20, 400_000])
    if not link.keep(size) or not size:
        link.drop()
        idle.append(link)
        return 0
    link.carry()
    flying.append(link)
    return 1
