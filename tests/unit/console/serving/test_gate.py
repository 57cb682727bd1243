"""What a proxy of the settings says of a browser."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from eventd.console.serving.gate import Gate


def ask(*headers: tuple[str, str], peer: str = "127.0.0.1") -> web.Request:
    transport = Mock()
    transport.get_extra_info = lambda name, default=None: (peer, 4711) if name == "peername" else default
    return make_mocked_request("GET", "/console/", CIMultiDict(headers), transport=transport)


@pytest.fixture
def gate() -> Gate:
    unused: Any = None
    return Gate(unused, unused, [ip_network("127.0.0.0/8")])


@pytest.mark.parametrize(
    "said",
    [["6.6.6.6, 203.0.113.9"], ["6.6.6.6", "203.0.113.9"], ["6.6.6.6, 7.7.7.7", "203.0.113.9"], ["203.0.113.9"]],
    ids=" | ".join,
)
def test_the_address_is_the_last_one_that_the_proxy_has_added(gate: Gate, said: list[str]) -> None:
    assert gate.address(ask(*(("X-Forwarded-For", one) for one in said))) == "203.0.113.9"


def test_what_others_than_the_proxy_say_does_not_count(gate: Gate) -> None:
    request = ask(("X-Forwarded-For", "6.6.6.6"), ("X-Forwarded-Proto", "https"), peer="198.51.100.7")
    assert gate.address(request) == "198.51.100.7"
    assert not gate.is_secure(request)


def test_only_the_proxy_says_that_the_connection_was_secure(gate: Gate) -> None:
    assert gate.is_secure(ask(("X-Forwarded-Proto", "https")))
    assert not gate.is_secure(ask(("X-Forwarded-Proto", "https"), ("X-Forwarded-Proto", "http")))
