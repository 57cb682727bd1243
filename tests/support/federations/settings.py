"""Settings of ledgers for tests and benchmarks."""

from __future__ import annotations

from eventd.audit.generate.settings import GeneratorSettings, check
from eventd.errors import Invalid


class FullSettings(GeneratorSettings, frozen=True, kw_only=True):
    """Settings of a full world; `peers` is the number of peers of each node (None: all other nodes).

    Faults: `disagree` deliveries that only one side knows, `corrupt` segments, `epoch` changes. Not faults: events that
    `expire`, `dead_letter` refusals, `retry` batches with several attempts, `pending` events that no peer has yet,
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
        """Return the number of peers of one node."""
        return self.nodes - 1 if self.peers is None else self.peers

    @property
    def waiting(self) -> int:
        """Return the node that has events which no peer has yet."""
        return self.nodes - 2

    @property
    def fault_events(self) -> int:
        """Return an upper bound of the events that must exist to be faulty or otherwise special."""
        return super().fault_events + self.disagree + self.expire + self.dead_letter


def check_full(settings: FullSettings) -> None:
    """Raise Invalid if no such ledgers exist."""
    check(settings)
    if not 1 <= settings.fanout < settings.nodes:
        raise Invalid(f"peers is {settings.peers}", hint=f"it can be 1 to {settings.nodes - 1}")
    if settings.in_path and (settings.nodes < 6 or settings.peers is not None):
        raise Invalid("in_path needs 6 nodes or more that are all peers", hint="add nodes, leave out peers")
    if settings.silent > max(0, settings.nodes - 4):
        raise Invalid(f"silent is {settings.silent}", hint="four nodes or more have to ship their ledgers")
    if settings.epoch > settings.nodes - settings.silent:
        raise Invalid("epoch is more than there are nodes with ledgers", hint="a node changes its epoch once")
