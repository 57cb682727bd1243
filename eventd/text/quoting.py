"""Shows offending values in messages, cut to length and without secrets."""

from __future__ import annotations

from typing import Any, Final

from eventd.text.user_info import without_user_info

MOST: Final = 60
"""Maximum number of characters that are shown of a text."""
LONGEST_BITS: Final = 256
LONGEST_NAME: Final = 253
"""Maximum number of characters of the names of groups, nodes and resources."""
_SECRETIVE: Final = (
    "secret",
    "password",
    "token",
    "credential",
    "auth",
    "endpoint",
    "url",
    "console",
    "headers",
    "keyfile",
    "database",
    "api_keys",
    "root_key",
    "routemaster_clients",
    "lake",
    "env",
    "payload",
)
"""Parts of field names whose value may be or contain a secret; such a value is never shown."""


def quoted(value: Any) -> str:
    """Return a value for a message: a text in quotes, on one line, cut to `MOST` characters; other values as `str`.

    URLs in it lose user and password. Of a very large number, only its length in bits is returned.
    """
    if isinstance(value, int) and value.bit_length() > LONGEST_BITS:
        return f"a number of {value.bit_length()} bits"  # Python refuses to format the longest
    if not isinstance(value, str):
        return str(value)
    value = without_user_info(value)  # before the cut, which could remove the @
    text = repr(value[:MOST])  # which escapes characters that control a terminal
    return text if len(value) <= MOST else f"{text[:-1]}…{text[-1]}"


def shortened(text: str, most: int = LONGEST_NAME) -> str:
    """Return a text of a caller or a peer for a message, cut to `most` characters; a valid name is never cut."""
    return text if len(text) <= most else f"{text[:most]}…"


def with_value(words: str, value: Any, *names: object) -> str:
    """Return the rule `words` with the value added: `must be …, not 'x'` or `'x' must not …`.

    Returns `words` unchanged if they do not begin with "must" or name a value already, or if the value is not a plain
    one or may be a secret. `names` are those of the field and of its parents.
    """
    is_plain = isinstance(value, str | int | float)
    if not words.startswith("must") or not is_plain or ", not " in words or may_be_secret(*names):
        return words
    if words.startswith("must not"):
        return f"{quoted(value)} {words}"
    rule, colon, advice = words.partition(": ")
    return f"{rule}, not {quoted(value)}{colon}{advice}"


def may_be_secret(*names: object) -> bool:
    """Return whether a field may hold a secret, by its own name and those of its parents."""
    return any(part in str(name).lower() for name in names for part in _SECRETIVE)
