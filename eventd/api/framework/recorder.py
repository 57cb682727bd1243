"""The record of actions: who did what, to what, with which result.

The row of an action is written in the action's own transaction (`eventd.store.engine.attached`), so no action takes
effect without a row. If an action writes nothing or fails, its row is written in a separate transaction afterwards; if
it acts outside the database, its row is written before it begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from eventd.api.errors.codes import API_FORM, Internal
from eventd.api.framework.action_callers import ActionCaller
from eventd.api.framework.action_terms import MOST_OBJECT, add_argument, arguments_of, is_dry_run, object_of
from eventd.api.framework.refused_actions import ROW_SECONDS, RefusedActions
from eventd.api.framework.repeats import AlreadyDone, KeptAnswer, Repeats, repeated_request, require_first
from eventd.api.framework.route import Route
from eventd.errors import EventdError, Forbidden, Unauthorized
from eventd.log.core.head import lock_head
from eventd.log.topics.errors import Throttled
from eventd.runtime.clock import SECOND, Clock
from eventd.store.engine.attached import AttachedWrite, attach, attached
from eventd.store.engine.database import Connection, Database
from eventd.store.rows.actions import (
    OK,
    STARTED,
    ActionRow,
    RepeatedRequest,
    add_action,
    claim_key,
    count_action,
    find_similar,
    set_result,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T")

logger = logging.getLogger("eventd.actions")


class ActionMetrics(Protocol):
    """The method of the metrics that the record of actions uses."""

    def action(self, result: str) -> None: ...


class _NoMetrics:
    def action(self, result: str) -> None:
        """Ignore the action: a command has no metrics."""


@dataclass(slots=True)
class ActionDraft:
    """An action that is being requested; members that are not known yet are empty. `request`: the id of the request.

    `outside`, `frequent`: see `Route`. `repeat`: the request, if it may be repeated. `is_dry`: it is a dry run, so it
    is not recorded.
    """

    operation: str
    caller: ActionCaller
    request: str
    object: str = ""
    arguments: str = "{}"
    outside: bool = False
    frequent: bool = False
    repeat: RepeatedRequest | None = None
    is_dry: bool = False
    is_begun: bool = False

    def describe(self, route: Route, path: Mapping[str, str], params: BaseModel) -> None:
        """Set the members that follow from the parameters: the object, the arguments, and whether the action is a dry
        run."""
        self.object, self.arguments = object_of(route, path, params), arguments_of(route, params)
        self.is_dry = is_dry_run(route, params)

    def row(self, at: int, result: str) -> ActionRow:
        """Return the row of the action."""
        kind, who, address, _ = self.caller
        return ActionRow(at, kind, who, address, self.operation, self.object, self.arguments, result, self.request)


class _ActionWrite(AttachedWrite):
    """The write of an action's row and, if the request may be repeated, of its key.

    `is_counted`: the action was counted in the row of an equal one; otherwise `number` is that of its own row.
    """

    def __init__(self, row: ActionRow, repeat: RepeatedRequest | None, steady: int, *, is_frequent: bool) -> None:
        """`steady`: the present time of the steady clock, by which keys expire. `is_frequent`: see `Route.frequent`."""
        super().__init__()
        self.row = row
        self.number = 0
        self.is_counted = False
        self._repeat = repeat
        self._steady = steady
        self._is_frequent = is_frequent

    def begin(self, conn: Connection) -> None:
        lock_head(conn)
        if self._repeat is not None:
            require_first(conn, self._repeat, self._steady)

    def end(self, conn: Connection) -> None:
        known = find_similar(conn, self.row, self.row.at - ROW_SECONDS * SECOND) if self._is_frequent else None
        self.is_counted = known is not None
        if known is not None:
            count_action(conn, known, self.row)
        else:
            self.number = add_action(conn, self.row)
        if self._repeat is not None:
            claim_key(conn, self._repeat, self._steady)


class ActionRecorder:
    """Records the actions of one process. A failure to record a failed action is logged, and changes no answer."""

    def __init__(self, database: Database, clock: Clock, metrics: ActionMetrics | None = None) -> None:
        self._database = database
        self._clock = clock
        self._metrics: ActionMetrics = metrics or _NoMetrics()
        self.repeats = Repeats(database, clock)
        self.refused = RefusedActions(database, clock)

    @asynccontextmanager
    async def recording(self, draft: ActionDraft) -> AsyncIterator[None]:
        """Record the action if the block refuses it before `perform` begins."""
        try:
            yield
        except EventdError as error:
            if not draft.is_begun and not isinstance(error, AlreadyDone):
                await self._fail(draft, error)
            raise

    async def perform(self, draft: ActionDraft, run: Callable[[], Awaitable[T]]) -> T:
        """Execute an action: return the result of `run`, and record the action.

        Raises `AlreadyDone` if the request was executed before.
        """
        draft.is_begun = True
        if draft.is_dry:
            return await run()
        row = draft.row(self._clock.now(), STARTED if draft.outside else OK)
        write = _ActionWrite(row, draft.repeat, self._clock.steady(), is_frequent=draft.frequent)
        try:
            with attach(write):
                if draft.outside:
                    await self._database.write(_nothing)
                value = await run()
        except (AlreadyDone, asyncio.CancelledError):
            raise
        except Exception as error:
            await self._end(draft, write, error)
            raise
        await self._end(draft, write, None)
        return value

    async def perform_once(
        self,
        draft: ActionDraft,
        key: str,
        describe: Callable[[], str],
        run: Callable[[], Awaitable[Any]],
        *,
        is_secret: bool,
    ) -> KeptAnswer:
        """Execute an action unless an earlier request with the same key did.

        Raises `Conflict`, and the errors of `run`. `describe` returns the parameters of the request. With `is_secret`,
        the answer is not kept for repetitions.
        """
        draft.repeat = await asyncio.to_thread(repeated_request, draft.caller, key, draft.operation, describe)

        async def perform() -> bytes:
            return msgspec.json.encode(await self.perform(draft, run)) + b"\n"

        kept = await self.repeats.answer(draft.repeat, perform, is_secret=is_secret)
        if kept.is_replayed:
            self._metrics.action("repeated")
        return kept

    async def _end(self, draft: ActionDraft, write: _ActionWrite, error: Exception | None) -> None:
        """Record how an action ended. Raises `AlreadyDone`."""
        if error is not None and (write.is_counted or not write.is_written):
            draft.object, draft.arguments = write.row.object, write.row.arguments
            await self._fail(draft, error)
            return
        result = OK if error is None else _code_of(error)
        try:
            if not write.is_written:
                await self._database.write(write.around(_nothing))
            elif write.row.result != result:
                await self._database.write(set_result, write.number, result)
        except AlreadyDone:
            raise
        except EventdError as problem:
            logger.warning("recording failed", extra={"error": str(problem)})
        self._note(replace(write.row, result=result), OK if error is None else "failed", is_new=not write.is_counted)

    async def _fail(self, draft: ActionDraft, error: Exception) -> None:
        row = draft.row(self._clock.now(), _code_of(error))
        is_locked_out = isinstance(error, Throttled) and row.kind == "unknown"
        is_refusal = is_locked_out or isinstance(error, Unauthorized | Forbidden)
        if is_refusal:
            # counted without its object, so that many names do not make many rows; the newest is an argument
            named = add_argument("{}", "object", row.object) if row.object and isinstance(error, Forbidden) else "{}"
            row = replace(row, object="", arguments=named)
        await self.refused.add(row)
        self._note(row, "refused" if is_refusal else "failed")

    def _note(self, row: ActionRow, result: str, *, is_new: bool = True) -> None:
        self._metrics.action(result)
        if result == "refused" or not is_new:  # only counted, since they may be many
            return
        described: dict[str, Any] = {"who": row.who, "action": row.operation, "object": row.object}
        logger.info("action", extra={**described, "result": row.result, "request": row.request})


def name_objects(names: Sequence[str]) -> None:
    """Name the objects of the running action, before it writes.

    A single one becomes its object, several become its argument `objects`. For operations whose path and parameters do
    not name the objects. Does nothing if no action is being recorded.
    """
    write = attached()
    if not isinstance(write, _ActionWrite) or not names:
        return
    if len(names) == 1:
        write.row = replace(write.row, object=names[0][:MOST_OBJECT])
    else:
        write.row = replace(write.row, arguments=add_argument(write.row.arguments, "objects", list(names)))


def name_target(target: str, **arguments: Any) -> None:
    """Name what the running action concerns, and what it does to it, before it writes.

    For operations whose parameters are only a token. Does nothing if no action is being recorded.
    """
    write = attached()
    if not isinstance(write, _ActionWrite):
        return
    recorded = write.row.arguments
    for name, value in arguments.items():
        recorded = add_argument(recorded, name, value)
    write.row = replace(write.row, object=target[:MOST_OBJECT], arguments=recorded)


def _code_of(error: Exception) -> str:
    return API_FORM.code(error) if isinstance(error, EventdError) else Internal.code


def _nothing(_conn: Connection) -> None:
    """Write nothing: the transaction is made only for its attached write."""
