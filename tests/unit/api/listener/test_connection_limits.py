"""Which connection a listener closes when it is at its limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from eventd.api.listener.connection_limiter import ConnectionLimiter, address_of


class Link:
    """A transport as far as a limiter sees it: where it comes from, and whether it was ended."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.ended = False

    def get_extra_info(self, name: str) -> Any:
        return (self.host, 4711, 0, 0) if name == "peername" else None

    def abort(self) -> None:
        self.ended = True


class Figures:
    """What a limiter tells."""

    def __init__(self) -> None:
        self.turned_away_for: list[str] = []

    def connections(self, group: str, count: int | None) -> None: ...

    def turned_away(self, group: str, reason: str) -> None:
        self.turned_away_for.append(reason)


class Guest:
    """One connection at the limiter."""

    def __init__(self, link: Link) -> None:
        self.trusted: tuple[str, ...] = ()
        self.address = address_of(cast(asyncio.Transport, link))


Come = Callable[..., Link]


@pytest.fixture
def figures() -> Figures:
    return Figures()


@pytest.fixture
def limiter(figures: Figures) -> ConnectionLimiter:
    return ConnectionLimiter("edge", 8, figures)


@pytest.fixture
def come(limiter: ConnectionLimiter) -> Come:
    """`come(host, key=…)`: a connection, that of a peer where it has a key; it is ended where there is no place."""

    def one(host: str, key: str = "") -> Link:
        link = Link(host)
        link.ended = not limiter.enter(cast(Any, link), cast(Any, Guest(link)))
        if key:
            limiter.trust(cast(Any, link), key)
        return link

    return one


def test_the_address_with_most_strangers_gives_up_its_oldest(come: Come) -> None:
    lone = come("10.0.0.9")
    crowd = [come("10.0.0.1") for _ in range(7)]
    more = [come("10.0.0.1") for _ in range(20)]
    assert not lone.ended
    assert all(link.ended for link in crowd)
    assert [link.ended for link in more] == [True] * 13 + [False] * 7
    connection = come("10.0.0.8")
    assert not connection.ended
    assert not lone.ended


@pytest.mark.parametrize(
    ("hosts", "address"),
    [
        (["2001:db8:1:2::1", "2001:db8:1:2:ffff::7"], "2001:db8:1:2::/64"),
        (["fe80::1%eth0", "fe80::2"], "fe80::/64"),
        (["::ffff:10.0.0.1", "10.0.0.1"], "10.0.0.1"),
        ([""], ""),
    ],
)
def test_a_host_has_one_address_however_many_it_takes(hosts: list[str], address: str) -> None:
    assert {address_of(cast(asyncio.Transport, Link(host))) for host in hosts} == {address}


def test_one_key_holds_half_of_the_places_and_no_more(come: Come, figures: Figures) -> None:
    first = [come(f"10.0.1.{number}", "k1") for number in range(8)]
    connection = come("10.0.0.9")
    assert not connection.ended
    assert [link.ended for link in first] == [True] + [False] * 7  # the one that lost its trust first
    newer = [come(f"10.0.1.{number}", "k1") for number in range(20)]
    assert sum(not link.ended for link in [*first, *newer]) <= 8
    other = [come(f"10.0.2.{number}", "k2") for number in range(4)]
    assert not any(link.ended for link in other)
    assert figures.turned_away_for.count("full") == 0
    assert come("10.0.0.7").ended  # the two keys hold half each
    assert figures.turned_away_for[-1] == "full"


def test_one_address_holds_half_of_the_trusted_places_with_whatever_keys(come: Come) -> None:
    many = [come("10.0.0.1", f"k{number}") for number in range(8)]
    assert not come("10.0.0.2").ended
    assert sum(link.ended for link in many) == 1


def test_one_key_to_the_api_cannot_keep_the_others_out(
    come: Come, limiter: ConnectionLimiter, figures: Figures
) -> None:
    idle = [come("10.0.0.1") for _ in range(8)]
    for link in idle:
        limiter.trust(cast(Any, link), "read-only", by_address=False)
    operator = come("10.0.0.1")
    assert not operator.ended
    limiter.trust(cast(Any, operator), "operator", by_address=False)
    assert [link.ended for link in idle] == [True] + [False] * 7
    assert figures.turned_away_for == ["displaced"]


def test_a_key_that_is_not_named_has_no_share(come: Come, limiter: ConnectionLimiter) -> None:
    links = [come("10.0.0.1") for _ in range(8)]
    for link in links:
        limiter.trust(cast(Any, link))
    assert come("10.0.0.2").ended


def test_who_leaves_is_forgotten(come: Come, limiter: ConnectionLimiter) -> None:
    for _ in range(3):
        links = [come("10.0.0.1", "k1") for _ in range(6)] + [come("10.0.0.2") for _ in range(2)]
        for link in links:
            limiter.leave(cast(Any, link))
    assert not limiter._connections
    assert not limiter._strangers
    assert not limiter._trusted
