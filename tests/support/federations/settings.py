"""Everything that ledgers of a test or a bench can be asked for."""

from __future__ import annotations

from eventd.audit.generate.settings import Settings, check
from eventd.errors import Invalid


class FullSettings(Settings, frozen=True, kw_only=True):
    """`peers` is how many peers each node has (None: all other nodes).

    Faults: `disagree` deliveries that only one side knows, `corrupt` segments, `epoch` changes. No faults: events that
    `expire`, `dead_letter` refusals, `retry` batches that took several attempts, `pending` events that no peer has yet,
    `silent` nodes that ship no ledgers; `in_path`: one node is reached through another only; `selectors`: some peers do
    not select every type.
    """

    groups: int = 1
    types: int = 12
    peers: int | None = None
    segment_rows: int = 1_000_000
    payloads: bool = False
    in_path: bool = False
    selectors: bool = False
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
    def waiting(self) -> int:
        """The node that has events which no peer has yet."""
        return self.nodes - 2

    @property
    def special(self) -> int:
        """Events that must be there to be faulty or otherwise special, at the most."""
        return super().special + self.disagree + self.expire + self.dead_letter


def check_full(settings: FullSettings) -> None:
    """Raise Invalid where no such ledgers exist."""
    check(settings)
    if not 1 <= settings.fanout < settings.nodes:
        raise Invalid(f"peers is {settings.peers}", hint=f"it can be 1 to {settings.nodes - 1}")
    if settings.in_path and (settings.nodes < 6 or settings.peers is not None):
        raise Invalid("in_path needs 6 nodes or more that are all peers", hint="add nodes, leave out peers")
    if settings.silent > max(0, settings.nodes - 4):
        raise Invalid(f"silent is {settings.silent}", hint="four nodes or more have to ship their ledgers")
    if settings.epoch > settings.nodes - settings.silent:
        raise Invalid("epoch is more than there are nodes with ledgers", hint="a node changes its epoch once")
