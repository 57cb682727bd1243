"""Messages for the errors of pydantic, of which the API, resources and settings share one table."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic_core.core_schema import ErrorType

from eventd.text.validation import _MESSAGES, message_of


@pytest.mark.parametrize(
    ("kind", "context", "message"),
    [
        ("missing", {}, "is required"),
        ("int_parsing", {"error": "unused"}, "must be a whole number"),
        ("too_long", {"max_length": 2, "actual_length": 3}, "must have at most 2 entries"),
        ("less_than_equal", {"le": 100}, "must be at most 100"),
        ("literal_error", {"expected": "'{a}' or 'b'"}, "must be '{a}' or 'b'"),
        ("value_error", {"error": ValueError("'{x}' is not fine")}, "'{x}' is not fine"),
        ("url_scheme", {"expected_schemes": "http"}, "is not valid"),
    ],
)
def test_an_error_is_a_message_with_members_of_its_context(kind: str, context: dict[str, Any], message: str) -> None:
    assert message_of(kind, context) == message


def test_a_caller_may_replace_messages() -> None:
    assert message_of("model_type", {}, model_type="must be a mapping of fields") == "must be a mapping of fields"


def test_every_type_is_one_of_pydantics() -> None:
    assert set(_MESSAGES) <= set(get_args(ErrorType))
