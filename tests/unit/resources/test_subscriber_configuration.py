"""What a subscriber of the Routemaster surface is served with, whatever it asks for."""

from __future__ import annotations

from eventd.resources.subscriber_configuration import SubscriberLimits, subscriber_config
from eventd.store.rows.routemaster import SubscriberRow

HOUR_MS = 3_600_000


def row(timeout_ms: int, most: int) -> SubscriberRow:
    return SubscriberRow("app--1", "https://app.example/events/", "secret", timeout_ms, most)


def test_a_batch_has_the_limits_of_the_subscriber_and_those_of_the_node() -> None:
    small = subscriber_config(row(7, 3), SubscriberLimits())
    assert (small.max_events, small.window, small.max_bytes) == (3, 7000, 4 << 20)
    large = subscriber_config(row(HOUR_MS, 2**60), SubscriberLimits())
    assert (large.max_events, large.window, large.max_bytes) == (10_000, HOUR_MS * 1000, 4 << 20)


def test_requests_go_one_by_one_to_the_url_as_given_for_as_long_as_it_takes() -> None:
    config = subscriber_config(row(0, 1), SubscriberLimits())
    assert (config.name, config.topic, config.url) == ("rm/app--1", "routemaster", "https://app.example/events/")
    assert (config.format, config.in_flight, config.per_second) == ("routemaster", 1, None)
    assert (config.timeout, config.connect_timeout) == (20.0, 2.0)
    assert config.disable_after is None
    assert not config.tls.unverified
    assert "secret" not in repr(config)


def test_attempts_are_200_ms_to_60_s_apart_unless_the_endpoint_asks_for_more() -> None:
    backoff = subscriber_config(row(0, 1), SubscriberLimits()).backoff
    nominal = [backoff.delay(attempts, 0.0) for attempts in range(1, 12)]
    assert nominal[:4] == [0.2, 0.4, 0.8, 1.6]
    assert nominal[-1] == max(nominal) == 60.0
    jittered = [backoff.delay(11, chance / 10) for chance in range(10)]
    assert len(set(jittered)) == 10
    assert max(jittered) == 60.0
    assert backoff.delay(1, 0.0, retry_after=1800.0) == 1800.0
    assert backoff.delay(1, 0.0, retry_after=1e9) == 3600.0


def test_the_settings_count() -> None:
    config = subscriber_config(row(0, 1), SubscriberLimits(3.0, 1.0, 5.0, verify=False))
    assert (config.timeout, config.connect_timeout, config.backoff.cap) == (3.0, 1.0, 5.0)
    assert config.tls.unverified
