"""The options of the format "eventd"."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from eventd.audit.source.filters import RowCondition
from eventd.errors import Invalid
from eventd.lake.address import shown
from eventd.lake.schema import Ledger


class OnGap(StrEnum):
    """Whether a read fails at rows that are missing or corrupt, or skips them."""

    FAIL = "fail"
    SKIP = "skip"


class Starting(StrEnum):
    """The start position of a stream without a checkpoint."""

    EARLIEST = "earliest"
    LATEST = "latest"


class YesNo(StrEnum):
    """The values of an option that is on or off."""

    YES = "true"
    NO = "false"


class OriginKind(StrEnum):
    """The kind of place that rows are read from; `url` is the API of a node."""

    LAKE = "lake"
    URL = "url"
    DATABASE = "database"


class SourceOptions(NamedTuple):
    """The validated options of a read or a stream. Empty `nodes` and `epochs` select all.

    `rows_per_partition` is about how many rows a task reads, `rows_per_batch` about how many a stream's batch takes
    (0: no limit). `places` are lakes, addresses of nodes or databases, as `where` says; with `in_files`, files that
    hold the address of a database. Tasks read secrets from files, because Spark sends options in clear text.
    `states`: read the states of nodes instead of the ledger `book`. `push_filters`: use the conditions of the query.
    `conditions` are these, which no option names: rows that do not meet them need not be read.
    """

    where: OriginKind
    places: tuple[str, ...]
    book: Ledger
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
    push_filters: bool = False
    conditions: tuple[RowCondition, ...] = ()

    def wants(self, node: str, epoch: str) -> bool:
        """Return whether this epoch of this node is selected, and may have rows that meet the conditions."""
        if (self.nodes and node not in self.nodes) or (self.epochs and epoch not in self.epochs):
            return False
        named = {"node": node, "epoch": epoch}
        return all(one.accepts(named[one.column]) for one in self.conditions if one.column in named)


NAMES: Final = (
    *("lake", "url", "database", "databaseFile", "book", "node", "epoch", "keyFile"),
    *("rowsPerPartition", "maxRowsPerBatch", "onGap", "startingOffsets", "payloads", "pushFilters"),
)
"""All options as documented. Spark ignores case; underscores are ignored, too."""
STATES: Final = "states"
"""The value of `book` for the states of nodes instead of a ledger."""
_KNOWN: Final = {name.lower(): name for name in NAMES}
_BEFORE_ADDRESS: Final = re.compile(r",(?=\s*(?:[a-z0-9+]+://|/))")
"""A comma between two databases; an address may contain other commas."""
ChoiceT = TypeVar("ChoiceT", bound=StrEnum)
_PLACES: Final = ("lake", "url", "database", "databasefile", "path")


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Return the validated options, with defaults, from those that Spark passes. Raises Invalid."""
    given = {name.lower().replace("_", ""): value.strip() for name, value in given.items()}
    for name in given:
        if name not in _KNOWN and name != "path":
            close = difflib.get_close_matches(name, _KNOWN, 1)
            meant = f": did you mean {_KNOWN[close[0]]}?" if close else ""
            raise Invalid(f'the format "eventd" has no option {name}{meant}', hint=f"use one of {', '.join(NAMES)}")
    where, places = _origin(given)
    states = given.get("book", "") == STATES
    if states and where is not OriginKind.LAKE:
        raise Invalid(
            f"the book {STATES} can be read from a lake only, not from a {where.value}",
            hint="name the lake that the nodes ship to",
        )
    return SourceOptions(
        where=where,
        places=places,
        in_files=bool(given.get("databasefile")),
        book=Ledger.EVENTS if states else _choice(given, "book", Ledger, Ledger.EVENTS, STATES),
        nodes=_listed(given.get("node", "")),
        epochs=_listed(given.get("epoch", "")),
        key_file=given.get("keyfile", ""),
        rows_per_partition=_count(given, "rowsPerPartition", SourceOptions._field_defaults["rows_per_partition"], 1),
        rows_per_batch=_count(given, "maxRowsPerBatch", 0, 0),
        on_gap=_choice(given, "onGap", OnGap, OnGap.FAIL),
        starting=_choice(given, "startingOffsets", Starting, Starting.EARLIEST),
        payloads=_choice(given, "payloads", YesNo, YesNo.NO) is YesNo.YES,
        states=states,
        push_filters=_choice(given, "pushFilters", YesNo, YesNo.NO) is YesNo.YES,
    )


def _origin(given: Mapping[str, str]) -> tuple[OriginKind, tuple[str, ...]]:
    """Return the kind of origin and its places. The option `path`, which Spark sets for `load(path)`, names a lake.

    The places of `databaseFile` are files that hold the address of a database. Raises Invalid.
    """
    named = [name for name in _PLACES if given.get(name)]
    if len(named) != 1:
        found = f"{' and '.join(_KNOWN.get(name, name) for name in named)} are given" if named else "none is given"
        raise Invalid(
            f'the format "eventd" reads from one of lake, url, database and databaseFile, and {found}',
            hint='write .option("lake", "/path"), .option("url", "http://node:8780") or .option("database", "sqlite:///…")',
        )
    (name,) = named
    if name in ("database", "databasefile"):
        return OriginKind.DATABASE, tuple(part.strip() for part in _BEFORE_ADDRESS.split(given[name]))
    where = OriginKind.LAKE if name == "path" else OriginKind(name)
    places = _listed(given[name])
    if where is OriginKind.URL and (
        bad := [place for place in places if not place.startswith(("http://", "https://"))]
    ):
        raise Invalid(
            f"the option url holds {shown(bad[0])}, which does not begin with http:// or https://",
            hint="write the address of a node's API, such as http://node:8780",
        )
    return where, places


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for one in text.split(",") if (part := one.strip()))


def _count(given: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = given.get(name.lower(), "") or str(default)
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise Invalid(f"the option {name} is {text}, and must be a whole number of at least {least}")
    return int(text)


def _choice(given: Mapping[str, str], name: str, kind: type[ChoiceT], default: ChoiceT, *others: str) -> ChoiceT:
    """Return the chosen value of an enumeration. Raises Invalid, whose message also lists the values `others`."""
    text = given.get(name.lower(), "") or default.value
    try:
        return kind(text)
    except ValueError:
        raise Invalid(f"the option {name} is {text}, and must be one of {', '.join([*kind, *others])}") from None
