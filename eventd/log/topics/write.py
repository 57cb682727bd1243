"""Writes records to a topic.

One unit finds or creates the topic, recognises a repeated request, checks the limits and appends.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from eventd.log.core.commit import GROUP_RECORDS, Transaction, TransactionTimes, Turn
from eventd.log.core.durability import DurabilityCache
from eventd.log.core.topic_config import TopicConfig
from eventd.log.core.topic_row import TopicRow, find_topic, insert_topic
from eventd.log.core.values import NEVER, NOTHING, AppendResult, Drafts
from eventd.log.topics.errors import RecordTooLarge, Throttled, TopicFull, TopicNotFound
from eventd.log.topics.limits import apply_caps, apply_ttl, due_at
from eventd.log.topics.topics import require_name, require_room
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch
from eventd.text.plural import counted

RECORD_BYTES = 1000
"""Bytes of data and meta that count as one record in the weight of a write."""


class WriteResult(NamedTuple):
    """The seqs of a batch, and how long its transaction took.

    `created`: the topic was created for it. `deduped`: an earlier request with the same key wrote the batch.
    """

    topic_id: int
    first_seq: int
    last_seq: int
    created: bool
    deduped: bool
    durability: str
    spent: TransactionTimes

    @property
    def head_seq(self) -> int:
        """Return the last seq of the topic right after the batch was written, which is that of the batch."""
        return self.last_seq

    @property
    def append_ms(self) -> float:
        """Return how long the transaction took before its flush, in milliseconds."""
        return self.spent.append * 1000

    @property
    def flush_ms(self) -> float:
        """Return how long the flush took, in milliseconds; 0 if the caller did not wait for it."""
        return self.spent.flush * 1000 if self.durability == "fsync" else 0.0


class Write:
    """Append a batch of records to a topic. Result: `WriteResult`.

    `create`: whether a missing topic is created; None: as `config.auto_create` says, or its default. A created topic
    stays, even if the batch is then refused. A request with a `key` that was used within the topic's idempotency window
    gets the first result. `max_topics`, and `max_bytes` of all topics together: 0 is unlimited. Raises
    `TopicNotFound`, `Invalid` for the name, `RecordTooLarge` for a batch that can never fit, `TopicFull`, `Throttled`.
    """

    cursor = None
    is_brief = False  # expired records may have to be deleted first, any number of them

    def __init__(
        self,
        topic: str,
        drafts: Drafts,
        *,
        flushes: DurabilityCache,
        key: str = "",
        create: bool | None = None,
        config: TopicConfig | None = None,
        max_topics: int = 0,
        max_bytes: int = 0,
        random: bytes = b"",
    ) -> None:
        self._topic = topic
        self._drafts = drafts
        self.weight = max(len(drafts), drafts.bytes // RECORD_BYTES)
        self.turn = Turn.FRONT if self.weight < GROUP_RECORDS else Turn.BULK
        self._flushes = flushes
        self._key = key
        self._create = create
        self._config = config
        self._max_topics = max_topics
        self._max_bytes = max_bytes
        self._random = random
        self._line: TopicRow | None = None
        self._created = False
        self._repeated: WriteResult | Write | None = None
        self._written: WriteResult | None = None

    @property
    def topic_id(self) -> int | None:
        return None if self._line is None else self._line.id

    @property
    def durable(self) -> bool:
        return self._flushes.wanted(self._topic)

    def admit(self, tx: Transaction) -> Drafts:
        self._repeated = self._written = None
        self._line = line = self._find(tx)
        self._flushes.learn(self._topic, line.durability)
        tx.must_flush = tx.must_flush or line.durability == "fsync" or self._created
        if self._key:
            self._repeated = self._look_up(tx, line)
            if self._repeated is not None:
                return NOTHING
        self._line = line = apply_ttl(tx.conn, line, tx.now)  # expired records do not count
        require_fit(tx, line, self._drafts, self._max_bytes)
        if self._key:
            _writers(tx, line.id)[self._key] = self
        return self._drafts

    def _find(self, tx: Transaction) -> TopicRow:
        line = find_topic(tx.conn, self._topic)
        self._created = line is None
        if line is not None:
            return line
        wanted = self._config or TopicConfig()
        if self._create is False or (self._create is None and not wanted.auto_create):
            raise TopicNotFound(self._topic)
        require_name(self._topic)
        require_room(tx.conn, self._max_topics)
        return insert_topic(tx.conn, self._topic, wanted, now=tx.now, random=self._random)

    def _look_up(self, tx: Transaction, line: TopicRow) -> WriteResult | Write | None:
        """Return the result of an earlier request with the same key, or its unit if it is in this transaction."""
        before = _writers(tx, line.id).get(self._key)
        if before is not None:
            return before
        rows = fetch(
            tx.conn,
            "SELECT first_seq, last_seq FROM write_keys WHERE topic_id = ? AND key = ? AND keep_until > ?",
            (line.id, self._key, tx.steady),
        )
        if not rows:
            return None
        first, last = rows[0]
        return WriteResult(line.id, first, last, False, True, line.durability, tx.spent)

    def finish(self, tx: Transaction, appended: AppendResult) -> WriteResult:
        line, before = self._line, self._repeated
        assert line is not None
        if isinstance(before, Write):
            assert before._written is not None
            before = before._written._replace(created=False, deduped=True)
        if before is not None:
            return before
        first, last = appended.positions[0] + appended.shift, appended.positions[-1] + appended.shift
        self._written = WriteResult(line.id, first, last, self._created, False, line.durability, tx.spent)
        if self._key and line.config.idempotency_window_ms:
            self._remember(tx, line, first, last)
        apply_limits_once(tx, line)
        return self._written

    def _remember(self, tx: Transaction, line: TopicRow, first: int, last: int) -> None:
        keep_until = tx.steady + line.config.idempotency_window_ms * 1000
        execute(
            tx.conn,
            "INSERT INTO write_keys (topic_id, key, first_seq, last_seq, keep_until) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (topic_id, key) DO UPDATE SET first_seq = excluded.first_seq, last_seq = excluded.last_seq,"
            " keep_until = excluded.keep_until",
            (line.id, self._key, first, last, min(keep_until, NEVER)),
        )


def shorten_windows(conn: Connection, steady: int) -> None:
    """End no window of an idempotency key later than one that begins now; for when a node starts.

    The steady clock restarts with a node, perhaps far behind the earlier one: a key would stand for that long, and a
    new write with it would be taken for the old one.
    """
    live = "SELECT id, config FROM topics WHERE id IN (SELECT topic_id FROM write_keys WHERE keep_until > ?)"
    for topic_id, config in fetch(conn, live, (steady,)):
        latest = min(steady + msgspec.json.decode(config)["idempotency_window_ms"] * 1000, NEVER)
        sql = "UPDATE write_keys SET keep_until = ? WHERE topic_id = ? AND keep_until > ?"
        execute(conn, sql, (latest, topic_id, latest))


def _writers(tx: Transaction, topic_id: int) -> dict[str, Write]:
    """Return the units of a transaction that write to a topic under an idempotency key, by key."""
    found: dict[str, Write] = tx.shared.setdefault(("keys", topic_id), {})
    return found


def require_fit(tx: Transaction, line: TopicRow, drafts: Drafts, max_bytes: int, *, freed: int = 0) -> None:
    """Raise if drafts, after those of earlier units, do not fit into a topic or the node; else reserve their room.

    For a topic that refuses writes over its limits: `RecordTooLarge` if they can never fit, `TopicFull` if they do not
    fit now. `Throttled` if all topics together would have more than `max_bytes` (0: unlimited), after the same request
    removes `freed` bytes.
    """
    config, size = line.config, drafts.bytes
    keeps = config.discard == "reject" and (config.cap_records or config.cap_bytes)
    if keeps:
        _require_caps(tx, line, drafts)
    if max_bytes:
        taken = (tx.shared.get("bytes of all") or total_bytes(tx)) - freed
        if taken + size > max_bytes:
            raise Throttled.by("max_total_bytes", max_bytes)
        tx.shared["bytes of all"] = taken + size
    if keeps:  # only now: a refused unit takes no room from later units
        waiting, waiting_bytes = _waiting(tx, line)
        tx.shared["room", line.id] = (waiting + len(drafts), waiting_bytes + size)


def _waiting(tx: Transaction, line: TopicRow) -> tuple[int, int]:
    """Return the numbers of records and bytes that earlier units reserved in a topic; 0 unless it can refuse writes."""
    found: tuple[int, int] = tx.shared.get(("room", line.id), (0, 0))
    return found


def _require_caps(tx: Transaction, line: TopicRow, drafts: Drafts) -> None:
    config, size = line.config, drafts.bytes
    if 0 < config.cap_records < len(drafts) or 0 < config.cap_bytes < size:
        raise RecordTooLarge(
            f"the batch of {counted(len(drafts), 'record')} and {counted(size, 'byte')} exceeds the limits of the topic"
            f" {line.name!r}",
            hint="write a smaller batch, or raise cap_records and cap_bytes",
        )
    waiting, waiting_bytes = _waiting(tx, line)
    records, held = line.live + waiting + len(drafts), line.bytes + waiting_bytes + size
    if 0 < config.cap_records < records or 0 < config.cap_bytes < held:
        raise full(line)


def full(line: TopicRow) -> TopicFull:
    """Return the error for a full topic."""
    config = line.config
    detail = {
        "topic": line.name,
        "cap_records": config.cap_records,
        "cap_bytes": config.cap_bytes,
        "head_seq": line.head_seq,
        "earliest_seq": line.earliest_seq,
    }
    return TopicFull(
        f"the topic {line.name!r} is full and does not discard old records",
        hint="delete records, raise its caps, or change its discard policy",
        detail=detail,
    )


def total_bytes(tx: Transaction) -> int:
    """Return the bytes of data and meta in all topics of records, with those that this transaction has added."""
    return int(fetch(tx.conn, "SELECT record_bytes FROM log_heads WHERE id = 1")[0][0]) + tx.record_bytes


def apply_limits_once(tx: Transaction, line: TopicRow) -> None:
    """Set the topic's `due_at` if it has a time to live, and apply its caps; once per transaction, after all writes."""
    line = tx.shared.get(("set anew", line.id), line)  # by a unit that came after the one that read the line
    if not line.config.limited or ("limits", line.id) in tx.shared:
        return
    tx.shared["limits", line.id] = True
    if line.config.ttl_ms and (line.due_at is None or line.due_at <= tx.now):
        written_at = fetch(tx.conn, "SELECT written_at FROM topics WHERE id = ?", (line.id,))[0][0]
        due = due_at(written_at, line.config.ttl_ms)
        execute(tx.conn, "UPDATE topics SET due_at = ? WHERE id = ? AND due_at IS NULL", (due, line.id))
    if line.config.cap_records or line.config.cap_bytes:
        apply_caps(tx.conn, line.id, tx.now)
