"""How many failed sign-ins are allowed, of one address and of all."""

from __future__ import annotations

import pytest

from eventd.api.framework.sign_in_limiter import (
    FAILURES,
    FAILURES_PER_ADDRESS,
    KNOWN_ADDRESSES,
    KNOWN_SECONDS,
    WINDOW_SECONDS,
    SignInLimiter,
)
from eventd.testing import ManualClock


def addresses(count: int) -> list[str]:
    return [f"192.0.2.{number}" for number in range(count)]


def test_the_eleventh_failure_of_an_address_in_a_minute_is_not_tried() -> None:
    clock = ManualClock()
    limiter = SignInLimiter(clock)
    for _ in range(FAILURES_PER_ADDRESS):
        assert limiter.allow("192.0.2.1") == 0
        limiter.failed("192.0.2.1")
        clock.advance(1)
    assert limiter.allow("192.0.2.1") == WINDOW_SECONDS - FAILURES_PER_ADDRESS
    assert limiter.allow("192.0.2.2") == 0, "another address has its own count"


def test_each_failure_counts_for_a_minute_and_no_longer() -> None:
    clock = ManualClock()
    limiter = SignInLimiter(clock)
    for _ in range(FAILURES_PER_ADDRESS):
        limiter.failed("192.0.2.1")
        clock.advance(1)
    clock.advance(limiter.allow("192.0.2.1"))
    assert limiter.allow("192.0.2.1") == 0
    limiter.failed("192.0.2.1")
    assert limiter.allow("192.0.2.1") == 1, "the second failure is still within the minute"


def test_asking_costs_nothing_and_a_sign_in_that_succeeds_neither() -> None:
    limiter = SignInLimiter(ManualClock())
    assert [limiter.allow("192.0.2.1") for _ in range(1000)] == [0] * 1000


def test_all_addresses_together_have_a_limit() -> None:
    clock = ManualClock()
    limiter = SignInLimiter(clock)
    for address in addresses(FAILURES):
        assert limiter.allow(address) == 0
        limiter.failed(address)
        clock.advance(0.5)
    assert limiter.allow("203.0.113.9") == WINDOW_SECONDS - FAILURES * 0.5
    clock.advance(limiter.allow("203.0.113.9"))
    assert limiter.allow("203.0.113.9") == 0


def test_the_longer_of_both_waits_counts() -> None:
    clock = ManualClock()
    limiter = SignInLimiter(clock)
    for address in addresses(FAILURES - FAILURES_PER_ADDRESS):
        limiter.failed(address)
    clock.advance(20)
    for _ in range(FAILURES_PER_ADDRESS):
        limiter.failed("203.0.113.9")
    assert (limiter.allow("203.0.113.8"), limiter.allow("203.0.113.9")) == (40, 60)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("2001:db8:0:1::/64", "2001:db8:0:1::9", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("", "", True),
        ("unix", "192.0.2.1", False),
    ],
)
def test_an_address_of_ipv6_counts_as_its_network(one: str, other: str, same: bool) -> None:
    limiter = SignInLimiter(ManualClock())
    for _ in range(FAILURES_PER_ADDRESS):
        limiter.failed(one)
    assert (limiter.allow(other) > 0) is same


def test_any_number_of_failures_takes_the_same_memory() -> None:
    limiter = SignInLimiter(ManualClock())
    for number in range(10 * FAILURES):
        limiter.failed(f"{number}" * 1000)
    for number in range(10 * KNOWN_ADDRESSES):
        limiter.succeeded(f"{number}" * 1000)
    known = vars(limiter)["_known"]
    assert (len(known), max(map(len, known))) == (KNOWN_ADDRESSES, 64)
    (kept,) = vars(limiter).keys() - {"_clock", "_known"}
    failures = vars(limiter)[kept]
    assert (len(failures), max(len(place) for _, place in failures)) == (FAILURES, 64)
    assert limiter.allow("192.0.2.1") == WINDOW_SECONDS


def test_the_wall_clock_changes_nothing() -> None:
    clock = ManualClock()
    limiter = SignInLimiter(clock)
    for _ in range(FAILURES_PER_ADDRESS):
        limiter.failed("192.0.2.1")
    clock.set_wall(clock.now() + 3600 * 1_000_000)
    assert limiter.allow("192.0.2.1") == WINDOW_SECONDS


def test_an_address_from_which_a_key_was_right_is_not_locked_out_by_others() -> None:
    clock = ManualClock()
    limiter = SignInLimiter(clock)
    limiter.succeeded("192.0.2.1")
    for number in range(FAILURES):
        limiter.failed(f"198.51.100.{number}")
    assert limiter.allow("192.0.2.2") == WINDOW_SECONDS
    assert limiter.allow("192.0.2.1") == 0
    for _ in range(FAILURES_PER_ADDRESS):
        limiter.failed("192.0.2.1")
    assert limiter.allow("192.0.2.1") == WINDOW_SECONDS, "its own limit stays"
    clock.advance(KNOWN_SECONDS)
    for number in range(FAILURES):
        limiter.failed(f"198.51.100.{number}")
    assert limiter.allow("192.0.2.1") == WINDOW_SECONDS
