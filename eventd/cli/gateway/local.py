"""Access to a node, running or not, through its database: the operations of the API run in this process."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eventd.errors import Conflict, NotFound
from eventd.runtime.clock import Clock, SystemClock

if TYPE_CHECKING:
    from eventd.api.framework.endpoint import Endpoint
    from eventd.api.framework.operations import Params, Services
    from eventd.api.topics.calls import V0
    from eventd.client.connection import Connection, Retry
    from eventd.egress.callbacks.tester import CallbackTestResult
    from eventd.net.local_socket import SocketProblem
    from eventd.resources.callback_configuration import CallbackConfig
    from eventd.resources.group_configuration import GroupConfig
    from eventd.resources.subscriber_configuration import SubscriberLimits
    from eventd.settings.model import Settings
    from eventd.store.engine.database import Database
    from eventd.store.rows.routemaster import SubscriberRow
    from federation.keys import KeyRing


def check_params(model: type[Params] | None, params: Mapping[str, Any]) -> Any:
    """Return checked parameters as an instance of an operation's `model`. Raises `Invalid` with the API's messages."""
    from pydantic import ValidationError

    assert model is not None
    try:
        return model.model_validate(dict(params))
    except ValidationError:
        from eventd.api.framework.params import read_params

        return read_params(model, params)


class LocalGateway:
    """Runs operations of the API in this process, on the database of the settings.

    A missing SQLite database is created with `make`, counts as an empty one with `pretend`, and is an error otherwise.
    `socket_problem`: why the local socket of a node that runs is not used.
    """

    needs_loop = True

    def __init__(
        self,
        settings: Settings,
        *,
        make: bool = False,
        pretend: bool = False,
        socket_problem: SocketProblem | None = None,
    ) -> None:
        self._settings = settings
        self._make = make
        self._pretend = pretend
        self._socket_problem = socket_problem
        self._clock: Clock = SystemClock()
        self._services: Services | None = None
        self._topics: V0 | None = None
        self._socket: Path | None = None
        self._held = AsyncExitStack()

    async def call(self, operation: str, /, **params: Any) -> Any:
        from eventd.api.framework.endpoint import load
        from eventd.api.routes import OPERATIONS

        endpoint = load(OPERATIONS[operation])
        checked = check_params(endpoint.params, params)
        if self._services is None:
            self._services = await self._open()
        if not OPERATIONS[operation].recorded:
            return await endpoint.run(self._services, checked)
        return await self._act(operation, endpoint, checked)

    async def _act(self, operation: str, endpoint: Endpoint, params: Params) -> Any:
        """Run an operation, and record it as an action of this command's user."""
        from eventd.api.framework.action_callers import command_caller
        from eventd.api.framework.recorder import ActionDraft, ActionRecorder
        from eventd.api.routes import OPERATIONS

        assert self._services is not None
        route, database = OPERATIONS[operation], self._services.database
        path = {name: str(value) for name, value in params.model_dump().items()}
        draft = ActionDraft(
            operation,
            command_caller(),
            database.chance.token(8).hex(),
            outside=route.outside,
            frequent=route.frequent,
        )
        draft.describe(route, path, params)
        recorder = ActionRecorder(database, self._clock)
        return await recorder.perform(draft, partial(endpoint.run, self._services, params))

    async def connection(self, retry: Retry) -> Connection:
        """Return a connection of `eventd.client` over which this process answers requests to /v0 until `close`."""
        from eventd.cli.gateway.local_connection import LocalConnection
        from eventd.cli.gateway.local_topics import LocalTopics, topics_of

        if self._services is None:
            self._services = await self._open()
        if self._topics is None:
            self._topics = await self._held.enter_async_context(topics_of(self._services, self._settings))
        return LocalConnection(LocalTopics(self._topics), self._serve, retry)

    async def _serve(self) -> Path:
        """Return the path of a Unix socket at which this process serves /v0 on the database until `close`."""
        assert self._services is not None
        assert self._topics is not None
        if self._socket is None:
            from eventd.cli.gateway.local_api import served

            self._socket = await self._held.enter_async_context(served(self._services, self._topics))
        return self._socket

    def serving(self) -> str:
        """Return the processes that serve the database, like `holder`.

        Empty before the first `call` or `connection`.
        """
        from eventd.cli.gateway.lock import holder

        return holder(self._services.database) if self._services else ""

    async def _open(self) -> Services:
        from eventd.api.framework.limits import Limits
        from eventd.api.framework.operations import Services
        from eventd.cli.gateway.lock import holder, read_serving
        from eventd.cli.gateway.probing import ask_readiness
        from eventd.dynamic.effective import Following
        from eventd.log.core.eventlog import EventLog
        from eventd.store.engine.database import Database

        database = Database(self._settings.database_url)
        self._held.callback(database.close)
        if database.path is not None and not database.path.exists():
            database = self._begin(database, database.path)
        else:
            self._require_schema(database)
        serving = read_serving(database) if holder(database) else None
        if serving is not None:
            self._clock = SystemClock(serving.origin)  # stored delays must mean the same to the node
        log = await EventLog.open(database, self._clock)
        self._held.push_async_callback(log.close)
        following = Following(database, self._clock, counts=False)
        problem = self._socket_problem if serving else None
        return Services(
            log,
            following=following,
            ring=self._ring,
            readiness=partial(ask_readiness, database),
            local_socket=lambda: problem,
            peer_rules=self._settings.peer_rules,
            callback_rules=replace(self._settings.callback_rules, hint=self._whose_rules()),
            test_callback=self._test_callback,
            subscriber_limits=self._subscriber_limits,
            limits=Limits.of(self._settings),
        )

    def _whose_rules(self) -> str:
        origin = self._settings.origin("callback_allow")
        return (
            f"no node answers here, so callback_allow of this command decided ({origin}): repeat it while the node"
            " runs, or with the node's setting"
        )

    def note_on_callbacks(self) -> str:
        """Return a note if the address of a changed callback was checked by this command's settings instead of the
        node's; else empty."""
        if not self._settings.callback_allow:
            return ""
        origin = self._settings.origin("callback_allow")
        return (
            f"note: no node answers here, so callback_allow of this command ({origin}) decided which addresses"
            " callbacks may have; a node blocks those that its own setting does not allow"
        )

    async def _test_callback(self, target: CallbackConfig | SubscriberRow) -> CallbackTestResult:
        """Send a test message from this process, by the settings and with the files that its user can read."""
        from eventd.egress.callbacks.tester import CallbackTester
        from eventd.egress.transport.transport import Transport
        from eventd.resources.callback_secret_files import CallbackSecretFiles
        from eventd.resources.subscriber_configuration import subscriber_limits
        from eventd.runtime.chance import SYSTEM

        assert self._services is not None
        settings, clock = self._settings, self._clock
        transport = Transport(clock, settings.credentials_directory)
        try:
            files = CallbackSecretFiles(self._services.database.threads, settings.credentials_directory)
            limits = subscriber_limits(settings)
            tester = CallbackTester(transport, settings.callback_rules, clock, SYSTEM, files, limits)
            return await tester.test(target)
        finally:
            await transport.close()

    def _subscriber_limits(self) -> SubscriberLimits:
        from eventd.resources.subscriber_configuration import subscriber_limits

        return subscriber_limits(self._settings)

    def _ring(self, group: GroupConfig) -> KeyRing:
        """Return the keys of a group; loads the cryptography, which few commands need."""
        from eventd.resources.keyring import load_ring

        return load_ring(group, credentials=self._settings.credentials_directory)

    def _begin(self, database: Database, path: Path) -> Database:
        """Return the missing database, created (`make`), or an empty temporary one (`pretend`); else raise NotFound."""
        from eventd.cli.gateway.lock import holder
        from eventd.cli.terminal.output import note
        from eventd.settings.environment import DATA_DIR
        from eventd.settings.model import DEFAULT
        from eventd.store.engine.database import Database
        from eventd.store.engine.foreign_file import refuse_unfinished_copy
        from eventd.store.schema import migrations

        refuse_unfinished_copy(path)
        if self._pretend:
            folder = self._held.enter_context(tempfile.TemporaryDirectory(prefix="routerctl-"))
            database = Database(f"sqlite:///{folder}/empty.db")
            self._held.callback(database.close)
        elif self._make and (process := holder(database)):
            # Danger: SQLite would remove the missing file's write-ahead log by its name, while the node writes to it.
            raise Conflict(
                f"process {process} serves {path}, which was moved or deleted: nothing was changed",
                hint="move the file back before any other command, or stop the node",
            )
        elif self._make:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.parent == Path(DATA_DIR).absolute() and self._settings.origin("data_dir") == DEFAULT:
                note(f"note: no node runs here, so {path.parent.absolute()} is created")
        else:
            raise NotFound(
                f"the database {path} does not exist",
                hint="create it with `routerctl apply -f FILE`, or name the node with --data-dir or --server",
            )
        database.write_now(migrations.upgrade, now=self._clock.now())
        return database

    def _require_schema(self, database: Database) -> None:
        """Raise `DatabaseUnusable` for a foreign file, a newer schema, or an older one: with the upgrade command."""
        from eventd.store.schema import migrations

        migrations.require_current(database)

    async def close(self) -> None:
        """Stop serving the socket, and close the database."""
        await self._held.aclose()
