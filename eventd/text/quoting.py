"""Offending values in messages: whoever wrote one finds it again, and nothing else is shown."""

from __future__ import annotations

from typing import Any, Final

MOST: Final = 60
"""Characters of a value that are shown."""
LONGEST_BITS: Final = 256
_SECRETIVE: Final = (
    "secret",
    "password",
    "token",
    "credential",
    "auth",
    "endpoint",
    "database",
    "api_keys",
    "lake",
    "env",
    "payload",
)
"""What a name holds whose value may be a secret, or hold one: it is never repeated."""


def quoted(value: Any) -> str:
    """A value as a message shows it: on one line, cut, texts in quotes."""
    if isinstance(value, int) and value.bit_length() > LONGEST_BITS:
        return f"a number of {value.bit_length()} bits"  # Python refuses to write down the longest
    if not isinstance(value, str):
        return str(value)
    text = repr(value[:MOST])  # which spells out what could steer a terminal
    return text if len(value) <= MOST else f"{text[:-1]}…{text[-1]}"


def with_value(words: str, value: Any, *names: object) -> str:
    """`must be …, not 'x'`, or `'x' must not …`; unchanged where the value is not a plain one, or may be a secret.

    `names` are those of the field and of what it stands in.
    """
    is_plain = isinstance(value, str | int | float)
    if not words.startswith("must") or not is_plain or ", not " in words or may_be_secret(*names):
        return words
    if words.startswith("must not"):
        return f"{quoted(value)} {words}"
    rule, colon, advice = words.partition(": ")
    return f"{rule}, not {quoted(value)}{colon}{advice}"


def may_be_secret(*names: object) -> bool:
    """Whether a field of one of these names may hold a secret."""
    return any(part in str(name).lower() for name in names for part in _SECRETIVE)
