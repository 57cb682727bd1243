"""A loop on virtual time: it never waits, because its time jumps to the next timer.

Steps of dead processes are dropped, and those of frozen ones are held. A loop without timers is a deadlock, and one
that runs without time passing a livelock: both end the run.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from asyncio import events
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, Protocol, TypeVar
from zlib import crc32

from eventd.simulation.world.life import Life, life_in, present_life, required_life

R = TypeVar("R")
MOST_STEPS: Final = 10_000
"""Maximum number of steps without time passing."""
BEGIN: Final = 1000.0
"""The loop's time when a run begins, in seconds."""
MOST_CLOSINGS: Final = 10
"""Maximum number of times that a coroutine is closed: one that waits again in its clean-up has not ended."""


class Stuck(Exception):
    """The simulated processes cannot continue, or continue for ever without time passing."""


class LoopNetwork(Protocol):
    """The methods of the network that the loop calls for the process that runs."""

    def listen(self, life: Life, make: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Any: ...

    async def connect(
        self, life: Life, make: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...

    def resolve(self, host: str, port: int) -> list[tuple[Any, ...]]:
        """Return the addresses of a host as `socket.getaddrinfo` does. Raises `socket.gaierror`."""
        ...


class LoopDescriptors(Protocol):
    """The methods of what simulated processes watch by its descriptor."""

    def watch(self, descriptor: int, callback: Callable[[], object]) -> None:
        """Call a callback whenever a descriptor is readable."""
        ...

    def forget(self, descriptor: int) -> bool:
        """Do not call it any more, also if it is about to be called; return whether there was one."""
        ...


class _ReadyStep(events.Handle):
    """A callback of a process."""

    __slots__ = ("_life",)

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: VirtualLoop,
        context: contextvars.Context | None,
    ) -> None:
        super().__init__(callback, args, loop, context)
        self._life = life_in(self._context)  # type: ignore[attr-defined]

    def _run(self) -> None:
        if self._loop.admits(self._life, self):  # type: ignore[attr-defined]
            super()._run()


class _TimedStep(events.TimerHandle):
    """A timer of a process."""

    __slots__ = ("_life",)

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: VirtualLoop,
        context: contextvars.Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self._life = life_in(self._context)  # type: ignore[attr-defined]

    def _run(self) -> None:
        if self._loop.admits(self._life, self):  # type: ignore[attr-defined]
            super()._run()


class _Jump:
    """The loop's selector: instead of waiting, it lets time pass."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Stuck("deadlock: nothing is scheduled")
        if timeout > 0:
            self._loop.pass_time(timeout)
        return []

    def close(self) -> None:
        """Do nothing: there is no descriptor."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop of one run. `network` must be set before anything connects, and `executor` before a thread is used.

    `sum` identifies the steps so far: it is equal for two runs whose steps are. `trace`, if it is set, is called with
    a line for each step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.network: LoopNetwork | None = None
        self.executor: Callable[[Life | None], Executor] | None = None
        self.trace: Callable[[str], None] | None = None
        self.descriptors: LoopDescriptors | None = None
        """None: the processes watch no descriptors."""
        self.steps = 0
        self.sum = 0
        self._now = BEGIN
        self._idle_steps = 0
        self._selector = _Jump(self)
        self._clock_resolution = 1e-9

    # --- time and steps -----------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds
        self._idle_steps = 0

    async def pause(self, seconds: float) -> None:
        """Suspend the calling task for this number of virtual seconds."""
        future = self.create_future()
        handle = self.call_later(seconds, lambda: None if future.done() else future.set_result(None))
        try:
            await future
        finally:
            handle.cancel()

    def admits(self, life: Life | None, step: events.Handle) -> bool:
        """Return whether a step may run now, and count it; a step of a frozen process runs later."""
        if life is not None:
            if life.is_dead:
                return False
            if life.is_frozen:
                life.held.append(step)
                return False
        self.steps += 1
        self._idle_steps += 1
        if self._idle_steps > MOST_STEPS:
            raise Stuck(f"livelock: {MOST_STEPS} steps without time passing, the last one is {_name_of(step)}")
        line = f"{self._now:.6f} {life.name if life else '-'} {_name_of(step)}"
        self.sum = crc32(line.encode(), self.sum)
        if self.trace is not None:
            self.trace(line)
        return True

    def note(self, line: str) -> None:
        """Add an occurrence of the simulation, such as a fault, to the trace and its sum."""
        line = f"{self._now:.6f} {line}"
        self.sum = crc32(line.encode(), self.sum)
        if self.trace is not None:
            self.trace(line)

    def thaw(self, life: Life) -> None:
        """Let a frozen process continue: its held steps run next, in their order."""
        life.is_frozen = False
        held, life.held = life.held, []
        self._ready.extend(step for step in held if not step.cancelled())  # type: ignore[attr-defined]

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        step = _ReadyStep(callback, args, self, context)
        self._ready.append(step)  # type: ignore[attr-defined]
        return step

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        timer = _TimedStep(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _process_events(self, _event_list: Any) -> None:
        """Do nothing: no descriptor is watched."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps."""

    def create_task(self, coro: Any, **options: Any) -> Any:
        task = super().create_task(coro, **options)
        life = present_life()
        if life is not None:
            life.kept.append(task)
        return task

    # --- the machine around the process ---------------------------------------------------------------------------

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., R], *args: Any
    ) -> asyncio.Future[R]:
        assert self.executor is not None
        pool = self.executor(present_life()) if executor is None else executor
        return asyncio.wrap_future(pool.submit(func, *args), loop=self)

    async def getaddrinfo(self, host: Any, port: Any, **_options: Any) -> list[Any]:
        assert self.network is not None
        return self.network.resolve(str(host), int(port))

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        assert self.network is not None
        given = options.get("sock")
        address = (str(host), int(port)) if given is None else given.getsockname()[:2]
        if options.get("ssl") is not None:
            raise NotImplementedError("a simulated network has no TLS")
        return self.network.listen(required_life(), protocol_factory, *address)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        assert self.network is not None
        if options.get("ssl"):
            raise NotImplementedError("a simulated network has no TLS")
        if (opened := options.get("sock")) is not None:
            host, port = opened.getsockname()
        return await self.network.connect(required_life(), protocol_factory, str(host), int(port))

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]
        if self.descriptors is None:
            raise NotImplementedError("a simulated process has no descriptors to watch")
        self.descriptors.watch(fd, partial(callback, *args))

    def remove_reader(self, fd: Any) -> bool:
        return self.descriptors is not None and self.descriptors.forget(fd)

    def end(self) -> None:
        """Drop what is scheduled, and close. Coroutines that did not end stay as they are until `unwind`."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        self.close()

    def unwind(self) -> None:
        """Close the coroutines that did not end, after `end`.

        Left to the garbage collector, they would unwind when the last reference to them goes, which may be long after
        the run: a log record with a traceback keeps them, wherever a handler keeps it.
        """
        for task in asyncio.all_tasks(self):
            for _ in range(MOST_CLOSINGS):
                try:
                    task.get_coro().close()
                except BaseException:  # what the code of a dead process does now is of no interest to anyone
                    continue
                break


def _name_of(step: events.Handle) -> str:
    callback = step._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return getattr(owner.get_coro(), "__qualname__", "a task")
    return getattr(callback, "__qualname__", type(callback).__name__)
