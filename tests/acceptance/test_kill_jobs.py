"""kill -9 of a node in the middle of a bulk job: the next start continues it, and no dead letter is missed."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import Any

from tests.support.declared import group, peer
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.running import NodeProcess
from tests.support.waiting import wait_for

LETTERS = 6000
"""So many that a job has a dozen steps."""


def add_letters(node: NodeProcess) -> None:
    """Store dead letters of the peer b, of a node that is stopped."""
    with closing(sqlite3.connect(node.file)) as conn, conn:
        ((topic,),) = conn.execute("SELECT topic_id FROM cursors WHERE name = 'peer:edge/b'")
        now = time.time_ns() // 1000
        rows = [("peer:edge/b", at, topic, f"e{at}", "invalid", "", 1, now) for at in range(1, LETTERS + 1)]
        conn.executemany(
            "INSERT INTO dead_letters (cursor, position, topic_id, event_id, reason, detail, attempts, parked_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
        conn.execute("INSERT INTO dead_letter_counts VALUES (?, 'peer:edge/b', ?)", (topic, LETTERS))


def left(node: NodeProcess) -> int:
    with closing(sqlite3.connect(node.file)) as conn:
        ((count,),) = conn.execute("SELECT count(*) FROM dead_letters")
    return int(count)


def test_a_job_continues_after_kills(processes: Processes) -> None:
    node = NodeProcess(processes, "a")
    node.apply(group("a", secret=node.secret, port=node.port), peer("b", free_port()))
    wait_for(lambda: node.ask("GET", "/groups/edge/links")["outbound"], "the link to b")
    node.stop()
    add_letters(node)
    node.start()
    plan = node.ask("POST", "/jobs/plan", {"action": "drop", "group": "edge"})
    assert (plan["count"], plan["exact"]) == (LETTERS, True)
    number = node.ask("POST", "/jobs", {"token": plan["token"]})["job"]["number"]

    def job() -> dict[str, Any]:
        found: dict[str, Any] = node.ask("GET", f"/jobs/{number}")["job"]
        return found

    kills = 0
    while kills < 3 and job()["state"] != "done":
        before = job()["done"]
        wait_for(lambda before=before: job()["done"] > before, "a step")  # type: ignore[misc]
        node.kill9()
        kills += 1
        node.start()
    wait_for(lambda: job()["state"] == "done", "the end of the job")
    assert kills > 0
    assert (job()["done"], job()["results"]) == (
        LETTERS,
        [{"outcome": "dropped", "reason": "invalid", "count": LETTERS}],
    )
    assert left(node) == 0
