"""Messages for pydantic's errors, by their type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_MESSAGES: Final = {
    "missing": "is required",
    "string_type": "must be text",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "has a form that is not allowed",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    "int_parsing_size": "must be a smaller number",
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    "finite_number": "must be a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "must be a list"),
    **dict.fromkeys(("dict_type", "model_type"), "must be an object"),
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    **dict.fromkeys(("literal_error", "enum"), "must be {expected}"),
    "value_error": "{error}",
}
"""The message for each type, with the members of the error's context in braces."""


def message_of(kind: str, context: Mapping[str, Any], **others: str) -> str:
    """Return the message for an error of type `kind`. `others`, by type, replace or add to the usual messages."""
    return (_MESSAGES | others).get(kind, "is not valid").format(**context)
