"""routerctl cache: put and get."""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import Control
from tests.integration.cli.streams.conftest import QuicThread

CACHE = "t1/default/primary"


def test_a_value_that_was_put_is_got(control: Control, quic: QuicThread) -> None:
    done = control("cache", "put", CACHE, "greeting", "hello", "--ttl", "1m", *quic.options)
    assert done.out == f"cache/{CACHE}: greeting stored\n"
    assert (quic.server.values, quic.server.ttls) == ({"greeting": b"hello"}, {"greeting": 60_000})
    assert control("cache", "get", CACHE, "greeting", *quic.options).out == "hello"
    assert control("cache", "get", CACHE, "greeting", "-o", "json", *quic.options).json == {
        "key": "greeting",
        "value": "hello",
    }


def test_a_value_is_bytes(control: Control, quic: QuicThread) -> None:
    control("cache", "put", CACHE, "raw", "-", *quic.options, stdin=b"\xff\x00\n")
    assert quic.server.values["raw"] == b"\xff\x00\n"
    assert quic.server.ttls["raw"] is None
    assert control("cache", "get", CACHE, "raw", "-o", "json", *quic.options).json == {"key": "raw", "base64": "/wAK"}


def test_a_miss_exits_with_status_3(control: Control, quic: QuicThread) -> None:
    missed = control("cache", "get", CACHE, "nothing", *quic.options, code=3)
    assert (missed.out, missed.err) == ("", f"error: cache {CACHE} has no value for the key 'nothing'\n")


def test_a_cache_that_is_not_declared_is_not_found(control: Control, quic: QuicThread) -> None:
    quic.server.refuse = lambda _: f"cache scope not found: {CACHE}"
    for words in (("put", CACHE, "k", "v"), ("get", CACHE, "k")):
        refused = control("cache", *words, *quic.options, code=3)
        assert refused.err.startswith(f"error: cache {CACHE} is not declared (apply a StreamCache")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("put", "primary", "k", "v"), 1, "'primary' is not the name of a cache (write TENANT/NAMESPACE/CACHE"),
        (("put", CACHE, "k", "v", "--ttl", "0s"), 2, "must be at least 1ms"),
        (("put", CACHE, "k", "v", "--ttl", "later"), 2, "'later' is not a duration"),
        (("put", CACHE, "", "v"), 2, "must not be empty"),
        (("get", CACHE, b"\xff".decode("utf-8", "surrogateescape")), 1, "the key is not valid UTF-8"),
    ],
)
def test_a_wrong_option_names_what_is_wrong(control: Control, words: tuple[str, ...], code: int, message: str) -> None:
    refused = control("cache", *words, "--server", "127.0.0.1:1", code=code)
    assert message in refused.err


def test_a_value_that_is_too_large_is_refused(control: Control, quic: QuicThread) -> None:
    refused = control("cache", "put", CACHE, "k", "-", *quic.options, stdin=b"x" * ((1 << 20) + 1), code=1)
    assert "standard input has more than 1 MiB" in refused.err
    assert quic.server.values == {}
