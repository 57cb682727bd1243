"""What retention waits for is found in a few rows of a log of any length, and is the same answer for a second."""

from __future__ import annotations

from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_row import read_topic_by_id
from eventd.log.cursors.cursors import create_cursor
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.log.retention.waiting import RetentionWait, RetentionWaits, is_sealing_awaited, read_retention_wait
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import execute, fetch
from eventd.testing import NOW, ManualClock
from tests.support.histories import emit, start
from tests.support.statements import statements

BLOCKS = 40
"""Of one event each, recorded one second after the other."""
MOST_STATEMENTS = 16
"""Half of what is needed if each block over the limits is read."""


async def fill(log: EventLog, clock: ManualClock) -> int:
    """A group with a history, of which nothing is sealed, and a peer that has nothing yet. Returns its topic."""
    topic, _ = await start(log)
    for number in range(BLOCKS):
        await emit(log, topic, f"e{number}")
        clock.advance(1)
    await log.database.write(create_cursor, "peer:g/b", kind="peer", topic_id=topic, position=0, now=NOW)
    return topic


def read_fresh(conn: Connection, topic: int, limits: EvictionLimits, now: int) -> RetentionWait:
    return read_retention_wait(conn, read_topic_by_id(conn, topic), limits, now)


async def test_the_age_limit_is_found_in_a_few_statements(log: EventLog, clock: ManualClock) -> None:
    topic = await fill(log, clock)
    for old in range(BLOCKS + 1):
        limits = EvictionLimits(max_age=(BLOCKS - old) * SECOND)
        with statements() as sent:
            found = await log.database.read(read_fresh, topic, limits, clock.now())
        assert found == RetentionWait(peers=old, sealing=old)
        assert len(sent) <= MOST_STATEMENTS
        assert await log.database.read(is_sealing_awaited, topic, limits, clock.now()) == (old > 0)


def _add_blocks_of_others(conn: Connection) -> None:
    """Let Postgres choose as for a large table: of a small one any index will do once it has statistics."""
    columns = "topic_id, records, bytes, recorded_at, types, sources, paths, text"
    execute(
        conn,
        f"INSERT INTO blocks (position, seq, own, {columns})"
        f" SELECT position + 1000 * n, seq + 1000 * n, 0, {columns} FROM blocks, generate_series(1, 250) AS n",
    )
    execute(conn, "ANALYZE blocks")


async def test_each_read_follows_an_index(log: EventLog, clock: ManualClock, database: Database) -> None:
    """Records of other nodes after the last checkpoint, or after the cursor of a peer, are not read."""
    topic, limits = await fill(log, clock), EvictionLimits(max_age=5 * SECOND)
    with statements() as sent:
        await log.database.read(read_fresh, topic, limits, clock.now())
        await log.database.read(is_sealing_awaited, topic, limits, clock.now())
    reads = {sql for sql in sent if "FROM blocks" in sql}
    assert len(reads) == 3, "the age limit, the first one of this node after a cursor, and the first unsealed one"

    if database.kind == "postgresql":
        await database.write(_add_blocks_of_others)

    def plan(conn: Connection, sql: str) -> str:
        if database.kind == "postgresql":
            for path in ("seqscan", "bitmapscan", "sort"):
                execute(conn, f"SET LOCAL enable_{path} = off")
        explain = "EXPLAIN" if database.kind == "postgresql" else "EXPLAIN QUERY PLAN"
        return " ".join(str(row) for row in fetch(conn, f"{explain} {sql}", (1,) * sql.count("?"))).lower()

    for sql in reads:
        found = await log.database.read(plan, sql)
        by_seq = "blocks_topic_seq" if database.kind == "postgresql" else "autoindex_blocks"
        assert ("blocks_own" if "own = 1" in sql else by_seq) in found
        assert not any(word in found for word in ("sort", "b-tree", "scan blocks", "seq scan"))


async def test_an_answer_is_shared_for_a_second(log: EventLog, clock: ManualClock) -> None:
    topic, limits, waits = await fill(log, clock), EvictionLimits(max_records=10), RetentionWaits()

    async def ask(now: int) -> tuple[int, bool]:
        """How many wait for sealing, and whether it was read."""
        row = await log.database.read(read_topic_by_id, topic)
        with statements() as sent:
            found = await log.database.read(waits.read, row, limits, now)
        return found.sealing, len(sent) > 2

    now = clock.now()
    assert await ask(now) == (BLOCKS - 10, True)
    await emit(log, topic, "later")
    assert await ask(now + SECOND - 1) == (BLOCKS - 10, False)
    assert await ask(now + SECOND) == (BLOCKS - 9, True)
    assert await ask(now) == (BLOCKS - 9, True), "the clock was set back"
    await log.database.write(execute, "UPDATE blocks SET tree = NULL")
    await log.database.write(execute, "UPDATE topics SET tree = NULL")
    drop = EvictionLimits(max_records=10, keep_undelivered=False)
    assert (await log.database.write(evict, topic, drop, now=now, chunk=5)).records == 5
    assert await ask(now) == (0, True), "what was evicted does not wait any more"
