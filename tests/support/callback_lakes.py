"""Small lakes with the ledgers of nodes that have callbacks, row by row, for the audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eventd.lake.layout import landing
from eventd.lake.manifest import GroupState, NodeState, PeerState, SegmentRange, Selection, SelectionConditions
from eventd.lake.receivers import receiver_of_callback
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage, make_lake
from eventd.lake.writer import write_segment, write_state
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SECOND
from federation.digest import digest, fingerprint
from tests.support.lakes import NOON, table

Row = dict[str, Any]
ALL: Mapping[str, Any] = {"relay": True}
"""The selection of a callback without conditions."""


@dataclass
class NodeLedgers:
    """The ledgers of one node of the group `g`: position `n` was recorded `n` seconds after noon.

    `events` has (id, source, type) of each position, from 1 on. Each delivery is a batch of its own.
    """

    node: str
    events: Sequence[tuple[str, str, str]]
    callbacks: dict[str, PeerState] = field(default_factory=dict)
    deliveries: list[Row] = field(default_factory=list)
    receipts: list[Row] = field(default_factory=list)

    @property
    def epoch(self) -> str:
        return f"{self.node:a>16}"

    def declare(
        self, name: str, *selections: Mapping[str, Any], begins: int = 0, cursor: int | None = None, version: int = 1
    ) -> str:
        """Add a callback whose cursor has reached the end, unless given; return the name of the receiver."""
        receiver = receiver_of_callback(self.node, name)
        self.callbacks[receiver] = PeerState(
            peer=receiver,
            selections=tuple(
                Selection(version=number, declared_at=NOON, selection=SelectionConditions.of(selection))
                for number, selection in enumerate(selections or (ALL,), start=version)
            ),
            relay=True,
            cursor=len(self.events) if cursor is None else cursor,
            created_at=NOON,
            begins=begins,
        )
        return receiver

    def deliver(
        self, receiver: str, position: int, outcome: str = "delivered", *, after: int | None = None, **more: Any
    ) -> None:
        """Add the ledger rows of one event at a callback: a batch of the positions in (after, position]."""
        id, source, type = self.events[position - 1]
        number = len(self.receipts) + 1
        sent = outcome != "expired"
        at = NOON + (position + number) * SECOND
        shared = {"number": number, "peer": receiver, "protocol": "callback", "key_id": "k1", "batch_id": f"m-{number}"}
        shared |= {"node": self.node, "epoch": self.epoch, "group": "g", "attempts": 1, "status": 204 if sent else 0}
        shared |= {"repair": False, "selector_version": 1, "receipt_digest": "", "peer_recorded_at": None} | more
        row = {"position": position, "seq": position, "id": id, "source": source, "type": type, "outcome": outcome}
        times = {"event_at": NOON, "recorded_at": NOON + position * SECOND, "attempt_at": at, "done_at": at + 1000}
        self.deliveries.append(shared | row | times | {"error": "", "fingerprint": fingerprint(id)})
        version = shared["selector_version"]
        declared = self.callbacks.get(receiver)
        known = {one.version: one.selection for one in (declared.selections if declared else ())}
        unknown = ("accepted", "duplicates", "refused", "peer_upto", "receipt_key_id", "receipt_alg")
        answer = {
            **dict.fromkeys(unknown),
            **{"link_epoch": self.epoch, "after": position - 1 if after is None else after, "upto": position},
            **{
                "selection": known.get(version, SelectionConditions(relay=True)).text,
                "sent_at": at,
                "acked_at": at + 1000,
            },
            **{"receipt": '{"requests":1}', "exceptions": "[]", "sent": int(outcome == "delivered")},
        }
        self.receipts.append(shared | answer)

    def ship(self, lake: Storage) -> None:
        """Write the ledgers and the state to the lake."""
        make_lake(lake, NOON, SYSTEM)
        expired = {row["position"] for row in self.deliveries if row["outcome"] == "expired"}
        held = [
            {
                **{"node": self.node, "epoch": self.epoch, "group": "g", "number": at, "position": at, "seq": at},
                **{
                    "id": id,
                    "source": source,
                    "type": type,
                    "subject": "",
                    "own": source == self.node,
                    "event_at": NOON,
                },
                **{"path": "" if source == self.node else source, "event_at": NOON},
                "expires_at": NOON + at * SECOND if at in expired else None,
                **{
                    "fingerprint": fingerprint(id),
                    "digest": digest(id),
                    "recorded_at": NOON + at * SECOND,
                    "payload": None,
                },
            }
            for at, (id, source, type) in enumerate(self.events, start=1)
        ]
        books = {Ledger.EVENTS: held, Ledger.DELIVERIES: self.deliveries, Ledger.RECEIPTS: self.receipts}
        ends = {}
        for book, rows in books.items():
            ends[book] = SegmentRange(after=0, upto=len(rows))
            if rows:
                place = landing(book, self.node, self.epoch, 0, len(rows), at=NOON)
                write_segment(lake, place, table(book, rows), node=self.node, now=NOON)
        state = NodeState(
            node=self.node,
            epoch=self.epoch,
            instance=self.node,
            began_at=NOON,
            as_of=NOON + 3600 * SECOND,
            head=len(self.events),
            complete_until=NOON + 3600 * SECOND,
            books={book: each.upto for book, each in ends.items()},
            segments=ends,
            groups=(GroupState(group="g", peers=tuple(self.callbacks.values())),),
        )
        write_state(lake, state)
