"""Damage: the content of events and deliveries is edited in the files of the lake."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.campaign.damage import Damage, Scene
from tests.support.campaign.damages.absence import HELD, OWN
from tests.support.campaign.lake_files import SegmentFile

YEAR_2100 = datetime(2100, 1, 1, tzinfo=UTC)
_SAME = 'before.events b JOIN after.events a USING (node, epoch, "group", seq)'
EDITED = f"SELECT 'altered', node, b.id FROM {_SAME} WHERE b IS DISTINCT FROM a AND b.id = a.id"
"""The events of which a node's row is not what it was."""
BY_ANY = f"""
    SELECT DISTINCT 'altered', n.node, b.id FROM {_SAME}, (VALUES ('a'), ('b'), ('c')) n(node)
    WHERE b IS DISTINCT FROM a
"""
"""The same events at any node: findings about a pair name both of its nodes."""


def _edit(node: str, source: str, **changes: Any) -> Callable[[Scene], None]:
    """Return a damage: one event of `source` is edited at `node`; a callable is given the old value."""

    def inflict(scene: Scene) -> None:
        name = scene.pick(HELD.format(node=node, source=source))
        scene.lake.change("events", node, lambda row: row["id"] == name, lambda row: row | _edited(row, changes))

    return inflict


def _edited(row: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: change(row[name]) if callable(change) else change for name, change in changes.items()}


def _other_content(scene: Scene) -> None:
    """Make a peer's row that of another content: digest and fingerprint fit each other."""
    name = scene.pick(HELD.format(node="c", source="a"))
    digest = hashlib.sha256(b"another event").digest()
    change = {"digest": digest, "fingerprint": int.from_bytes(digest[:8], signed=True)}
    scene.lake.change("events", "c", lambda row: row["id"] == name, lambda row: row | change)


def _everywhere(scene: Scene) -> None:
    name = scene.pick(OWN.format(node="b"))
    for node in ("a", "b", "c"):
        scene.lake.change("events", node, lambda row: row["id"] == name, lambda row: row | {"subject": "10.9.9.9/32"})


def _everywhere_without_payload(scene: Scene) -> None:
    """Edit a subject at all nodes, and remove the payload that could be compared with the digest."""
    name = scene.pick(OWN.format(node="b"))
    change = {"subject": "10.9.9.9/32", "payload": None}
    for node in ("a", "b", "c"):
        scene.lake.change("events", node, lambda row: row["id"] == name, lambda row: row | change)


def _renamed(scene: Scene) -> None:
    name = scene.pick(HELD.format(node="c", source="b"))
    scene.lake.change("events", "c", lambda row: row["id"] == name, lambda row: row | {"id": f"{name}-x"})


def _invented(scene: Scene) -> None:
    """Replace the last event of `a` in the ledger of a peer by one that its source never recorded."""
    segment = scene.lake.segments("events", "b")[-1]
    rows = segment.rows()
    last = max((row for row in rows if row["group"] == "edge" and row["source"] == "a"), key=lambda row: row["seq"])
    digest = hashlib.sha256(b"an invented event").digest()
    change = {"id": "invented", "digest": digest, "fingerprint": int.from_bytes(digest[:8], signed=True)}
    segment.write([row if row is not last else row | change | {"payload": None} for row in rows])


def _invented_later(scene: Scene) -> None:
    """Add an event to the ledger of a peer that its source never recorded, with a time after the source's ledger."""
    segment = scene.lake.segments("events", "c")[-1]
    rows, upto = segment.rows(), segment.facts["upto"] + 1
    about = next(row for row in reversed(rows) if (row["group"], row["source"]) == ("edge", "a"))
    seq = max(row["seq"] for row in rows if row["group"] == "edge") + 1
    digest = hashlib.sha256(b"an invented event").digest()
    change = {"id": "invented", "digest": digest, "fingerprint": int.from_bytes(digest[:8], signed=True)}
    place = {"number": upto, "position": upto, "seq": seq, "recorded_at": datetime(2040, 1, 1, tzinfo=UTC)}
    longer = SegmentFile(segment.data.with_name(f"{segment.data.stem.rpartition('-')[0]}-{upto:020}.parquet"))
    shutil.copyfile(segment.data, longer.data)
    longer.manifest.write_text(json.dumps(segment.facts | {"upto": upto}))
    longer.write([*rows, about | change | place | {"payload": None}])
    segment.remove()

    def extend(state: dict[str, Any]) -> None:
        state["head"] = state["books"]["events"] = state["segments"]["events"]["upto"] = upto
        for group in state["groups"]:
            group["last_seq"] += group["group"] == "edge"
            for peer in group["peers"]:
                peer["cursor"] = upto

    scene.lake.set_state("c", extend)


def _delivery(scene: Scene) -> None:
    name = scene.pick(OWN.format(node="a"))
    scene.lake.change(
        "deliveries", "a", lambda row: row["id"] == name and row["peer"] == "c", lambda row: row | {"fingerprint": 7}
    )


def _repair_flag(scene: Scene) -> None:
    scene.lake.change("deliveries", "a", lambda row: row["repair"], lambda row: row | {"repair": False})


_OF_EVENT = ("id", "source", "type", "fingerprint", "event_at", "bytes")


def _add_delivery(scene: Scene, event: str, peer: str) -> None:
    """Add a delivery of an event of `a` to the last batch that `b` sent to a peer."""
    rows = (row for segment in scene.lake.segments("deliveries", "a") for row in segment.rows())
    about = next(row for row in rows if row["id"] == event)
    other = scene.lake.segments("deliveries", "b")[-1]
    batch = [row for row in other.rows() if row["peer"] == peer and row["group"] == "edge"][-1]
    scene.lake.add("deliveries", "b", [batch | {name: about[name] for name in _OF_EVENT}])


def _second_sender(scene: Scene) -> None:
    name = scene.pick("""SELECT id FROM before.deliveries WHERE node = 'a' AND peer = 'c' AND outcome = 'delivered'
                         AND id LIKE 'a-3-%'""")
    _add_delivery(scene, name, "c")


def _back_to_source(scene: Scene) -> None:
    name = scene.pick("SELECT id FROM before.deliveries WHERE node = 'a' AND peer = 'b' AND id LIKE 'a-3-%'")
    _add_delivery(scene, name, "a")


def _claimed_for_a_silent_peer(scene: Scene) -> None:
    """Remove a batch that `a` sent to `c`, claim its events for the batch before, and remove the ledgers of `c`."""
    batches = scene.ledgers.column("""SELECT batch_id FROM before.receipts WHERE node = 'a' AND peer = 'c'
                                      AND accepted > 0 ORDER BY number""")
    kept, gone = batches[-2:]
    rows = [row for segment in scene.lake.segments("deliveries", "a") for row in segment.rows()]
    named = next(row for row in rows if row["batch_id"] == kept)
    of_batch = {name: value for name, value in named.items() if name not in (*_OF_EVENT, "position", "seq")}
    moved = [row | of_batch for row in rows if row["batch_id"] == gone]
    for ledger in ("deliveries", "receipts"):
        scene.lake.remove(ledger, "a", lambda row: row["batch_id"] == gone)
    scene.lake.add("deliveries", "a", moved)
    scene.lake.remove_node("c")


def _receipt_of_delivery(scene: Scene) -> None:
    name = scene.pick(OWN.format(node="a"))
    other = scene.ledgers.column("SELECT receipt_digest FROM before.receipts WHERE node = 'b' AND accepted > 0")[0]
    scene.lake.change(
        "deliveries",
        "a",
        lambda row: row["id"] == name and row["peer"] == "b" and not row["repair"],
        lambda row: row | {"receipt_digest": other},
    )


def _lost_at_peer(scene: Scene) -> str:
    """Remove an event that a peer got from its ledger, and close the gap in its seqs; return the id."""
    name: str = scene.pick(HELD.format(node="c", source="a"))
    rows = [row for segment in scene.lake.segments("events", "c") for row in segment.rows()]
    seq = next(row["seq"] for row in rows if row["id"] == name)
    scene.lake.remove("events", "c", lambda row: row["id"] == name)
    scene.lake.change(
        "events",
        "c",
        lambda row: row["group"] == "edge" and row["seq"] > seq,
        lambda row: row | {"seq": row["seq"] - 1},
    )

    def lower(state: dict[str, Any]) -> None:
        for group in state["groups"]:
            group["last_seq"] -= group["group"] == "edge"

    scene.lake.set_state("c", lower)
    return name


def _late_arrival(scene: Scene) -> None:
    """Date the arrival of an event that the peer has lost after the end of the peer's ledger."""
    name = _lost_at_peer(scene)
    scene.lake.change(
        "deliveries",
        "a",
        lambda row: row["id"] == name and row["peer"] == "c",
        lambda row: row | {"peer_recorded_at": datetime(2040, 1, 1, tzinfo=UTC)},
    )


_ADDED_ROWS = "after.deliveries ANTI JOIN before.deliveries USING (node, peer, batch_id, id)"
_MORE = f"SELECT DISTINCT 'disagreement', node, batch_id FROM {_ADDED_ROWS}"
_ADDED = f"SELECT 'loop', peer, id FROM {_ADDED_ROWS} UNION {_MORE}"

CONTENT = (
    Damage(
        "subject-edited-at-peer",
        "the subject of an event is edited at a peer that ships no payloads; digest and fingerprint stay",
        "the comparison of the content columns of both nodes",
        _edit("c", "a", subject="10.6.6.6/32"),
        wanted=EDITED,
    ),
    Damage(
        "type-edited-at-source",
        "the type of an event is edited at its source",
        "its digest and the payload; the content columns of the peers",
        _edit("a", "a", type="w"),
        wanted=EDITED,
    ),
    Damage(
        "time-edited-at-peer",
        "the time of an event is moved by two hours at a peer",
        "its row at the source, which has another time",
        _edit("c", "b", event_at=lambda at: at - timedelta(hours=2)),
        wanted=EDITED,
    ),
    Damage(
        "expiry-added-at-source",
        "an event is given an expiry that it did not have, at a source that ships no payloads",
        "the comparison of the content columns of both nodes",
        _edit("c", "c", expires_at=YEAR_2100),
        wanted=EDITED,
    ),
    Damage(
        "payload-edited-at-peer",
        "the payload of an event is edited at a peer; digest and fingerprint stay",
        "the digest, computed again from the payload in the lake",
        _edit("b", "a", payload='{"n":"666"}'),
        wanted=EDITED,
    ),
    Damage(
        "payload-edited-at-source",
        "the payload of an event is edited at its source; digest and fingerprint stay",
        "the digest, computed again from the payload in the lake",
        _edit("a", "a", payload='{"n":"666"}'),
        wanted=EDITED,
    ),
    Damage(
        "other-content-at-peer",
        "digest and fingerprint of an event are replaced at a peer, as if it held another content",
        "the fingerprints of both nodes",
        _other_content,
        wanted=EDITED,
    ),
    Damage(
        "fingerprint-edited",
        "the fingerprint of an event is edited, its digest stays",
        "the digest, of which the fingerprint must be the beginning",
        _edit("c", "c", fingerprint=12345),
        wanted=EDITED,
        allowed=BY_ANY,
    ),
    Damage(
        "edited-everywhere",
        "the subject of an event is edited at all nodes alike; digest and fingerprint stay",
        "the digest, computed again where the payload is in the lake",
        _everywhere,
        wanted=f"{EDITED} AND node IN ('a', 'b')",
        allowed=BY_ANY,
    ),
    Damage(
        "edited-everywhere-without-payload",
        "the subject of an event is edited at all nodes alike, and its payload is in no ledger",
        "",
        _everywhere_without_payload,
        blind=True,
    ),
    Damage(
        "event-renamed-at-peer",
        "an event at a peer is given another id",
        "its digest, which is that of the event of another id at the source",
        _renamed,
        wanted=f"SELECT 'altered', node, b.id FROM {_SAME} WHERE a.id <> b.id",
    ),
    Damage(
        "event-invented-at-peer",
        "the last event at a peer is replaced by one that its source never recorded",
        "the ledger of its source; the delivery, which the peer no longer holds",
        _invented,
        wanted=f"""
            SELECT 'forged', node, a.id FROM {_SAME} WHERE a.id <> b.id
            UNION SELECT 'disagreement', node, b.id FROM {_SAME} WHERE a.id <> b.id
        """,
    ),
    Damage(
        "delivery-fingerprint-edited",
        "the fingerprint in a delivery is edited",
        "the fingerprint of the event at the source",
        _delivery,
        wanted="""
            SELECT 'altered', node, id FROM before.deliveries b JOIN after.deliveries a USING (node, peer, batch_id, id)
            WHERE a.fingerprint <> b.fingerprint
        """,
    ),
    Damage(
        "repair-called-delivery",
        "the mark of a repair that an operator asked for is removed",
        "the second delivery of the same event; the receipt of its batch, which has the mark",
        _repair_flag,
        wanted="SELECT 'duplicate', node, id FROM before.deliveries WHERE repair",
        allowed="SELECT 'forged', node, batch_id FROM before.deliveries WHERE repair UNION ALL"
        " SELECT 'altered', node, batch_id FROM before.deliveries WHERE repair",
    ),
    Damage(
        "second-sender",
        "a delivery is added to the ledger of a node that never sent the event",
        "the delivery of the node that did; the receipt's counts",
        _second_sender,
        wanted=_ADDED,
    ),
    Damage(
        "delivered-to-its-source",
        "a delivery of an event to its own source is added",
        "the source in the row itself; the receipt's counts",
        _back_to_source,
        wanted=_ADDED,
    ),
    Damage(
        "delivery-claimed",
        "a batch that was never sent is noted as part of another one, to a peer that ships no ledgers",
        "the receipt of that batch, which counts fewer events than the ledger has deliveries",
        _claimed_for_a_silent_peer,
        wanted=_MORE,
    ),
    Damage(
        "delivery-of-another-receipt",
        "a delivery names the receipt of another batch",
        "the receipt of its batch",
        _receipt_of_delivery,
        wanted="""
            SELECT 'altered', node, batch_id
            FROM before.deliveries b JOIN after.deliveries a USING (node, peer, batch_id, id)
            WHERE a.receipt_digest <> b.receipt_digest
        """,
    ),
    Damage(
        "event-invented-later",
        "an event that its source never recorded is added to a peer's ledger, with a time after all ledgers",
        "the state of the peer, which is older than the row",
        _invented_later,
        unproven="promises a later row",
        named=frozenset("c"),
    ),
    Damage(
        "arrival-edited",
        "an event is removed from a peer's ledger, and its delivery names a time after the end of that ledger",
        "the receipt of the batch, which has another time",
        _late_arrival,
        wanted="""
            SELECT 'altered', node, batch_id
            FROM before.deliveries b JOIN after.deliveries a USING (node, peer, batch_id, id)
            WHERE a.peer_recorded_at <> b.peer_recorded_at
        """,
    ),
)
