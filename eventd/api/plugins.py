"""Plugins: which are declared, running one by hand, whether one keeps the contract, and what their runs came to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from eventd.api.moments import show_seconds, show_time
from eventd.api.operations import Operation, Params, Services
from eventd.api.subscriptions import show_run
from eventd.clock import Clock
from eventd.dynamic.part import API_VERSION, KIND, form_manual_part, part_name, plugin_owner
from eventd.errors import Invalid, NotFound
from eventd.log.head import lock_head
from eventd.plugins.check import DEFAULT_TYPE, Checking, Verdict
from eventd.plugins.context import context_of
from eventd.plugins.contract import MANUAL_TRIGGER, Outcome, PluginFailed, Request
from eventd.plugins.running import Plugins
from eventd.resources.effective import PluginConfig, plugins, startup, subscriptions
from eventd.resources.kinds import PLUGIN
from eventd.resources.resource import document, from_stored, identity_of
from eventd.settings import plugin_environment
from eventd.store.database import Connection
from eventd.store.generations import read_noted
from eventd.store.parts import NewPart, put_part, read_parts
from eventd.store.registry import StoredResource, read_resources
from eventd.store.runs import Ending, NewRun, RunStatus, begin_run, end_run, read_run, read_runs


class ListPlugins(Params):
    """All of them."""


async def _list(services: Services, params: ListPlugins) -> dict[str, Any]:
    rows = await services.database.read(read_resources, PLUGIN.name)
    return {"plugins": [_show_plugin(row) for row in rows]}


def _show_plugin(row: StoredResource) -> dict[str, Any]:
    spec = from_stored(row).effective()
    return {
        "name": row.name,
        "executable": spec["executable"],
        "entryPoint": spec["entryPoint"],
        "capabilities": ",".join(spec["capabilities"]),
        "triggers": ",".join(_show_trigger(trigger) for trigger in spec["triggers"]),
    }


def _show_trigger(trigger: Mapping[str, Any]) -> str:
    detail = trigger["every"] if trigger["type"] == "interval" else trigger["topic"]
    return f"{trigger['type']}:{detail}" if detail else str(trigger["type"])


# --- by hand --------------------------------------------------------------------------------------------------------


class RunPlugin(Params):
    """One run of a plugin, without events."""

    name: str = Field(description="The name of the Plugin.")
    dry_run: bool = Field(default=False, description="Store nothing, neither the run nor what it proposes.")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a run by hand is made of."""

    config: PluginConfig
    request: Request


def _read_asked(conn: Connection, params: RunPlugin, now: int) -> _Asked:
    stored = read_resources(conn)
    config = _find(stored, params.name)
    earlier = [] if params.dry_run else read_parts(conn, source=plugin_owner(params.name))
    noted = read_noted(conn)
    request = Request(
        plugin=config.name,
        trigger=MANUAL_TRIGGER,
        topic="",
        now=now,
        context=context_of(config, stored),
        startup_hash=_hash(stored),
        effective_generation=noted.generation if noted else 0,
        previous_generation=max((part.generation for part in earlier), default=0),
    )
    return _Asked(config, request)


def _find(stored: Sequence[StoredResource], name: str) -> PluginConfig:
    found = plugins(stored)
    if name not in found:
        there = f"there are {', '.join(sorted(found)[:10])}" if found else "declare one first: routerctl apply -f FILE"
        raise NotFound(f"no plugin {name!r} is declared", hint=there)
    return found[name]


def _hash(stored: Sequence[StoredResource]) -> str:
    """Changes with everything that is declared, and with nothing else."""
    documents = [document(identity_of(row), row.annotations, row.spec) for row in startup(stored)]
    return hashlib.sha256(json.dumps(documents, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


async def _run(services: Services, params: RunPlugin) -> dict[str, Any]:
    asked = await services.database.read(_read_asked, params, services.clock.now())
    run_id = None if params.dry_run else await services.database.write(_begin, asked.config, services.clock.now())
    ending = Ending(status=RunStatus.INTERRUPTED, completed_at=services.clock.now())
    running = Plugins(services.clock, environment=plugin_environment())
    try:
        outcome = await running.run(asked.config, asked.request)
        part = form_manual_part(plugin=asked.config.name, result=outcome.result, now=services.clock.now())
        generation = asked.request.previous_generation + 1
        if run_id is not None:
            generation = await services.database.write(_store, run_id, part, outcome, services.clock.now())
        return _report(asked.config, part, generation, outcome, stored=run_id is not None)
    except PluginFailed as failed:
        ending = _ending(failed)
        failed.detail = {"outcome": _show_failure(failed)}
        raise
    except Invalid as invalid:  # what it proposes cannot be stored
        ending = replace(ending, status=RunStatus.FAILED, error=str(invalid))
        raise
    finally:
        await running.close()
        if run_id is not None:
            await services.database.write(_end, run_id, ending)


def _begin(conn: Connection, config: PluginConfig, now: int) -> int:
    return begin_run(conn, NewRun(plugin=config.name, trigger=MANUAL_TRIGGER, started_at=now))


def _store(conn: Connection, run_id: int, part: NewPart, outcome: Outcome, now: int) -> int:
    lock_head(conn)
    generation = put_part(conn, part, now)
    ending = Ending(
        status=RunStatus.SUCCEEDED,
        completed_at=outcome.completed_at,
        exit_code=outcome.exit_code,
        stdout_digest=outcome.stdout_digest,
        stderr=outcome.stderr,
        source=part.source,
        generation=generation,
    )
    end_run(conn, run_id, ending)
    return generation


def _end(conn: Connection, run_id: int, ending: Ending) -> None:
    """Unless it has ended well already."""
    run = read_run(conn, run_id)
    if run is not None and run.status is RunStatus.RUNNING:
        end_run(conn, run_id, ending)


def _ending(failed: PluginFailed) -> Ending:
    return Ending(
        status=RunStatus.BLOCKED if failed.about_plugin else RunStatus.FAILED,
        completed_at=failed.completed_at,
        exit_code=failed.exit_code,
        stdout_digest=failed.stdout_digest,
        stderr=failed.stderr,
        error=str(failed),
    )


def _report(config: PluginConfig, part: NewPart, generation: int, outcome: Outcome, *, stored: bool) -> dict[str, Any]:
    result = outcome.result
    return {
        "plugin": config.name,
        "source": part.source,
        "dryRun": not stored,
        "stored": stored,
        "outcome": {
            "exitCode": outcome.exit_code or 0,
            "hasExitCode": outcome.exit_code is not None,
            "durationMs": (outcome.completed_at - outcome.started_at) // 1000,
            "stdoutDigest": outcome.stdout_digest,
            "stderr": outcome.stderr,
        },
        "part": _show_part(part, generation),
        "summary": {
            "resources": len(result.resources),
            "directives": len(result.directives),
            "actionPlans": len(result.action_plans),
            "events": len(result.events),
            "actionPlansDisplayOnly": True,
        },
        "actionPlans": list(result.action_plans),
    }


def _show_part(part: NewPart, generation: int) -> dict[str, Any]:
    """The part as the resource it is shown as."""
    spec = {
        "source": part.source,
        "generation": generation,
        "observedAt": show_time(part.observed_at),
        "expiresAt": show_time(part.expires_at),
        "digest": part.digest,
        "resources": list(part.resources),
        "directives": list(part.directives),
        "actionPlans": list(part.action_plans),
    }
    name = part_name(part.source, generation)
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}


def _show_failure(failed: PluginFailed) -> dict[str, Any]:
    return {
        "reason": failed.reason,
        "exitCode": failed.exit_code or 0,
        "hasExitCode": failed.exit_code is not None,
        "durationMs": (failed.completed_at - failed.started_at) // 1000,
        "stdoutDigest": failed.stdout_digest,
        "stderr": failed.stderr,
    }


# --- the contract ---------------------------------------------------------------------------------------------------


class CheckPlugin(Params):
    """The checks of a declared plugin. It is run some twenty times; nothing is stored."""

    name: str = Field(description="The name of the Plugin.")
    type: str = Field(default="", description="The type of the events it is given; by default one it is declared for.")


async def _check(services: Services, params: CheckPlugin) -> dict[str, Any]:
    stored = await services.database.read(read_resources)
    config = _find(stored, params.name)
    checking = make_checking(services.clock, config, params.type or _type_for(stored, config.name))
    checking.context = context_of(config, stored)
    return await run_checks(checking)


def make_checking(clock: Clock, config: PluginConfig, event_type: str) -> Checking:
    """The checks of a plugin on this machine."""
    environment = plugin_environment()
    running = Plugins(clock, environment=environment)
    return Checking(running, config, clock, environment, event_type=event_type or DEFAULT_TYPE)


async def run_checks(checking: Checking) -> dict[str, Any]:
    """Every verdict, and whether all is well."""
    try:
        verdicts = [verdict async for verdict in checking.run()]
    finally:
        await checking.plugins.close()
    failed = sum(verdict.state == "failed" for verdict in verdicts)
    return {"plugin": checking.config.name, "checks": [_show_verdict(one) for one in verdicts], "failed": failed}


def _show_verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "check": verdict.check,
        "verdict": verdict.state,
        "tookSeconds": show_seconds(verdict.took),
        "reason": verdict.reason,
    }


def _type_for(stored: Sequence[StoredResource], name: str) -> str:
    """A type of events that a subscription hands to the plugin."""
    types = (type for one in subscriptions(stored).values() if one.plugin == name for type in one.selector.types)
    return next((type.replace("*", "check") for type in sorted(types)), "")


# --- runs -----------------------------------------------------------------------------------------------------------


class ListRuns(Params):
    """Which runs to list, newest first."""

    plugin: str = Field(default="", description="Only of this Plugin.")
    status: list[RunStatus] = Field(default=[], description="Only these.")
    before: int | None = Field(default=None, ge=1, description="Go on with runs before this one.")
    limit: int = Field(default=100, ge=1, le=1000, description="At most so many.")


async def _runs(services: Services, params: ListRuns) -> dict[str, Any]:
    runs = await services.database.read(
        read_runs, plugin=params.plugin, statuses=params.status, before=params.before, limit=params.limit + 1
    )
    shown = runs[: params.limit]
    return {"runs": [show_run(run) for run in shown], "next": shown[-1].id if len(runs) > len(shown) else None}


_ONE = "/api/v1/plugins/{name}"

OPERATIONS: tuple[Operation[Any], ...] = (
    Operation("plugins.list", "GET", "/api/v1/plugins", ListPlugins, _list, "read", "List the declared plugins"),
    Operation("plugins.run", "POST", f"{_ONE}/run", RunPlugin, _run, "admin", "Run a plugin once, without events"),
    Operation(
        "plugins.check",
        "POST",
        f"{_ONE}/check",
        CheckPlugin,
        _check,
        "admin",
        "Run a plugin with sample requests and judge its answers",
    ),
    Operation("plugins.runs", "GET", "/api/v1/plugin-runs", ListRuns, _runs, "read", "What runs of plugins came to"),
)
