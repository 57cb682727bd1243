"""Runs a plugin with a batch: whole, then by halves, until the one event is found that it cannot process.

The number of attempts is stored with the runs, so it survives a restart of the node. A run's result or dead letter is
stored with its end when the cursor is settled; a failure that is retried is stored at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from eventd.dynamic.guard import observations_of, refuse_captured, refuse_proposed
from eventd.dynamic.part import form_part, subscription_owner
from eventd.egress.loop.sink import Ack, Blocked, LinkUnavailable, RecordRefusal
from eventd.egress.loop.tries import Tries
from eventd.egress.subscriptions.derivation import derive
from eventd.egress.subscriptions.run_effect import LostRun, RunEffect
from eventd.egress.subscriptions.window import RunBatch
from eventd.errors import Conflict, EventdError, Invalid
from eventd.log.core.eventlog import EventLog
from eventd.log.cursors.cursors import Cursor
from eventd.plugins.contract.contract import SUBSCRIPTION_TRIGGER, PluginFailed, RunRequest, subscription_topic
from eventd.plugins.run.endings import ended_badly, ended_well, refused_after
from eventd.plugins.run.plugins import Plugins
from eventd.resources.group_configuration import GroupConfig
from eventd.resources.plugin_configuration import PluginConfig, SubscriptionConfig
from eventd.store.engine.database import Database
from eventd.store.rows.runs import NewRun, Run, RunEnd, RunStatus, begin_run, end_run, interrupt_runs, last_run
from eventd.tracing import tracing
from eventd.tracing.spans import Attributes

KEPT = 2000
"""Maximum number of characters of a plugin's message that are stored with a dead letter."""
UNFINISHED = (RunStatus.RUNNING, RunStatus.FAILED, RunStatus.BLOCKED, RunStatus.INTERRUPTED)
CRASHES = 3
"""The allowed attempts of a batch are multiplied by this if the node ended during its last run: the plugin need not be
the cause.
"""
NODE_ENDED = "the node ended while the plugin ran"
BROKEN_OFF = "the run was interrupted: the node was stopped, or the subscription was paused or changed"
NOT_STORED = "the result of the run was not stored: the subscription was paused, blocked or changed meanwhile"


class SubscriptionMetrics(Protocol):
    """Interface of the metrics of runs. Times are in seconds."""

    def ran(self, group: str, subscription: str, status: str, events: int, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class SubscriptionDependencies:
    """Dependencies shared by the subscriptions of a node.

    `context` returns the resources a plugin may see now. `changed` is called when the parts may have changed.
    """

    log: EventLog
    plugins: Plugins
    context: Callable[[PluginConfig], Sequence[dict[str, Any]]]
    changed: Callable[[], None]
    metrics: SubscriptionMetrics


class PluginRunner:
    """Runs the plugin for one cursor, and counts the attempts.

    A batch that has used up its attempts is run by halves; see `Tries`.
    """

    def __init__(
        self,
        config: SubscriptionConfig,
        plugin: PluginConfig | None,
        group: GroupConfig,
        cursor: Cursor,
        ledger_cursor: str,
        dependencies: SubscriptionDependencies,
    ) -> None:
        self._config = config
        self._plugin = plugin
        self._group = group
        self._cursor = cursor.name
        self._is_backfill = cursor.until is not None
        self._topic_id = cursor.topic_id
        self._ledger_cursor = ledger_cursor
        self._dependencies = dependencies
        self._owner = subscription_owner(config.name)
        self._open = ""  # the error to store for the run under way if it is given up; empty without one
        self._begun = 0.0
        self._tries = Tries(config.max_attempts)
        self._exhausted: Run | None = None  # the last run of a batch that must not be tried again as a whole

    @property
    def until(self) -> int | None:
        """Return the end of a batch that was tried before and is not done; None if there is none."""
        return self._tries.until

    def forget(self) -> None:
        """Forget the earlier attempts, in memory: their batch is done."""
        self._tries.forget()
        self._exhausted = None

    async def recall(self, position: int) -> None:
        """Read from the stored runs which batch beyond this position was tried before, and how often.

        A run that is still stored as running is first stored as failed: the node ended during it.
        """
        await self._break_off()
        self.forget()
        last = await self._database.read_for_delivery(last_run, self._cursor)
        if last is None:
            return
        if last.status is RunStatus.RUNNING:
            ending = RunEnd(status=RunStatus.FAILED, completed_at=self._now(), error=NODE_ENDED)
            await self._database.write(end_run, last.id, ending)
            last = replace(last, status=RunStatus.FAILED, error=NODE_ENDED)
        if last.upto > position and last.status in UNFINISHED:
            counts = last.status is RunStatus.FAILED
            most = self._config.max_attempts * (CRASHES if last.error == NODE_ENDED else 1)
            self._tries.recall(last.upto, last.attempt + counts)
            self._exhausted = last if counts and last.attempt >= most else None

    def settled(self, ack: Ack) -> None:
        """Note that the result of a run is stored; forget its attempts unless the rest of the batch must be run."""
        self._open = ""
        self._tries.passed(ack.upto, found=bool(ack.refused))

    async def given_up(self) -> None:
        """Mark a run that was not settled as interrupted, so that it does not count as an attempt."""
        with suppress(EventdError):  # `recall` does it if the database is unavailable now
            await self._break_off()

    async def _break_off(self) -> None:
        if self._open:
            await self._database.write(interrupt_runs, self._cursor, self._open, self._now())
            self._open = ""

    def note_loss(self, after: int, upto: int) -> Ack:
        """Return the result for evicted positions `(after, upto]`; settling it stores the row of a lost run."""
        error = f"retention removed the events from position {after + 1} to {upto}: no run will receive them"
        return Ack(
            upto,
            effect=LostRun(self._line(after, upto, (), (), 1, RunStatus.LOST, error)),
            ledger_cursor=self._ledger_cursor,
        )

    async def run(self, batch: RunBatch) -> Ack:
        """Run the plugin with a batch, or only its first part, and return the result, which is not stored yet.

        The plugin is not run without events for it, or if the attempts of a single event are used up. Raises `Blocked`
        and `LinkUnavailable`.
        """
        if not batch.kept:
            return Ack(batch.upto, effect=self._effect(batch), ledger_cursor=self._ledger_cursor)
        if self._exhausted is not None:
            last, self._exhausted = self._exhausted, None
            if len(batch.kept) == 1:
                return self._dead_letter_untried(batch, last)
            batch = batch.first_half()
        while True:
            attempt = self._tries.attempt
            run_id = await self._begin(batch, attempt)
            try:
                ack = await (self._traced(batch, run_id) if tracing.on else self._once(batch, run_id))
            except PluginFailed as failure:
                if len(batch.kept) == 1 and attempt >= self._config.max_attempts and not failure.about_plugin:
                    return self._dead_letter(batch, run_id, attempt, failure)
                await self._fail(batch, run_id, failure)
                if attempt < self._config.max_attempts:
                    raise LinkUnavailable("plugin_failed", str(failure)) from None
                self._tries.recall(batch.upto, attempt + 1)
                batch = batch.first_half()
            else:
                return ack

    async def _begin(self, batch: RunBatch, attempt: int) -> int:
        if self._plugin is None:
            raise Blocked("no_plugin", f"the Plugin {self._config.plugin} is not declared")
        self._open = BROKEN_OFF
        ids = [one.event.id for one in batch.kept]
        line = self._line(batch.after, batch.upto, ids, batch.coalesced, attempt, RunStatus.RUNNING, "")
        return await self._database.write(begin_run, line)

    def _line(
        self,
        after: int,
        upto: int,
        ids: Sequence[str],
        coalesced: Sequence[str],
        attempt: int,
        status: RunStatus,
        error: str,
    ) -> NewRun:
        return NewRun(
            plugin=self._config.plugin,
            trigger=SUBSCRIPTION_TRIGGER,
            started_at=self._now(),
            subscription=self._config.name,
            cursor=self._cursor,
            after=after,
            upto=upto,
            group=self._group.name,
            event_ids=ids,
            coalesced=coalesced,
            attempt=attempt,
            status=status,
            error=error,
        )

    async def _traced(self, batch: RunBatch, run_id: int) -> Ack:
        """Run the plugin once, as `_once`, in a span that links to the events."""
        links = [context for _, context in tracing.sampled.between(batch.after, batch.upto)]
        about: Attributes = {
            "eventd.group": self._group.name,
            "eventd.subscription": self._config.name,
            "eventd.plugin": self._config.plugin,
            "eventd.run": run_id,
            "eventd.events": len(batch.kept),
        }
        with tracing.span("run", links=links, attributes=about):
            return await self._once(batch, run_id)

    async def _once(self, batch: RunBatch, run_id: int) -> Ack:
        """Run the plugin once, check its result and return it. Raises `PluginFailed`, also for a refused result."""
        assert self._plugin is not None
        self._begun = self._dependencies.log.clock.monotonic()
        events = [one.event for one in batch.kept]
        request = RunRequest(
            plugin=self._plugin.name,
            trigger=SUBSCRIPTION_TRIGGER,
            topic=subscription_topic(self._config.name),
            now=self._now(),
            events=events,
            context=self._dependencies.context(self._plugin),
        )
        outcome = await self._dependencies.plugins.run(self._plugin, request)
        try:
            part = form_part(
                owner=self._owner,
                events=events,
                result=outcome.result,
                plugin=self._plugin.name,
                clamp=self._config.clamp_to_events,
                grace=self._config.grace,
                now=self._now(),
            )
        except Invalid as error:
            raise refused_after(outcome, "bad_result", error.message) from None
        try:
            drafts = derive(outcome.result, batch, self._derivation, self._group, self._now())
        except PluginFailed as error:
            raise refused_after(outcome, error.reason, error.message) from None
        observations = observations_of(drafts)
        try:
            refuse_proposed(part.resources, observations)
            await self._database.read_for_delivery(refuse_captured, observations, self._now())
        except Conflict as error:
            raise refused_after(outcome, error.code, error.message) from None
        self._report(batch, RunStatus.SUCCEEDED)
        effect = self._effect(
            batch,
            part=part,
            drafts=drafts,
            observations=observations,
            run_id=run_id,
            ending=lambda now, given: ended_well(
                outcome, at=now, source=given.source, generation=given.generation, problem=given.problem
            ),
        )
        self._open = NOT_STORED
        return Ack(batch.upto, effect=effect, ledger_cursor=self._ledger_cursor)

    @property
    def _derivation(self) -> str:
        return f"{self._group.node_name}/{self._config.name}"

    def _effect(self, batch: RunBatch, **gave: Any) -> RunEffect:
        return RunEffect(
            owner=self._owner,
            topic=self._topic_id,
            ceiling=self._group.retention.max_bytes,
            ended=batch.ended,
            late=batch.upto if self._is_backfill else None,
            **gave,
        )

    # --- failing ----------------------------------------------------------------------------------------------

    async def _fail(self, batch: RunBatch, run_id: int, failure: PluginFailed) -> None:
        """Store the failed run; return only if an event may be the cause of the failure.

        If the plugin itself is the cause, raise `LinkUnavailable` if a later run may succeed, or else `Blocked`.
        """
        status = RunStatus.BLOCKED if failure.about_plugin else RunStatus.FAILED
        await self._database.write(end_run, run_id, ended_badly(failure, at=self._now()))
        self._open = ""
        self._report(batch, status)
        if failure.about_plugin:
            held = LinkUnavailable if failure.transient else Blocked
            raise held(failure.reason, str(failure)) from None

    def _dead_letter(self, batch: RunBatch, run_id: int, attempt: int, failure: PluginFailed) -> Ack:
        """Return the result that makes the batch's only event a dead letter, with the plugin's message."""
        message = _with_output(str(failure), failure.stderr)
        letter = RecordRefusal(batch.kept[0], failure.reason, message[:KEPT], attempt)
        effect = self._effect(
            batch,
            run_id=run_id,
            ending=lambda now, given: ended_badly(failure, at=now, status=RunStatus.PARKED),
        )
        self._open = NOT_STORED
        self._report(batch, RunStatus.PARKED)
        return Ack(batch.upto, refused=(letter,), effect=effect, ledger_cursor=self._ledger_cursor)

    def _dead_letter_untried(self, batch: RunBatch, last: Run) -> Ack:
        """Return the result that makes the batch's only event a dead letter without another run.

        Its attempts are used up: the node ended in the last one, or more were allowed before.
        """
        reason = "node_ended" if last.error == NODE_ENDED else "plugin_failed"
        message = _with_output(last.error, last.stderr)
        letter = RecordRefusal(batch.kept[0], reason, message[:KEPT], last.attempt)
        effect = self._effect(batch, run_id=last.id, ending=lambda now, given: _dead_letter_end(last, now))
        self._report(batch, RunStatus.PARKED, ran=False)
        return Ack(batch.upto, refused=(letter,), effect=effect, ledger_cursor=self._ledger_cursor)

    def _report(self, batch: RunBatch, status: RunStatus, *, ran: bool = True) -> None:
        seconds = self._dependencies.log.clock.monotonic() - self._begun if ran else 0.0
        self._dependencies.metrics.ran(self._group.name, self._config.name, status, len(batch.kept), seconds)

    @property
    def _database(self) -> Database:
        return self._dependencies.log.database

    def _now(self) -> int:
        return self._dependencies.log.clock.now()


def _with_output(message: str, stderr: str) -> str:
    """Return the message of a failed run with what the plugin wrote to its standard error."""
    written = stderr.strip()
    return f"{message}; it wrote: {written}" if written else message


def _dead_letter_end(last: Run, now: int) -> RunEnd:
    return RunEnd(
        status=RunStatus.PARKED,
        completed_at=last.completed_at or now,
        exit_code=last.exit_code,
        stdout_digest=last.stdout_digest,
        stderr=last.stderr,
        error=last.error,
    )
