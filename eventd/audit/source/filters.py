"""Conditions of a query that Spark passes to a reader, and which ledgers, segments and rows may meet them.

Spark checks every condition again, so the reader may keep rows that do not meet a condition, but must never drop a row
that does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventd.lake.layout import MINUTE
from eventd.lake.manifest import Manifest
from eventd.lake.schema import OWN_TIME
from federation.event import micros

if TYPE_CHECKING:
    import pyarrow as pa

_COMPARED: Final[Mapping[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "EqualTo": (operator.eq, "equal"),
    "GreaterThan": (operator.gt, "greater"),
    "GreaterThanOrEqual": (operator.ge, "greater_equal"),
    "LessThan": (operator.lt, "less"),
    "LessThanOrEqual": (operator.le, "less_equal"),
}
"""For each comparison of Spark, the function that compares two values, and the name of Arrow's function."""
_MATCHED: Final[Mapping[str, tuple[Callable[[str, str], bool], str]]] = {
    "StringStartsWith": (str.startswith, "starts_with"),
    "StringEndsWith": (str.endswith, "ends_with"),
    "StringContains": (operator.contains, "match_substring"),
}
_IN: Final = "In"


class RowCondition(NamedTuple):
    """A condition on one column; `kind` is the name of Spark's class for it, `negated`: rows must not meet it."""

    column: str
    kind: str
    value: Any
    negated: bool = False

    def accepts(self, value: Any) -> bool:
        """Return whether a value meets the condition."""
        if self.kind == _IN:
            met = value in self.value
        else:
            compare, _ = _COMPARED.get(self.kind) or _MATCHED[self.kind]
            met = compare(value, self.value)
        return met is not self.negated

    def may_accept(self, least: Any, most: Any) -> bool:
        """Return whether some value from `least` to `most` may meet the condition."""
        if self.negated or self.kind in _MATCHED:
            return True
        match self.kind:
            case "EqualTo":
                return bool(least <= self.value <= most)
            case "In":
                return any(least <= value <= most for value in self.value)
            case "GreaterThan" | "GreaterThanOrEqual":
                return self.accepts(most)
        return self.accepts(least)

    def select(self, table: pa.Table) -> pa.Table:
        """Return the rows of a table that meet the condition; all if Arrow cannot compare its column with the value."""
        import pyarrow as pa
        from pyarrow import compute

        column = table[self.column]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        try:
            if self.kind == _IN:
                met = compute.is_in(column, value_set=pa.array(self.value, column.type))
            elif self.kind in _MATCHED:
                met = compute.call_function(_MATCHED[self.kind][1], [column], compute.MatchSubstringOptions(self.value))
            else:
                met = compute.call_function(_COMPARED[self.kind][1], [column, pa.scalar(self.value, column.type)])
        except (pa.ArrowException, TypeError, ValueError):  # a value that no row of this type can have, for example
            return table
        return table.filter(compute.invert(met) if self.negated else met)


def read_conditions(filters: Iterable[Any], columns: Sequence[str]) -> Iterator[RowCondition]:
    """Yield a condition for each of Spark's filters that can be used, of those on these columns."""
    for one in filters:
        negated = type(one).__name__ == "Not"
        inner = one.child if negated else one
        kind = type(inner).__name__
        if kind not in (*_COMPARED, *_MATCHED, _IN):
            continue
        if len(inner.attribute) == 1 and inner.attribute[0] in columns:
            values = tuple(value for value in inner.value if value is not None) if kind == _IN else inner.value
            if values is not None:
                yield RowCondition(inner.attribute[0], kind, values, negated)


def number_bounds(conditions: Iterable[RowCondition], after: int, upto: int) -> tuple[int, int]:
    """Return the part of the numbers in (after, upto] that may meet all conditions; it may be empty."""
    for one in conditions:
        if one.column != "number" or one.negated:
            continue
        if one.kind in ("EqualTo", "GreaterThanOrEqual"):
            after = max(after, one.value - 1)
        elif one.kind == "GreaterThan":
            after = max(after, one.value)
        if one.kind in ("EqualTo", "LessThanOrEqual"):
            upto = min(upto, one.value)
        elif one.kind == "LessThan":
            upto = min(upto, one.value - 1)
    return after, max(after, upto)


def may_hold(manifest: Manifest, conditions: Iterable[RowCondition]) -> bool:
    """Return whether a segment may hold rows that meet all conditions, by the bounds in its manifest."""
    bounds: dict[str, tuple[int, int]] = {}
    if manifest.times is not None:
        bounds[OWN_TIME[manifest.book]] = manifest.times
    if manifest.slots is not None:
        bounds["event_at"] = (manifest.slots[0] * MINUTE, (manifest.slots[1] + 1) * MINUTE - 1)
    return all(
        condition.may_accept(*bounds[condition.column])
        for condition in map(_in_micros, conditions)
        if condition.column in bounds
    )


def _in_micros(condition: RowCondition) -> RowCondition:
    """Return the condition with times as microseconds, as manifests have them."""

    def converted(value: Any) -> Any:
        return micros(value) if isinstance(value, datetime) else value

    value = condition.value
    return condition._replace(value=tuple(map(converted, value)) if condition.kind == _IN else converted(value))
