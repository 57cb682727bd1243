"""Ids of requests: the client's `X-Request-Id`, else a new one. The answer and the record of actions show it."""

from __future__ import annotations

import re
from itertools import count
from typing import Final

from aiohttp import web

from eventd.runtime.chance import Chance

HEADER: Final = "X-Request-Id"
_VALID: Final = re.compile(r"[A-Za-z0-9._:/+=@-]{1,64}")
_ID: Final = web.RequestKey("request id", str)


class RequestIds:
    """Gives requests their ids: a random beginning for the process, and a number."""

    def __init__(self, chance: Chance) -> None:
        self._begin = chance.token(6).hex()
        self._numbers = count(1)

    def of(self, request: web.Request) -> str:
        """Return the id of a request. An id of the client that is too long, or has other characters, is ignored."""
        if _ID in request:
            return request[_ID]
        given = request.headers.get(HEADER, "")
        request[_ID] = made = given if _VALID.fullmatch(given) else f"{self._begin}-{next(self._numbers)}"
        return made
