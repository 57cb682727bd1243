"""routerctl subscription, on a database without a node and on an API."""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import EDGE, Control, everywhere

CLAIMS = """
apiVersion: plugin.routerd.net/v1alpha1
kind: Plugin
metadata: {name: claim}
spec: {executable: /usr/libexec/claim, capabilities: [propose.dynamicConfig]}
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventSubscription
metadata: {name: claims}
spec:
  groupRef: edge
  match: {types: ["routerd.client.*"]}
  trigger: {pluginRef: claim}
"""


@pytest.fixture
def declared(routerctl: Control) -> Control:
    routerctl("apply", "-f", routerctl.file(EDGE), "-f", routerctl.file(CLAIMS, "claims.yaml"))
    return routerctl


def emit(control: Control, name: str, type: str = "routerd.client.seen") -> None:
    control("fed", "event", "emit", "--group", "edge", "--type", type, "--id", name)


def cells(line: str) -> list[str]:
    return line.split()


@everywhere
def test_the_state_of_each_is_listed(declared: Control) -> None:
    emit(declared, "e1")
    emit(declared, "e2", "another.kind")
    head, row = declared("subscription", "list").lines
    assert cells(head) == [
        "GROUP", "SUBSCRIPTION", "PLUGIN", "PHASE", "STATE", "WAITING", "OLDEST", "DEAD_LETTERS", "LAST_RUN",
    ]  # fmt: skip
    found = cells(row)
    assert found[:6] == ["edge", "claims", "claim", "Waiting", "running", "1"]
    assert found[-2:] == ["0", "-"]
    (state,) = declared("federation", "subscription", "list", "-o", "json").json
    assert (state["waitingEvents"], state["state"], state["head"], state["backfills"]) == (1, "running", 2, [])
    assert declared("subscription", "list", "-o", "name").lines == ["claims"]


def test_what_is_not_there_is_an_empty_list(routerctl: Control) -> None:
    assert routerctl("subscription", "list", "-o", "json").json == []
    assert routerctl("subscription", "runs", "never-declared", "-o", "json").json == []


def test_runs_of_a_name_nobody_declared_say_so(declared: Control) -> None:
    told = "note: EventSubscription claim is not declared (declared: claims)\n"
    assert declared("subscription", "runs", "EventSubscription/claim").err == told
    assert declared("subscription", "runs", "claims").err == ""


def test_it_is_paused_and_resumed(declared: Control) -> None:
    declared("subscription", "pause", "claims", "--group", "edge")
    (state,) = declared("subscription", "list", "-o", "json").json
    assert state["state"] == "paused"
    assert state["pausedBy"]
    assert "paused" in declared("subscription", "pause", "EventSubscription/claims").lines[1]
    assert "running" in declared("subscription", "resume", "claims").lines[1]


def test_reset_and_retry_say_what_they_do(declared: Control) -> None:
    emit(declared, "e1")
    emit(declared, "e2")
    assert declared("subscription", "reset", "claims", "--latest", "--dry-run").lines == [
        "claims: from position 0 to 2: 2 events would be skipped (dry run)"
    ]
    assert declared("subscription", "reset", "claims", "--latest").lines == [
        "claims: continues at position 2, was at 0"
    ]
    assert declared("subscription", "list", "-o", "json").json[0]["waitingEvents"] == 0
    assert declared("subscription", "reset", "claims").lines == ["claims: continues at position 0, was at 2"]
    assert declared("subscription", "reset", "claims", "--since", "1h", "-o", "json").json == [
        {"subscription": "claims", "group": "edge", "from": 0, "to": 0}
    ]
    assert declared("subscription", "retry", "claims").lines == ["claims: failures cleared; retrying 0 dead letters"]
    told = declared("subscription", "retry", "claims", "--event-id", "e9", code=3)
    assert told.err == "error: claims has no dead letter of event e9\n"


NONSENSE = [
    (["retry", "clams"], 3, "EventSubscription clams is not declared (did you mean claims?)"),
    (["pause", "x"], 3, "EventSubscription x is not declared (declared: claims)"),
    (["resume", "claims", "--group", "other"], 3, "EventSubscription claims is not declared in group other"),
    (["reset", "claims", "--since", "1h", "--latest"], 1, "since and latest name two positions: leave one out"),
    (["reset", "claims", "--since", "soon"], 1, "since"),
    (["reset", "claims", "--since", "1h"], 1, "no event of group edge was stored since 1h"),
    (["list", "--group", "other"], 3, "EventGroup other is not declared (declared: edge)"),
    (["runs", "claims", "--status", "done"], 1, "'done' is not one of pending, succeeded, failed"),
]


def test_nonsense_is_refused_in_words(declared: Control) -> None:
    for command, code, told in NONSENSE:
        found = declared("subscription", *command, code=code)
        assert found.err.startswith("error: "), command
        assert told in found.err, command
        assert "Traceback" not in found.err, command


@pytest.mark.parametrize("command", [["runs"], ["runs", "a", "--subscription", "b"], ["runs", "a", "--limit", "0"]])
def test_a_command_that_makes_no_sense_is_a_wrong_usage(control: Control, command: list[str]) -> None:
    assert control("subscription", *command, code=2).err
