"""The input of doctor's checks: plain values, read by `reading.py`. Times and durations in microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventd.log.core.id_conflicts import ConflictCount
from eventd.resources.kinds.federation_slo import EXPIRES_SOON, LAG_FAIL, LAG_WARN

AREA = "federation"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The limits above which a group's figures are a warning or a failure. In whole seconds and numbers of runs."""

    lag_warn: int = LAG_WARN
    lag_fail: int = LAG_FAIL
    expires_soon: int = EXPIRES_SOON
    max_pending_runs: int = 0
    max_failed_runs: int = 0


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """The state of the link to a peer. `noticed` is False until a node has registered the peer."""

    noticed: bool = True
    state: str = "running"
    reason: str = ""
    since: int | None = None
    last_error: str = ""
    retry_at: int | None = None
    paused_by: str = ""
    protocol: str = ""

    @property
    def is_refused(self) -> bool:
        """Return whether nothing can be sent until an operator fixes the cause."""
        return self.state in ("blocked", "failed")


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The outcome of the live events that are meant for a peer.

    `delivered` includes the `stale` ones, whose refresh is still pending. The backlog is `failed` when the link refuses
    everything, `pending` otherwise. `missing` are neither delivered nor pending; `unproven` ones have lost their
    evidence to retention. `letters` are dead letters that can be retried, `refused_again` those of them that the peer
    refuses every time, `spent_letters` those that can no longer be retried. `expires_in` is the time until the first of
    all expires, `pending_expires_in` that of the `pending`, and `lost_in` that of the events that the peer does not
    have: `pending`, `refused_waiting` and `letters`. The oldest event of the backlog, refreshes included, has been
    ready for `waiting_for`. Of the events that the link has passed, the newest `looked_at` are counted, which are all
    if `in_full`; the backlog is counted completely only if `ahead_in_full`.
    """

    delivered: int = 0
    stale: int = 0
    pending: int = 0
    refused_waiting: int = 0
    letters: int = 0
    refused_again: int = 0
    spent_letters: int = 0
    missing: Sequence[str] = ()
    unproven: int = 0
    expired: int = 0
    in_path: int = 0
    refused: int = 0
    max_lag: int | None = None
    expires_in: int | None = None
    pending_expires_in: int | None = None
    lost_in: int | None = None
    waiting_for: int | None = None
    looked_at: int = 0
    in_full: bool = True
    ahead_in_full: bool = True

    @property
    def failed(self) -> int:
        """Return the dead letters, and the backlog of a link that refuses everything."""
        return self.letters + self.refused_waiting

    @property
    def events(self) -> int:
        """Return all events that the peer should have, in any state."""
        return self.delivered + self.pending + self.failed + len(self.missing) + self.unproven


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """A peer and its measured values. `trouble` says why it could not be read; the others are then unknown."""

    group: str
    node: str
    endpoint: str
    link: LinkFacts = LinkFacts()
    deliveries: Deliveries = Deliveries()
    lost_before: bool = False
    trouble: str = ""

    @property
    def name(self) -> str:
        """Return the name used in checks."""
        return f"{self.group}/{self.node}"


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of one subscription's events: each event counts as one run, in its latest state.

    `failed` are dead letters, and the backlog while nothing can be run; `failed` and `pending` are minimums unless
    counted `in_full`. `link` is the state of the subscription; retention last evicted events from it at `lost_at`.
    """

    subscription: str
    succeeded: int = 0
    failed: int = 0
    pending: int = 0
    in_full: bool = True
    link: LinkFacts = LinkFacts()
    lost_at: int | None = None

    @property
    def total(self) -> int:
        """Return the number of runs."""
        return self.succeeded + self.failed + self.pending


@dataclass(frozen=True, slots=True)
class Gaps:
    """Gaps that one sender reported (`lost`) or took back (`taken_back`), with their number and the time of
    the last."""

    node: str
    reason: str
    times: int
    last_at: int


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One group. `has_own`: a live event of this node is stored. `aside`: ineffective parts of its subscriptions, by
    source, each with the reason.

    Only a running node knows `v1_requests`, which it received since its start, and why it could not read its keys
    again.
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
    v1_requests: int = 0
    keys_trouble: str = ""
