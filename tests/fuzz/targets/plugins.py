"""Plugins: answers that are bounded and checked, and frames that mean the same in any pieces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any, cast

from eventd.plugins.contract.answer import MAX_TEXT, check_capabilities, read_answer, read_status
from eventd.plugins.contract.contract import PluginFailed
from eventd.plugins.run.entry_points import Host
from eventd.processes.process import Program
from eventd.testing import NOW, ManualClock
from tests.fuzz.target import FuzzTarget, pieces

_LOOP = asyncio.new_event_loop()


class SilentPipe:
    """A pipe from which nothing more comes."""

    def drain(self, _: int) -> None:
        pass


class FakeProgram:
    """The parts of a program that a host uses."""

    def __init__(self) -> None:
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.take: Callable[[bytes], None] | None = None
        self.is_killed = False

    def read_stdout(self, take: Callable[[bytes], None]) -> SilentPipe:
        self.take = take
        return SilentPipe()

    def read_stderr(self, _: Callable[[bytes], None]) -> SilentPipe:
        return SilentPipe()

    def kill_and_reap(self) -> None:
        self.is_killed = True


async def _ready(parts: Iterable[bytes]) -> str:
    """Return what the first frame of a host leads to: `waits`, `ready`, or why it failed."""
    program = FakeProgram()
    host = Host(cast(Program, program), ManualClock())
    assert program.take is not None
    for part in parts:
        if not program.is_killed:
            program.take(part)
    waits = asyncio.ensure_future(host.ready())
    for _ in range(4):
        await asyncio.sleep(0)
    if not waits.done():
        waits.cancel()
        await asyncio.wait([waits])
        return "waits"
    error = waits.exception()
    if error is None:
        return "ready"
    assert isinstance(error, PluginFailed)
    return error.reason


def check_frame(data: bytes) -> None:
    whole = _LOOP.run_until_complete(_ready([data[8:]] if data[8:] else []))
    split = _LOOP.run_until_complete(_ready(pieces(data)))
    assert split == whole or "crashed" in (split, whole)


def check_answer(data: bytes) -> None:
    readers: tuple[Callable[[], Any], ...] = (
        lambda: read_answer(data, now=NOW),
        lambda: read_status(data, now=NOW, ttl=5_000_000),
    )
    for read in readers:
        try:
            result = read()
        except PluginFailed as error:
            assert len(error.message) <= 301  # noqa: PT017
            continue
        text = json.dumps([result.resources, result.directives, result.action_plans, result.events])
        assert len(text) <= 8 * MAX_TEXT
        text.encode()
        assert result.ttl > 0
        try:
            check_capabilities(result, frozenset())
        except PluginFailed:
            continue
        assert [result.resources, result.directives, result.action_plans, result.events] == [[], [], [], []]


def answer_seeds() -> Iterable[bytes]:
    status = {
        "observedAt": "2026-05-30T00:00:00Z",
        "ttl": "5m",
        "resources": [{"apiVersion": "net.example/v1", "kind": "Route", "metadata": {"name": "r"}, "spec": {"a": [1]}}],
        "directives": [{"op": "hide", "target": {"apiVersion": "x/v1", "kind": "K", "name": "n"}, "reason": "r"}],
        "events": [{"type": "a.b", "payload": {"k": "v"}}],
    }
    answer = {"apiVersion": "federation.routerd.net/v1alpha1", "kind": "PluginResult", "status": status}
    yield json.dumps(answer).encode()
    yield json.dumps(status).encode()
    yield b"apiVersion: x\nkind: PluginResult\nstatus: {ttl: 5m, resources: [&a {kind: K}, *a]}\n"


def frame_seeds() -> Iterable[bytes]:
    for body in (b"{}", b'{"failed":{"reason":"cannot_import","message":"m"}}', b'{"status":{"ttl":"5m"}}'):
        yield b"\3\50\1\2\7\11\77\0" + len(body).to_bytes(4, "big") + body


_WORDS = ('"resources":[', '"directives":[', '"ttl":"5m"', '"observedAt":"', '"events":[', "&a ", "*a", '"op":"hide"')
TARGETS = (
    FuzzTarget("plugin-answers", check_answer, answer_seeds, _WORDS),
    FuzzTarget("plugin-frames", check_frame, frame_seeds, ('{"status":', '{"failed":{"reason":"')),
)
