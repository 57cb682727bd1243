"""Sessions of the console as operations: listed and ended. On both databases."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.api.framework.operations import Services
from eventd.errors import Invalid, NotFound
from eventd.log.core.eventlog import EventLog
from eventd.runtime.clock import SECOND
from eventd.store.rows.console_sessions import (
    IDLE,
    SessionRow,
    create_session,
    read_sessions,
)
from eventd.store.rows.keys import read_keys
from eventd.testing import NOW
from tests.support import operations
from tests.support.fresh import on_sqlite


async def ask(log: EventLog, verb: str, /, **params: Any) -> Any:
    return await operations.run(Services(log), f"sessions.{verb}", **params)


async def begin(log: EventLog, mark: str, **other: Any) -> None:
    row = SessionRow(mark * 64, "0" * 64, "", "10.0.0.1", NOW, NOW, NOW + 12 * IDLE)
    await log.database.write(create_session, row._replace(**other))


async def ids(log: EventLog, **params: Any) -> str:
    """Return the first characters of the ids that are listed."""
    return "".join(row["id"][0] for row in (await ask(log, "list", **params))["sessions"])


@on_sqlite
async def test_only_sessions_that_have_not_ended_are_listed(log: EventLog) -> None:
    await begin(log, "a")
    await begin(log, "b", expires_at=NOW)
    await begin(log, "c", used_at=NOW - IDLE)
    await begin(log, "d", created_at=NOW - SECOND)
    await begin(log, "e", used_at=NOW + IDLE)  # when the clock was ahead
    assert await ids(log) == "ad"
    (first, _) = (await ask(log, "list"))["sessions"]
    assert first["who"].startswith("settings key ")
    assert "0" * 64 not in str(first)


@on_sqlite
async def test_a_session_ends_with_its_key(log: EventLog) -> None:
    await operations.run(Services(log), "keys.create", name="ci")
    (key,) = await log.database.read(read_keys)
    await begin(log, "a", key_digest=key.digest, key_name="ci")
    await begin(log, "b")
    assert (await ids(log), await ids(log, key="ci")) == ("ba", "a")
    await operations.run(Services(log), "keys.revoke", name="ci")
    assert await ids(log) == "b"


async def test_pages_follow_one_another_while_sessions_are_used(log: EventLog) -> None:
    for mark in "abcde":
        await begin(log, mark)
    first = await ask(log, "list", limit=2)
    await begin(log, "f", created_at=NOW + SECOND)
    assert "".join(row["id"][0] for row in first["sessions"]) == "ed"
    assert await ids(log, limit=10, after=first["next"]) == "cba"
    assert (await ask(log, "list", limit=6))["next"] is None
    with pytest.raises(Invalid, match="is not a token of this list"):
        await ask(log, "list", after="1.x")


async def test_a_session_is_ended_by_its_whole_id(log: EventLog) -> None:
    await begin(log, "a")
    for wrong in ("", "a", "A" * 16, "a" * 64):
        with pytest.raises(Invalid):
            await ask(log, "end", id=wrong)
    assert await ask(log, "end", id="a" * 16) == {"id": "a" * 16, "ended": True}
    with pytest.raises(NotFound):
        await ask(log, "end", id="a" * 16)
    assert await log.database.read(read_sessions) == []
