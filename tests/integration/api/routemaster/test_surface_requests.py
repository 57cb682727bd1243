"""What every request to the surface goes through: TLS, route, caller, JSON, limits."""

from __future__ import annotations

import asyncio
import base64
import ssl
from ipaddress import ip_network
from pathlib import Path

import pytest

from eventd.api.bodies import bodies
from eventd.api.framework.limits import Limits
from eventd.api.routemaster.surface import SurfaceConfig
from eventd.runtime.clock import SystemClock
from eventd.testing import until
from eventd.tls.files import ServerTlsConfig
from eventd.tls.listening import open_api_tls
from tests.support.certificates import Authority
from tests.support.routemaster import ROOT, StartSurface, SurfaceServer, basic

TLS = SurfaceConfig()
NO_TOKEN = "this endpoint requires authentication with no token"


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/"),
        ("GET", "/topics/"),
        ("PUT", "/topics/orders"),
        ("GET", "/topics/orders"),
        ("POST", "/subscriptions"),
        ("DELETE", "/topics"),
        ("OPTIONS", "/topics"),
        ("OPTIONS", "*"),
        ("GET", "/%0A"),
        ("GET", "/prefix/pulse"),
        ("GET", "/health/"),
        ("HEAD", "/subscriber"),
    ],
)
async def test_what_is_not_served_is_404_before_any_authentication(
    surface: SurfaceServer, method: str, target: str
) -> None:
    heard = await surface.ask(method, target)
    assert (heard.status, heard.body, heard.headers["content-type"]) == (404, b"", "text/plain")
    assert "allow" not in heard.headers


@pytest.mark.parametrize(
    ("method", "target", "kinds"),
    [
        ("GET", "/api_tokens", "a root token"),
        ("POST", "/api_tokens", "a root token"),
        ("DELETE", "/api_tokens/x", "a root token"),
        ("GET", "/topics", "a client token, or a root token"),
        ("POST", "/topics/orders", "a client token"),
        ("DELETE", "/topics/orders", "a client token, or a root token"),
        ("DELETE", "/topic/orders", "a client token, or a root token"),
        ("POST", "/subscription", "a client token"),
        ("POST", "/subscriber", "a client token"),
        ("GET", "/subscriptions", "a root token, or a client token"),
        ("GET", "/subscribers", "a root token, or a client token"),
        ("DELETE", "/subscriber", "a root token, or a client token"),
        ("DELETE", "/subscriber/topics/orders", "a root token, or a client token"),
        ("GET", "/pulse", "a root token, or a client token"),
        ("GET", "/pulse/scaling", "a root token, or a client token"),
    ],
)
async def test_a_caller_of_another_kind_reads_which_kinds_are_accepted(
    surface: SurfaceServer, method: str, target: str, kinds: str
) -> None:
    token = await surface.token("app")
    wrong: list[str | None] = [None, "unknown"]
    wrong += [] if "root" in kinds else [ROOT]
    wrong += [] if "client" in kinds else [token]
    for user in wrong:
        heard = await surface.ask(method, target, b"not even JSON" if method == "POST" else None, user=user)
        assert (heard.status, heard.headers["www-authenticate"]) == (401, "Basic")
        assert heard.text == f"this endpoint requires authentication with {kinds}"
        assert heard.headers["content-type"] == "text/plain"


async def test_basic_in_any_case_and_with_any_password_names_the_caller(surface: SurfaceServer) -> None:
    token = await surface.token("app")
    encoded = base64.b64encode(f"{token}:".encode()).decode()
    for header in (f"Basic {encoded}", f"bAsIc {encoded}", basic(token, "a:b"), basic(ROOT)):
        assert (await surface.ask("GET", "/topics", Authorization=header)).status == 200, header
    colonless = base64.b64encode(token.encode()).decode()
    for header in (f"Bearer {token}", f"Basic {colonless}", "Basic", "Basic ***", "", f"Basic{encoded}", token):
        assert (await surface.ask("GET", "/topics", Authorization=header)).status == 401, header


async def test_health_is_for_callers_without_an_authorization_header(surface: SurfaceServer) -> None:
    token = await surface.token("app")
    for target in ("/health", "/health/ping", "/health/ping.json"):
        assert (await surface.ask("GET", target)).status == 200
        assert (await surface.ask("GET", f"{target}?x=1")).status == 200
        for header in (basic(token), basic(ROOT), "Bearer x", "nonsense"):
            heard = await surface.ask("GET", target, Authorization=header)
            assert (heard.status, heard.text) == (401, NO_TOKEN)


@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b"[]", b"null", b'"x"', b"1", b"\xff{}", b"[" * 100_000])
async def test_a_body_that_is_no_object_is_400_without_words(surface: SurfaceServer, body: bytes) -> None:
    token = await surface.token("app")
    for target, user in (("/topics/orders", token), ("/subscription", token), ("/api_tokens", ROOT)):
        heard = await surface.ask("POST", target, body, user=user)
        assert (heard.status, heard.body, heard.headers["content-type"]) == (400, b"", "text/plain")


async def test_what_is_wrong_with_the_json_is_told_before_anything_else_that_is_wrong(surface: SurfaceServer) -> None:
    token, other = await surface.token("app"), await surface.token("other")
    await surface.ask("POST", "/topics/orders", {"type": "create", "url": "https://a"}, user=other)
    for target, words in (("/topics/Bad", "bad topic"), ("/topics/orders", "topic claimed")):
        heard = await surface.ask("POST", target, b"{", user=token)
        assert (heard.status, heard.body) == (400, b"")
        assert (await surface.ask("POST", target, {}, user=token)).text == words
    assert (await surface.ask("POST", "/topics/Bad", b"{", user="unknown")).status == 401
    assert (await surface.ask("POST", "/topic/Bad", b"{", user="unknown")).status == 404


async def test_no_content_type_is_looked_at_and_bodies_of_other_methods_are_ignored(surface: SurfaceServer) -> None:
    token = await surface.token("app")
    event = {"type": "create", "url": "https://a"}
    for kind in ("text/xml", "application/x-www-form-urlencoded", ""):
        headers = {"Content_Type": kind} if kind else {}
        assert (await surface.ask("POST", "/topics/orders", event, user=token, **headers)).status == 200
    assert (await surface.ask("GET", "/topics", b"null", user=token)).status == 200
    assert (await surface.ask("DELETE", "/topics/orders", b"null", user=token)).status == 204


async def test_head_works_where_get_does(surface: SurfaceServer) -> None:
    token = await surface.token("app")
    for target, status in (("/topics", 200), ("/subscriptions", 200), ("/pulse", 204), ("/api_tokens", 401)):
        heard = await surface.ask("HEAD", target, user=token)
        assert (heard.status, heard.body) == (status, b"")
    assert (await surface.ask("HEAD", "/health")).status == 200


async def test_large_slow_and_many_requests_get_the_statuses_of_limits(start_surface: StartSurface) -> None:
    surface = await start_surface(limits=Limits(max_inflight_per_key=1))
    token = await surface.token("app")
    large = await surface.ask("POST", "/topics/orders", b"x" * (256 * 1024 + 1), user=token)
    assert (large.status, large.headers["content-type"]) == (413, "text/plain")
    reader, writer = await asyncio.open_connection("127.0.0.1", surface.port)
    head = f"POST /topics/orders HTTP/1.1\r\nHost: x\r\nAuthorization: {basic(token)}\r\nContent-Length: 10\r\n\r\n"
    writer.write(head.encode())
    await until(lambda: surface.surface.limits.requests.taken, "the request to be under way")
    many = await surface.ask("GET", "/topics", user=token)
    assert (many.status, many.headers["retry-after"]) == (429, "1")
    assert (await surface.ask("GET", "/topics", user=ROOT)).status == 200
    writer.close()
    await writer.wait_closed()
    del reader


async def test_a_body_that_takes_too_long_is_408_and_ends_its_connection(
    surface: SurfaceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await surface.token("app")
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.1)
    head = f"POST /topics/orders HTTP/1.1\r\nHost: x\r\nAuthorization: {basic(token)}\r\nContent-Length: 10\r\n\r\n"
    heard = await surface.send(head.encode())
    assert (heard.status, heard.headers["connection"], heard.headers["content-type"]) == (408, "close", "text/plain")


async def test_a_refused_request_whose_body_has_not_arrived_ends_its_connection(surface: SurfaceServer) -> None:
    head = b"POST /none HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
    found = [(await surface.send(head + body)).headers.get("connection") for body in (b"", b"{}")]
    assert found == ["close", None]


async def test_a_deleted_token_ends_the_requests_that_wait(surface: SurfaceServer) -> None:
    token = await surface.token("app")
    reader, writer = await asyncio.open_connection("127.0.0.1", surface.port)
    head = f"POST /topics/orders HTTP/1.1\r\nHost: x\r\nAuthorization: {basic(token)}\r\nContent-Length: 10\r\n\r\n"
    writer.write(head.encode())
    await until(lambda: surface.surface.limits.requests.taken, "the request to be under way")
    assert (await surface.ask("DELETE", f"/api_tokens/{token}", user=ROOT)).status == 204
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await reader.readexactly(1)
    writer.close()
    assert (await surface.ask("GET", "/topics", user=token)).status == 401


async def test_what_is_not_http_is_refused_in_words(surface: SurfaceServer) -> None:
    heard = await surface.send(b"GET /topics HTTP/1.1\r\nHost : x\r\n\r\n")
    assert (heard.status, heard.headers["content-type"]) == (400, "text/plain")


# --- TLS ----------------------------------------------------------------------------------------------------------


async def test_plain_requests_are_redirected_before_everything_but_health(start_surface: StartSurface) -> None:
    surface = await start_surface(config=TLS)
    for method, status in (("GET", 301), ("HEAD", 301), ("POST", 307), ("DELETE", 307), ("PATCH", 307)):
        heard = await surface.ask(method, "/topics/a%2Fb?x=1&y", user="unknown")
        assert (heard.status, heard.body) == (status, b"")
        assert heard.headers["location"] == f"https://127.0.0.1:{surface.port}/topics/a%2Fb?x=1&y"
        assert "strict-transport-security" not in heard.headers
    assert (await surface.ask("GET", "/none")).status == 301
    health = await surface.ask("GET", "/health")
    assert (health.status, health.body, "strict-transport-security" in health.headers) == (200, b"{}", False)


async def test_a_declared_url_is_the_target_and_without_a_host_the_own_address(start_surface: StartSurface) -> None:
    surface = await start_surface(config=TLS._replace(public_url="https://bus.example"))
    assert (await surface.ask("GET", "/pulse")).headers["location"] == "https://bus.example/pulse"
    surface = await start_surface(config=TLS)
    heard = await surface.send(b"GET /pulse HTTP/1.0\r\n\r\n")
    assert heard.headers["location"] == f"https://127.0.0.1:{surface.port}/pulse"
    heard = await surface.send(b"GET http://bus.example/pulse?a HTTP/1.1\r\nHost: bus.example\r\n\r\n")
    assert heard.headers["location"] == "https://bus.example/pulse?a"


@pytest.mark.parametrize(
    ("forwarded", "status"),
    [("https", 401), ("https, http", 401), ("http, https", 301), ("HTTPS", 301), (" https", 401), ("", 301)],
)
async def test_a_proxy_on_this_machine_says_whether_a_request_was_secure(
    start_surface: StartSurface, forwarded: str, status: int
) -> None:
    surface = await start_surface(config=TLS)
    heard = await surface.ask("GET", "/pulse", X_Forwarded_Proto=forwarded)
    assert heard.status == status
    if status == 401:
        assert heard.headers["strict-transport-security"] == "max-age=31536000"


def test_other_addresses_are_believed_only_when_declared() -> None:
    from eventd.api.routemaster.secure_transport import _is_proxy

    class At:
        def __init__(self, address: str) -> None:
            self.address = address

        def get_extra_info(self, _name: str) -> tuple[str, int]:
            return (self.address, 1)

    declared = [ip_network("10.1.0.0/16"), ip_network("fd00::/8")]
    found = {
        address: _is_proxy(At(address), declared)  # type: ignore[arg-type]
        for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1", "10.2.0.1", "192.0.2.1", "127.0.0.1", "::1%lo")
    }
    assert [address for address, trusted in found.items() if not trusted] == ["10.2.0.1", "192.0.2.1"]
    assert not _is_proxy(None, declared)


async def test_over_tls_it_answers_and_says_so(start_surface: StartSurface, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    tls = await open_api_tls(ServerTlsConfig(str(cert), str(key), "", "1.2"), None, SystemClock())
    surface = await start_surface(config=TLS, tls=tls)
    context = ssl.create_default_context(cafile=str(authority.file))
    reader, writer = await asyncio.open_connection("127.0.0.1", surface.port, ssl=context, server_hostname="localhost")
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    assert b"200 OK" in answer
    assert b"Strict-Transport-Security: max-age=31536000" in answer
    writer.close()
