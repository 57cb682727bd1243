"""The plugins that one process runs: every run of a plugin starts here, for executables and entry points."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Final

from eventd.plugins.contract.answer import check_capabilities, read_answer, read_status
from eventd.plugins.contract.contract import Outcome, PluginFailed, Result, RunRequest
from eventd.plugins.run.entry_points import Hosts
from eventd.plugins.run.executable import RawAnswer, RunProgram, digest_of, environment_of, run_executable
from eventd.processes.guards import Guards
from eventd.resources.plugin_configuration import PluginConfig
from eventd.runtime.clock import Clock
from eventd.runtime.threads import THREADS, ThreadFactory
from eventd.tracing import tracing
from eventd.tracing.contexts import TRACEPARENT

READERS: Final = 4
"""How many answers are parsed at the same time, off the loop: a kilobyte of YAML can take as long as a megabyte."""


class _PluginRuns:
    """The runs of one plugin in one declaration: the limit of concurrent runs, and the hosts of an entry point."""

    def __init__(self, config: PluginConfig, clock: Clock, environment: Mapping[str, str], guards: Guards) -> None:
        self.config = config
        self.slots = asyncio.Semaphore(config.concurrency)
        self.environment = environment_of(environment, config.env)
        self.hosts = Hosts(config, clock, self.environment, guards) if config.entry_point else None


class Plugins:
    """Runs plugins.

    `environment` holds the variables that each plugin gets, unless its own `env` overrides them: the PATH of this
    process. `threads` creates the pool that parses the answers, and `run_program` runs executables.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        environment: Mapping[str, str],
        threads: ThreadFactory = THREADS,
        run_program: RunProgram = run_executable,
    ) -> None:
        self._clock = clock
        self._run_program = run_program
        self._environment = dict(environment)
        self._threads = threads
        self._guards = Guards(clock)
        self._current: dict[str, _PluginRuns] = {}
        self._retired: list[Hosts] = []
        self._readers: Executor | None = None

    async def run(self, config: PluginConfig, request: RunRequest) -> Outcome:
        """Run the plugin once, and check its answer; wait first while `config.concurrency` runs of it are under way.

        Raises PluginFailed. Cancelling kills all processes of the run.
        """
        runs = self._runs_of(config)
        async with runs.slots:
            return await self._run(runs, request)

    def _runs_of(self, config: PluginConfig) -> _PluginRuns:
        runs = self._current.get(config.name)
        if runs is None or runs.config != config:
            self._retire(config.name)
            runs = self._current[config.name] = _PluginRuns(config, self._clock, self._environment, self._guards)
        return runs

    async def _run(self, runs: _PluginRuns, request: RunRequest) -> Outcome:
        started = self._clock.now()
        answer: RawAnswer | None = None
        try:
            answer = await self._answer(runs, request)
            result = await self._result(runs, answer)
            check_capabilities(result, runs.config.capabilities)
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

    async def _answer(self, runs: _PluginRuns, request: RunRequest) -> RawAnswer:
        config = runs.config
        if runs.hosts is not None:
            return await runs.hosts.run(request)
        return await self.run_raw(config, request.encode())

    async def run_raw(self, config: PluginConfig, request: bytes) -> RawAnswer:
        """Run an executable with any input; do not wait for other runs or parse the answer. Raises PluginFailed."""
        return await self._run_program(
            config.executable,
            request,
            longest=config.timeout,
            environment=environment_of({**self._environment, **_trace()}, config.env),
            clock=self._clock,
            guards=self._guards,
        )

    async def _result(self, runs: _PluginRuns, answer: RawAnswer) -> Result:
        self._readers = self._readers or self._threads(READERS, "plugin-answers")
        return await asyncio.get_running_loop().run_in_executor(self._readers, _read, runs, answer, self._clock.now())

    async def forget(self, name: str) -> None:
        """Kill the hosts of a plugin that is no longer declared, or was declared again; busy ones after their runs."""
        self._retire(name)

    def _retire(self, name: str) -> None:
        """Let the next run of a plugin use a new limit and hosts; kill idle hosts now, busy ones after their runs."""
        runs = self._current.pop(name, None)
        self._retired = [hosts for hosts in self._retired if hosts.any_left]
        if runs is not None and runs.hosts is not None:
            runs.hosts.retire()
            self._retired.append(runs.hosts)

    async def close(self) -> None:
        """Kill every process, and wait a few seconds at most for each to end. No run may be under way."""
        for name in list(self._current):
            self._retire(name)
        for hosts in self._retired:
            await hosts.close()
        await self._guards.close()
        if self._readers is not None:
            self._readers.shutdown()


def _read(runs: _PluginRuns, answer: RawAnswer, now: int) -> Result:
    if runs.hosts is not None:
        return read_status(answer.stdout, now=now, ttl=runs.config.ttl)
    return read_answer(answer.stdout, now=now)


def _trace() -> Mapping[str, str]:
    """Return the variable by which a program continues the trace of its run."""
    context = tracing.current()
    return {} if context is None else {TRACEPARENT.upper(): context.show()}
