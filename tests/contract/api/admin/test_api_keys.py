"""API keys that are created at run time: what is stored of one, and when it expires. On both databases."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from eventd.api.framework.operations import Services
from eventd.errors import Conflict, EventdError, Invalid, NotFound
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import read_head
from eventd.runtime.clock import SECOND
from eventd.store.engine.statements import fetch
from eventd.store.rows.keys import read_keys
from eventd.testing import NOW, ManualClock
from tests.support import operations
from tests.support.fresh import on_sqlite


async def ask(log: EventLog, verb: str, /, **params: Any) -> Any:
    return await operations.run(Services(log), f"keys.{verb}", **params)


async def version(log: EventLog) -> int:
    return (await log.database.read(read_head)).topics_version


async def test_what_is_kept_of_a_key_is_its_digest_and_never_the_key(log: EventLog) -> None:
    made = await ask(log, "create", name="ci", scopes=["rw", "delete"], prefixes=["edge-", "lab"], expires="1h")
    (line,) = await log.database.read(read_keys)
    assert line.digest == hashlib.sha256(made["key"].encode()).hexdigest()
    assert (line.scopes, line.prefixes) == (("read", "write", "delete"), ("edge-", "lab"))
    assert (line.created_at, line.expires_at, line.revoked_at) == (NOW, NOW + 3600 * SECOND, None)
    stored = await log.database.read(lambda conn: fetch(conn, "SELECT * FROM api_keys"))
    assert made["key"] not in str(stored)
    (shown,) = (await ask(log, "list"))["keys"]
    assert shown["name"] == "ci"
    assert not {"key", "digest"} & shown.keys()


@on_sqlite
async def test_two_keys_are_never_the_same_and_are_known_for_keys(log: EventLog) -> None:
    keys = {(await ask(log, "create", name=f"k{n}"))["key"] for n in range(10)}
    assert len(keys) == 10
    assert all(key.startswith("evk_") and len(key) > 40 and not set(key) & set(":,| ") for key in keys)


@on_sqlite
async def test_every_change_moves_the_version_that_running_nodes_look_at(log: EventLog) -> None:
    seen = [await version(log)]
    for name, params in (("create", {}), ("revoke", {}), ("revoke", {"forget": True})):
        await ask(log, name, name="ci", **params)
        seen.append(await version(log))
    assert seen == sorted(set(seen))


@on_sqlite
async def test_a_name_is_given_once_until_it_is_forgotten(log: EventLog) -> None:
    await ask(log, "create", name="ci")
    with pytest.raises(Conflict, match="the name ci belongs to another key"):
        await ask(log, "create", name="ci")
    await ask(log, "revoke", name="ci")
    with pytest.raises(Conflict, match="the name ci belongs to a revoked key"):
        await ask(log, "create", name="ci")
    assert (await ask(log, "revoke", name="ci", forget=True))["forgotten"]
    await ask(log, "create", name="ci")


@on_sqlite
async def test_a_key_is_active_until_it_expires_or_is_revoked(log: EventLog, clock: ManualClock) -> None:
    await ask(log, "create", name="brief", expires="10s")
    await ask(log, "create", name="until", expires="2026-11-20T12:00:05Z")
    await ask(log, "create", name="for-ever")

    async def states() -> dict[str, str]:
        return {key["name"]: key["state"] for key in (await ask(log, "list"))["keys"]}

    assert await states() == {"brief": "active", "for-ever": "active", "until": "active"}
    clock.advance(5)
    assert await states() == {"brief": "active", "for-ever": "active", "until": "expired"}
    clock.advance(5)
    await ask(log, "revoke", name="for-ever")
    assert await states() == {"brief": "expired", "for-ever": "revoked", "until": "expired"}
    clock.advance(5)
    await ask(log, "revoke", name="for-ever")
    at = {key["name"]: key["revokedAt"] for key in (await ask(log, "list"))["keys"]}["for-ever"]
    assert at == "2026-11-20T12:00:10Z"  # when it ended, not when that was last said


@on_sqlite
async def test_a_key_that_is_not_there_cannot_be_revoked(log: EventLog) -> None:
    with pytest.raises(NotFound, match="key ci does not exist"):
        await ask(log, "revoke", name="ci")


WRONG_KEYS: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name: '' cannot be the name of a key"),
    ({"name": "a b"}, "name: 'a b' cannot be the name of a key"),
    ({"name": "-x"}, "cannot be the name"),
    ({"name": "a" * 64}, "cannot be the name"),
    ({"scopes": ["read", "geheim"]}, "scopes: scope 2 is not one of look, read, write, delete, admin and rw"),
    ({"scopes": []}, "scopes: is empty"),
    ({"scopes": [""]}, "scopes: scope 1 is empty"),
    ({"scopes": ["read", " "]}, "scopes: scope 2 is empty"),
    ({"scopes": ["read+"]}, "scopes: scope 2 is empty"),
    ({"prefixes": []}, "prefixes: is empty"),
    ({"prefixes": ["a", ""]}, "prefixes: an empty one would allow every name"),
    ({"prefixes": [" "]}, "prefixes: an empty one would allow every name"),
    ({"expires": ""}, "expires: is empty"),
    ({"expires": " "}, "expires: ' ' is neither a duration nor a time"),
    ({"expires": "tomorrow"}, "expires: 'tomorrow' is neither a duration nor a time"),
    ({"expires": "-1h"}, "expires: -1h has passed already"),
    ({"expires": "2001-01-01T00:00:00Z"}, "has passed already"),
    ({"expires": "0s"}, "has passed already"),
]


@on_sqlite
async def test_a_key_that_could_not_be_meant_is_refused_before_it_is_made(log: EventLog) -> None:
    for params, told in WRONG_KEYS:
        with pytest.raises(EventdError) as caught:
            await ask(log, "create", **{"name": "ci", **params})
        assert isinstance(caught.value, Invalid), told
        assert told in caught.value.message, told
        assert "geheim" not in str(caught.value), told
        assert await log.database.read(read_keys) == [], told
