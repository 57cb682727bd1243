"""Runs of plugins without events, started by an operator or a schedule.

The part of a run replaces that of the same owner's last run, in one transaction that also stores the end of the run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from eventd.dynamic.part import form_manual_part, plugin_owner
from eventd.errors import Invalid, NotFound
from eventd.log.core.head import lock_head
from eventd.plugins.contract.contract import INTERVAL_TRIGGER, MANUAL_TRIGGER, Outcome, PluginFailed, RunRequest
from eventd.plugins.run.context import context_of
from eventd.plugins.run.endings import ended_badly, ended_well
from eventd.plugins.run.plugins import Plugins
from eventd.resources.plugin_configuration import PluginConfig, ScheduleConfig, plugins, startup
from eventd.resources.validation.resource import document, identity_of
from eventd.runtime.clock import Clock
from eventd.store.engine.database import Connection, Database
from eventd.store.parts.part import NewPart
from eventd.store.parts.parts import put_part
from eventd.store.parts.reading import read_parts
from eventd.store.rows.generations import read_noted
from eventd.store.rows.registry import StoredResource, read_resources
from eventd.store.rows.runs import NewRun, RunEnd, RunStatus, begin_run, end_run, read_run

BROKEN_OFF: Final = "the run was interrupted: the node or command was stopped, or the plugin or its schedule changed"


@dataclass(frozen=True, slots=True)
class RunOrder:
    """The input of a run. `owner` will own its part; `kept`: whether run and part are stored.

    `ttl` limits how long the part lasts, in microseconds; None: only the ttl of the result does.
    """

    config: PluginConfig
    request: RunRequest
    owner: str
    ttl: int | None = None
    kept: bool = True


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outcome of a run, and the generation of its part; 1 if it was not stored."""

    part: NewPart
    generation: int
    outcome: Outcome


def prepare_manual_run(conn: Connection, name: str, now: int, *, kept: bool) -> RunOrder:
    """Return the order for a run that an operator starts. Raises NotFound if the plugin is not declared."""
    stored = read_resources(conn)
    config = find_plugin(stored, name)
    owner = plugin_owner(name)
    return RunOrder(
        config, _request(conn, stored, config, owner if kept else "", MANUAL_TRIGGER, now), owner, kept=kept
    )


def prepare_due_run(conn: Connection, schedule: ScheduleConfig, now: int) -> RunOrder:
    """Return the order for a run that is due by a schedule. Raises NotFound for an undeclared plugin."""
    stored = read_resources(conn)
    config = find_plugin(stored, schedule.plugin)
    request = _request(conn, stored, config, schedule.owner, INTERVAL_TRIGGER, now)
    return RunOrder(config, request, schedule.owner, schedule.ttl)


def find_plugin(stored: Sequence[StoredResource], name: str) -> PluginConfig:
    """Return the configuration of the declared plugin `name`. Raises NotFound."""
    found = plugins(stored)
    if name not in found:
        there = f"declared: {', '.join(sorted(found)[:10])}" if found else "declare one first: routerctl apply -f FILE"
        raise NotFound(f"no plugin {name!r} is declared", hint=there)
    return found[name]


def _request(
    conn: Connection, stored: Sequence[StoredResource], config: PluginConfig, owner: str, trigger: str, now: int
) -> RunRequest:
    """Build the request. `previous_generation` is that of the newest stored part whose source is `owner`; 0 without."""
    earlier = read_parts(conn, source=owner) if owner else []
    noted = read_noted(conn)
    return RunRequest(
        plugin=config.name,
        trigger=trigger,
        topic="",
        now=now,
        context=context_of(config, stored),
        startup_hash=_hash(stored),
        effective_generation=noted.generation if noted else 0,
        previous_generation=max((part.generation for part in earlier), default=0),
    )


def _hash(stored: Sequence[StoredResource]) -> str:
    """Return the SHA-256, in hex, of all declared resources."""
    documents = [document(identity_of(row), row.annotations, row.spec, row.labels) for row in startup(stored)]
    return hashlib.sha256(json.dumps(documents, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


async def run_without_events(database: Database, clock: Clock, running: Plugins, asked: RunOrder) -> RunResult:
    """Run a plugin without events. If `asked.kept`, store the run, also a failed one, and the part of its result.

    Events in the result are not emitted. Raises PluginFailed, and Invalid for a result that cannot be stored.
    """
    run_id = await database.write(_begin, asked, clock.now()) if asked.kept else None
    ending = RunEnd(status=RunStatus.INTERRUPTED, completed_at=0, error=BROKEN_OFF)
    try:
        outcome = await running.run(asked.config, asked.request)
        part = form_manual_part(
            plugin=asked.config.name, result=outcome.result, now=clock.now(), owner=asked.owner, ttl=asked.ttl
        )
        generation = asked.request.previous_generation + 1
        if run_id is not None:
            generation = await database.write(_store, run_id, part, outcome, clock.now())
        return RunResult(part, generation, outcome)
    except PluginFailed as failed:
        ending = ended_badly(failed, at=failed.completed_at)
        raise
    except Invalid as invalid:
        ending = replace(ending, status=RunStatus.FAILED, error=str(invalid))
        raise
    finally:
        if run_id is not None:
            await database.write(_end, run_id, replace(ending, completed_at=clock.now()))


def _begin(conn: Connection, asked: RunOrder, now: int) -> int:
    by_clock = asked.request.trigger == INTERVAL_TRIGGER
    line = NewRun(
        plugin=asked.config.name,
        trigger=asked.request.trigger,
        started_at=now,
        cursor=asked.owner if by_clock else "",
    )
    return begin_run(conn, line)


def _store(conn: Connection, run_id: int, part: NewPart, outcome: Outcome, now: int) -> int:
    lock_head(conn)
    generation = put_part(conn, part, now)
    ending = ended_well(outcome, at=outcome.completed_at, source=part.source, generation=generation)
    end_run(conn, run_id, ending)
    return generation


def _end(conn: Connection, run_id: int, ending: RunEnd) -> None:
    """Store the end of a run, unless `_store` has stored that end before."""
    run = read_run(conn, run_id)
    if run is not None and run.status is RunStatus.RUNNING:
        end_run(conn, run_id, ending)
