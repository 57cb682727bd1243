"""Damage: rows are removed from the files of the lake, with manifests that fit what is left."""

from __future__ import annotations

from typing import Any

from tests.support.campaign.damage import Damage, Scene

OWN = "SELECT id FROM before.events WHERE node = '{node}' AND source = '{node}' AND \"group\" = 'edge' ORDER BY seq"
"""The events that a node emitted."""
HELD = "SELECT id FROM before.events WHERE node = '{node}' AND source = '{source}' AND \"group\" = 'edge' ORDER BY seq"

GONE_EVENTS = """
    SELECT node, "group", seq, id, source FROM before.events
    ANTI JOIN after.events USING (node, epoch, "group", seq)
"""
GONE_DELIVERIES = """
    SELECT node, peer, "group", id, source, batch_id FROM before.deliveries
    ANTI JOIN after.deliveries USING (node, peer, batch_id, id)
"""
GONE_RECEIPTS = "SELECT node, peer, batch_id FROM before.receipts ANTI JOIN after.receipts USING (node, peer, batch_id)"
GONE_INBOUND = "SELECT node, peer, batch_id FROM before.inbound ANTI JOIN after.inbound USING (node, peer, batch_id)"
GONE_WITH_EVENTS = """
    SELECT 'disagreement', node, batch_id FROM before.receipts ANTI JOIN after.receipts USING (node, peer, batch_id)
    WHERE NOT repair AND accepted + duplicates > 0
"""
BOUNDS_OF_HOLES = f"""
    SELECT 'erased', node, min(seq) || '-' || max(seq)
    FROM (SELECT node, "group", seq, seq - row_number() OVER (PARTITION BY node, "group" ORDER BY seq) AS run
          FROM ({GONE_EVENTS}))
    GROUP BY node, "group", run
"""
"""The holes that the removed events leave, each as a range of seqs."""


def _events_at_peer(scene: Scene) -> None:
    ids = scene.pick_run(HELD.format(node="b", source="a"), 2)
    scene.lake.remove("events", "b", lambda row: row["id"] in ids)


def _events_at_source(scene: Scene) -> None:
    ids = scene.pick_run(OWN.format(node="a"), 3)
    scene.lake.remove("events", "a", lambda row: row["id"] in ids)


def _events_everywhere(scene: Scene) -> None:
    ids = scene.pick_run(OWN.format(node="b"), 2)
    for node in ("a", "b", "c"):
        scene.lake.remove("events", node, lambda row: row["id"] in ids)
    scene.lake.remove("deliveries", "b", lambda row: row["id"] in ids)


def _events_with_their_batches(scene: Scene) -> None:
    """Remove an event that had a batch of its own at each peer, so that no count of a receipt is left to betray it."""
    alone = scene.pick("""
        SELECT id FROM before.deliveries WHERE "group" = 'edge'
            AND batch_id IN (SELECT batch_id FROM before.deliveries GROUP BY ALL HAVING count(*) = 1)
        GROUP BY id HAVING count(*) = 2
    """)
    batches = set(scene.ledgers.column("SELECT batch_id FROM before.deliveries WHERE id = $1", alone))
    source = scene.ledgers.column("SELECT source FROM before.events WHERE id = $1", alone)[0]
    for node in ("a", "b", "c"):
        scene.lake.remove("events", node, lambda row: row["id"] == alone)
        if node != source:
            scene.lake.remove("inbound", node, lambda row: row["batch_id"] in batches)
    for ledger in ("deliveries", "receipts"):
        scene.lake.remove(ledger, source, lambda row: row["batch_id"] in batches)


def _all_events_of_node(scene: Scene) -> None:
    """Remove all events that `b` emitted in a group from all ledgers, with all rows of the batches that had them."""
    for node in ("a", "b", "c"):
        scene.lake.remove("events", node, lambda row: (row["group"], row["source"]) == ("edge", "b"))
    for ledger in ("deliveries", "receipts"):
        scene.lake.remove(ledger, "b", lambda row: row["group"] == "edge")
    for node in ("a", "c"):
        scene.lake.remove("inbound", node, lambda row: (row["group"], row["peer"]) == ("edge", "b"))


def _node_with_its_events(scene: Scene) -> None:
    """Remove all files of `c`, and at the other nodes all events that it emitted, with the batches that had them."""
    scene.lake.remove_node("c")
    for node in ("a", "b"):
        scene.lake.remove("events", node, lambda row: row["source"] == "c")
        scene.lake.remove("inbound", node, lambda row: row["peer"] == "c")


def _events_called_evicted(scene: Scene) -> None:
    """Remove an event in the same way, and say in all states that retention has evicted the events up to the last."""
    _events_with_their_batches(scene)

    def evict(state: dict[str, Any]) -> None:
        for group in state["groups"]:
            group["evicted_seq"] = group["last_seq"]

    for node in ("a", "b", "c"):
        scene.lake.set_state(node, evict)


def _events_called_lost(scene: Scene) -> None:
    """Do the same, and declare in manifests that the node has lost any events, for a reason that no node gives."""
    _events_called_evicted(scene)
    for node in ("a", "b", "c"):
        epoch = scene.lake.state(node)["epoch"]
        lost = [[group, "", epoch, 0, 1_000_000, 0, "events_x"] for group in ("edge", "line")]
        scene.lake.segments("events", node)[-1].describe(lost=lost)


def _first_events(scene: Scene) -> None:
    scene.lake.remove("events", "a", lambda row: row["group"] == "edge" and row["seq"] <= 3)


def _deliveries(scene: Scene) -> None:
    ids = scene.pick_run(OWN.format(node="a"), 2)
    scene.lake.remove("deliveries", "a", lambda row: row["peer"] == "b" and row["id"] in ids and not row["repair"])


def _batches_at_sender(scene: Scene) -> None:
    batch = scene.pick("""SELECT batch_id FROM before.receipts WHERE node = 'a' AND peer = 'b' AND "group" = 'edge'
                          AND NOT repair""")
    for ledger in ("deliveries", "receipts"):
        scene.lake.remove(ledger, "a", lambda row: row["batch_id"] == batch)


def _relayed_batch_at_sender(scene: Scene) -> None:
    batch = scene.pick("SELECT batch_id FROM before.receipts WHERE node = 'a' AND \"group\" = 'line'")
    for ledger in ("deliveries", "receipts"):
        scene.lake.remove(ledger, "a", lambda row: row["batch_id"] == batch)


def _link_at_sender(scene: Scene) -> None:
    for ledger in ("deliveries", "receipts"):
        scene.lake.remove(ledger, "a", lambda row: row["peer"] == "c")

    def undeclare(state: dict[str, Any]) -> None:
        for group in state["groups"]:
            group["peers"] = [peer for peer in group["peers"] if peer["peer"] != "c"]

    scene.lake.set_state("a", undeclare)


def _link_to_callback(scene: Scene) -> None:
    for ledger in ("deliveries", "receipts"):
        scene.lake.change(ledger, "a", lambda row: row["peer"] == "c", lambda row: row | {"peer": "a/callback:feed"})

    def rename(state: dict[str, Any]) -> None:
        for peer in (peer for group in state["groups"] for peer in group["peers"] if peer["peer"] == "c"):
            peer["peer"] = "a/callback:feed"

    scene.lake.set_state("a", rename)


def _receipts_alone(scene: Scene) -> None:
    batch = scene.pick("""SELECT batch_id FROM before.receipts WHERE node = 'b' AND peer = 'c' AND "group" = 'edge'""")
    scene.lake.remove("receipts", "b", lambda row: row["batch_id"] == batch)


def _inbound(scene: Scene) -> None:
    batch = scene.pick("""SELECT batch_id FROM before.inbound WHERE node = 'c' AND peer = 'b' AND "group" = 'edge'""")
    scene.lake.remove("inbound", "c", lambda row: row["batch_id"] == batch)


def _batch_at_receiver(scene: Scene) -> None:
    """Remove a batch of the second round and its events, so that nothing of its time is left at the receiver."""
    batch, at = scene.pick("""SELECT DISTINCT i.batch_id, i.recorded_at FROM before.inbound i
                              JOIN before.deliveries d USING (batch_id)
                              WHERE i.node = 'b' AND i.peer = 'a' AND i."group" = 'edge' AND d.id LIKE 'a-2-%'""")
    scene.lake.remove("inbound", "b", lambda row: row["batch_id"] == batch)
    scene.lake.remove("events", "b", lambda row: row["recorded_at"] == at and not row["own"])


def _delivered_called_expired(scene: Scene) -> None:
    name = scene.pick(OWN.format(node="c"))

    def expire(row: dict[str, object]) -> dict[str, object]:
        return row | {"outcome": "expired", "status": 0}

    scene.lake.change("deliveries", "c", lambda row: row["peer"] == "a" and row["id"] == name, expire)


def _first_events_of_new_group(scene: Scene) -> None:
    """Give the last events of a group the seqs from 1 on, as if it had been deleted and declared again; remove some."""
    first = scene.ledgers.column("SELECT min(seq) FROM before.events WHERE node = 'c' AND id LIKE 'line-3-%'")[0]

    def again(row: dict[str, object]) -> dict[str, object] | None:
        seq = int(str(row["seq"])) - first + 1
        return row | {"seq": seq} if seq > 2 else None

    scene.lake.change("events", "c", lambda row: row["group"] == "line" and row["seq"] >= first, again)

    def number(state: dict[str, Any]) -> None:
        (line,) = (group for group in state["groups"] if group["group"] == "line")
        line["last_seq"] -= first - 1

    scene.lake.set_state("c", number)


def _relayed_at_hub(scene: Scene) -> None:
    name = scene.pick("SELECT id FROM before.events WHERE node = 'b' AND \"group\" = 'line'")
    scene.lake.remove("events", "b", lambda row: row["id"] == name)


ABSENCE = (
    Damage(
        "events-gone-at-peer",
        "rows of events are removed from a peer's ledger",
        "the hole in its seqs, and the sender's deliveries",
        _events_at_peer,
        wanted=f"SELECT 'erased', node, id FROM ({GONE_EVENTS})",
        allowed=f"SELECT 'disagreement', node, id FROM ({GONE_EVENTS})",
    ),
    Damage(
        "events-gone-at-source",
        "rows of events are removed from their source's ledger",
        "the hole in its seqs; the peers' ledgers have the ids",
        _events_at_source,
        wanted=f"SELECT 'erased', node, id FROM ({GONE_EVENTS})",
    ),
    Damage(
        "events-gone-everywhere",
        "events are removed from the ledgers of all nodes, with their deliveries",
        "the holes in the seqs of all nodes, and the counts of receipts",
        _events_everywhere,
        wanted=BOUNDS_OF_HOLES,
        allowed=f"""
            SELECT 'erased', node, batch_id FROM ({GONE_DELIVERIES})
            UNION SELECT 'erased', node, id FROM ({GONE_DELIVERIES})
        """,
    ),
    Damage(
        "events-gone-with-their-batches",
        "an event is removed from all ledgers, with its batches and receipts",
        "the holes in the seqs and in the numbers of all nodes",
        _events_with_their_batches,
        wanted=BOUNDS_OF_HOLES,
    ),
    Damage(
        "events-called-evicted",
        "the same, and all states say that retention has evicted the events up to the last",
        "the holes in the seqs: no node declares a gap there",
        _events_called_evicted,
        wanted=BOUNDS_OF_HOLES,
    ),
    Damage(
        "events-called-lost",
        "the same, and manifests declare the loss of any events, for a reason that no node gives",
        "the reason itself: such a manifest is not valid; the holes in the seqs",
        _events_called_lost,
        wanted="SELECT 'corrupt', unnest(['a', 'b', 'c']), '*'",
        allowed=BOUNDS_OF_HOLES,
    ),
    Damage(
        "events-of-a-node-gone-with-their-batches",
        "all events that a node emitted in a group are removed from all ledgers, with their batches and receipts",
        "the holes in the seqs and in the numbers of all nodes",
        _all_events_of_node,
        wanted=BOUNDS_OF_HOLES,
    ),
    Damage(
        "node-gone-with-its-events",
        "all files of a node are removed, and all events and batches that other nodes have from it",
        "the holes in the seqs and in the numbers of the other nodes",
        _node_with_its_events,
        wanted=f"SELECT * FROM ({BOUNDS_OF_HOLES}) AS hole(kind, node, id) WHERE node <> 'c'",
    ),
    Damage(
        "first-events-gone",
        "the first rows of a ledger are removed",
        "its state, which promises rows from the beginning",
        _first_events,
        wanted=f"SELECT 'erased', node, id FROM ({GONE_EVENTS})",
    ),
    Damage(
        "first-events-of-new-group-gone",
        "the first rows of a group are removed that was deleted and declared again",
        "the hole before its first seq, because the seqs begin at 1 again",
        _first_events_of_new_group,
        wanted="SELECT 'erased', node, id FROM before.events ANTI JOIN after.events USING (node, id)",
    ),
    Damage(
        "relayed-event-gone-at-hub",
        "an event is removed from the ledger of the node that relays it",
        "the hole in its seqs, and its own deliveries of that event",
        _relayed_at_hub,
        wanted=f"SELECT 'erased', node, id FROM ({GONE_EVENTS})",
        allowed=f"SELECT 'disagreement', node, id FROM ({GONE_EVENTS})",
    ),
    Damage(
        "deliveries-gone",
        "rows of deliveries are removed, the receipts stay",
        "the receipts, which count more events than the ledger has deliveries",
        _deliveries,
        wanted=f"""
            SELECT 'disagreement', node, id FROM ({GONE_DELIVERIES})
            UNION SELECT 'erased', node, batch_id FROM ({GONE_DELIVERIES})
        """,
    ),
    Damage(
        "batches-gone-at-sender",
        "a batch is removed from the sender's ledgers, deliveries and receipt",
        "the peer's ledger, which has the events and the batch",
        _batches_at_sender,
        wanted=f"""
            SELECT 'disagreement', node, id FROM ({GONE_DELIVERIES})
            UNION SELECT 'disagreement', node, batch_id FROM ({GONE_RECEIPTS})
        """,
    ),
    Damage(
        "relayed-batch-gone-at-sender",
        "the same, where another node relays the events and has a link back to the peer",
        "the peer's ledger, which has the events; that they came through the peer excuses only the other node",
        _relayed_batch_at_sender,
        wanted=f"""
            SELECT 'disagreement', node, id FROM ({GONE_DELIVERIES})
            UNION SELECT 'disagreement', node, batch_id FROM ({GONE_RECEIPTS})
        """,
    ),
    Damage(
        "link-gone-at-sender",
        "a link is removed from the sender's ledgers and from its state, with all deliveries and receipts",
        "the peer's ledger of batches",
        _link_at_sender,
        wanted=GONE_WITH_EVENTS,
        unproven="c recorded batches of a that the ledgers of a do not show",
        shrinks=True,
    ),
    Damage(
        "link-renamed-at-sender",
        "the same, where its rows and its declaration name a callback instead",
        "the peer's ledger of batches",
        _link_to_callback,
        wanted=GONE_WITH_EVENTS,
    ),
    Damage(
        "receipts-gone",
        "a receipt is removed, its deliveries stay",
        "the deliveries, which name the batch",
        _receipts_alone,
        wanted=f"SELECT 'erased', node, batch_id FROM ({GONE_RECEIPTS})",
    ),
    Damage(
        "inbound-gone",
        "the receiver's row of a batch is removed",
        "the sender's receipt of that batch",
        _inbound,
        wanted=f"SELECT 'erased', node, batch_id FROM ({GONE_INBOUND})",
    ),
    Damage(
        "batch-gone-at-receiver",
        "a batch is removed from the receiver's ledgers, events and row; the audit has the keys",
        "the hole in its seqs, and the sender's receipt, which the receiver has signed",
        _batch_at_receiver,
        wanted=f"""
            SELECT 'erased', node, batch_id FROM ({GONE_INBOUND})
            UNION SELECT 'erased', node, id FROM ({GONE_EVENTS})
        """,
        keys=True,
    ),
    Damage(
        "delivered-called-expired",
        "a delivery is turned into an expired one",
        "the receipt's counts, and the event, which never expires",
        _delivered_called_expired,
        wanted="""
            SELECT 'disagreement', node, id
            FROM before.deliveries JOIN after.deliveries USING (node, peer, batch_id, id)
            WHERE before.deliveries.outcome <> after.deliveries.outcome
        """,
        allowed="""
            SELECT 'erased', node, batch_id
            FROM before.deliveries JOIN after.deliveries USING (node, peer, batch_id, id)
            WHERE before.deliveries.outcome <> after.deliveries.outcome
        """,
    ),
)
