"""What an audit is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from eventd.audit.assembly.delta_tables import TableFormat
from eventd.audit.coverage.silence import PATIENCE
from eventd.audit.receipts.receipt_terms import ReceiptKey, ReceiptTerms
from eventd.audit.report.objectives import ANY, Condition, Objective, Objectives
from eventd.audit.review.earlier import EarlierReport
from eventd.audit.segments.cells import ALL_HOURS, HOUR
from eventd.audit.spark.access import Access
from eventd.audit.spark.locations import Location, require_apart
from eventd.audit.spark.masters import is_server
from eventd.audit.spark.session import expected_master, is_remote, master_of
from federation.history.notes import NoteKey
from federation.keys import Key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


RECHECK = 5.0
"""Default percentage, by bytes, of the segments of earlier runs whose digests a run checks again."""


class Places(NamedTuple):
    """Where the lake and the output of an audit are."""

    lake: Location
    out: Location

    @property
    def by_spark(self) -> bool:
        """Return whether the lake or the output can be reached only after Spark has been started."""
        return self.lake.by_spark or self.out.by_spark


@dataclass(frozen=True)
class AuditRequest:
    """A request for an audit. `lake` and `out` are paths or fsspec addresses; no repr shows them.

    `since` and `until` are microseconds of the events' own time, widened to whole hours (None: no bound). `full`:
    discard the state of earlier audits, and read all segments of these hours; see also `discards`. `master`: the Spark
    master, empty for this machine. `patience`: a node counts as silent only if its last report is older than this
    (microseconds), see `find_silences`. `recheck`: the percentage, by bytes, of known segments of these hours whose
    digests are checked again. `receipts`: the percentage of the receipts that are checked, `keys` the keys to verify
    them with. `digests`: the percentage of the events with payloads whose contents are compared with their digests.
    `memory`: what Spark may take on this machine, as Spark writes it. `access`: how the files of lake and output are
    reached. `baseline`: the report to compare the findings with. `count_acknowledged`: acknowledged findings count for
    the conditions on which the audit fails, too. `signing_key`: signs the report. `table_format`: whether its tables
    are written as Delta tables, too. `time_zone`: the zone of the times on the page. `without_ledgers`: the nodes that
    are known to ship no ledgers; their missing ledgers leave nothing unproven. `history`: the percentage of the tiles
    of trees that are computed from rows; `policy`: the keys of trees that the auditor knows; None: no policy was given.
    """

    lake: str = field(repr=False)
    out: str = field(repr=False)
    since: int | None = None
    until: int | None = None
    objectives: Objectives = field(default_factory=lambda: {ANY: Objective()})
    conditions: Sequence[Condition] = ()
    full: bool = False
    master: str = field(default="", repr=False)
    patience: int = PATIENCE
    recheck: float = RECHECK
    memory: str = "2g"
    access: Access = Access.AUTO
    baseline: EarlierReport | None = None
    count_acknowledged: bool = False
    signing_key: Key | None = None
    receipts: float = 100.0
    digests: float = 100.0
    keys: tuple[ReceiptKey, ...] = ()
    table_format: TableFormat = TableFormat.PARQUET
    time_zone: str = "UTC"
    without_ledgers: tuple[str, ...] = ()
    history: float = 100.0
    policy: tuple[NoteKey, ...] | None = None

    @property
    def receipt_terms(self) -> ReceiptTerms:
        """Return the terms by which receipts are checked."""
        return ReceiptTerms(self.receipts, self.keys)

    def places(self, spark: SparkSession | None = None) -> Places:
        """Return where lake and output are, for a running Spark, or as far as it is known before it runs.

        Raises Invalid if one of them is the other, or lies in it.
        """
        master = expected_master(self.master) if spark is None else master_of(spark)
        remote = is_server(self.master) if spark is None else is_remote(spark)
        alternative = "use --storage fsspec"
        lake = Location(self.lake, self.access.is_by_spark(self.lake, master), alternative=alternative)
        by_spark = self.access.writes_by_spark(self.out, master, remote=remote)
        places = Places(lake, Location(self.out, by_spark, "output folder", alternative))
        require_apart(*places)
        return places

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the addresses of which messages must not show the secrets."""
        return self.lake, self.out, self.master

    @property
    def hours(self) -> tuple[int, int]:
        """Return the requested hours as [first, last), counted from 1970; a missing bound lies beyond all events."""
        first = ALL_HOURS[0] if self.since is None else self.since // HOUR
        return first, ALL_HOURS[1] if self.until is None else -(-self.until // HOUR)

    @property
    def discards(self) -> bool:
        """Return whether the history of earlier audits is discarded, which a full audit of all hours does."""
        return self.full and self.since is None and self.until is None

    @property
    def end(self) -> int | None:
        """Return the end of the last requested hour (microseconds); None if the request has no `until`."""
        return None if self.until is None else self.hours[1] * HOUR
