"""Finds the pages of the console that do the same as a command.

Texts of the node name commands, and pages add links to these pages.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from eventd.console.pages.visit import Visit
from eventd.console.rendering.formats import LinkedCommand


class _CommandPage(NamedTuple):
    """A command and the page that does it. `command`: its words; those in braces are arguments.

    `needs`: the operation of the page. `path`, `query`: of the page; words in braces are the arguments. `for_all`: a
    key that is limited to some names may not use it.
    """

    command: str
    label: str
    needs: str
    path: tuple[str, ...]
    query: tuple[tuple[str, str], ...] = ()
    for_all: bool = False


_LINK: Final = ("Open the link", "links.status", ("links", "{group}", "{peer}"))
_OF_GROUP: Final = (("group", "{group}"),)
_EVENTS: Final = ("Open the events", "events.search", ("events",))
_LETTERS: Final = ("Open the dead letters", "dead_letters.all", ("dead-letters",))
_SUBSCRIPTION: Final = ("Open the subscription", "subscriptions.list", ("subscriptions", "{group}", "{name}"))
_CALLBACK: Final = ("Open the callback", "callbacks.describe", ("callbacks", "{name}"))
_ROUTEMASTER: Final = ("Open Routemaster", "routemaster.topics", ("routemaster",))
_ROUTER: Final = ("Open the routers", "topology.show", ("routers",))

_PAGES: Final = (
    _CommandPage("federation links --group {group} --peer {peer}", *_LINK),
    _CommandPage(
        "federation links --group {group}", "Open the links", "links.status", ("links",), (("group", "{group}"),)
    ),
    _CommandPage("federation resume {peer} --group {group}", *_LINK),
    _CommandPage("federation gaps --group {group} --from {peer}", *_LINK),
    _CommandPage(
        "federation dead-letters list --group {group} --peer {peer}",
        *_LETTERS,
        (("kind", "peer"), ("owner", "{peer}"), *_OF_GROUP),
    ),
    _CommandPage("federation dead-letters list --group {group}", *_LETTERS, _OF_GROUP),
    _CommandPage("federation dead-letters drop --group {group} NUMBER", *_LETTERS, (("kind", "peer"), *_OF_GROUP)),
    _CommandPage(
        "federation redeliver {peer} --group {group} --id ID",
        "Send events again",
        "deliveries.redeliver",
        ("do", "deliveries.redeliver"),
        (*_OF_GROUP, ("peer", "{peer}")),
    ),
    _CommandPage(
        "federation event list --group {group} --id ID --include-expired",
        *_EVENTS,
        _OF_GROUP,
    ),
    _CommandPage("subscription runs {name}", *_SUBSCRIPTION, (("status", "failed"),)),  # named where runs fail
    *(_CommandPage(f"subscription {verb} {{name}}", *_SUBSCRIPTION) for verb in ("retry", "resume")),
    *(
        _CommandPage(f"callback {verb} {{name}}", *_CALLBACK, for_all=True)
        for verb in ("test", "resume", "pause", "describe")
    ),
    _CommandPage("callback dead-letters list {name}", *_LETTERS, (("kind", "callback"), ("owner", "{name}"))),
    _CommandPage("callback list", "Open the callbacks", "callbacks.list", ("callbacks",), for_all=True),
    _CommandPage("dynamic describe {source}", "Open the part", "dynamic.describe", ("parts", "{source}"), for_all=True),
    _CommandPage("dynamic list", "Open the parts", "dynamic.list", ("parts",), for_all=True),
    _CommandPage("dynamic diff", "Open the effective configuration", "dynamic.diff", ("parts", "effective")),
    _CommandPage("plugin logs", "Open the plugins", "plugins.list", ("plugins",), for_all=True),
    _CommandPage("routemaster subscribers", *_ROUTEMASTER),
    _CommandPage("routemaster token list", *_ROUTEMASTER),
    _CommandPage("routemaster token create NAME", *_ROUTEMASTER),
    _CommandPage("apply -f FILE", "Apply resources", "resources.apply", ("do", "resources.apply")),
    _CommandPage(
        "edit '{kind}/{name}'",
        "Change the resource",
        "resources.apply",
        ("do", "resources.apply"),
        (("kind", "{kind}"), ("name", "{name}")),
    ),
    _CommandPage("router list", *_ROUTER),
    _CommandPage("topology check", *_ROUTER),
    _CommandPage("queue list", "Open the queues", "queues.list", ("queues",)),
    _CommandPage("job list", "Open the jobs", "jobs.list", ("jobs",)),
    _CommandPage("key list", "Open the keys", "keys.list", ("keys",), for_all=True),
)
"""The pages of commands. The first one that matches is used."""
_PROGRAM: Final = "routerctl "
_WORD: Final = r"[^\s;,'`]{1,200}"
_PART: Final = r"[^\s;,'`/]{1,200}"
"""An argument beside a slash: if it could hold one itself, a text with many could be split in as many ways."""
LONGEST: Final = 4000
"""Maximum number of characters of a text in which commands are looked for. Texts of the node are much shorter; one
that is longer holds what a caller, a peer or another node wrote."""
MOST: Final = 16
"""Maximum number of places of a text that are compared with the commands, for the same reason."""


def _pattern(command: str) -> re.Pattern[str]:
    """Return a pattern that matches a command with any arguments, up to the end of its last word."""
    words = re.split(r"\{(\w+)\}", command)
    form = _PART if "}/{" in command else _WORD
    text = "".join(f"(?P<{word}>{form})" if at % 2 else re.escape(word) for at, word in enumerate(words))
    return re.compile(_PROGRAM + text + ("" if command.endswith("'") else r"(?![^\s;,.)`])"))


_PATTERNS: Final = tuple((_pattern(page.command), page) for page in _PAGES)


def find_commands(visit: Visit, text: str, group: str = "") -> list[LinkedCommand]:
    """Return the commands in a text that pages of the console do, in their order, each with its page.

    Only the beginning of a long text is searched, and only for a few commands, because other nodes may write texts.
    `group`: the group that the text is about; empty if it is not known. Pages that the visitor may not open are left
    out.
    """
    found, at, text = list[LinkedCommand](), 0, text[:LONGEST]
    for _ in range(MOST):
        at = text.find(_PROGRAM, at)
        if at < 0:
            break
        fitting = ((match, page) for pattern, page in _PATTERNS if (match := pattern.match(text, at)))
        match, page = next(fitting, (None, None))
        if match is None or page is None:
            at += len(_PROGRAM)
            continue
        if visit.view.may(page.needs) and (not page.for_all or visit.view.sees("")):
            found.append(
                LinkedCommand(match.start(), match.end(), _url(visit, page, match.groupdict(), group), page.label)
            )
        at = match.end()
    return found


def _url(visit: Visit, page: _CommandPage, given: dict[str, Any], group: str) -> str:
    known = {"group": group} | given
    if page.path[0] == "subscriptions" and not known["group"]:
        return visit.urls.to("subscriptions", q=known["name"])
    return visit.urls.to(
        *(part.format_map(known) for part in page.path), **{name: text.format_map(known) for name, text in page.query}
    )
