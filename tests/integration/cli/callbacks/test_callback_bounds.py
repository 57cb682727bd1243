"""Values at and beyond every bound, by routerctl: a refusal in one line, never a traceback."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.callbacks.test_callback_commands import CALLBACKS
from tests.integration.cli.conftest import Control

both = pytest.mark.parametrize("routerctl", ["sqlite", "api"], indirect=True)
HUGE = ("9223372036854775808", "1" * 400)


@both
def test_numbers_and_times_at_their_bounds_are_refused_in_words(routerctl: Control) -> None:
    """What operations make of such values is tested with the operations; this is what their options make of them."""
    routerctl("topic", "put", "clients")
    routerctl("apply", "-f", routerctl.file(CALLBACKS))

    def refused(*command: str, code: int) -> str:
        found = routerctl("callback", *command, code=code)
        assert (found.out, found.err.count("\n")) == ("", 1), found.err
        return found.err

    for number in HUGE:
        for command in (
            ["replay", "changes", "--dry-run", f"--from-seq={number}"],
            ["replay", "changes", "--dry-run", f"--to-seq={number}"],
            ["dead-letters", "list", "changes", f"--after={number}"],
            ["dead-letters", "list", "changes", f"--limit={number}"],
            ["dead-letters", "retry", "changes", "--", number],
            ["dead-letters", "drop", "changes", "--", number],
            ["attempts", "changes", f"--limit={number}"],
        ):
            assert "must have at most 18 digits, not '" in refused(*command, code=2)
    for option in ("--from-seq", "--to-seq"):
        assert "must be at least 1, not '0'" in refused("replay", "changes", f"{option}=0", code=2)
    for wrong in ("9999-12-31T23:59:59-23:59", "99999999999h", "1" * 5000):
        for option in ("--since", "--until"):
            assert "is not a time" in refused("replay", "changes", f"{option}={wrong}", code=1)
        assert "is not a time" in refused("reset", "changes", f"--since={wrong}", code=1)
        assert "is not a time" in refused("attempts", "changes", f"--before={wrong}", code=1)
    for early in ("0001-01-01T00:00:00Z", "106751d"):
        assert "nothing to send to changes again" in refused("replay", "changes", f"--since={early}", code=1)
        assert "no event of clients was stored since" in refused("reset", "changes", f"--since={early}", code=1)
        assert len(routerctl("callback", "attempts", "changes", f"--before={early}").lines) == 1


@both
def test_a_range_that_ends_before_it_begins_is_refused(routerctl: Control) -> None:
    routerctl("topic", "put", "clients")
    routerctl("apply", "-f", routerctl.file(CALLBACKS))
    found = routerctl("callback", "replay", "changes", "--from-seq=3", "--to-seq=2", code=2)
    assert "--to-seq (2) is less than --from-seq (3): swap them" in found.err
    found = routerctl("callback", "replay", "changes", "--since=1m", "--until=2m", code=1)
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
    found = routerctl("get", "ec", "rm/a; reboot", code=3)
    assert "routerctl callback describe 'rm/a; reboot'" in found.err, "which can be pasted"
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
    found = routerctl("callback", "replay", "billing", "--from-seq=1", code=1)
    assert "billing has 16 unfinished resends, which is the most" in found.err
    assert "routerctl callback describe billing" in found.err
    described = json.loads(routerctl("callback", "describe", "billing", "-o", "json").out)
    assert len(described["resends"]) == 16
