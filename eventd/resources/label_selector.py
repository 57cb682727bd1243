"""Selects resources by their labels, in the form that kubectl has: `site=north,tier!=lab,env in (a, b),!old`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from eventd.errors import Invalid
from eventd.text.quoting import quoted

_MOST: Final = 4096
"""Maximum number of characters of a selector."""
_KEY: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?"
_TERM: Final = re.compile(
    rf"(?P<absent>!)?\s*(?P<key>{_KEY})\s*"
    r"(?:(?P<sign>==|!=|=)\s*(?P<value>[^,()=!]*)|(?P<word>in|notin)\s*\((?P<values>[^()]*)\))?\s*"
)


class _Term(NamedTuple):
    """One condition: the value of `key` is (with `negated`: is not) one of `values`.

    With None, the label is present (absent).
    """

    key: str
    values: frozenset[str] | None
    negated: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        found = self.key in labels if self.values is None else labels.get(self.key) in self.values
        return found is not self.negated


class LabelSelector:
    """The conditions that labels must all meet; an empty text has no conditions.

    Raises Invalid, which names the wrong part.
    """

    def __init__(self, text: str) -> None:
        if len(text) > _MOST:
            raise Invalid(f"a label selector has at most {_MOST} characters, not {len(text):,}")
        self._terms = tuple(map(_read, _parts(text)))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether these labels meet all conditions. A label that is absent differs from every value."""
        return all(term.matches(labels) for term in self._terms)


def _parts(text: str) -> list[str]:
    """Return the conditions of a selector: the text between the commas that are not in parentheses."""
    return re.split(r",(?![^()]*\))", text) if text.strip() else []


def _read(part: str) -> _Term:
    found = _TERM.fullmatch(part.strip())
    if found is None or (found["absent"] and (found["sign"] or found["word"])):
        problem = f"cannot read the part {quoted(part.strip())} of the label selector"
        raise Invalid(problem, hint="write site=north, site!=north, site in (north, south), site or !site")
    if found["sign"]:
        return _Term(found["key"], frozenset({found["value"].strip()}), found["sign"] == "!=")
    if found["word"]:
        values = frozenset(value.strip() for value in found["values"].split(","))
        return _Term(found["key"], values, found["word"] == "notin")
    return _Term(found["key"], None, bool(found["absent"]))
