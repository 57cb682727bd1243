"""Lives: the processes of simulated machines, and to which of them a piece of work belongs.

Every callback of the loop runs in a context, and each context knows its life. A killed process needs no unwinding: the
callbacks of its life simply do not run any more, between any two steps of it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class HeldStep(Protocol):
    """A callback of the loop that waits until its life runs again."""

    def cancelled(self) -> bool: ...


class Life:
    """One process of the machine `host`, from its start to its end; `number` counts those of the machine.

    A life that `is_dead` runs nothing; one that `is_frozen` keeps its steps in `held` until it runs again.
    """

    def __init__(self, host: str, number: int, address: str) -> None:
        self.host = host
        self.number = number
        self.name = f"{host}.{number}"
        """The name for traces: the machine and the number."""
        self.address = address
        self.is_dead = False
        self.is_frozen = False
        self.held: list[Any] = []
        self.kept: list[object] = []
        """Objects that live until the run ends: the coroutines of a dead process must not unwind."""
        self._context = contextvars.copy_context()
        self._context.run(_LIFE.set, self)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function as this process."""
        return self.context().run(function, *args)

    def context(self) -> contextvars.Context:
        """Return a new context whose callbacks belong to this process."""
        return self._context.copy()

    def start(self, work: Coroutine[Any, Any, T]) -> Any:
        """Start a coroutine as a task of this process on the running loop; return the task."""
        return self.call(lambda: asyncio.get_running_loop().create_task(work))


_LIFE: contextvars.ContextVar[Life | None] = contextvars.ContextVar("life", default=None)


def present_life() -> Life | None:
    """Return the process that the running code belongs to; None for the simulation itself."""
    return _LIFE.get()


def life_in(context: contextvars.Context) -> Life | None:
    """Return the process that a context belongs to; None for the simulation itself."""
    return context.get(_LIFE)


def required_life() -> Life:
    """Return the process that the running code belongs to. Raises RuntimeError in the simulation itself."""
    life = _LIFE.get()
    if life is None:
        raise RuntimeError("no simulated process runs here")
    return life
