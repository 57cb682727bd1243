"""The operation that verifies a peer: each call continues a comparison, and returns its progress or its report."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import Field

from eventd.api.errors.codes import API_FORM, restore
from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.verify.asking import asking, find_asked
from eventd.api.verify.comparing import Comparison
from eventd.api.verify.history import keep
from eventd.api.verify.links import show_link
from eventd.egress.peers.questions import QueryUnsupported
from eventd.errors import Conflict, EventdError, NotFound, Unavailable
from eventd.resources.configuration import GroupConfig, PeerConfig
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Database
from eventd.store.rows.verifications import Verification
from federation.peers import PROTOCOL_V1

VERIFY = "verify"
"""The name of the question among the workers."""
PATIENCE_SECONDS = 60.0
"""How long another worker may take beyond the requested time: its last step may wait for the peer."""
FORGOTTEN_SECONDS = 10.0
"""After this time without a call, another caller may begin a comparison in place of an unfinished one."""


class Verify(Params):
    """Compare the recorded deliveries to a peer with the events that the peer holds. Neither side is changed.

    Each call continues the comparison for a while and returns its progress; the last call returns the report.
    """

    group: str
    peer: str = Field(description="The peer, by its node name.")
    run: str = Field(default="", description="Continue this comparison; empty begins a new one.")
    seconds: int = Field(default=20, ge=0, le=50, description="Longest time to work before the answer, in seconds.")
    look: bool = Field(default=False, description="Only report the progress of `run`: nothing is compared.")


@dataclass(slots=True)
class _Run:
    """An unfinished comparison.

    `touched`: when it began or its last call ended, in seconds of the monotonic clock. `spent`: the seconds of all its
    calls.
    """

    id: str
    comparison: Comparison
    begun_at: int
    touched: float
    spent: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


_runs: WeakKeyDictionary[Database, dict[tuple[str, str], _Run]] = WeakKeyDictionary()
"""The unfinished comparisons in this process, by group and peer: at most one for each peer."""


async def verify(services: Services, params: Verify) -> dict[str, Any]:
    """Compare in the worker that serves the group, whichever worker has the request: it has the unfinished ones."""
    if services.ask_worker is None:
        return await _verify_here(services, params)
    question = params.model_dump_json(by_alias=True).encode()
    text = await services.ask_worker(params.group, VERIFY, question, seconds=params.seconds + PATIENCE_SECONDS)
    if not text:
        problem = f"the process that serves the group {params.group} does not answer"
        raise Unavailable(problem, hint="try again in a moment")
    answer: dict[str, Any] = json.loads(text)
    if "status" in answer:
        raise restore(answer["status"], json.dumps(answer["problem"]).encode())
    return answer


async def answer_verify(services: Services, question: bytes) -> bytes:
    """Answer another worker's question `VERIFY`: a request, as JSON, with an answer or an error."""
    try:
        answer = await _verify_here(services, Verify.model_validate_json(question))
    except EventdError as error:
        answer = {"status": API_FORM.status(error), "problem": API_FORM.body(error)}
    return json.dumps(answer).encode()


async def _verify_here(services: Services, params: Verify) -> dict[str, Any]:
    group, peer = await services.database.read(find_asked, params.group, params.peer)
    runs = _runs.setdefault(services.database, {})
    run = _run_of(services, params, runs)
    if params.look:
        return _answer(params, run, done=False, why="")
    if run.lock.locked():
        raise Conflict(
            f"{params.peer} is being verified by another call of this run", hint="retry when that call has ended"
        )
    async with run.lock:
        clock, why = services.clock, ""
        begun = clock.monotonic()
        try:
            await _continue(services, group, peer, run, params.seconds)
        except QueryUnsupported as answer:
            why = str(answer)
        except BaseException:
            del runs[params.group, params.peer]
            raise
        run.touched = clock.monotonic()
        run.spent += run.touched - begun
        done = bool(why) or run.comparison.is_done
        if done:
            del runs[params.group, params.peer]
            await keep(services.database, _result(params, run, why))
        return _answer(params, run, done=done, why=why)


def _run_of(services: Services, params: Verify, runs: dict[tuple[str, str], _Run]) -> _Run:
    now, where = services.clock.monotonic(), (params.group, params.peer)
    known = runs.get(where)
    if params.run or params.look:
        if known is None or known.id != params.run:
            raise NotFound(f"no run {params.run} exists for {params.peer}", hint="leave out `run` to begin a new one")
        return known
    if known is not None and (known.lock.locked() or now - known.touched < FORGOTTEN_SECONDS):
        raise Conflict(
            f"{params.peer} is being verified", hint=f"continue run {known.id}, or wait until it is done or abandoned"
        )
    run = _Run(
        services.log.chance.token(8).hex(),
        Comparison(*where, services.database, services.clock),
        services.clock.now(),
        now,
    )
    runs[where] = run
    return run


async def _continue(services: Services, group: GroupConfig, peer: PeerConfig, run: _Run, seconds: float) -> None:
    if peer.protocol == PROTOCOL_V1:
        raise QueryUnsupported("the peer is declared with v1, which cannot be verified")
    async with asking(services, group, peer) as asker:
        await run.comparison.work(asker, seconds)


def _answer(params: Verify, run: _Run, *, done: bool, why: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"group": params.group, "peer": params.peer, "run": run.id, "done": done}
    if not done:
        return answer | {"progress": run.comparison.progress._asdict(), "report": None}
    return answer | {"progress": None, "report": _report(run, why)}


def _result(params: Verify, run: _Run, why: str) -> Verification:
    """Return the result of a comparison for the history."""
    duration = int(run.spent * SECOND)
    result = Verification(params.group, params.peer, run.id, run.begun_at, duration, why)
    if why:
        return result
    found = run.comparison.findings
    numbers = (found.compared, found.missing, found.extras, found.others, found.unresolved, found.pending)
    return Verification(*result[:6], *numbers)


def _report(run: _Run, why: str) -> dict[str, Any]:
    report: dict[str, Any] = {
        "compared": not why,
        "why": why,
        "at": show_time(run.begun_at),
        "seconds": round(run.spent, 3),
        "clean": False,
    }
    if why:
        return report
    found = run.comparison.findings
    return report | {"clean": found.is_clean, "events": found.show(), "link": show_link(run.comparison.scope)}
