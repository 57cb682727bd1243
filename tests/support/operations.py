"""Runs operations as the API and the CLI do, without either."""

from __future__ import annotations

from typing import Any

from eventd.api.framework.endpoint import load
from eventd.api.framework.operations import Params, Services
from eventd.api.routes import OPERATIONS


def params_of(name: str) -> type[Params]:
    """Return the model of an operation's parameters."""
    params = load(OPERATIONS[name]).params
    assert params is not None
    return params


async def run(services: Services, name: str, /, **params: Any) -> Any:
    """Run an operation, its parameters by their JSON names."""
    return await load(OPERATIONS[name]).run(services, params_of(name).model_validate(params))
