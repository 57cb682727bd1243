"""Whole nodes on virtual time: what is acknowledged stays under faults, and runs repeat themselves."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from eventd.egress.loop.consumer import LONGEST_REOPEN
from eventd.egress.peers.push_v2 import PushV2
from eventd.errors import EventdError
from eventd.simulation.faults.fault import LACKING, SQLITE, FaultKind
from eventd.simulation.plan import USUAL_SIZE, draw_plan, plan_from_json
from eventd.simulation.run import PATH_BYTES, SimulationResult, SimulationRun, play
from eventd.simulation.world.streams import ChanceStreams
from eventd.simulation.world.topology import PlannedLink, Topology
from eventd.simulation.world.world import SimulatedWorld
from federation.ranges import Mark

SEEDS = (6, 12, 54)
"""Short runs of pairs and of a triangle that together have every kind of fault."""
FIRST_OF_DAY = 1000 * date.today().toordinal()
"""The seeds from this one on are those of the day."""
EACH_DAY = 4
MOST_STEPS = 125
"""The load of a run of the day: campaigns have the long runs, of which one takes as long as many short ones."""
KEPT = sorted(Path(__file__).with_name("kept").glob("*.json"))
"""Small plans that violated an invariant, each with that and with the title of the commit that fixed it."""
IDLE_STEPS = 120
"""Maximum number of steps of an idle node in a second: twenty looks for changes, and what each of them costs."""


def run(seed: int, folder: Path) -> SimulationResult:
    return play(draw_plan(seed, size=USUAL_SIZE), within=folder)


def test_the_runs_have_every_kind_of_fault() -> None:
    plans = [draw_plan(seed, size=USUAL_SIZE) for seed in SEEDS]
    assert {fault.kind for plan in plans for fault in plan.faults} == set(FaultKind) - set(LACKING[SQLITE])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_violates_nothing(seed: int, tmp_path: Path) -> None:
    result = run(seed, tmp_path)
    assert result.violations == []
    assert result.counts
    assert result.acknowledged > 0


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
def test_a_plan_that_found_something_violates_nothing_any_more(file: Path, tmp_path: Path) -> None:
    assert play(plan_from_json(file.read_bytes()), within=tmp_path).violations == []


@pytest.mark.parametrize("number", range(EACH_DAY))
def test_a_run_of_the_day_violates_nothing(number: int, tmp_path: Path) -> None:
    plans = map(draw_plan, itertools.count(FIRST_OF_DAY))
    plan = next(itertools.islice((plan for plan in plans if len(plan.load) <= MOST_STEPS), number, None))
    assert play(plan, within=tmp_path).violations == [], f"seed {plan.seed}"


def test_the_files_of_nodes_have_paths_of_one_length(tmp_path: Path) -> None:
    """Nodes write paths into answers, whose lengths decide in how many pieces they arrive."""
    lengths = list[int]()

    def note(run: SimulationRun) -> None:
        lengths.append(len(str(run.world.folder)))
        run.world.loop.close()
        raise Seen

    for name in ("a", "a-longer-name"):
        (tmp_path / name).mkdir()
        with pytest.raises(Seen):
            play(draw_plan(SEEDS[0]), within=tmp_path / name, watch=note)
    assert lengths == [PATH_BYTES, PATH_BYTES]


class Seen(Exception):
    pass


def test_a_full_disk_is_named_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("eventd.simulation.run.SimulatedWorld", refuse)
    with pytest.raises(EventdError, match=f"cannot be written in {tmp_path}: No space left on device"):
        play(draw_plan(SEEDS[0]), within=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_coroutine_of_a_dead_process_outlives_the_run(tmp_path: Path) -> None:
    """Whoever keeps a reference to the run: a log record with a traceback is enough."""
    kept: list[SimulationRun] = []
    assert play(draw_plan(6, size=USUAL_SIZE), within=tmp_path, watch=kept.append).kills > 0
    assert [task for task in asyncio.all_tasks(kept[0].world.loop) if task.get_coro().cr_frame is not None] == []


def test_an_idle_node_takes_few_steps(tmp_path: Path) -> None:
    world = SimulatedWorld(draw_plan(2).topology, ChanceStreams(1), tmp_path)

    async def main() -> int:
        for machine in world.machines.values():
            await machine.start()
        before = world.loop.steps
        await world.loop.pause(60.0)
        for machine in world.machines.values():
            await machine.stop()
        return world.loop.steps - before

    with world.running() as play_to_its_end:
        steps = play_to_its_end(main())
    assert steps < IDLE_STEPS * 60 * len(world.machines)


def test_two_idle_nodes_compare_marks_when_one_starts_and_then_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison is no start: otherwise each would cause one of the other node, for ever."""
    topology = Topology("pair", ["a", "b"], [PlannedLink("a", "b", False), PlannedLink("b", "a", False)])
    world = SimulatedWorld(topology, ChanceStreams(1), tmp_path)
    asked: list[str] = []
    mark = PushV2.mark

    async def count(push: PushV2, *, start: bool) -> Mark | None:
        asked.append(push._link.node)
        return await mark(push, start=start)

    monkeypatch.setattr(PushV2, "mark", count)

    async def asked_within(seconds: float) -> list[str]:
        asked.clear()
        await world.loop.pause(seconds)
        return sorted(set(asked))

    async def main() -> None:
        for machine in world.machines.values():
            await machine.start()
        for name, client in world.clients.items():
            text = "\n---\n".join(json.dumps(each) for each in world.documents(name))
            sources = {"sources": [{"name": "plan", "text": text}]}
            await client.life.start(client.ask("apply", "POST", "/resources/apply", sources))
        assert await asked_within(20) == ["a", "b"]
        assert await asked_within(2 * LONGEST_REOPEN) == []
        await world.machines["a"].stop()
        await world.machines["a"].start()
        assert await asked_within(20) == ["a", "b"], "the other node compares, too: it may have lost something"
        assert await asked_within(2 * LONGEST_REOPEN) == []

    with world.running() as play_to_its_end:
        play_to_its_end(main())


@pytest.mark.parametrize("shape", ["star", "ring"])
def test_shapes_with_relays_carry_every_event(shape: str, tmp_path: Path) -> None:
    plans = (draw_plan(seed, ["emit"]) for seed in range(1000))
    plan = next(plan for plan in plans if plan.topology.shape == shape and len(plan.load) < 40)
    result = play(plan, within=tmp_path)
    assert result.violations == []
    assert result.delivered


def test_a_seed_repeats_itself_step_by_step_and_leaves_nothing_behind(tmp_path: Path) -> None:
    first, second = run(6, tmp_path), run(6, tmp_path)
    assert (first.sum, first.steps, first.seconds) == (second.sum, second.steps, second.seconds)
    assert list(tmp_path.iterdir()) == []


def test_a_seed_has_the_same_steps_in_two_processes() -> None:
    def sums(first: int, seeds: int) -> dict[str, str]:
        words = ["simulate", "--from", str(first), "--seeds", str(seeds), "-o", "json"]
        command = [sys.executable, "-m", "eventd.cli.routerd_eventd", *words]
        found: dict[str, str] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["sums"]
        return found

    assert sums(13, 2)["14"] == sums(14, 1)["14"]
