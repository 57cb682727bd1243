"""The one builder of the console's URLs: every link and form of a page is made here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote

ROOT: Final = "/console"
_DOTS: Final = (".", "..")
"""Texts of dots, which ids of events may be. Browsers interpret such a part of a path as a relative folder, even if it
is quoted."""


class Urls:
    """URLs below a `prefix`, which is empty or the path before /console/ that a proxy serves."""

    def __init__(self, prefix: str = "") -> None:
        self._base = f"{prefix}{ROOT}"

    @property
    def base(self) -> str:
        """Return the path of the console, without a slash at its end."""
        return self._base

    def to(self, *parts: object, **query: Any) -> str:
        """Return the URL of a page: its path by parts, each quoted, with the values of a query that are not empty.

        Lists become repeated fields.
        """
        path = "/".join([self._base, *map(quoted_part, parts)]) or "/"
        path = path if parts else f"{path}/"
        given = {name: value for name, value in query.items() if value not in (None, "", (), [])}
        return f"{path}?{_query(given)}" if given else path

    def own(self, target: str) -> str | None:
        """Return a target if it is a page of this console; None for any other, such as one on another host."""
        inside = target == self._base or target.startswith((f"{self._base}/", f"{self._base}?"))
        return target if inside and "\\" not in target and "\n" not in target and "\r" not in target else None


def quoted_part(part: object) -> str:
    """Return a part of a path, quoted. Dots alone are preceded by a blank, with which no name begins."""
    text = str(part)
    return _recalled_part(text) if len(text) <= _SHORT else _part(text)


def _part(text: str) -> str:
    return quote(f" {text}" if text in _DOTS else text, safe="")


_SHORT: Final = 64
"""Maximum number of characters of a text whose quoted form is kept: a list names the same groups and peers in each row.
"""
_recalled_part: Final = lru_cache(4096)(_part)
_recalled_field: Final = lru_cache(4096)(quote_plus)


def _query(given: Mapping[str, Any]) -> str:
    """Return the values of a query, quoted; a list becomes repeated fields."""
    fields = [(name, each) for name, value in given.items() for each in _each(value)]
    return "&".join(f"{_field(name)}={_field(str(each))}" for name, each in fields)


def _each(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


def _field(text: str) -> str:
    return _recalled_field(text) if len(text) <= _SHORT else quote_plus(text)


def unquoted_part(text: str) -> str:
    """Return what `quoted_part` has quoted."""
    part = unquote(text)
    return part[1:] if part[1:] in _DOTS and part[0] == " " else part


def changed(path: str, query: Mapping[str, str], **changes: Any) -> str:
    """Return the URL of the same page with other values of the query; empty ones are left out."""
    given = {name: value for name, value in {**query, **changes}.items() if value not in (None, "")}
    return f"{path}?{_query(given)}" if given else path
