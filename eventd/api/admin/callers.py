"""The caller: what the key of a request may do."""

from __future__ import annotations

from typing import Any, ClassVar

from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.keys.api_key import ANYONE


class ShowCaller(Params):
    """No parameters: the key of the request decides."""

    by_caller: ClassVar[bool] = True


async def show_caller(services: Services, params: ShowCaller) -> dict[str, Any]:
    key = services.key or ANYONE
    return {
        "name": key.name,
        "scopes": sorted(key.scopes),
        "prefixes": list(key.prefixes),
        "expiresAt": None if key.expires_at is None else show_time(key.expires_at),
    }
