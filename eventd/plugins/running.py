"""The plugins of one node: whoever has events for a plugin runs it here, whatever it is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from eventd.clock import Clock
from eventd.plugins.contract import Outcome, Request

Spawn = Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]
"""Starts a task of the node under a name."""


class Plugins:
    """One per node. `environment` is what every plugin sees beside its own `env`: PATH, as the settings give it."""

    def __init__(self, clock: Clock, spawn: Spawn, *, environment: Mapping[str, str]) -> None:
        self._clock = clock
        self._spawn = spawn
        self._environment = dict(environment)

    async def run(self, config: Any, request: Request) -> Outcome:
        """Run the plugin once. At most `config.concurrency` runs of a plugin at a time; the others wait.

        Raises PluginFailed. Cancelling it ends the run and every process of it.
        """
        raise NotImplementedError

    async def forget(self, name: str) -> None:
        """End what is kept warm for a plugin, for one that is no longer declared or is declared anew."""

    async def close(self) -> None:
        """End every process. Nothing may be running any more."""
