"""From an operation to a request: the address, the path, the query."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from eventd.api.framework.outgoing import _fill, _query, outer_name
from eventd.api.routes import OPERATIONS
from eventd.cli.gateway.local import check_params
from eventd.cli.gateway.remote import RemoteGateway
from eventd.errors import Invalid, NotFound, Unavailable
from eventd.net.address import Address
from tests.support.operations import params_of


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://127.0.0.1:8780", "http://127.0.0.1:8780"),
        ("127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("localhost", "http://localhost:8780"),
        ("https://node.example", "https://node.example:443"),
        ("http://[::1]:8780/", "http://[::1]:8780"),
        ("https://proxy/eventd/", "https://proxy:443/eventd"),
    ],
)
def test_an_address_may_leave_out_what_goes_without_saying(given: str, expected: str) -> None:
    assert str(Address.parse(given)) == expected


def test_what_stands_in_a_path_is_quoted() -> None:
    path, rest = _fill("/api/v1/groups/{group}/peers/{peer}/pause", {"group": "g", "peer": "a/b c@1", "by": "x"})
    assert path == "/api/v1/groups/g/peers/a%2Fb%20c%401/pause"
    assert rest == {"by": "x"}


@pytest.mark.parametrize("given", [{"group": "g"}, {"group": "g", "peer": ""}])
def test_a_missing_value_of_a_path_is_named(given: dict[str, str]) -> None:
    with pytest.raises(NotFound, match="the value for peer is empty: write one"):
        _fill("/api/v1/groups/{group}/peers/{peer}/pause", given)


def test_lists_and_truth_values_in_a_query() -> None:
    assert _query({}) == ""
    assert _query({"type": ["a b", "c&d"], "newest": True, "limit": 3}) == "?type=a+b&type=c%26d&newest=true&limit=3"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_parameters_are_called_as_the_api_calls_them(operation: str) -> None:
    fields = params_of(operation).model_fields
    assert {name: field.alias for name, field in fields.items()} == {name: outer_name(name) for name in fields}


def test_what_was_not_said_is_not_asked_for() -> None:
    assert _query({"after": None, "kind": ""}) == "?kind="


def test_nothing_in_a_path_would_be_another_path() -> None:
    with pytest.raises(NotFound, match="the value for group is empty"):
        _fill("/api/v1/groups/{group}/links", {"group": ""})


@pytest.mark.parametrize("operation", ["events.list", "events.emit", "groups.status"])
async def test_bytes_that_are_no_text_are_told_before_anything_is_sent(operation: str) -> None:
    nobody = RemoteGateway("http://127.0.0.1:1", "")
    with pytest.raises(Invalid, match=r"ofWhom is not valid UTF-8"):
        await nobody.call(operation, group="\U0001f600", of_whom=["caf\udce9"])


def test_wrong_parameters_are_told_in_the_words_of_the_api() -> None:
    with pytest.raises(Invalid, match="limit must be at most 1000"):
        check_params(params_of("events.list"), {"group": "g", "limit": 5000})


@contextmanager
def answering(port: int, answers: list[bytes]) -> Iterator[int]:
    """Gives each of these answers on a connection of its own; an empty one ends the connection. Yields the port."""
    listener = socket.create_server(("127.0.0.1", port))

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
        thread.join(5)


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def test_a_named_node_is_shown_by_its_address() -> None:
    assert RemoteGateway("10.9.8.7", "").serving() == "the node at http://10.9.8.7:8780"


async def test_a_node_that_comes_up_after_a_refused_connection_is_reached_by_the_next_request() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    gateway = RemoteGateway(f"http://127.0.0.1:{port}", "")
    for _ in range(2):
        with pytest.raises(Unavailable, match="Connection refused"):
            gateway.exchange("GET", "/healthz", None, 10)
    with answering(port, [ANSWER]):
        assert gateway.exchange("GET", "/healthz", None, 10) == (200, b"{}")
        await gateway.close()


@pytest.mark.parametrize("broken", [b"", b"no HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
async def test_an_answer_that_breaks_off_does_not_concern_the_next_request(broken: bytes) -> None:
    with answering(0, [broken, ANSWER]) as port:
        gateway = RemoteGateway(f"http://127.0.0.1:{port}", "")
        with pytest.raises(Unavailable):
            gateway.exchange("GET", "/healthz", None, 10)
        assert gateway.exchange("GET", "/healthz", None, 10) == (200, b"{}")
        await gateway.close()


async def test_the_rest_of_an_answer_that_is_too_large_is_not_taken_for_the_next_answer() -> None:
    large = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n01234567890123456789"
    with answering(0, [large, ANSWER]) as port:
        gateway = RemoteGateway(f"http://127.0.0.1:{port}", "")
        assert len(gateway.exchange("GET", "/healthz", None, 10)[1]) == 11
        assert gateway.exchange("GET", "/healthz", None, 10) == (200, b"{}")
        await gateway.close()
