"""Removes from answers and errors the parts that the caller's key may not see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from eventd.api.framework.route import Route
from eventd.api.keys.api_key import ApiKey
from eventd.errors import NotFound


async def run_for(key: ApiKey, route: Route, run: Callable[[], Awaitable[Any]]) -> Any:
    """Return the result of `run`, the operation that the route serves, without the parts that the key may not see.

    A `NotFound` loses its hint if the key is limited to prefixes, because hints may suggest names that the key may not
    see.
    """
    try:
        answer = await run()
    except NotFound as error:
        if key.prefixes:
            error.hint = ""
        raise
    return answer if key.may("read") else withhold(answer, route.withheld)


def withhold(answer: Any, names: Collection[str]) -> Any:
    """Return a copy of a JSON value in which the members with these names are empty, at any depth.

    A text becomes "", a list [], anything else null: clients that show a member find it. The outermost object has the
    names as the member `withheld`, so that an empty member is not mistaken for an empty value.
    """
    if not names:
        return answer
    return {**_emptied(answer, names), "withheld": sorted(names)}


def _emptied(value: Any, names: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {name: _empty(each) if name in names else _emptied(each, names) for name, each in value.items()}
    return [_emptied(each, names) for each in value] if isinstance(value, list | tuple) else value


def _empty(value: Any) -> Any:
    if isinstance(value, str):
        return ""
    return [] if isinstance(value, list | tuple) else None
