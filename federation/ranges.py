"""The range that a batch claims to cover, and the mark of what a receiver has stored of a link.

A range is half-open, (after, upto], in the sender's positions within one history, which is an epoch and an incarnation
of the sender's log. Ranges prove that nothing was left out between two batches; ids decide whether a record is new.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, NamedTuple

import msgspec

from federation.errors import Conflict, Malformed
from federation.structured import InnerList, Member, Token, Value, parse_dictionary, write_dictionary

EPOCH: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NUMBER: Final = "([0-9]{1,15})"
_USUAL: Final = re.compile(
    f'epoch="({EPOCH.pattern})", incarnation={_NUMBER}, after={_NUMBER}, upto={_NUMBER}', re.ASCII
)
"""Matches the header of a range in exactly the form that this program writes: reading this form takes a fifth of the
time."""
MAX_POSITION: Final = 10**15 - 1
"""The largest position: the largest integer of a structured field."""


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """The range of a batch: every record of the link in (after, upto], or, for a repair, only its own lines.

    `lost` is where a loss of the sender begins: it cannot send anything in (lost, after]; None without a loss.
    """

    epoch: str
    incarnation: int = 0
    after: int = 0
    upto: int = 0
    repair: bool = False
    lost: int | None = None

    def to_header(self) -> str:
        """Return the value of the Eventd-Range header."""
        members: dict[str, Value] = {"epoch": self.epoch, "incarnation": self.incarnation}
        if self.repair:
            members["repair"] = True
        else:
            members |= {"after": self.after, "upto": self.upto}
            if self.lost is not None:
                members["lost"] = self.lost
        return write_dictionary(members)

    @classmethod
    def from_header(cls, text: str) -> Range:
        """Parse the value of an Eventd-Range header. Raises Malformed."""
        if usual := _USUAL.fullmatch(text):
            incarnation, after, upto = map(int, usual.groups()[1:])
            if after <= upto:
                return cls(epoch=usual[1], incarnation=incarnation, after=after, upto=upto)
        values = {name: _bare(name, member) for name, member in parse_dictionary(text).items()}
        kind = frozenset(values) - {"lost"}
        if kind == _REPAIR and "lost" not in values and values["repair"] is True:
            return cls(epoch=_epoch(values), incarnation=_number(values, "incarnation"), repair=True)
        if kind != _COVERING:
            raise Malformed("Eventd-Range takes epoch, incarnation, and either after, upto and perhaps lost, or repair")
        found = cls(
            epoch=_epoch(values),
            incarnation=_number(values, "incarnation"),
            after=_number(values, "after"),
            upto=_number(values, "upto"),
            lost=_number(values, "lost") if "lost" in values else None,
        )
        if found.after > found.upto or (found.lost or 0) > found.after:
            raise Malformed(f"Eventd-Range runs backwards: {text[:160]}")
        return found


_REPAIR: Final = frozenset({"epoch", "incarnation", "repair"})
_COVERING: Final = frozenset({"epoch", "incarnation", "after", "upto"})


def _bare(name: str, member: Member) -> Value:
    if isinstance(member, InnerList) or member.params:
        raise Malformed(f"Eventd-Range: {name} must be a bare value without parameters")
    return member.value


def _epoch(values: dict[str, Value]) -> str:
    epoch = values["epoch"]
    if not isinstance(epoch, str) or isinstance(epoch, Token) or not EPOCH.fullmatch(epoch):
        raise Malformed("Eventd-Range: epoch must be a quoted string of 1 to 64 letters, digits, _ and -")
    return epoch


def _number(values: dict[str, Value], name: str) -> int:
    value = values[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Malformed(f"Eventd-Range: {name} must be an integer, at least 0")
    return value


Position = Annotated[int, msgspec.Meta(ge=0, le=MAX_POSITION)]
"""A position, or another number of that size, in a message: values out of bounds are refused when it is read."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver has stored or refused of a link: all in (base, upto] of this history, except reported losses."""

    epoch: Annotated[str, msgspec.Meta(pattern=rf"\A{EPOCH.pattern}\Z")]
    incarnation: Position
    upto: Position
    base: Position


class Step(NamedTuple):
    """The effect of a batch on a link.

    `mark` is the new mark at the receiver, `gap` a range (from, to] of positions that the sender has lost, if any.
    `taken_back`: the sender's log was restored to an earlier position than it had sent.
    """

    mark: Mark | None
    gap: tuple[int, int] | None = None
    taken_back: bool = False


class RangeAhead(Conflict):
    """The batch begins beyond the link's present `mark`: an earlier one has not arrived, or the receiver lost it."""

    code = "range_ahead"

    def __init__(self, mark: Mark, after: int) -> None:
        super().__init__(f"this batch begins after position {after}, the link stands at {mark.upto}")
        self.mark = mark


def follow(mark: Mark | None, covered: Range) -> Step:
    """Return how a link's mark at the receiver changes with a batch; a repair or an older incarnation changes nothing.

    Raises RangeAhead when the batch begins beyond the mark and does not report everything between them as lost; a
    receiver may first wait for the batch in between.
    """
    if covered.repair:
        return Step(mark)
    if mark is None or mark.epoch != covered.epoch:
        base = covered.after if covered.lost is None else covered.lost
        gap = (base, covered.after) if base < covered.after else None
        return Step(_mark(covered, upto=covered.upto, base=base), gap=gap)
    if covered.incarnation < mark.incarnation:
        return Step(mark)
    if covered.after > mark.upto:
        if covered.lost is None or covered.lost > mark.upto:
            raise RangeAhead(mark, covered.after)
        return Step(_mark(covered, upto=covered.upto, base=mark.base), gap=(mark.upto, covered.after))
    if covered.incarnation > mark.incarnation:
        new = _mark(covered, upto=covered.upto, base=min(mark.base, covered.after))
        return Step(new, taken_back=covered.after < mark.upto)
    return Step(_mark(covered, upto=max(mark.upto, covered.upto), base=mark.base))


def _mark(covered: Range, *, upto: int, base: int) -> Mark:
    return Mark(epoch=covered.epoch, incarnation=covered.incarnation, upto=upto, base=base)
