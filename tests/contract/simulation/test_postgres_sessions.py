"""When a real server sends its notifications is no part of a simulated run."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from eventd.simulation.world.life import Life
from eventd.simulation.world.loop import VirtualLoop
from eventd.simulation.world.postgres_sessions import NodeSessions, SimulatedSession
from tests.support.postgres import PostgresServer


@pytest.fixture
def sessions(postgres_server: PostgresServer) -> Iterator[NodeSessions]:
    loop = VirtualLoop()
    chance = cast(Any, SimpleNamespace(expovariate=lambda _: 1.0))
    url = f"postgresql://postgres@127.0.0.1:{postgres_server.port}/postgres"
    made = NodeSessions(loop, chance, "a", url, lambda _pids: None)
    yield made
    made.end_life()
    loop.end()


@pytest.fixture
def listener(sessions: NodeSessions) -> SimulatedSession:
    session = sessions.connect(Life("a", 1, "10.0.0.1"), autocommit=True)
    session.execute("LISTEN appended")
    return session


def test_a_notification_that_the_server_has_not_sent_yet_is_awaited(
    sessions: NodeSessions, listener: SimulatedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait: Callable[..., Any] = psycopg.Connection.wait

    def send_first(self: psycopg.Connection[Any], *args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        writer.execute("NOTIFY appended")
        return wait(self, *args, **options)

    writer = sessions.connect(Life("a", 1, "10.0.0.1"), autocommit=True)
    sessions.notify()
    monkeypatch.setattr(psycopg.Connection, "wait", send_first)
    assert [each.channel for each in listener.notifies(timeout=0)] == ["appended"]
    assert [*listener.notifies(timeout=0)] == []


def test_a_broken_session_fails_also_if_a_notification_has_come_before(
    sessions: NodeSessions, listener: SimulatedSession
) -> None:
    writer = sessions.connect(Life("a", 1, "10.0.0.1"), autocommit=True)
    writer.execute("NOTIFY appended")
    sessions.notify()
    assert select.select([listener.fileno()], [], [], 60.0)[0]
    sessions.break_session(listener)
    with pytest.raises(psycopg.OperationalError, match="server closed the connection"):
        [*listener.notifies(timeout=0)]
