"""A drain over real HTTP, with the requests that a bus sends, and the documents that it fetches."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from eventd.client.documents import Document, DocumentCache
from eventd.client.drain import Drain, DrainEvent, application
from eventd.errors import EventdError, Forbidden, Invalid, NotFound, TooLarge, Unavailable
from eventd.runtime.clock import SECOND, SystemClock
from eventd.testing import ManualClock, give_turns, until
from federation.webhooks import format_secret, read_key, sign

UUID = "shop--0123"
EVENT = {"topic": "orders", "type": "create", "url": "https://shop.example/orders/1", "t": 1795173885369}
BATCH = json.dumps([EVENT]).encode()


class Shop:
    """What handlers and documents of the tests share."""

    def __init__(self) -> None:
        self.handled: list[DrainEvent] = []
        self.calls = 0
        self.error: Exception | None = None
        self.may_return = asyncio.Event()
        self.may_return.set()

    async def handle(self, events: Sequence[DrainEvent]) -> None:
        self.calls += 1
        await self.may_return.wait()
        if self.error is not None:
            raise self.error
        self.handled += events


def authorization(user: str = UUID) -> str:
    return f"Basic {b64encode(f'{user}:x'.encode()).decode()}"


Post = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


@pytest.fixture
async def serve(session: aiohttp.ClientSession) -> AsyncIterator[Callable[..., Awaitable[Post]]]:
    """Serves a drain; what it returns posts a batch to it."""
    servers: list[TestServer] = []

    async def start(drain: Drain, **options: Any) -> Post:
        server = TestServer(application(drain, **options))
        servers.append(server)
        await server.start_server()

        async def post(
            body: Any = BATCH, method: str = "POST", path: str = "/", **headers: str | None
        ) -> tuple[int, str]:
            sent = {"Authorization": authorization(), "Content-Type": "application/json"}
            sent |= {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
            for name, value in headers.items():
                if value is None:
                    del sent[name.replace("_", "-")]
            async with session.request(method, server.make_url(path), data=body, headers=sent) as response:
                return response.status, await response.text()

        return post

    yield start
    for server in servers:
        await server.close()


async def test_batch_is_acknowledged_after_the_handler_has_returned(serve: Any, shop: Shop) -> None:
    post = await serve(Drain(shop.handle, UUID))
    shop.may_return.clear()
    answer = asyncio.ensure_future(post())
    await until(lambda: shop.calls, "the handler to begin")
    await give_turns()
    assert not answer.done()
    shop.may_return.set()
    assert await answer == (204, "")
    assert [event.url for event in shop.handled] == ["https://shop.example/orders/1"]


async def test_failed_handler_makes_the_bus_send_the_batch_again(
    serve: Any, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    post = await serve(Drain(shop.handle, UUID))
    # An exception that aiohttp would answer by itself, and one that denotes an answer of a drain, are errors as others.
    for error in (RuntimeError("no disk"), web.HTTPNoContent(), TimeoutError()):
        shop.error = error
        status, text = await post()
        assert status == 500
        assert "no disk" not in text
    assert "no disk" in caplog.text
    shop.error = None
    assert await post() == (204, "")
    assert len(shop.handled) == 1


@pytest.mark.parametrize(
    ("request_of", "status", "words"),
    [
        ({"Authorization": None}, 401, "no Authorization header"),
        ({"Authorization": authorization("other")}, 403, "not a uuid that this drain accepts"),
        ({"Content_Type": "application/json; charset=utf-8"}, 415, "send application/json, without parameters"),
        ({"body": b"[]"}, 400, "the batch has no events"),
        ({"body": b'[{"topic":"w"}]'}, 400, "missing required field `type` - at `$[0]`"),
        ({"body": b"[" + b" " * 4096 + b"]"}, 413, "more than 4096 bytes"),
        ({"method": "GET"}, 405, ""),
        ({"path": "/other"}, 404, ""),
    ],
)
async def test_refusals(serve: Any, shop: Shop, request_of: dict[str, Any], status: int, words: str) -> None:
    post = await serve(Drain(shop.handle, UUID), max_body=4096)
    found, text = await post(**request_of)
    assert found == status
    assert words in text
    assert UUID not in text
    assert shop.handled == []


async def test_signed_batches(serve: Any, shop: Shop) -> None:
    secret = format_secret(bytes(32))
    post = await serve(Drain(shop.handle, [UUID], secrets=[secret]))
    assert (await post())[0] == 401
    now = SystemClock().now() // SECOND
    headers = {"webhook_id": "orders-1", "webhook_timestamp": str(now)}
    signature = sign([read_key("k", secret)], "orders-1", now, BATCH)
    assert (await post(**headers, webhook_signature=signature)) == (204, "")
    assert (await post(BATCH + b" ", **headers, webhook_signature=signature))[0] == 401


async def test_more_requests_than_allowed_are_sent_away(serve: Any, shop: Shop) -> None:
    post = await serve(Drain(shop.handle, UUID), max_requests=1)
    shop.may_return.clear()
    first = asyncio.ensure_future(post())
    await until(lambda: shop.calls, "the handler to begin")
    assert (await post())[0] == 503
    shop.may_return.set()
    assert (await first)[0] == 204
    assert (await post())[0] == 204


async def test_body_that_does_not_arrive(serve: Any, shop: Shop) -> None:
    post = await serve(Drain(shop.handle, UUID), body_seconds=0.05)
    stopped = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"["
        await stopped.wait()

    assert (await post(slowly()))[0] == 408
    stopped.set()


async def test_path_of_the_application(serve: Any, shop: Shop) -> None:
    post = await serve(Drain(shop.handle, UUID), path="/hooks/orders")
    assert await post(path="/hooks/orders") == (204, "")
    assert (await post())[0] == 404


# Documents.


class Site:
    """A host with documents; counts what is fetched, and shows the headers that it gets."""

    def __init__(self) -> None:
        self.fetched: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.version = 1
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.other = ""
        self.server = TestServer(self._application())

    def _application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.fetched.append(request.path)
        self.headers.append(dict(request.headers))
        version = self.version
        await self.may_answer.wait()
        match request.path.strip("/").split("/"):
            case ["status", status]:
                return web.Response(status=int(status))
            case ["size", size]:
                return web.Response(body=b"x" * int(size))
            case ["here"]:
                return web.Response(status=302, headers={"Location": "/orders/1"})
            case ["there"]:
                return web.Response(status=307, headers={"Location": f"{self.other}/orders/1"})
            case ["round"]:
                return web.Response(status=301, headers={"Location": "/round"})
            case ["packed"]:
                response = web.Response(body=b"x" * 10_000)
                response.enable_compression(web.ContentCoding.gzip)
                response.headers["Content-Encoding"] = "gzip"
                return response
        return web.json_response({"version": version})

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def url(self, path: str) -> str:
        return f"http://{self.host}{path}"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    await site.server.start_server()
    yield site
    site.may_answer.set()
    await site.server.close()


other_site = site


def cache(*sites: Site, **options: Any) -> DocumentCache:
    hosts = {site.host: {"Authorization": f"Bearer for {site.host}"} for site in sites}
    return DocumentCache(hosts, allow_plain=True, **options)


def version(document: Document) -> int:
    found: int = json.loads(document.body)["version"]
    return found


async def test_document_is_kept_until_an_event_changes_it(serve: Any, site: Site, shop: Shop) -> None:
    documents, url, seen = cache(site), site.url("/orders/1"), list[int]()

    async def handle(events: Sequence[DrainEvent]) -> None:
        seen.extend([version(await documents.get(event.url)) for event in events])

    post = await serve(Drain(handle, UUID, documents=documents))
    for t, type in enumerate(["create", "noop", "update", "noop", "delete", "noop"]):
        site.version = t
        assert (await post(json.dumps([{**EVENT, "url": url, "type": type, "t": t}]).encode()))[0] == 204
    assert seen == [0, 0, 2, 2, 4, 4]
    assert site.fetched == ["/orders/1"] * 3
    assert site.headers[0]["Authorization"] == f"Bearer for {site.host}"
    assert len(documents) == 1
    await post(json.dumps([{**EVENT, "url": url, "type": "update", "t": 1}]).encode())
    assert len(documents) == 1, "an outdated event changes nothing"


async def test_event_during_a_fetch_keeps_the_answer_out(site: Site) -> None:
    async with cache(site) as documents:
        site.may_answer.clear()
        early = asyncio.ensure_future(documents.get(site.url("/orders/1")))
        await until(lambda: site.fetched, "the request to arrive")
        documents.invalidate(site.url("/orders/1"))
        site.version = 2
        site.may_answer.set()
        assert version(await early) == 1
        assert len(documents) == 0
        assert version(await documents.get(site.url("/orders/1"))) == 2
        assert len(documents) == 1


async def test_number_and_bytes_are_bounded_and_the_oldest_use_goes_first(site: Site) -> None:
    async with cache(site, entries=2) as documents:
        for name in "abac":
            await documents.get(site.url(f"/{name}"))
        await documents.get(site.url("/a"))
        assert site.fetched == ["/a", "/b", "/c"]
        assert len(documents) == 2
    async with cache(site, size=2500) as documents:
        for number in range(5):
            await documents.get(site.url(f"/size/{1000 + number}"))
            assert documents.used <= 2500
        assert len(documents) == 2
        assert len((await documents.get(site.url("/size/2600"))).body) == 2600
        assert (len(documents), documents.used) == (0, 0), "larger than everything that may be kept"


async def test_document_grows_too_old(site: Site) -> None:
    clock = ManualClock()
    async with cache(site, max_age=60, clock=clock) as documents:
        for seconds in (0, 59, 1):
            clock.advance(seconds)
            await documents.get(site.url("/a"))
    assert site.fetched == ["/a", "/a"]


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("/status/404", NotFound, "is answered with 404"),
        ("/status/410", NotFound, "410"),
        ("/status/401", Forbidden, "check the headers for this host"),
        ("/status/429", Unavailable, "429"),
        ("/status/503", Unavailable, "503"),
        ("/status/204", EventdError, "204"),
        ("/size/1001", TooLarge, "more than 1000 bytes"),
        ("/round", EventdError, "redirected more than 5 times"),
        ("/there", Forbidden, "redirected to another host"),
        ("/packed", EventdError, "compressed"),
    ],
)
async def test_documents_that_are_not_there(
    site: Site, other_site: Site, path: str, error: type[EventdError], words: str
) -> None:
    site.other = f"http://{other_site.host}"
    async with cache(site, other_site, max_document=1000) as documents:
        with pytest.raises(error) as refused:
            await documents.get(site.url(path))
        assert type(refused.value) is error
        assert words in str(refused.value)
        assert len(documents) == 0
    assert other_site.fetched == []


async def test_redirect_to_another_listed_host_if_allowed(site: Site, other_site: Site) -> None:
    site.other = f"http://{other_site.host}"
    async with cache(site, other_site, other_hosts=True) as documents:
        found = await documents.get(site.url("/there"))
        assert found.url == other_site.url("/orders/1")
        assert other_site.headers[0]["Authorization"] == f"Bearer for {other_site.host}"
    async with cache(site, other_hosts=True) as documents:
        with pytest.raises(Forbidden, match="not a listed host"):
            await documents.get(site.url("/there"))


async def test_redirect_within_the_host(site: Site) -> None:
    async with cache(site) as documents:
        assert (await documents.get(site.url("/here"))).url == site.url("/orders/1")


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("https://elsewhere.example/a", Forbidden, "'elsewhere.example' is not a listed host"),
        ("https://127.0.0.1:1/a", Forbidden, "'127.0.0.1:1' is not a listed host"),
        ("http://shop.example/a?key=hidden", Forbidden, "http://shop.example/a is not fetched: it is not https"),
        ("ftp://shop.example/a", Forbidden, "it is not https"),
        ("/orders/1", Invalid, "not a url with a host"),
        ("https://shop.example:99999/", Invalid, "not a url that can be fetched"),
    ],
)
async def test_urls_that_are_not_fetched(url: str, error: type[EventdError], words: str) -> None:
    async with DocumentCache({"shop.example": {}}) as documents:
        with pytest.raises(error) as refused:
            await documents.get(url)
        assert words in str(refused.value)
        assert "hidden" not in str(refused.value)


async def test_user_information_of_a_url_is_not_sent(site: Site) -> None:
    async with DocumentCache({site.host: {}}, allow_plain=True) as documents:
        await documents.get(f"http://user:password@{site.host}/a")
    assert "Authorization" not in site.headers[0]


async def test_silent_host_and_none_at_all(site: Site) -> None:
    site.may_answer.clear()
    async with cache(site, timeout=0.05) as documents:
        with pytest.raises(Unavailable, match=r"was not read within 0\.05 s"):
            await documents.get(site.url("/a"))
    async with cache(site) as documents:
        url = site.url("/a")
        await site.server.close()
        with pytest.raises(Unavailable, match="cannot be read"):
            await documents.get(url)
