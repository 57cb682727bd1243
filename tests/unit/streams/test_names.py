"""Names of streams: each has one topic, and no two have the same."""

from __future__ import annotations

import pytest

from eventd.streams.names import CacheName, StreamName, is_name, stream_of


@pytest.mark.parametrize("name", ["a", "A0._-", "0", "x" * 80])
def test_possible(name: str) -> None:
    assert is_name(name)
    assert stream_of(StreamName("t", name, "s").topic) == StreamName("t", name, "s")


@pytest.mark.parametrize("name", ["", "-a", ".a", "a/b", "a:b", "ä", "a\n", "x" * 81, "a b"])
def test_not_possible(name: str) -> None:
    assert not is_name(name)
    assert not StreamName("t", "n", name).is_possible


@pytest.mark.parametrize("topic", ["orders", "stream:", "stream:a:b", "stream:a:b:c:d", "stream:a::c", "xstream:a:b:c"])
def test_other_topics(topic: str) -> None:
    assert stream_of(topic) is None


def test_resources() -> None:
    assert StreamName("t", "n", "s").topic == "stream:t:n:s"
    assert StreamName("t", "n", "s").resource == "stream:t/n/s"
    assert CacheName("t", "n", "c").resource == "cache:t/n/c"
