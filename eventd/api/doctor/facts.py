"""What doctor judges: plain values, which `reading.py` reads. Times and durations in microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventd.log.core.id_conflicts import ConflictCount
from eventd.resources.kinds.federation_slo import EXPIRES_SOON, LAG_FAIL, LAG_WARN

AREA = "federation"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on a group's figures are a warning or a failure. In whole seconds and numbers of runs."""

    lag_warn: int = LAG_WARN
    lag_fail: int = LAG_FAIL
    expires_soon: int = EXPIRES_SOON
    max_pending_runs: int = 0
    max_failed_runs: int = 0


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """How the way to a peer is. `noticed` is False as long as no node has taken notice of the peer."""

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
        """Whether nothing can go over it until somebody puts something right."""
        return self.state in ("blocked", "failed")


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What became of the live events that are meant for a peer.

    `delivered` counts the `stale` ones, whose refresh is still on its way. What waits is `failed` when the link refuses
    everything, `pending` otherwise. `missing` are neither delivered nor on their way; of the `unproven` the proof has
    been forgotten. `letters` are dead letters that can be tried again, `refused_again` those of them that the peer
    refuses each time, `spent_letters` those that cannot be tried any more.
    `expires_in` is how long the first of all of them has to live, `pending_expires_in` the first of the `pending`, and
    `lost_in` the first of all that the peer does not have: `pending`, `refused_waiting` and `letters`. The oldest of
    those that wait, refreshes included, has been ready to be sent for `waiting_for`.
    Of what the link has passed, the newest `looked_at` are counted, and that is all if it is `in_full`; of what waits
    there may be less than told unless it is `ahead_in_full`.
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
        """Dead letters, and what waits on a link that refuses everything."""
        return self.letters + self.refused_waiting

    @property
    def events(self) -> int:
        """All that the peer should have, in any state."""
        return self.delivered + self.pending + self.failed + len(self.missing) + self.unproven


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """A peer and all that is known of it. `trouble` says why it could not be read; then nothing else is known."""

    group: str
    node: str
    endpoint: str
    link: LinkFacts = LinkFacts()
    deliveries: Deliveries = Deliveries()
    lost_before: bool = False
    trouble: str = ""

    @property
    def name(self) -> str:
        """As it stands in the names of checks."""
        return f"{self.group}/{self.node}"


@dataclass(frozen=True, slots=True)
class Runs:
    """What became of the events of one subscription: each counts as a run, in its latest state.

    `failed` are those that were parked, and what waits while nothing can be run; there may be more of `failed` and
    `pending` unless they are counted `in_full`. `link` is how the subscription itself is; at `lost_at` retention took
    events from it the last time.
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
        """All of them."""
        return self.succeeded + self.failed + self.pending


@dataclass(frozen=True, slots=True)
class Gaps:
    """What one sender said it lost (`lost`), or took back (`taken_back`): so many times, the last time at `last_at`."""

    node: str
    reason: str
    times: int
    last_at: int


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One group. `has_own`: a live event of this node is stored. `aside`: the parts of its subscriptions that are of no
    effect, by source, each with the reason.

    Only a running node knows of `v1_requests`, which came in since its start, and why it could not read its keys again.
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
