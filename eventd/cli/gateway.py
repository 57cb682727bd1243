"""Two ways to a node: its database, whether the node is up or down, or its API. Both run the same operations."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from eventd.clock import Clock, SystemClock
from eventd.errors import EventdError, NotFound, Unavailable

if TYPE_CHECKING:
    from http.client import HTTPConnection

    from eventd.api.operations import Operation, Services
    from eventd.resources.effective import GroupConfig
    from eventd.settings import Settings
    from eventd.store.database import Database
    from federation.keys import KeyRing

REQUEST_SECONDS = 60.0


class Gateway(Protocol):
    """Runs an operation by its name; raises the same `EventdError` on either way."""

    async def call(self, operation: str, **params: Any) -> Any: ...


def _find(name: str) -> Operation[Any]:
    from eventd.api.surfaces import find_operation

    return find_operation(name)


def check_params(operation: Operation[Any], params: Mapping[str, Any]) -> Any:
    """The operation's parameters. Raises `Invalid` in the words of the API."""
    from pydantic import ValidationError

    try:
        return operation.params.model_validate(dict(params))
    except ValidationError:
        from eventd.api.params import read_params

        return read_params(operation.params, params)


class LocalGateway:
    """Works on the database of the settings. One that is not there is made with `make`, and with `pretend` is empty."""

    def __init__(self, settings: Settings, *, make: bool = False, pretend: bool = False) -> None:
        self._settings = settings
        self._make = make
        self._pretend = pretend
        self._clock: Clock = SystemClock()
        self._services: Services | None = None
        self._socket: Path | None = None
        self._held = AsyncExitStack()

    async def call(self, operation: str, **params: Any) -> Any:
        found = _find(operation)
        checked = check_params(found, params)
        if self._services is None:
            self._services = await self._open()
        return await found.run(self._services, checked)

    async def socket(self) -> Path:
        """The Unix socket of an API over the database, served as long as this is open."""
        if self._socket is None:
            from eventd.cli.local_api import served

            if self._services is None:
                self._services = await self._open()
            self._socket = await self._held.enter_async_context(served(self._services, self._settings))
        return self._socket

    @property
    def database(self) -> Database | None:
        """The open database; None before the first call."""
        return self._services.database if self._services else None

    async def _open(self) -> Services:
        from eventd.api.operations import Services
        from eventd.dynamic.effective import Following
        from eventd.log.eventlog import EventLog
        from eventd.store.database import Database

        database = Database(self._settings.database_url)
        self._held.callback(database.close)
        if database.path is not None and not database.path.exists():
            database = self._begin(database, database.path)
        else:
            self._require_schema(database)
        log = await EventLog.open(database, self._clock)
        self._held.push_async_callback(log.close)
        return Services(log, following=Following(database, self._clock, counts=False), ring=self._ring)

    def _ring(self, group: GroupConfig) -> KeyRing:
        """The keys of a group. Few commands need any, and none of the others waits for the cryptography."""
        from eventd.resources.keyring import load_ring

        return load_ring(group, credentials=self._settings.credentials_directory)

    def _begin(self, database: Database, path: Path) -> Database:
        """A new database, where this command may make one."""
        from eventd.store import migrations
        from eventd.store.database import Database

        if self._pretend:
            folder = self._held.enter_context(tempfile.TemporaryDirectory(prefix="routerctl-"))
            database = Database(f"sqlite:///{folder}/empty.db")
            self._held.callback(database.close)
        elif self._make:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        else:
            raise NotFound(
                f"there is no database {path}",
                hint="declare something first: routerctl apply -f FILE; or name the node's place: --data-dir, --server",
            )
        database.write_now(migrations.upgrade, now=self._clock.now())
        return database

    def _require_schema(self, database: Database) -> None:
        """Raises `DatabaseUnusable` with the command to run when the schema is older than this program."""
        from eventd.store import migrations

        migrations.require_current(database)

    async def close(self) -> None:
        """Let go of the database."""
        await self._held.aclose()


class RemoteGateway:
    """Works on the API of a running node."""

    def __init__(self, server: str, key: str) -> None:
        from eventd.client.address import Address

        self._address = Address.parse(server)
        self._key = key
        self._connection: HTTPConnection | None = None

    async def call(self, operation: str, **params: Any) -> Any:
        found = _find(operation)
        values = check_params(found, params).model_dump(mode="json", by_alias=True, exclude_unset=True)
        path, rest = _fill(found.path, values)
        return self._request(found.method, path, rest)

    def _request(self, method: str, path: str, values: dict[str, Any]) -> Any:
        """One request. It blocks, and there is nothing else in this process to be blocked."""
        from http.client import HTTPException

        import msgspec

        body = None if method == "GET" else msgspec.json.encode(values)
        query = _query(values) if method == "GET" else ""
        try:
            connection = self._connect()
            connection.request(method, f"{self._address.prefix}{path}{query}", body, self._headers(body))
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        if answer.status != 200:
            raise _restore(answer.status, content)
        try:
            return msgspec.json.decode(content)
        except msgspec.DecodeError:
            raise EventdError(f"{self._address} answers, but not as a routerd-eventd does") from None

    def _connect(self) -> HTTPConnection:
        from http.client import HTTPConnection, HTTPSConnection

        if self._connection is None:
            kind = HTTPSConnection if self._address.secure else HTTPConnection
            self._connection = kind(self._address.host, self._address.port, timeout=REQUEST_SECONDS)
        return self._connection

    def _headers(self, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers

    def _unreachable(self, error: Exception) -> Unavailable:
        if isinstance(error, TimeoutError):
            words = f"no answer within {REQUEST_SECONDS:g} s"
        else:
            words = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Unavailable(
            f"cannot reach {self._address}: {words}", hint="is the node running, and is this its API's address?"
        )

    async def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()


def _fill(path: str, values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The path with its fields filled in, and the values that are left."""
    from urllib.parse import quote

    rest = dict(values)
    parts = [quote(str(rest.pop(part[1:-1])), safe="") if part.startswith("{") else part for part in path.split("/")]
    return "/".join(parts), rest


def _query(values: Mapping[str, Any]) -> str:
    from urllib.parse import urlencode

    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in values.items()}
    return f"?{urlencode(texts, doseq=True)}" if texts else ""


def _restore(status: int, content: bytes) -> EventdError:
    """The node's error, with its details where it gave some."""
    import msgspec

    from eventd.api.problems import restore

    error = restore(status, content)
    with contextlib.suppress(msgspec.DecodeError, KeyError, TypeError, AttributeError):
        error.detail = msgspec.json.decode(content)["error"].get("detail")  # type: ignore[attr-defined]
    return error
