"""Damage: databases of nodes are edited with SQL, between a commit and the next shipping."""

from __future__ import annotations

import json
import re
import shutil

from eventd.runtime.clock import SECOND
from tests.support.campaign.damage import Damage, Scene
from tests.support.campaign.damages.absence import BOUNDS_OF_HOLES, GONE_DELIVERIES, GONE_EVENTS, GONE_INBOUND
from tests.support.campaign.damages.content import EDITED
from tests.support.campaign.damages.receipts import CHANGED
from tests.support.stopped_nodes import ship

_TOPIC = "(SELECT id FROM topics WHERE name = 'group:edge')"
_NEVER = '"expiresAt":"0001-01-01T00:00:00Z"'
"""The expiry of an event without one, as the text of a block has it."""


def _late_blocks(scene: Scene, node: str, source: str) -> list[tuple[int, str]]:
    """Return position and text of the blocks of the last round with events of one source, except the last block."""
    query = f"SELECT position, text FROM blocks WHERE topic_id = {_TOPIC} AND sources = :sources ORDER BY position"
    rows = scene.sql(node, query, sources=json.dumps([source]))
    return [(position, text) for position, text in rows if f'"{source}-3-' in text][:-1]


def _blocks_deleted(scene: Scene) -> None:
    position, _ = scene.chance.choice(_late_blocks(scene, "b", "a"))
    scene.sql("b", "DELETE FROM blocks WHERE position = :position", position=position)


def _edit_block(scene: Scene, node: str) -> None:
    position, text = scene.chance.choice(_late_blocks(scene, node, "a"))
    value = re.search(r'"n":"(\d+)"', text)
    assert value is not None
    digit = "8" if value[1].endswith("9") else "9"
    edited = f"{text[: value.end(1) - 1]}{digit}{text[value.end(1) :]}"
    scene.sql(node, "UPDATE blocks SET text = :text WHERE position = :position", text=edited, position=position)


def _append(
    scene: Scene, node: str, source: str, name: str, *, group: str = "edge", expiry: str = "", text: str = ""
) -> tuple[int, str]:
    """Append an event under a new id to a node's log, a copy of the last one of its source, or with a given text.

    Return its position and its text. With an `expiry`, the event expires then, and otherwise never.
    """
    topic = _TOPIC.replace("edge", group)
    columns = "topic_id, records, bytes, recorded_at, own, expires_first, types, sources, paths, text"
    query = f"""
        SELECT {columns} FROM blocks
        WHERE topic_id = {topic} AND sources = :sources AND types = '["t"]' AND records = 1 ORDER BY position DESC
    """
    row = scene.sql(node, query, sources=json.dumps([source]))[0]
    found = dict(zip(columns.split(", "), row, strict=True))
    old = json.loads(found["text"])["id"]
    new = text or found["text"].replace(old, name)
    if expiry:
        assert _NEVER in new
        new = new.replace(_NEVER, f'"expiresAt":"{expiry}"')
    found |= {"text": new, "bytes": found["bytes"] + len(new) - len(found["text"])}
    ((position, seq),) = scene.sql(
        node, f"SELECT next_position, next_seq FROM log_heads, topics WHERE topics.id = {topic}"
    )
    found |= {"position": position, "seq": seq}
    names = ", ".join(found)
    scene.sql(node, f"INSERT INTO blocks ({names}) VALUES ({', '.join(f':{each}' for each in found)})", **found)
    scene.sql(node, "UPDATE log_heads SET next_position = next_position + 1")
    scene.sql(node, f"UPDATE topics SET next_seq = next_seq + 1 WHERE id = {topic}")
    return int(position), new


def _block_invented(scene: Scene) -> None:
    _append(scene, "b", "a", "invented")


def _cursor_advanced(scene: Scene) -> None:
    """Append an event at its source, and move the cursors of both peers over it."""
    position, _ = _append(scene, "a", "a", "skipped")
    scene.sql("a", "UPDATE cursors SET position = :position WHERE name LIKE 'peer:edge/%'", position=position)


def _batch_feigned(scene: Scene, reason: str = "", expiry: str = "") -> None:
    """Append an event at its source, and note that a batch had nothing to send in its place, perhaps for a reason."""
    position, _ = _append(scene, "a", "a", "skipped", expiry=expiry)
    _feign_batch(scene, "a", "edge/b", position, reason)


def _path_feigned(scene: Scene) -> None:
    """Append an event at its source and at the node that relays it, and note that it came through the relay's peer."""
    _, text = _append(scene, "a", "a", "skipped", group="line")
    position, _ = _append(scene, "b", "a", "skipped", group="line", text=text)
    _feign_batch(scene, "b", "line/c", position, "in_path")


def _feign_batch(scene: Scene, node: str, link: str, position: int, reason: str) -> None:
    """Move the cursor of a link to a position, and add the row of a batch that had nothing to send up to there."""
    cursor = f"peer:{link}"
    scene.sql(node, "UPDATE cursors SET position = :at WHERE name = :name", at=position, name=cursor)
    query = "SELECT * FROM batches WHERE cursor = :name ORDER BY id DESC LIMIT 1"
    columns = [name for _, name, *_ in scene.sql(node, "PRAGMA table_info(batches)")]
    row = dict(zip(columns, scene.sql(node, query, name=cursor)[0], strict=True))
    row |= {"batch_id": f"{row['batch_id'][:-4]}0000", "after": row["upto"], "upto": position, "events": 0, "bytes": 0}
    row |= {"status": 0, "receipt": "", "picked": "", "key_id": ""}
    row["exceptions"] = json.dumps([[position, reason]] if reason else [])
    del row["id"]
    scene.sql(node, f"INSERT INTO batches ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})", **row)


def _last_batches(scene: Scene) -> list[int]:
    rows = scene.sql("a", "SELECT id FROM batches WHERE cursor = 'peer:edge/b' AND picked = '' ORDER BY id")
    return [id for (id,) in rows][-3:-1]


def _batches_deleted(scene: Scene) -> None:
    for id in _last_batches(scene):
        scene.sql("a", "DELETE FROM batches WHERE id = :id", id=id)


def _inbound_deleted(scene: Scene) -> None:
    rows = scene.sql("b", "SELECT id FROM inbound_batches WHERE node = 'a' ORDER BY id")
    scene.sql("b", "DELETE FROM inbound_batches WHERE id = :id", id=rows[-4][0])


def _receipt_edited(scene: Scene) -> None:
    id = _last_batches(scene)[0]
    ((text,),) = scene.sql("a", "SELECT receipt FROM batches WHERE id = :id", id=id)
    edited = text.replace('\\"duplicates\\":0', '\\"duplicates\\":7')
    assert edited != text
    scene.sql("a", "UPDATE batches SET receipt = :text WHERE id = :id", text=edited, id=id)


def _false_retention(scene: Scene) -> None:
    """Delete the newest events that no one has shipped, and note it as retention does."""
    ((position, seq, records),) = scene.sql(
        "b", f"SELECT position, seq, records FROM blocks WHERE topic_id = {_TOPIC} ORDER BY position DESC LIMIT 1"
    )
    scene.sql("b", f"DELETE FROM blocks WHERE topic_id = {_TOPIC}")
    scene.sql(
        "b",
        f"UPDATE topics SET evicted_seq = :seq, evicted_position = :position WHERE id = {_TOPIC}",
        seq=seq + records - 1,
        position=position + records - 1,
    )


def _erased_beside_gap(scene: Scene) -> None:
    """Remove rows from the lake beside those that retention evicted before they were shipped; then evict all events."""
    blocks = scene.sql(
        "b", f"SELECT position, seq, records FROM blocks WHERE topic_id = {_TOPIC} ORDER BY position DESC LIMIT 8"
    )
    seq = _evict(scene, *blocks[5])
    before = scene.federation.now - 30 * SECOND
    ship(scene.urls["b"], scene.lake.root, now=before, payloads=True)
    beside = {seq + 1, seq + 2}
    scene.lake.remove("events", "b", lambda row: row["group"] == "edge" and row["seq"] in beside)
    _evict(scene, *blocks[0])


def _evict(scene: Scene, position: int, seq: int, records: int) -> int:
    """Delete all events up to the end of a block of `b`, and note it as retention does; return the last one's seq."""
    scene.sql("b", f"DELETE FROM blocks WHERE topic_id = {_TOPIC} AND position <= :position", position=position)
    scene.sql(
        "b",
        f"UPDATE topics SET evicted_seq = :seq, evicted_position = :position WHERE id = {_TOPIC}",
        seq=seq + records - 1,
        position=position + records - 1,
    )
    return seq + records - 1


def _restored(scene: Scene) -> None:
    """Replace a database by its backup of an earlier round, as `db restore` does: it begins a new epoch."""
    _take_back(scene)
    scene.sql("b", "UPDATE log_heads SET epoch = 'eeeeeeeeeeeeeeee'")
    # What the nodes had shipped before stays in the lake.
    shutil.rmtree(scene.lake.root)
    shutil.copytree(scene.federation.lake, scene.lake.root)


def _take_back(scene: Scene) -> None:
    shutil.copyfile(scene.federation.backup("b"), scene.urls["b"].removeprefix("sqlite:///"))


DATABASES = (
    Damage(
        "blocks-deleted",
        "`DELETE FROM blocks` at a peer; the ids of the events stay",
        "the hole in its seqs, and the sender's deliveries",
        _blocks_deleted,
        wanted=f"SELECT 'erased', node, id FROM ({GONE_EVENTS})",
        allowed=f"SELECT 'disagreement', node, id FROM ({GONE_EVENTS})",
        in_databases=True,
    ),
    Damage(
        "block-edited-at-peer",
        "`UPDATE blocks` changes the payload of an event at a peer",
        "the fingerprints of both nodes",
        lambda scene: _edit_block(scene, "b"),
        wanted=EDITED,
        in_databases=True,
    ),
    Damage(
        "block-edited-at-source",
        "`UPDATE blocks` changes the payload of an event at its source, after it was delivered",
        "the fingerprints of all nodes",
        lambda scene: _edit_block(scene, "a"),
        wanted=EDITED,
        in_databases=True,
    ),
    Damage(
        "block-invented",
        "`INSERT INTO blocks` adds an event at a peer that its source never recorded",
        "the ledger of its source",
        _block_invented,
        wanted="SELECT 'forged', 'b', 'invented'",
        in_databases=True,
    ),
    Damage(
        "cursor-advanced",
        "`UPDATE cursors` moves links over an event that was never sent",
        "the ledgers of the peers, which do not hold it",
        _cursor_advanced,
        wanted="SELECT 'missing', node, 'skipped' FROM (VALUES ('b'), ('c')) n(node)",
        in_databases=True,
    ),
    Damage(
        "batch-feigned",
        "`INSERT INTO batches` notes that there was nothing to send where there was an event",
        "the selection of the link, and the ledger of the peer",
        _batch_feigned,
        wanted="SELECT 'missing', 'b', 'skipped'",
        in_databases=True,
    ),
    Damage(
        "expiry-feigned",
        "`INSERT INTO batches` notes that an event without expiry has expired",
        "the event itself, which never expires",
        lambda scene: _batch_feigned(scene, "expired"),
        wanted="SELECT 'disagreement', 'b', 'skipped'",
        in_databases=True,
    ),
    Damage(
        "early-expiry-feigned",
        "`INSERT INTO batches` notes that an event has expired before its expiry",
        "the expiry of the event, which is later than the row",
        lambda scene: _batch_feigned(scene, "expired", "2100-01-01T00:00:00Z"),
        wanted="SELECT 'disagreement', 'b', 'skipped'",
        in_databases=True,
    ),
    Damage(
        "refusal-feigned",
        "`INSERT INTO batches` notes that the peer refused an event that was never sent",
        "the batch, which was not sent, so that no answer counts a refused event",
        lambda scene: _batch_feigned(scene, "refused"),
        wanted="SELECT 'disagreement', 'b', 'skipped'",
        in_databases=True,
    ),
    Damage(
        "own-path-feigned",
        "`INSERT INTO batches` notes that an event came through the peer, at its own source",
        "the source of the event, which has it from no other node",
        lambda scene: _batch_feigned(scene, "in_path"),
        wanted="SELECT 'disagreement', 'b', 'skipped'",
        in_databases=True,
    ),
    Damage(
        "path-feigned",
        "`INSERT INTO batches` notes that an event came through the peer, at the node that relays it",
        "the ledger of the peer, which does not hold it",
        _path_feigned,
        wanted="SELECT 'disagreement', 'c', 'skipped'",
        in_databases=True,
    ),
    Damage(
        "batches-deleted",
        "`DELETE FROM batches` at the sender",
        "the peer's ledger, which has the events and the batch",
        _batches_deleted,
        wanted=f"SELECT 'disagreement', node, id FROM ({GONE_DELIVERIES})",
        allowed=f"""
            SELECT 'erased', node, batch_id FROM ({GONE_DELIVERIES})
            UNION SELECT 'disagreement', node, batch_id FROM ({GONE_DELIVERIES})
        """,
        in_databases=True,
    ),
    Damage(
        "inbound-deleted",
        "`DELETE FROM inbound_batches` at the receiver",
        "the sender's receipt of that batch",
        _inbound_deleted,
        wanted=f"SELECT 'erased', node, batch_id FROM ({GONE_INBOUND})",
        in_databases=True,
    ),
    Damage(
        "receipt-edited-in-database",
        "`UPDATE batches` changes the counts in a receipt",
        "the digest of the receipt's body",
        _receipt_edited,
        wanted=CHANGED,
        allowed=CHANGED.replace("forged", "disagreement"),
        in_databases=True,
    ),
    Damage(
        "retention-feigned",
        "events are deleted before they were shipped, and noted as evicted",
        "the declared gap: not known to be a fault, so it is not called one",
        _false_retention,
        unproven="evicted",
        shrinks=True,
        in_databases=True,
    ),
    Damage(
        "erased-beside-gap",
        "rows of events are removed from the lake beside those that retention evicted before they were shipped",
        "the hole in its seqs, which is larger than the declared gap",
        _erased_beside_gap,
        wanted="""
            SELECT 'erased', 'b', min(seq) || '-' || max(seq)
            FROM before.events ANTI JOIN after.events USING (node, epoch, "group", seq)
            WHERE node = 'b' AND position > (SELECT max(upto) FROM after.gaps WHERE reason = 'events_lost')
        """,
        in_databases=True,
    ),
    Damage(
        "database-restored",
        "a database is replaced by an earlier backup and begins a new epoch",
        "the state of its second epoch",
        _restored,
        wanted="SELECT 'epoch', 'b', '*'",
        in_databases=True,
    ),
    Damage(
        "database-taken-back",
        "a database is replaced by an earlier copy, in the same epoch",
        "the receipts and batches of the other nodes, which name later positions",
        _take_back,
        wanted="SELECT 'rolled_back', 'b', '*'",
        allowed=f"""
            SELECT 'disagreement', node, id FROM ({GONE_EVENTS}) UNION SELECT 'erased', node, id FROM ({GONE_EVENTS})
            UNION {BOUNDS_OF_HOLES} UNION SELECT 'disagreement', node, id FROM ({GONE_DELIVERIES})
            UNION SELECT 'erased', node, batch_id FROM ({GONE_INBOUND})
            UNION SELECT 'forged', node, batch_id FROM ({GONE_INBOUND})
        """,
        in_databases=True,
    ),
)
