"""routerctl console: serves the consoles of nodes to a browser of this machine, over their APIs."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from eventd import __version__
from eventd.cli.console.link_socket import ask_link, offering_links
from eventd.cli.gateway.contexts import Contexts, NodeContext, read_contexts
from eventd.cli.gateway.event_loop import run_to_end
from eventd.cli.gateway.options import REMOTE, variant
from eventd.cli.gateway.session import Session, offline
from eventd.cli.terminal.output import note
from eventd.errors import EventdError, NotFound

if TYPE_CHECKING:
    from eventd.cli.gateway.node_choice import NodeChoice
    from eventd.console.many.console import ManyConsole, NodeAccess

ADDRESS = "127.0.0.1"


@offline(
    *REMOTE,
    context=variant(
        "context", metavar="NAMES", help="Contexts to show, separated by commas (default: the one in use)."
    ),
)
def console(
    session: Session,
    every: Annotated[bool, typer.Option("--all", help="Show all contexts.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1 (0: one that is free).")] = 0,
    link: Annotated[
        bool, typer.Option("--link", help="Print a new link to a console that runs already, for another browser.")
    ] = False,
) -> None:
    """Serve the console of one node or many on this machine, over their APIs, until Ctrl-C."""
    if link:
        print(ask_link(port))
        sys.stdout.flush()
        note("note: open this link in a browser of this machine; the browser that used the last one is signed out then")
        return
    nodes = [_reach(name, choice, about) for name, choice, about in _chosen(session, every=every)]
    run_to_end(lambda: _serve(nodes, port), _nothing)


async def _nothing() -> None:
    """Do nothing: there is nothing to close."""


def _chosen(session: Session, *, every: bool) -> list[tuple[str, NodeChoice, NodeContext | None]]:
    """Return the nodes to show, each with its context; the context is None for a node that --server names.

    Raises `NotFound`, and `BadParameter` for options that would change nothing.
    """
    node = session.node
    if unused := sorted(session.written - (set() if every else {"context"})) if every or not node.server else []:
        raise typer.BadParameter(
            f"--{unused[0].replace('_', '-')} has no effect on contexts, which name their nodes: leave it out"
        )
    if node.server and not node.context and not every:
        name = node.server.partition("://")[2] or node.server
        return [(re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-"), node, None)]
    contexts = read_contexts()
    if every:
        found = [contexts.all[name] for name in sorted(contexts.all)]
    else:
        found = [contexts.get(name) for name in _split(node.context, contexts)]
    if not found:
        raise NotFound("no context names a node to show", hint="add one with `routerctl context add`")
    return [(context.name, context.choice(), context) for context in found]


def _split(names: str, contexts: Contexts) -> list[str]:
    given = [name.strip() for name in names.split(",") if name.strip()]
    return list(dict.fromkeys(given)) or ([contexts.current] if contexts.current else [])


def _reach(name: str, choice: NodeChoice, context: NodeContext | None) -> NodeAccess:
    """Return a node and the connection to it.

    If its key or its address cannot be used, the reason instead of the connection.
    """
    from eventd.client.connection import ONCE, Connection
    from eventd.console.many.console import NodeAccess
    from eventd.console.many.remote_node import MOST_BYTES, NodeOptions

    colour, group, protected = (context.colour, context.group, context.protected) if context else ("", "", False)
    options = NodeOptions(name, choice.server, colour, group, protected)
    try:
        key, tls = choice.read_key(), choice.read_tls()
        connection = Connection(choice.server, key, tls=tls, retry=ONCE, most_bytes=MOST_BYTES)
    except (EventdError, typer.BadParameter) as error:
        note(f"note: {name} cannot be shown: {error}")
        return NodeAccess(options._replace(problem=str(error)), None)
    return NodeAccess(options._replace(address=str(connection.address)), connection)


async def _serve(nodes: list[NodeAccess], port: int) -> None:
    from eventd.console.many.console import ManyConsole
    from eventd.runtime.chance import SYSTEM
    from eventd.runtime.clock import SystemClock
    from eventd.runtime.supervisor import Supervisor

    clock = SystemClock()
    supervisor = Supervisor(clock)
    served = ManyConsole(nodes, clock, SYSTEM, supervisor.spawn, __version__)
    try:
        await _listen(served, port)
    finally:
        await supervisor.stop()
        await served.close()


async def _listen(served: ManyConsole, port: int) -> None:
    """Listen on this machine, print the link, and serve until the task is cancelled."""
    from aiohttp import web

    runner = web.AppRunner(served.app(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, ADDRESS, port).start()
        listening = runner.addresses[0][1]
        at = f"http://{ADDRESS}:{listening}"
        async with offering_links(listening, lambda: f"{at}{served.renew_entrance()}") as can_renew:
            print(f"{at}{served.entrance}")
            sys.stdout.flush()
            note("note: open this link in a browser of this machine; it works once. Ctrl-C stops the console")
            if not can_renew:
                note("note: for another link, the console has to be started again: it has no folder of its own")
            await asyncio.get_running_loop().create_future()
    finally:
        await runner.cleanup()
