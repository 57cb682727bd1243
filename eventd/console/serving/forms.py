"""Reads posted forms, which must be small and of the one content type that pages send."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import parse_qsl

from aiohttp import web

from eventd.errors import Invalid, TooLarge

LARGEST: Final = 1 << 20
"""Bytes of the largest form, which the HTTP server enforces: resources and payloads are edited in one."""
SMALL: Final = 8192
"""Bytes of the largest form that is read before its sender is known."""
PATIENCE_SECONDS: Final = 30.0
_MOST_FIELDS: Final = 1000


async def read_form(request: web.Request, most: int = LARGEST) -> dict[str, Any]:
    """Return the fields of a form of at most `most` bytes; a field that occurs several times is a list.

    Raises `Invalid` and `TooLarge`; a form that states no length, or too large a one, is refused without reading it.
    """
    if request.content_type != "application/x-www-form-urlencoded":
        raise Invalid(f"a form is sent as application/x-www-form-urlencoded, not {request.content_type[:60]}")
    if request.content_length is None or request.content_length > most:
        raise TooLarge(f"the form has more than {most:,} bytes, or does not say how many")
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise TooLarge(f"the form has more than {LARGEST:,} bytes", hint="use routerctl for what is larger") from None
    except TimeoutError:
        raise Invalid(f"the form did not arrive within {PATIENCE_SECONDS:.0f} s") from None
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError:
        raise Invalid("the form is not valid: it is not UTF-8, or has too many fields") from None
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name not in found:
            found[name] = value
        elif isinstance(found[name], list):
            found[name].append(value)
        else:
            found[name] = [found[name], value]
    return found
