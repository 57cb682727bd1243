"""The console of many nodes as a web application: the site of all nodes, and the site of each below `/at/NAME/`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from aiohttp import hdrs, web

from eventd.api.errors.codes import NoSuchRoute
from eventd.client.connection import Connection
from eventd.console.many.all_nodes import AllNodes, AllNodesView
from eventd.console.many.local_host import LocalHost
from eventd.console.many.one_time_link import ENTRY, OneTimeLink, Operator
from eventd.console.many.remote_node import NodeOptions, RemoteNode
from eventd.console.pages.table import PAGES
from eventd.console.rendering.urls import Urls
from eventd.console.serving.forms import LARGEST
from eventd.console.serving.layout import SiteFrame, Switcher, SwitcherEntry
from eventd.console.serving.site import Site
from eventd.console.view.node_view import NodeView
from eventd.errors import NotFound
from eventd.runtime.chance import Chance
from eventd.runtime.clock import Clock
from eventd.runtime.supervisor import SpawnTask
from eventd.text.quoting import quoted


class NodeAccess(NamedTuple):
    """A node to show, and the connection to it; None if its options have a problem."""

    options: NodeOptions
    connection: Connection | None


def _all_nodes(request_id: str) -> NodeView:
    return AllNodesView()


class ManyConsole:
    """The console of many nodes, for browsers of this machine that have opened its link."""

    def __init__(
        self, nodes: Sequence[NodeAccess], clock: Clock, chance: Chance, spawn: SpawnTask, version: str
    ) -> None:
        self._link = OneTimeLink(chance)
        self._nodes = [RemoteNode(options, connection, clock, spawn) for options, connection in nodes]
        self._urls = {node.name: Urls(f"/at/{quote(node.name, safe='')}") for node in self._nodes}
        together = AllNodes(self._nodes, self._urls, spawn)
        home = Urls()

        def host(urls: Urls, node: RemoteNode | None) -> LocalHost:
            entries = tuple(self._entry(each, node) for each in self._nodes)
            frame = SiteFrame(
                urls,
                version,
                together.pages() if node is None else PAGES,
                Switcher(home.to(), entries),
                home.to("events"),
                ENTRY,
            )
            return LocalHost(self._link, frame, clock, chance, spawn, node.view if node else _all_nodes, node)

        self._home: Site[Operator] = Site(host(home, None))
        self._sites = {node.name: Site(host(self._urls[node.name], node)) for node in self._nodes}

    def _entry(self, node: RemoteNode, shown: RemoteNode | None) -> SwitcherEntry:
        options = node.options
        return SwitcherEntry(
            node.name,
            self._urls[node.name].to(),
            options.colour,
            options.protected,
            current=node is shown,
            known=Urls().to("nodes", node.name),
        )

    @property
    def entrance(self) -> str:
        """Return the path of the one-time link, with its token."""
        return Urls().to("sign-in", token=self._link.token)

    def renew_entrance(self) -> str:
        """Return the path of a new link, which replaces the one before."""
        self._link.renew()
        return self.entrance

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=LARGEST)
        app.router.add_route("*", "/console{slash:/?}{tail:.*}", self._home.serve)
        app.router.add_route("*", "/at/{node}/console{slash:/?}{tail:.*}", self._serve_node)
        app.router.add_get("/", self._lead_in)
        app.router.add_route("*", "/at/{node}{slash:/?}", self._serve_node)
        app.router.add_route("*", "/{tail:.*}", self._refuse)
        app.on_shutdown.append(self._end_streams)
        return app

    async def _serve_node(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["node"]
        site = self._sites.get(name)
        if site is None:
            hint = "the page of all nodes has those that are shown"
            return await self._home.refuse(request, NotFound(f"no node has the name {quoted(name)} here", hint=hint))
        if "tail" not in request.match_info:
            return web.Response(status=303, headers={hdrs.LOCATION: self._urls[name].to()})
        return await site.serve(request)

    async def _refuse(self, request: web.Request) -> web.StreamResponse:
        return await self._home.refuse(request, NoSuchRoute(f"nothing is served at {quoted(request.path)}"))

    async def _lead_in(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=303, headers={hdrs.LOCATION: Urls().to()})

    async def _end_streams(self, _app: web.Application) -> None:
        for site in (self._home, *self._sites.values()):
            await site.close()

    async def close(self) -> None:
        """Close all connections to nodes."""
        for node in self._nodes:
            await node.close()
