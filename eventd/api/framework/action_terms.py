"""The parts of a request that the record of actions shows: its object and its arguments, without payloads and
secrets."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET
from pydantic import BaseModel

from eventd.api.framework.route import Route

SHOWN: Final = frozenset(
    {
        *("action", "callback", "number", "reasons", "subscription", "types"),  # of jobs
        *("accept_unproven", "adopt", "after", "all", "allow_empty", "area", "by", "dry_run", "expected"),
        *("expires", "failed", "forget", "from_seq", "grace", "group", "ids", "ignore_not_found", "kind"),
        *("latest", "limit", "lost", "name", "peer", "prefixes", "prune", "release", "remediation_plan", "scopes"),
        *("seconds", "seqs", "since", "source", "sources", "to", "to_seq", "type", "until", "waits"),
    }
)
"""The fields of operations whose values are recorded. Of files (`sources`), these are their names. A field that is not
listed is left out: list it only if no request has a secret or a payload in a field of this name."""
MOST_TEXT: Final = 100
"""Maximum characters of one recorded value."""
MOST_ITEMS: Final = 8
"""Maximum number of recorded items of a list."""
MOST_ARGUMENTS: Final = 600
"""Maximum characters of all arguments of an action, as JSON."""
MOST_OBJECT: Final = 300
_NAME: Final = re.compile(r"{(\w+)}")


def object_of(route: Route, path: Mapping[str, str], params: BaseModel | None = None) -> str:
    """Return the object of an action, such as `peer core/site-b`: a noun of the route's path, and its name.

    If the path names no object, it is taken from `params`, if they name one; else the object is empty.
    """
    parts = [part for part in route.path.split("/") if part][1:]  # without `api` or `v0`
    parts = parts[1:] if parts[:1] == ["v1"] else parts
    names = [path[part[1:-1]] for part in parts if part.startswith("{") and part[1:-1] in path]
    if "resources" in parts and len(names) == 2:
        return f"{names[0]} {names[1]}"[:MOST_OBJECT]
    places = [at for at, part in enumerate(parts) if part.startswith("{")]
    if places:
        noun = parts[places[-1] - 1]
        return f"{_surface(parts)}{_singular(noun)} {'/'.join(names)}"[:MOST_OBJECT]
    name = getattr(params, "name", "") or getattr(params, "source", "")
    if not isinstance(name, str) or not name:
        return ""
    return f"{_surface(parts)}{_singular(parts[-1])} {name}"[:MOST_OBJECT]


def _surface(parts: Collection[str]) -> str:
    return "routemaster " if "routemaster" in parts else ""


def _singular(noun: str) -> str:
    return noun.removesuffix("es" if noun.endswith("sses") else "s").replace("-", " ")


def arguments_of(route: Route, *given: Any) -> str:
    """Return the arguments of an action as a bounded JSON object: what the request gives besides its object.

    `given`: the parameters of an operation, or the query and the body of a call, which hold no secrets.
    """
    values: dict[str, Any] = {}
    for model in given:
        values |= _of_params(model) if isinstance(model, BaseModel) else _of_struct(model)
    named = set(_NAME.findall(route.path))
    return _encode({name: _bound(value) for name, value in values.items() if name not in named})


def is_dry_run(route: Route, params: BaseModel) -> bool:
    """Return whether a request is only a dry run.

    A dry run of a plugin is an action nevertheless, because the plugin runs.
    """
    return not route.outside and bool(getattr(params, "dry_run", False))


def add_argument(arguments: str, name: str, value: Any) -> str:
    """Return arguments with another one, bounded again."""
    return _encode(msgspec.json.decode(arguments, type=dict[str, Any]) | {name: _bound(value)})


def _of_params(model: BaseModel) -> dict[str, Any]:
    shown = {name: getattr(model, name) for name in model.model_fields_set if name in SHOWN}
    named = {name: [getattr(each, "name", each) for each in value] for name, value in shown.items() if _is_list(value)}
    values = shown | named
    return {type(model).model_fields[name].alias or name: values[name] for name in sorted(values)}


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _of_struct(model: Any) -> dict[str, Any]:
    if model is None:
        return {}
    fields = msgspec.structs.fields(model)
    given = {
        each.encode_name: getattr(model, each.name) for each in fields if getattr(model, each.name) != each.default
    }
    return {name: msgspec.to_builtins(value) for name, value in given.items() if value is not UNSET}


def _bound(value: Any) -> Any:
    match value:
        case str():
            return value if len(value) <= MOST_TEXT else f"{value[: MOST_TEXT - 1]}…"
        case list() | tuple():
            shown = [_bound(each) for each in value[:MOST_ITEMS]]
            return [*shown, f"… {len(value):,} in all"] if len(value) > MOST_ITEMS else shown
        case dict():
            return {str(name)[:MOST_TEXT]: _bound(value[name]) for name in list(value)[:MOST_ITEMS]}
        case bool() | int() | float() | None:
            return value
    return _bound(str(value))


def _encode(values: dict[str, Any]) -> str:
    """Return the values as JSON; the longest ones become `…` until all fit."""
    text = msgspec.json.encode(values).decode()
    while len(text) > MOST_ARGUMENTS:
        longest = max(values, key=lambda name: len(msgspec.json.encode(values[name])))
        if values[longest] == "…":  # only names are left
            return "{}"
        values = values | {longest: "…"}
        text = msgspec.json.encode(values).decode()
    return text
