"""The exchange of an issuer's token for a stream token: by the claims of a proven token, within bounds before that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from eventd.api.keys.valid_keys import Keys
from eventd.api.quic import exchange as module
from eventd.api.quic.access import StreamAccess
from eventd.api.quic.exchange import TokenIssuer, granted
from eventd.api.quic.key_sources import KeySourceReader, KeySourceUnreadable
from eventd.api.quic.tenant_keys import TenantKeys
from eventd.errors import EventdError, Forbidden, SecretUnreadable, Unauthorized, Unavailable
from eventd.log.topics.errors import Throttled
from eventd.resources.stream_configuration import (
    ClaimGrantConfig,
    KeySourceConfig,
    StreamTenantConfig,
    TokenExchangeConfig,
)
from eventd.runtime.clock import SECOND
from eventd.runtime.threads import THREADS
from eventd.streams.names import StreamName
from eventd.streams.permissions import StreamAction, read_permissions
from eventd.testing import ManualClock
from tests.support.stream_tokens import OTHER, ec_key, issuer_token, jwk, jwks, pem

ISSUER, AUDIENCE = "https://login.example/", "routerd"
LOGIN = ec_key()
PUBLISH, READ = read_permissions(["stream.publish:stream:t1/*", "cache.read:cache:t1/*"])


class Desk:
    """An issuer of stream tokens for one tenant, whose identity provider is a URL."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.file = folder / "signing.pem"
        self.file.write_bytes(pem(OTHER))
        self.file.chmod(0o600)
        self.body: bytes | None = jwks(jwk(LOGIN))
        self.keys = TenantKeys(KeySourceReader(THREADS, None, self.fetch), self.clock)
        self.issuer = TokenIssuer(self.keys, self.clock)
        self.exchange = TokenExchangeConfig(
            ISSUER,
            AUDIENCE,
            KeySourceConfig(url="https://login.example/keys"),
            "sub",
            (
                ClaimGrantConfig("groups", "ops", (PUBLISH, READ)),
                ClaimGrantConfig("realm.roles", "reader", (READ,)),
            ),
            900,
            str(self.file),
            "x1",
        )
        self.declare()

    def declare(self, **changes: Any) -> None:
        fields = {name: getattr(self.exchange, name) for name in self.exchange.__slots__} | changes
        self.exchange = TokenExchangeConfig(**fields)
        self.keys.declare({"t1": StreamTenantConfig("t1", exchange=self.exchange)})

    async def fetch(self, _source: KeySourceConfig) -> bytes:
        if self.body is None:
            raise KeySourceUnreadable("no answer")
        return self.body

    def token(self, **claims: Any) -> str:
        now = self.clock.now() // SECOND
        given = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now + 60, "groups": ["ops"]} | claims
        return issuer_token(LOGIN, {name: value for name, value in given.items() if value is not None})

    async def refuse(self, kind: type[EventdError], token: str, tenant: str = "t1") -> str:
        with pytest.raises(kind) as caught:
            await self.issuer.exchange(tenant, token)
        return str(caught.value)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    await desk.keys.close()


async def test_a_token_of_the_issuer_becomes_a_stream_token_that_the_node_accepts(desk: Desk) -> None:
    issued = await desk.issuer.exchange("t1", desk.token())
    assert (issued.tenant, issued.subject) == ("t1", "ada")
    assert issued.permissions == ["stream.publish:stream:t1/*", "cache.read:cache:t1/*"]
    access = StreamAccess(Keys(tuple, clock=desk.clock), desk.keys, desk.clock, may_be_open=False)
    grant = await access.authenticate("t1", issued.token)
    assert grant.subject == "ada"
    assert grant.allows(StreamAction.PUBLISH, StreamName("t1", "default", "orders").resource)
    desk.clock.advance(900 + 61)
    assert grant.ended(desk.clock.now()) == "token expired"


async def test_grants_add_up_and_each_permission_is_given_once(desk: Desk) -> None:
    claims = {"groups": "dev ops", "realm": {"roles": ["reader"]}}
    assert granted(desk.exchange, claims) == (PUBLISH, READ)
    assert granted(desk.exchange, {"realm": {"roles": ["reader"]}}) == (READ,)
    assert granted(desk.exchange, {}) == ()


@pytest.mark.parametrize(
    "claims", [{"groups": ["dev"]}, {"groups": None}, {"sub": None}, {"sub": 7}, {"sub": "x" * 256}]
)
async def test_a_proven_token_without_a_grant_or_subject_is_forbidden(desk: Desk, claims: dict[str, Any]) -> None:
    assert await desk.refuse(Forbidden, desk.token(**claims))


async def test_a_token_that_is_not_valid_is_refused_without_a_reason(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    now = desk.clock.now() // SECOND
    other = issuer_token(ec_key(), {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now + 60, "groups": "ops"})
    wrong = [desk.token(exp=now - 61), desk.token(aud="x"), desk.token(iss="x"), other, "x", ""]
    told = {await desk.refuse(Unauthorized, token) for token in wrong}
    assert told == {"the token is not accepted (the node's log says why)"}
    assert await desk.refuse(Unauthorized, desk.token(), "t2") in told
    logged = [record.__dict__["reason"] for record in caplog.records if record.message == "token not exchanged"]
    assert "expired" in logged[0]
    assert len(logged) == len(set(logged)) > 1  # each reason once
    assert not any(token[:60] in caplog.text for token in wrong if len(token) > 60)


async def test_a_tenant_without_an_exchange_looks_like_none(desk: Desk) -> None:
    desk.keys.declare({"t1": StreamTenantConfig("t1")})
    assert await desk.refuse(Unauthorized, desk.token())


async def test_keys_that_cannot_be_read_are_no_fault_of_the_client(desk: Desk) -> None:
    desk.body = None
    assert "issuer cannot be read" in await desk.refuse(Unavailable, desk.token())
    desk.body = jwks(jwk(LOGIN))
    desk.clock.advance(10)
    await desk.issuer.exchange("t1", desk.token())
    desk.file.write_text("none")
    desk.declare(signing_key_file=str(desk.file.with_name("missing")))
    assert "signing key" in await desk.refuse(SecretUnreadable, desk.token())


async def test_a_new_key_of_the_issuer_is_fetched(desk: Desk) -> None:
    await desk.issuer.exchange("t1", desk.token())
    new = ec_key()
    desk.body = jwks(jwk(LOGIN), jwk(new, "k2"))
    now = desk.clock.now() // SECOND
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now + 60, "groups": "ops"}
    token = issuer_token(new, claims, id="k2")
    assert await desk.refuse(Unauthorized, token)
    desk.clock.advance(10)
    assert (await desk.issuer.exchange("t1", token)).subject == "ada"


async def test_requests_are_bounded_at_a_time_and_in_a_second(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 5)
    calls = [asyncio.ensure_future(desk.issuer.exchange("t1", "x.y.z")) for _ in range(8)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes].count(Throttled) == 3
    monkeypatch.setattr(module, "MOST_PER_SECOND", 6)
    assert await desk.refuse(Unauthorized, "x.y.z")
    assert await desk.refuse(Throttled, desk.token())
    desk.clock.advance(1)
    assert (await desk.issuer.exchange("t1", desk.token())).subject == "ada"


async def test_a_stream_token_is_never_longer_than_what_a_node_accepts(desk: Desk) -> None:
    many = tuple(PUBLISH._replace(pattern=f"stream:t1/{'x' * 60}{number}") for number in range(300))
    desk.declare(grants=(ClaimGrantConfig("groups", "ops", many),))
    assert "longer than" in await desk.refuse(Forbidden, desk.token())
