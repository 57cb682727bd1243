"""The databases of `routerd-eventd simulate --postgres`: they are dropped however the command ends, or named."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext

import pytest

from eventd.cli.simulate.postgres import PURPOSE, databases_on
from eventd.errors import DatabaseUnavailable, MissingExtra
from eventd.store.schema.scratch_databases import ScratchDatabases
from tests.support.postgres import PostgresServer


@pytest.fixture
def url(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    def make_empty_template(self: ScratchDatabases) -> None:
        self._session.execute(f"CREATE DATABASE {self._name('template')}")

    monkeypatch.setattr(ScratchDatabases, "make_template", make_empty_template)
    return f"postgresql://postgres@127.0.0.1:{postgres_server.port}/postgres"


def count_databases(server: PostgresServer, url: str, token: str) -> int:
    with server.connect(url) as session:
        question = "SELECT count(*) FROM pg_database WHERE datname LIKE %s"
        [(count,)] = session.execute(question, (f"{PURPOSE}_{token}_%",)).fetchall()
        return int(count)


def test_a_command_that_is_terminated_drops_its_databases(url: str, postgres_server: PostgresServer) -> None:
    tokens: list[str] = []

    def terminate() -> None:
        with databases_on(url) as made:
            made.databases.create("a")
            tokens.append(made.access.token)
            assert count_databases(postgres_server, url, made.access.token) == 2
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        terminate()
    assert ended.value.code == 128 + signal.SIGTERM
    assert count_databases(postgres_server, url, tokens[0]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_databases_that_cannot_be_dropped_are_named(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: ScratchDatabases) -> None:
        raise DatabaseUnavailable("the server is gone")

    with databases_on(url) as made:
        drop_all = made.databases.drop_all
        monkeypatch.setattr(ScratchDatabases, "drop_all", fail)
        drop_all()
    assert f"databases {PURPOSE}_{made.access.token}_* may be left: the server is gone" in capsys.readouterr().err


@pytest.mark.parametrize("signals", [1, 2])
def test_a_first_signal_while_databases_are_dropped_is_held_back_and_a_second_one_names_them(
    signals: int,
    url: str,
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    drop_all = ScratchDatabases.drop_all

    def drop_signalled(self: ScratchDatabases) -> None:
        for _ in range(signals):
            signal.raise_signal(signal.SIGINT)
        drop_all(self)

    monkeypatch.setattr(ScratchDatabases, "drop_all", drop_signalled)
    with pytest.raises(KeyboardInterrupt) if signals > 1 else nullcontext(), databases_on(url) as made:
        pass
    told = f"databases {PURPOSE}_{made.access.token}_* may be left: interrupted"
    assert (told in capsys.readouterr().err) == (signals > 1)
    assert count_databases(postgres_server, url, made.access.token) == (signals > 1)
    monkeypatch.undo()
    with postgres_server.connect(url, autocommit=True) as session:
        session.execute(f"DROP DATABASE IF EXISTS {PURPOSE}_{made.access.token}_template")


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with (
        pytest.raises(MissingExtra, match="the Postgres driver is not installed"),
        databases_on("postgresql://somebody@127.0.0.1/postgres"),
    ):
        pass
