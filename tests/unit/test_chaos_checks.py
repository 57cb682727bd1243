"""The checks of a run with faults fail for what they are to find."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.chaos import disk_faults
from tests.chaos.faults import Faults
from tests.chaos.load import Ledger
from tests.chaos.member import Member
from tests.chaos.mesh import Mesh
from tests.chaos.plan import Fault
from tests.chaos.verdict import Verdict
from tests.chaos.work_verdict import WorkVerdict

JOB = [["job", "low"]]


class StandIn:
    """A node whose topics have these records, and a client that has seen what the ledger says."""

    def __init__(self, load: str, **topics: list[str]) -> None:
        self.name, self.loads, self.topics = "a", (load,), topics
        self.running = self
        self.client = self
        self.followed = 0

    def request(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        held = self.topics.get(path.split("/")[3], [])
        records = [{"$seq": at, "$tag": "low", "data": data} for at, data in enumerate(held, 1)]
        return {"records": records, "next_from_seq": len(held), "caught_up": True}

    def catch_up(self, seq: int) -> None:
        self.followed = seq


def judged(node: StandIn, ledger: Ledger, *, unsynced: bool = False) -> list[str]:
    verdict = WorkVerdict(cast(Member, node), ledger, skewed=False, unsynced=unsynced)
    found = verdict._queue() if "queue" in node.loads else verdict._watch()
    return list(found)


@pytest.mark.parametrize(("deed", "lost"), [("ack", False), ("nack", True)])
def test_only_an_ack_explains_that_a_job_is_gone(deed: str, lost: bool) -> None:
    ledger = Ledger()
    ledger.take("a", {"kind": "write", "number": 1, "at": 1.0, "topic": "jobs", "key": "k", "records": JOB})
    ledger.take("a", {"kind": "answered", "number": 1, "at": 2.0, "answer": {"seqs": [1]}})
    claimed = {"claimed": [{"$seq": 1, "lease_id": "l", "deliveries": 1}]}
    ledger.take("a", {"kind": "claim", "number": 2, "at": 3.0})
    ledger.take("a", {"kind": "answered", "number": 2, "at": 4.0, "answer": claimed})
    ledger.take("a", {"kind": deed, "number": 3, "at": 5.0, "held": [[1, "l"]]})
    assert any("was acknowledged and lost" in line for line in judged(StandIn("queue"), ledger)) is lost


def test_a_watch_that_shows_nothing_fails() -> None:
    node = StandIn("watch", orders=["one", "two"])
    assert judged(node, Ledger()) == ["V14 a: a watch missed seqs [1, 2] of 2"]
    assert node.followed == 2


@pytest.mark.parametrize("unsynced", [False, True])
def test_a_topic_begins_anew_only_after_the_database_lost_commits(unsynced: bool) -> None:
    ledger = Ledger()
    ledger.take("a", {"kind": "tombstone", "reason": "recreated"})
    assert (judged(StandIn("watch"), ledger, unsynced=unsynced) == []) is unsynced


def test_only_the_history_of_a_restored_node_may_fail() -> None:
    ledger = Ledger()
    ledger.lost.append(("b", 1.0, 2.0))
    verdict = Verdict(cast(Mesh, None), ledger, ())
    assert verdict._expected({"name": "edge/b history"})
    assert not verdict._expected({"name": "edge/c history"})


@pytest.mark.parametrize("met", [False, True])
def test_a_fault_of_the_disk_that_no_call_met_is_idle(met: bool) -> None:
    disk = SimpleNamespace(hits=7, fail_writes=lambda error: None)
    member = cast(Member, SimpleNamespace(preload=disk, troubled=False))
    faults = Faults(cast(Mesh, None), Ledger())
    for _ in disk_faults.fault("writes end with EIO")(faults, member, Fault(0.0, "writes end with EIO", "a", 1.0, 1)):
        disk.hits += met
    assert faults.idle == ({} if met else {"writes end with EIO": 1})
