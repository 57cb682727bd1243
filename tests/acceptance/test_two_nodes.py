"""Nodes as processes: all nodes hold what one observes, whichever way it was emitted."""

from __future__ import annotations

import json

import pytest

from tests.support.declared import declare, group, peer
from tests.support.processes import Processes
from tests.support.running import NodeProcess
from tests.support.waiting import wait_for


def _mesh(*nodes: NodeProcess) -> None:
    for node in nodes:
        node.join()
    for node in nodes:
        node.join(*[other for other in nodes if other is not node])


def test_three_nodes_come_to_hold_the_same_facts(processes: Processes) -> None:
    nodes = [NodeProcess(processes, name) for name in "abc"]
    _mesh(*nodes)
    said = {node.name: [f"{node.name}-{number:03}" for number in range(40)] for node in nodes}
    for start in range(0, 40, 10):
        for node in nodes:
            node.emit(*said[node.name][start : start + 10])
    everything = {event for events in said.values() for event in events}
    for node in nodes:
        node.wait_holds(everything)
        assert node.counts() == (120, 120)
        for source in nodes:
            assert node.ids(source=source.name) == said[source.name]
    for node in nodes:
        node.wait_sent(*[other.name for other in nodes if other is not node])
        assert node.letters() == []
        assert node.stop() == 0


@pytest.mark.parametrize("server", [False, True], ids=["beside-the-node", "over-http"])
def test_the_command_line_puts_events_in_and_sees_them_arrive(processes: Processes, server: bool) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    b.join()

    def control(*arguments: str, stdin: str | None = None) -> str:
        where = ["--server", a.process.url] if server else []
        done = processes.control(*arguments, *where, env=processes.node_environment("a"), stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    declared = processes.directory / "a.yaml"
    declared.write_text(declare(group("a", port=a.port, secret=a.secret), peer("b", b.port)))
    control("apply", "-f", str(declared))
    control("federation", "event", "emit", "--group", "edge", "--type", "t", "--id", "one")
    lines = "".join(json.dumps({"id": f"e{number}", "type": "t"}) + "\n" for number in range(50))
    control("federation", "event", "emit", "--group", "edge", "--stdin", stdin=lines)
    b.wait_holds({"one", *(f"e{number}" for number in range(50))})
    a.wait_sent("b")
    listed = json.loads(control("federation", "event", "deliveries", "--group", "edge", "-o", "json"))
    rows = listed if isinstance(listed, list) else listed["deliveries"]
    assert {row["status"] for row in rows} == {"delivered"}


def test_an_event_put_in_beside_a_stopped_node_goes_out_when_it_starts(processes: Processes) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    _mesh(a, b)
    a.stop()
    done = processes.control(
        *("federation", "event", "emit", "--group", "edge", "--type", "t", "--id", "one"),
        env=processes.node_environment("a"),
    )
    assert done.returncode == 0, done.stderr
    assert b.ids() == []
    a.start()
    b.wait_holds({"one"})


def test_selectors_choose_and_widening_brings_what_was_left_out(processes: Processes) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    b.join()
    a.apply(
        group("a", port=a.port, secret=a.secret),
        peer("b", b.port, types=["x", "y"], subjectPrefixes=["10.88.", "10.99."]),
    )
    a.emit("x-in", type="x", subject="10.88.1.1")
    a.emit("z-out", type="z", subject="10.88.1.1")
    a.emit("x-out", type="x", subject="10.77.1.1")
    a.emit("bare", type="x")
    a.emit("y-in", type="y", subject="10.99.1.1")
    b.wait_holds({"x-in", "y-in"})
    a.wait_sent("b")
    assert b.ids() == ["x-in", "y-in"]
    a.apply(peer("b", b.port, types=["x"]))  # narrower in one way, wider in the other
    b.wait_holds({"x-in", "y-in", "x-out", "bare"})
    wait_for(lambda: not a.link("b")["repairs"], "the backfill to end")
    assert b.ids() == ["x-in", "y-in", "x-out", "bare"]  # nothing was deleted at the peer, and nothing sent twice
    assert b.counts() == (4, 4)
    a.emit("y-late", type="y", subject="10.99.1.1")
    a.emit("x-late", type="x")
    b.wait_holds({"x-late"})
    assert "y-late" not in b.ids()
    a.apply(peer("b", b.port))
    b.wait_holds({"x-in", "y-in", "x-out", "bare", "z-out", "y-late", "x-late"})
    assert b.counts() == (7, 7)


def test_a_selector_that_changes_under_traffic_and_crashes_leaves_nothing_out(processes: Processes) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    b.join()
    a.apply(group("a", port=a.port, secret=a.secret), peer("b", b.port, types=["x"]))
    ids: list[str] = []
    for turn in range(12):
        new = [{"id": f"e{number:04}", "type": "xyz"[number % 3]} for number in range(len(ids), len(ids) + 7)]
        a.ask("POST", "/groups/edge/events", {"events": new})
        ids += [event["id"] for event in new]
        types = [["x", "y"], ["y"], ["x"], ["z", "x"]][turn % 4]
        a.apply(peer("b", b.port, types=types))
        if turn % 3 == 2:
            node = (a, b)[turn // 3 % 2]
            node.kill9()
            node.start()
    a.apply(peer("b", b.port))
    b.wait_holds(set(ids))
    wait_for(lambda: not a.link("b")["repairs"], "the backfills to end")
    a.wait_sent("b")
    assert b.counts() == (len(ids), len(ids))
    assert {row["status"] for row in _all_deliveries(a)} == {"delivered"}


def _all_deliveries(node: NodeProcess) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    after = ""
    while True:
        page = node.ask("GET", "/groups/edge/deliveries", limit=1000, after=after)
        rows += page["deliveries"]
        if page["next"] is None:
            return rows
        after = page["next"]
