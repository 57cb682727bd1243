"""The configuration of plugins: what runs them, what they may change, with every default filled in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eventd.resources.kinds.event_subscription import EventSubscriptionSpec
from eventd.resources.kinds.override_policy import DynamicOverridePolicySpec
from eventd.resources.kinds.plugin import DynamicConfigSourceSpec, PluginSpec, PluginTrigger, ResourceReference
from eventd.resources.kinds.registry import DYNAMIC_CONFIG_SOURCE, DYNAMIC_OVERRIDE_POLICY, EVENT_SUBSCRIPTION, PLUGIN
from eventd.resources.validation.resource import ResourceRef, specs_of
from eventd.runtime.backoff import Backoff
from eventd.store.rows.registry import StoredResource
from eventd.text.duration import SECOND
from federation.selector import Selector

SHORTEST_INTERVAL = SECOND
"""The shortest time between two scheduled runs, in microseconds; a shorter declared interval counts as this."""


@dataclass(frozen=True, slots=True)
class SubscriptionConfig:
    """Which events run a plugin, and how its result is treated. `batch_window`, `debounce` and `grace` in microseconds.

    `batch_window` and `debounce` are None if they are not set.
    """

    name: str
    group: str
    selector: Selector
    plugin: str
    batch_window: int | None
    debounce: int | None
    max_attempts: int
    backoff: Backoff
    clamp_to_events: bool
    withdraw_on_expired: bool
    grace: int


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """A plugin: either `executable` or `entry_point` is empty. `timeout` and `ttl` in microseconds.

    `ttl` applies to results of an entry point that have none.
    """

    name: str
    executable: str
    entry_point: str
    timeout: int
    concurrency: int
    ttl: int
    env: tuple[tuple[str, str], ...]
    capabilities: frozenset[str]
    context: tuple[ResourceRef, ...]


@dataclass(frozen=True, slots=True)
class ScheduleConfig:
    """A plugin that runs at intervals. `every`, in microseconds, is the time from start to start.

    `ttl`: for how many microseconds a result lasts at most; None: no limit beside its own ttl. `owner` is `Plugin/NAME`
    or `DynamicConfigSource/NAME`, the resource that declares the interval.
    """

    owner: str
    plugin: str
    every: int
    ttl: int | None


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """The `operations` on the declared resources `targets` that one part, or all parts of one owner, may propose.

    `source` names the part or the owner.
    """

    source: str
    operations: frozenset[str]
    targets: frozenset[ResourceRef]


def subscriptions(stored: Iterable[StoredResource]) -> dict[str, SubscriptionConfig]:
    """Return the subscriptions by name. Raises Invalid for a row this program cannot read."""
    specs = specs_of(stored, EVENT_SUBSCRIPTION, EventSubscriptionSpec)
    return {name: _subscription(name, spec) for name, spec in specs.items()}


def _subscription(name: str, spec: EventSubscriptionSpec) -> SubscriptionConfig:
    match, retry = spec.match, spec.retry
    return SubscriptionConfig(
        name=name,
        group=spec.group_ref,
        selector=Selector.of(
            types=match.types,
            subject_prefixes=match.subject_prefixes,
            sources=match.source_nodes,
            payload=match.payload,
        ),
        plugin=spec.trigger.plugin_ref,
        batch_window=spec.trigger.batch_window or None,
        debounce=spec.trigger.debounce or None,
        max_attempts=retry.max_attempts,
        backoff=Backoff(base=retry.base_backoff / SECOND, cap=retry.max_backoff / SECOND),
        clamp_to_events=spec.lifetime.clamp_to_events,
        withdraw_on_expired=spec.lifetime.withdraw_on_expired,
        grace=spec.lifetime.grace,
    )


def plugins(stored: Iterable[StoredResource]) -> dict[str, PluginConfig]:
    """Return the plugins by name. Raises Invalid for a row this program cannot read."""
    return {name: _plugin(name, spec) for name, spec in specs_of(stored, PLUGIN, PluginSpec).items()}


def _plugin(name: str, spec: PluginSpec) -> PluginConfig:
    return PluginConfig(
        name=name,
        executable=spec.executable,
        entry_point=spec.entry_point,
        timeout=spec.timeout,
        concurrency=spec.concurrency,
        ttl=spec.ttl,
        # A process environment cannot contain an empty name or a name with "=".
        env=tuple(sorted((key, value) for key, value in spec.env.items() if key.strip() and "=" not in key)),
        capabilities=frozenset(spec.capabilities),
        context=tuple(map(_ref, spec.context.resources)),
    )


def schedules(stored: Iterable[StoredResource]) -> dict[str, ScheduleConfig]:
    """Return the schedules by owner; of several intervals of one owner, the shortest counts.

    Raises Invalid for a row this program cannot read.
    """
    rows = list(stored)
    found: list[ScheduleConfig] = []
    for name, plugin in specs_of(rows, PLUGIN, PluginSpec).items():
        found += _schedule(f"{PLUGIN.name}/{name}", name, plugin.triggers, None)
    for name, source in specs_of(rows, DYNAMIC_CONFIG_SOURCE, DynamicConfigSourceSpec).items():
        found += _schedule(f"{DYNAMIC_CONFIG_SOURCE.name}/{name}", source.plugin_ref, source.triggers, source.ttl)
    return {schedule.owner: schedule for schedule in found}


def _schedule(owner: str, plugin: str, triggers: Iterable[PluginTrigger], ttl: int | None) -> list[ScheduleConfig]:
    intervals = [trigger.every for trigger in triggers if trigger.every]
    return [ScheduleConfig(owner, plugin, max(SHORTEST_INTERVAL, min(intervals)), ttl)] if intervals else []


def policies(stored: Iterable[StoredResource]) -> tuple[PolicyRule, ...]:
    """Return every rule of every policy, ordered by policy name. Raises Invalid for a row this program cannot read."""
    found = specs_of(stored, DYNAMIC_OVERRIDE_POLICY, DynamicOverridePolicySpec)
    return tuple(
        PolicyRule(rule.source, frozenset(rule.operations), frozenset(map(_ref, rule.targets)))
        for _, spec in sorted(found.items())
        for rule in spec.allow
    )


def _ref(reference: ResourceReference) -> ResourceRef:
    return ResourceRef(reference.api_version, reference.kind, reference.name)


def startup(stored: Iterable[StoredResource]) -> list[StoredResource]:
    """Return every declared resource, sorted by kind, name and apiVersion: what plugins' parts are merged into."""
    return sorted(stored, key=lambda row: (row.kind, row.name, row.api_version))
