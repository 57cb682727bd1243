"""Acknowledgements: findings that an operator knows about, with the reason. They lie in the lake, beside the ledgers.

Each acknowledgement is a file of its own, which is never changed, and so is its withdrawal: any number of operators may
write at the same time, also to an object store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from eventd.audit.report.findings import Finding, Kind
from eventd.errors import Conflict, Invalid, NotFound
from eventd.lake.file_sizes import MOST_TEXT, larger
from eventd.lake.layout import ACKNOWLEDGEMENTS, LARGEST
from eventd.lake.listed_files import read_listed
from eventd.lake.manifest import Time, Unreadable, decode, encode
from eventd.lake.schema import SCHEMA_VERSION
from eventd.lake.storage import Storage
from eventd.runtime.chance import Chance
from eventd.runtime.clock import SECOND

LONGEST_NAME: Final = 100
LONGEST_REASON: Final = 1000
CLOCK_MARGIN: Final = 3600 * SECOND
"""How far the clocks of nodes, operators and auditors may differ, in microseconds."""
_ID_BYTES: Final = 6
_WITHDRAWN: Final = "-withdrawn.json"


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """Findings that an operator knows about: by whom, why, and when (microseconds). `id` is random."""

    schema: int = SCHEMA_VERSION
    id: str
    by: str
    reason: str
    at: Time
    findings: tuple[Finding, ...]

    @property
    def events(self) -> int:
        """Return the number of events that it covers, in the findings as they were then."""
        return sum(one.events for one in self.findings)


class Withdrawal(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the acknowledgement `id`: by whom, why, and when (microseconds)."""

    schema: int = SCHEMA_VERSION
    id: str
    by: str
    reason: str
    at: Time


RecordT = TypeVar("RecordT", Acknowledgement, Withdrawal)


class Acknowledgements(NamedTuple):
    """The acknowledgements of a lake, those that were withdrawn with their withdrawal, and files that are not valid.

    Acknowledgements are sorted by time; `unreadable` has the reason by path.
    """

    active: Sequence[Acknowledgement]
    withdrawn: Sequence[tuple[Acknowledgement, Withdrawal]]
    unreadable: dict[str, str]


def read_acknowledgements(lake: Storage) -> Acknowledgements:
    """Read all acknowledgements of a lake. Raises LakeUnavailable."""
    files = [file for file in lake.list(ACKNOWLEDGEMENTS) if file.path.endswith(".json")]
    found: dict[str, Acknowledgement] = {}
    ends: dict[str, Withdrawal] = {}
    unreadable = {}
    for path, text in read_listed(lake, files, MOST_TEXT):
        if text is None:
            unreadable[path] = larger(MOST_TEXT)
            continue
        try:
            if path.endswith(_WITHDRAWN):
                ends[path] = _decoded(path, decode(text, Withdrawal))
            else:
                found[path] = _decoded(path, decode(text, Acknowledgement))
        except Unreadable as error:
            unreadable[path] = str(error)
    in_order = sorted(found.values(), key=lambda one: (one.at, one.id))
    return Acknowledgements(
        [one for one in in_order if _end(one.id) not in ends],
        [(one, ends[_end(one.id)]) for one in in_order if _end(one.id) in ends],
        unreadable,
    )


def known_by(known: Acknowledgements, now: int) -> Acknowledgements:
    """Return the acknowledgements that count at a time, without those dated later: they may cover findings that are
    not known yet."""
    latest = now + CLOCK_MARGIN
    active = [one for one in known.active if one.at <= latest]
    later = (one.id for one in known.active if one.at > latest)
    reasons = {f"{ACKNOWLEDGEMENTS}/{id}.json": "is dated after the audit" for id in later}
    return known._replace(active=active, unreadable={**known.unreadable, **reasons})


def acknowledge(
    lake: Storage, findings: Sequence[Finding], *, by: str, reason: str, now: int, chance: Chance
) -> Acknowledgement:
    """Store and return an acknowledgement of these findings.

    Raises Invalid for a wrong name or reason, and for more findings than readers take in one acknowledgement.
    """
    made = Acknowledgement(
        id=chance.token(_ID_BYTES).hex(),
        by=_checked("--by", by, LONGEST_NAME),
        reason=_checked("--reason", reason, LONGEST_REASON),
        at=now,
        findings=tuple(findings),
    )
    text = encode(made)
    if len(text) > MOST_TEXT:
        raise Invalid(
            f"the acknowledgement {larger(MOST_TEXT)}", hint="acknowledge fewer findings at a time, such as one kind"
        )
    lake.put(f"{ACKNOWLEDGEMENTS}/{made.id}.json", text)
    return made


def withdraw(lake: Storage, id: str, *, by: str, reason: str, now: int) -> Withdrawal:
    """Store and return the withdrawal of an acknowledgement.

    Raises NotFound, Conflict if it is withdrawn already, and Invalid for a wrong name or reason.
    """
    known = read_acknowledgements(lake)
    for one, end in known.withdrawn:
        if one.id == id:
            raise Conflict(f"{end.by} has withdrawn the acknowledgement {id} already")
    if not any(one.id == id for one in known.active):
        raise NotFound(
            f"the lake at {lake.url} has no acknowledgement {id}", hint="list them: routerctl audit acknowledge list"
        )
    made = Withdrawal(
        id=id, by=_checked("--by", by, LONGEST_NAME), reason=_checked("--reason", reason, LONGEST_REASON), at=now
    )
    lake.put(_end(id), encode(made))
    return made


def _end(id: str) -> str:
    return f"{ACKNOWLEDGEMENTS}/{id}{_WITHDRAWN}"


def _decoded(path: str, found: RecordT) -> RecordT:
    """Return the content of a file.

    Raises Unreadable if the content belongs to another file, or names findings that no audit can have: these might
    cover all later findings.
    """
    if path not in (f"{ACKNOWLEDGEMENTS}/{found.id}.json", _end(found.id)):
        raise Unreadable("has the id of another file")
    if isinstance(found, Acknowledgement) and not all(map(_is_possible, found.findings)):
        raise Unreadable("has a finding with numbers that no finding has")
    return found


def _is_possible(finding: Finding) -> bool:
    """Return whether an audit may have a finding with these numbers: a hole has at most as many rows as numbers."""
    numbers = finding.first, finding.last, finding.count
    hole = finding.kind is Kind.ERASED and not finding.peer
    most = finding.last - finding.first + 1 if hole else LARGEST
    return all(-1 <= one <= LARGEST for one in numbers) and finding.count <= most


def _checked(option: str, value: str, most: int) -> str:
    text = value.strip()
    if not text or len(text) > most:
        raise Invalid(f"{option} has {len(text):,} characters", hint=f"write 1 to {most:,}")
    return text
