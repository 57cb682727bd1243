"""From an operation to a request: the address, the path, the query."""

from __future__ import annotations

import pytest

from eventd.api.framework.outgoing import _fill, _query, outer_name
from eventd.api.routes import OPERATIONS
from eventd.cli.gateway.local import check_params
from eventd.cli.gateway.remote import RemoteGateway
from eventd.errors import Invalid, NotFound
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
