"""Plugins: list the declared ones, run one, check its contract, and list its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from eventd.api.admin.subscriptions.subscription_runs import show_run
from eventd.api.framework.moments import show_seconds, show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.paging import PAGE_SIZE, Limit, cut_page
from eventd.dynamic.part import API_VERSION, KIND, part_name
from eventd.plugins.contract.contract import Outcome, PluginFailed
from eventd.plugins.run.check import DEFAULT_TYPE, Checking, PluginCheck
from eventd.plugins.run.context import context_of
from eventd.plugins.run.plugins import Plugins
from eventd.plugins.run.without_events import find_plugin, prepare_manual_run, run_without_events
from eventd.resources.kinds.registry import PLUGIN
from eventd.resources.plugin_configuration import PluginConfig, subscriptions
from eventd.resources.validation.resource import from_stored
from eventd.runtime.clock import Clock
from eventd.runtime.threads import ThreadFactory
from eventd.settings.environment import plugin_environment
from eventd.store.parts.part import NewPart
from eventd.store.rows.registry import StoredResource, read_resources
from eventd.store.rows.runs import RunStatus, read_runs


class ListPlugins(Params):
    """No parameters."""


async def list_plugins(services: Services, params: ListPlugins) -> dict[str, Any]:
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
    dry_run: bool = Field(default=False, description="Store neither the run nor its proposals.")


async def run_plugin(services: Services, params: RunPlugin) -> dict[str, Any]:
    kept = not params.dry_run
    asked = await services.database.read(
        lambda conn: prepare_manual_run(conn, params.name, services.clock.now(), kept=kept)
    )
    running = Plugins(services.clock, environment=plugin_environment(), threads=services.database.threads)
    try:
        gave = await run_without_events(services.database, services.clock, running, asked)
    except PluginFailed as failed:
        failed.detail = {"outcome": _show_failure(failed)}
        raise
    finally:
        await running.close()
    return _report(asked.config, gave.part, gave.generation, gave.outcome, stored=kept)


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
    """Return the part in the form of a resource."""
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
    """Check a declared plugin. It is run up to 17 times; nothing is stored."""

    name: str = Field(description="The name of the Plugin.")
    type: str = Field(
        default="", description="The type of the sample events; by default one of a subscription that runs the plugin."
    )


async def check_plugin(services: Services, params: CheckPlugin) -> dict[str, Any]:
    stored = await services.database.read(read_resources)
    config = find_plugin(stored, params.name)
    event_type = params.type or _type_for(stored, config.name)
    checking = make_checking(services.clock, config, event_type, services.database.threads)
    checking.context = context_of(config, stored)
    return await run_checks(checking)


def make_checking(clock: Clock, config: PluginConfig, event_type: str, threads: ThreadFactory) -> Checking:
    """Return the checks of a plugin, which run it on this machine with events of `event_type` (empty: a default)."""
    environment = plugin_environment()
    running = Plugins(clock, environment=environment, threads=threads)
    return Checking(running, config, clock, environment, event_type=event_type or DEFAULT_TYPE)


async def run_checks(checking: Checking) -> dict[str, Any]:
    """Run all checks and close the plugin; return every verdict, and how many checks failed, as JSON."""
    try:
        verdicts = [verdict async for verdict in checking.run()]
    finally:
        await checking.plugins.close()
    failed = sum(verdict.state == "failed" for verdict in verdicts)
    return {"plugin": checking.config.name, "checks": [_show_verdict(one) for one in verdicts], "failed": failed}


def _show_verdict(verdict: PluginCheck) -> dict[str, Any]:
    return {
        "check": verdict.check,
        "verdict": verdict.state,
        "tookSeconds": show_seconds(verdict.took),
        "reason": verdict.reason,
        "stderr": verdict.stderr,
    }


def _type_for(stored: Sequence[StoredResource], name: str) -> str:
    """Return an event type that a subscription passes to the plugin, with any `*` replaced; empty if there is none."""
    types = (type for one in subscriptions(stored).values() if one.plugin == name for type in one.selector.types)
    return next((type.replace("*", "check") for type in sorted(types)), "")


# --- runs -----------------------------------------------------------------------------------------------------------


class ListRuns(Params):
    """Which runs to list, newest first."""

    plugin: str = Field(default="", description="Only runs of this Plugin.")
    status: list[RunStatus] = Field(default=[], description="Only runs with these results.")
    before: int | None = Field(default=None, ge=1, description="Continue with runs before this id.")
    limit: Limit = PAGE_SIZE


async def list_runs(services: Services, params: ListRuns) -> dict[str, Any]:
    runs = await services.database.read(
        read_runs, plugin=params.plugin, statuses=params.status, before=params.before, limit=params.limit + 1
    )
    shown, following = cut_page(runs, params.limit, lambda run: run.id)
    return {"runs": [show_run(run) for run in shown], "next": following}
