"""Running routers: which move together, how far, and in how many transactions. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.egress.routers.projection import Guarantee, Options
from eventd.egress.routers.registry import RouterRegistry
from eventd.egress.routers.state import (
    ROUTER_WEIGHT,
    SLICE_BYTES,
    SLICE_WEIGHT,
    DeclaredRouter,
    RouterState,
    SourceState,
    step_batches,
)
from eventd.log.core.records import write_body
from eventd.log.routers.commit import CommitSteps, RouterStep, StepResult
from eventd.log.routers.source import Copy, CopyPage
from eventd.log.topics.router_rows import RouterRow


def line(name: str, *, at: int = 10, durability: str = "disk", version: int = 1, **options: Any) -> RouterRow:
    number = int(name.strip("r"))
    told = Options(**options).encode()
    return RouterRow(
        number, name, 1, 100 + number, told, at, 0, 0, 0, 0, "source", at, f"d{number}", durability, at, version,
        "running", "",
    )  # fmt: skip


def upstream(*lines: RouterRow, tip: int = 20) -> SourceState:
    source = SourceState(1, "source")
    source.tip = tip
    source.routers = {each.name: RouterState(DeclaredRouter.of(each), source) for each in lines}
    return source


def cut(copies: int, size: int = 1) -> CopyPage:
    body = write_body(None, None, f'"{"x" * (size - 2)}"' if size > 1 else "1", None)
    return CopyPage.of_records([Copy(at, at, "", "1", body) for at in range(11, 11 + copies)])


def moves(source: SourceState, each: CopyPage) -> list[tuple[RouterState, RouterStep]]:
    return [
        (router, RouterStep(1, router.cursor, 10, 1, 1, 100, 20, 20, each, 0, None, False, router.durable))
        for router in source.routers.values()
    ]


def names(routers: list[RouterState]) -> list[str]:
    return [router.line.name for router in routers]


def test_those_that_are_behind_go_first_and_no_further_than_where_the_next_stand() -> None:
    batch = upstream(line("r1", at=15), line("r2"), line("r3"), line("r4", at=17), line("r5", at=20)).next_batch(9)
    assert (names(batch.routers), batch.until) == (["r2", "r3"], 15)


def test_who_is_held_or_lost_or_has_seen_all_does_not_move() -> None:
    source = upstream(line("r1"), line("r2"), line("r3"), line("r4", at=20))
    source.routers["r1"].held = "full"
    source.routers["r2"].overtaken = True
    assert names(source.next_batch(9).routers) == ["r3"]
    source.tip = 10
    assert (source.next_batch(9).routers, source.is_due) == ([], False)


def test_a_hole_is_something_to_look_at_although_nothing_was_appended() -> None:
    source = upstream(line("r1"), tip=10)
    assert not source.is_due
    source.holes += 1
    assert names(source.next_batch(9).routers) == ["r1"]


def test_only_so_many_kinds_of_copies_are_made_at_once() -> None:
    plain = [line("r1"), line("r2")]
    stamped = [line(f"r{n}", guarantee=Guarantee.EXACTLY_ONCE) for n in range(3, 9)]
    assert names(upstream(*plain, *stamped).next_batch(3).routers) == ["r1", "r2", "r3", "r4"]


def test_a_transaction_takes_so_many_routers_and_so_many_copies() -> None:
    source = upstream(*(line(f"r{n}") for n in range(200)))
    few = [len(part.moves) for part in step_batches(moves(source, cut(1)))]
    assert sum(few) == 200
    assert max(few) == SLICE_WEIGHT // (ROUTER_WEIGHT + 1)
    assert [len(part.moves) for part in step_batches(moves(source, cut(SLICE_WEIGHT)))] == [1] * 200
    large = [*step_batches(moves(source, cut(1, SLICE_BYTES // 4)))]
    assert max(len(part.moves) for part in large) == 4


@pytest.mark.parametrize(("durability", "durable"), [("disk", False), ("memory", False), ("fsync", True)])
def test_copies_wait_for_the_disk_where_their_topic_does(durability: str, durable: bool) -> None:
    made = moves(upstream(line("r1"), line("r2", durability=durability)), cut(1))
    assert CommitSteps([move for _, move in made], 1).durable is durable


def test_a_topic_without_news_lets_its_routers_pass_the_rest_of_the_log() -> None:
    source = upstream(line("r1"), line("r2", at=8), tip=500)
    source.look(500, 10)
    assert [router.seen for router in source.routers.values()] == [500, 8]
    assert names(source.next_batch(9).routers) == ["r2"]
    assert not source.routers["r1"].is_ahead


def test_a_router_that_is_held_stands_where_it_got_to() -> None:
    source = upstream(line("r1"))
    router = source.routers["r1"]
    router.settle(StepResult(14, 14, 4, 0, "full"), 7.0)
    assert (router.seen, router.position, router.held, router.held_at, router.state) == (
        14,
        14,
        "full",
        7.0,
        "backing-off",
    )
    assert not router.is_due


def test_other_options_take_effect_and_the_same_ones_change_nothing() -> None:
    source = upstream(line("r1"))
    router = source.routers["r1"]
    router.seen = router.position = 15
    assert not router.declare(DeclaredRouter.of(line("r1", durability="fsync")))
    assert (router.seen, router.durable) == (15, True)
    assert router.declare(DeclaredRouter.of(line("r1", at=15, version=2, preserve_tag=False)))
    assert router.router.options == Options(preserve_tag=False)


def test_a_roster_knows_who_feeds_what_and_forgets_what_is_dropped() -> None:
    roster = RouterRegistry()
    for each in (line("r1"), line("r2")):
        roster.adopt(DeclaredRouter.of(each), tip=20)
    assert roster.feeds("d1")
    assert names([*roster.into(101)]) == ["r1"]
    assert names(roster.upstream(102)) == ["r2"]
    assert {*roster.graph.routers} == {"r1", "r2"}
    gone = roster.routers["r1"]
    roster.drop_others(["r2"])
    assert (gone.gone, roster.feeds("d1"), [*roster.into(101)], {*roster.graph.routers}) == (True, False, [], {"r2"})
    roster.drop("r2")
    roster.drop("r2")
    assert (roster.sources, roster.routers) == ({}, {})


def test_a_router_that_was_made_anew_under_its_name_begins_anew() -> None:
    roster = RouterRegistry()
    roster.adopt(DeclaredRouter.of(line("r1")), tip=20)
    before = roster.routers["r1"]
    roster.adopt(DeclaredRouter.of(line("r1", at=18)._replace(id=7)), tip=20)
    assert before.gone
    assert roster.routers["r1"].seen == 18
