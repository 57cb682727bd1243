"""Signing in to the console: the cookie, what it opens, and which forms count."""

from __future__ import annotations

import asyncio
from http.cookies import SimpleCookie

import pytest

from eventd.api.framework.operations import Services
from eventd.console.serving.sessions import LONGEST
from eventd.runtime.clock import SECOND
from eventd.store.rows.console_sessions import MOST_OF_KEY, MOST_SESSIONS, SessionRow, create_session, read_sessions
from tests.integration.console.conftest import MakeBrowser
from tests.support import operations
from tests.support.console_pages import Browser
from tests.support.declared import peer
from tests.support.sites import Site

READ, ADMIN, EDGE = "readkey-readkey", "adminkey-adminkey", "edgekey-edgekey"


async def test_a_visitor_without_a_session_is_asked_for_a_key_and_led_back(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    asked = await one.get("/console/links?group=edge")
    assert (asked.status, asked.heading) == (200, "Sign in")
    assert 'name="next" value="/console/links?group=edge"' in asked.text
    shown = await one.post("/console/sign-in", key=READ, next="/console/links?group=edge")
    assert (shown.status, shown.heading, shown.url) == (200, "Links", "/console/links?group=edge")


@pytest.mark.parametrize(
    "target", ["//evil.example/", "https://evil.example/", "/consoleX", "/v0/topics", "/console\\x"]
)
async def test_signing_in_leads_to_no_other_place(site: Site, browser: MakeBrowser, target: str) -> None:
    answer = await browser(site).post("/console/sign-in", key=READ, next=target, follow=False)
    assert (answer.status, answer.headers["Location"]) == (303, "/console/")


async def test_the_cookie_is_bound_to_this_host_and_to_this_database(site: Site, browser: MakeBrowser) -> None:
    answer = await browser(site).post("/console/sign-in", key=READ, follow=False)
    ((name, cookie),) = SimpleCookie(answer.headers["Set-Cookie"]).items()
    assert name.startswith("__Host-eventd-")
    assert len(name) == len("__Host-eventd-") + 8
    assert (cookie["path"], cookie["samesite"], cookie["secure"], cookie["httponly"]) == ("/", "Lax", True, True)
    assert not cookie["domain"]
    ((row),) = await site.running.log.database.read(read_sessions)
    assert cookie.value not in row
    assert READ not in str(row)


async def test_a_wrong_key_is_refused_with_the_same_page(site: Site, browser: MakeBrowser) -> None:
    answer = await browser(site).sign_in("wrong-wrong-wrong")
    assert (answer.status, answer.heading) == (401, "Sign in")
    assert "this key is not known" in answer.text


async def test_ten_wrong_keys_a_minute_are_enough(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    answers = [(await one.sign_in(f"wrong-{number}")).status for number in range(11)]
    assert answers == [401] * 10 + [429]
    assert (await one.sign_in(READ)).status == 429


@pytest.mark.parametrize("is_list", [True, False])
async def test_invented_addresses_before_that_of_the_proxy_get_no_limit_of_their_own(
    site: Site, browser: MakeBrowser, is_list: bool
) -> None:
    """A browser sends the header itself, and the proxy adds to its list, or sends a header of its own after it."""
    await site.stop()
    await site.start(api_keys=f"{READ}:r", console_trusted_proxies="127.0.0.1")
    host = browser(site).host
    said = "X-Forwarded-For: 10.{0}.1.1, 203.0.113.9" if is_list else "X-Forwarded-For: 10.{0}.1.1\r\n{1}"
    statuses = []
    for number in range(11):
        reader, writer = await asyncio.open_connection(*host.split(":"))
        addresses = said.format(number, "X-Forwarded-For: 203.0.113.9")
        writer.write(
            f"POST /console/sign-in HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n{addresses}\r\n"
            "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\nkey=wrong".encode()
        )
        statuses.append((await reader.readline()).split()[1])
        writer.close()
    assert statuses == [b"401"] * 10 + [b"429"]


async def test_signing_out_ends_the_session_everywhere(site: Site, browser: MakeBrowser) -> None:
    one, other = browser(site), browser(site)
    await one.sign_in(READ)
    other.cookies = dict(one.cookies)
    assert (await other.get("/console/links")).heading == "Links"
    assert (await one.post("/console/sign-out")).heading == "Sign in"
    assert (await other.get("/console/links")).heading == "Sign in"
    assert one.cookies == {}


async def test_a_session_ends_with_its_key(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    services = Services(site.running.log, site.running._take_over_now)
    made = await operations.run(services, "keys.create", name="ci", scopes=["read"])
    assert "key ci" in (await one.sign_in(made["key"])).text
    await operations.run(services, "keys.revoke", name="ci")
    assert (await one.get("/console/links")).heading == "Sign in"


async def test_the_cookie_opens_nothing_but_the_console(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    assert (await one.get("/api/v1/status")).status == 401
    assert (await one.get("/v0/topics")).status == 401


async def test_a_key_in_a_header_does_not_open_the_console(site: Site, browser: MakeBrowser) -> None:
    answer = await browser(site).get("/console/links", Authorization=f"Bearer {ADMIN}")
    assert answer.heading == "Sign in"


async def test_a_large_form_of_a_stranger_is_not_read(site: Site, browser: MakeBrowser) -> None:
    for path in ("sign-in", "preferences"):
        answer = await browser(site).post(f"/console/{path}", key="x" * 9000)
        assert (answer.status, "more than 8,192 bytes" in answer.text) == (413, True), path


def session_of(key: str, digest: str, used_at: int) -> SessionRow:
    """Return a session that has not ended: those that have are deleted at any time."""
    return SessionRow(digest, key, "", "", used_at, used_at, used_at + LONGEST)


async def test_old_sessions_make_room_for_new_ones(site: Site, browser: MakeBrowser) -> None:
    first = site.clock.now() - 60 * SECOND

    def fill(conn: object) -> None:
        for number in range(MOST_SESSIONS):
            create_session(conn, session_of(f"k{number}", f"{number:064}", first + number))  # type: ignore[arg-type]

    await site.running.log.database.write(fill)
    assert (await browser(site).sign_in(READ)).heading == "Overview"
    rows = await site.running.log.database.read(read_sessions)
    assert len(rows) == MOST_SESSIONS
    assert min(row.used_at for row in rows) == first + 1


async def test_a_key_that_signs_in_again_and_again_ends_its_own_sessions_only(site: Site) -> None:
    first = site.clock.now() - 60 * SECOND

    def fill(conn: object) -> None:
        create_session(conn, session_of("k", "other", first))  # type: ignore[arg-type]
        for number in range(MOST_OF_KEY + 5):
            create_session(conn, session_of("busy", f"{number:064}", first + number))  # type: ignore[arg-type]

    await site.running.log.database.write(fill)
    rows = await site.running.log.database.read(read_sessions)
    assert "other" in {row.digest for row in rows}
    assert min(row.used_at for row in rows if row.key_digest == "busy") == first + 5
    assert len(rows) == MOST_OF_KEY + 1


async def test_preferences_need_no_session_and_no_form_for_them_fails(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    for back in ("/console/links", ["/console/links", "/console/jobs"]):
        answer = await one.post("/console/preferences", follow=False, back=back, theme="dark")
        assert (answer.status, one.cookies.pop("eventd-theme")) == (303, "dark")


# --- forms ------------------------------------------------------------------------------------------------------------


def refused(host: str) -> list[dict[str, str]]:
    """The headers that browsers send with a form of another place: another site, port or scheme, and with none."""
    port = int(host.rpartition(":")[2])
    return [
        {},
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "same-site", "Origin": f"http://127.0.0.1:{port + 1}"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": f"http://127.0.0.1:{port + 1}"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"},
    ]


async def test_forms_of_other_places_do_nothing(site: Site, browser: MakeBrowser) -> None:
    await site.apply(peer("b", 1))
    one = browser(site)
    await one.sign_in(ADMIN)
    for headers in refused(one.host):
        answer = await one.post(
            "/console/do/links.pause", headers=headers, group="edge", peer="b", asked="yes", back="/console/links"
        )
        assert (answer.status, answer.heading) == (403, "Not allowed"), headers
        assert (await one.post("/console/sign-in", headers=headers, key=READ)).status == 403, headers
        assert (await one.post("/console/sign-out", headers=headers)).status == 403, headers
    links = await site.ask("links.status", group="edge")
    assert [link["pausedAt"] for link in links["outbound"]] == [None]


async def test_a_browser_without_the_newer_header_is_known_by_its_origin(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    answer = await one.post("/console/sign-in", headers={"Origin": f"http://{one.host}"}, key=READ)
    assert answer.heading == "Overview"


async def test_a_node_without_keys_is_shown_to_this_machine_only(open_site: Site, browser: MakeBrowser) -> None:
    one = browser(open_site)
    assert (await one.get("/console/")).heading == "Overview"
    rebound = await one.get("/console/", Host="evil.example")
    assert rebound.status == 403
    assert "does not answer to the name" in rebound.text


async def test_no_key_is_taken_over_a_connection_without_tls(site: Site, browser: MakeBrowser) -> None:
    """A name that is not of this machine means that a proxy is in between, which says nothing about TLS."""
    one = browser(site)
    for answer in (
        await one.get("/console/sign-in", Host="node.example"),
        await one.post("/console/sign-in", headers={"Origin": "http://node.example", "Host": "node.example"}, key=READ),
    ):
        assert answer.status == 403
        assert "takes no key over a connection without TLS" in answer.text


async def test_two_nodes_of_one_host_do_not_sign_each_other_out(
    site: Site, open_site: Site, browser: MakeBrowser
) -> None:
    names = set()
    for one in (site, open_site):
        await one.stop()
        await one.start(api_keys=f"{READ}:r")
        visitor: Browser = browser(one)
        await visitor.sign_in(READ)
        names |= set(visitor.cookies)
    assert len(names) == 2


async def test_pages_have_the_headers_that_keep_others_out(site: Site, browser: MakeBrowser) -> None:
    answer = await browser(site).get("/console/sign-in")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert "Strict-Transport-Security" not in answer.headers
    assert "style=" not in answer.text
    assert "<script>" not in answer.text


async def test_an_idle_session_ends(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(READ)
    old = site.clock.now() - 3601 * 10**6
    await site.running.log.database.write(_set_used, old)
    assert (await one.get("/console/links")).heading == "Sign in"


def _set_used(conn: object, at: int) -> None:
    from eventd.store.engine.statements import execute

    execute(conn, "UPDATE console_sessions SET used_at = ?", (at,))  # type: ignore[arg-type]


async def test_signing_in_again_ends_the_session_that_the_browser_had(site: Site, browser: MakeBrowser) -> None:
    one, copy = browser(site), browser(site)
    await one.sign_in(READ)
    copy.cookies = dict(one.cookies)
    await one.sign_in(ADMIN)
    assert (await one.get("/console/")).heading == "Overview"
    assert (await copy.get("/console/")).heading == "Sign in"


@pytest.mark.parametrize("site_of", ["cross-site", "same-site"])
async def test_a_page_of_another_origin_may_link_here_and_request_nothing_by_itself(
    open_site: Site, browser: MakeBrowser, site_of: str
) -> None:
    one = browser(open_site)
    for mode, dest in (("no-cors", "image"), ("navigate", "iframe"), ("cors", "empty")):
        foreign = {"Sec-Fetch-Site": site_of, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
        for path in ("/console/", "/console/stream?view=/console/", "/console/do/events.emit?group=edge"):
            assert (await one.get(path, **foreign)).status == 403, (path, dest)
    link = {"Sec-Fetch-Site": site_of, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert (await one.get("/console/links", **link)).heading == "Links"
