"""The tenants of a whole node: declared, their keys read from files and an https server, tokens exchanged, reported."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from eventd.api.framework.operations import Services
from eventd.api.quic.access import StreamAccess
from eventd.api.quic.interfaces import AuthFailed
from eventd.runtime.clock import SECOND
from eventd.testing import until
from tests.support import operations
from tests.support.certificates import Authority
from tests.support.sites import Site
from tests.support.stream_tokens import KEY, OTHER, issuer_token, jwk, jwks, pem, rsa_key, stream_token

LOGIN = rsa_key()
ISSUER, AUDIENCE = "https://login.example/", "routerd"


class IdentityProvider:
    """An https server with the key set of an issuer."""

    def __init__(self) -> None:
        self.body, self.status, self.requests = jwks(jwk(LOGIN)), 200, 0
        self.ca, self.url = Path(), ""

    async def answer(self, request: web.Request) -> web.Response:
        self.requests += 1
        assert request.path_qs == "/keys?tenant=t1"
        return web.Response(body=self.body, status=self.status, content_type="application/json")


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[IdentityProvider]:
    authority, provider = Authority(tmp_path), IdentityProvider()
    files = authority.issue("login", hosts=("localhost",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    app = web.Application()
    app.router.add_get("/keys", provider.answer)
    server = TestServer(app, host="localhost")
    await server.start_server(ssl=context)
    provider.ca, provider.url = authority.file, f"https://localhost:{server.port}/keys?tenant=t1"
    yield provider
    await server.close()


def tenant(name: str = "t1", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "stream.routerd.net/v1alpha1",
        "kind": "StreamTenant",
        "metadata": {"name": name},
        "spec": spec,
    }


def cache(name: str, **spec: Any) -> dict[str, Any]:
    return tenant(name, **spec) | {"kind": "StreamCache"}


def exchange(provider: IdentityProvider, folder: Path) -> dict[str, Any]:
    file = folder / "signing.pem"
    file.write_bytes(pem(OTHER))
    file.chmod(0o600)
    return {
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "jwksURL": provider.url,
        "caFile": str(provider.ca),
        "grants": [{"claim": "groups", "value": "ops", "permissions": ["stream.publish:stream:t1/*"]}],
        "signingKeyFile": str(file),
        "keyId": "x1",
    }


def now_of(site: Site) -> int:
    return site.clock.now() // SECOND


def login(site: Site, **claims: Any) -> str:
    given = {"iss": ISSUER, "aud": [AUDIENCE], "sub": "ada", "exp": now_of(site) + 60, "groups": ["ops"]}
    return issuer_token(LOGIN, given | claims)


async def ask_for_token(site: Site, body: Any, **options: Any) -> tuple[int, Any]:
    host, port = site.running.api_address
    async with ClientSession() as session:
        options = {"json": body} | options if "data" not in options else options
        async with session.post(f"http://{host}:{port}/api/v1/stream-tokens", **options) as answer:
            assert answer.headers["Cache-Control"] == "no-store"
            return answer.status, await answer.json()


def access_of(site: Site) -> StreamAccess:
    return StreamAccess(site.running.keys, site.running.stream_tenants.keys, site.clock, may_be_open=False)


async def checks_of(site: Site) -> dict[str, tuple[str, str]]:
    node = site.running
    services = Services(node.log, settings=node.settings, tenant_keys=node.stream_tenants.keys.states)
    found = await operations.run(services, "doctor.examine")
    return {
        check.get("code", "") or check["name"]: (check["status"], check.get("detail", "")) for check in found["checks"]
    }


async def test_a_token_of_an_issuer_is_exchanged_over_the_api_without_a_key(
    sites: Callable[..., list[Site]], provider: IdentityProvider, tmp_path: Path
) -> None:
    (site,) = sites("a")
    await site.start(callback_allow="localhost", api_keys="an-api-key")
    await site.apply(tenant(exchange=exchange(provider, tmp_path)))
    status, issued = await ask_for_token(site, {"tenant": "t1", "token": login(site)})
    assert (status, issued["subject"], issued["permissions"]) == (200, "ada", ["stream.publish:stream:t1/*"])
    grant = await access_of(site).authenticate("t1", issued["token"])
    assert (grant.tenant, grant.subject) == ("t1", "ada")
    assert provider.requests == 1
    for body, wanted in (
        ({"tenant": "t1", "token": login(site, aud="other")}, 401),
        ({"tenant": "t2", "token": login(site)}, 401),
        ({"tenant": "t1", "token": login(site, groups=["dev"])}, 403),
        ({"tenant": "t1"}, 400),
        ({"tenant": "t1", "token": 7}, 400),
        ({"tenant": "t1", "token": "x" * (17 << 10)}, 400),
        ({"tenant": "t1", "token": "x" * (33 << 10)}, 413),
        ([], 400),
    ):
        status, answer = await ask_for_token(site, body)
        assert (status, bool(answer["error"]["message"])) == (wanted, True), body
        assert "Traceback" not in json.dumps(answer)
    status, _ = await ask_for_token(site, None, data=b"{", headers={"Content-Type": "application/json"})
    assert status == 400
    status, _ = await ask_for_token(site, None, data=b"{}", headers={"Content-Type": "text/plain"})
    assert status == 415


async def test_an_address_that_is_not_allowed_is_not_asked(
    sites: Callable[..., list[Site]], provider: IdentityProvider, tmp_path: Path
) -> None:
    (site,) = sites("a")
    await site.start()
    await site.apply(tenant(exchange=exchange(provider, tmp_path)))
    status, answer = await ask_for_token(site, {"tenant": "t1", "token": login(site)})
    assert (status, answer["error"]["code"], provider.requests) == (503, "unavailable", 0)
    status, detail = (await checks_of(site))["tenant-keys-unreadable"]
    assert (status, "EVENTD_CALLBACK_ALLOW" in detail, "tenant=t1" in detail) == ("fail", True, False)


async def test_an_issuer_that_fails_is_reported_and_its_keys_stay(
    sites: Callable[..., list[Site]], provider: IdentityProvider, tmp_path: Path
) -> None:
    (site,) = sites("a")
    await site.start(callback_allow="localhost")
    await site.apply(tenant(exchange=exchange(provider, tmp_path)))
    assert (await ask_for_token(site, {"tenant": "t1", "token": login(site)}))[0] == 200
    provider.status = 500
    await site.running.reload()
    await site.running.stream_tenants.keys._issuers.refresh()
    assert (await ask_for_token(site, {"tenant": "t1", "token": login(site)}))[0] == 200
    status, detail = (await checks_of(site))["tenant-keys-unreadable"]
    assert status == "warn"
    assert "the answer has the status 500, not 200; in use: 1 key" in detail


async def test_a_key_that_leaves_the_file_ends_its_tokens_by_itself(
    sites: Callable[..., list[Site]], tmp_path: Path
) -> None:
    (site,) = sites("a")
    await site.start()
    file = tmp_path / "t1.json"
    file.write_bytes(jwks(jwk(), jwk(OTHER, "k2")))
    await site.apply(tenant(jwksFile=str(file)), cache("c", tenant="t1"))
    access = access_of(site)
    grant = await access.authenticate("t1", stream_token(now=now_of(site)))
    assert grant.ended(site.clock.now()) == ""
    (tmp_path / "new").write_bytes(jwks(jwk(OTHER, "k2")))
    os.replace(tmp_path / "new", file)
    await until(lambda: grant.ended(site.clock.now()) == "token revoked", "the token to end")
    with pytest.raises(AuthFailed):
        await access.authenticate("t1", stream_token(now=now_of(site)))
    assert (await checks_of(site))["tenant t1"] == ("pass", "1 key")


async def test_a_tenant_that_is_deleted_ends_its_tokens(site: Site) -> None:
    await site.apply(tenant(jwks={"keys": [jwk(KEY)]}), tenant("t2", jwks={"keys": [jwk(KEY)]}))
    grant = await access_of(site).authenticate("t1", stream_token(now=now_of(site)))
    assert grant.ended(site.clock.now()) == ""
    await site.ask("resources.delete", kind="StreamTenant", name="t1")
    await site.settled()
    assert grant.ended(site.clock.now()) == "token revoked"
    assert [*site.running.stream_tenants.keys.tenants] == ["t2"]


async def test_resources_are_shown_with_their_defaults(site: Site) -> None:
    await site.apply(tenant(jwks={"keys": [jwk(KEY)]}), cache("c", tenant="t1", maxTTL="1m"))
    shown = await site.ask("resources.describe", kind="cache", name="c")
    assert shown["effective"]["namespace"] == "default"
    assert shown["effective"]["maxTTL"] == "1m0s"
    shown = await site.ask("resources.describe", kind="tenant", name="t1")
    assert shown["effective"]["jwks"]["keys"][0]["use"] == "sig"
    again = await site.ask("resources.get", kind="tenant", name="t1")
    diff = await site.ask("resources.diff", sources=[{"name": "again", "text": json.dumps(again)}])
    assert [change["action"] for change in diff["changes"]] == ["unchanged"]
