"""Paging: the size of a page and the start of the next one, in the forms of /api/v1 and /v0.

/api/v1 takes `limit` and, in lists of the log, the token `after`: `epoch:position`, so that a token of another epoch is
noticed. /v0 takes `page_size` and `cursor`, which names the last entry of the page before.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import msgspec
from pydantic import Field

from eventd.api.framework.models import Query
from eventd.errors import Invalid
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.values import Head

T = TypeVar("T")
Token = TypeVar("Token")

PAGE_SIZE, MAX_PAGE_SIZE = 100, 1000
"""The default and the largest number of entries of a page."""

Limit = Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE, description="Maximum number of entries of the page.")]
After = Annotated[str, Field(description="Continue after this token.")]


def cut_page(found: Sequence[T], limit: int, token_of: Callable[[T], Token]) -> tuple[Sequence[T], Token | None]:
    """Return a page, the first `limit` of the entries, and the token of the next one; None for the last page.

    Up to `limit` + 1 entries were read. `token_of` returns the token of the page that begins after an entry.
    """
    shown = found[:limit]
    return shown, token_of(shown[-1]) if len(found) > limit else None


class NamePage(Query, frozen=True):
    """The query for a page of named entries, ordered by the bytes of their names: with a `prefix`, after a `cursor`."""

    prefix: str = ""
    page_size: int = PAGE_SIZE
    cursor: str = ""

    @property
    def limit(self) -> int:
        """Return the maximum number of entries of the page: `page_size`, at least 1 and at most `MAX_PAGE_SIZE`."""
        return max(1, min(MAX_PAGE_SIZE, self.page_size))

    @property
    def after(self) -> str:
        """Return the name after which the page begins; empty for the first page. Raises `Invalid`."""
        if not self.cursor:
            return ""
        try:
            after = msgspec.json.decode(base64.b64decode(self.cursor, validate=True), type=dict[str, str])["after"]
        except (binascii.Error, ValueError, KeyError, RecursionError):
            raise _bad_cursor(self.cursor) from None
        if not after.isprintable():
            raise _bad_cursor(self.cursor)
        return after


def _bad_cursor(cursor: str) -> Invalid:
    return Invalid(f"{cursor[:60]!r} is not a valid cursor", hint="send the `next_cursor` of the last page unchanged")


def write_cursor(name: str) -> str:
    """Return the cursor of the page that begins after this name."""
    return base64.b64encode(msgspec.json.encode({"after": name})).decode()


@dataclass(frozen=True, slots=True)
class PageStart:
    """The position after which a page of the log begins (before which, if newest first); 0 without a token.

    `gap`: why the page does not continue where the page before it ended, {"reason", "message"}; None if it does.
    """

    position: int
    gap: dict[str, str] | None = None


def write_token(head: Head, position: int) -> str:
    """Return the token of a position of the log: its epoch and the position."""
    return f"{head.epoch}:{position}"


def read_token(text: str, head: Head, topic: TopicRow) -> PageStart:
    """Return the start that a token names; position 0 for an empty one. Raises `Invalid`.

    A token of another epoch, or beyond the log's end, starts at position 0, with a gap. One after which retention has
    removed events keeps its position, with a gap.
    """
    if not text:
        return PageStart(0)
    epoch, _, number = text.partition(":")
    if not (epoch and number.isascii() and number.isdigit() and len(number) <= 18):
        raise Invalid(f"{text[:60]!r} is not a token of this list", hint="use `next` or `upto` of an answer")
    if epoch != head.epoch or int(number) > head.last:
        return PageStart(
            0, {"reason": "another_history", "message": "the token is of another epoch of this log, or beyond its end"}
        )
    if int(number) < topic.evicted_position:
        message = f"retention has removed events after the token, up to seq {topic.evicted_seq} of the group"
        return PageStart(int(number), {"reason": "evicted", "message": message})
    return PageStart(int(number))
