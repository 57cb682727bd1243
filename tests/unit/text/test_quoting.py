"""Offending values in messages: on one line, truncated, and never where they may be secrets."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.text.quoting import quoted, with_value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("soon", "'soon'"),
        (5, "5"),
        ("", "''"),
        ("a\x1b[2J\n\u202e", "'a\\x1b[2J\\n\\u202e'"),
        ("x" * 61, f"'{'x' * 60}…'"),
        pytest.param("x" * 20_000_000, f"'{'x' * 60}…'", id="long"),
        pytest.param(10**5000, "a number of 16610 bits", id="huge"),
        ("x" * 60, f"'{'x' * 60}'"),
    ],
)
def test_a_value_is_shown_on_one_line(value: Any, shown: str) -> None:
    assert quoted(value) == shown


@pytest.mark.parametrize(
    ("words", "value", "names", "told"),
    [
        ("must be at least 1", 0, ("limit",), "must be at least 1, not 0"),
        ("must not be blank", " ", ("types", 0), "' ' must not be blank"),
        ("must be text: put it in quotes", 7, ("port_file",), "must be text, not 7: put it in quotes"),
        ("is required", "x", ("group",), "is required"),
        ("must be a list", {"a": 1}, ("types",), "must be a list"),
        ("must be text", None, ("group",), "must be text"),
        ("must be text", 5, ("auth", "keys", 0, "secretFile"), "must be text"),
        ("must begin with http://", "ftp://u:pw@h", ("endpoint",), "must begin with http://"),
        ("must be text", 5, ("env", "API_KEY"), "must be text"),
        ("must be text", 5, ("payload", "pin"), "must be text"),
        ("must be text", 5, ("headers", "x-api-key"), "must be text"),
        ("must not contain a user name", "https://u:pw@h", ("url",), "must not contain a user name"),
        ("must be an absolute path", "-----BEGIN", ("tls", "clientKeyFile"), "must be an absolute path"),
    ],
)
def test_a_rule_is_followed_by_what_breaks_it(words: str, value: Any, names: tuple[Any, ...], told: str) -> None:
    assert with_value(words, value, *names) == told
