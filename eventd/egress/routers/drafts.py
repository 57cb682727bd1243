"""Routers that do not exist yet, as commands and requests describe them, so that they can be checked before they are
created.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from eventd.egress.routers.projection import Options, Router
from eventd.errors import Invalid
from eventd.log.topics.predicate import parse
from eventd.log.topics.topics import require_name

FLAGS: Final = ("allow_cycle", "fan_in", "exactly_once")


def ends_of(router: str, source: str = "", dest: str = "") -> tuple[str, str]:
    """Return source and destination, taken from the router's name if not given. Raises `Invalid` if one is missing."""
    first, arrow, second = router.partition("->")
    source, dest = source or (first if arrow else ""), dest or (second if arrow else "")
    if not source or not dest:
        raise Invalid(
            f"router {router} has no source or no destination",
            hint="name it 'SOURCE->DEST', or give both source and dest",
        )
    return source, dest


def make_router(name: str, source: str, dest: str, given: Mapping[str, Any]) -> Router:
    """Return a router with the options of the API that are given. Raises `Invalid`."""
    for topic in (source, dest):
        require_name(topic)
    options = {key: value for key, value in given.items() if value is not None}
    try:
        if "filter" in options:
            options["filter"] = parse(options["filter"]).shown()
        return Router(name, source, dest, msgspec.convert(options, Options))
    except msgspec.ValidationError as error:
        raise Invalid(f"router {name}: {error}") from None


def read_draft(word: str) -> Router:
    """Return the router that `a->b` or `NAME=a->b` describes, with flags after commas, as in `a->b,fan_in`."""
    ends, *flags = (part.strip() for part in word.split(","))
    name, equals, named = ends.partition("=")
    if unknown := [flag for flag in flags if flag not in FLAGS]:
        raise Invalid(f"{unknown[0][:60]!r} is not one of {', '.join(FLAGS)}")
    source, dest = ends_of(named if equals else name)
    given: dict[str, Any] = {flag: True for flag in flags if flag != "exactly_once"}
    if "exactly_once" in flags:
        given["guarantee"] = "exactly_once"
    return make_router(name, source, dest, given)
