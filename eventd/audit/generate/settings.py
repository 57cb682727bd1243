"""What books to make, and what to hide in them."""

from __future__ import annotations

from typing import Final

import msgspec

from eventd.errors import Invalid
from eventd.runtime.clock import SECOND

MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
START: Final = 1_767_571_200 * SECOND
"""2026-01-05T00:00:00Z: the same books every time need a beginning that does not move."""
LATEST: Final = 7_258_118_400 * SECOND
"""The year 2200."""
TAIL: Final = 20 * MINUTE
"""Nothing happens so long before the end: everything that was sent has arrived, whatever the clocks say."""
MOST_TYPES: Final = 64


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The same settings make the same files, byte for byte. Times are microseconds.

    `events` is what all nodes together state; each goes to every peer of its node, and `peers` says how many those
    are (None: all other nodes). `skew`: a node's clock is wrong by up to so much, either way. The rest counts what is
    hidden in the books. Faults: `lose` events at one peer each, `duplicate` deliveries, `forge` events or receipts,
    `loop` deliveries to a source or by a second sender, `disagree` deliveries of which only one side knows, `corrupt`
    segments, `epoch` changes. No faults: events that `expire`, `dead_letter` refusals, `retry` batches that took
    several attempts, `pending` events that nobody has got yet; `in_path`: one node is reached through another only,
    `selectors`: some peers do not get every type, and `silent` nodes that ship no books.
    """

    nodes: int = 5
    events: int = 100_000
    seed: int = 1
    groups: int = 1
    types: int = 12
    peers: int | None = None
    start: int = START
    span: int = 24 * HOUR
    skew: int = 0
    segment_rows: int = 1_000_000
    payloads: bool = False
    in_path: bool = False
    selectors: bool = False
    lose: int = 0
    duplicate: int = 0
    forge: int = 0
    loop: int = 0
    disagree: int = 0
    corrupt: int = 0
    epoch: int = 0
    expire: int = 0
    dead_letter: int = 0
    retry: int = 0
    pending: int = 0
    silent: int = 0

    @property
    def fanout(self) -> int:
        """Peers of one node."""
        return self.nodes - 1 if self.peers is None else self.peers

    @property
    def end(self) -> int:
        """When the books were closed."""
        return self.start + self.span

    @property
    def waiting(self) -> int:
        """The node that has events which nobody has got yet."""
        return self.nodes - 2

    @property
    def hidden(self) -> int:
        """Events that must be there to be faulty or otherwise special, at the most."""
        return self.lose + self.duplicate + self.forge + self.loop + self.disagree + self.expire + self.dead_letter


def check(settings: Settings) -> Settings:
    """The settings as they are. Raises Invalid where no such books exist."""
    for name, least, most in _BOUNDS:
        value = getattr(settings, name)
        if not least <= value <= most:
            raise Invalid(f"--{name.replace('_', '-')} is {value}", hint=f"it can be {least:,} to {most:,}")
    if not 1 <= settings.fanout < settings.nodes:
        raise Invalid(f"--peers is {settings.peers}", hint=f"it can be 1 to {settings.nodes - 1}")
    if not HOUR <= settings.span <= 366 * 24 * HOUR:
        raise Invalid("the books span less than an hour or more than a year", hint="change --span")
    if not 0 <= settings.start <= LATEST:
        raise Invalid("--start is not between the years 1970 and 2200", hint="leave it out, or give another")
    if settings.skew > 12 * HOUR:
        raise Invalid("--skew is more than twelve hours", hint="give less")
    if settings.in_path and (settings.nodes < 6 or settings.peers is not None):
        raise Invalid("--in-path needs 6 nodes or more that are all peers", hint="add nodes, leave out --peers")
    if settings.silent > max(0, settings.nodes - 4):
        raise Invalid(f"--silent is {settings.silent}", hint="four nodes or more have to ship their books")
    if settings.epoch > settings.nodes - settings.silent:
        raise Invalid("--epoch is more than there are nodes with books", hint="a node changes its epoch once")
    if 20 * settings.hidden > settings.events:
        raise Invalid("too much is to be hidden in too few events", hint="raise --events: twenty for each of them")
    return settings


_COUNTS: Final = (
    *("lose", "duplicate", "forge", "loop", "disagree", "corrupt", "epoch"),
    *("expire", "dead_letter", "retry", "pending", "silent", "skew"),
)
_BOUNDS: Final = (
    ("nodes", 2, 500),
    ("events", 1, 10**10),
    ("groups", 1, 100),
    ("types", 1, MOST_TYPES),
    ("segment_rows", 1_000, 10**8),
    ("seed", 0, 2**32 - 1),
    *((name, 0, 10**12) for name in _COUNTS),
)
