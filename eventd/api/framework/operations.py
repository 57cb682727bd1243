"""The dependencies and parameters of operations. The HTTP API and `routerctl` run the same operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic.alias_generators import to_camel

from eventd.errors import Unavailable
from federation.event import is_plain

if TYPE_CHECKING:  # a command loads only what it needs
    from eventd.api.framework.limits import Limits
    from eventd.api.keys.api_key import ApiKey
    from eventd.api.keys.valid_keys import KeyUses
    from eventd.dynamic.effective import Following
    from eventd.egress.callbacks.tester import CallbackTestResult
    from eventd.log.core.eventlog import EventLog
    from eventd.log.retention.waiting import RetentionWaits
    from eventd.net.address_rules import AddressRules
    from eventd.net.local_socket import SocketProblem
    from eventd.observe.metrics import Metrics
    from eventd.observe.rates import RateFilter, RatePage
    from eventd.resources.callback_configuration import CallbackConfig
    from eventd.resources.group_configuration import GroupConfig
    from eventd.resources.stream_key_state import TenantKeyState
    from eventd.resources.subscriber_configuration import SubscriberLimits
    from eventd.runtime.clock import Clock
    from eventd.runtime.supervisor import SpawnTask
    from eventd.settings.model import Settings
    from eventd.store.engine.database import Database
    from eventd.store.rows.routemaster import SubscriberRow
    from eventd.tls.state import CertificateState
    from federation.keys import KeyRing


GROUP = "group "
"""Prefix of the name of a readiness check for one group."""


def _every_key(_digest: bytes) -> bool:
    return True


def _waits() -> bool:
    return True


def _every_name(_name: str) -> bool:
    return True


async def _nothing() -> None:
    """Do nothing and return None: no node runs in this process."""


def _keys_in_files(group: GroupConfig) -> KeyRing:
    """Return the signing keys of a group from files, without a credentials directory. Raises `SecretUnreadable`."""
    from eventd.resources.keyring import load_ring

    return load_ring(group, None)


async def _no_test(_target: CallbackConfig | SubscriberRow) -> CallbackTestResult:
    """Refuse: nothing in this process sends to callbacks. Raises `Unavailable`."""
    raise Unavailable("this process sends nothing to callbacks")


async def _no_uses() -> KeyUses | None:
    """Return no uses of keys: they are in the memory of a running node, and none runs in this process."""
    return None


async def _no_rates(_question: RateFilter) -> tuple[RatePage, bool]:
    """Return no rates, incomplete: they are in the memory of a running node, and none runs in this process."""
    from eventd.observe.rates import RatePage

    return RatePage([], []), False


class AskWorker(Protocol):
    """A function that asks the question `name` of the worker that serves a group.

    It returns None if the answer does not come in time.
    """

    async def __call__(self, group: str, name: str, question: bytes, *, seconds: float) -> bytes | None: ...


async def _no_view(_group: str, _wait: float) -> bytes | None:
    """Return None: no node runs in this process, so no peer is asked."""
    return None


def _no_certificates(_groups: Iterable[GroupConfig]) -> Sequence[CertificateState]:
    return ()


@dataclass(frozen=True, slots=True)
class Services:
    """The dependencies of operations, in a running node and in a command that works on its database.

    `take_over` applies what an operation changed to the node of this process before the response is sent; other
    processes notice changes by themselves. `metrics` are those of a running node's process; a command has none.
    `following`: see `effective`. `ring` returns the signing keys of a group; it may read files, and raises
    `SecretUnreadable`. `readiness` returns the readiness checks of the running node, by name, each "ok" or a problem;
    None if no node runs. It raises `Unavailable` if a node runs and cannot be queried. `credentials` is the folder of
    the service manager's secrets. `certificates` reads the certificates of a running node, those for these groups
    included; a command, whose user may not be the node's, has none. `local_socket` returns why
    commands do not reach the running node over its local socket; None if they do, or if no node runs. `peer_rules`
    judge the addresses of peers, `callback_rules` those of callbacks (None: only public ones are allowed).
    `settings` are those of a running node; a command has none.
    `test_callback` sends a test message to the endpoint of a callback, or of a subscriber of the Routemaster surface.
    `subscriber_limits` returns the limits of requests to these subscribers; None: the defaults. `tenant_keys` returns
    the states of the key sets of tenants in a running node; a command has none. `rates` returns the rates of all
    workers of a running node, and whether all of them have answered. `view` returns, encoded, what the node knows of a
    group, and waits up to some seconds for its peers (see `groups.group_map`); None if no node runs. It raises
    `Unavailable`. `sees` returns whether the caller's key may access the group or topic of a name, for operations whose
    parameters say `narrows`. `key` is that of the caller, for operations whose parameters say `by_caller`; None for a
    command on the database, which may do everything. `holds_key` returns whether a valid key of the API has a digest; a
    command knows no keys of settings, and takes all for valid. `key_uses` returns when the keys of the database were
    last used at a running node; None if that is not known. `session` is the digest of the caller's session of the
    console, empty without one. `client_waits`, for operations of routes that `hold`:
    whether the client is still connected, and the node does not stop. `limits` are those of the
    settings; None: the defaults. `ask_worker` asks the worker that serves a group, see `WorkerPeers.ask_worker_of`;
    None where there is only one process. `spawn` starts work that outlives the request; a command has none.
    `retention_waits` are shared by all of a running node's process that ask for them; a command has none.
    """

    log: EventLog
    take_over: Callable[[], Awaitable[None]] = _nothing
    metrics: Metrics | None = None
    following: Following | None = None
    ring: Callable[[GroupConfig], KeyRing] = _keys_in_files
    readiness: Callable[[], Awaitable[Mapping[str, str] | None]] = _nothing
    credentials: Path | None = None
    certificates: Callable[[Iterable[GroupConfig]], Sequence[CertificateState]] = _no_certificates
    local_socket: Callable[[], SocketProblem | None] = lambda: None
    peer_rules: AddressRules | None = None
    callback_rules: AddressRules | None = None
    settings: Settings | None = None
    test_callback: Callable[[CallbackConfig | SubscriberRow], Awaitable[CallbackTestResult]] = _no_test
    subscriber_limits: Callable[[], SubscriberLimits | None] = lambda: None
    tenant_keys: Callable[[], Sequence[TenantKeyState]] = lambda: ()
    rates: Callable[[RateFilter], Awaitable[tuple[RatePage, bool]]] = _no_rates
    view: Callable[[str, float], Awaitable[bytes | None]] = _no_view
    sees: Callable[[str], bool] = _every_name
    key: ApiKey | None = None
    holds_key: Callable[[bytes], bool] = _every_key
    key_uses: Callable[[], Awaitable[KeyUses | None]] = _no_uses
    session: str = ""
    client_waits: Callable[[], bool] = _waits
    limits: Limits | None = None
    ask_worker: AskWorker | None = None
    spawn: SpawnTask | None = None
    retention_waits: RetentionWaits | None = None

    @property
    def effective(self) -> Following:
        """Return `following`, which holds the effective configuration.

        Without it, an object that reads it from the database.
        """
        from eventd.dynamic.effective import Following

        return self.following or Following(self.database, self.clock, counts=False)

    @property
    def database(self) -> Database:
        return self.log.database

    @property
    def clock(self) -> Clock:
        return self.log.clock


class Download(NamedTuple):
    """The result of an operation whose answer is a file: its content as it is stored, under a name."""

    name: str
    content: bytes
    media: str = "application/octet-stream"
    charset: str | None = None


class Params(BaseModel):
    """Base of the parameters of an operation. In JSON and queries the names are camelCase; unknown names are refused.

    A field called `group` names an EventGroup, which the caller's key must be allowed to access. If it is missing or
    empty, the key must not be limited to prefixes, unless the operation answers only with what `Services.sees` allows.
    """

    narrows: ClassVar[bool] = False
    """Whether the operation leaves out what the caller's key may not access."""
    by_caller: ClassVar[bool] = False
    """Whether the operation itself checks, with `Services.key`, what the caller's key may access."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        defer_build=True,
    )

    @field_validator("*")
    @classmethod
    def _refuse_unstorable(cls, value: Any) -> Any:
        """Return the value. Raises ValueError for a text, also in a list, with U+0000 or that is not UTF-8."""
        for text in value if isinstance(value, list) else (value,):
            if isinstance(text, str) and not is_plain(text):
                raise ValueError("contains U+0000 or bytes that are not UTF-8")
        return value

    @classmethod
    def read_quickly(cls, path: Mapping[str, str], body: bytes | bytearray) -> Self | None:
        """Return the parameters of a valid request without a query, from those of its path and its undecoded body.

        If None is returned, `read_params` reads the request and reports its problems; models without such a shortcut
        always return None. It must itself bound what it decodes: the values of the body have not been counted.
        """
        return None
