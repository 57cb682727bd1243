"""A console site: finds the page or action of a request, and always answers with a page, also for errors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Generic

from aiohttp import web
from yarl import URL

from eventd.api.errors.codes import API_FORM, NoSuchRoute, internal
from eventd.api.framework.request_ids import RequestIds
from eventd.console.live.hub import Hub
from eventd.console.live.session_watch import ViewerSession
from eventd.console.live.stream import follow_view
from eventd.console.live.stream_limiter import StreamLimiter
from eventd.console.pages.table import ACTIONS, FoundPage, find_page
from eventd.console.pages.visit import AnyPage, FilePage, ForeignPage, ShownPage, Visit
from eventd.console.serving.action_pages import ActionPages
from eventd.console.serving.answers import download, foreign, html, keep_to_https, see
from eventd.console.serving.forms import SMALL, read_form
from eventd.console.serving.layout import Layout
from eventd.console.serving.own_forms import require_no_foreign_page
from eventd.console.serving.preferences import Preferences, set_preferences
from eventd.console.serving.site_host import SiteHost, Someone
from eventd.console.serving.static_files import serve_static
from eventd.console.view.recent import RecentAnswers
from eventd.errors import EventdError, Forbidden, Unauthorized
from eventd.tls.transport import TlsTransport

logger = logging.getLogger("eventd.console")


class Site(Generic[Someone]):
    """Serves all paths below /console/."""

    def __init__(self, host: SiteHost[Someone]) -> None:
        self._host = host
        self._clock, self._chance = host.clock, host.chance
        self._urls, self._pages = host.frame.urls, host.frame.pages
        self._layout = Layout(host.frame)
        self._ids = RequestIds(self._chance)
        self._hub = Hub(self._clock, host.spawn)
        self._streams = StreamLimiter(host.most_streams)
        self._recent = RecentAnswers(self._clock, host.spawn)
        self._actions = ActionPages(self._urls, self._layout, self._recent.forget)

    async def close(self) -> None:
        """End all streams."""
        self._hub.close()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a request below /console; errors are pages, too."""
        try:
            response = await self._serve(request)
        except EventdError as error:
            response = await self._error_page(request, error)
        except (web.HTTPException, ConnectionError):
            raise
        except Exception:
            incident = self._chance.token(4).hex()
            logger.exception("request failed", extra={"route": f"{request.method} /console", "incident": incident})
            response = await self._error_page(request, internal(incident))
        if isinstance(request.transport, TlsTransport) and not response.prepared:
            keep_to_https(response)
        return response

    async def refuse(self, request: web.Request, error: EventdError) -> web.StreamResponse:
        """Answer a request with the page of an error."""
        return await self._error_page(request, error)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = f"/{request.match_info['tail']}"
        if not request.match_info["slash"]:
            if path != "/":
                raise NoSuchRoute(f"nothing is served at {request.path}")
            return see(self._urls.to())
        # what is served without a key
        if path.startswith("/static/") and request.method in ("GET", "HEAD"):
            return serve_static(request, path.removeprefix("/static/"))
        require_no_foreign_page(request)
        if path == "/sign-in":
            return await self._host.sign_in(request, Preferences.of(request), self._ids.of(request))
        visitor = await self._host.identify(request)
        if request.method == "POST":
            self._host.require_own_form(request)
        if path == "/preferences" and request.method == "POST":
            return await self._prefer(request)
        if visitor is None:
            if request.method != "GET" or path == "/stream":
                raise Unauthorized("you are not signed in, or your session has ended", hint="sign in again")
            return see(self._urls.to("sign-in", next=request.path_qs))
        return await self._serve_visitor(request, path, visitor)

    async def _serve_visitor(self, request: web.Request, path: str, visitor: Someone) -> web.StreamResponse:
        if path == "/sign-out" and request.method == "POST":
            return await self._host.sign_out(visitor, self._ids.of(request))
        if path == "/stream" and request.method == "GET":
            return await self._stream(request, visitor)
        if path.startswith("/do/"):
            operation = path.removeprefix("/do/")
            if operation not in ACTIONS:
                raise NoSuchRoute(f"the console has no action {operation[:60]!r}")
            preferences, own = Preferences.of(request), self._ids.of(request)
            visit = self._visit(
                request.rel_url.raw_path,
                dict(request.query),
                {},
                visitor,
                preferences,
                own,
                session=visitor.session_id,
            )
            return await self._actions.serve(request, operation, visit, preferences)
        found = find_page(self._path_of(request), self._pages)
        if found is None:
            raise NoSuchRoute(f"the console has no page at {request.path}")
        if request.method not in ("GET", "HEAD"):
            raise Forbidden("a page is only read", hint="use its buttons")
        return await self._page(request, found, visitor)

    def _path_of(self, request: web.Request) -> str:
        """Return the path of a request below /console, still quoted; a proxy may have stripped the prefix."""
        raw, base = request.rel_url.raw_path, f"{self._urls.base}/"
        return f"/{raw.removeprefix(base) if raw.startswith(base) else raw.partition('/console/')[2]}"

    async def _page(self, request: web.Request, found: FoundPage, visitor: Someone) -> web.StreamResponse:
        preferences = Preferences.of(request)
        visit = self._visit(
            request.rel_url.raw_path,
            dict(request.query),
            found.names,
            visitor,
            preferences,
            session=visitor.session_id,
        )
        page = await self._show(found, visit)
        if isinstance(page, FilePage):
            return download(page.name, page.content)
        if isinstance(page, ForeignPage):
            return foreign(page.content)
        if page.target:
            return see(page.target)
        return html(self._layout.whole(page, visit, found.route.section, preferences), page.status)

    async def _show(self, found: FoundPage, visit: Visit) -> AnyPage:
        if not found.route.is_open_to(visit.view, found.names):
            hint = "sign in with another key, or ask an admin for one"
            raise Forbidden(f"this page needs a key with {found.route.needed}", hint=hint)
        return await found.route.show(visit)

    def _visit(
        self,
        path: str,
        query: dict[str, str],
        names: dict[str, str],
        visitor: Someone,
        preferences: Preferences,
        request_id: str = "",
        *,
        shared: bool = False,
        session: str = "",
        then: Callable[[], None] | None = None,
    ) -> Visit:
        """Return a visit. `shared`: other visitors get what it renders, too. `session`: the id of the visitor's.

        `then` is called when an answer arrives for which the page did not wait.
        """
        view, style = self._host.view(visitor, request_id, shared=shared), preferences.style(self._clock.now())
        once = "" if shared else self._host.chance.token(16).hex()
        recent = partial(self._recent.find, visitor.mark, then=then)
        return Visit(
            view, self._urls, path, names, query, style, visitor.name, self._host.histories, once, session, recent
        )

    # --- live pages ---------------------------------------------------------------------------------------------

    async def _stream(self, request: web.Request, visitor: Someone) -> web.StreamResponse:
        target = self._urls.own(request.query.get("view", ""))
        path, _, text = (target or "").partition("?")
        found = find_page(path.removeprefix(self._urls.base) or "/", self._pages)
        if target is None or found is None or found.route.is_file:
            raise NoSuchRoute("the console has no page of this address to follow")
        query = dict(URL.build(path="/", query_string=text, encoded=True).query)  # as the page itself reads it
        query.pop("done", None)  # only a whole page says that an action was done
        preferences = Preferences.of(request)
        session = visitor.session_id if found.route.is_own else ""
        key = (path, tuple(sorted(query.items())), visitor.mark, session, preferences.times, preferences.zone)

        async def render() -> bytes:
            then = partial(self._hub.renew, key)
            visit = self._visit(path, query, found.names, visitor, preferences, shared=True, session=session, then=then)
            page = await self._show(found, visit)
            if not isinstance(page, ShownPage) or page.target:
                raise NoSuchRoute("a file, or a page that leads to another, is not followed")
            return self._layout.fragment(page, visit).encode()

        holders = self._host.holders(visitor)
        with self._streams.take(holders), self._host.using(request, visitor):
            watched = ViewerSession(holders, partial(self._host.has_ended, visitor))
            return await follow_view(request, self._hub, key, render, self._host.most_streams, watched, self._clock)

    # --- the rest -----------------------------------------------------------------------------------------------

    async def _prefer(self, request: web.Request) -> web.Response:
        form = await read_form(request, SMALL)
        response = see(self._urls.own(str(form.get("back", ""))) or self._urls.to())
        set_preferences(response, form, secure=self._host.is_secure(request))
        return response

    async def _error_page(self, request: web.Request, error: EventdError) -> web.StreamResponse:
        status = API_FORM.status(error)
        if status >= 500:
            logger.warning("request failed", extra={"route": f"{request.method} /console", "code": error.code})
        visitor = None
        with suppress(EventdError):
            visitor = await self._host.identify(request)
        heading = _HEADINGS.get(status, "That did not work")
        if status == 401 and visitor is not None:  # the visitor is signed in: a node has refused the key of its context
            heading = "The node refuses the key"
        elif status == 401 and self._host.frame.entry:
            heading = "Open the printed link"
        unfiltered = self._unfiltered(request, status) if visitor is not None else ""
        # the stream of a page that cannot be shown now sends it as soon as it can
        heals = visitor is not None and status == 503 and request.method == "GET" and self._is_followed(request)
        page = ShownPage(heading, "error.html", {"error": error, "unfiltered": unfiltered}, heals, status)
        preferences = Preferences.of(request)
        visit = None
        if visitor is not None:
            query = dict(request.query) if heals else {}
            visit = self._visit(request.rel_url.raw_path, query, {}, visitor, preferences)
        return html(self._layout.alone(page, visit, preferences, self._clock.now()), status)

    def _is_followed(self, request: web.Request) -> bool:
        """Return whether the page of a request can be kept up to date."""
        found = find_page(self._path_of(request), self._pages)
        return found is not None and not found.route.is_file

    def _unfiltered(self, request: web.Request, status: int) -> str:
        """Return the URL of the page of a request without its query, if that may be what is wrong; else empty."""
        found = find_page(self._path_of(request), self._pages)
        if not request.query_string or request.method != "GET" or found is None:
            return ""
        # What a path names and is not there is missing without the query, too.
        return request.rel_url.raw_path if status == 400 or (status == 404 and not found.names) else ""


_HEADINGS: Final = {
    401: "Sign in again",
    403: "Not allowed",
    400: "Not valid",
    404: "Not found",
    409: "Not possible now",
    429: "Too many requests",
    503: "Not available",
}
