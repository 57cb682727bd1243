"""Shared by every command of routerctl: access to the node, the output, and the options for both."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from eventd.cli.gateway.contexts import in_context
from eventd.cli.gateway.node_choice import NodeChoice
from eventd.cli.gateway.options import LOCAL, NODE, SHARED, SHOW, chosen, parameters
from eventd.cli.program.declaring import declare
from eventd.cli.terminal.output import Output
from eventd.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from eventd.cli.gateway.api_gateway import ApiGateway
    from eventd.cli.gateway.bundle import BundleGateway
    from eventd.cli.gateway.local import LocalGateway
    from eventd.cli.gateway.node_socket import SocketGateway
    from eventd.client import Client, Retry
    from eventd.net.local_socket import SocketProblem


@dataclass(slots=True)
class Session:
    """One run of a command: its output, and its access to the node, which is opened when it is first needed."""

    node: NodeChoice
    out: Output
    make: bool = False
    """Create the database when it is missing."""
    pretend: bool = False
    """Treat a missing database as an empty one, without creating it."""
    written: frozenset[str] = frozenset()
    """The shared options that the command line names."""
    written_own: frozenset[str] = frozenset()
    """The options of the command itself that the command line names."""
    _gateway: LocalGateway | ApiGateway | BundleGateway | None = field(default=None)
    _client: Client | None = field(default=None)
    _ended: list[LocalGateway | ApiGateway | BundleGateway] = field(default_factory=list)

    @property
    def is_remote(self) -> bool:
        return self.node.is_remote

    async def call(self, operation: str, /, **params: Any) -> Any:
        """Run an operation of the API on the node; returns its answer.

        If the node at the local socket ended after the previous operation, this one runs on the next node, or on the
        database.
        """
        from eventd.cli.gateway.api_gateway import NodeGone

        if self.asks:
            from eventd.cli.gateway.protection import confirm_operation

            confirm_operation(self.node, operation, params)
        try:
            return await (await self._reach()).call(operation, **params)
        except NodeGone:
            self._ended.append(self.gateway)  # a client may still use its address
            self._gateway = None
        return await (await self._reach()).call(operation, **params)

    @property
    def asks(self) -> bool:
        """Whether a command must ask before something ends: the context is protected, and there is no `--yes`."""
        return self.node.protected and not self.node.confirmed

    def confirm_ending(self, what: str) -> None:
        """Ask before something ends, if the context of the node is protected. Raises unless it is confirmed."""
        if self.asks:
            from eventd.cli.gateway.protection import confirm_ending

            confirm_ending(self.node, what)

    async def _reach(self) -> LocalGateway | ApiGateway | BundleGateway:
        """Return the access to the node, on an event loop if that access needs one."""
        if self.gateway.needs_loop:
            from eventd.cli.gateway.late_loop import enter_loop

            await enter_loop()
        return self.gateway

    @property
    def gateway(self) -> LocalGateway | ApiGateway | BundleGateway:
        """Return the access to the node, which the first use creates.

        Without a named server it is the node that answers at the local socket, or else the database.
        """
        if self._gateway is None:
            self._gateway = self._connect()
        return self._gateway

    def _connect(self) -> LocalGateway | ApiGateway | BundleGateway:
        if self.node.bundle is not None:
            from eventd.cli.gateway.bundle import BundleGateway

            return BundleGateway(self.node.bundle)
        if self.node.is_remote:
            from eventd.cli.gateway.remote import RemoteGateway

            return RemoteGateway(self.node.server, self.node.read_key(), self.node.read_tls())
        node, problem = self._find_node()
        if node is not None:
            return node
        from eventd.cli.gateway.local import LocalGateway
        from eventd.settings.loading import load

        settings = load(self.node.flags())
        return LocalGateway(settings, make=self.make, pretend=self.pretend, socket_problem=problem)

    def _find_node(self) -> tuple[SocketGateway | None, SocketProblem | None]:
        """Return access to the node at the local socket.

        Without a usable socket, None, and the reason if it is requested.
        """
        from eventd.settings.location import locate

        location = locate(**self.node.flags())
        if location is None:
            return None, None
        from eventd.cli.gateway.node_socket import find_node

        return find_node(location)

    def serving(self) -> str:
        """Return the process of the node that was called; empty if none runs, and for a named server, its address.

        For a database on Postgres it may be several processes, separated by commas.
        """
        return self.gateway.serving()

    def note_on_callbacks(self) -> str:
        """Return a note for a changed callback whose address this command has checked and no node.

        Empty for others.
        """
        from eventd.cli.gateway.local import LocalGateway

        return self.gateway.note_on_callbacks() if isinstance(self.gateway, LocalGateway) else ""

    async def client(self, *, again: bool = False) -> Client:
        """Return the client of the node's API under /v0. It retries failed requests if the first call set `again`.

        That call then raises if a named server does not answer.
        """
        from eventd.client import ONCE, USUAL

        if self._client is None:
            self._client = await self._make_client(USUAL if again else ONCE)
            if again and self.is_remote:
                await self._client.reach()  # without retries: a node that is down at first is reported at once
        return self._client

    async def _make_client(self, retry: Retry) -> Client:
        from eventd.cli.gateway.bundle import BundleGateway
        from eventd.cli.gateway.local import LocalGateway
        from eventd.cli.gateway.node_socket import SERVER, SocketGateway
        from eventd.client import Client

        match self.gateway:
            case BundleGateway():
                raise Unavailable(f"{self.node.bundle} has no topics, records and streams", hint="ask the node")
            case LocalGateway() as local:
                return Client.over(await local.connection(retry))
            case SocketGateway() as node:
                return Client(SERVER, socket=node.address, headers=node.headers, retry=retry)
        return Client(self.node.server, self.node.read_key(), tls=self.node.read_tls(), retry=retry)

    async def close(self) -> None:
        """Close the access to the node."""
        if self._client is not None:
            await self._client.close()
        for gateway in (*self._ended, self._gateway):
            if gateway is not None:
                await gateway.close()


Decorator = Callable[[Callable[..., Any]], Callable[..., None]]
Asking = TypeVar("Asking", bound=Callable[..., Any])
_ONLY_CALLS: Final = "only_calls"
_MAY_ASK: Final = "may_ask"


def only_calls(command: Asking) -> Asking:
    """Mark an async command that awaits only `session.call`, except with `--watch`.

    Write this decorator below `connected`. If a node answers, the command then runs without an event loop, which takes
    longer to load than the command.
    """
    vars(command)[_ONLY_CALLS] = True
    return command


def may_ask(command: Asking) -> Asking:
    """Mark an async command that asks for confirmation in a protected context; this adds the option `--yes`.

    Write this decorator below `connected`.
    """
    vars(command)[_MAY_ASK] = True
    return command


def connected(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Decorate an async command that takes a `Session` first: the options of `SHARED` follow its own."""
    return _with_options(chosen(*NODE, *SHOW), _begin_connected)(command)


def connected_without_table(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Decorate a command as `connected` does, without `--no-headers`: it shows lines instead of a table."""
    return _with_options(chosen(*NODE, "output"), _begin_connected)(command)


def offline(*names: str, **variants: tuple[Any, Any]) -> Decorator:
    """Return a decorator that adds these shared options to a command that is not async.

    The command runs without an event loop, so Ctrl-C ends it at once.
    """
    return _with_options({**chosen(*names), **variants}, lambda command, session, given: command(session, **given))


def _begin_connected(command: Callable[..., Any], session: Session, given: dict[str, Any]) -> None:
    if vars(command).get(_ONLY_CALLS) and not given.get("watch"):
        from eventd.cli.gateway.late_loop import run_with_late_loop

        run_with_late_loop(lambda: command(session, **given), session.close)
        return
    from eventd.cli.gateway.event_loop import run_to_end  # loads asyncio, which help and completion do not need

    run_to_end(lambda: command(session, **given), session.close)


def _not_taken(options: Mapping[str, tuple[Any, Any]], own: list[inspect.Parameter]) -> dict[str, tuple[Any, Any]]:
    """Return the shared options whose names are not used by the command's own options."""
    taken = {word for parameter in own for about in parameter.annotation.__metadata__ for word in _spellings(about)}
    return {name: option for name, option in options.items() if not taken & _spellings(option[0].__metadata__[0])}


def _spellings(about: Any) -> set[str]:
    """Return the spellings of an option as it is declared: typer takes the first one for a default at first."""
    words = (about.default, *(about.param_decls or ()))
    return {word for word in words if isinstance(word, str) and word.startswith("-")}


def _with_options(
    shared_options: Mapping[str, tuple[Any, Any]], begin: Callable[[Callable[..., Any], Session, dict[str, Any]], None]
) -> Decorator:
    def decorate(command: Callable[..., Any]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        asks = chosen("confirmed") if vars(command).get(_MAY_ASK) else {}
        options = _not_taken({**asks, **shared_options}, own)

        def run(called: typer.Context, **given: Any) -> None:
            places = _places(called, SHARED)
            _require_one_node(places)
            if places["key_file"] == "COMMANDLINE":
                given["key"] = ""  # perhaps from the environment: the command line has precedence
            shared = {name: given.pop(name) if name in options else default for name, (_, default) in SHARED.items()}
            out = _output(shared.pop("output"), headers=not shared.pop("no_headers"))
            node = NodeChoice(**shared)
            if "context" in options:
                node = in_context(node, places, many=options["context"] is not SHARED["context"])
            own_written = _written(_places(called, given))
            begin(command, Session(node, out, written=_written(places), written_own=own_written), given)
            sys.stdout.flush()  # a closed output is noticed here, where it can be handled

        keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        called = inspect.Parameter("called", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        return declare(run, command, [called, *keywords, *parameters(options)])

    return decorate


def _places(called: typer.Context, names: Iterable[str]) -> dict[str, str]:
    """Return where each of these options comes from, such as `COMMANDLINE` or `ENVIRONMENT`.

    Empty for options that the command lacks.
    """
    return {name: str(getattr(called.get_parameter_source(name), "name", "")) for name in names}


def _written(places: Mapping[str, str]) -> frozenset[str]:
    return frozenset(name for name, place in places.items() if place == "COMMANDLINE")


def _require_one_node(places: Mapping[str, str]) -> None:
    """Raise `BadParameter` for two nodes or two keys on the command line."""
    named = [name for name, place in places.items() if place == "COMMANDLINE"]
    for one, others in {"server": LOCAL, "context": ("server", *LOCAL), "key": ("key_file",)}.items():
        for other in others:
            if one in named and other in named:
                flag = other.replace("_", "-")
                raise typer.BadParameter(f"--{one} and --{flag} contradict each other: leave one out")


def _output(written: Any, *, headers: bool) -> Output:
    """Return the output in the form of `-o`. Raises `BadParameter` for a template that cannot be parsed."""
    try:
        return Output(written, headers=headers, colour=may_colour())
    except Invalid as error:
        raise typer.BadParameter(str(error), param_hint="-o") from None


def may_colour() -> bool:
    """Return whether the output may have colours: it is a terminal that shows them, and NO_COLOR is not set."""
    if not sys.stdout.isatty():
        return False
    from eventd.settings.environment import service_environment

    around = service_environment()
    return "NO_COLOR" not in around and around.get("TERM") != "dumb"
