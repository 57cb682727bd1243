"""This node's subscriptions: one consumer for each subscription and each backfill, sharing one set of plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from eventd.egress.cursors import BACKFILL, SUBSCRIPTION, subscription_name, target_of
from eventd.egress.loop.active import Consumers
from eventd.egress.loop.consumer import Consumer
from eventd.egress.subscriptions.runner import SubscriptionDependencies
from eventd.egress.subscriptions.sink import SubscriptionSink
from eventd.egress.subscriptions.trigger import TriggerEvent
from eventd.log.core.matching_page import MatchingPage
from eventd.log.cursors.cursors import Cursor
from eventd.resources.group_configuration import GroupConfig
from eventd.resources.plugin_configuration import PluginConfig, SubscriptionConfig, plugins, subscriptions
from eventd.runtime.supervisor import Supervisor
from eventd.store.rows.registry import StoredResource


@dataclass(frozen=True, slots=True)
class Purpose:
    """The declarations that a subscription's consumer depends on.

    `group` is without the settings for traffic between nodes; `plugin` is None if it is not declared.
    """

    subscription: SubscriptionConfig
    plugin: PluginConfig | None
    group: GroupConfig


def purposes_of(stored: Sequence[StoredResource], groups: Mapping[str, GroupConfig]) -> dict[tuple[str, str], Purpose]:
    """Return the declarations of these groups' subscriptions, by group and name."""
    known = plugins(stored)
    return {
        (one.group, one.name): Purpose(one, known.get(one.plugin), _local_settings(groups[one.group]))
        for one in subscriptions(stored).values()
        if one.group in groups
    }


def _local_settings(group: GroupConfig) -> GroupConfig:
    """Return the part of a group's declaration that matters to its local readers, so that a new key or listener does
    not end a run."""
    return replace(group, peers={}, listen=None, protocols=frozenset(), keys=(), secret_file="", replay_window=0)


class Subscribers:
    """The running subscriptions. `chance` returns numbers in [0, 1) for the jitter of the back-off."""

    def __init__(
        self, dependencies: SubscriptionDependencies, supervisor: Supervisor, chance: Callable[[], float]
    ) -> None:
        self._dependencies = dependencies
        self._spawn = supervisor.spawn
        self._chance = chance
        self._consumers: Consumers[Purpose] = Consumers(supervisor.keep, self._start)
        self._purposes: dict[tuple[str, str], Purpose] = {}

    def _purpose(self, cursor: str) -> Purpose | None:
        return self._purposes.get(target_of(cursor))

    async def retire(self, purposes: dict[tuple[str, str], Purpose]) -> list[str]:
        """Take over the declarations; end the consumers whose subscription, plugin or group is declared differently.

        Plugins that no subscription uses any more, or that are declared differently, are shut down. Returns the names
        of the cursors of the ended consumers.
        """
        before, self._purposes = self._purposes, purposes
        stale = await self._consumers.retire(self._purpose)
        now = {one.plugin for one in purposes.values()}
        for plugin in dict.fromkeys(one.plugin for one in before.values()):
            if plugin is not None and plugin not in now:
                await self._dependencies.plugins.forget(plugin.name)
        return stale

    async def adjust(self, cursors: Iterable[Cursor]) -> None:
        """Run a consumer for each cursor of this node's subscriptions and their backfills, and no others."""
        mine = {
            cursor.name: cursor
            for cursor in cursors
            if cursor.kind in (SUBSCRIPTION, BACKFILL) and self._purpose(cursor.name) is not None
        }
        await self._consumers.adjust(mine, self._purpose)

    def _start(self, cursor: Cursor, purpose: Purpose) -> Consumer[MatchingPage[TriggerEvent]]:
        config = purpose.subscription
        ledger_cursor = subscription_name(config.group, config.name)
        return Consumer(
            self._dependencies.log,
            cursor.name,
            SubscriptionSink(config, purpose.plugin, purpose.group, cursor, ledger_cursor, self._dependencies),
            version=cursor.selector_version,
            spawn=self._spawn,
            backoff=config.backoff,
            chance=self._chance,
            about={"group": config.group, "subscription": config.name},
        )

    @property
    def names(self) -> list[str]:
        """Return the names of the consumers' cursors, also of consumers that have finished."""
        return self._consumers.names

    @property
    def unsettled(self) -> int:
        """Return how many consumers are to end and still settle the work under way."""
        return self._consumers.unsettled

    async def stop(self, seconds: float) -> None:
        """End all consumers, after giving running plugins up to `seconds` to finish.

        Events being collected for a batch are read again at the next start.
        """
        await self._consumers.end(self._consumers.names, seconds)
