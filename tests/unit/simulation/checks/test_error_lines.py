"""Error lines of nodes are collected, and those that a Postgres server explains are known."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from eventd.errors import DatabaseUnavailable
from eventd.simulation.checks.error_lines import errors_logged
from eventd.simulation.world.session_failures import NODE_URL

SERVER_GONE = DatabaseUnavailable(f"{NODE_URL}a: server closed the connection unexpectedly")


@pytest.mark.parametrize(
    ("given", "is_of_server"),
    [
        ({"exc_info": SERVER_GONE}, True),
        ({"extra": {"error": str(SERVER_GONE)}}, True),
        ({"exc_info": DatabaseUnavailable("sqlite:////tmp/eventd.db: disk I/O error")}, False),
        ({"exc_info": RuntimeError(str(SERVER_GONE))}, False),
        ({"extra": {"error": "a certificate has expired"}}, False),
        ({}, False),
    ],
)
def test_a_line_is_of_the_server_if_an_error_of_the_server_caused_it(given: dict[str, Any], is_of_server: bool) -> None:
    with errors_logged() as lines:
        logging.getLogger("eventd.node").error("something failed", **given)
        logging.getLogger("eventd.node").warning("something else")
    [line] = lines
    assert line.text.startswith("eventd.node: something failed")
    assert line.is_of_server is is_of_server


def test_an_error_of_a_server_is_a_line_unless_its_client_has_caused_it() -> None:
    server = logging.getLogger("aiohttp.server")
    with errors_logged() as lines:
        for error in (ConnectionResetError("connection reset by peer"), TypeError("a fault of a handler")):
            server.error("Unhandled exception", exc_info=error)
        logging.getLogger("eventd.node").error("something failed", exc_info=ConnectionResetError("reset"))
    assert [line.text for line in lines] == [
        "aiohttp.server: Unhandled exception: TypeError('a fault of a handler')",
        "eventd.node: something failed: ConnectionResetError('reset')",
    ]
