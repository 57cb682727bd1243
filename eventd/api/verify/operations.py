"""The operation that verifies a peer: each call continues a comparison, and returns its progress or its report."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

from pydantic import Field

from eventd.api.errors.codes import API_FORM, restore
from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.verify.asking import asking, find_group_and_peer
from eventd.api.verify.comparing import Comparison
from eventd.api.verify.history import keep
from eventd.api.verify.links import show_link
from eventd.egress.peers.questions import QueryUnsupported
from eventd.errors import Conflict, EventdError, NotFound, Unavailable
from eventd.resources.group_configuration import GroupConfig, PeerConfig
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Database
from eventd.store.rows.console_sessions import find_session, is_valid
from eventd.store.rows.verifications import Verification
from eventd.text.quoting import shortened
from federation.peers import PROTOCOL_V1

VERIFY = "verify"
"""The name of this question in the protocol between the workers of a node."""
PATIENCE_SECONDS = 60.0
"""Seconds that another worker may take in addition to the requested time, because its last step may wait for the
peer."""
LOOK_SECONDS = 2.0
"""How long another worker may take to report its progress: a page waits for it."""
BACKGROUND_SECONDS = 600.0
"""How long a comparison may work without requests that continue it."""
MOST_IN_BACKGROUND = 4
"""Maximum number of comparisons of a process that work without requests, at most one of them for each group: a key
of one group must not keep those of others from comparing."""
_SLICE_SECONDS = 5.0
"""Seconds for which a comparison without requests works before it checks whether its time is over."""
FORGOTTEN_SECONDS = 10.0
"""After this time without a call, another caller may begin a comparison in place of an unfinished one."""


class Verify(Params):
    """Compare the recorded deliveries to a peer with the events that the peer holds. Neither side is changed.

    Each call continues the comparison for a while and returns its progress; the last call returns the report.
    """

    by_caller: ClassVar[bool] = True

    group: str
    peer: str = Field(description="The peer, by its node name.")
    run: str = Field(default="", description="Continue this comparison; empty begins a new one.")
    seconds: int = Field(default=20, ge=0, le=50, description="Longest time to work before the answer, in seconds.")
    look: bool = Field(default=False, description="Only report the progress of `run`: nothing is compared.")
    background: bool = Field(
        default=False,
        description="Continue after the answer, for at most ten minutes and without further requests; the node keeps"
        " the result as a verification.",
    )


@dataclass(slots=True)
class _Run:
    """An unfinished comparison.

    `touched`: when it began or its last call ended, in seconds of the monotonic clock. `spent`: the seconds of all its
    calls. `peer`: the peer as it was declared then. `driver`: continues it in the background, and returns the last
    answer, or the error that ended it.
    """

    id: str
    peer: PeerConfig
    comparison: Comparison
    begun_at: int
    touched: float
    spent: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    driver: asyncio.Task[dict[str, Any] | EventdError] | None = None


_runs: WeakKeyDictionary[Database, dict[tuple[str, str], _Run]] = WeakKeyDictionary()
"""The unfinished comparisons in this process, by group and peer: at most one for each peer."""


async def verify(services: Services, params: Verify) -> dict[str, Any]:
    """Compare, in the worker that serves the group, because that worker has the unfinished comparisons.

    Other workers pass the request on to it.
    """
    digest = b""
    if services.key is not None:
        services.key.require_group(params.group)
        if services.holds_key(services.key.digest):
            digest = services.key.digest
    if services.ask_worker is None:
        return await _verify_here(services, params, digest, services.session)
    request = params.model_dump(mode="json", by_alias=True)
    question = json.dumps({"key": digest.hex(), "session": services.session, "request": request}).encode()
    patience = LOOK_SECONDS if params.look else params.seconds + PATIENCE_SECONDS
    text = await services.ask_worker(params.group, VERIFY, question, seconds=patience)
    if not text and params.look:
        late = f"the process that compares has not answered within {LOOK_SECONDS:.0f} s"
        raise Unavailable(f"{late}; the comparison continues there", hint="look again in a moment")
    if not text:
        problem = f"the process that serves the group {params.group} does not answer"
        raise Unavailable(problem, hint="try again in a moment")
    answer: dict[str, Any] = json.loads(text)
    if "status" in answer:
        raise restore(answer["status"], json.dumps(answer["problem"]).encode())
    return answer


async def answer_verify(services: Services, question: bytes) -> bytes:
    """Answer another worker's question `VERIFY`: a request and the digest of its key, as JSON, with an answer or an
    error."""
    given = json.loads(question)
    try:
        params, key = Verify.model_validate(given["request"]), bytes.fromhex(given["key"])
        answer = await _verify_here(services, params, key, given.get("session", ""))
    except EventdError as error:
        answer = {"status": API_FORM.status(error), "problem": API_FORM.body(error)}
    return json.dumps(answer).encode()


async def _verify_here(services: Services, params: Verify, key: bytes, session: str) -> dict[str, Any]:
    found = await services.database.read(find_group_and_peer, params.group, params.peer)
    request = _VerifyRequest(services, params, key, session, *found)
    in_background = params.background and services.spawn is not None
    if in_background and not params.run:
        _require_room(request)
    run = _run_of(request)
    if params.look:
        return _answer(params, run, done=False, why="")
    if run.driver is None and run.lock.locked():
        raise Conflict(
            f"{params.peer} is being verified by another call of this run", hint="retry when that call has ended"
        )
    if in_background or run.driver is not None:
        return await _wait_for_driver(request, run)
    async with run.lock:
        done, why = True, await request.why_ended(run)
        if why:
            await request.end(run, why)
        else:
            done, why = await _advance(request, run, params.seconds)
        return _answer(params, run, done=done, why=why)


class _VerifyRequest(NamedTuple):
    """A request, the digests of its key and of its session of the console (empty if the caller has none that can end),
    its group and its peer."""

    services: Services
    params: Verify
    key: bytes
    session: str
    group: GroupConfig
    peer: PeerConfig

    @property
    def runs(self) -> dict[tuple[str, str], _Run]:
        return _runs.setdefault(self.services.database, {})

    async def again(self) -> _VerifyRequest:
        """Return the request with its group and peer as they are declared now. Raises NotFound."""
        found = await self.services.database.read(find_group_and_peer, self.params.group, self.params.peer)
        return self._replace(group=found[0], peer=found[1])

    async def why_ended(self, run: _Run) -> str:
        """Return why the comparison must not continue; empty if it may."""
        if self.peer != run.peer:
            return f"{self.params.peer} was declared differently when it began: begin a new one"
        if self.key and not self.services.holds_key(self.key):
            return "the key that began it is no longer valid"
        if self.session:
            session = await self.services.database.read(find_session, self.session)
            if not is_valid(session, self.services.clock.now()):
                return "the session of the console that began it has ended"
        return ""

    async def end(self, run: _Run, why: str) -> None:
        """Forget a comparison, and keep its result."""
        self.forget(run)
        await keep(self.services.database, _result(self.params, run, why))

    def forget(self, run: _Run) -> None:
        """Remove a comparison from the unfinished ones, unless another one has replaced it already."""
        place = self.params.group, self.params.peer
        if self.runs.get(place) is run:
            del self.runs[place]


def _require_room(request: _VerifyRequest) -> None:
    """Raises `Conflict` while too many comparisons work in the background, or another one of the group does."""
    groups = [group for (group, _), run in request.runs.items() if run.driver is not None]
    if request.params.group in groups:
        problem = f"a comparison of the group {request.params.group} works in the background already"
        raise Conflict(problem, hint="try again when it has ended")
    if len(groups) >= MOST_IN_BACKGROUND:
        raise Conflict(
            f"{MOST_IN_BACKGROUND} comparisons work in the background already", hint="try again when one has ended"
        )


async def _wait_for_driver(request: _VerifyRequest, run: _Run) -> dict[str, Any]:
    """Let a comparison continue in the background; return its result if that comes within the requested time."""
    if run.driver is None:
        _require_room(request)
        assert request.services.spawn is not None
        run.driver = request.services.spawn(_drive(request, run), f"comparison with {request.params.peer}")
    await asyncio.wait({run.driver}, timeout=request.params.seconds)
    if not run.driver.done():
        return _answer(request.params, run, done=False, why="")
    found = run.driver.result()
    if isinstance(found, EventdError):
        raise found
    return found


async def _drive(request: _VerifyRequest, run: _Run) -> dict[str, Any] | EventdError:
    """Continue a comparison to its end, or until its time is over."""
    async with run.lock:
        try:
            while run.spent < BACKGROUND_SECONDS:
                request = await request.again()
                why = await request.why_ended(run)
                if why:
                    await request.end(run, why)
                    return _answer(request.params, run, done=True, why=why)
                done, why = await _advance(request, run, _SLICE_SECONDS)
                if done:
                    return _answer(request.params, run, done=True, why=why)
        except EventdError as error:
            await request.end(run, str(error))
            return error
        most = f"{BACKGROUND_SECONDS / 60:.0f} min"
        why = f"it was not finished within {most}: use routerctl verify, which has no such limit"
        await request.end(run, why)
        return _answer(request.params, run, done=True, why=why)


async def _advance(request: _VerifyRequest, run: _Run, seconds: float) -> tuple[bool, str]:
    """Continue a comparison, whose lock the caller holds.

    Return whether the comparison is done, and why nothing was compared, if that is so.
    """
    clock, why = request.services.clock, ""
    begun = clock.monotonic()
    try:
        await _continue(request.services, request.group, request.peer, run, seconds)
    except QueryUnsupported as answer:
        why = str(answer)
    except BaseException:
        request.forget(run)
        raise
    run.touched = clock.monotonic()
    run.spent += run.touched - begun
    done = bool(why) or run.comparison.is_done
    if done:
        await request.end(run, why)
    return done, why


def _run_of(request: _VerifyRequest) -> _Run:
    services, params, runs = request.services, request.params, request.runs
    now, where = services.clock.monotonic(), (params.group, params.peer)
    known = runs.get(where)
    if params.run or params.look:
        if known is None or known.id != params.run:
            raise NotFound(
                f"no run {shortened(params.run)} exists for {params.peer}", hint="leave out `run` to begin a new one"
            )
        return known
    if known is not None and (known.lock.locked() or now - known.touched < FORGOTTEN_SECONDS):
        raise Conflict(
            f"{params.peer} is being verified", hint=f"continue run {known.id}, or wait until it is done or abandoned"
        )
    run = _Run(
        services.log.chance.token(8).hex(),
        request.peer,
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
    answer["background"] = run.driver is not None
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
