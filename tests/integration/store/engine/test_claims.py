"""A Postgres database, or each of its groups, is served by one node; a lost claim is taken again, or given up."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from eventd.cli.gateway.lock import claimed, holder
from eventd.errors import Conflict, DatabaseUnavailable
from eventd.store.engine import claim as claims
from eventd.store.engine.claim import NAME, DatabaseClaim, group_lock
from eventd.store.engine.database import Database
from eventd.store.engine.sessions import open_session
from eventd.store.engine.statements import fetch
from eventd.testing import until
from tests.support.ports import free_port
from tests.support.processes import DAEMON, Process, Processes
from tests.support.waiting import wait_for

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def _no_patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a killed holder is tested with processes."""
    if "processes" not in request.fixturenames:
        monkeypatch.setattr(claims, "PATIENCE_MILLISECONDS", 20)


@contextmanager
def claim_on(url: str, group: str = "", who: str = "1 on here") -> Iterator[DatabaseClaim]:
    with closing(Database(url)) as database:
        claim = database.claim(group, who)
        assert claim is not None
        with closing(claim):
            claim.take()
            yield claim


def refused(url: str, group: str = "") -> str:
    with pytest.raises(Conflict) as caught, claim_on(url, group):
        pass
    return caught.value.message.replace(url, "DB")


def holders(url: str) -> str:
    """Return who holds claims on the database."""
    with closing(Database(url)) as database:
        return holder(database)


def end_claims(url: str) -> int:
    """End the sessions that hold a claim, as a restart of the server does."""
    with closing(Database(url)) as database:
        sql = (
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE ? AND datname = ?"
        )
        return len(database.read_now(fetch, sql, (f"{NAME}%", database.url.database)))


# --- who may ------------------------------------------------------------------------------------------------------


def test_a_second_node_is_refused_and_told_who_is_there(postgres_url: str) -> None:
    with claim_on(postgres_url, who="4711 on m"):
        assert refused(postgres_url) == "process 4711 on m serves the database DB"
    with claim_on(postgres_url):
        pass


def test_each_group_may_have_a_node_of_its_own(postgres_url: str) -> None:
    with claim_on(postgres_url, "one", "1 on m"), claim_on(postgres_url, "two", "2 on m"):
        assert refused(postgres_url, "one") == "process 1 on m serves group one of the database DB"
        assert refused(postgres_url) == "process 1 on m serves the database DB"
        with closing(Database(postgres_url)) as database:
            assert holder(database) == "1 on m, 2 on m"
    wait_for(lambda: holders(postgres_url) == "", "the server to have ended the sessions of both")
    with claim_on(postgres_url, who="3 on m"):
        assert refused(postgres_url, "one") == "process 3 on m serves group one of the database DB"


def test_a_refused_claim_holds_nothing_even_before_its_session_has_ended(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with claim_on(postgres_url, "one", "1 on m"), closing(Database(postgres_url)) as database:
        refused_claim = database.claim("one", "2 on m")
        assert refused_claim is not None
        with monkeypatch.context() as still_open:
            still_open.setattr(refused_claim, "close", lambda: None)
            with pytest.raises(Conflict, match="process 1 on m serves group one"):
                refused_claim.take()
        with closing(refused_claim):
            assert holder(database) == "1 on m"


def test_a_claim_that_was_released_a_moment_ago_is_taken_again_beside_a_node_of_another_group(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may end the lost session of a node between the refusal of the lock and the look at who holds it."""
    with claim_on(postgres_url, "two", "2 on m"), closing(Database(postgres_url)) as database:
        claim = database.claim("one", "1 on m")
        assert claim is not None
        with closing(claim):
            with monkeypatch.context() as refusing:
                refusing.setattr(claim, "_try_locks", lambda: False)
                with pytest.raises(Conflict, match="another process serves group one"):
                    claim.take()
                assert not claim._retake(), "it tries again instead of giving up"
            assert claim._retake()


def test_databases_of_one_server_do_not_concern_each_other(postgres_url: str, postgres_server: object) -> None:
    from tests.support.postgres import PostgresServer

    assert isinstance(postgres_server, PostgresServer)
    other = postgres_server.create_database()
    with claim_on(postgres_url), claim_on(other):
        pass
    postgres_server.drop_database(other)


def test_groups_differ_in_their_locks() -> None:
    assert len({group_lock(name) for name in ("", "a", "b", "A")}) == 4


def test_the_lock_of_this_process_names_it(postgres_url: str) -> None:
    with closing(Database(postgres_url)) as database:
        assert holder(database) == ""
        with claimed(database, ""):
            assert holder(database).startswith(f"{os.getpid()} on ")
        wait_for(lambda: holder(database) == "", "the server to notice that the session has ended")


def test_on_sqlite_a_file_does_it(sqlite_url: str) -> None:
    with closing(Database(sqlite_url)) as database:
        with claimed(database, "g") as claim:
            assert claim is None
        assert database.claims() == []


def test_a_server_that_is_away_is_no_conflict() -> None:
    url = f"postgresql://postgres@127.0.0.1:{free_port()}/x"
    with pytest.raises(DatabaseUnavailable), claim_on(url):
        pass


# --- losing it ----------------------------------------------------------------------------------------------------


class Sleep:
    """Continues when the test says so."""

    def __init__(self) -> None:
        self.rounds = 0
        self._go_on = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        await self._go_on.wait()
        self._go_on.clear()
        self.rounds += 1

    def end(self) -> None:
        self._go_on.set()


async def test_a_claim_that_was_lost_is_taken_again(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "eventd.claim")
    with claim_on(postgres_url) as claim:
        sleep = Sleep()
        keeping = asyncio.ensure_future(claim.keep(sleep))
        sleep.end()
        await until(lambda: sleep.rounds == 1)
        assert end_claims(postgres_url) == 1
        sleep.end()
        await until(lambda: "claim regained" in caplog.messages or keeping.done())
        assert not keeping.done()
        assert refused(postgres_url) == "process 1 on here serves the database DB"
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_an_end_waits_for_a_claim_that_is_being_taken_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    with claim_on(postgres_url) as claim:
        take, sleep = claim.take, Sleep()

        def slowly() -> None:
            begun.set()
            go_on.wait(20)
            take()

        monkeypatch.setattr(claim, "take", slowly)
        keeping = asyncio.ensure_future(claim.keep(sleep))
        end_claims(postgres_url)
        sleep.end()
        await until(begun.is_set)
        keeping.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not keeping.done(), "the session that is opened later would stay open"
        go_on.set()
        await asyncio.gather(keeping, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_a_claim_that_another_has_taken_meanwhile_is_given_up(postgres_url: str) -> None:
    with claim_on(postgres_url) as claim:
        sleep = Sleep()
        keeping = asyncio.ensure_future(claim.keep(sleep))
        end_claims(postgres_url)
        with claim_on(postgres_url, who="2 on there"):
            sleep.end()
            with pytest.raises(Conflict, match="process 2 on there serves the database"):
                await asyncio.wait_for(keeping, 20)
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_it_does_not_give_way_to_its_own_lost_session(postgres_url: str) -> None:
    """When only the way to the server was cut, the server holds the old session for alive a while longer."""
    with claim_on(postgres_url) as claim:
        sleep = Sleep()
        keeping = asyncio.ensure_future(claim.keep(sleep))
        lost, claim._session = claim._session, open_session(claim._url, "another")
        for number in range(1, 4):
            sleep.end()
            await until(lambda number=number: sleep.rounds == number)  # type: ignore[misc]
        assert not keeping.done()
        lost.close()
        sleep.end()
        await until(lambda: claim._session is not None and claim._holds())
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_as_long_as_the_server_is_away_it_is_tried_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with claim_on(postgres_url) as claim:
        sleep = Sleep()
        keeping = asyncio.ensure_future(claim.keep(sleep))
        url, claim._url = claim._url, claim._url.set(port=free_port())
        end_claims(postgres_url)
        for number in range(1, 4):
            sleep.end()
            await until(lambda number=number: sleep.rounds == number)  # type: ignore[misc]
        assert not keeping.done()
        claim._url = url
        sleep.end()

        async def held() -> bool:
            with closing(Database(postgres_url)) as database:
                return database.claims() == ["1 on here"]

        await until(held, "the claim to be taken again")
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()


# --- nodes --------------------------------------------------------------------------------------------------------


def serve(processes: Processes, name: str, url: str, *arguments: str, ready: bool = True) -> Process:
    return processes.serve(name, "--migrate", *arguments, database_url=url, ready=ready)


def run_refused(processes: Processes, url: str, *arguments: str) -> str:
    env = {**processes.node_environment("second", database_url=url), "EVENTD_API_LISTEN": "127.0.0.1:0"}
    ended = processes.run([*DAEMON, "serve", *arguments], env=env)
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert (ended.returncode, len(lines)) == (1, 1), ended
    return lines[0]


def test_two_nodes_on_one_database(processes: Processes, postgres_url: str) -> None:
    first = serve(processes, "first", postgres_url)
    told = run_refused(processes, postgres_url)
    assert told.startswith(f"error: process {first.pid} on ")
    assert "serves the database postgresql+psycopg://" in told
    assert f"process {first.pid} on " in run_refused(processes, postgres_url, "--group", "edge")
    env = processes.node_environment("second", database_url=postgres_url)
    assert f"process {first.pid} on " in processes.run([*DAEMON, "check"], env=env).stdout
    assert f"process {first.pid} on " in processes.control("federation", "status", env=env).stderr
    first.kill9()
    serve(processes, "third", postgres_url).terminate()


def test_two_nodes_for_two_groups(processes: Processes, postgres_url: str) -> None:
    one = serve(processes, "one", postgres_url, "--group", "one")
    two = serve(processes, "two", postgres_url, "--group", "two")
    assert "serves group one of the database" in run_refused(processes, postgres_url, "--group", "one")
    assert (one.terminate(), two.terminate()) == (0, 0)


def test_a_node_outlives_its_session_but_not_its_claim(processes: Processes, postgres_url: str) -> None:
    node = serve(processes, "node", postgres_url)
    end_claims(postgres_url)
    wait_for(lambda: "claim regained" in node.log(), "the claim to be taken again")
    assert node.running
    end_claims(postgres_url)
    with claim_on(postgres_url, who="2 on there"):
        assert node.wait_exit() == 1
    assert "process 2 on there serves the database" in node.log()
