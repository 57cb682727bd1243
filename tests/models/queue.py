"""A queue with one job: clients that claim it, leases that end, answers that are lost, and power losses.

Whether a client holds a job is decided by `Lease.is_held`, as in the product. A step of the model is a transaction of
the writer; its answer is a step of its own. With `durable`, an answer waits for the flush, and a power loss takes only
a transaction that was not answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from eventd.store.rows.leases import Lease
from tests.models.explorer import Broken, Label

LENGTH: Final = 2
MAX_DELIVERIES: Final = 2
CLIENTS: Final = ("x", "y")

HELD = "a job is held by at most one live lease (V15)"
DONE = "a job that was acknowledged as done is never claimed again (V15)"
BY_HOLDER = "a job is done only by its live lease (V15)"
LETTER = "a job is a dead letter once, after the allowed deliveries (V15)"


class JobRow(NamedTuple):
    """What is stored: the row of the lease, None before the first claim, and how many dead letters of the job exist."""

    lease: Lease | None = None
    letters: int = 0


class QueueState(NamedTuple):
    """`answer`: the transaction that is not answered yet, as (client, what, lease id, end).

    `beliefs`: the lease id and its end that each client was told. `before`: what a power loss leaves.
    """

    row: JobRow = JobRow()
    before: JobRow = JobRow()
    now: int = 1
    claims: int = 0
    answer: tuple[str, str, str, int] | None = None
    beliefs: tuple[tuple[str, int] | None, ...] = (None, None)
    done: bool = False
    losses: int = 0


@dataclass
class QueueModel:
    """The model of a queue. `durable`: its leases are flushed before they are answered."""

    times: int = 6
    claims: int = 4
    losses: int = 1
    bug: str = ""
    name: str = "queue"

    def start(self) -> QueueState:
        return QueueState()

    def steps(self, state: QueueState) -> Iterator[tuple[Label, Any]]:
        if state.now < self.times:
            yield ("tick",), state._replace(now=state.now + 1)
        if state.answer is not None:
            yield from self._answered(state, state.answer)
        else:
            for number, client in enumerate(CLIENTS):
                if state.claims < self.claims:
                    yield from self._claim(state, client)
                if (belief := state.beliefs[number]) is not None:
                    yield from self._settle(state, client, belief[0])
        if state.losses < self.losses:
            unflushed = state.answer is not None or self.bug == "leases are not flushed"
            kept = state._replace(answer=None, before=state.row, losses=state.losses + 1)
            yield ("power loss",), kept
            if unflushed:
                yield ("power loss with the last commit",), kept._replace(row=state.before)

    def _claim(self, state: QueueState, client: str) -> Iterator[tuple[Label, Any]]:
        lease, now = state.row.lease, state.now
        early = 1 if self.bug == "a lease ends for the queue before it ends for its client" else 0
        free = lease is None or (lease.free_at is not None and lease.free_at <= now + early)
        if self.bug == "a claim does not look for a live lease":
            free = lease is None or lease.free_at is not None
        if not free:
            return
        deliveries = 0 if lease is None else lease.deliveries
        if deliveries >= MAX_DELIVERIES and self.bug != "deliveries are not counted":
            letters = state.row.letters + 1
            ended = Lease(1, "", "", None, deliveries, 1)
            if self.bug == "a dead letter and the end of its job are two transactions":
                half = state._replace(row=JobRow(lease, letters), claims=state.claims + 1)
                yield ("write a dead letter",), half._replace(before=half.row)
                return
            row = JobRow(ended, letters)
            yield ("write a dead letter",), state._replace(row=row, before=row)
            return
        count = 1 if self.bug == "deliveries are not counted" else deliveries + 1
        made = Lease(1, client, f"lease{state.claims}", now + LENGTH + 1, count, 1)
        told = (client, "claim", made.lease_id, now + LENGTH)
        if state.done:
            yield ("claim", client), Broken(DONE)
            return
        row = state.row._replace(lease=made)
        yield ("claim", client), state._replace(row=row, before=state.row, claims=state.claims + 1, answer=told)

    def _settle(self, state: QueueState, client: str, lease_id: str) -> Iterator[tuple[Label, Any]]:
        lease = state.row.lease
        if lease is None:
            return
        held = lease.is_held(client, lease_id, state.now)
        if self.bug == "a late holder ends the lease" and lease.free_at is not None:
            held = True
        if not held:
            return
        live = lease.free_at is not None and (lease.node, lease.lease_id) == (client, lease_id)
        if not (live and lease.free_at is not None and state.now < lease.free_at):
            yield ("ack", client), Broken(BY_HOLDER)
            return
        acked = state.row._replace(lease=Lease(1, "", "", None, lease.deliveries, 1))
        told = (client, "ack", lease_id, 0)
        asked = state._replace(before=state.row, beliefs=_without(state, client))  # it relies on its lease no longer
        yield ("ack", client), asked._replace(row=acked, answer=told)
        freed = state.row._replace(lease=Lease(1, "", "", 0, lease.deliveries, 1))
        yield ("nack", client), asked._replace(row=freed, answer=(client, "nack", lease_id, 0))
        longer = state.row._replace(lease=lease._replace(free_at=state.now + LENGTH + 1))
        told = (client, "extend", lease_id, state.now + LENGTH)
        yield ("extend", client), state._replace(row=longer, before=state.row, answer=told)

    def _answered(self, state: QueueState, answer: tuple[str, str, str, int]) -> Iterator[tuple[Label, Any]]:
        client, what, lease_id, end = answer
        after = state._replace(answer=None) if self.bug == "leases are not flushed" else _flushed(state)
        yield ("lose the answer", client), after._replace(done=state.done)
        beliefs = [*_without(state, client)]
        if what in ("claim", "extend"):
            beliefs[CLIENTS.index(client)] = (lease_id, end)
        done = state.done or what == "ack"
        yield ("answer", client, what), after._replace(beliefs=tuple(beliefs), done=done)

    def broken(self, state: QueueState) -> str:
        live = [belief for belief in state.beliefs if belief is not None and state.now <= belief[1]]
        if len({lease_id for lease_id, _ in live}) > 1:
            return HELD
        if state.row.letters > 1:
            return LETTER
        lease = state.row.lease
        if lease is not None and lease.deliveries > MAX_DELIVERIES:
            return LETTER
        if state.row.letters and lease is not None and lease.free_at is not None:
            return LETTER
        claimed_too_often = state.claims > MAX_DELIVERIES and lease is not None and lease.lease_id
        return LETTER if claimed_too_often and not state.losses else ""

    def rests(self, state: QueueState) -> bool:
        return state.answer is None

    def words(self, label: Label) -> str:
        name, *arguments = label
        return _WORDS[name].format(*arguments)


def _without(state: QueueState, client: str) -> tuple[tuple[str, int] | None, ...]:
    """Return what the clients believe once this one relies on no lease."""
    return tuple(None if name == client else told for name, told in zip(CLIENTS, state.beliefs, strict=True))


def _flushed(state: QueueState) -> QueueState:
    return state._replace(answer=None, before=state.row)


_WORDS: Final = {
    "tick": "time passes",
    "claim": "client {} claims the job",
    "ack": "client {} acks the job",
    "nack": "client {} returns the job",
    "extend": "client {} extends its lease",
    "answer": "client {} gets the answer to its {}",
    "lose the answer": "the answer to client {} is lost",
    "write a dead letter": "a claim makes the job a dead letter",
    "power loss": "the machine loses its power, and no commit",
    "power loss with the last commit": "the machine loses its power, and the last commit with it",
}
