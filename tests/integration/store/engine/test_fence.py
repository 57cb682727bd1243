"""Only the node that holds the claim has sessions that can write: those of a node that lost it are ended for good."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from eventd.errors import Conflict, DatabaseUnavailable
from eventd.store.engine import claim as claims
from eventd.store.engine.claim import DatabaseClaim
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.fence import ClaimCheck
from eventd.store.engine.sessions import open_session
from eventd.store.engine.statements import execute, fetch
from eventd.testing import until

pytestmark = pytest.mark.postgres

GUARDS = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
LOST = "this node does not hold its claim on the database"


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "PATIENCE_MILLISECONDS", 20)


@contextmanager
def claiming(url: str, who: str, group: str = "") -> Iterator[DatabaseClaim]:
    """A claim that is not taken yet."""
    with closing(Database(url)) as database:
        claim = database.claim(group, who)
        assert claim is not None
        with closing(claim):
            yield claim


def lose(claim: DatabaseClaim) -> None:
    """End the session of a claim, as a cut does, behind the back of its node."""
    with closing(open_session(claim._url, "test")) as session:
        sql = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s"
        assert session.execute(sql, (claim.name,)).fetchall() == [(True,)]


def shown(session: Any) -> dict[str, str]:
    return {name: session.execute(f"SHOW {name}").fetchone()[0] for name in GUARDS}


def shown_by(conn: Connection) -> dict[str, str]:
    return {name: fetch(conn, f"SHOW {name}")[0][0] for name in GUARDS}


def test_the_server_notices_a_vanished_machine_in_every_session(postgres_url: str) -> None:
    with closing(Database(postgres_url)) as database, closing(open_session(database.url, "x")) as session:
        assert database.write_now(shown_by) == database.read_now(shown_by) == shown(session) == GUARDS
        assert database.write_now(fetch, "SHOW idle_in_transaction_session_timeout") == [("30s",)]
        assert database.read_now(fetch, "SHOW idle_in_transaction_session_timeout") == [("0",)]


def test_a_transaction_of_a_node_that_lost_its_claim_is_ended(postgres_url: str) -> None:
    with claiming(postgres_url, "1 on here") as former, claiming(postgres_url, "2 on there") as claim:
        former.take()
        with (
            closing(Database(postgres_url, claim=former.name)) as theirs,
            closing(Database(postgres_url)) as ours,
        ):
            ours.write_now(execute, "CREATE TABLE head (next INT)")
            ours.write_now(execute, "INSERT INTO head VALUES (1)")

            def freeze_and_write() -> None:
                with theirs.transaction() as frozen:
                    execute(frozen, "UPDATE head SET next = 2")
                    lose(former)
                    claim.take()
                    ours.write_now(execute, "UPDATE head SET next = 3")
                    execute(frozen, "UPDATE head SET next = 4")

            with pytest.raises(DatabaseUnavailable, match="terminating connection due to administrator command"):
                freeze_and_write()
            for work in (theirs.write_now, theirs.read_now):
                with pytest.raises(DatabaseUnavailable, match=LOST):
                    work(fetch, "SELECT next FROM head")
            assert ours.read_now(fetch, "SELECT next FROM head") == [(3,)]


def test_a_node_that_claims_again_may_write_again(postgres_url: str) -> None:
    with claiming(postgres_url, "1 on here") as claim:
        claim.take()
        with closing(Database(postgres_url, claim=claim.name)) as database:
            assert database.write_now(fetch, "SELECT 1") == [(1,)]
            lose(claim)
            claim.take()
            assert database.write_now(fetch, "SELECT 2") == [(2,)]


def test_sessions_of_others_are_left_alone(postgres_url: str) -> None:
    """Of commands, which hold no claim, and of nodes that hold another one."""
    with (
        claiming(postgres_url, "1 on here", "one") as one,
        claiming(postgres_url, "2 on here", "two") as two,
        claiming(postgres_url, "3 on here", "two") as next_two,
    ):
        one.take(), two.take()
        with (
            closing(Database(postgres_url, claim=one.name)) as of_one,
            closing(Database(postgres_url, claim=two.name)) as of_two,
            closing(Database(postgres_url)) as command,
        ):
            with of_one.transaction() as in_one, command.transaction() as in_command, of_two.transaction():
                lose(two)
                next_two.take()
                assert fetch(in_one, "SELECT 1") == fetch(in_command, "SELECT 1") == [(1,)]
                with pytest.raises(Conflict):
                    two.take()
            with pytest.raises(DatabaseUnavailable, match="terminating connection"):
                of_two.write_now(fetch, "SELECT 1")
            with pytest.raises(DatabaseUnavailable, match=LOST):
                of_two.write_now(fetch, "SELECT 1")


def test_a_node_that_waits_for_its_group_holds_no_claim(postgres_url: str) -> None:
    """It holds the lock of the database, shared with the nodes of other groups, but not yet that of its group."""
    with claiming(postgres_url, "1 on here", "g") as holder, claiming(postgres_url, "2 on here", "g") as waiting:
        holder.take()
        waiting._session = open_session(waiting._url, waiting.name)
        waiting._session.execute(f"SELECT pg_advisory_lock_shared({claims.SERVE_LOCK})")
        with (
            closing(Database(postgres_url, claim=waiting.name)) as database,
            pytest.raises(DatabaseUnavailable, match=LOST),
        ):
            database.read_now(fetch, "SELECT 1")


def test_only_a_claim_that_was_not_checked_since_is_ended(postgres_url: str) -> None:
    with claiming(postgres_url, "1 on here") as holder, claiming(postgres_url, "2 on there") as claim:
        holder.take()
        with pytest.raises(Conflict):
            claim.take()
        (seen,) = claim.holders
        assert holder._holds()  # it checks
        assert not claim.end_silent(seen)
        with pytest.raises(Conflict):
            claim.take()
        assert claim.holders[0].checked > seen.checked
        assert claim.end_silent(claim.holders[0])
        claim.take()
        assert not holder._holds()


def test_a_session_that_a_node_has_lost_does_not_keep_it_out(postgres_url: str) -> None:
    """Only the way to the server was cut: the server would hold the old session for alive for a while longer."""
    with claiming(postgres_url, "1 on here") as claim:
        claim.take()
        lost, claim._session = claim._session, open_session(claim._url, "another")
        assert not claim._holds()
        assert not claim._retake()
        assert claim._retake()
        with pytest.raises(psycopg.OperationalError, match="terminating connection"):
            lost.execute("SELECT 1")
        lost.close()


async def test_readiness_asks_for_the_claim_anew(postgres_url: str) -> None:
    with claiming(postgres_url, "1 on here") as claim, claiming(postgres_url, "2 on there") as other:
        claim.take()
        check = ClaimCheck(claim._url, claim.name)
        assert await check.ask() == "ok"
        lose(claim)
        assert await check.ask() == LOST
        other.take()  # which ends the session that asks
        assert await check.ask() == "the database does not answer"
        assert await check.ask() == LOST
        await check.close()
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_a_server_that_does_not_answer_is_not_waited_for(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventd.store.engine.fence.ANSWER_SECONDS", 0.05)
    with claiming(postgres_url, "1 on here") as claim:
        claim.take()
        check = ClaimCheck(claim._url, claim.name)
        with closing(open_session(claim._url, "test")) as session:
            session.execute("BEGIN")
            session.execute("LOCK pg_authid")  # needed to open a session
            assert await check.ask() == await check.ask() == "the database did not answer within 0.05 s"
            session.execute("ROLLBACK")

        async def answers() -> bool:
            return await check.ask() == "ok"

        await until(answers, "the database to answer")
        await check.close()
    await asyncio.get_running_loop().shutdown_default_executor()


def test_a_role_that_may_not_end_sessions_of_others_claims_all_the_same(postgres_url: str) -> None:
    url = sa.make_url(postgres_url)
    with closing(open_session(url, "test")) as session:
        session.execute("DROP ROLE IF EXISTS plain")
        session.execute("CREATE ROLE plain LOGIN IN ROLE pg_read_all_stats")  # so it sees who they are
    plain = url.set(username="plain").render_as_string(hide_password=False)
    with claiming(postgres_url, "1 on here") as former, claiming(plain, "2 on there") as claim:
        former.take()
        with closing(Database(postgres_url, claim=former.name)) as theirs, theirs.transaction() as conn:
            lose(former)
            claim.take()
            assert fetch(conn, "SELECT 1") == [(1,)]
