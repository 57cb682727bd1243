"""Reads resources of one kind from the files that an audit is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from eventd.errors import Invalid
from eventd.resources.kinds.spec import Spec
from eventd.resources.reading.documents import Draft, read_sources
from eventd.resources.reading.problems import Problem
from eventd.resources.validation.check import check_draft
from eventd.resources.validation.resource import Resource

S = TypeVar("S", bound=Spec)


class Document(NamedTuple, Generic[S]):
    """A resource of a file: its name, its spec, and the draft that knows its place in the file."""

    name: str
    spec: S
    draft: Draft


def read_documents(paths: Sequence[str], of: type[S]) -> list[Document[S]]:
    """Return the resources with this spec in files or folders; others are ignored if they are valid.

    Raises Invalid with file and line of an invalid document.
    """
    loaded = read_sources(list(paths))
    problems = list(loaded.problems)
    found = []
    for draft in loaded.drafts:
        checked = check_draft(draft)
        if isinstance(checked, list):
            problems += checked
        elif isinstance(checked, Resource) and isinstance(checked.spec, of):
            found.append(Document(checked.identity.name, checked.spec, draft))
    require_none(problems)
    return found


def require_none(problems: Iterable[Problem]) -> None:
    """Raise Invalid with the first of the problems, in the order of files and lines, if there is any."""
    first = min(problems, default=None)
    if first is not None:
        place = f"{first.source}:{first.line}: " if first.line else f"{first.source}: "
        raise Invalid(f"{place}{f'{first.path}: ' if first.path else ''}{first.message}", hint=first.hint)
