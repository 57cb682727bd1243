"""A node on standby, over a real claim; the node that it starts is a scripted stand-in."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import closing

import pytest
from aiohttp import ClientConnectorError, ClientSession

from eventd.api.keys.valid_keys import Keys
from eventd.api.listener.runner import Runner
from eventd.cli.daemon.standby import ClaimSilence, Standby
from eventd.errors import DatabaseUnavailable, EventdError, Unavailable
from eventd.runtime.clock import SystemClock
from eventd.settings.loading import load
from eventd.store.engine import claim as claims
from eventd.store.engine.claim import SILENT_SECONDS, ClaimHolder, DatabaseClaim
from eventd.store.engine.database import Database
from eventd.testing import give_turns, until
from tests.integration.cli.daemon.test_serving import ObedientNode

LOCKED = "canceling statement due to lock timeout"


class Try(ObedientNode):
    """A node that may fail to start."""

    def __init__(self, sockets: Sequence[socket.socket], failure: EventdError | None) -> None:
        super().__init__()
        self._sockets = sockets
        self._failure = failure

    async def start(self) -> None:
        await super().start()
        if self._failure:
            raise self._failure

    async def stop(self) -> None:
        await super().stop()
        for each in self._sockets:
            each.close()


class Pair:
    """The claim of another node, and a standby that waits for it. `failures` come first, one for each try to start."""

    def __init__(self, url: str, held: DatabaseClaim, claim: DatabaseClaim) -> None:
        self.held = held
        self.claim = claim
        self.prepared = 0
        self.failures: list[EventdError] = []
        self.tries: list[Try] = []
        self.held.take()
        settings = load(flags={"database_url": url, "api_listen": "127.0.0.1:0"}, environ={})
        self.standby = Standby(settings, claim, Keys(tuple), SystemClock(), self._prepare, self._make)

    def _prepare(self) -> None:
        self.prepared += 1
        if self.prepared == 1:
            raise DatabaseUnavailable(LOCKED)

    def _make(self, sockets: Sequence[socket.socket]) -> Try:
        self.tries.append(Try(sockets, self.failures.pop(0) if self.failures else None))
        return self.tries[-1]

    async def asked(self) -> tuple[int, str]:
        """What it answers meanwhile."""
        assert self.standby.api_address is not None
        url = "http://{}:{}/readyz".format(*self.standby.api_address)
        async with ClientSession() as session, session.get(url) as answer:
            return answer.status, (await answer.json())["status"]


@pytest.fixture
async def pair(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    monkeypatch.setattr(claims, "PATIENCE_MILLISECONDS", 20)
    monkeypatch.setattr("eventd.cli.daemon.standby.LOOK_SECONDS", 0.01)
    with closing(Database(postgres_url)) as database:
        held, claim = database.claim("", "1 on here"), database.claim("", "2 on there")
        assert held is not None
        assert claim is not None
        with closing(held), closing(claim):
            made = Pair(postgres_url, held, claim)
            await made.standby.start()
            yield made
            await made.standby.stop()
    await asyncio.get_running_loop().shutdown_default_executor()


@pytest.mark.postgres
async def test_a_lock_in_the_database_is_waited_for(pair: Pair) -> None:
    pair.failures = [DatabaseUnavailable(LOCKED), DatabaseUnavailable(LOCKED)]
    assert await pair.asked() == (503, "standing by")
    pair.held.close()
    await until(lambda: pair.tries and pair.tries[-1].asked == ["start", "run"], "the node to run")
    assert [each.asked for each in pair.tries] == [["start"], ["start"], ["start", "run"]]
    assert pair.prepared == 4
    await pair.standby.stop()
    assert pair.tries[-1].asked == ["start", "run", "stop"]


@pytest.mark.postgres
async def test_it_answers_while_it_tries_to_start(pair: Pair) -> None:
    pair.failures = [DatabaseUnavailable(LOCKED)] * 1000
    pair.held.close()
    await until(lambda: len(pair.tries) > 2, "it to try")
    assert await pair.asked() == (503, "standing by")


@pytest.mark.postgres
async def test_a_stop_while_its_own_api_closes_closes_it(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    cleanup, begun = Runner.cleanup, asyncio.Event()

    async def slowly(runner: Runner) -> None:
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        await cleanup(runner)

    monkeypatch.setattr(Runner, "cleanup", slowly)
    assert await pair.asked() == (503, "standing by")
    pair.held.close()
    await until(begun.is_set, "the take-over to begin")
    await pair.standby.stop()
    with pytest.raises(ClientConnectorError):
        await pair.asked()


@pytest.mark.postgres
async def test_a_stop_waits_for_a_claim_that_is_being_taken(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, take = threading.Event(), threading.Event(), pair.claim.take

    def slowly() -> None:
        begun.set()
        go_on.wait(20)
        take()

    monkeypatch.setattr(pair.claim, "take", slowly)
    await until(begun.is_set, "it to try")
    stopping = asyncio.create_task(pair.standby.stop())
    await give_turns()
    assert not stopping.done(), "the session that is opened later would stay open"
    go_on.set()
    await stopping


@pytest.mark.postgres
async def test_what_is_not_about_the_database_ends_it(pair: Pair) -> None:
    pair.failures = [Unavailable("cannot listen")]
    pair.held.close()
    with pytest.raises(Unavailable, match="cannot listen"):
        await pair.standby.run_until_stopped()


@pytest.mark.postgres
async def test_a_node_that_runs_and_fails_ends_it(pair: Pair) -> None:
    pair.held.close()
    await until(lambda: pair.tries and pair.tries[-1].asked == ["start", "run"], "the node to run")
    pair.tries[-1].failure = Unavailable("it failed")
    pair.tries[-1].ended.set()
    with pytest.raises(Unavailable, match="it failed"):
        await pair.standby.run_until_stopped()


def test_silent_is_who_does_not_check_his_claim() -> None:
    silence = ClaimSilence()
    silent, busy = ClaimHolder("a", 1, "12:00:00"), ClaimHolder("b", 2, "12:00:00")
    assert silence.over([silent, busy], 0) == []
    assert silence.over([silent, busy._replace(checked="12:00:01")], SILENT_SECONDS - 0.1) == []
    assert silence.over([silent, busy._replace(checked="12:00:02")], SILENT_SECONDS) == [silent]
    assert silence.over([silent._replace(checked="")], SILENT_SECONDS + 1) == []  # it checks at this moment
    assert silence.over([silent], SILENT_SECONDS + 2) == []
    assert silence.over([silent], 2 * SILENT_SECONDS + 2) == [silent]
