"""User and password of URLs in texts."""

from __future__ import annotations

import pytest

from eventd.text.user_info import without_password, without_user_info


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see https://u:p@h/x, https://u@h and a@b", "see https://***@h/x, https://***@h and a@b"),
        ("https://u:p/q@r@h/x", "https://***@h/x"),
        ("https://h:80/x a@b", "https://h:80/x a@b"),
        ("https://h/x@y", "https://h/x@y"),
        ("write postgresql://USER@HOST/NAME", "write postgresql://USER@HOST/NAME"),
        ("https://USER@geheim@h", "https://***@h"),
    ],
)
def test_user_and_password_of_urls_are_masked(text: str, shown: str) -> None:
    assert without_user_info(text) == shown


def test_many_urls_in_one_word_take_linear_time() -> None:
    text = "://a:" * 200_000
    assert without_user_info(f"@{text}") == f"@{text}"
    assert without_user_info(f"{text}@").endswith("://***@")


def test_only_the_password_is_masked_in_the_url_of_a_database() -> None:
    assert without_password("postgresql://me@h/db") == "postgresql://me@h/db"
    assert without_password("postgresql://me@site:pw@h/db") == "postgresql://me@site:***@h/db"
    assert without_password("postgresql://me:p@h:1/w%40h/db") == "postgresql://me:***@h/db"
