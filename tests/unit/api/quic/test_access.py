"""Access over QUIC: by tokens of declared tenants, by keys of the API, and for everybody on a node without either."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.api.keys.configured_keys import parse_keys
from eventd.api.keys.valid_keys import Keys
from eventd.api.quic import access as module
from eventd.api.quic.access import StreamAccess, may_be_open, require_access
from eventd.api.quic.interfaces import AuthFailed
from eventd.api.quic.key_sources import KeySourceReader
from eventd.api.quic.tenant_keys import TenantKeys
from eventd.errors import SettingsError
from eventd.resources.stream_configuration import (
    KeySourceConfig,
    StreamKeyConfig,
    StreamTenantConfig,
    TokenExchangeConfig,
)
from eventd.runtime.clock import SECOND
from eventd.runtime.threads import THREADS
from eventd.settings.loading import load
from eventd.store.rows.keys import KeyRow
from eventd.streams.names import CacheName, StreamName
from eventd.streams.permissions import StreamAction
from eventd.streams.tokens import LEEWAY, LONGEST
from eventd.testing import ManualClock, give_turns
from tests.support.stream_tokens import KEY, OTHER, jwk, jwks, pem, stream_token

ORDERS = StreamName("t1", "default", "orders").resource
CACHE = CacheName("t1", "default", "c").resource
T1 = StreamTenantConfig("t1", (StreamKeyConfig("k1", jwk()["x"]),))


async def _no_url(_source: KeySourceConfig) -> bytes:
    raise AssertionError("nothing is at a URL here")


class House:
    """The parts behind the access to streams, with keys of the API and of tenants that a test changes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.given = ""
        self.keys = Keys(lambda: parse_keys(self.given) if self.given else (), clock=self.clock)
        self.reader = KeySourceReader(THREADS, None, _no_url)
        self.tenant_keys = TenantKeys(self.reader, self.clock)
        self.access = StreamAccess(self.keys, self.tenant_keys, self.clock, may_be_open=True)

    @property
    def now(self) -> int:
        return self.clock.now() // SECOND

    def give(self, keys: str) -> None:
        self.given = keys
        self.keys.reload()

    def declare(self, *tenants: StreamTenantConfig) -> None:
        self.tenant_keys.declare({tenant.name: tenant for tenant in tenants})

    async def refuse(self, tenant: str, token: str) -> str:
        with pytest.raises(AuthFailed) as caught:
            await self.access.authenticate(tenant, token)
        return str(caught.value)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House()
    yield house
    await house.tenant_keys.close()


async def test_a_token_allows_what_its_permissions_say(house: House) -> None:
    house.declare(T1)
    token = stream_token("t1", "stream.publish:stream:t1/default/*", "cache.read:*", now=house.now, subject="shop")
    grant = await house.access.authenticate("t1", token)
    assert (grant.tenant, grant.subject, grant.key, grant.ended(house.clock.now())) == ("t1", "shop", None, "")
    for _ in range(2):  # the second time from memory
        assert grant.allows(StreamAction.PUBLISH, ORDERS)
        assert not grant.allows(StreamAction.SUBSCRIBE, ORDERS)
        assert not grant.allows(StreamAction.PUBLISH, StreamName("t1", "other", "orders").resource)
        assert grant.allows(StreamAction.READ, CACHE)
        assert not grant.allows(StreamAction.WRITE, CACHE)


async def test_decisions_are_remembered_for_a_bounded_number_of_resources(house: House) -> None:
    house.declare(T1)
    grant = await house.access.authenticate("t1", stream_token(now=house.now))
    for number in range(3 * module.MOST_DECISIONS):
        assert grant.allows(StreamAction.PUBLISH, StreamName("t1", "default", f"s{number}").resource)
    assert len(grant._decisions) <= module.MOST_DECISIONS  # type: ignore[attr-defined]


async def test_a_resource_that_cannot_exist_is_not_remembered(house: House) -> None:
    house.declare(T1)
    grant = await house.access.authenticate("t1", stream_token(now=house.now))
    assert grant.allows(StreamAction.PUBLISH, StreamName("t1", "default", "s" * 300).resource)
    assert not grant.allows(StreamAction.PUBLISH, StreamName("t1", "default", "s" * (1 << 20)).resource)
    assert not grant._decisions  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "token",
    [
        lambda now: stream_token("t2", now=now),
        lambda now: stream_token(now=now, key=OTHER),
        lambda now: stream_token(now=now - 700),
        lambda now: stream_token(now=now)[:-4] + "AAAA",
        lambda _: "",
        lambda _: "a.b.c",
        lambda _: "\ud800.b.c",
        lambda _: "x" * (LONGEST + 1),
        lambda _: "no key of the API",
    ],
)
async def test_what_is_not_a_valid_token_of_the_tenant_is_refused(house: House, token: object) -> None:
    house.declare(T1)
    house.give("an-api-key")
    text = token(house.now) if callable(token) else ""
    reason = await house.refuse("t1", text)
    assert reason
    assert text[:20] not in reason or not text


async def test_an_undeclared_tenant_has_no_tokens(house: House) -> None:
    house.declare(T1)
    reason = await house.refuse("t2", stream_token("t2", now=house.now))
    assert reason == "the tenant t2 is not declared, and as a key of the API: this key is not known"


@pytest.mark.parametrize("tenant", ["", "t/1", "t:1", "-t", "t" * 81])
async def test_an_impossible_tenant_is_refused_also_where_everybody_has_access(house: House, tenant: str) -> None:
    await house.refuse(tenant, "")


async def test_a_token_ends_a_minute_after_its_end(house: House) -> None:
    house.declare(T1)
    token = stream_token(now=house.now, seconds=30)
    grant = await house.access.authenticate("t1", token)
    end = (house.now + 30 + LEEWAY) * SECOND
    assert [grant.ended(end), grant.ended(end + 1)] == ["", "token expired"]
    house.clock.advance(30 + LEEWAY + 1)
    assert await house.refuse("t1", token) == "it has expired"


async def test_a_token_ends_with_its_key_and_not_with_another(house: House) -> None:
    both = StreamTenantConfig("t1", (*T1.keys, StreamKeyConfig("k2", jwk(OTHER)["x"])))
    house.declare(both)
    first = await house.access.authenticate("t1", stream_token(now=house.now))
    second = await house.access.authenticate("t1", stream_token(now=house.now, key=OTHER, key_id="k2"))
    house.declare(T1)
    assert [grant.ended(house.clock.now()) for grant in (first, second)] == ["", "token revoked"]
    await house.refuse("t1", stream_token(now=house.now, key=OTHER, key_id="k2"))
    house.declare(both)
    assert second.ended(house.clock.now()) == ""


async def test_a_token_ends_with_its_tenant(house: House) -> None:
    house.declare(T1, StreamTenantConfig("t2", T1.keys))
    grant = await house.access.authenticate("t1", stream_token(now=house.now))
    assert grant.ended(house.clock.now()) == ""
    house.declare(StreamTenantConfig("t2", T1.keys))
    assert grant.ended(house.clock.now()) == "token revoked"


async def test_a_token_ends_when_its_key_leaves_the_file(house: House, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(jwks(jwk(), jwk(OTHER, "k2")))
    house.declare(StreamTenantConfig("t1", source=KeySourceConfig(str(file))))
    grant = await house.access.authenticate("t1", stream_token(now=house.now))
    await house.tenant_keys._sets.watch()
    assert grant.ended(house.clock.now()) == ""
    other = tmp_path / "new.json"
    other.write_bytes(jwks(jwk(OTHER, "k2")))
    os.replace(other, file)
    await house.tenant_keys._sets.watch()
    assert grant.ended(house.clock.now()) == "token revoked"
    await house.refuse("t1", stream_token(now=house.now))


async def test_a_tenant_whose_keys_move_to_another_file_keeps_its_streams(house: House, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(jwks())
    house.declare(StreamTenantConfig("t1", source=KeySourceConfig(str(tmp_path / "a"))))
    grant = await house.access.authenticate("t1", stream_token(now=house.now))
    house.declare(StreamTenantConfig("t1", source=KeySourceConfig(str(tmp_path / "b"))))
    assert grant.ended(house.clock.now()) == ""
    await house.tenant_keys._sets.watch()
    assert grant.ended(house.clock.now()) == ""


async def test_keys_that_are_declared_cost_no_look_at_files(house: House) -> None:
    house.declare(T1)
    followers = [
        asyncio.ensure_future(follow())
        for follow in (house.tenant_keys.watch_for_ever, house.tenant_keys.refresh_for_ever)
    ]
    await give_turns()
    assert house.clock.waits == []
    for follower in followers:
        follower.cancel()
    await asyncio.wait(followers)


async def test_the_signing_key_of_an_exchange_is_a_key_of_the_tenant(house: House, tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(pem(OTHER))
    file.chmod(0o600)
    exchange = TokenExchangeConfig("i", "a", KeySourceConfig(str(tmp_path / "none")), "sub", (), 60, str(file), "x1")
    house.declare(StreamTenantConfig("t1", exchange=exchange))
    grant = await house.access.authenticate("t1", stream_token(now=house.now, key=OTHER, key_id="x1"))
    assert grant.ended(house.clock.now()) == ""
    file.chmod(0o644)
    await house.tenant_keys.reload()
    states = {state.field: state for state in house.tenant_keys.states()}
    assert "every user of this machine may read the file" in states["exchange.signingKeyFile"].problem
    assert "none: cannot be read" in states["exchange.jwksFile"].problem


async def test_a_key_of_the_api_is_valid_for_any_tenant_within_its_scopes_and_prefixes(house: House) -> None:
    house.give("rw-key,reader:read,t1-writer:write:stream:t1:|cache:t1:default")
    whole = await house.access.authenticate("t9", "rw-key")
    assert all(whole.allows(action, ORDERS) for action in StreamAction)
    reader = await house.access.authenticate("t1", "reader")
    assert [reader.allows(action, ORDERS) for action in StreamAction] == [False, True, True, False]
    writer = await house.access.authenticate("t1", "t1-writer")
    assert writer.allows(StreamAction.PUBLISH, ORDERS)
    assert writer.allows(StreamAction.WRITE, CACHE)
    assert not writer.allows(StreamAction.READ, CACHE)
    assert not writer.allows(StreamAction.PUBLISH, StreamName("t10", "default", "orders").resource)
    assert not writer.allows(StreamAction.WRITE, CacheName("t1", "other", "c").resource)
    assert writer.key is not None
    assert (writer.identity, writer.key.digest) == (hashlib.sha256(b"t1-writer").digest(),) * 2


async def test_a_key_with_dots_is_valid_beside_tokens(house: House) -> None:
    house.declare(T1)
    house.give("a.dotted.key")
    assert (await house.access.authenticate("t1", "a.dotted.key")).key is not None


async def test_a_key_of_the_api_ends_as_everywhere(house: House) -> None:
    house.give("one,two")
    grant = await house.access.authenticate("t1", "one")
    assert grant.ended(house.clock.now()) == ""
    house.give("two")
    house.clock.advance(0.25)
    assert grant.ended(house.clock.now()) == "token revoked"
    digest = hashlib.sha256(b"short").hexdigest()
    row = KeyRow("short", digest, ("read",), (), house.clock.now(), house.clock.now() + SECOND, None)
    house.keys.reload_from([row])
    short = await house.access.authenticate("t1", "short")
    house.clock.advance(1)
    assert short.ended(house.clock.now()) == "token expired"


async def test_without_keys_and_tenants_everybody_has_access_until_there_are_some(house: House) -> None:
    grant = await house.access.authenticate("t1", "anything")
    assert all(grant.allows(action, ORDERS) for action in StreamAction)
    assert grant.ended(house.clock.now()) == ""
    house.declare(T1)
    assert grant.ended(house.clock.now()) == "token revoked"
    await house.refuse("t1", "anything")
    house.declare()
    assert grant.ended(house.clock.now()) == ""
    house.give("key")
    assert grant.ended(house.clock.now()) == "token revoked"
    await house.refuse("t1", "anything")


async def test_a_listener_that_others_can_reach_is_never_open(house: House) -> None:
    house.access = StreamAccess(house.keys, house.tenant_keys, house.clock, may_be_open=False)
    await house.refuse("t1", "anything")


async def test_a_token_is_verified_once_for_many_streams(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.declare(T1)
    calls = []
    verify = module.verify_with_signer
    monkeypatch.setattr(module, "verify_with_signer", lambda *given: calls.append(1) or verify(*given))
    token = stream_token(now=house.now)
    for _ in range(20):
        await house.access.authenticate("t1", token)
    assert len(calls) == 1
    monkeypatch.setattr(module, "MOST_VERIFIED", 2)
    others = [stream_token(now=house.now, subject=f"s{number}") for number in range(3)]
    for other in others:
        await house.access.authenticate("t1", other)
    await house.access.authenticate("t1", token)
    assert (len(calls), len(house.access._verified)) == (5, 2)


async def test_tokens_that_wait_to_be_verified_are_bounded_and_everything_else_has_its_turn(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.declare(T1)
    monkeypatch.setattr(module, "MOST_WAITING", 10)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.ensure_future(count_turns())
    wrong = [stream_token(now=house.now, key=OTHER, subject=f"s{number}") for number in range(20)]
    outcomes = await asyncio.gather(
        *[asyncio.ensure_future(house.access.authenticate("t1", token)) for token in wrong], return_exceptions=True
    )
    counting.cancel()
    assert [str(outcome) for outcome in outcomes].count("10 other tokens are being verified") == 10
    assert turns >= 10
    assert (await house.access.authenticate("t1", stream_token(now=house.now))).subject == "shop"


async def test_a_set_of_many_keys_is_tried_as_a_whole(house: House) -> None:
    many = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(10, 60)]
    keys = tuple(StreamKeyConfig("", jwk(key)["x"]) for key in (*many, KEY))
    house.declare(StreamTenantConfig("t1", keys))
    assert await house.access.authenticate("t1", stream_token(now=house.now, key_id=""))


def test_the_start_is_refused_where_others_reach_the_listener_without_keys_and_tenants() -> None:
    none, some = Keys(tuple), Keys(lambda: parse_keys("key"))
    local, public = load({"quic_listen": "127.0.0.1:0"}, {}), load({"quic_listen": "0.0.0.0:5000"}, {})
    meant = load({"quic_listen": "0.0.0.0:5000", "allow_insecure_no_auth": "1"}, {})
    for settings in (load({}, {}), local, meant):
        require_access(settings, none, {})
    require_access(public, some, {})
    require_access(public, none, {"t1": T1})
    with pytest.raises(SettingsError, match=r"other machines can reach the QUIC listener on 0\.0\.0\.0:5000"):
        require_access(public, none, {})
    assert [may_be_open(settings) for settings in (load({}, {}), local, public, meant)] == [False, True, False, True]
