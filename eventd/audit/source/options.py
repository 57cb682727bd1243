"""What a reader of the format "eventd" is asked for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from eventd.errors import Invalid
from eventd.lake.schema import Book


class OnGap(StrEnum):
    """What to do about rows that are gone, or that cannot be trusted."""

    FAIL = "fail"
    SKIP = "skip"


class Starting(StrEnum):
    """Where a stream without a checkpoint begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Answer(StrEnum):
    """Yes or no."""

    YES = "true"
    NO = "false"


class Where(StrEnum):
    """What the rows are read from."""

    LAKE = "lake"
    URL = "url"
    DATABASE = "database"


class Options(NamedTuple):
    """The options, judged. `nodes` and `epochs` are empty where all are wanted.

    `rows_per_partition` is what one task reads, `rows_per_batch` what one batch of a stream takes (0: all there is);
    both are about so many. `places` are lakes, addresses of nodes or databases, as `where` says; `in_files`: files that
    hold such an address. What is secret is read by whoever uses it: options travel, files do not. `states`: not a book
    is asked for, but what nodes say of theirs.
    """

    where: Where
    places: tuple[str, ...]
    book: Book
    nodes: tuple[str, ...] = ()
    epochs: tuple[str, ...] = ()
    in_files: bool = False
    key_file: str = ""
    rows_per_partition: int = 1_000_000
    rows_per_batch: int = 0
    on_gap: OnGap = OnGap.FAIL
    starting: Starting = Starting.EARLIEST
    payloads: bool = False
    states: bool = False

    def wants(self, node: str, epoch: str) -> bool:
        """Whether this history of this node is asked for."""
        return (not self.nodes or node in self.nodes) and (not self.epochs or epoch in self.epochs)


NAMES: Final = (
    *("lake", "url", "database", "databaseFile", "book", "node", "epoch", "keyFile"),
    *("rowsPerPartition", "maxRowsPerBatch", "onGap", "startingOffsets", "payloads"),
)
"""Every option, as it is documented. Spark knows no case, and an underline does not matter either."""
STATES: Final = "states"
"""What `book` is where no book is meant, but what nodes say of theirs."""
_KNOWN: Final = {name.lower(): name for name in NAMES}
_BEFORE_ADDRESS: Final = re.compile(r",(?=\s*(?:[a-z0-9+]+://|/))")
"""A comma between two databases: there may be others within the address of one."""
ChoiceT = TypeVar("ChoiceT", bound=StrEnum)
_PLACES: Final = ("lake", "url", "database", "databasefile", "path")


def read_options(given: Mapping[str, str]) -> Options:
    """Judge what was given. Raises Invalid."""
    said = {name.lower().replace("_", ""): value.strip() for name, value in given.items()}
    for name in said:
        if name not in _KNOWN and name != "path":
            close = difflib.get_close_matches(name, _KNOWN, 1)
            meant = f": did you mean {_KNOWN[close[0]]}?" if close else ""
            raise Invalid(f'the format "eventd" has no option {name}{meant}', hint=f"it has {', '.join(NAMES)}")
    where, places = _origin(said)
    states = said.get("book", "") == STATES
    if states and where is not Where.LAKE:
        raise Invalid(
            f"the book {STATES} is read from a lake alone, and {where.value} is given",
            hint=f"nodes put their {STATES} into the lake they ship to",
        )
    return Options(
        where=where,
        places=places,
        in_files=bool(said.get("databasefile")),
        book=Book.EVENTS if states else _choice(said, "book", Book, Book.EVENTS, STATES),
        nodes=_listed(said.get("node", "")),
        epochs=_listed(said.get("epoch", "")),
        key_file=said.get("keyfile", ""),
        rows_per_partition=_count(said, "rowsPerPartition", Options._field_defaults["rows_per_partition"], 1),
        rows_per_batch=_count(said, "maxRowsPerBatch", 0, 0),
        on_gap=_choice(said, "onGap", OnGap, OnGap.FAIL),
        starting=_choice(said, "startingOffsets", Starting, Starting.EARLIEST),
        payloads=_choice(said, "payloads", Answer, Answer.NO) is Answer.YES,
        states=states,
    )


def _origin(said: Mapping[str, str]) -> tuple[Where, tuple[str, ...]]:
    """Where the rows are; `load(path)` is a lake, and an address of a database may be kept in a file."""
    named = [name for name in _PLACES if said.get(name)]
    if len(named) != 1:
        told = f"{' and '.join(_KNOWN.get(name, name) for name in named)} are given" if named else "none is given"
        raise Invalid(
            f'the format "eventd" reads from one of lake, url and database, and {told}',
            hint='.option("lake", "/path"), .option("url", "http://node:8780") or .option("database", "sqlite:///…")',
        )
    (name,) = named
    if name in ("database", "databasefile"):
        return Where.DATABASE, tuple(part.strip() for part in _BEFORE_ADDRESS.split(said[name]))
    where = Where.LAKE if name == "path" else Where(name)
    places = _listed(said[name])
    if where is Where.URL and (bad := [place for place in places if not place.startswith(("http://", "https://"))]):
        raise Invalid(f"the option url holds {bad[0]}, which does not begin with http:// or https://")
    return where, places


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for one in text.split(",") if (part := one.strip()))


def _count(said: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = said.get(name.lower(), "") or str(default)
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise Invalid(f"the option {name} is {text}, and must be a number of at least {least}")
    return int(text)


def _choice(said: Mapping[str, str], name: str, kind: type[ChoiceT], default: ChoiceT, *others: str) -> ChoiceT:
    """What is chosen; `others` can be chosen, too, and were looked for before."""
    text = said.get(name.lower(), "") or default.value
    try:
        return kind(text)
    except ValueError:
        raise Invalid(f"the option {name} is {text}, and must be one of {', '.join([*kind, *others])}") from None
