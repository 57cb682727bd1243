"""The plugins of one node: every run of a plugin starts here, for executables and entry points."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from eventd.plugins.contract.answer import check_capabilities, read_answer, read_status
from eventd.plugins.contract.contract import Outcome, PluginFailed, Request, Result
from eventd.plugins.run import executable
from eventd.plugins.run.entry_points import Hosts
from eventd.plugins.run.executable import Answer, digest_of, environment_of
from eventd.processes.guards import Guards
from eventd.resources.effective import PluginConfig
from eventd.runtime.clock import Clock

READERS: Final = 4
"""How many answers are parsed at the same time, off the loop: a kilobyte of YAML can take as long as a megabyte."""


class _PluginRuns:
    """The runs of one plugin in its current declaration: the limit of concurrent runs, and the hosts that are kept."""

    def __init__(self, config: PluginConfig, clock: Clock, environment: Mapping[str, str], guards: Guards) -> None:
        self.config = config
        self.slots = asyncio.Semaphore(config.concurrency)
        self.environment = environment_of(environment, config.env)
        self.hosts = Hosts(config, clock, self.environment, guards) if config.entry_point else None


class Plugins:
    """One per node. `environment` is what every plugin gets in addition to its own `env`: PATH, from the settings."""

    def __init__(self, clock: Clock, *, environment: Mapping[str, str]) -> None:
        self._clock = clock
        self._environment = dict(environment)
        self._guards = Guards(clock)
        self._lanes: dict[str, _PluginRuns] = {}
        self._retired: list[Hosts] = []
        self._readers: ThreadPoolExecutor | None = None

    async def run(self, config: PluginConfig, request: Request) -> Outcome:
        """Run the plugin once, with at most `config.concurrency` concurrent runs; further runs wait.

        Raises PluginFailed. Cancelling ends the run and all its processes.
        """
        lane = self._lane(config)
        async with lane.slots:
            return await self._run(lane, request)

    def _lane(self, config: PluginConfig) -> _PluginRuns:
        lane = self._lanes.get(config.name)
        if lane is None or lane.config != config:
            self._retire(config.name)
            lane = self._lanes[config.name] = _PluginRuns(config, self._clock, self._environment, self._guards)
        return lane

    async def _run(self, lane: _PluginRuns, request: Request) -> Outcome:
        started = self._clock.now()
        answer: Answer | None = None
        try:
            answer = await self._answer(lane, request)
            result = await self._result(lane, answer)
            check_capabilities(result, lane.config.capabilities)
        except PluginFailed as failed:
            failed.started_at, failed.completed_at = started, self._clock.now()
            if answer is not None:
                failed.exit_code, failed.stdout_digest = answer.exit_code, digest_of(answer.stdout)
                failed.stderr = answer.stderr
            raise
        return Outcome(
            exit_code=answer.exit_code,
            stdout_digest=digest_of(answer.stdout),
            stderr=answer.stderr,
            started_at=started,
            completed_at=self._clock.now(),
            result=result,
        )

    async def _answer(self, lane: _PluginRuns, request: Request) -> Answer:
        config = lane.config
        if lane.hosts is not None:
            return await lane.hosts.run(request)
        return await self.run_raw(config, request.encode())

    async def run_raw(self, config: PluginConfig, request: bytes) -> Answer:
        """Run an executable with any bytes as input; its answer is not parsed. Raises PluginFailed."""
        return await executable.run_executable(
            config.executable,
            request,
            longest=config.timeout,
            environment=environment_of(self._environment, config.env),
            clock=self._clock,
            guards=self._guards,
        )

    async def _result(self, lane: _PluginRuns, answer: Answer) -> Result:
        self._readers = self._readers or ThreadPoolExecutor(READERS, "plugin-answers")
        return await asyncio.get_running_loop().run_in_executor(self._readers, _read, lane, answer, self._clock.now())

    async def forget(self, name: str) -> None:
        """End the hosts of a plugin that is no longer declared, or was declared again."""
        self._retire(name)

    def _retire(self, name: str) -> None:
        lane = self._lanes.pop(name, None)
        self._retired = [hosts for hosts in self._retired if hosts.any_left]
        if lane is not None and lane.hosts is not None:
            lane.hosts.retire()
            self._retired.append(lane.hosts)

    async def close(self) -> None:
        """End every process and wait. No run may be under way."""
        for name in list(self._lanes):
            self._retire(name)
        for hosts in self._retired:
            await hosts.close()
        await self._guards.close()
        if self._readers is not None:
            self._readers.shutdown()


def _read(lane: _PluginRuns, answer: Answer, now: int) -> Result:
    if lane.hosts is not None:
        return read_status(answer.stdout, now=now, ttl=lane.config.ttl)
    return read_answer(answer.stdout, now=now)
