"""Requests reach allowed addresses only, whatever a name resolves to and a receiver answers.

127.0.0.2 and 127.0.0.3 stand for receivers outside, which the rules allow; 127.0.0.1 is inside.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from eventd.egress.loop.sink import Blocked, LinkError, LinkUnavailable
from eventd.egress.transport.origin_limit import MOST_CONNECTIONS
from eventd.egress.transport.transport import MAX_ANSWER, Transport
from eventd.net.address_rules import AddressRules
from eventd.net.exchange import IDLE_SECONDS, Answer
from eventd.net.name_cache import KEPT_SECONDS
from eventd.testing import ManualClock, until
from eventd.tls.files import ClientTlsConfig
from eventd.tls.reasons import Reason
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.receivers import OK, Receiver, Resolver, receiving

INSIDE, OUTSIDE, SECOND = "127.0.0.1", "127.0.0.2", "127.0.0.3"
RULES = AddressRules.of_callbacks([OUTSIDE, SECOND], [])
NAME = "hooks.example"


class Sender:
    """A transport under test, with its clock and its resolver."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.resolver = ManualClock(), Resolver(OUTSIDE)
        self.transport = Transport(self.clock, find=self.resolver.find)
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", None)  # a second look-up would fail

    async def post(self, port: int, path: str = "/", host: str = NAME, **options: Any) -> Answer:
        options = {"seconds": 10, "rules": RULES} | options
        return await self.transport.post(f"http://{host}:{port}{path}", b"{}", {"X-One": "1"}, **options)

    async def fail(self, port: int, **options: Any) -> LinkError:
        with pytest.raises(LinkError) as caught:
            await self.post(port, **options)
        return caught.value


@pytest.fixture
async def sender(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sender]:
    sender = Sender(monkeypatch)
    yield sender
    await sender.transport.close()


@pytest.fixture
async def outside() -> AsyncIterator[Receiver]:
    async with receiving(OUTSIDE, free_port(INSIDE)) as receiver:  # others listen on the same port of other addresses
        yield receiver


@pytest.fixture
async def inside(outside: Receiver) -> AsyncIterator[Receiver]:
    async with receiving(INSIDE, outside.port) as receiver:
        yield receiver


async def test_a_name_is_looked_up_once_and_the_address_is_that_of_the_connection(
    sender: Sender, outside: Receiver
) -> None:
    answer = await sender.post(outside.port)
    assert (answer.status, answer.body, answer.address) == (200, b"ok", OUTSIDE)
    assert sender.resolver.asked == [(NAME, outside.port)]


async def test_a_name_that_resolves_to_the_inside_later_leads_nowhere(
    sender: Sender, outside: Receiver, inside: Receiver
) -> None:
    await sender.post(outside.port)
    sender.resolver.addresses = [INSIDE]
    await sender.post(outside.port)  # the look-up is not older than a second
    sender.clock.advance(KEPT_SECONDS)
    error = await sender.fail(outside.port)
    assert isinstance(error, Blocked)
    assert (error.reason, error.address) == ("address_forbidden", INSIDE)
    assert error.detail == (
        f"{INSIDE} ({NAME}) is a loopback address (127.0.0.0/8): allow it with EVENTD_CALLBACK_ALLOW if connections may"
        " lead there"
    )
    assert (len(outside.heard), inside.connections) == (2, 0)


async def test_answers_of_a_resolver_that_change_all_the_time_never_lead_to_the_inside(
    sender: Sender, outside: Receiver, inside: Receiver
) -> None:
    chance = random.Random(7)
    find, answers = (
        sender.resolver.find,
        ([OUTSIDE], [INSIDE], [INSIDE, OUTSIDE], [OUTSIDE, INSIDE], ["::1"], ["0.0.0.0"]),
    )

    async def changing(host: str, port: int) -> list[str]:
        sender.resolver.addresses = chance.choice(answers)
        await asyncio.sleep(0)
        return await find(host, port)

    sender.transport = Transport(sender.clock, find=changing)

    async def post() -> str:
        try:
            return (await sender.post(outside.port)).address
        except Blocked as error:
            return error.reason

    for _ in range(60):
        assert set(await asyncio.gather(*[post() for _ in range(4)])) <= {OUTSIDE, "address_forbidden"}
        sender.clock.advance(chance.choice([0, KEPT_SECONDS]))
    assert outside.heard
    assert inside.connections == 0


async def test_of_a_mixed_answer_only_allowed_addresses_are_tried_in_their_order(
    sender: Sender, outside: Receiver, inside: Receiver
) -> None:
    sender.resolver.addresses = [INSIDE, SECOND, OUTSIDE]  # at the second one, nothing listens
    assert (await sender.post(outside.port)).address == OUTSIDE
    async with receiving(SECOND, outside.port) as second:
        sender.clock.advance(IDLE_SECONDS)
        assert (await sender.post(outside.port)).address == SECOND
        assert len(second.heard) == 1
    assert inside.connections == 0


async def test_a_kept_connection_is_used_for_an_address_that_the_name_has_now(
    sender: Sender, outside: Receiver
) -> None:
    async with receiving(SECOND, outside.port) as second:
        for addresses in ([OUTSIDE], [SECOND, OUTSIDE], [SECOND], [SECOND]):
            sender.resolver.addresses = addresses
            await sender.post(outside.port)
            sender.clock.advance(KEPT_SECONDS)
    assert [(len(at.heard), at.connections) for at in (outside, second)] == [(2, 1), (2, 1)]


@pytest.mark.parametrize("address", ["::ffff:127.0.0.1", "::1", "0.0.0.0", "64:ff9b::7f00:1", "fe80::1%1"])
async def test_the_inside_in_another_form_is_refused(
    sender: Sender, outside: Receiver, inside: Receiver, address: str
) -> None:
    sender.resolver.addresses = [address]
    error = await sender.fail(outside.port)
    assert error.reason == "address_forbidden"
    assert error.detail.startswith(f"{error.address} ({NAME}) ")
    assert inside.connections == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "[::ffff:127.0.0.1]"])
async def test_the_inside_as_an_address_in_the_url_is_refused_in_any_notation(
    outside: Receiver, inside: Receiver, host: str
) -> None:
    transport = Transport(ManualClock())
    with pytest.raises(Blocked, match=r"contains 127\.|is a loopback"):
        await transport.post(f"http://{host}:{outside.port}/", b"", {}, seconds=10, rules=RULES)
    await transport.close()
    assert inside.connections == 0


async def test_the_address_at_the_other_end_is_judged_once_connected(
    sender: Sender, outside: Receiver, inside: Receiver
) -> None:
    """The system connects 0.0.0.0 to this machine."""
    sender.resolver.addresses = ["0.0.0.0"]
    error = await sender.fail(outside.port, rules=AddressRules.of_callbacks(["0.0.0.0/8"], []))
    assert (error.reason, error.address) == ("address_forbidden", INSIDE)
    assert inside.heard == []


async def test_a_redirect_to_the_inside_is_an_answer_like_others(
    sender: Sender, outside: Receiver, inside: Receiver
) -> None:
    for status in (301, 302, 303, 307, 308):
        place = f"Location: http://{INSIDE}:{outside.port}/secret".encode()
        outside.answer = b"HTTP/1.1 %d Moved\r\n%b\r\nContent-Length: 0\r\n\r\n" % (status, place)
        assert (await sender.post(outside.port)).status == status
    assert (len(outside.heard), inside.connections) == (5, 0)


async def test_a_proxy_of_the_environment_is_not_used(
    monkeypatch: pytest.MonkeyPatch, sender: Sender, outside: Receiver, inside: Receiver
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://{INSIDE}:{outside.port}")
        monkeypatch.setenv(name.upper(), f"http://{INSIDE}:{outside.port}")
    assert (await sender.post(outside.port)).address == OUTSIDE
    assert inside.connections == 0


async def test_a_cookie_is_not_sent_back(sender: Sender, outside: Receiver) -> None:
    outside.answer = OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: id=1; Path=/\r\n\r\n")
    for _ in range(2):
        await sender.post(outside.port)
    assert outside.heard[0] == outside.heard[1]
    assert b"ookie" not in outside.heard[1]


async def test_a_request_has_path_and_query_as_written_and_no_user_password_or_fragment(
    sender: Sender, outside: Receiver
) -> None:
    await sender.post(outside.port, "/hook/?token=a%20b#part", host=f"user:pw@{NAME}")
    assert outside.heard == [
        b"POST /hook/?token=a%%20b HTTP/1.1\r\nHost: %b:%d\r\nX-One: 1\r\nContent-Length: 2\r\n\r\n{}"
        % (NAME.encode(), outside.port)
    ]


async def test_an_answer_of_a_megabyte_counts_if_it_may_be_cut(sender: Sender, outside: Receiver) -> None:
    outside.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000
    answer = await sender.post(outside.port, cut=True)
    assert (answer.status, len(answer.body)) == (200, MAX_ANSWER)
    assert (await sender.fail(outside.port)).reason == "answer_too_large"
    assert outside.connections == 2


# --- TLS ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def context_of(ca: Authority, host: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ca.issue(host, hosts=(host,)))
    return context


async def test_over_tls_the_name_of_the_url_is_sent_and_verified(sender: Sender, ca: Authority) -> None:
    tls = ClientTlsConfig(ca_file=str(ca.file))
    async with receiving(OUTSIDE, context=context_of(ca, NAME)) as receiver:
        for _ in range(2):
            answer = await sender.transport.post(
                f"https://{NAME}:{receiver.port}/", b"", {}, seconds=10, rules=RULES, tls=tls
            )
            assert (answer.status, answer.address) == (200, OUTSIDE)
        assert (receiver.names, receiver.connections) == ([NAME], 1)
        assert f"\r\nHost: {NAME}:{receiver.port}\r\n".encode() in receiver.heard[0]


async def test_over_tls_a_dot_at_the_end_of_the_name_is_no_part_of_it(sender: Sender, ca: Authority) -> None:
    tls = ClientTlsConfig(ca_file=str(ca.file))
    async with receiving(OUTSIDE, context=context_of(ca, NAME)) as receiver:
        url = f"https://{NAME}.:{receiver.port}/"
        assert (await sender.transport.post(url, b"", {}, seconds=10, rules=RULES, tls=tls)).status == 200
        assert receiver.names == [NAME]


async def test_over_tls_a_certificate_for_the_address_or_another_name_is_refused(sender: Sender, ca: Authority) -> None:
    tls = ClientTlsConfig(ca_file=str(ca.file))
    for host in (OUTSIDE, "other.example"):
        async with receiving(OUTSIDE, context=context_of(ca, host)) as receiver:
            with pytest.raises(Blocked) as caught:
                await sender.transport.post(
                    f"https://{NAME}:{receiver.port}/", b"", {}, seconds=10, rules=RULES, tls=tls
                )
        assert (caught.value.reason, caught.value.address, receiver.heard) == (Reason.WRONG_NAME, OUTSIDE, [])


# --- time and failures -------------------------------------------------------------------------------------------


async def test_a_failed_connection_has_the_address_that_was_tried_last(sender: Sender) -> None:
    sender.resolver.addresses = [OUTSIDE, SECOND]
    error = await sender.fail(free_port())
    assert (error.reason, error.address) == ("unreachable", SECOND)
    assert error.detail.endswith("Connection refused")


async def test_an_answer_that_does_not_come_has_the_address(sender: Sender, outside: Receiver) -> None:
    await sender.post(outside.port)  # its connection stays
    outside.gate.clear()
    error = await sender.fail(outside.port, seconds=0.2)
    assert (error.reason, error.address, error.detail) == ("timeout", OUTSIDE, "no answer within 0.2 s")


async def test_an_address_that_does_not_answer_leaves_time_for_the_next(sender: Sender, outside: Receiver) -> None:
    with socket.create_server((SECOND, outside.port), backlog=0) as server, ExitStack() as clients:
        for _ in range(3):  # nobody accepts: when the queue is full, the next one hears nothing
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        sender.resolver.addresses = [SECOND, OUTSIDE]
        assert (await sender.post(outside.port, connect_seconds=2)).address == OUTSIDE
        sender.resolver.addresses = [SECOND]
        sender.clock.advance(KEPT_SECONDS)
        error = await sender.fail(outside.port, connect_seconds=0.1)
    assert isinstance(error, LinkUnavailable)
    assert (error.reason, error.address) == ("timeout", SECOND)
    assert error.detail == f"no connection to {NAME}:{outside.port} within 0.1 s"


async def test_a_look_up_that_takes_too_long_is_named(sender: Sender) -> None:
    sender.resolver.gate.clear()
    error = await sender.fail(443, connect_seconds=0.05)
    assert (error.reason, error.address) == ("timeout", "")
    assert error.detail == f"no addresses of the name {NAME!r} within 0.05 s"


async def test_a_name_without_addresses_cannot_be_resolved(sender: Sender) -> None:
    sender.resolver.addresses = []
    error = await sender.fail(443)
    assert (error.reason, error.detail) == ("unreachable", f"the name {NAME!r} cannot be resolved")


@pytest.mark.parametrize("rules", [RULES, None])
async def test_an_impossible_name_cannot_be_resolved(rules: AddressRules | None) -> None:
    transport = Transport(ManualClock())
    with pytest.raises(LinkUnavailable, match=r"^the name 'a\.\.b' cannot be resolved$"):
        await transport.post("http://a..b:1/", b"", {}, seconds=10, rules=rules)
    await transport.close()


async def test_without_rules_nothing_is_looked_up_by_the_guard(outside: Receiver) -> None:
    resolver = Resolver()
    transport = Transport(ManualClock(), find=resolver.find)
    for _ in range(2):
        assert (await transport.post(f"http://{OUTSIDE}:{outside.port}/", b"", {}, seconds=10)).address == OUTSIDE
    await transport.close()
    assert (resolver.asked, outside.connections) == ([], 1)


# --- the limit of connections ------------------------------------------------------------------------------------


async def test_at_most_sixteen_connections_to_one_origin_and_the_others_wait_for_their_turn(
    sender: Sender, outside: Receiver
) -> None:
    outside.gate.clear()
    posts = [asyncio.create_task(sender.post(outside.port, bounded=True)) for _ in range(40)]
    await until(lambda: len(outside.heard) == MOST_CONNECTIONS)
    unbounded = asyncio.create_task(sender.post(outside.port))
    await until(lambda: len(outside.heard) == MOST_CONNECTIONS + 1)
    error = await sender.fail(outside.port, bounded=True, seconds=0.1)
    assert (error.reason, error.address) == ("timeout", "")
    assert error.detail == f"16 other requests to {NAME}:{outside.port} were under way for 0.1 s"
    outside.gate.set()
    assert [answer.status for answer in await asyncio.gather(*posts, unbounded)] == [200] * 41
    assert outside.most_open == MOST_CONNECTIONS + 1


async def test_each_origin_has_a_limit_of_its_own(sender: Sender, outside: Receiver) -> None:
    async with receiving(OUTSIDE) as other:
        outside.gate.clear()
        posts = [asyncio.create_task(sender.post(outside.port, bounded=True)) for _ in range(20)]
        await until(lambda: len(outside.heard) == MOST_CONNECTIONS)
        assert (await sender.post(other.port, bounded=True)).status == 200
        outside.gate.set()
        await asyncio.gather(*posts)


async def test_requests_with_other_certificates_share_the_limit(sender: Sender, ca: Authority) -> None:
    """Their connections cannot be shared, so idle ones are closed."""
    async with receiving(OUTSIDE, context=context_of(ca, NAME)) as receiver:
        for number in range(20):
            files = ca.issue(f"client{number}")
            tls = ClientTlsConfig(str(ca.file), str(files.cert), str(files.key))
            url = f"https://{NAME}:{receiver.port}/"
            await sender.transport.post(url, b"", {}, seconds=10, rules=RULES, tls=tls, bounded=True)
        assert receiver.connections == 20
        await until(lambda: receiver.open == MOST_CONNECTIONS)


async def test_origins_without_connections_are_forgotten(sender: Sender, outside: Receiver) -> None:
    for number in range(20):
        await sender.post(outside.port, host=f"h{number}.example", bounded=True)
    assert len(sender.transport._pools) == len(sender.transport._limits) == 20
    sender.clock.advance(IDLE_SECONDS)
    await sender.post(outside.port, bounded=True)
    assert len(sender.transport._pools) == len(sender.transport._limits) == 1
    await until(lambda: outside.open == 1)
