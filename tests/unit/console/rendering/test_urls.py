"""How URLs of pages are written: paths, queries, and texts that are kept quoted because many rows name them."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from eventd.console.rendering.urls import Urls, unquoted_part

TEXTS = ["edge", "a/b?c#d&e=f", "ü +%", "..", "x" * 500, "é" * 100]


@pytest.mark.parametrize("text", TEXTS)
def test_a_path_and_a_query_are_read_as_they_were_meant(text: str) -> None:
    for _ in range(2):  # a short one is kept
        url = urlsplit(Urls().to("links", text, filter=text))
        assert unquoted_part(url.path.removeprefix("/console/links/")) == text
        assert parse_qs(url.query) == {"filter": [text]}


def test_a_list_becomes_repeated_fields_and_an_empty_value_none() -> None:
    assert Urls("/site").to("jobs", ids=[1, 2], owner="", after=None, name="a b") == (
        "/site/console/jobs?ids=1&ids=2&name=a+b"
    )
