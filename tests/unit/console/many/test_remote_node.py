"""A node that is far away, silent, or back: what a page waits for, and what is asked beside it."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from eventd.client.connection import Connection
from eventd.client.refusals.kinds import Lost
from eventd.console.many.remote_node import (
    ACTION_SECONDS,
    KNOWN_SILENT_SECONDS,
    SILENCE_SECONDS,
    NodeOptions,
    RemoteNode,
)
from eventd.errors import Unavailable
from eventd.runtime.clock import SystemClock
from eventd.runtime.supervisor import Supervisor
from eventd.testing import until


class FarAway:
    """A connection whose answers take `seconds`, of which no time passes."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked: list[tuple[str, float]] = []

    async def send(self, method: str, path: str, content: Any, seconds: float, headers: Any) -> bytes:
        self.asked.append((path, seconds))
        if seconds < self.seconds:
            raise Lost(f"cannot reach it: no answer within {seconds:g} s")
        return b'{"groups": []}'

    def decode(self, content: bytes, model: Any) -> Any:
        return json.loads(content)


async def test_a_page_does_not_wait_long_for_a_silent_node_and_a_node_that_is_far_away_is_found_again() -> None:
    supervisor, far = Supervisor(SystemClock()), FarAway(SILENCE_SECONDS + 1)
    node = RemoteNode(NodeOptions("far", "http://far"), cast(Connection, far), SystemClock(), supervisor.spawn)
    try:
        with pytest.raises(Unavailable, match="far does not answer: cannot reach it: no answer within 3 s"):
            await node.view("").call("groups.status")
        far.seconds = SILENCE_SECONDS - 1
        with pytest.raises(Unavailable, match="no answer within 3 s"):
            await node.view("").call("groups.status")
        assert far.asked[-1][1] == KNOWN_SILENT_SECONDS
        await until(lambda: not node.problem, "the question beside the page to be answered")
        assert await node.view("").call("groups.status") == {"groups": []}
    finally:
        await supervisor.stop()


async def test_what_changes_something_is_not_cut_off_after_three_seconds() -> None:
    supervisor, far = Supervisor(SystemClock()), FarAway(10)
    node = RemoteNode(NodeOptions("far", "http://far"), cast(Connection, far), SystemClock(), supervisor.spawn)
    assert await node.view("").act("links.pause", "", group="g", peer="p")
    assert (await node.view("").call("events.payload", group="g", id="i")).name == "i.json"


async def test_what_changes_something_is_not_sent_to_a_node_that_is_silent_still() -> None:
    supervisor, far = Supervisor(SystemClock()), FarAway(SILENCE_SECONDS + 1)
    node = RemoteNode(NodeOptions("far", "http://far"), cast(Connection, far), SystemClock(), supervisor.spawn)
    try:
        with pytest.raises(Unavailable):
            await node.view("").call("groups.status")
        with pytest.raises(Unavailable, match=r"far does not answer: .*nothing was sent"):
            await node.view("").act("links.pause", "", group="g", peer="p")
        assert {path for path, _ in far.asked} == {"/api/v1/status"}
        far.seconds = SILENCE_SECONDS - 1
        assert await node.view("").act("links.pause", "", group="g", peer="p")
    finally:
        await supervisor.stop()


class Mute(FarAway):
    """A connection over which requests arrive, and nothing comes back."""

    async def send(self, method: str, path: str, content: Any, seconds: float, headers: Any) -> bytes:
        if method != "GET":
            await asyncio.get_running_loop().create_future()
        return await super().send(method, path, content, seconds, headers)


async def test_a_request_that_changes_something_ends_when_the_node_answers_nothing_else_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eventd.console.many.remote_node.SILENCE_SECONDS", 0.05)
    supervisor, mute = Supervisor(SystemClock()), Mute(10)
    node = RemoteNode(NodeOptions("mute", "http://mute"), cast(Connection, mute), SystemClock(), supervisor.spawn)
    try:
        with pytest.raises(Unavailable, match=r"mute does not answer: .*it may have done what was asked"):
            await asyncio.wait_for(node.view("").act("links.pause", "", group="g", peer="p"), ACTION_SECONDS / 2)
    finally:
        await supervisor.stop()
