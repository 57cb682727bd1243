"""The conditions that select events by type, subject, source and payload."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Self

import msgspec

EVERY_TYPE = "*"
BELOW = ".*"


class Selector(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", dict=True):
    """Conditions that must all hold; an empty selector matches every event.

    In `types`, an entry that ends in `.*` matches every type that continues after the dot, and `*` every type; others
    match exactly, as `sources` do. A subject must begin with one of the `subject_prefixes`, and an event's payload must
    have all `payload` pairs. `of` sorts the fields, so selectors of the same entries are equal values.
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
        """Build a selector from the lists of a resource's spec, in any order."""
        return cls(
            tuple(sorted(set(types))),
            tuple(sorted(set(subject_prefixes))),
            tuple(sorted(set(sources))),
            tuple(sorted((payload or {}).items())),
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse the text from `to_json`. Raises ValueError for text that is not a selector."""
        try:
            return msgspec.json.decode(text, type=cls)
        except RecursionError:  # in a member that no selector has
            raise ValueError("the text is nested too deeply") from None

    def to_json(self) -> str:
        """Return the selector as JSON without its empty fields."""
        return msgspec.json.encode(self).decode()

    @property
    def matches_all(self) -> bool:
        """Return whether it matches every event."""
        return (
            (not self.types or EVERY_TYPE in self.types)
            and (not self.subject_prefixes or "" in self.subject_prefixes)
            and not (self.sources or self.payload)
        )

    def matches(self, *, type: str, subject: str, source: str, payload: Mapping[str, str] | None = None) -> bool:
        """Return whether an event with these fields matches. `payload` is needed only if the selector names pairs."""
        return (
            (not self.types or type in self.types or self._is_below(type))
            and (not self.subject_prefixes or subject.startswith(self.subject_prefixes))
            and (not self.sources or source in self.sources)
            and all((payload or {}).get(key) == value for key, value in self.payload)
        )

    def takes_type(self, type: str) -> bool:
        """Return whether the selector's `types` match this type; the other conditions are not considered."""
        return not self.types or type in self.types or self._is_below(type)

    def may_match(self, types: Collection[str]) -> bool:
        """Return whether the selector's `types` match any of these types; the other conditions are not considered."""
        return any(map(self.takes_type, types))

    def widens(self, old: Selector) -> bool:
        """Return whether an event is possible that this selector matches and `old` does not."""
        return not (
            _types_within(self, old)
            and (not old.sources or (bool(self.sources) and set(self.sources) <= set(old.sources)))
            and _prefixes_within(self.subject_prefixes, old.subject_prefixes)
            and set(old.payload) <= set(self.payload)
        )

    @cached_property
    def _beginnings(self) -> tuple[str, ...]:
        """The wildcards in `types` as prefixes: `a.` for `a.*`, an empty one for `*`."""
        return tuple(name.removesuffix(EVERY_TYPE) for name in self.types if _is_wild(name))

    def _is_below(self, type: str) -> bool:
        beginnings = self._beginnings
        if not type.startswith(beginnings):
            return False
        # A prefix ends with its dot, and `a.` is not below `a`: only a type that ends in a dot needs the second check.
        return not type.endswith(".") or any(
            type.startswith(beginning) and type != beginning for beginning in beginnings
        )


def _is_wild(name: str) -> bool:
    return name == EVERY_TYPE or name.endswith(BELOW)


def _types_within(new: Selector, old: Selector) -> bool:
    """Return whether `old` matches all types of `new`.

    A wildcard matches infinitely many types, so only another wildcard can cover it.
    """
    if not old.types or EVERY_TYPE in old.types:
        return True
    return (
        bool(new.types)
        and all(old.takes_type(name) for name in new.types if not _is_wild(name))
        and all(beginning.startswith(old._beginnings) for beginning in new._beginnings)
    )


def _prefixes_within(new: tuple[str, ...], old: tuple[str, ...]) -> bool:
    # No prefix means the same as an empty one: every subject begins with it.
    return not old or all(prefix.startswith(old) for prefix in new or ("",))
