"""A node rests only when its retention has evicted what it must."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from eventd.simulation.load.retention import RetentionLoad
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.retention import SmallRetention
from eventd.simulation.world.world import SimulatedWorld

NOW = 1_790_000_000.0
"""2026-09-21T14:13:20Z"""


class PlayedClient:
    """Asks a node with three events, the first of which was recorded 20 s ago."""

    machine = SimpleNamespace(name="a")

    async def ask(self, _kind: str, _method: str, path: str) -> Any:
        if path.startswith("/v0/topics"):
            return SimpleNamespace(status=200, is_good=True, document={"count": 3})
        return SimpleNamespace(
            status=200, is_good=True, document={"events": [{"recordedAt": "2026-09-21T14:13:00.000000Z"}]}
        )


@pytest.mark.parametrize(
    ("retention", "rests"),
    [
        (SmallRetention(max_events=3), True),
        (SmallRetention(max_events=2), False),
        (SmallRetention(max_age=18.0), True),  # the next run of retention may be a second away
        (SmallRetention(max_age=5.0), False),
        (SmallRetention(max_events=3, max_age=5.0), False),
    ],
)
async def test_a_node_rests_when_no_event_is_beyond_its_limits(retention: SmallRetention, rests: bool) -> None:
    world = SimpleNamespace(journal=SimpleNamespace(retentions={"a": retention}), true_time=lambda: NOW)
    client = cast(ApiClient, PlayedClient())
    unrest = await RetentionLoad().unrest(cast(SimulatedWorld, world), client, [])
    assert (unrest == []) == rests, unrest
