"""What can be asked of a node, each written once: the HTTP API mounts an operation, `routerctl` calls the same one.

A surface is a file of this package with `OPERATIONS`, a tuple of `Operation`; `surfaces.py` knows and finds them, and
`routes.py` knows where each is asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic.alias_generators import to_camel

from eventd.api.framework.routes import ROUTES, Route
from federation.event import is_plain

if TYPE_CHECKING:  # a command waits for what it works with, and for nothing else
    from eventd.dynamic.effective import Following
    from eventd.log.core.eventlog import EventLog
    from eventd.observe.metrics import Metrics
    from eventd.resources.effective import GroupConfig
    from eventd.runtime.clock import Clock
    from eventd.store.engine.database import Database
    from federation.keys import KeyRing


GROUP = "group "
"""How the name of a readiness check begins that is about one group."""


async def _nobody() -> None:
    """There is no node in this process that could take anything over."""


async def _no_node() -> None:
    """No node runs in this process that could be ready."""


def _keys_in_files(group: GroupConfig) -> KeyRing:
    """The keys of a group, where no service manager keeps any."""
    from eventd.resources.keyring import load_ring

    return load_ring(group, None)


@dataclass(frozen=True, slots=True)
class Services:
    """What an operation works with, in a running node and in a command beside it alike.

    `take_over` brings the node of this process in line with what was just declared, so that an answer means that it
    is in force here; other processes notice by themselves. `metrics` are those of the running node, None beside one;
    so is what it is `following`. `ring` gives the keys of a group; it may read files, and raises `SecretUnreadable`.
    `readiness` gives what the running node checks of itself, by name, each "ok" or what is wrong; None where no node
    runs. It raises `Unavailable` where one runs and cannot be asked.
    """

    log: EventLog
    take_over: Callable[[], Awaitable[None]] = _nobody
    metrics: Metrics | None = None
    following: Following | None = None
    ring: Callable[[GroupConfig], KeyRing] = _keys_in_files
    readiness: Callable[[], Awaitable[Mapping[str, str] | None]] = _no_node

    @property
    def effective(self) -> Following:
        """The effective configuration: that of the running node, or what a command finds beside one."""
        from eventd.dynamic.effective import Following

        return self.following or Following(self.database, self.clock, counts=False)

    @property
    def database(self) -> Database:
        return self.log.database

    @property
    def clock(self) -> Clock:
        return self.log.clock


class Params(BaseModel):
    """Base of what an operation takes. In JSON and queries the names are camelCase; unknown names are refused.

    A field called `group` is the name of an EventGroup: keys that are limited to some groups are held to it.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True, validate_by_alias=True
    )

    @field_validator("*")
    @classmethod
    def _can_be_looked_up(cls, value: Any) -> Any:
        """No database takes U+0000 in a text, or bytes of a command line that are no UTF-8."""
        for text in value if isinstance(value, list) else (value,):
            if isinstance(text, str) and not is_plain(text):
                raise ValueError("holds U+0000 or bytes that are no UTF-8")
        return value


P = TypeVar("P", bound=BaseModel)


def _never(_path: Mapping[str, str], _body: bytes | bytearray) -> None:
    """No body is usual enough."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[P]):
    """One thing that can be asked, and where.

    `run` returns plain JSON-able values and raises `EventdError`. `quick` may read the usual body of a request without
    a query by itself, given the fields of the path; where it gives None the general way says what is wrong.
    """

    name: str
    route: Route
    params: type[P]
    run: Callable[[Services, P], Awaitable[Any]]
    quick: Callable[[Mapping[str, str], bytes | bytearray], P | None] = _never


def operation(
    name: str,
    params: type[P],
    run: Callable[[Services, P], Awaitable[Any]],
    quick: Callable[[Mapping[str, str], bytes | bytearray], P | None] = _never,
) -> Operation[P]:
    """An operation of a node, whose route stands in `ROUTES`."""
    return Operation(name, ROUTES[name], params, run, quick)
