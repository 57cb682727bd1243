"""What needs attention at a node besides links: dead letters, and what else does not run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from eventd.console.drawing.router_picture import state_of
from eventd.console.many.answers import check_map
from eventd.console.pages.link_problems import without_links
from eventd.console.view.node_view import NodeView
from eventd.errors import EventdError
from eventd.text.plural import counted

_CALM: Final = frozenset({"running", "new", "planned"})
_MOST: Final = 9_999_999
"""The largest number that is shown: what a node answers may be anything."""
_LONGEST: Final = 40
"""Maximum number of characters of a state that are shown."""
MOST_COUNTED: Final = 20_000
"""Maximum number of groups, subscriptions, callbacks or routers of an answer that are counted."""
MOST_MAPS: Final = 20
"""Maximum number of groups of a node whose maps are read to find links whose ends disagree."""
MOST_STATES: Final = 8
"""Maximum number of states of a noun that are shown by themselves; there are fewer, unless a node invents some."""


class AttentionItem(NamedTuple):
    """What needs attention, in words, and the path and query of the page of the node that shows it."""

    words: str
    path: tuple[str, ...]
    query: Mapping[str, str] = MappingProxyType({})


async def read_attention(view: NodeView) -> list[AttentionItem]:
    """Return what needs attention, as far as the key may see it and the node answers."""
    found: list[AttentionItem] = []
    for read in (_read_letters, _read_subscriptions, _read_callbacks, _read_routers):
        found += await _read_one(read, view)
    return found


async def read_findings(view: NodeView) -> list[AttentionItem] | None:
    """Return what doctor finds at a node besides links that do not run; None if it cannot be read.

    It is what the overview of the node lists, and takes the longest.
    """
    try:
        checks = (await view.call("doctor.examine"))["checks"]
        found = [one for one in without_links(checks) if one["status"] in ("warn", "fail")]
    except (EventdError, KeyError, TypeError, ValueError, AttributeError):
        return None
    return [AttentionItem(f"{counted(len(found), 'finding')} of doctor", ("doctor",))] if found else []


async def read_maps(view: NodeView, groups: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return the maps of the first groups by name, without those that cannot be read."""
    found = {}
    for group in groups[:MOST_MAPS]:
        with suppress(EventdError):
            found[group] = check_map(await view.call("map.show", group=group))
    return found


async def _read_one(read: Callable[[NodeView], Awaitable[list[AttentionItem]]], view: NodeView) -> list[AttentionItem]:
    """Return nothing for what cannot be read: an older program does not know it, a key of some groups may not."""
    try:
        return await read(view)
    except (EventdError, KeyError, TypeError, ValueError, ArithmeticError, AttributeError):
        return []


async def _read_letters(view: NodeView) -> list[AttentionItem]:
    groups = (await view.call("dead_letters.all", limit=1))["groups"][:MOST_COUNTED]
    number = sum(int(group["count"]) for group in groups)
    at_least = "" if all(group["exact"] for group in groups) else "at least "
    words = f"{at_least}{counted(min(number, _MOST), 'dead letter')}"
    return [AttentionItem(words, ("dead-letters",))] if number > 0 else []


async def _read_subscriptions(view: NodeView) -> list[AttentionItem]:
    found = (await view.call("subscriptions.list"))["subscriptions"]
    return _by_state("subscription", (one["state"] for one in found))


async def _read_callbacks(view: NodeView) -> list[AttentionItem]:
    found = (await view.call("callbacks.list"))["callbacks"]
    return _by_state("callback", (one["state"] for one in found))


async def _read_routers(view: NodeView) -> list[AttentionItem]:
    found = (await view.call("topology.show"))["routers"]
    return [item._replace(query={}) for item in _by_state("router", (state_of(one) for one in found))]


def _by_state(noun: str, states: Iterable[str]) -> list[AttentionItem]:
    """Return an item for each state that needs attention. The page of the noun filters by it.

    What a node answers is counted up to `MOST_COUNTED`, and of more than `MOST_STATES` states, the rest is one item.
    """
    numbers = Counter(str(state)[:_LONGEST] for state in islice(states, MOST_COUNTED) if state not in _CALM)
    shown = dict(numbers.most_common(MOST_STATES))
    items = [
        AttentionItem(f"{counted(number, noun)} {state}", (f"{noun}s",), {"state": state})
        for state, number in sorted(shown.items())
    ]
    rest = numbers.total() - sum(shown.values())
    return [*items, AttentionItem(f"{counted(rest, noun)} in other states", (f"{noun}s",))] if rest else items
