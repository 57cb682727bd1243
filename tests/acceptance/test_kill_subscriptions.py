"""kill -9 between any two steps of a run: after the restart the part exists exactly once, and so do the events."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.declared import group
from tests.support.derived import OBSERVED, plugin, program, subscription
from tests.support.processes import Processes
from tests.support.running import NodeProcess
from tests.support.waiting import wait_for

SLOW = """
time.sleep(0.03)
answer([route(event) for event in events], events=[
    {"type": "lab.claimed", "subject": event["subject"], "attributes": {"of": event["id"]}} for event in events])
"""
TRIES = {"maxAttempts": 100, "baseBackoff": "5ms", "maxBackoff": "20ms"}


def effective(node: NodeProcess) -> dict[str, str]:
    """Return the routes in effect: name → destination."""
    found = node.ask("GET", "/effective")["resources"]
    return {each["metadata"]["name"]: each["spec"]["destination"] for each in found if each["kind"] == "IPv4Route"}


def facts(node: NodeProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.ask("GET", "/groups/edge/events", type="lab.claimed", limit=1000)["events"]
    return found


def start(processes: Processes, folder: Path, code: str, **spec: Any) -> NodeProcess:
    node = NodeProcess(processes, "onprem")
    file = program(folder, code)
    rights = ["propose.dynamicConfig", "emit.events"]
    node.apply(group("onprem"), plugin(file, capabilities=rights), subscription(**{"retry": TRIES, **spec}))
    return node


def runs(node: NodeProcess, **asked: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.ask("GET", "/subscriptions/claims/runs", limit=1000, **asked)["runs"]
    return found


@pytest.mark.timeout(120)
def test_parts_and_facts_survive_kills_exactly_once(
    processes: Processes, tmp_path: Path, chance: random.Random
) -> None:
    node = start(processes, tmp_path, SLOW)
    names: list[str] = []
    for _ in range(4):
        for _ in range(chance.randint(1, 4)):
            names.append(f"e{len(names):03}")
            node.emit(names[-1], type=OBSERVED, subject=f"10.0.0.{len(names)}/32")
        time.sleep(chance.random() * 0.12)  # before the run, in it, at its settling, or after it
        node.kill9()
        node.start()
    wanted = {f"claim-10-0-0-{at}": f"10.0.0.{at}/32" for at in range(1, len(names) + 1)}
    wait_for(lambda: effective(node) == wanted, f"the {len(wanted)} routes to be in force", seconds=30)
    outcomes = [line["outcome"] for name in names for line in runs(node, eventId=name)]
    told = {name: [line["outcome"] for line in runs(node, eventId=name)].count("succeeded") for name in names}
    print(f"{len(names)} events, {outcomes.count('failed')} runs cut short")  # noqa: T201
    assert set(told.values()) == {1}, "an event was run to its end once, and stored once"
    assert sorted(fact["payload"]["of"] for fact in facts(node)) == names
    assert node.ask("GET", "/subscriptions")["subscriptions"][0]["deadLetters"] == 0
    status = node.ask("GET", "/resources/EventGroup/edge/describe")["status"]
    assert status["events"] == status["seq"] == 2 * len(names), "no event was emitted twice"
    assert node.stop() == 0


@pytest.mark.timeout(60)
def test_a_plugin_that_takes_the_node_down_is_stopped_in_the_end(processes: Processes, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    code = f"""
open({str(marks)!r}, "a").write(",".join(event["id"] for event in events) + "\\n")
while any(event["id"] == "bad" for event in events):
    time.sleep(1)
{SLOW}
"""
    node = start(processes, tmp_path, code, retry={"maxAttempts": 1})
    node.emit("bad", type=OBSERVED, subject="10.0.0.1/32")
    for attempt in (1, 2, 3):
        wait_for(lambda count=attempt: marks.exists() and len(marks.read_text().split()) == count, "it to run")  # type: ignore[misc]
        node.kill9()
        node.start()
    node.emit("good", type=OBSERVED, subject="10.0.0.2/32")
    wait_for(lambda: effective(node) == {"claim-10-0-0-2": "10.0.0.2/32"}, "the good event's route")
    assert marks.read_text().split() == ["bad", "bad", "bad", "good"]
    (line,) = runs(node, eventId="bad")[:1]
    assert (line["outcome"], line["attempts"], line["error"]) == ("parked", 3, "the node ended while the plugin ran")
    assert node.stop() == 0


@pytest.mark.timeout(60)
def test_a_stop_lets_the_run_end(processes: Processes, tmp_path: Path) -> None:
    node = start(processes, tmp_path, "time.sleep(0.5)\n" + SLOW, retry={"maxAttempts": 1})
    node.emit("e1", type=OBSERVED, subject="10.0.0.1/32")
    wait_for(lambda: [line["outcome"] for line in runs(node)] == ["running"], "the run to begin")
    assert node.stop() == 0
    node.start()
    assert [line["outcome"] for line in runs(node)] == ["succeeded"]
    assert list(effective(node)) == ["claim-10-0-0-1"]
    assert node.stop() == 0
