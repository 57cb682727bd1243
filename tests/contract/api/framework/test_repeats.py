"""Requests with an Idempotency-Key: done once, and answered alike. On both databases."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eventd.api.framework import repeats
from eventd.api.framework.action_callers import ActionCaller
from eventd.api.framework.recorder import ActionDraft, ActionRecorder
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Database
from eventd.store.engine.statements import execute
from eventd.store.rows.actions import KEY_SECONDS, shorten_keys
from eventd.testing import ManualClock
from tests.support.acting import OPERATOR, Acted, Operator, operating
from tests.support.fresh import on_sqlite

APPLIED = {
    "sources": [{"name": "a.yaml", "text": "{apiVersion: net.example/v1, kind: Route, metadata: {name: r}, spec: {}}"}]
}


async def apply(operator: Operator, key: str, body: Any = APPLIED) -> Acted:
    return await operator.ask("POST", "/api/v1/resources/apply", body, headers={"Idempotency-Key": key})


@on_sqlite
async def test_a_repetition_gets_the_first_answer_and_does_nothing(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:
        first, again = await apply(operator, "k1"), await apply(operator, "k1")
        assert (first.status, first.body) == (again.status, again.body)
        assert first.body["changes"][0]["action"] == "created"
        assert "Idempotent-Replayed" not in first.headers
        assert again.headers["Idempotent-Replayed"] == "true"
        assert len(await operator.rows()) == 1
        assert (await apply(operator, "k2")).body["changes"][0]["action"] == "unchanged"


@on_sqlite
async def test_a_key_belongs_to_one_request(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:
        await apply(operator, "k1")
        other = await apply(operator, "k1", APPLIED | {"prune": True})
        assert (other.status, other.body["error"]["code"]) == (409, "idempotency_key_reused")
        elsewhere = await operator.ask("POST", "/api/v1/keys", {"name": "ci"}, headers={"Idempotency-Key": "k1"})
        assert elsewhere.status == 409
        assert (await operator.ask("GET", "/api/v1/keys")).body["keys"] == []


@on_sqlite
async def test_keys_of_two_callers_are_apart(migrated_url: str) -> None:
    async with operating(migrated_url, f"{OPERATOR},another-key") as operator:
        assert "Idempotent-Replayed" not in (await apply(operator, "k1")).headers
        other = await operator.ask(
            "POST", "/api/v1/resources/apply", APPLIED, key="another-key", headers={"Idempotency-Key": "k1"}
        )
        assert "Idempotent-Replayed" not in other.headers


@on_sqlite
async def test_two_at_once_are_done_once(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:
        answers = await asyncio.gather(*(apply(operator, "k1") for _ in range(8)))
        assert [each.body["changes"][0]["action"] for each in answers] == ["created"] * 8
        assert len(await operator.rows()) == 1


@on_sqlite
async def test_a_repetition_after_a_restart_gets_the_first_answer(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:
        first = await apply(operator, "k1")
    async with operating(migrated_url) as operator:
        again = await apply(operator, "k1")
        assert (again.body, again.headers["Idempotent-Replayed"]) == (first.body, "true")


async def test_a_key_counts_for_two_minutes(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:
        await apply(operator, "k1")
        age = (KEY_SECONDS + 1) * SECOND
        await operator.server.log.database.write(
            lambda conn: execute(conn, "UPDATE action_answers SET at = at - ?", (age,))
        )
        assert (await apply(operator, "k1")).body["changes"][0]["action"] == "unchanged"


async def act(database: Database, clock: ManualClock) -> bool:
    """Execute an action with one key, and return whether it was executed before."""
    draft = ActionDraft("keys.create", ActionCaller("key", "ci", "", "mark"), "r")

    async def run() -> None: ...

    kept = await ActionRecorder(database, clock).perform_once(draft, "k1", lambda: "", run, is_secret=False)
    return kept.is_replayed


@pytest.mark.parametrize("step", [-86_400, 86_400])
async def test_a_step_of_the_wall_clock_does_not_change_for_how_long_a_key_counts(
    database: Database, clock: ManualClock, step: int
) -> None:
    assert not await act(database, clock)
    clock.set_wall(clock.now() + step * SECOND)
    assert await act(database, clock)
    clock.advance(KEY_SECONDS)
    assert not await act(database, clock)


async def test_a_key_counts_for_two_minutes_after_a_start_in_1971(database: Database, clock: ManualClock) -> None:
    assert not await act(database, clock)
    begun = ManualClock(400 * 86_400 * SECOND)
    await database.write(shorten_keys, begun.steady())
    assert await act(database, begun)
    begun.advance(KEY_SECONDS)
    assert not await act(database, begun)


@on_sqlite
async def test_a_request_that_had_no_effect_may_succeed_later(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:
        revoke = "POST", "/api/v1/keys/ci/revoke", {}
        assert (await operator.ask(*revoke, headers={"Idempotency-Key": "k1"})).status == 404
        await operator.ask("POST", "/api/v1/keys", {"name": "ci"})
        assert (await operator.ask(*revoke, headers={"Idempotency-Key": "k1"})).status == 200


@on_sqlite
async def test_a_secret_is_answered_once_and_not_kept(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:
        create = "POST", "/api/v1/keys", {"name": "ci"}
        assert "key" in (await operator.ask(*create, headers={"Idempotency-Key": "k1"})).body
        again = await operator.ask(*create, headers={"Idempotency-Key": "k1"})
        assert (again.status, again.body["error"]["code"]) == (409, "answer_not_kept")


async def test_a_request_whose_node_ended_before_the_answer_is_not_done_again(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, "WAIT_SECONDS", 0.0)
    async with operating(migrated_url) as operator:
        await apply(operator, "k1")
        await operator.server.log.database.write(
            lambda conn: execute(conn, "UPDATE action_answers SET status = 0, answer = NULL")
        )
        again = await apply(operator, "k1")
        assert (again.status, again.body["error"]["code"]) == (409, "request_in_progress")


@on_sqlite
async def test_a_bad_key_is_refused(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:
        for key in ("x" * 65, "\u00e9"):
            assert (await apply(operator, key)).status == 400


@on_sqlite
async def test_repeated_requests_to_v0_get_the_first_answer(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:

        async def twice(method: str, path: str, body: Any, key: str) -> tuple[Acted, Acted]:
            first, again = [await operator.ask(method, path, body, headers={"Idempotency-Key": key}) for _ in range(2)]
            assert (first.status, first.body) == (again.status, again.body)
            assert ("Idempotent-Replayed" in first.headers, "Idempotent-Replayed" in again.headers) == (False, True)
            return first, again

        first, _ = await twice("PUT", "/v0/topics/orders", {"config": {}}, "k1")
        assert (first.status, first.body["created"]) == (201, True)
        other = await operator.ask("PUT", "/v0/topics/others", {}, headers={"Idempotency-Key": "k1"})
        assert (other.status, other.body["error"]["code"]) == (409, "idempotency_key_reused")
        await operator.ask("POST", "/v0/topics/orders", {"records": [{"data": 1}, {"data": 2}]})
        await twice("POST", "/v0/topics/orders/delete", {"before_seq": 2}, "k2")
        await twice("DELETE", "/v0/topics/orders", None, "k3")
        operations = [row.operation for row in await operator.rows() if row.result == "ok"]
        assert operations == ["DELETE /v0/topics/{topic}", "POST /v0/topics/{topic}/delete", "PUT /v0/topics/{topic}"]


@on_sqlite
async def test_jobs_are_settled_once_and_recorded_only_with_a_key(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:
        await operator.ask("PUT", "/v0/topics/todo", {"type": "queue"})
        await operator.ask("POST", "/v0/topics/todo", {"records": [{"data": 1}]})

        async def claim() -> None:
            claimed = await operator.ask("POST", "/v0/topics/todo/claim", {"node": "w"})
            assert claimed.body["count"] == 1

        async def give_back(**headers: str) -> Any:
            answer = await operator.ask("POST", "/v0/topics/todo/nack", {"node": "w", "seqs": [1]}, headers=headers)
            return answer.body["nacked"], answer.body["in_flight"]

        await claim()
        assert await give_back() == (1, 0)
        assert [row.operation for row in await operator.rows()] == ["PUT /v0/topics/{topic}"]
        for _ in range(2):
            await claim()
            assert await give_back(**{"Idempotency-Key": "k1"}) == (1, 0)
        assert (await operator.ask("POST", "/v0/topics/todo/claim", {"node": "v"})).body["count"] == 0
        recorded = [(row.operation, row.object) for row in await operator.rows()][:-1]
        assert recorded == [("POST /v0/topics/{topic}/nack", "topic todo")]
