"""The settings that a node runs with, and their origins; of a secret, only whether it is set."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

from eventd.api.framework.operations import Params, Services
from eventd.errors import Unavailable
from eventd.settings.model import Settings, variable_of


class ShowSettings(Params):
    """No parameters."""


async def show(services: Services, params: ShowSettings) -> dict[str, Any]:
    """Return all settings of the running node. Raises `Unavailable` if none runs."""
    settings = services.settings
    if settings is None:
        hint = "start the node, or show what it would start with: routerd-eventd check"
        raise Unavailable("no node runs in this process", hint=hint)
    rows = []
    for row in settings.describe():
        given = getattr(settings, row.name)
        is_secret = isinstance(given, SecretStr)
        value = ("set" if given.get_secret_value() else "") if is_secret else row.value
        about = Settings.model_fields[row.name].description or ""
        named = {"name": row.name, "value": value, "secret": is_secret, "origin": row.origin}
        rows.append({**named, "variable": variable_of(row.name), "description": about})
    return {"settings": rows}
