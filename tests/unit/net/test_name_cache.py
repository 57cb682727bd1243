"""Looking up names: once a second at most, once for all who need it, and never for what is an address already."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from eventd.net.name_cache import KEPT_SECONDS, NameCache, NameResolver, address_of
from eventd.runtime.blocking_calls import COUNT
from eventd.runtime.threads import THREADS
from eventd.testing import ManualClock, until


class Answering:
    """Answers look-ups with `answers`, one after the other; while `closed`, it does not answer."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def find(self, host: str, port: int) -> list[str]:
        self.asked.append((host, port))
        await self.gate.wait()
        return self.answers.pop(0)


async def test_a_result_is_used_for_a_second_and_by_host_and_port() -> None:
    clock, resolver = ManualClock(), Answering(["10.0.0.1", "10.0.0.1", "::1"], ["10.0.0.2"], ["10.0.0.3"])
    names = NameCache(clock.monotonic, resolver.find)
    for _ in range(2):
        assert await names.addresses("a", 443) == ("10.0.0.1", "::1")
    assert await names.addresses("a", 8443) == ("10.0.0.2",)
    clock.advance(KEPT_SECONDS - 0.01)
    assert await names.addresses("a", 443) == ("10.0.0.1", "::1")
    clock.advance(0.01)
    assert await names.addresses("a", 443) == ("10.0.0.3",)
    assert resolver.asked == [("a", 443), ("a", 8443), ("a", 443)]
    assert len(names._found) == 1, "what is too old is forgotten"


async def test_requests_at_the_same_time_share_a_look_up() -> None:
    resolver = Answering(["10.0.0.1"])
    names = NameCache(ManualClock().monotonic, resolver.find)
    assert await asyncio.gather(*[names.addresses("a", 443) for _ in range(50)]) == [("10.0.0.1",)] * 50
    assert len(resolver.asked) == 1
    assert not names._pending


async def test_a_request_that_is_cancelled_leaves_the_look_up_to_the_next() -> None:
    resolver = Answering(["10.0.0.1"])
    resolver.gate.clear()
    names = NameCache(ManualClock().monotonic, resolver.find)
    first, second = [asyncio.create_task(names.addresses("a", 443)) for _ in range(2)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    resolver.gate.set()
    assert await second == ("10.0.0.1",)
    assert len(resolver.asked) == 2
    assert not names._pending


async def test_a_failure_is_not_kept() -> None:
    resolver = Answering([], ["10.0.0.1"])
    names = NameCache(ManualClock().monotonic, resolver.find)
    with pytest.raises(socket.gaierror):
        await names.addresses("a", 443)
    assert await names.addresses("a", 443) == ("10.0.0.1",)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        *[(host, "127.0.0.1") for host in ("127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1")],
        *[("::ffff:127.0.0.1", "::ffff:7f00:1"), ("::0:1", "::1"), ("fe80::1%25lo", "fe80::1%lo")],
    ],
)
async def test_an_address_is_not_looked_up(host: str, address: str) -> None:
    def refuse(*_: object) -> list[tuple[object, ...]]:
        raise AssertionError

    assert await NameResolver(THREADS, resolve=refuse).look_up(host, 443) == [str(address_of((address,)))]


async def test_a_name_is_looked_up_by_the_system() -> None:
    resolver = NameResolver(THREADS)
    found = await resolver.look_up("localhost", 443)
    resolver.close()
    assert set(found) & {"127.0.0.1", "::1"}


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "", "a\0b", ".a"])
async def test_an_impossible_name_is_one_that_is_not_found(host: str) -> None:
    resolver = NameResolver(THREADS)
    with pytest.raises(socket.gaierror):
        await resolver.look_up(host, 443)
    resolver.close()


def test_an_address_has_its_zone() -> None:
    assert address_of(("fe80::1", 443, 0, 2)) == "fe80::1%2"
    assert address_of(("fe80::1%lo", 443, 0, 1)) == "fe80::1%lo"
    assert address_of(("FD00:0::1", 443, 0, 0)) == "fd00::1"
    assert address_of(("10.0.0.1", 443)) == "10.0.0.1"


async def test_names_whose_look_up_hangs_hold_up_no_other_and_have_one_look_up_each() -> None:
    release, asked = threading.Event(), list[str]()

    def resolve(host: str, port: int) -> list[tuple[object, ...]]:
        asked.append(host)
        if host.startswith("hangs"):
            release.wait(60)
        return [("10.0.0.1", port)]

    resolver = NameResolver(THREADS, resolve=resolve)
    names = NameCache(ManualClock().monotonic, resolver.look_up)
    hanging = [f"hangs{number}" for number in range(COUNT // 2)]
    tries = [asyncio.create_task(names.addresses(name, 443)) for name in hanging for _ in range(3)]
    try:
        await until(lambda: sorted(asked) == sorted(hanging), "one look-up of each name")
        for waiting in tries:
            waiting.cancel()
        await asyncio.wait(tries)
        assert await names.addresses("works", 443) == ("10.0.0.1",)
        assert sorted(asked) == sorted([*hanging, "works"])
    finally:
        release.set()
        resolver.close()
