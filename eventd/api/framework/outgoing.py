"""An operation as a request of a client: its method, its path with the query, and its body."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from eventd.api.framework.route import Route
from eventd.errors import NotFound


def make_request(route: Route, params: Mapping[str, Any]) -> tuple[str, str, bytes | None]:
    """Return method, path with query, and body; for GET no body. UnicodeEncodeError: a value is not valid Unicode."""
    path, rest = _fill(route.path, {outer_name(name): value for name, value in params.items()})
    if route.method == "GET":
        return route.method, path + _query(rest), None
    return route.method, path, json.dumps(rest, ensure_ascii=False).encode()


def outer_name(name: str) -> str:
    """Return the API's name of a parameter: `fromSeq` for `from_seq`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _fill(path: str, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Fill in the fields of a path. Returns the path and the remaining values.

    Raises `NotFound` for an empty or missing name.
    """
    rest = dict(values)
    parts = path.split("/")
    for at, part in enumerate(parts):
        if part.startswith("{"):
            name = part[1:-1]
            parts[at] = quote(str(rest.pop(name, "")), safe="")
            if not parts[at]:
                raise NotFound(f"the value for {name} is empty: write one")
    return "/".join(parts), rest


def _query(values: Mapping[str, Any]) -> str:
    texts = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in values.items()
        if value is not None
    }
    return f"?{urlencode(texts, doseq=True)}" if texts else ""
