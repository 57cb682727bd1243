"""The input of doctor's checks: plain values, read by `reading.py`. Times and durations in microseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eventd.log.core.id_conflicts import ConflictCount
from eventd.log.core.missing_records import MissingRecords
from eventd.log.delivery.acknowledgements import NO_LOSSES, LinkLosses
from eventd.resources.group_configuration import GroupConfig
from eventd.resources.kinds.federation_slo import EXPIRES_SOON, LAG_FAIL, LAG_WARN

AREA = "federation"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The limits of a group's checks, in whole seconds or numbers of runs.

    Checks report lags of at least `lag_warn` or `lag_fail`, expiries in less than `expires_soon`, and more runs than
    the other two limits.
    """

    lag_warn: int = LAG_WARN
    lag_fail: int = LAG_FAIL
    expires_soon: int = EXPIRES_SOON
    max_pending_runs: int = 0
    max_failed_runs: int = 0


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """The state of the link to a peer, or of a subscription. `registered`: its cursor has been created."""

    registered: bool = True
    state: str = "running"
    reason: str = ""
    since: int | None = None
    last_error: str = ""
    retry_at: int | None = None
    paused_by: str = ""
    protocol: str = ""

    @property
    def is_refused(self) -> bool:
        """Return whether the link is blocked or failed: nothing can be sent until an operator fixes the cause."""
        return self.state in ("blocked", "failed")


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The outcome of the events that are meant for a peer.

    All of these events are live, except `expired`, `spent_letters` and some `in_path` ones. `delivered` includes the
    `stale` ones, whose refresh is still pending. The backlog counts as `refused_waiting` while the link is blocked or
    failed, else as `pending`, which always includes the events that a repair has yet to send. `missing` holds the ids
    of events that are neither delivered nor pending; of the `unproven` events, retention may have deleted the ledger
    row that proved the delivery. `letters` counts the dead letters that can be retried (if very many, old ones are not
    checked), `refused_again` those of them that the peer refuses every time, `taken_id` the id of the newest one that
    another event has at the peer, and `spent_letters` the dead letters that can no longer be retried.
    `expires_in` is the time until the first delivered, waiting or retryable event expires,
    `pending_expires_in` until the first of the `pending` ones, and `lost_in` until the first that the peer does not
    have: `pending`, `refused_waiting` or in `letters`. `max_lag` is the longest time from when a delivered event could
    be sent to its acknowledgement, without repairs; None if no delivery counts. The last delivery that took at least
    `lag_warn` of the group was acknowledged at `late_at`, `late_ago` before: negative if the clock was ahead then. The
    oldest event of the backlog, refreshes included, has been ready to be sent for `waiting_for`. Of the events that the
    link's cursor has passed, the newest `looked_at` are counted, which are all of them if `in_full`; the numbers of the
    backlog are exact only if `ahead_in_full`, and upper bounds otherwise.
    """

    delivered: int = 0
    stale: int = 0
    pending: int = 0
    refused_waiting: int = 0
    letters: int = 0
    refused_again: int = 0
    taken_id: str = ""
    spent_letters: int = 0
    missing: Sequence[str] = ()
    unproven: int = 0
    expired: int = 0
    in_path: int = 0
    refused: int = 0
    max_lag: int | None = None
    late_at: int | None = None
    late_ago: int | None = None
    expires_in: int | None = None
    pending_expires_in: int | None = None
    lost_in: int | None = None
    waiting_for: int | None = None
    looked_at: int = 0
    in_full: bool = True
    ahead_in_full: bool = True

    @property
    def failed(self) -> int:
        """Return the number of dead letters that can be retried, plus the backlog of a blocked or failed link."""
        return self.letters + self.refused_waiting

    @property
    def events(self) -> int:
        """Return how many events the peer should have or get: delivered, pending, failed, missing and unproven ones."""
        return self.delivered + self.pending + self.failed + len(self.missing) + self.unproven


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """A peer and its measured values. `trouble`: why `link` and `deliveries` could not be read; they are then unknown.

    `lost_before`: how many unexpired events retention removed at most that the link has not reached yet; `losses`:
    those that it has passed since.
    """

    group: str
    node: str
    endpoint: str
    link: LinkFacts = LinkFacts()
    deliveries: Deliveries = Deliveries()
    lost_before: int = 0
    losses: LinkLosses = NO_LOSSES
    trouble: str = ""

    @property
    def name(self) -> str:
        """Return the name used in checks: `GROUP/NODE`."""
        return f"{self.group}/{self.node}"


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of one subscription, counted by event: an event of two successful runs counts once.

    `failed` counts dead letters, and the backlog while the subscription is blocked or failed; at any other time the
    backlog is `pending`, unless it only waits for the window to end. Unless `in_full`, there may be more: only the
    newest runs and one page of the backlog are counted. `waiting_for` is the age of the oldest event of the backlog
    beyond its window, None if it is not known. `link` is the state of the subscription. `lost_at`: when it last noticed
    that retention had removed events which it had not reached.
    """

    subscription: str
    succeeded: int = 0
    failed: int = 0
    pending: int = 0
    in_full: bool = True
    waiting_for: int | None = None
    link: LinkFacts = LinkFacts()
    lost_at: int | None = None

    @property
    def total(self) -> int:
        """Return the number of runs, counted by event."""
        return self.succeeded + self.failed + self.pending


@dataclass(frozen=True, slots=True)
class Gaps:
    """The gaps that one sender (`node`) reported for one `reason`: their number (`times`), and when the last was
    recorded.

    The reason is `lost` (the sender lost events before it could send them) or `taken_back` (the sender's log went back
    to an earlier state). `positions` of its log are in them: as many events or fewer.
    """

    node: str
    reason: str
    times: int
    last_at: int
    positions: int


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The input of the checks of one group.

    `refused_handshakes` counts the connections and requests that were refused because of TLS in the last hour, by
    reason.
    `has_own`: a live event that this node emitted was found among the newest ones. `aside`: the source of each
    ineffective part of its subscriptions, and the reason.

    Only a running node knows `v1_requests`, how many verified v1 requests this process got since its start, and
    `keys_trouble`, why the files of the group's keys cannot be read now (empty: they can).

    `lost`: ranges without a stored record, the newest first; of a very long log, the newest part. `unstored`: how many
    of their events have not been stored again since. `waits`: how many events over the limits of retention are kept, by
    what retention waits for.
    """

    name: str
    slo: Thresholds = Thresholds()
    slo_defined: bool = False
    has_own: bool = False
    peers: Sequence[PeerFacts] = ()
    runs: Sequence[Runs] = ()
    gaps: Sequence[Gaps] = ()
    aside: Sequence[tuple[str, str]] = ()
    conflicts: Sequence[ConflictCount] = ()
    lost: Sequence[MissingRecords] = ()
    unstored: int = 0
    waits: Mapping[str, int] = field(default_factory=dict)
    v1_requests: int = 0
    keys_trouble: str = ""
    refused_handshakes: Mapping[str, int] = field(default_factory=dict)
    config: GroupConfig | None = None
