"""How long a subscription collects events before its plugin runs, and the resulting batch.

Pure: times are passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from eventd.egress.loop.collecting import Window
from eventd.egress.subscriptions.trigger import TriggerEvent

MOST_EVENTS = 1024
"""Maximum number of events in one run."""
MOST_BYTES = 4 << 20
"""Bytes of events after which a window closes at once."""
MOST_SEEN = 8 * MOST_EVENTS
"""A window closes after this many records, or `MOST_SEEN_BYTES` bytes of records, even if the plugin gets few of
them."""
MOST_SEEN_BYTES = 4 * MOST_BYTES


@dataclass(slots=True)
class RunWindow:
    """The events collected for a run; for `batch_window`, `debounce` and the times see `Window`.

    Of several events with the same key only the last counts; events that only revoke others do not count.
    """

    batch_window: int | None
    debounce: int | None
    most: int = MOST_EVENTS
    seen: list[TriggerEvent] = field(default_factory=list)
    _kept: dict[tuple[str, str], TriggerEvent] = field(default_factory=dict)
    _seen_bytes: int = 0
    _window: Window = field(init=False)

    def __post_init__(self) -> None:
        self._window = Window(self.batch_window, self.debounce, self.most, MOST_BYTES)

    def add(self, found: Iterable[TriggerEvent], *, shift: int = 0) -> None:
        """Add events in log order. `shift`: the microseconds by which the wall clock was set back since it opened."""
        for one in found:
            self.seen.append(one)
            self._seen_bytes += one.record.size
            if one.runs:
                before = self._kept.pop(one.key, None)
                self._kept[one.key] = one
                self._window.add(one.record.recorded_at + shift, one.record.size)
                if before is not None:
                    self._window.replace(before.record.size)

    @property
    def room(self) -> int:
        """Return how many more events for the plugin fit."""
        return self._window.room

    @property
    def room_bytes(self) -> int:
        """Return approximately how many more bytes fit."""
        return self._window.room_bytes

    @property
    def is_full(self) -> bool:
        """Return whether the window closes now, because it has reached a limit of events or bytes."""
        most = len(self.seen) >= MOST_SEEN or self._seen_bytes >= MOST_SEEN_BYTES
        return most or self._window.is_full

    @property
    def quiet(self) -> int:
        """Return 0: each record may extend the window, or take the place of an earlier one."""
        return 0

    def closes_in(self, now: int) -> int:
        """Return in how many microseconds it closes without new events; 0: at once, or no event is for the plugin."""
        return 0 if self.is_full else self._window.closes_in(now)


@dataclass(frozen=True, slots=True)
class RunBatch:
    """The events of one run. `seen` are the matching and revoking events in `(after, upto]`, in log order.

    `kept` are the events the plugin gets, sorted by time of observation; of several with one type and dedupe key only
    the last one, and `coalesced` are the ids of the others. `ended` are the subjects whose last event revokes earlier
    ones.
    """

    after: int
    upto: int
    seen: Sequence[TriggerEvent]
    kept: Sequence[TriggerEvent]
    coalesced: Sequence[str]
    ended: Sequence[str]

    @classmethod
    def of(cls, after: int, upto: int, seen: Sequence[TriggerEvent]) -> RunBatch:
        """Return the batch of the collected events."""
        last: dict[tuple[str, str], TriggerEvent] = {}
        kinds: dict[str, bool] = {}
        for one in seen:
            if one.runs:
                last[one.key] = one
            if one.event.subject:
                kinds[one.event.subject] = one.ends
        kept = sorted(last.values(), key=lambda one: (one.record.ts, one.event.id))
        ended = [subject for subject, is_over in kinds.items() if is_over]
        return cls(after, upto, seen, kept, _replaced(seen, kept), ended)

    def first_half(self) -> RunBatch:
        """Return a batch of the first half of `kept` in log order, to find the event that the plugin cannot process.

        An event that a later one of the whole batch replaced stays replaced.
        """
        places = sorted(one.position for one in self.kept)
        upto = places[len(places) // 2 - 1]
        half = RunBatch.of(self.after, upto, [one for one in self.seen if one.position <= upto])
        kept = [one for one in self.kept if one.position <= upto]
        return replace(half, kept=kept, coalesced=_replaced(half.seen, kept))


def _replaced(seen: Sequence[TriggerEvent], kept: Sequence[TriggerEvent]) -> list[str]:
    """Return, in log order, the ids of events that later ones of the batch replace."""
    ids = {one.event.id for one in kept}
    return [*dict.fromkeys(one.event.id for one in seen if one.runs and one.event.id not in ids)]
