"""Deletes some records of a topic, which are selected by tag and seq.

They are counted first, and records written later are kept.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from msgspec import Struct, field

from eventd.console.pages.actions import FormField, PageAction, Question
from eventd.console.pages.topic_actions import read_number
from eventd.console.pages.topics import READ
from eventd.console.pages.visit import Visit
from eventd.console.view.node_view import V0Request
from eventd.errors import Invalid
from eventd.text.plural import counted

_FIELDS: Final = (
    FormField("match", "Tag", "Such as eu:* for all tags that begin with eu:"),
    FormField("before_seq", "Below the seq", "With a tag, both must be met"),
)
_PAGES, _PAGE_RECORDS = 20, 1000
"""Maximum number of pages that are read to count records, and of records in each. If there are more, the count is an
upper bound."""


class _TaggedRecord(Struct):
    """The members of a record that the count needs."""

    seq: int = field(name="$seq")
    tag: str | None = field(name="$tag", default=None)


class _TaggedPage(Struct):
    """A page of records of which only the tags are read."""

    records: list[_TaggedRecord]
    next_from_seq: int
    caught_up: bool


async def ask_remove(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask which records of a topic are to be deleted, then ask for confirmation with their number.

    `seen` of the parameters identifies the choice that the visitor was shown, with the number of its records; `until`
    is the seq from which on records are kept, because they were written later.
    """
    name, match, below = (params.get(one, "") for one in ("topic", "match", "before_seq"))
    title, seen = f"Delete records of {name}?", params.pop("seen", "")
    topic = await visit.view.ask("GET", "topics", name, touch="false")
    if not match and not below:
        return _ask_choice(title, "The next page shows how many records these are.")
    number, _, shown = seen.partition("-")
    is_number = number.isascii() and number.isdigit() and len(number) < 16
    ready = is_number and shown == _digest(match, below, params.get("until", ""), params.get("most", ""))
    count = int(number) if ready else 0
    if not ready:
        params["until"] = str(topic["next_seq"])
        try:
            limit = min(topic["next_seq"], read_number("before_seq", below) if below else topic["next_seq"])
        except Invalid as error:
            return _ask_choice(title, problem=f"Nothing was deleted: {error}")
        count, exact = await _count(visit, topic, match, limit)
        params["most"] = "" if exact else "yes"
    if not count:
        return _ask_choice(title, "No record matches: nothing would be deleted.")
    params["seen"] = f"{count}-{_digest(match, below, params['until'], params.get('most', ''))}"
    what = counted(count, "job" if topic["type"] == "queue" else "record")
    lines = (
        f"This deletes {'at most ' if params.get('most') else ''}{what} for good. Readers are not notified.",
        "Records that are written from now on stay.",
    )
    return Question(title, lines, count=count, fields=_FIELDS, ready=ready)


def _ask_choice(title: str, *lines: str, problem: str = "") -> Question:
    """Return the question which records are deleted."""
    return Question(title, lines, fields=_FIELDS, ready=False, button="Next", problem=problem)


def _digest(*choice: str) -> str:
    return hashlib.sha256(json.dumps(choice).encode()).hexdigest()


async def _count(visit: Visit, topic: dict[str, Any], match: str, limit: int) -> tuple[int, bool]:
    """Return how many records below the seq `limit` have a matching tag, and whether the number is exact.

    Otherwise it is an upper bound.
    """
    first, end = topic["earliest_seq"], topic["next_seq"]
    most = max(0, min(topic["count"], limit - first))
    is_whole = topic["count"] == end - first  # no record between others is gone
    if not most or (not match and (is_whole or limit == end)):
        return most, True
    if not visit.view.may_ask(READ.method, *READ.fill(topic)):
        return most, False
    found, after = 0, first - 1
    for _ in range(_PAGES):
        body = {"from_seq": after, "limit": _PAGE_RECORDS, "include_tags": True, "include_meta": False}
        page: _TaggedPage = await visit.view.ask("POST", "topics", topic["topic"], "diff", body=body, model=_TaggedPage)
        found += sum(one.seq < limit and _fits(one.tag, match) for one in page.records)
        after = page.next_from_seq
        if page.caught_up or after >= limit - 1:
            return found, True
    return min(most, found + limit - 1 - after), False


def _fits(tag: str | None, match: str) -> bool:
    """Return whether a tag matches, by the rules of the API.

    An empty `match` matches all records, also those without a tag.
    """
    if not match:
        return True
    if tag is None:
        return False
    return tag.startswith(match[:-1]) if match.endswith("*") else tag == match


def _removed(form: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the request for the fields of the question."""
    ends = [read_number(name, str(form[name])) for name in ("before_seq", "until") if form.get(name)]
    chosen = {"match": form["match"]} if form.get("match") else {}
    return {"topic": form.get("topic", "")} | chosen | ({"before_seq": min(ends)} if ends else {})


ACTIONS: Final = {
    "topics.remove": PageAction(
        "Delete records",
        "The records are deleted.",
        ask_remove,
        danger=True,
        prepare=_removed,
        bound="seen",
        request=V0Request("POST", ("topics", "{topic}", "delete")),
    ),
}
