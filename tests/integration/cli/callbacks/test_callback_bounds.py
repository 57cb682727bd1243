"""Values at and beyond every bound, by routerctl: a refusal in one line, never a traceback."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.callbacks.test_callback_commands import CALLBACKS
from tests.integration.cli.conftest import Control

both = pytest.mark.parametrize("routerctl", ["sqlite", "api"], indirect=True)
HUGE = ("9223372036854775807", "9223372036854775808", "1" * 400)


@both
def test_numbers_and_times_at_their_bounds_are_refused_in_words(routerctl: Control) -> None:
    routerctl("topic", "put", "clients")
    routerctl("apply", "-f", routerctl.file(CALLBACKS))
    for number in (*HUGE, "0", "-1"):
        for command in (
            ["replay", "changes", "--dry-run", f"--from-seq={number}"],
            ["replay", "changes", "--dry-run", f"--to-seq={number}"],
            ["dead-letters", "list", "changes", f"--after={number}"],
            ["dead-letters", "list", "changes", f"--limit={number}"],
            ["dead-letters", "retry", "changes", "--", number],
            ["dead-letters", "drop", "changes", "--", number],
            ["attempts", "changes", f"--limit={number}"],
        ):
            found = routerctl("callback", *command, code=None)
            assert found.code in (0, 1, 2, 3), (command, (found.out + found.err))
            assert "Traceback" not in (found.out + found.err)
            assert "internal" not in (found.out + found.err)
    for time in ("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00Z", "106751d", "99999999999h", "1" * 5000):
        for command in (
            ["replay", "changes", "--dry-run", f"--since={time}"],
            ["replay", "changes", "--dry-run", f"--until={time}"],
            ["reset", "changes", f"--since={time}"],
            ["attempts", "changes", f"--before={time}"],
        ):
            found = routerctl("callback", *command, code=None)
            assert found.code in (0, 1, 2), (command, (found.out + found.err))
            assert "Traceback" not in (found.out + found.err)
            assert "internal" not in (found.out + found.err)


@both
def test_a_range_that_ends_before_it_begins_is_refused(routerctl: Control) -> None:
    routerctl("topic", "put", "clients")
    routerctl("apply", "-f", routerctl.file(CALLBACKS))
    found = routerctl("callback", "replay", "changes", "--from-seq=3", "--to-seq=2", code=None)
    assert found.code in (1, 2)
    assert "--to-seq (2) is less than --from-seq (3): swap them" in found.err
    found = routerctl("callback", "replay", "changes", "--since=1m", "--until=2m", code=None)
    assert found.code in (1, 2)
    assert "until (2m) is before since (1m)" in (found.out + found.err)


@both
def test_the_name_of_a_subscriber_is_explained_wherever_it_does_not_fit(routerctl: Control) -> None:
    routerctl("topic", "put", "clients")
    routerctl("apply", "-f", routerctl.file(CALLBACKS))
    for command in (
        ["delete", "ec", "rm/app--1"],
        ["get", "webhook", "rm/app--1"],
        ["describe", "callback", "rm/app--1"],
    ):
        found = routerctl(*command, code=3)
        assert "a subscriber of the Routemaster surface" in found.err
        assert "routerctl callback describe rm/app--1" in found.err
    for command in (["describe", "rm/app--1"], ["pause", "rm/app--1"], ["attempts", "rm/app--1"]):
        found = routerctl("callback", *command, code=3)
        assert "the Routemaster surface has no subscriber 'app--1'" in found.err
        assert "routerctl routemaster subscribers" in found.err
    declared = routerctl.file(CALLBACKS.replace("{name: billing}", "{name: rm/app--1}"), "rm.yaml")
    found = routerctl("apply", "-f", declared, code=1)
    assert "names with / stand for subscribers of the Routemaster surface" in found.err
    assert routerctl("callback", "describe", "ec/billing").out


@both
def test_the_resends_under_way_are_bounded_and_a_refusal_leaves_nothing_behind(routerctl: Control) -> None:
    routerctl("topic", "put", "clients")
    routerctl("apply", "-f", routerctl.file(CALLBACKS))
    routerctl("fed", "event", "emit", "--group", "edge", "--type", "client.seen", "--id", "e1")
    routerctl("callback", "reset", "billing", "--latest")
    for _ in range(16):
        routerctl("callback", "replay", "billing", "--from-seq=1")
    found = routerctl("callback", "replay", "billing", "--from-seq=1", code=None)
    assert found.code in (1, 4)
    assert "billing has 16 unfinished resends, which is the most" in found.err
    assert "routerctl callback describe billing" in found.err
    described = json.loads(routerctl("callback", "describe", "billing", "-o", "json").out)
    assert len(described["resends"]) == 16
