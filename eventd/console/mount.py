"""Adds the console to the application of the API. What renders pages is loaded with the first visit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs, web

from eventd.api.framework.callers import Callers
from eventd.api.framework.operations import Services
from eventd.api.framework.recorder import ActionRecorder
from eventd.api.topics.calls import V0
from eventd.console.serving.dependencies import ConsoleDependencies
from eventd.settings.model import Settings

if TYPE_CHECKING:
    from eventd.console.serving.gate import Visitor
    from eventd.console.serving.site import Site

PATH: Final = "/console"


class Console:
    """The console of one process."""

    def __init__(self, dependencies: ConsoleDependencies) -> None:
        self._dependencies = dependencies
        self._site: Site[Visitor] | None = None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a request below /console/."""
        if self._site is None:
            from eventd.console.serving.node_host import NodeHost
            from eventd.console.serving.site import Site

            self._site = Site(NodeHost(self._dependencies))
        return await self._site.serve(request)

    async def lead_in(self, request: web.Request) -> web.StreamResponse:
        """Send browsers from the root of the listener to the console. Raises `HTTPNotFound` for other clients."""
        if "text/html" not in request.headers.get(hdrs.ACCEPT, ""):
            raise web.HTTPNotFound
        return web.Response(status=303, headers={hdrs.LOCATION: f"{self._dependencies.settings.console_prefix}{PATH}/"})

    async def close(self, _app: web.Application) -> None:
        """End the streams of pages: the node stops."""
        if self._site is not None:
            await self._site.close()


def mount_console(
    app: web.Application,
    services: Services,
    v0: V0,
    callers: Callers,
    recorder: ActionRecorder,
    settings: Settings,
    version: str,
    address: Callable[[], str],
) -> None:
    """Serve the console on an application, with and without the prefix of the settings, unless it is switched off.

    `address` returns the address of the API, which is known when it is served.
    """
    if not settings.console:
        return
    console = Console(ConsoleDependencies(services, v0, callers, recorder, settings, version, address))
    for prefix in dict.fromkeys(("", settings.console_prefix)):
        app.router.add_route("*", f"{prefix}{PATH}{{slash:/?}}{{tail:.*}}", console.serve)
        app.router.add_get(f"{prefix}/", console.lead_in)
    app.on_shutdown.append(console.close)
