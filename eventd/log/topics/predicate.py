"""A predicate on the tags of records, for deletes and for filters of routers. Pure.

A tag matches as a whole or by prefix; a record without a tag never matches.
"""

from __future__ import annotations

from typing import NamedTuple

from eventd.errors import Invalid

_EQUAL, _PREFIX = "Eq", "Glob"
_HINT = 'write ["tag", "Eq", "TAG"], ["tag", "Glob", "PREFIX*"], "TAG" or "PREFIX*"'


class Predicate(NamedTuple):
    """Matches the tag `text` or, with `prefix`, every tag that begins with `text`."""

    text: str
    prefix: bool

    def matches(self, tag: str | None) -> bool:
        """Return whether a record with this tag matches; None: it has none."""
        if tag is None:
            return False
        return tag.startswith(self.text) if self.prefix else tag == self.text

    def shown(self) -> list[str]:
        """Return the canonical JSON form, a list of three texts that `parse` accepts."""
        return ["tag", _PREFIX, f"{self.text}*"] if self.prefix else ["tag", _EQUAL, self.text]


def parse(value: object) -> Predicate:
    """Return the predicate of a decoded JSON value. Raises `Invalid`.

    The value is a string, which is a prefix if it ends with a star and otherwise a whole tag, or a list like
    `["tag", "Eq", TAG]` or `["tag", "Glob", "PREFIX*"]`.
    """
    if isinstance(value, str):
        return Predicate(value.removesuffix("*"), value.endswith("*"))
    match value:
        case ["tag", "Eq", str(text)]:
            return Predicate(text, False)
        case ["tag", "Glob", str(text)] if text.endswith("*"):
            return Predicate(text[:-1], True)
        case ["tag", "Glob", str(text)]:
            raise Invalid(f"{_quoted(text)} is not a prefix: Glob needs a star at its end", hint=_HINT)
        case ["tag", str(op), str()]:
            raise Invalid(f"no operator {_quoted(op)}: a tag is compared with Eq or Glob", hint=_HINT)
        case [str(name), str(), str()] if name != "tag":
            raise Invalid(f"records are selected by `tag`, not by {_quoted(name)}", hint=_HINT)
        case _:
            raise Invalid("a predicate must be a text, or a list of three texts", hint=_HINT)


def _quoted(text: str) -> str:
    """Return a text in quotes for an error message, cut if it is long."""
    return repr(text if len(text) <= 40 else f"{text[:40]}…")
