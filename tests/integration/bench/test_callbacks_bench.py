"""The benchmark of callbacks, small: each part completes, and an event that is missing makes its figures invalid."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.bench import __main__ as links
from tests.bench import callback_recovery, callbacks
from tests.bench.callback_site import callback_site

SMALL = {
    "fan": ("--subscribers", "5", "--events", "5", "--idle-seconds", "0.2"),
    "tail": ("--dead", "2", "--singles", "5"),
    "publishing": ("--subscribers", "5", "--singles", "5"),
    "latency": ("--singles", "5"),
    "recovery": ("--outages", "0.3", "--at-each", "2"),
}
"""The options of each part."""
SHORT = {"DEAD_SECONDS": 0.5, "SLOW_SECONDS": 0.1, "QUIET_SECONDS": 0.3, "SIMULATED": 5}


def run(capsys: pytest.CaptureFixture[str], part: str) -> dict[str, Any]:
    """Return the medians of a part."""
    callbacks.main([part, "--rounds", "1", *SMALL[part]])
    last = capsys.readouterr().out.rpartition("\n{\n")[2]
    result: dict[str, Any] = json.loads("{" + last)
    assert result["verified"] is True
    return result["medians"]  # type: ignore[no-any-return]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("part", "figures"),
    [
        ("fan", {"all_healthy_per_s", "beside_dead_to_all_healthy_each_per_s", "attempts_per_s_of_each_dead"}),
        ("tail", {"alone_p99_ms", "beside_dead_p99_ms"}),
        ("publishing", {"subscribers_0_p50_ms", "subscribers_1_p50_ms", "subscribers_5_p50_ms"}),
        ("latency", {"p50_ms", "p99_ms"}),
        ("recovery", {"outage_0.3s_first_p50_s", "outage_0.3s_subscribed_again_first_p50_s"}),
    ],
)
def test_each_part_verifies_what_it_counts(
    part: str, figures: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, short in SHORT.items():
        monkeypatch.setattr(callbacks, name, short)
    monkeypatch.setattr(callback_recovery, "BATCHES", 5)
    medians = run(capsys, part)
    assert figures <= set(medians)
    if part == "fan":
        assert medians["idle_attempts"] == 0


def test_parts_are_all_unless_some_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []
    monkeypatch.setattr(callbacks, "run_rounds", lambda settings, *_: measured.append(settings["parts"]))
    monkeypatch.setattr(callbacks, "PARTS", {name: lambda *_: nullcontext() for name in ("fan", "tail")})
    callbacks.main([])
    callbacks.main(["tail"])
    assert measured == ["fan", "tail", "tail"]
    with pytest.raises(SystemExit):
        callbacks.main(["nonsense"])
    assert "'nonsense' is not a part; choose from fan, tail" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("main", "arguments", "words"),
    [
        (
            callbacks.main,
            ["tail", "latency", "--subscribers", "5"],
            "it is for fan and publishing alone",
        ),
        (callbacks.main, ["fan", "--dead=5"], "--dead: it is for tail alone"),
        (links.main, ["latency", "--events", "5"], "--events: latency measures a fixed number of events"),
        (links.main, ["--previews", "5"], "--previews: only previews has any"),
    ],
)
def test_an_option_of_another_measurement_is_refused(
    capsys: pytest.CaptureFixture[str], main: Callable[[list[str]], None], arguments: list[str], words: str
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert words in capsys.readouterr().err


@pytest.mark.timeout(60)
def test_an_event_that_is_missing_is_found(tmp_path: Path) -> None:
    async def lose(ids: list[int]) -> None:
        await site.publish(2)
        await site.all_there(ids)
        site.tell("expect", ids=ids, after=1)  # as if number 2 had not arrived
        await site.publish(1)
        await site.all_there(ids)

    with callback_site(tmp_path) as site, pytest.raises(RuntimeError, match="got event 3 after event 1"):
        asyncio.run(lose(site.add(1, timeout=0)))
