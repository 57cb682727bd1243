"""Which events go to a destination."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec


class Selector(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Conditions that must all hold; an empty one holds for every event.

    `types` and `sources` are compared whole, `subject_prefixes` as plain beginnings (an event without a subject then
    never matches), `payload` pairs must all be equal. The fields are sorted, so equal selectors are equal values.
    """

    types: tuple[str, ...] = ()
    subject_prefixes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    payload: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls,
        *,
        types: Iterable[str] = (),
        subject_prefixes: Iterable[str] = (),
        sources: Iterable[str] = (),
        payload: Mapping[str, str] | None = None,
    ) -> Self:
        """A selector from the lists of a resource's spec, in any order."""
        return cls(
            tuple(sorted(set(types))),
            tuple(sorted(set(subject_prefixes))),
            tuple(sorted(set(sources))),
            tuple(sorted((payload or {}).items())),
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The selector `to_json` wrote. Raises msgspec.ValidationError for anything else."""
        return msgspec.json.decode(text, type=cls)

    def to_json(self) -> str:
        """One text per selector, so that it can serve as a version of itself."""
        return msgspec.json.encode(self).decode()

    @property
    def matches_all(self) -> bool:
        """Whether nothing is ever left out."""
        return not (self.types or self.subject_prefixes or self.sources or self.payload)

    def matches(self, *, type: str, subject: str, source: str, payload: Mapping[str, str] | None = None) -> bool:
        """Whether an event with these fields is wanted. `payload` is only needed where the selector names pairs."""
        return (
            (not self.types or type in self.types)
            and (not self.subject_prefixes or subject.startswith(self.subject_prefixes))
            and (not self.sources or source in self.sources)
            and all((payload or {}).get(key) == value for key, value in self.payload)
        )

    def widens(self, old: Selector) -> bool:
        """Whether this selector may want an event that `old` left out."""
        return not (
            _within(self.types, old.types)
            and _within(self.sources, old.sources)
            and _prefixes_within(self.subject_prefixes, old.subject_prefixes)
            and set(old.payload) <= set(self.payload)
        )


def _within(new: tuple[Any, ...], old: tuple[Any, ...]) -> bool:
    return not old or (bool(new) and set(new) <= set(old))


def _prefixes_within(new: tuple[str, ...], old: tuple[str, ...]) -> bool:
    return not old or (bool(new) and all(prefix.startswith(old) for prefix in new))
