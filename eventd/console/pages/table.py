"""The tables of all pages and of all actions: to add one, add an entry, and write its function and its template."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final, NamedTuple

from eventd.console.pages import (
    audits,
    callbacks,
    doctor,
    events,
    histories,
    jobs,
    keys,
    letters,
    links,
    overview,
    parts,
    plugins,
    queues,
    record_removal,
    recorded,
    resources,
    routemaster,
    routers,
    sessions,
    settings,
    streams,
    subscriptions,
    topic_actions,
    topics,
)
from eventd.console.pages.actions import PageAction
from eventd.console.pages.visit import AnyPage, Visit
from eventd.console.rendering.urls import unquoted_part
from eventd.console.view.node_view import NodeView, V0Request
from eventd.console.view.permissions import scopes_for

ShowPage = Callable[[Visit], Awaitable[AnyPage]]


class PageRoute(NamedTuple):
    """A page: its path below /console, its function, and the operation, or the request to /v0, that a visitor must be
    allowed to use.

    `title`: in the navigation, empty for pages that are reached from others; `key`: the letter that follows `g` to go
    to it. `section`: the name of the page in the navigation that it belongs to. `for_all`: keys that are limited to
    some names may not use the operation, so the navigation does not lead them there. `is_file`: it answers with a file,
    or with a page that another program has written, which are not kept up to date. `is_own`: it shows something about
    the session of its visitor, so it is kept up to date for each session by itself.
    """

    path: str
    show: ShowPage
    needs: str | V0Request
    section: str
    title: str = ""
    key: str = ""
    for_all: bool = False
    is_file: bool = False
    is_own: bool = False

    def is_open_to(self, view: NodeView, names: Mapping[str, str] = MappingProxyType({})) -> bool:
        """Return whether a visitor may open the page, with these names in its path."""
        if isinstance(self.needs, V0Request):
            return view.may_ask(self.needs.method, *self.needs.fill(names))
        return view.may(self.needs)

    def is_offered_to(self, view: NodeView) -> bool:
        """Return whether the navigation leads a visitor to the page."""
        return self.is_open_to(view) and (not self.for_all or view.sees(""))

    @property
    def needed(self) -> str:
        """Return the scopes that the page needs, in words."""
        return scopes_for(self.needs)


PAGES: Final[tuple[PageRoute, ...]] = (
    PageRoute("/", overview.show_overview, "groups.status", "overview", "Overview", "o"),
    PageRoute("/links", links.show_links, "links.status", "links", "Links", "l"),
    PageRoute("/links/{group}/{peer}", links.show_link, "links.status", "links"),
    PageRoute("/links/{group}/{peer}/comparison", links.show_comparison, "links.verify", "links"),
    PageRoute("/events", events.show_events, "events.search", "events", "Events", "e"),
    PageRoute("/events/{group}/{id}", events.show_event, "events.describe", "events"),
    PageRoute("/events/{group}/{id}/payload", events.download_payload, "events.payload", "events", is_file=True),
    PageRoute(
        "/subscriptions", subscriptions.show_subscriptions, "subscriptions.list", "subscriptions", "Subscriptions", "s"
    ),
    PageRoute("/subscriptions/{group}/{name}", subscriptions.show_subscription, "subscriptions.list", "subscriptions"),
    PageRoute("/plugins", plugins.show_plugins, "plugins.list", "plugins", "Plugins", "i"),
    PageRoute("/plugins/{plugin}", plugins.show_plugin, "plugins.runs", "plugins"),
    PageRoute("/parts", parts.show_parts, "dynamic.list", "parts", "Parts", "p"),
    PageRoute("/parts/effective", parts.show_effective, "dynamic.diff", "parts"),
    PageRoute("/parts/{source}", parts.show_part, "dynamic.describe", "parts"),
    PageRoute("/topics", topics.show_topics, topics.LIST, "topics", "Topics", "t"),
    PageRoute("/topics/{topic}", topics.show_topic, topics.SHOW, "topics"),
    PageRoute("/topics/{topic}/records/{seq}", topics.show_record, topics.READ, "topics"),
    PageRoute("/topics/{topic}/records/{seq}/data", topics.download_data, topics.READ, "topics", is_file=True),
    PageRoute("/streams", streams.show_streams, topics.LIST, "streams", "Streams", "h"),
    PageRoute("/routers", routers.show_routers, "topology.show", "routers", "Routers", "y"),
    PageRoute("/routers/{router}", routers.show_router, routers.SHOW, "routers"),
    PageRoute("/queues", queues.show_queues, "queues.list", "queues", "Queues", "q"),
    PageRoute("/queues/{topic}", queues.show_queue, queues.SHOW, "queues"),
    PageRoute("/callbacks", callbacks.show_callbacks, "callbacks.list", "callbacks", "Callbacks", "w"),
    PageRoute("/callbacks/{callback}", callbacks.show_callback, "callbacks.describe", "callbacks"),
    PageRoute("/routemaster", routemaster.show_surface, "routemaster.topics", "routemaster", "Routemaster", "m"),
    PageRoute("/dead-letters", letters.show_letters, "dead_letters.all", "dead-letters", "Dead letters", "x"),
    PageRoute("/jobs", jobs.show_jobs, "jobs.list", "jobs", "Jobs", "j"),
    PageRoute("/jobs/{number}", jobs.show_job, "jobs.get", "jobs"),
    PageRoute("/resources", resources.show_resources, "resources.list", "resources", "Resources", "r", for_all=True),
    PageRoute("/resources/{kind}/{name}", resources.show_resource, "resources.describe", "resources"),
    PageRoute("/doctor", doctor.show_doctor, "doctor.examine", "doctor", "Doctor", "d"),
    PageRoute("/histories", histories.show_histories, "history.status", "histories", "Histories", "b"),
    PageRoute("/audits", audits.show_audits, "audits.list", "audits", "Audits", "v", for_all=True),
    PageRoute("/audits/{name}/report", audits.show_report, "audits.report", "audits", is_file=True),
    PageRoute("/keys", keys.show_keys, "keys.list", "keys", "Keys", "k", for_all=True),
    PageRoute(
        "/sessions", sessions.show_sessions, "sessions.list", "sessions", "Sessions", "u", for_all=True, is_own=True
    ),
    PageRoute("/actions", recorded.show_recorded, "actions.list", "actions", "Actions", "a", for_all=True),
    PageRoute("/settings", settings.show_settings, "node.settings", "settings", "Settings", "n", for_all=True),
)
"""A path is looked up in this order."""

AREAS: Final = {
    "Federation": ("overview", "links", "events", "dead-letters", "doctor", "histories", "audits"),
    "Plugins": ("subscriptions", "plugins", "parts"),
    "Topics": ("topics", "streams", "routers", "queues"),
    "Push": ("callbacks", "routemaster"),
    "Node": ("jobs", "resources", "keys", "sessions", "actions", "settings"),
}
"""The sections of the navigation in its order, by the title above them."""

ACTIONS: Final[dict[str, PageAction]] = {
    **links.ACTIONS,
    **events.ACTIONS,
    **subscriptions.ACTIONS,
    **plugins.ACTIONS,
    **parts.ACTIONS,
    **topic_actions.ACTIONS,
    **record_removal.ACTIONS,
    **routers.ACTIONS,
    **queues.ACTIONS,
    **callbacks.ACTIONS,
    **routemaster.ACTIONS,
    **letters.ACTIONS,
    **jobs.ACTIONS,
    **resources.ACTIONS,
    **doctor.ACTIONS,
    **keys.ACTIONS,
    **sessions.ACTIONS,
}
"""By operation of /api/v1, or by a name of their own for requests to /v0."""


class FoundPage(NamedTuple):
    """A page and the names in its path."""

    route: PageRoute
    names: dict[str, str]


def find_page(path: str, pages: tuple[PageRoute, ...] = PAGES) -> FoundPage | None:
    """Return the page of a path below /console, still quoted; None if there is none."""
    for route, pattern in _patterns(pages):
        if found := pattern.fullmatch(path):
            return FoundPage(route, {name: unquoted_part(text) for name, text in found.groupdict().items()})
    return None


@cache
def _patterns(pages: tuple[PageRoute, ...]) -> list[tuple[PageRoute, re.Pattern[str]]]:
    return [(route, re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", route.path))) for route in pages]
