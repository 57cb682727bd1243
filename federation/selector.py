"""Which events go to a destination."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Self

import msgspec

EVERY_TYPE = "*"
BELOW = ".*"


class Selector(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", dict=True):
    """Conditions that must all hold; an empty one holds for every event.

    Of `types`, one that ends in `.*` means every type that continues after the dot, and `*` alone every type; others
    are compared whole, as `sources` are. `subject_prefixes` are plain beginnings (an event without a subject then never
    matches), `payload` pairs must all be equal. The fields are sorted, so equal selectors are equal values.
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
        return (
            (not self.types or EVERY_TYPE in self.types)
            and (not self.subject_prefixes or "" in self.subject_prefixes)
            and not (self.sources or self.payload)
        )

    def matches(self, *, type: str, subject: str, source: str, payload: Mapping[str, str] | None = None) -> bool:
        """Whether an event with these fields is wanted. `payload` is only needed where the selector names pairs."""
        return (
            (not self.types or type in self.types or self._is_below(type))
            and (not self.subject_prefixes or subject.startswith(self.subject_prefixes))
            and (not self.sources or source in self.sources)
            and all((payload or {}).get(key) == value for key, value in self.payload)
        )

    def takes_type(self, type: str) -> bool:
        """Whether events of this type are wanted, as far as the type decides."""
        return not self.types or type in self.types or self._is_below(type)

    def may_match(self, types: Collection[str]) -> bool:
        """Whether an event of any of these types may be wanted."""
        return any(map(self.takes_type, types))

    def widens(self, old: Selector) -> bool:
        """Whether there can be an event that this selector wants and that `old` left out."""
        return not (
            _types_within(self, old)
            and (not old.sources or (bool(self.sources) and set(self.sources) <= set(old.sources)))
            and _prefixes_within(self.subject_prefixes, old.subject_prefixes)
            and set(old.payload) <= set(self.payload)
        )

    @cached_property
    def _beginnings(self) -> tuple[str, ...]:
        """The prefixes of types below one of the wildcards."""
        return tuple(name.removesuffix(EVERY_TYPE) for name in self.types if _is_wild(name))

    def _is_below(self, type: str) -> bool:
        beginnings = self._beginnings
        if not type.startswith(beginnings):
            return False
        # A beginning ends with its dot, and `a.` is not below `a`: so only a type that does so too needs a closer look.
        return not type.endswith(".") or any(
            type.startswith(beginning) and type != beginning for beginning in beginnings
        )


def _is_wild(name: str) -> bool:
    return name == EVERY_TYPE or name.endswith(BELOW)


def _types_within(new: Selector, old: Selector) -> bool:
    """A wildcard stands for endlessly many types, so only a wildcard that reaches as far holds all of them."""
    if not old.types or EVERY_TYPE in old.types:
        return True
    return (
        bool(new.types)
        and all(old.takes_type(name) for name in new.types if not _is_wild(name))
        and all(beginning.startswith(old._beginnings) for beginning in new._beginnings)
    )


def _prefixes_within(new: tuple[str, ...], old: tuple[str, ...]) -> bool:
    # No prefix is the same as an empty one: every subject begins with nothing.
    return not old or all(prefix.startswith(old) for prefix in new or ("",))
